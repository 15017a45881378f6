"""RSN101."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, hexadecimal, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.lint.rules import lawful_elsewhere
from mqttscope.lint.shared_checks import REFUSAL_OF_3_1_1
from mqttscope.mqtt.constants import REASON_CODES, MalformedReason
from mqttscope.mqtt.declare import FaultReport
from mqttscope.mqtt.packets import (
    Connack,
    Disconnect,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties

_BAD_AUTHENTICATION_METHOD = 0x8C


class ReasonCodeInvalid(Rule):
    """A reason or return code is none of those that its packet type has.

    Every packet type has a table of its own in every version.  The receiver cannot know what is meant and treats the
    packet as malformed, or takes a failure for a success.  A code of another packet type, or one of MQTT 5.0 on an
    older connection, is the usual case.

    Instead, use a code of the packet's own table; of the failures 0x80 (Unspecified error) fits nearly everywhere.
    """

    code = "RSN101"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.INFO)
    statements = {
        V5: {
            "MQTT-3.2.2-8": "connack",
            "MQTT-3.4.2-1": "puback",
            "MQTT-3.5.2-1": "pubrec",
            "MQTT-3.6.2-1": "pubrel",
            "MQTT-3.7.2-1": "pubcomp",
            "MQTT-3.8.4-7": "suback",
            "MQTT-3.9.3-2": "suback",
            "MQTT-3.11.3-2": "unsuback",
            "MQTT-3.14.2-1": "disconnect",
            "MQTT-3.15.2-1": "auth",
        },
        V3_1_1: {"MQTT-3.2.2-6": "connack", "MQTT-3.9.3-2": "suback"},
        V3_1: {"V31-CONNACK-codes": "connack", "V31-SUBACK-codes": "suback"},
    }
    malformed = (MalformedReason.REASON_CODE_INVALID,)
    looks_at = Disconnect
    when = "reason_code"

    good = examples(
        lambda: [
            conversation(
                "a PUBREL that does not know the identifier, in a session taken up again",
                *opened(clean_start=False, session_present=True, connect=Properties(session_expiry_interval=60)),
                server(Pubrec(10)),
                client(Pubrel(10, 0x92)),
            ),
            conversation("the highest return code of MQTT 3.1.1", opened(V3_1_1)[0], server(Connack(reason_code=5))),
            conversation(
                "a filter that MQTT 3.1.1 refuses",
                *opened(V3_1_1),
                client(Subscribe(1, subscriptions=[Subscription("a")])),
                server(Suback(1, reason_codes=[0x80])),
            ),
            conversation(
                "all codes of an UNSUBACK that grants",
                *opened(),
                client(Subscribe(1, subscriptions=[Subscription("a")])),
                server(Suback(1, reason_codes=[0])),
                client(Unsubscribe(2, topic_filters=["a", "b"])),
                server(Unsuback(2, reason_codes=[0x00, 0x11])),
            ),
            conversation(
                "a server that does not know MQTT 5.0 refuses in the layout of 3.1.1",
                opened()[0],
                server(hexadecimal("20 02 00 01")),
            ),
            conversation("the highest code of a DISCONNECT", *opened(), server(Disconnect(0xA2))),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "a PUBREL with a code of PUBLISH acknowledgements",
                *opened(),
                client(Publish(qos=2, topic_name="a", packet_identifier=10)),
                server(Pubrec(10)),
                client(hexadecimal("62 03 00 0a 91")).marked("reason_code"),
            ),
            conversation(
                "a return code that MQTT 3.1.1 reserves",
                opened(V3_1_1)[0],
                server(Connack(reason_code=6)).marked("reason_code"),
            ),
            conversation(
                "a return code that MQTT 3.1 reserves",
                opened(V3_1)[0],
                server(Connack(reason_code=6)).marked("reason_code"),
            ),
            conversation(
                "a reason code of MQTT 5.0 in a SUBACK of 3.1.1",
                *opened(V3_1_1),
                client(Subscribe(1, subscriptions=[Subscription("a"), Subscription("b")])),
                server(Suback(1, reason_codes=[0, 0x87])).marked("reason_codes[1]"),
            ),
            conversation(
                "MQTT 3.1 has no failure in a SUBACK",
                *opened(V3_1),
                client(Subscribe(1, subscriptions=[Subscription("a")])),
                server(Suback(1, reason_codes=[0x80])).marked("reason_codes[0]"),
            ),
            conversation(
                "QoS 3 is granted",
                *opened(),
                client(Subscribe(1, subscriptions=[Subscription("a", 2)])),
                server(Suback(1, reason_codes=[3])).marked("reason_codes[0]"),
            ),
            conversation(
                "0x8C in a DISCONNECT, which only the general table has: information",
                *opened(),
                server(Disconnect(_BAD_AUTHENTICATION_METHOD)).marked("reason_code"),
            ),
        ]
    )

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """Say what the code means elsewhere."""
        event = at.event
        raw = event.malformed.raw  # type: ignore[union-attr]
        if (raw == REFUSAL_OF_3_1_1 and at.version == V5) or lawful_elsewhere(at):
            return None
        kind, code = str(event.type).upper(), raw[fault.offset]  # type: ignore[union-attr]
        known = REASON_CODES.get(code) if code > 2 else None
        meaning = f" ({known})" if known else ""
        return self.report(
            fault.field, f"{kind}: 0x{code:02X}{meaning} is not a code of {kind} in MQTT {at.version.text}"
        )

    def check(self, packet: Disconnect, at: RuleContext) -> Findings:
        """The one code on which two tables of the standard differ."""
        if packet.reason_code != _BAD_AUTHENTICATION_METHOD:
            return None
        return self.report(
            "reason_code",
            "DISCONNECT: 0x8C (Bad authentication method) is a DISCONNECT code in the general table of reason codes, "
            "but not in the own table of DISCONNECT",
            severity=Severity.INFO,
        )

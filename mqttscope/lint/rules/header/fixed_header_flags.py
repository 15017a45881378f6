"""HDR102."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, hexadecimal, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule, packet_name
from mqttscope.lint.rules import lawful_elsewhere
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.declare import ControlPacket, FaultReport
from mqttscope.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from mqttscope.mqtt.parts import Subscription

_WITH_QOS = (Pubrel, Subscribe, Unsubscribe)
_DUP, _QOS, _QOS_1 = 0x08, 0x06, 0x02


class FixedHeaderFlags(Rule):
    """The four flag bits of the fixed header are not those that the packet type has.

    They are 0010 for PUBREL, SUBSCRIBE and UNSUBSCRIBE and 0000 for all others but PUBLISH; the receiver treats
    anything else as malformed and closes the connection.  In MQTT 3.1 the three may carry DUP when they are sent
    again, and the bits of the others have no meaning, so there it is told as information only.

    Instead, set the bits as the table of the version has them.
    """

    code = "HDR102"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.INFO)
    reason_code = 0x81
    statements = {
        V5: {
            "MQTT-2.1.3-1": "",
            "MQTT-3.6.1-1": "pubrel",
            "MQTT-3.8.1-1": "subscribe",
            "MQTT-3.10.1-1": "unsubscribe",
            "MQTT-3.14.1-1": "disconnect",
            "MQTT-3.15.1-1": "auth",
        },
        V3_1_1: {
            "MQTT-2.2.2-1": "",
            "MQTT-3.6.1-1": "pubrel",
            "MQTT-3.8.1-1": "subscribe",
            "MQTT-3.10.1-1": "unsubscribe",
            "MQTT-3.14.1-1": "disconnect",
        },
        V3_1: {"V31-HEADER-qos-of-requests": "pubrel,subscribe,unsubscribe", "V31-HEADER-unused-flags": ""},
    }
    also = {V3_1: ("V31-HEADER-dup-scope",)}
    malformed = (MalformedReason.FIXED_HEADER_FLAGS,)
    looks_at = (
        Connect,
        Connack,
        Puback,
        Pubrec,
        Pubrel,
        Pubcomp,
        Subscribe,
        Suback,
        Unsubscribe,
        Unsuback,
        Pingreq,
        Pingresp,
        Disconnect,
    )
    signs = ("header_flags",)

    good = examples(
        lambda: [
            conversation(
                "0010 for SUBSCRIBE, 0000 for SUBACK",
                *opened(),
                client(Subscribe(10, subscriptions=[Subscription("a/b", 1)])),
                server(Suback(10, reason_codes=[1])),
            ),
            conversation(
                "a SUBSCRIBE that MQTT 3.1 sends again",
                *opened(V3_1),
                client(Subscribe(10, subscriptions=[Subscription("a/b", 1)])),
                client(Subscribe(10, subscriptions=[Subscription("a/b", 1)], header_flags=0x0A), after=20),
                server(Suback(10, reason_codes=[1])),
            ),
            conversation(
                "joined in the middle of what may be MQTT 3.1",
                server(Suback(9, reason_codes=[0])),
                client(Subscribe(10, subscriptions=[Subscription("a/b", 1)], header_flags=0x0A)),
                server(Suback(10, reason_codes=[1])),
                version=V3_1,
                handshake=False,
            ),
            conversation(
                "a PUBREL that MQTT 3.1 sends again",
                *opened(V3_1),
                client(Publish(qos=2, topic_name="a", packet_identifier=1)),
                server(Pubrec(1)),
                client(Pubrel(1)),
                client(Pubrel(1, header_flags=0x0A), after=20),
                server(Pubcomp(1)),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "a SUBSCRIBE with 0000",
                *opened(),
                client(hexadecimal("80 09 00 0a 00 00 03 61 2f 62 01")).marked("header_flags"),
                server(Suback(10, reason_codes=[1])),
            ),
            conversation(
                "a PUBREL with DUP in MQTT 3.1.1",
                *opened(V3_1_1),
                client(Publish(qos=2, topic_name="a", packet_identifier=1)),
                server(Pubrec(1)),
                client(Pubrel(1, header_flags=0x0A)).marked("header_flags"),
                server(Pubcomp(1)),
            ),
            conversation("a PINGREQ with 0010", *opened(), client(hexadecimal("c2 00")).marked("header_flags")),
            conversation(
                "a SUBSCRIBE with QoS 0 in MQTT 3.1",
                *opened(V3_1),
                client(Subscribe(10, subscriptions=[Subscription("a/b", 1)], header_flags=0)).marked("header_flags"),
            ),
            conversation(
                "a PINGREQ with DUP in MQTT 3.1",
                *opened(V3_1),
                client(Pingreq(header_flags=0x08)).marked("header_flags"),
            ),
            conversation(
                "a SUBSCRIBE with RETAIN in MQTT 3.1",
                *opened(V3_1),
                client(Subscribe(10, subscriptions=[Subscription("a/b", 1)], header_flags=0x03)).marked("header_flags"),
            ),
        ]
    )

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """The decoder's words, unless it may be MQTT 3.1 that is spoken."""
        return None if lawful_elsewhere(at) else super().check_malformed(fault, at)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """What only MQTT 3.1 lets through: flags that are no fault there."""
        flags = packet.header_flags
        if flags is None or at.version != V3_1:
            return None
        statement = "V31-HEADER-unused-flags"
        if isinstance(packet, _WITH_QOS):
            if flags & _QOS != _QOS_1:
                statement = "V31-HEADER-qos-of-requests"
                told = f"carries QoS {flags >> 1 & 3} in its flags (0x{flags:x}), it is sent with QoS 1"
            elif flags & ~_DUP == _QOS_1:
                return None
            else:
                told = f"carries RETAIN in its flags (0x{flags:x}), which has no meaning there"
        else:
            told = f"has flags 0x{flags:x}, which have no meaning there"
        return self.report(
            "header_flags", f"{packet_name(packet)} {told}", severity=Severity.INFO, statements=(statement,)
        )

"""PRP207."""

from typing import Any

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Related, Severity
from mqttscope.lint.rule import V5, Findings, Needs, Rule, packet_name
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import (
    Auth,
    Disconnect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
)
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties

_QUIET = Properties(request_problem_information=0)
_WORDS = {0x1F: "reason_string", 0x26: "user_property"}


class ProblemInformationUnrequested(Rule):
    """A server sends a Reason String or User Property although the client asked for none.

    A client that sets Request Problem Information to 0 has no room for such texts, or no use for them.  The server may
    then put a Reason String into CONNACK and DISCONNECT only, and a User Property into these two and PUBLISH; a client
    that gets one elsewhere treats it as a protocol error.

    Instead, keep the property of the CONNECT with the connection and leave both out of all other packets.
    """

    code = "PRP207"
    severity = Severity.ERROR
    reason_code = 0x82
    versions = (V5,)
    statements = {V5: {"MQTT-3.1.2-29": ""}}
    looks_at = (Puback, Pubrec, Pubrel, Pubcomp, Suback, Unsuback, Auth)
    sender = Direction.SERVER_TO_CLIENT
    when = "properties"
    needs = Needs.OPENING

    good = examples(
        lambda: [
            conversation(
                "a refusal without words",
                *opened(connect=_QUIET),
                client(Publish(qos=1, topic_name="a", packet_identifier=10)),
                server(Puback(10, 0x87)),
            ),
            conversation(
                "words where they are allowed in any case",
                *opened(connect=_QUIET, connack=Properties(reason_string="welcome", user_property=[("k", "v")])),
                client(Subscribe(1, subscriptions=[Subscription("a")])),
                server(Suback(1, reason_codes=[0])),
                server(Publish(topic_name="a", properties=Properties(user_property=[("k", "v")]))),
                server(Disconnect(0x8B, Properties(reason_string="bye"))),
            ),
            conversation(
                "the client asks for words, as it does when it says nothing",
                *opened(),
                client(Publish(qos=1, topic_name="a", packet_identifier=10)),
                server(Puback(10, 0x87, Properties(reason_string="no"))),
            ),
            conversation(
                "the client asks for words",
                *opened(connect=Properties(request_problem_information=1)),
                client(Publish(qos=1, topic_name="a", packet_identifier=10)),
                server(Puback(10, 0x87, Properties(reason_string="no"))),
            ),
            conversation(
                "the client itself may use them",
                *opened(connect=_QUIET),
                client(Subscribe(1, subscriptions=[Subscription("a", 1)])),
                server(Suback(1, reason_codes=[1])),
                server(Publish(qos=1, topic_name="a", packet_identifier=10)),
                client(Puback(10, 0x80, Properties(reason_string="full"))),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "a Reason String in a PUBACK",
                *opened(connect=_QUIET),
                client(Publish(qos=1, topic_name="a", packet_identifier=10)),
                server(Puback(10, 0x87, Properties(reason_string="no"))).marked("properties.reason_string"),
            ),
            conversation(
                "both in a SUBACK",
                *opened(connect=_QUIET),
                client(Subscribe(1, subscriptions=[Subscription("a")])),
                server(
                    Suback(1, Properties(reason_string="no", user_property=[("k", "v"), ("k", "w")]), [0x87])
                ).marked("properties.reason_string", "properties.user_property"),
            ),
        ]
    )

    def check(self, packet: Any, at: RuleContext) -> Findings:
        """Look at what CONNECT asked for."""
        connect = at.history.connect
        if connect is None or connect.properties is None or connect.properties.request_problem_information != 0:
            return None
        first = at.history.connect_sent
        asked = () if first is None else (Related("the CONNECT", first.packet, first.frame, first.timestamp_ns),)
        names = dict.fromkeys(_WORDS[number] for number, _ in packet.properties.items if number in _WORDS)
        return [
            self.report(
                f"properties.{name}",
                f"{packet_name(packet)} carries {name} although CONNECT set request_problem_information to 0",
                related=asked,
            )
            for name in names
        ]

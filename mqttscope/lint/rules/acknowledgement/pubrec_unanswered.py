"""ACK516."""

from collections.abc import Iterator

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import acknowledges, client, closes, conversation, examples, lost, on, opened, server
from mqttscope.lint.finding import Confidence, Report, Severity
from mqttscope.lint.rule import V3_1_1, V5, Needs
from mqttscope.lint.waiting import AnswerRule, Overdue, Waiting
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Disconnect, Pingreq, Pingresp, Pubcomp, Publish, Pubrec, Pubrel

_BEGUN = (client(Publish(qos=2, topic_name="a", packet_identifier=7)), server(Pubrec(7)))
_PING = (client(Pingreq(), after=20), server(Pingresp()))


class PubrecUnanswered(AnswerRule):
    """A PUBREC gets no PUBREL.

    The receiver of a QoS 2 message keeps its packet identifier until PUBREL comes, and some deliver the message only
    then.  The finding comes when the PUBREL has been missing for ``timeout`` seconds while the connection lives, and
    only where TCP shows that the sender of the message got the PUBREC.

    Instead, answer each PUBREC with a Reason Code below 0x80 with PUBREL, also after the message has expired.
    """

    code = "ACK516"
    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    statements = {V5: {"MQTT-3.10.4-3": "server", "MQTT-4.3.3-4": ""}, V3_1_1: {"MQTT-3.10.4-3": "server"}}
    also = {V5: ("MQTT-4.3.3-13",), V3_1_1: ("MQTT-4.3.3-1",)}
    looks_at = Pubrec
    needs = Needs.BOTH_DIRECTIONS | Needs.WHOLE
    settings = {"timeout": 30}
    begun_by_debtor = True
    Memory = Waiting

    good = examples(
        lambda: [
            conversation(
                "released", *opened(), *_BEGUN, client(Pubrel(7)), server(Pubcomp(7)), *_PING, *_PING, closes("client")
            ),
            conversation(
                "refused",
                *opened(),
                client(Publish(qos=2, topic_name="a", packet_identifier=7)),
                server(Pubrec(7, reason_code=0x87)),
                *_PING,
                *_PING,
                closes("client"),
            ),
            conversation("the connection ends before long", *opened(), *_BEGUN, *_PING, closes("client", after=5)),
            conversation(
                "somebody takes leave before long",
                *opened(),
                *_BEGUN,
                *_PING,
                server(Disconnect(0x8B), after=8),
                acknowledges("client"),
                closes("server", after=4),
            ),
            conversation(
                "the client never got it",
                *opened(V3_1_1),
                *_BEGUN,
                *on(1, *opened(V3_1_1, client_identifier="c2"), client(Pingreq(), after=60)),
            ),
            conversation(
                "the capture lost bytes of the client",
                *opened(),
                *_BEGUN,
                lost(client(Pubrel(7))),
                *_PING,
                *_PING,
                closes("client"),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation("the client continues", *opened(), *_BEGUN, *_PING, *_PING, closes("client").marked("")),
            conversation(
                "in MQTT 3.1.1, by the server",
                *opened(V3_1_1),
                server(Publish(qos=2, topic_name="a", packet_identifier=7)),
                client(Pubrec(7)),
                acknowledges("server"),
                closes("client", after=50).marked(""),
            ),
            conversation(
                "another limit",
                *opened(),
                *_BEGUN,
                acknowledges("client"),
                closes("client", after=9).marked(""),
                settings={"timeout": 5},
            ),
        ]
    )

    def owed(self, at: RuleContext, debtor: Direction) -> Iterator[tuple[int, int]]:
        """PUBREC packets that a side has not answered."""
        yield from at.history.party(debtor).owes_pubrel.items()

    def describe(self, one: Overdue, at: RuleContext) -> Report | None:
        """Say what did not come."""
        told = f"PUBREC with packet identifier {one.identifier} got no PUBREL within {self.set['timeout']} s"
        return self.overdue(one, told, "the PUBLISH")

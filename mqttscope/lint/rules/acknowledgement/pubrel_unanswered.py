"""ACK517."""

from collections.abc import Iterator

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import acknowledges, client, closes, conversation, examples, lost, on, opened, server
from mqttscope.lint.finding import Confidence, Report, Severity
from mqttscope.lint.rule import V3_1_1, V5, Needs
from mqttscope.lint.waiting import AnswerRule, Overdue, Waiting
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Disconnect, Pingreq, Pingresp, Pubcomp, Publish, Pubrec, Pubrel

_BEGUN = (
    client(Publish(qos=2, topic_name="a", packet_identifier=7)),
    server(Pubrec(7)),
    client(Pubrel(7)),
)
_PING = (client(Pingreq(), after=20), server(Pingresp()))


class PubrelUnanswered(AnswerRule):
    """A PUBREL gets no PUBCOMP.

    The sender of a QoS 2 message cannot use the packet identifier again, and its window stays smaller by one.  The
    finding comes when the PUBCOMP has been missing for ``timeout`` seconds while the connection lives, and only where
    TCP shows that the receiver got the PUBREL.

    Instead, answer each PUBREL with PUBCOMP, also where the packet identifier is not known, the message has expired or
    the subscription is gone.
    """

    code = "ACK517"
    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    statements = {V5: {"MQTT-4.3.3-11": "", "MQTT-4.3.3-13": ""}}
    also = {V3_1_1: ("MQTT-4.3.3-2",)}
    looks_at = Pubrel
    needs = Needs.BOTH_DIRECTIONS | Needs.WHOLE
    settings = {"timeout": 30}
    Memory = Waiting

    good = examples(
        lambda: [
            conversation("completed", *opened(), *_BEGUN, server(Pubcomp(7)), *_PING, *_PING, closes("client")),
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
                "the server never got it",
                *opened(V3_1_1),
                *_BEGUN,
                *on(1, *opened(V3_1_1, client_identifier="c2"), client(Pingreq(), after=60)),
            ),
            conversation(
                "the capture lost bytes of the server",
                *opened(),
                *_BEGUN,
                lost(server(Pubcomp(7))),
                *_PING,
                *_PING,
                closes("client"),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation("the server continues", *opened(), *_BEGUN, *_PING, *_PING, closes("client").marked("")),
            conversation(
                "in MQTT 3.1.1, by the client",
                *opened(V3_1_1),
                server(Publish(qos=2, topic_name="a", packet_identifier=7)),
                client(Pubrec(7)),
                server(Pubrel(7)),
                acknowledges("client"),
                closes("client", after=50).marked(""),
            ),
            conversation(
                "of a message from before a reconnect",
                *opened(clean_start=False, session_present=True),
                client(Pubrel(7)),
                *_PING,
                *_PING,
                closes("client").marked(""),
            ),
            conversation(
                "another limit",
                *opened(),
                *_BEGUN,
                acknowledges("server"),
                closes("client", after=9).marked(""),
                settings={"timeout": 5},
            ),
        ]
    )

    def owed(self, at: RuleContext, debtor: Direction) -> Iterator[tuple[int, int]]:
        """PUBREL packets that a side has not answered."""
        yield from at.history.party(debtor).owes_pubcomp.items()

    def describe(self, one: Overdue, at: RuleContext) -> Report | None:
        """Say what did not come."""
        told = f"PUBREL with packet identifier {one.identifier} got no PUBCOMP within {self.set['timeout']} s"
        return self.overdue(one, told, "the PUBLISH")

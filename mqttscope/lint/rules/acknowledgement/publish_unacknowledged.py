"""ACK515."""

from collections.abc import Iterator

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import (
    acknowledges,
    client,
    closes,
    conversation,
    examples,
    hexadecimal,
    lost,
    on,
    opened,
    server,
)
from mqttscope.lint.finding import Confidence, Report, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Needs
from mqttscope.lint.strings import shown
from mqttscope.lint.waiting import C2S, SECOND_NS, AnswerRule, Overdue, Waiting
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Disconnect, Pingreq, Pingresp, Puback, Publish, Pubrec, Pubrel
from mqttscope.session.inflight import SENT

QOS_3 = 3
"""What is no QoS has no answer either: the receiver has to close the connection."""
_ASKS = client(Publish(qos=1, topic_name="a", packet_identifier=7))
_PING = (client(Pingreq(), after=20), server(Pingresp()))


class PublishUnacknowledged(AnswerRule):
    """A PUBLISH of QoS 1 or 2 gets no PUBACK or PUBREC.

    Its sender keeps the message and a place in its window, and sends it again after the next reconnect: nobody knows
    whether it was delivered.  The finding comes when the answer has been missing for ``timeout`` seconds while the
    connection lives, and only where TCP shows that the receiver got the PUBLISH.  A client may take its time with a
    message, so that it is a warning there unless the client has acknowledged a later one.

    Instead, answer each PUBLISH of QoS 1 with PUBACK and of QoS 2 with PUBREC, also where it is refused.
    """

    code = "ACK515"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    statements = {
        V5: {"MQTT-3.3.4-1": "", "MQTT-4.3.2-4": "", "MQTT-4.3.3-8": "", "MQTT-4.5.0-2": "client"},
        V3_1_1: {"MQTT-3.3.4-1": "", "MQTT-3.3.5-2": "server", "MQTT-4.3.2-2": "", "MQTT-4.5.0-2": "client"},
        V3_1: {"V31-PUBLISH-response": "", "V31-PUBLISH-unauthorised": "server"},
    }
    also = {V5: ("MQTT-2.2.1-5", "MQTT-4.3.3-13"), V3_1_1: ("MQTT-4.1.0-2", "MQTT-4.3.3-2")}
    looks_at = Publish
    when = "qos"
    needs = Needs.BOTH_DIRECTIONS | Needs.WHOLE
    settings = {"timeout": 30}
    Memory = Waiting

    good = examples(
        lambda: [
            conversation("acknowledged", *opened(), _ASKS, server(Puback(7)), *_PING, *_PING, closes("client")),
            conversation(
                "received, and not yet released",
                *opened(V3_1_1),
                client(Publish(qos=2, topic_name="a", packet_identifier=7)),
                server(Pubrec(7)),
                client(Pubrel(7)),
                acknowledges("server"),
                *on(1, *opened(V3_1_1, client_identifier="c2"), client(Pingreq(), after=25)),
            ),
            conversation("the connection ends before long", *opened(), _ASKS, *_PING, closes("client", after=5)),
            conversation(
                "the client takes leave before long",
                *opened(),
                _ASKS,
                client(Disconnect(), after=28),
                acknowledges("server"),
                closes("client", after=4),
            ),
            conversation("the capture ends before long", *opened(), _ASKS, *_PING),
            conversation(
                "the server never got it",
                *opened(),
                _ASKS,
                *on(1, *opened(client_identifier="c2"), client(Pingreq(), after=60)),
            ),
            conversation(
                "the capture lost bytes of the server",
                *opened(),
                _ASKS,
                lost(server(Puback(7))),
                *_PING,
                *_PING,
                closes("client"),
            ),
            conversation(
                "the acknowledgment of the last bytes shows that they are missing",
                *opened(),
                _ASKS,
                lost(server(Puback(7))),
                *on(1, *opened(client_identifier="c2"), client(Pingreq(), after=60)),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "pings are answered, and the message is not",
                *opened(),
                _ASKS,
                *_PING,
                *_PING,
                closes("client").marked(""),
            ),
            conversation(
                "beside a message with a QoS that does not exist, which is no reason for an answer",
                *opened(),
                client(hexadecimal("36 06 00 01 61 00 08 00")),
                _ASKS,
                acknowledges("server"),
                closes("client", after=50).marked(""),
            ),
            conversation(
                "a later message is acknowledged, in MQTT 3.1.1",
                *opened(V3_1_1),
                client(Publish(qos=2, topic_name="a", packet_identifier=7)),
                client(Publish(qos=1, topic_name="a", packet_identifier=8)),
                server(Puback(8)),
                *on(1, *opened(V3_1_1, client_identifier="c2"), client(Pingreq(), after=40).marked("", at=None)),
            ),
            conversation(
                "both sides, in MQTT 3.1",
                *opened(V3_1),
                server(Publish(qos=1, topic_name="b", packet_identifier=1)),
                _ASKS,
                acknowledges("server"),
                closes("client", after=50).marked("", ""),
            ),
            conversation(
                "another limit",
                *opened(),
                _ASKS,
                acknowledges("server"),
                closes("client", after=9).marked(""),
                settings={"timeout": 5},
            ),
        ]
    )

    def owed(self, at: RuleContext, debtor: Direction) -> Iterator[tuple[int, int]]:
        """What has had no answer at all."""
        party, sender = at.history.party(debtor), at.connection.receiver(debtor)
        for owes in (party.owes_puback, party.owes_pubrec):
            for identifier, number in owes.items():
                one = sender.running(identifier, "publish")
                if one is not None and one.phase is SENT and one.packet == number and one.qos != QOS_3:
                    yield identifier, number

    def describe(self, one: Overdue, at: RuleContext) -> Report | None:
        """Say what was sent and what did not come."""
        exchange = one.exchange
        if exchange is None:
            return None
        topic = "an unknown topic" if exchange.topic is None else shown(exchange.topic)
        seconds = (at.timestamp_ns - exchange.timestamp_ns) / SECOND_NS
        answer = "PUBACK" if exchange.qos == 1 else "PUBREC"
        slow = one.sender is not C2S and not any(
            ended.packet > one.packet for ended in at.history.server.ended.values()
        )
        return self.overdue(
            one,
            f"PUBLISH {topic} with packet identifier {one.identifier} (QoS {exchange.qos}) got no {answer} within "
            f"{seconds:.0f} s",
            "the PUBLISH",
            severity=Severity.WARNING if slow else None,
            confidence=Confidence.HEURISTIC if slow else None,
        )

"""OPS217."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, crossing, examples, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1_1, Findings, Rule, packet_name
from mqttscope.lint.topics import Seen
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Pingreq, Puback, Publish, Suback, Subscribe, Unsubscribe
from mqttscope.mqtt.parts import Subscription


class PublishBeforeConnack(Rule):
    """A client continues before the CONNACK has reached it.

    That is allowed and saves a round trip, but the client does not know yet whether it is accepted, which limits hold
    and whether its session was there.  With QoS above 0, Topic Aliases and resumed sessions that goes wrong sooner or
    later.  Reported once per connection.

    Instead, wait for the CONNACK.
    """

    code = "OPS217"
    severity = Severity.INFO
    looks_at = (Publish, Subscribe, Unsubscribe, Pingreq)
    sender = Direction.CLIENT_TO_SERVER
    Memory = Seen

    good = examples(
        lambda: [
            conversation(
                "after the CONNACK",
                *opened(),
                client(Publish(qos=1, topic_name="a", packet_identifier=1)),
                server(Puback(1)),
            ),
            conversation(
                "the beginning was not captured",
                client(Publish(topic_name="a/b", payload=b"1"), Publish(topic_name="a/b", payload=b"2")),
                server(Publish(topic_name="a/b", payload=b"3")),
                handshake=False,
                version=V3_1_1,
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "before the server has answered, reported once",
                opened()[0],
                client(Publish(qos=1, topic_name="a", packet_identifier=1)).marked(""),
                client(Publish(topic_name="a")),
                opened()[1],
                server(Puback(1)),
            ),
            conversation(
                "the CONNACK was on its way",
                *opened(V3_1_1),
                crossing(client(Subscribe(1, None, [Subscription("a")]))).marked(""),
                server(Suback(1, None, [0])),
            ),
        ]
    )

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """TCP acknowledgments prove what the client had received."""
        history, had = at.history, at.party.acknowledged
        connack, connect = history.connack_sent, history.connect_sent
        if had < 0 or connect is None or (connack is not None and had >= connack.position):
            return None
        # Without a CONNACK: all that the client had received must have been captured.
        if connack is None and (had > at.other.position or at.server.gapped or history.connack_malformed is not None):
            return None
        if not at.memory(self).first(""):
            return None
        return self.report(
            "",
            f"{at.client_name!r} sent {packet_name(packet)} before CONNACK: limits and session are unknown to it",
        )

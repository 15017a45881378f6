"""OPS211."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1_1, V5, Findings, Needs, Rule
from mqttscope.lint.strings import shown
from mqttscope.lint.topics import Seen
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties

_ASKS = client(Subscribe(1, None, [Subscription("a", 1)]))
_GETS = server(Suback(1, None, [1]))


class VolatileSessionDurableSubscription(Rule):
    """A client subscribes with QoS 1 or 2 in a session that ends with the connection.

    Nothing is kept while the client is offline, so what is published during a reconnect is lost all the same; the QoS
    protects only what is on its way when nothing breaks.  Reported with the first such SUBSCRIBE of a connection.

    Instead, keep the session (CleanSession 0, or a Session Expiry Interval in MQTT 5.0), or subscribe with QoS 0.
    """

    code = "OPS211"
    severity = Severity.WARNING
    looks_at = Subscribe
    sender = Direction.CLIENT_TO_SERVER
    needs = Needs.OPENING
    Memory = Seen

    good = examples(
        lambda: [
            conversation(
                "the session stays",
                *opened(clean_start=False, connect=Properties(session_expiry_interval=3600)),
                _ASKS,
                _GETS,
            ),
            conversation(
                "it begins again and stays", *opened(connect=Properties(session_expiry_interval=3600)), _ASKS, _GETS
            ),
            conversation("it stays in MQTT 3.1.1", *opened(V3_1_1, clean_start=False), _ASKS, _GETS),
            conversation(
                "the server lets it stay", *opened(connack=Properties(session_expiry_interval=60)), _ASKS, _GETS
            ),
            conversation(
                "QoS 0",
                *opened(),
                client(Subscribe(1, None, [Subscription("a", 0)])),
                server(Suback(1, None, [0])),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "CleanSession 1 in MQTT 3.1.1, reported once",
                *opened(V3_1_1),
                _ASKS.marked("subscriptions[0].maximum_qos"),
                _GETS,
                _ASKS,
                _GETS,
            ),
            conversation(
                "no expiry in MQTT 5.0",
                *opened(),
                client(Subscribe(1, None, [Subscription("a"), Subscription("b", 2), Subscription("c", 1)])).marked(
                    "subscriptions[1].maximum_qos"
                ),
                server(Suback(1, None, [0, 2, 1])),
            ),
            conversation(
                "the server shortens it",
                *opened(connect=Properties(session_expiry_interval=60), connack=Properties(session_expiry_interval=0)),
                _ASKS.marked("subscriptions[0].maximum_qos"),
                _GETS,
            ),
        ]
    )

    def check(self, packet: Subscribe, at: RuleContext) -> Findings:
        """The first filter with a QoS above 0."""
        connection = at.connection
        if at.version is V5:
            ends = connection.session_expiry_interval == 0
        else:
            ends = connection.clean_start is True
        if not ends:
            return None
        for index, row in enumerate(packet.subscriptions or ()):
            if row.maximum_qos:
                if not at.memory(self).first(""):
                    return None
                return self.report(
                    f"subscriptions[{index}].maximum_qos",
                    f"{at.client_name!r} subscribes {shown(row.topic_filter)} at QoS {row.maximum_qos} in a session "
                    "that ends with the connection",
                )
        return None

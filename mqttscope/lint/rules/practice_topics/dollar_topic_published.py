"""TOP105."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.lint.strings import shown
from mqttscope.lint.topics import Seen
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connect, Publish
from mqttscope.mqtt.parts import Will


class DollarTopicPublished(Rule):
    """A client publishes to a topic that begins with a dollar sign.

    These topics belong to the server, for its own statistics and interfaces.  Servers drop such messages or hand them
    to something else than subscribers, and filters that begin with a wildcard do not match them.  Each topic is
    reported once per connection.

    Instead, publish below a name of your own; allow the prefixes of your platform in the configuration.
    """

    code = "TOP105"
    severity = Severity.WARNING
    statements = {V5: {"V5-DOLLAR-topics-clients": ""}, V3_1_1: {"V311-DOLLAR-topics-clients": ""}}
    looks_at = (Connect, Publish)
    sender = Direction.CLIENT_TO_SERVER
    settings = {
        # Prefixes of topics that clients of your platform may publish to, for example $aws/, $iothub/, $dps/;
        # $share/ is never allowed.
        "allowed": [],
    }
    Memory = Seen

    good = examples(
        lambda: [
            conversation("a name of its own", *opened(), client(Publish(topic_name="sys/x", payload=b"hi"))),
            conversation("a dollar sign further on", *opened(), client(Publish(topic_name="a/$x", payload=b"hi"))),
            conversation("the server publishes", *opened(), server(Publish(topic_name="$SYS/x", payload=b"hi"))),
            conversation(
                "a prefix that the configuration allows",
                *opened(),
                client(Publish(topic_name="$aws/things/c1/shadow/update", payload=b"{}")),
                settings={"allowed": ["$aws/"]},
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "MQTT 5.0, reported once",
                *opened(),
                client(Publish(topic_name="$SYS/x", payload=b"hi")).marked("topic_name"),
                client(Publish(topic_name="$SYS/x", payload=b"ho")),
            ),
            conversation("MQTT 3.1.1", *opened(V3_1_1), client(Publish(topic_name="$SYS/x")).marked("topic_name")),
            conversation("MQTT 3.1", *opened(V3_1), client(Publish(topic_name="$SYS/x")).marked("topic_name")),
            conversation("as a will", opened(will=Will("$state", b"x"))[0].marked("will.will_topic"), opened()[1]),
            conversation(
                "a share is no prefix to allow",
                *opened(),
                client(Publish(topic_name="$share/g/a")).marked("topic_name"),
                settings={"allowed": ["$share/"]},
            ),
        ]
    )

    def check(self, packet: Connect | Publish, at: RuleContext) -> Findings:
        """The first character clears nearly all topics."""
        if isinstance(packet, Publish):
            field, topic, how = "topic_name", packet.topic_name, "publishes to"
        elif packet.will is not None:
            field, topic, how = "will.will_topic", packet.will.will_topic, "has a will for"
        else:
            return None
        if not topic or topic[0] != "$":
            return None
        allowed = topic.startswith(tuple(self.set["allowed"])) and not topic.startswith("$share/")
        if allowed or not at.memory(self).first(topic):
            return None
        return self.report(
            field, f"{at.client_name!r} {how} {shown(topic)}; topics beginning with '$' belong to the server"
        )

from mqttscope.lint.rules import V3_1_1, V5, Findings, Rule, RuleContext, Severity, examples, shown
from mqttscope.lint.topics import ReportedTexts
from mqttscope.mqtt import Connect, Direction, Publish


class DollarTopicPublished(Rule):
    """A client publishes to a topic that begins with a dollar sign.

    These topics belong to the server, for its own statistics and interfaces.  Servers drop such messages or use them
    internally, and filters that begin with a wildcard do not match them.  Each topic is reported once per connection.

    Instead, publish below a name of your own; add the prefixes of your platform to ``allowed`` in the configuration.
    """

    code = "TOP105"
    severity = Severity.WARNING
    statements = {V5: {"V5-DOLLAR-topics-clients": ""}, V3_1_1: {"V311-DOLLAR-topics-clients": ""}}
    sender = Direction.CLIENT_TO_SERVER
    settings = {
        # Prefixes of topics that clients of your platform may publish to, for example $aws/, $iothub/, $dps/;
        # $share/ is never allowed.
        "allowed": [],
    }
    Memory = ReportedTexts

    good = examples("""
        an ordinary name
            opened; > publish sys/x hi
        a dollar sign in a later position
            opened; > publish a/$x hi
        the server publishes
            opened; < publish $SYS/x hi
        an allowed prefix
            settings allowed=["$aws/"]; opened; > publish $aws/things/c1/shadow/update {}
    """)
    bad = examples("""
        MQTT 5.0, reported once
            opened; > publish $SYS/x hi !topic_name; > publish $SYS/x ho
        MQTT 3.1.1
            opened 3.1.1; > publish $SYS/x !topic_name
        MQTT 3.1
            opened 3.1; > publish $SYS/x !topic_name
        as a will
            opened will=$state will_payload=x !will.will_topic
        $share/ cannot be allowed
            settings allowed=["$share/"]; opened; > publish $share/g/a !topic_name
    """)

    def check(self, packet: Connect | Publish, at: RuleContext) -> Findings:
        """Check the first character of each topic."""
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
            field, f"{at.client_name!r} {how} {shown(topic)}; topics that begin with '$' belong to the server"
        )

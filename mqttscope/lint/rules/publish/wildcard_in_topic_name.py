from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, Rule, RuleContext, Severity, examples
from mqttscope.mqtt.packets import Publish


class WildcardInTopicName(Rule):
    """A PUBLISH has a wildcard character in its Topic Name.

    Wildcards are for filters only.  A message published to ``a/+`` does not reach the subscribers of ``a/b``; servers
    close the connection or drop the message.  The characters are forbidden anywhere in the name, not only as a whole
    level.

    Instead, publish to each topic by its full name.
    """

    code = "PUB103"
    severity = Severity.ERROR
    statements = {
        V5: {"MQTT-3.3.2-2": "", "MQTT-4.7.0-1": ""},
        V3_1_1: {"MQTT-3.3.2-2": "", "MQTT-4.7.1-1": ""},
        V3_1: {"V31-PUBLISH-no-wildcards": ""},
    }
    when = "odd_strings"
    signs = ("wildcard",)

    good = examples("""
        a plain name
            opened; > publish a/x/b hi
        a wildcard in a filter
            opened 3.1.1; > subscribe 1 a/+/b:0; < suback 1 0; < publish a/x/b
        an alias without a name
            opened < topic_alias_maximum=5; > publish a/b topic_alias=1; > publish - topic_alias=1
    """)
    bad = examples("""
        a whole level
            opened; > publish a/+/b !topic_name
        inside a level
            opened 3.1.1; > publish a/b# !topic_name
        from the server, in MQTT 3.1
            opened 3.1; < publish + !topic_name
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look for a wildcard character."""
        topic = packet.topic_name
        if "+" not in topic and "#" not in topic:
            return None
        character = next(char for char in topic if char in "+#")
        return self.report("topic_name", f"PUBLISH topic name {topic!r} has the wildcard {character!r}")

from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, Rule, RuleContext, Severity, examples, properties_lost
from mqttscope.mqtt.packets import Publish


class TopicEmpty(Rule):
    """A PUBLISH has an empty Topic Name and no Topic Alias.

    The message has no topic.  MQTT 5.0 allows an empty name if a Topic Alias replaces it; before 5.0 the name must not
    be empty.

    Instead, send a Topic Name of at least one character, or in MQTT 5.0 a Topic Alias that was set before.
    """

    code = "PUB104"
    severity = Severity.ERROR
    reason_code = 0x82
    statements = {V5: {"MQTT-4.7.3-1": "", "V5-PUBLISH-empty-topic": ""}, V3_1_1: {"MQTT-4.7.3-1": ""}}
    also = {V3_1: ("V31-PUBLISH-topic-length",)}
    when = "odd_strings"
    signs = ("nameless",)

    good = examples("""
        one character is enough
            opened; > publish a
        replaced by an alias
            opened < topic_alias_maximum=5; > publish a/b topic_alias=1; > publish - topic_alias=1
    """)
    bad = examples("""
        neither name nor alias
            opened; > publish - hi !topic_name
        properties, but no alias among them
            opened; < publish - content_type=x !topic_name
        in MQTT 3.1.1
            opened 3.1.1; > publish - hi !topic_name
        in MQTT 3.1
            opened 3.1; > publish - hi !topic_name
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Report an empty name without an alias."""
        if packet.topic_name:
            return None
        block = packet.properties
        if block and block.topic_alias is not None:
            return None
        if properties_lost(packet, at) or (at.version is not V5 and not at.connection.version_known):
            return None  # the alias may be in bytes that the capture lacks
        why = " and no Topic Alias" if at.version is V5 else f"; MQTT {at.version.text} has no Topic Alias"
        return self.report("topic_name", f"PUBLISH has an empty topic name{why}")

from mqttscope.lint.rules import V5, Findings, Rule, RuleContext, Severity, examples
from mqttscope.mqtt.packets import Publish


class TopicAliasZero(Rule):
    """A PUBLISH has Topic Alias 0, which is invalid.

    The receiver closes the connection with 0x94 (Topic Alias invalid).

    Instead, count aliases from 1 to the receiver's Topic Alias Maximum, and omit the property if you use no alias.
    """

    code = "ALS101"
    severity = Severity.ERROR
    reason_code = 0x94
    versions = (V5,)
    statements = {V5: {"MQTT-3.3.2-8": ""}}
    also = {V5: ("V5-PUBLISH-alias-range",)}
    when = "properties"
    signs = ("odd_alias",)

    good = examples("""
        the lowest alias
            opened < topic_alias_maximum=1; > publish a/b topic_alias=1
        no alias
            opened; > publish a/b content_type=x
    """)
    bad = examples("""
        from the client
            opened < topic_alias_maximum=1; > publish a/b topic_alias=0 !properties.topic_alias
        from the server
            opened; < publish a/b topic_alias=0 !properties.topic_alias
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Check the property."""
        assert packet.properties is not None
        if packet.properties.topic_alias != 0:
            return None
        return self.report("properties.topic_alias", f"PUBLISH {at.topic!r} has Topic Alias 0")

from mqttscope.lint.rules import V5, Findings, Needs, Rule, RuleContext, Severity, examples
from mqttscope.mqtt.packets import Publish


class TopicAliasUnmapped(Rule):
    """A PUBLISH uses a Topic Alias that its sender has not set on this connection.

    The receiver cannot resolve the topic and closes the connection with 0x82 (Protocol Error).  Each direction has its
    own aliases, and all of them end with the connection.

    Instead, send topic and alias together once on every new connection, and the alias alone after that.
    """

    code = "ALS203"
    severity = Severity.ERROR
    reason_code = 0x82
    versions = (V5,)
    statements = {V5: {"V5-PUBLISH-alias-unknown": ""}}
    also = {V5: ("MQTT-3.3.2-7",)}
    when = "properties"
    signs = ("unresolved",)
    needs = Needs.OPENING | Needs.WHOLE_SENDER

    good = examples("""
        set, used, mapped to another topic, used again
            opened < topic_alias_maximum=5; > publish a/b topic_alias=3; > publish - topic_alias=3
            > publish c topic_alias=3; > publish - topic_alias=3
        set by a refused message
            opened topic_alias_maximum=5; < publish a qos=1 id=1 topic_alias=1; > puback 1 code=0x83
            < publish - topic_alias=1
        the PUBLISH that sets it is not in the capture
            opened < topic_alias_maximum=5; lost > publish a/b topic_alias=3; > publish - topic_alias=3
        capture started in mid-connection
            midstream; > publish - 21.5 topic_alias=3; < publish a 1
    """)
    bad = examples("""
        never set
            opened < topic_alias_maximum=5; > publish - topic_alias=3 !properties.topic_alias
        set in the other direction only
            opened topic_alias_maximum=5 < topic_alias_maximum=5; > publish a/b topic_alias=3
            < publish - topic_alias=3 !properties.topic_alias
        another alias is set
            opened < topic_alias_maximum=5; > publish a/b topic_alias=3
            > publish - topic_alias=4 !properties.topic_alias
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Report an empty topic with an alias that has no topic."""
        if packet.topic_name or at.topic is not None:
            return None
        assert packet.properties is not None
        alias = packet.properties.topic_alias
        if not alias or at.party.malformed:
            return None  # a malformed packet may have set it
        who = "client" if at.from_client else "server"
        text = f"PUBLISH has only Topic Alias {alias:,}, which the {who} has not set on this connection"
        return self.report("properties.topic_alias", text)

from mqttscope.lint.rules import V5, Confidence, Findings, Needs, Rule, RuleContext, Severity, examples
from mqttscope.mqtt.packets import Disconnect


class TopicAliasRefusedWithinMaximum(Rule):
    """A receiver closes with 0x94 (Topic Alias invalid) although it had to accept every alias.

    It announced a Topic Alias Maximum, and the other side kept to it and set each alias before using it.  The sender
    can only stop using aliases; until then the connection breaks again and again.

    Instead, accept every alias from 1 to the announced maximum, or do not announce a maximum.
    """

    code = "ALS204"
    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    versions = (V5,)
    statements = {V5: {"MQTT-3.3.2-10": "client", "MQTT-3.3.2-12": "server"}}
    needs = Needs.OPENING | Needs.WHOLE_RECEIVER

    good = examples("""
        accepted
            opened topic_alias_maximum=10; < publish a/b qos=1 id=1 topic_alias=1; > puback 1; > disconnect
        earlier packets are not in the capture
            opened topic_alias_maximum=10; lost < publish a/b topic_alias=11; < publish a/b topic_alias=1
            > disconnect code=0x94
    """)
    bad = examples("""
        by the client
            opened topic_alias_maximum=10; < publish a/b topic_alias=10; > disconnect code=0x94 !reason_code
        by the server, whatever aliases it sent itself
            opened < topic_alias_maximum=10; > publish a/b topic_alias=1; > publish - topic_alias=1
            < publish a/b topic_alias=1; < disconnect code=0x94 !reason_code
    """)

    def check(self, packet: Disconnect, at: RuleContext) -> Findings:
        """Report the refusal unless an earlier packet may have had an invalid alias."""
        if packet.reason_code != 0x94:
            return None
        used = at.receiver.alias_sets + at.receiver.alias_hits
        if not used or at.other.odd_aliases or at.other.malformed:
            return None
        who = "client" if at.from_client else "server"
        return self.report(
            "reason_code",
            f"{who} disconnects with 0x94 (Topic Alias invalid), but its Topic Alias Maximum is "
            f"{at.sender.topic_alias_maximum:,} and all {used:,} aliases that it received were within it and set",
        )

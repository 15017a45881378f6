from mqttscope.lint.rules import V3_1_1, V5, Findings, RuleContext, examples
from mqttscope.lint.rules.delivery import DeliveryRule
from mqttscope.mqtt.packets import Publish


class TopicNormalised(DeliveryRule):
    """A message matches a filter of the client only after its topic was changed.

    Topics are compared character by character: ``A`` is not ``a``, ``a//b`` has an empty level, ``/a`` is not ``a``,
    and two Unicode encodings of one letter are two topics.  A server that normalises topics delivers messages that were
    not subscribed to, and clients have no handler for them.

    Instead, compare topics and filters unchanged.
    """

    code = "DLV209"
    statements = {V5: {"MQTT-4.7.3-4": ""}, V3_1_1: {"MQTT-4.7.3-4": ""}}
    signs = ("unmatched",)

    good = examples("""
        an empty level in both
            opened; > subscribe 10 a//b:0; < suback 10 0; < publish a//b
        a wildcard matches an empty level
            opened 3.1.1; > subscribe 10 a/+/b:0 +/c:0; < suback 10 0 0; < publish a//b & publish /c
    """)
    bad = examples("""
        an empty level
            opened; > subscribe 10 a/b:0; < suback 10 0; < publish a//b !topic_name
        capital letters, in 3.1.1
            opened 3.1.1; > subscribe 10 a/b:0; < suback 10 0; < publish A/b !topic_name
        a leading slash, in 3.1
            opened 3.1; > subscribe 10 a/b:0; < suback 10 0; < publish /a/b !topic_name
        a decomposed accented letter
            opened; > subscribe 10 café:0; < suback 10 0; < publish café !topic_name
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Report topics that match a filter only after normalisation."""
        topic = at.topic
        if topic is None:
            return None
        table = at.history.subscriptions
        match = table.matches.get(topic) or table.match(topic)
        if match.subscriptions or match.ended or match.extended or match.beside or packet.dup or not match.known:
            return None
        near = table.near(topic)
        if near is None:
            return None
        return self.report(
            "topic_name",
            f"PUBLISH {topic!r} to {at.client_name!r} matches {near[0]!r} only after {near[1]}",
        )

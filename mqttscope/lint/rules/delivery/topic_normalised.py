from mqttscope.lint.rules import V3_1_1, V5, Findings, RuleContext, examples
from mqttscope.lint.rules.delivery import DeliveryRule
from mqttscope.mqtt.packets import Publish


class TopicNormalised(DeliveryRule):
    """A message matches a filter of the client only after its topic was changed.

    Topics are compared character by character: ``A`` is not ``a``, ``a//b`` has an empty level in it, ``/a`` is not
    ``a``, and two ways to write one letter in Unicode are two topics.  A server that evens that out delivers what was
    not asked for, and clients cannot find the handler for it.

    Instead, compare topics and filters as they are.
    """

    code = "DLV209"
    statements = {V5: {"MQTT-4.7.3-4": ""}, V3_1_1: {"MQTT-4.7.3-4": ""}}
    signs = ("unmatched",)

    good = examples("""
        an empty level in both
            opened; > subscribe 10 a//b:0; < suback 10 0; < publish a//b
        an empty level is a level for a wildcard
            opened 3.1.1; > subscribe 10 a/+/b:0 +/c:0; < suback 10 0 0; < publish a//b & publish /c
    """)
    bad = examples("""
        an empty level
            opened; > subscribe 10 a/b:0; < suback 10 0; < publish a//b !topic_name
        capital letters, in 3.1.1
            opened 3.1.1; > subscribe 10 a/b:0; < suback 10 0; < publish A/b !topic_name
        a slash in front, in 3.1
            opened 3.1; > subscribe 10 a/b:0; < suback 10 0; < publish /a/b !topic_name
        a letter and its accent apart
            opened; > subscribe 10 café:0; < suback 10 0; < publish café !topic_name
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Nothing matches as it is, and something does after a change."""
        topic = at.topic
        if topic is None:
            return None
        table = at.history.subscriptions
        found = table.found.get(topic) or table.match(topic)
        if found.subscriptions or found.ended or found.extended or found.beside or packet.dup or not found.known:
            return None
        near = table.near(topic)
        if near is None:
            return None
        return self.report(
            "topic_name",
            f"PUBLISH {topic!r} to {at.client_name!r} matches {near[0]!r} only after {near[1]}",
        )

from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, RuleContext, Severity, examples
from mqttscope.lint.rules.delivery import DeliveryRule
from mqttscope.mqtt.packets import Publish


class DollarTopicMatchedWildcard(DeliveryRule):
    """A message on a topic that begins with $ reaches a client whose filters begin with a wildcard.

    Topics like ``$SYS/...`` belong to the server, and ``#`` must not collect them; clients that want them say so.
    MQTT 3.1 has no such sentence, so there it is worth a note only.

    Instead, match topics that begin with ``$`` only with filters that begin with the same level.
    """

    code = "DLV206"
    severities = (Severity.ERROR, Severity.INFO)
    statements = {V5: {"MQTT-4.7.2-1": ""}, V3_1_1: {"MQTT-4.7.2-1": ""}}
    signs = ("unmatched",)

    good = examples("""
        a filter that names the level
            opened; > subscribe 10 #:0 $SYS/#:0; < suback 10 0 0; < publish $SYS/uptime "1 s"
        such a filter was there until a moment ago
            opened 3.1.1; > subscribe 10 #:0 $SYS/#:0; < suback 10 0 0; > unsubscribe 11 $SYS/#; < unsuback 11
            < publish $SYS/uptime "1 s"
        $ after the first character
            opened 3.1.1; > subscribe 10 #:0; < suback 10 0; < publish a/$SYS x
    """)
    bad = examples("""
        # alone
            opened; > subscribe 10 #:0; < suback 10 0; < publish $SYS/uptime "1 s" !topic_name
        + as the first level, in 3.1.1
            opened 3.1.1; > subscribe 10 +/uptime:0; < suback 10 0; < publish $SYS/uptime "1 s" !topic_name
        a note in 3.1
            opened 3.1; > subscribe 10 #:0; < suback 10 0; < publish $SYS/uptime "1 s" !topic_name
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Filters that would match without the exception, while none does."""
        topic = at.topic
        if topic is None or topic[:1] != "$":
            return None
        table = at.history.subscriptions
        found = table.found.get(topic) or table.match(topic)
        if not found.beside or found.ended or found.extended or packet.dup or not found.known:
            return None
        return self.report(
            "topic_name",
            f"PUBLISH {topic!r} to {at.client_name!r}: only {', '.join(map(repr, found.beside[:3]))} could match, and "
            "a leading wildcard does not match '$'",
            severity=Severity.INFO if at.version is V3_1 else None,
        )

from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, RuleContext, Severity, examples
from mqttscope.lint.rules.delivery import DeliveryRule
from mqttscope.mqtt.packets import Publish


class DollarTopicMatchedWildcard(DeliveryRule):
    """A client receives a message on a ``$`` topic although its only matching filters begin with a wildcard.

    Topics such as ``$SYS/...`` belong to the server, and ``#`` must not match them; clients subscribe to them
    explicitly.  MQTT 3.1 does not specify this, so there the finding is only info.

    Instead, match topics that begin with ``$`` only with filters that begin with the same level.
    """

    code = "DLV206"
    severities = (Severity.ERROR, Severity.INFO)
    statements = {V5: {"MQTT-4.7.2-1": ""}, V3_1_1: {"MQTT-4.7.2-1": ""}}
    signs = ("unmatched",)

    good = examples("""
        a filter with the explicit level
            opened; > subscribe 10 #:0 $SYS/#:0; < suback 10 0 0; < publish $SYS/uptime "1 s"
        an explicit filter that was just unsubscribed
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
        info in 3.1
            opened 3.1; > subscribe 10 #:0; < suback 10 0; < publish $SYS/uptime "1 s" !topic_name
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Report if only filters with a leading wildcard would match."""
        topic = at.topic
        if topic is None or topic[:1] != "$":
            return None
        table = at.history.subscriptions
        match = table.matches.get(topic) or table.match(topic)
        if not match.beside or match.ended or match.extended or packet.dup or not match.known:
            return None
        return self.report(
            "topic_name",
            f"PUBLISH {topic!r} to {at.client_name!r}: only {', '.join(map(repr, match.beside[:3]))} could match, but "
            "a leading wildcard does not match '$'",
            severity=Severity.INFO if at.version is V3_1 else None,
        )

from mqttscope.lint.rules import V5, Findings, Needs, Rule, RuleContext, Severity, examples, shown
from mqttscope.lint.topics import ReportedTexts
from mqttscope.mqtt import Direction, Subscribe
from mqttscope.payloads.sparkplug_topics import has_required_qos


class VolatileSessionDurableSubscription(Rule):
    """A client subscribes with QoS 1 or 2 in a session that ends with the connection.

    Nothing is queued while the client is offline, so messages published during a reconnect are lost anyway; the QoS
    only protects messages in flight on a working connection.  Reported with the first such SUBSCRIBE of a connection,
    but not for commands and STATE of Sparkplug, which wants both.

    Instead, keep the session (CleanSession 0, or a Session Expiry Interval in MQTT 5.0), or subscribe with QoS 0.
    """

    code = "OPS211"
    severity = Severity.WARNING
    sender = Direction.CLIENT_TO_SERVER
    needs = Needs.OPENING
    Memory = ReportedTexts

    good = examples("""
        the session is kept
            opened resume session_expiry_interval=3600; > subscribe 1 a:1; < suback 1 1
        a new session that is kept
            opened session_expiry_interval=3600; > subscribe 1 a:1; < suback 1 1
        the session is kept in MQTT 3.1.1
            opened 3.1.1 resume; > subscribe 1 a:1; < suback 1 1
        the server extends the session
            opened < session_expiry_interval=60; > subscribe 1 a:1; < suback 1 1
        QoS 0
            opened; > subscribe 1 a:0; < suback 1 0
        commands and STATE of Sparkplug
            opened 3.1.1; > subscribe 1 spBv1.0/g/NCMD/n:1 spBv1.0/g/DCMD/n/+:1 spBv1.0/STATE/h:1; < suback 1 1 1 1
    """)
    bad = examples("""
        CleanSession 1 in MQTT 3.1.1, reported once
            opened 3.1.1; > subscribe 1 a:1 !subscriptions[0].maximum_qos; < suback 1 1; > subscribe 1 a:1; < suback 1 1
        no expiry in MQTT 5.0
            opened; > subscribe 1 a:0 b:2 c:1 !subscriptions[1].maximum_qos; < suback 1 0 2 1
        the server shortens the session
            opened session_expiry_interval=60 < session_expiry_interval=0
            > subscribe 1 a:1 !subscriptions[0].maximum_qos; < suback 1 1
    """)

    def check(self, packet: Subscribe, at: RuleContext) -> Findings:
        """Report the first filter with a QoS above 0."""
        connection = at.connection
        if at.version is V5:
            ends = connection.session_expiry_interval == 0
        else:
            ends = connection.clean_start is True
        if not ends:
            return None
        for index, row in enumerate(packet.subscriptions or ()):
            if row.maximum_qos and not has_required_qos(row.topic_filter):
                if not at.memory(self).first(""):
                    return None
                return self.report(
                    f"subscriptions[{index}].maximum_qos",
                    f"{at.client_name!r} subscribes {shown(row.topic_filter)} at QoS {row.maximum_qos} in a session "
                    "that ends with the connection",
                )
        return None

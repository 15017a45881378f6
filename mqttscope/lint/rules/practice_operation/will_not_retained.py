from mqttscope.lint.rules import Findings, Related, Rule, RuleContext, Severity, examples, shown
from mqttscope.lint.topics import ReportedTexts
from mqttscope.mqtt import Direction, Publish


class WillNotRetained(Rule):
    """A client publishes retained messages to its will topic, but the will is not retained.

    The will reaches clients that are subscribed when the client dies.  A client that subscribes later receives the last
    retained message instead, and considers the client alive.  Reported once per connection.

    Instead, set Will Retain.
    """

    code = "OPS104"
    severity = Severity.INFO
    sender = Direction.CLIENT_TO_SERVER
    when = "retain"
    Memory = ReportedTexts

    good = examples("""
        both are retained
            opened will=state/c1 will_payload=offline will_retain; > publish state/c1 online retain
        neither is retained
            opened will=state/c1 will_payload=offline; > publish state/c1 online
        another topic, and a deleted retained message
            opened will=state/c1 will_payload=offline; > publish a 1 retain & publish state/c1 retain
    """)
    bad = examples("""
        the state is retained, the will is not
            opened will=state/c1 will_payload=offline; > publish state/c1 online retain !retain
            > publish state/c1 busy retain
        MQTT 3.1.1
            opened 3.1.1 will=state/c1 will_payload=offline; > publish state/c1 online retain !retain
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare the topic with the will topic."""
        connect, sent = at.history.connect, at.history.connect_sent
        if connect is None or sent is None or connect.will is None:
            return None
        will = connect.will
        if will.will_retain or at.topic is None or at.topic != will.will_topic:
            return None
        if not (packet.payload or packet.missing) or not at.memory(self).first(at.topic):
            return None
        return self.report(
            "retain",
            f"CONNECT of {at.client_name!r}: will on {shown(at.topic)} is not retained, but messages on the topic are: "
            "late subscribers miss it",
            related=(Related.to("the CONNECT", sent),),
        )

from mqttscope.lint.rules import Findings, Related, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Direction, Publish


class NoWill(Rule):
    """A client that publishes has no will message.

    If it dies, subscribers are not informed: its last values still look current.  Reported with the first PUBLISH,
    since clients that only subscribe do not need a will.

    Instead, set a retained will on a state topic, and publish the opposite state there after connecting.
    """

    code = "OPS103"
    severity = Severity.INFO
    sender = Direction.CLIENT_TO_SERVER

    good = examples("""
        a will
            opened will=state/c1 will_payload=offline will_retain; > publish a
        a client that only subscribes
            opened; > subscribe 1 a:0; < suback 1 0 & publish a 1
        the CONNECT was not captured
            midstream; version 3.1.1; > publish a/b 1 & publish a/b 2; < publish a/b 3
    """)
    bad = examples("""
        no will, reported once
            opened; > publish a !; > publish a
        MQTT 3.1
            opened 3.1; > publish a !
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Check only the first PUBLISH."""
        if at.party.counts[3]:
            return None
        connect, sent = at.history.connect, at.history.connect_sent
        if connect is None or sent is None or connect.will is not None:
            return None
        return self.report(
            "",
            f"CONNECT of {at.client_name!r}: no will message, but the client publishes",
            related=(Related.to("the CONNECT", sent),),
        )

from mqttscope.lint.rules import V3_1_1, V5, Findings, Related, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Connack, Direction


class SessionPresentWithCleanStart(Rule):
    """A server reports an existing session although the client asked for a new one.

    The client has discarded its own state.  If the server really kept its state, old subscriptions and unfinished
    messages return to a client that has no record of them.

    Instead, discard the old session first and answer with Session Present 0.
    """

    code = "CON215"
    severity = Severity.ERROR
    versions = (V3_1_1, V5)
    statements = {V5: {"MQTT-3.2.2-2": ""}, V3_1_1: {"MQTT-3.2.2-1": ""}}
    also = {V5: ("MQTT-3.1.2-4", "MQTT-3.1.4-4"), V3_1_1: ("MQTT-3.1.2-6", "MQTT-3.1.4-3")}
    when = "session_present"
    sender = Direction.SERVER_TO_CLIENT

    good = examples("""
        a new session
            opened
        a kept session
            opened resume < present
        no session to resume
            opened resume
        a refusal
            opened < code=0x89; < fin
    """)
    bad = examples("""
        Clean Start 1
            opened < present !session_present
        CleanSession 1 in 3.1.1
            opened 3.1.1 < present !session_present
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Compare with the CONNECT."""
        connect, sent = at.history.connect, at.history.connect_sent
        if not packet.session_present or packet.reason_code or connect is None or not connect.clean_start:
            return None
        assert sent is not None
        name = "Clean Start" if at.version is V5 else "CleanSession"
        return self.report(
            "session_present",
            f"CONNACK: Session Present 1 although CONNECT of {at.client_name!r} has {name} 1",
            related=(Related.to("the CONNECT", sent),),
        )

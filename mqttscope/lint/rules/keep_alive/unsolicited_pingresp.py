from mqttscope.lint.rules import Findings, Needs, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Direction, Pingresp


class UnsolicitedPingresp(Rule):
    """A server sends PINGRESP without a PINGREQ.

    A client may mistake it for the answer to its next PINGREQ and not notice that the server is gone.

    Instead, send one PINGRESP for each PINGREQ.
    """

    code = "KAL206"
    severity = Severity.WARNING
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.OPENING | Needs.WHOLE

    good = examples("""
        one for each PINGREQ
            opened; > pingreq; crossing > pingreq; < pingresp & pingresp
        the PINGREQ is not in the capture
            opened; lost > pingreq; < pingresp
    """)
    bad = examples("""
        without any PINGREQ
            opened; < pingresp !
        two for one PINGREQ
            opened; > pingreq; < pingresp & pingresp !
    """)

    def check(self, packet: Pingresp, at: RuleContext) -> Findings:
        """Compare with the unanswered PINGREQ packets."""
        if at.other.pings or not at.party.in_step():
            return None
        return self.report("", "PINGRESP without an outstanding PINGREQ")

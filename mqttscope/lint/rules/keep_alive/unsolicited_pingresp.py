from mqttscope.lint.rules import Findings, Needs, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Direction, Pingresp


class UnsolicitedPingresp(Rule):
    """A server sends PINGRESP without a PINGREQ.

    A client that waits for the answer to its next PINGREQ may take this one for it and not notice that the server is
    gone.

    Instead, send one PINGRESP for each PINGREQ.
    """

    code = "KAL206"
    severity = Severity.WARNING
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.OPENING | Needs.WHOLE

    good = examples("""
        one for each
            opened; > pingreq; crossing > pingreq; < pingresp & pingresp
        the PINGREQ is not in the capture
            opened; lost > pingreq; < pingresp
    """)
    bad = examples("""
        out of the blue
            opened; < pingresp !
        two for one
            opened; > pingreq; < pingresp & pingresp !
    """)

    def check(self, packet: Pingresp, at: RuleContext) -> Findings:
        """Compare with the PINGREQ packets that have no answer."""
        if at.other.pings or not at.party.in_step():
            return None
        return self.report("", "PINGRESP without an outstanding PINGREQ")

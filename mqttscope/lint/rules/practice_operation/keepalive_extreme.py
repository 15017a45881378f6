from mqttscope.lint.rules import Findings, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Connect, Direction


class KeepaliveExtreme(Rule):
    """A client requests a very short or very long Keep Alive.

    A short one costs battery and data volume, and ends connections at every hiccup of a radio network.  With a long
    one, address translators drop the connection, and the will of a dead client is published late.

    Instead, choose between half a minute and a few minutes, below the idle timeouts of the network.
    """

    code = "OPS102"
    severity = Severity.INFO
    sender = Direction.CLIENT_TO_SERVER
    settings = {
        # Seconds: shortest Keep Alive that is not reported; OPS201 reports 0.
        "shortest": 10,
        # Seconds: longest Keep Alive that is not reported; many address translators drop an idle connection within 30
        # min.
        "longest": 1800,
    }

    good = examples("""
        10 seconds
            opened keep_alive=10
        half an hour
            opened keep_alive=1800
        Keep Alive 0
            opened keep_alive=0
    """)
    bad = examples("""
        9 seconds
            opened keep_alive=9 !keep_alive
        one second more than half an hour
            opened 3.1.1 keep_alive=1801 !keep_alive
        the maximum value
            opened 3.1 keep_alive=65535 !keep_alive
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Compare with both limits."""
        keep_alive = packet.keep_alive
        if not keep_alive or self.set["shortest"] <= keep_alive <= self.set["longest"]:
            return None
        how = "very short" if keep_alive < self.set["shortest"] else "very long"
        return self.report("keep_alive", f"CONNECT of {at.client_name!r}: Keep Alive {keep_alive} s is {how}")

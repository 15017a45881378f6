"""KAL206."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, crossing, examples, lost, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import Findings, Needs, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Pingreq, Pingresp


class UnsolicitedPingresp(Rule):
    """A server sends PINGRESP without a PINGREQ.

    A client that waits for the answer to its next PINGREQ may take this one for it and not notice that the server is
    gone.

    Instead, send one PINGRESP for each PINGREQ.
    """

    code = "KAL206"
    severity = Severity.WARNING
    looks_at = Pingresp
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.OPENING | Needs.WHOLE

    good = examples(
        lambda: [
            conversation(
                "one for each",
                *opened(),
                client(Pingreq()),
                crossing(client(Pingreq())),
                server(Pingresp(), Pingresp()),
            ),
            conversation("the PINGREQ is not in the capture", *opened(), lost(client(Pingreq())), server(Pingresp())),
        ]
    )
    bad = examples(
        lambda: [
            conversation("out of the blue", *opened(), server(Pingresp()).marked("")),
            conversation("two for one", *opened(), client(Pingreq()), server(Pingresp(), Pingresp()).marked("")),
        ]
    )

    def check(self, packet: Pingresp, at: RuleContext) -> Findings:
        """Compare with the PINGREQ packets that have no answer."""
        if at.other.pings or not at.party.in_step():
            return None
        return self.report("", "PINGRESP without an outstanding PINGREQ")

"""A recorded connection without a mutation: what a broker withholds or refuses then is no answer to a mutation."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mutate import Case, Flow, MutatedFlow, Mutation
from mqttscope.mutate.flow import CLIENT, recorded_steps
from mqttscope.mutate.mutation import ACCEPT, Kind

NOTHING = Mutation(
    "flow:as-recorded",
    Kind.FLOW,
    "Nothing is changed: this is the connection as it was recorded.",
    legal_in=tuple(ProtocolVersion),
    reaction=ACCEPT,
)
"""Not one of the catalogue: it tests nothing."""
AS_RECORDED = -1
"""In the place of a case's number."""


@dataclass(slots=True, frozen=True)
class Rehearsal:
    """How a broker took a connection as it was recorded."""

    missing: frozenset[PacketType] = frozenset()
    """Answers that it owed and did not give."""
    codes: frozenset[int] = frozenset()
    """Reason codes of failures."""
    ended: bool = False
    """It ended the connection."""

    def told(self) -> str:
        """For people, what is not as it has to be; empty where nothing is."""
        parts = []
        if self.missing:
            parts.append(f"gives no {', '.join(sorted(one.name for one in self.missing))}")
        if self.codes:
            parts.append(f"refuses with {', '.join(f'0x{code:02x}' for code in sorted(self.codes))}")
        if self.ended:
            parts.append("ends the connection")
        return " and ".join(parts)


def unmutated(flow: Flow) -> Case:
    """The flow as a case in which everything is as recorded."""
    steps = recorded_steps(flow, CLIENT)
    # All of it is looked at, from the CONNECT on.
    steps[0] = replace(steps[0], mutated=True)
    return Case(
        0, 0, flow.capture_hash, flow.connection, NOTHING, MutatedFlow(NOTHING.name, CLIENT, flow.version, steps)
    )

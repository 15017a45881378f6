from collections.abc import Iterator
from dataclasses import dataclass, field

from mqttscope.lint.rules import C2S, S2C, Connection, Findings, Report, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import ControlPacket

SMALL = 536
"""Bytes that fit into one segment on every path; longer packets may be split for good reasons."""


@dataclass(slots=True)
class SplitCount:
    """Number of packets of one side, and of split packets."""

    all: int = 0
    split: int = 0


@dataclass(slots=True)
class SplitCounts:
    """Numbers of packets of both sides."""

    client: SplitCount = field(default_factory=SplitCount)
    server: SplitCount = field(default_factory=SplitCount)


class TinySegments(Rule):
    """A side splits small packets into several TCP segments.

    The program writes header and body to the socket separately.  With Nagle's algorithm the second part waits for the
    acknowledgement of the first, and that may be delayed: 40 to 200 ms for each packet, plus the headers of another
    segment.  Reported once for each side when the connection ends.

    Instead, assemble the packet and write it in one call.
    """

    code = "OPS221"
    severity = Severity.INFO
    settings = {
        # Minimum number of split packets of a side.
        "packets": 5,
        # Percent: minimum share of split packets of a side.
        "percent": 10,
    }
    Memory = SplitCounts

    good = examples("""
        in one segment
            opened; > publish a/b; > disconnect
        only a few times
            opened; silent > raw 30; > raw 0c 00 03612f6200686968696869; silent > raw 30
            > raw 0c 00 03612f6200686968696869; > disconnect; > fin
    """)
    bad = examples("""
        the first byte alone
            opened
            for 1..5: silent > raw 30; > raw 0c 00 03612f6200686968696869
            > fin !
        the header alone, in MQTT 3.1.1
            opened 3.1.1
            for 1..5: silent > raw 30 0b; > raw 00 03 612f62686968696869
            > fin !
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Count a packet as split if the segment that completes it is shorter than the packet."""
        memory: SplitCounts = at.memory(self)
        count = memory.client if at.from_client else memory.server
        count.all += 1
        party, length = at.party, len(packet.raw)
        if party.segment_length < length <= SMALL and 0 < party.length_before <= SMALL:
            count.split += 1
        return None

    def check_close(self, connection: Connection, at: RuleContext) -> Iterator[Report]:
        """Report each side, except for WebSocket, where frame headers hide the writes."""
        if connection.transport != "tcp" or self.code not in at.history.memories:
            return
        memory: SplitCounts = at.memory(self)
        for sender, count in ((C2S, memory.client), (S2C, memory.server)):
            percent = 100 * count.split // max(1, count.all)
            if count.split >= self.set["packets"] and percent >= self.set["percent"]:
                single = at.history.party(sender).single_bytes
                yield self.report(
                    "",
                    f"{percent} % of packets ({count.split:,} of {count.all:,}) arrive split over several TCP segments "
                    f"({single:,} one-byte writes)",
                    sender=sender,
                )

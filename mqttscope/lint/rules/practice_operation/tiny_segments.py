from collections.abc import Iterator
from dataclasses import dataclass, field

from mqttscope.lint.rules import C2S, S2C, Connection, Findings, Report, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import ControlPacket

SMALL = 536
"""Bytes that every path takes in one segment; a packet that is longer may be split for good reasons."""


@dataclass(slots=True)
class Count:
    """Packets of one side."""

    all: int = 0
    split: int = 0


@dataclass(slots=True)
class Counts:
    """Packets of both sides."""

    client: Count = field(default_factory=Count)
    server: Count = field(default_factory=Count)


class TinySegments(Rule):
    """A side sends small packets in several TCP segments each.

    The header is written to the socket apart from the body.  With Nagle's algorithm the second part waits for the
    acknowledgment of the first, and that may be delayed: 40 to 200 ms for each packet, beside the headers of another
    segment.  Reported once for each side when the connection ends.

    Instead, put the packet together and write it at once.
    """

    code = "OPS221"
    severity = Severity.INFO
    settings = {
        # Packets of a side that came split, the fewest that are reported.
        "packets": 5,
        # Percent of the packets of the side, the lowest share that is reported.
        "percent": 10,
    }
    Memory = Counts

    good = examples("""
        in one segment
            opened; > publish a/b; > disconnect
        a few times
            opened; silent > raw 30; > raw 0c 00 03612f6200686968696869; silent > raw 30
            > raw 0c 00 03612f6200686968696869; > disconnect; > fin
    """)
    bad = examples("""
        the first byte apart
            opened
            for 1..5: silent > raw 30; > raw 0c 00 03612f6200686968696869
            > fin !
        the header apart, in MQTT 3.1.1
            opened 3.1.1
            for 1..5: silent > raw 30 0b; > raw 00 03 612f62686968696869
            > fin !
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """A packet is split when the segment that completes it is shorter than it is."""
        memory: Counts = at.memory(self)
        count = memory.client if at.from_client else memory.server
        count.all += 1
        party, length = at.party, len(packet.raw)
        if party.segment_length < length <= SMALL and 0 < party.length_before <= SMALL:
            count.split += 1
        return None

    def check_close(self, connection: Connection, at: RuleContext) -> Iterator[Report]:
        """WebSocket frames have headers of their own, so nothing can be said about them."""
        if connection.transport != "tcp" or self.code not in at.history.memories:
            return
        memory: Counts = at.memory(self)
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

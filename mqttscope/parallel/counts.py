"""What processes have counted, added up: for what is said at the end of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from mqttscope.dissect import Dissector
from mqttscope.dissect.transports import MAX_OTHER_SERVERS
from mqttscope.parallel.walk import IndivisibleError, Span, Walk

OVERLAP_NS = 10_000_000
"""So much may the frames at the edge of two rotated captures be out of order."""
_SUMS = (
    "cut_bytes", "closed_bytes", "overlaps", "discarded_segments", "discarded_bytes", "closed_copies", "one_sided",
    "damaged_segments",
)  # fmt: skip
"""Counters of a dissector that are added up."""


@dataclass(slots=True)
class Counts:
    """Of one process."""

    frames: int
    """Frames and notices of all captures: each process has to have seen the same."""
    skipped: Counter[str]
    spans: dict[str, Span]
    connections: int
    packets: int
    opened_flows: int
    late_copies: int
    other_flows: int
    sums: tuple[int, ...]
    named_otherwise: Counter[tuple[int, str, str]]
    other_tls: Counter[str]
    shown: int
    """Events that were asked for."""

    @classmethod
    def of(cls, walk: Walk, shown: int) -> Counts:
        """Those of a walk that has come to its end."""
        dissector = walk.dissector
        flows = dissector.flows
        return cls(
            walk.frames, walk.skipped, walk.spans, dissector.connections, dissector.packets, flows.opened_flows,
            flows.late_copies, dissector.other_flows, tuple(getattr(dissector, name) for name in _SUMS),
            dissector.named_otherwise, dissector.other_tls, shown,
        )  # fmt: skip


def add_up(all_counts: list[Counts], into: Dissector, skipped: Counter[str]) -> None:
    """Have a dissector that has read nothing hold what those of the processes have counted.

    Where the sums cannot be those of one process, `IndivisibleError`.
    """
    for one in all_counts:
        skipped.update(one.skipped)
        into.connections += one.connections
        into.packet_events.counting.packets += one.packets
        into.flows.opened_flows += one.opened_flows
        into.flows.late_copies += one.late_copies
        into._transports.other_flows += one.other_flows
        for name, value in zip(_SUMS, one.sums, strict=True):
            setattr(into, name, getattr(into, name) + value)
        into.named_otherwise.update(one.named_otherwise)
        into.other_tls.update(one.other_tls)
    if into.connections or len(all_counts) == 1:
        return
    # Which servers are counted, and which of equal ones is named, depends on the order in which all were met.
    most = into.other_tls.most_common(2)
    if len(into.other_tls) > MAX_OTHER_SERVERS or (len(most) > 1 and most[0][1] == most[1][1]):
        raise IndivisibleError("which server of TLS comes first is known to one process alone")


def overlapping(all_counts: list[Counts]) -> list[str]:
    """Captures that begin before the end of one that was read before, in the order in which they were read."""
    spans: dict[str, Span] = {}
    for one in all_counts:
        for name, span in one.spans.items():
            known = spans.get(name)
            if known is None:
                spans[name] = span
            else:
                known.latest_ns = max(known.latest_ns, span.latest_ns)
                if span.first < known.first:
                    known.first, known.first_ns = span.first, span.first_ns
    found: list[str] = []
    latest_ns = -1 << 63
    for name, span in sorted(spans.items(), key=lambda item: item[1].first):
        if span.first_ns < latest_ns - OVERLAP_NS:
            found.append(name)
        latest_ns = max(latest_ns, span.latest_ns)
    return found

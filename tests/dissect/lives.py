"""Results of the dissector and the linter for devices that come back: connections, their topics, and blamed sides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from mqttscope import events
from mqttscope.dissect import dissect_segments
from mqttscope.lint.catalogue import select, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Severity
from mqttscope.mqtt import Connect, Publish
from mqttscope.net.segment import Segment

ENDS = ("fin by both", "fin by both, server first", "fin by the server", "reset by the client", "reset by the server",
        "outage", "outage with data under way")  # fmt: skip


@dataclass
class Outcome:
    """What was said of some segments; topics that end with ``lost`` are left out."""

    topics: list[list[str | None]] = field(default_factory=list)
    connects: list[int] = field(default_factory=list)
    copied: int = 0
    discarded: int = 0
    strange: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def incomplete(self) -> int:
        """Events about missing bytes, or about bytes that belong to no connection."""
        return self.discarded + self.strange.count("GapEvent")


def outcome(segments: list[Segment]) -> Outcome:
    actual_outcome = Outcome()
    linter = Linter(map(usual_rule, select().values()), strict=True)
    for event in dissect_segments(segments):
        actual_outcome.errors += [finding.rule for finding in linter.feed(event) if finding.severity is Severity.ERROR]
        if isinstance(event, events.ConnectionOpened):
            actual_outcome.topics.append([])
            actual_outcome.connects.append(0)
        elif isinstance(event, events.ConnectionClosed):
            actual_outcome.copied += event.connection.copied_segments
        elif isinstance(event, events.PacketEvent):
            if isinstance(event.packet, Publish) and not str(event.topic).endswith("lost"):
                actual_outcome.topics[event.connection.number].append(event.topic)
            elif isinstance(event.packet, Connect):
                actual_outcome.connects[event.connection.number] += 1
        elif isinstance(event, events.DiscardedEvent):
            actual_outcome.discarded += 1
        elif isinstance(event, events.MalformedEvent | events.UnparsedEvent | events.GapEvent):
            actual_outcome.strange.append(type(event).__name__)
    return actual_outcome


def framed(segments: Iterable[Segment]) -> list[Segment]:
    """Segments with the numbers of their frames, which each capture counts for itself."""
    counts: Counter[str] = Counter()
    new_segments = []
    for segment in segments:
        counts[segment.capture] += 1
        new_segments.append(replace(segment, frame=counts[segment.capture]))
    return new_segments


def said(segments: Iterable[Segment]) -> tuple[list[list[str | None]], list[int], list[str]]:
    """The topics and the number of CONNECTs of each connection, and the rules that find errors."""
    actual_outcome = outcome(framed(segments))
    return actual_outcome.topics, actual_outcome.connects, actual_outcome.errors

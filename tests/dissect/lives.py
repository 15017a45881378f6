"""What the dissector and the linter say of devices that come back: connections, their topics, and who is accused."""

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
        """Events that say of something that it is missing or belongs to nothing."""
        return self.discarded + self.strange.count("GapEvent")


def outcome(segments: list[Segment]) -> Outcome:
    found = Outcome()
    linter = Linter(map(usual_rule, select().values()), strict=True)
    for event in dissect_segments(segments):
        found.errors += [one.rule for one in linter.feed(event) if one.severity is Severity.ERROR]
        if isinstance(event, events.ConnectionOpened):
            found.topics.append([])
            found.connects.append(0)
        elif isinstance(event, events.ConnectionClosed):
            found.copied += event.connection.copied_segments
        elif isinstance(event, events.PacketEvent):
            if isinstance(event.packet, Publish) and not str(event.topic).endswith("lost"):
                found.topics[event.connection.number].append(event.topic)
            elif isinstance(event.packet, Connect):
                found.connects[event.connection.number] += 1
        elif isinstance(event, events.DiscardedEvent):
            found.discarded += 1
        elif isinstance(event, events.MalformedEvent | events.UnparsedEvent | events.GapEvent):
            found.strange.append(type(event).__name__)
    return found


def framed(segments: Iterable[Segment]) -> list[Segment]:
    """Segments with the numbers of their frames, which each capture counts for itself."""
    counts: Counter[str] = Counter()
    made = []
    for segment in segments:
        counts[segment.capture] += 1
        made.append(replace(segment, frame=counts[segment.capture]))
    return made


def said(segments: Iterable[Segment]) -> tuple[list[list[str | None]], list[int], list[str]]:
    """The topics and the number of CONNECTs of each connection, and the rules that find errors."""
    found = outcome(framed(segments))
    return found.topics, found.connects, found.errors

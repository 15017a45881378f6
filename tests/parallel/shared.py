"""Shares of one run in one process, one after the other: what they write together, and what one process writes."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mqttscope.capture import open_capture
from mqttscope.dissect import Dissector, dissect
from mqttscope.dissect.clock_watch import ClockWatch
from mqttscope.net.frame import CaptureNotice, Frame
from mqttscope.net.segment import Segment
from mqttscope.parallel.counts import Counts
from mqttscope.parallel.crew import BATCH, Outlet
from mqttscope.parallel.lines import WRITERS, Select, make_lines
from mqttscope.parallel.merge import Merge, read_batch
from mqttscope.parallel.walk import Share
from mqttscope.report.base import View
from mqttscope.report.formats import make_reporter
from tests.conftest import ROOT

CAPTURES = [path for path in sorted((ROOT / "captures").rglob("*.pcap*")) if path.is_file()]
VIEW = View(width=0)
Items = Sequence[Frame | CaptureNotice]


class _Near:
    """A time that every other is near to."""

    def __rsub__(self, other: int) -> int:
        return 0


class Unwatched(ClockWatch):
    """Looks for no steps of the clock.

    What is mixed here has times that its segments contradict: it would be left to one process.
    """

    @property
    def last_ns(self) -> Any:
        return _Near()

    @last_ns.setter
    def last_ns(self, value: int) -> None:
        """The same for every frame."""

    def follow(self, source: Iterable[Any]) -> Iterator[Any]:
        return iter(source)

    def contradicts(self, segment: Segment) -> bool:
        return False


def unwatched() -> Dissector:
    dissector = Dissector()
    dissector.clock = Unwatched(dissector.flows)
    return dissector


class Kept(Outlet):
    """Keeps what a process says."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, data: bytes, kind: bytes = BATCH) -> None:
        self.sent.append(data)


class Written:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes, /) -> None:
        self.data += data


def items_of(*paths: Path) -> list[Frame | CaptureNotice]:
    return list(open_capture(paths))


def by_one(items: Items, form: str, select: Select | None = None) -> bytes:
    """What one process writes."""
    out = Written()
    report = make_reporter(form, out, VIEW)
    events = dissect(items, dissector=unwatched())
    for event in events if select is None else select(events):
        report.feed(event)
    report.close()
    return out.data


def by_several(
    items: Items, form: str, count: int, select: Select | None = None
) -> tuple[bytes, list[Counts], list[CaptureNotice]]:
    """What several processes write, what each of them counted, and the notices that were told."""
    out, told = Written(), list[CaptureNotice]()
    merge, writer = Merge(count), WRITERS[form](out, count, told.append)
    counts = []
    for number in range(count):
        kept = Kept()
        counts.append(
            make_lines(Share(number, count), kept, lambda direct: items, unwatched(), form, VIEW, select, timed=True)
        )
        for message in kept.sent:
            merge.add(number, read_batch(message))
    for entries in merge.take():
        writer.write(entries)
    return out.data, counts, told


def mixture(seed: int) -> list[Frame | CaptureNotice]:
    """Frames of a dozen captures put into each other, with losses, copies, cuts, long times and times that go back."""
    chance = random.Random(seed)
    mixed: list[Frame] = []
    for path in chance.sample(CAPTURES, 12):
        frames = [item for item in items_of(path) if isinstance(item, Frame)]
        stretch, start = chance.choice((1, 1, 10, 1_000, 100_000)), 10**18 + chance.randrange(10**10)
        first = frames[0].timestamp_ns if frames else 0
        mixed += [replace(one, timestamp_ns=start + (one.timestamp_ns - first) * stretch) for one in frames]
    mixed.sort(key=lambda one: one.timestamp_ns)
    found: list[Frame] = []
    for one in mixed:
        if chance.random() < 0.05:
            continue
        if chance.random() < 0.05:
            one = replace(one, data=one.data[: chance.randrange(len(one.data) + 1)])
        found += [one, one] if chance.random() < 0.03 else [one]
    for _ in range(len(found) // 20):
        at = chance.randrange(len(found) - 3)
        found[at], found[at + 2] = found[at + 2], found[at]
    edge = chance.randrange(len(found))
    back = chance.choice((0, 10**9, 10**12))
    return [
        *(replace(one, number=number, capture="a") for number, one in enumerate(found[:edge], 1)),
        *(
            replace(one, number=number, capture="b", timestamp_ns=one.timestamp_ns - back)
            for number, one in enumerate(found[edge:], 1)
        ),
    ]

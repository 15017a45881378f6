"""One capture read by the kernel and by Python alone, with everything that a command shows of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from mqttscope.capture import open_capture
from mqttscope.dissect import CaptureOrder, Dissector, FastPath, dissect_segments, segments
from mqttscope.dissect.kernel_path import KernelEvents
from mqttscope.events import Event
from mqttscope.lint.catalogue import all_rules, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.mqtt.view import PAYLOAD_LIMIT
from mqttscope.net.frame import Frame
from mqttscope.net.segment import Segment
from mqttscope.report.jsonl import EventJsonLines, dumps
from mqttscope.report.kernel_lines import KernelLines
from mqttscope.stats.as_json import document
from mqttscope.stats.collect import Statistics
from mqttscope.stats.kernel_counts import KernelCounts

NAME = "-"


@dataclass
class Reading:
    """The results of reading a capture."""

    lines: bytes
    skipped: Counter[str]
    counts: dict[str, Any]


@dataclass
class KernelReading(Reading):
    """The results with the kernel, and its share."""

    share: dict[str, Any] = field(default_factory=dict)


def read_purely(data: bytes, limit: int = PAYLOAD_LIMIT) -> Reading:
    """Read a capture with Python alone."""
    dissector, lines, skipped = Dissector(), BytesIO(), Counter[str]()
    reporter = EventJsonLines(lines, payload_limit=limit)
    path = FastPath(dissector, reporter.feed, passing=True, reusing=True)
    frames = open_capture([NAME], stdin=BytesIO(data), direct=path)
    for event in dissect_segments(segments(frames, skipped), dissector=dissector):
        reporter.feed(event)
    reporter.close()
    return Reading(lines.getvalue(), skipped, _counts(dissector))


def read_natively(data: bytes, limit: int = PAYLOAD_LIMIT) -> KernelReading | None:
    """Read a capture with the kernel; ``None`` if it leaves the whole capture to Python."""
    dissector, lines, skipped = Dissector(), BytesIO(), Counter[str]()
    reporter = EventJsonLines(lines, payload_limit=limit)
    try:
        kernel = KernelLines(dissector, reporter, NAME, data)
    except ValueError:
        return None
    if kernel.kernel.survey() is not None:
        return None
    path = FastPath(dissector, reporter.feed, passing=True, reusing=True)
    for event in dissect_segments(segments(kernel.frames(path, None), skipped), dissector=dissector):
        reporter.feed(event)
    reporter.close()
    kernel.kernel.flush()
    return KernelReading(lines.getvalue(), skipped, _counts(dissector), kernel.kernel.counts())


def judge_purely(data: bytes) -> Reading:
    """Read a capture with Python alone, and lint it."""
    return _judge(data, native=False)


def judge_natively(data: bytes) -> Reading | None:
    """Lint a capture with the events of the kernel; ``None`` if it leaves the whole capture to Python."""
    try:
        return _judge(data, native=True)
    except ValueError:
        return None


def _judge(data: bytes, *, native: bool) -> Reading:
    dissector, lines, skipped, order = Dissector(), BytesIO(), Counter[str](), CaptureOrder()
    reporter = EventJsonLines(lines)
    linter = Linter([usual_rule(rule) for rule in all_rules().values()], end_ns=order.end_ns)
    findings: list[str] = []

    def feed(event: Event) -> None:
        findings.extend(map(repr, linter.feed(event)))
        reporter.feed(event)

    def seen(items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            if type(item) is Segment:
                order.see(item.capture, item.timestamp_ns)
            yield item

    path = FastPath(dissector, feed, order=order, counting=True)
    frames: Any
    if native:
        kernel = KernelEvents.attempt(path, NAME, data)
        if kernel is None:
            raise ValueError
        frames = kernel.frames(path, None)
    else:
        frames = open_capture([NAME], stdin=BytesIO(data), direct=path)
    others = [0, 0]

    def counted(items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            if type(item) is Frame:
                others[0] += 1
                others[1] += item.original_length
            yield item

    for event in dissect_segments(seen(segments(counted(frames), skipped)), dissector=dissector):
        feed(event)
    reporter.close()
    counts = _counts(dissector)
    frame_counts = path.counts.get(NAME)
    counts["frames"] = others[0] + (0 if frame_counts is None else frame_counts.frames)
    counts["frame_bytes"] = others[1] + (0 if frame_counts is None else frame_counts.frame_bytes)
    return Reading(lines.getvalue() + "\n".join(findings).encode("utf-8", "replace"), skipped, counts)


def count_purely(data: bytes, limits: dict[str, int] | None = None) -> Reading:
    """Count the packets of a capture with Python alone."""
    counted = _count(data, limits, native=False)
    assert counted is not None
    return counted


def count_natively(data: bytes, limits: dict[str, int] | None = None) -> Reading | None:
    """Count the packets of a capture with the kernel; ``None`` if it leaves the whole capture to Python."""
    return _count(data, limits, native=True)


def _count(data: bytes, limits: dict[str, int] | None, *, native: bool) -> Reading | None:
    dissector, skipped, statistics = Dissector(), Counter[str](), Statistics(limits=limits)
    path = FastPath(dissector, statistics.feed, order=CaptureOrder(), counting=True, passing=True, reusing=True)
    frames: Any
    if native:
        try:
            kernel = KernelCounts(statistics, path, NAME, data)
        except ValueError:
            return None
        if not kernel.is_ordinary():
            return None
        frames = kernel.frames(path, None)
    else:
        frames = open_capture([NAME], stdin=BytesIO(data), direct=path)
    for event in dissect_segments(segments(statistics.frames(frames), skipped), dissector=dissector):
        statistics.feed(event)
    for name, counts in path.counts.items():
        statistics.add_frames(name, counts)
    statistics.finish()
    shown = document(
        statistics, tables=("capture", "connection", "client", "topic"), sort=None, top=None,
        other_flows=dissector.other_flows, skipped=skipped,
    )  # fmt: skip
    return Reading(
        dumps(shown).replace(b",", b",\n"), skipped, {**_counts(dissector), "more": statistics.missed_releases}
    )


def difference(data: bytes, *, judged: bool = False, counted: bool = False, limit: int = PAYLOAD_LIMIT) -> str | None:
    """The difference of both ways; ``None`` if they are equal, or the kernel does not read the capture.

    ``judged``: of the events and findings, instead of the lines that the kernel writes; ``counted``: of the statistics.
    ``limit``: shown bytes of a payload.
    """
    native = judge_natively(data) if judged else count_natively(data) if counted else read_natively(data, limit)
    if native is None:
        return None
    pure = judge_purely(data) if judged else count_purely(data) if counted else read_purely(data, limit)
    for first, second in zip(native.lines.splitlines(), pure.lines.splitlines(), strict=False):
        if first != second:
            return f"{first!r}\n{second!r}"
    if native.lines != pure.lines:
        return f"{len(native.lines)} and {len(pure.lines)} bytes"
    if (native.skipped, native.counts) != (pure.skipped, pure.counts):
        return f"{native.skipped} {native.counts}\n{pure.skipped} {pure.counts}"
    return None


def _counts(dissector: Dissector) -> dict[str, Any]:
    names = (
        "connections", "packets", "other_flows", "kept_bytes", "overlaps", "damaged_segments", "discarded_segments",
        "discarded_bytes", "copied_segments", "one_sided", "cut_bytes", "named_otherwise", "other_tls",
    )  # fmt: skip
    flows = dissector.flows
    return {
        **{name: getattr(dissector, name) for name in names},
        "opened_flows": flows.opened_flows,
        "copies": sorted((capture, flow.key, flow.context is None) for capture, flow in flows.copies.items()),
        "budget": flows.budget.used,
        "resets": len(dissector._resets),
    }

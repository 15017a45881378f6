"""One task of reading: a range of a capture in, batches of rows out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa

from mqttscope.capture.files import SINCE, why_not_opened
from mqttscope.capture.locations import open_location, why_replaced
from mqttscope.capture.ranges import RangeRefusedError
from mqttscope.capture.read import CaptureChangedError
from mqttscope.errors import MqttscopeError
from mqttscope.net.frame import CaptureError, Frame
from mqttscope.net.headers import segment as segment_of
from mqttscope.net.segment import Fragment, Segment, ports
from mqttscope.spark import rows
from mqttscope.spark.plan import Task
from mqttscope.spark.rows import BATCH_BYTES, BATCH_ROWS, Batches, NoticeRow

NEVER = -1 << 63


class ScanFailedError(MqttscopeError):
    """A program error during the reading of a capture; the message names the place."""


@dataclass(slots=True, frozen=True)
class RowFilter:
    """The requested rows."""

    kinds: frozenset[str] = frozenset(rows.KINDS)
    ports: frozenset[int] = frozenset()
    """Segments from or to one of these ports; empty: all segments."""
    start_ns: int | None = None
    """Segments and fragments from this time on."""
    end_ns: int | None = None
    """Segments and fragments before this time."""

    def limits(self) -> tuple[int, int] | None:
        """Both times, or ``None`` without a limit."""
        if self.start_ns is None and self.end_ns is None:
            return None
        return (-1 << 64 if self.start_ns is None else self.start_ns, 1 << 64 if self.end_ns is None else self.end_ns)


def scan(task: Task, batches: Batches, wanted: RowFilter, settings: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """The rows of one task.

    A fault of a capture is a row; a fault of this program raises `ScanFailedError`.
    """
    notes = list(task.notes)
    if task.start is not None:
        try:
            file = open_location(task.location.target, settings)
        except (OSError, ValueError) as error:
            since = SINCE if task.grown is None else ""
            notes.append(NoticeRow(rows.ERROR, f"{why_not_opened(error)}{since}", task.frames_before))
        else:
            with file:
                why = why_replaced(file, task.location) if task.grown is None else None
                if why is None:
                    yield from _read(file, task, batches, wanted, notes)
                else:
                    notes.append(NoticeRow(rows.ERROR, why, task.frames_before))
    yield from batches.notes((note for note in notes if note.kind in wanted.kinds), task.file, task.location.name)


def _read(
    file: BinaryIO, task: Task, batches: Batches, wanted: RowFilter, notes: list[NoticeRow]
) -> Iterator[pa.RecordBatch]:
    segments: list[Segment] = []
    fragments: list[Fragment] = []
    clock: list[int] = []
    clock_of_fragments: list[int] = []
    skipped: Counter[str] = Counter()
    reported: set[str] = set()
    size = 0
    held, last_ns = 0, NEVER
    wants_segments, wants_fragments = rows.SEGMENT in wanted.kinds, rows.FRAGMENT in wanted.kinds
    own_ports, limits = wanted.ports, wanted.limits()
    frame: Frame | None = None
    try:
        for item in task.items(file):
            if type(item) is not Frame:
                frames = task.frames_before if frame is None else frame.number
                notes.append(rows.note_of(item, frames, None if last_ns == NEVER else last_ns))  # type: ignore[arg-type]
                continue
            frame = item
            content = segment_of(frame)
            kind = type(content)
            if kind is Segment:
                if not wants_segments or (own_ports and own_ports.isdisjoint(ports(content.key))):  # type: ignore[union-attr]
                    continue
                if limits is not None and not limits[0] <= frame.timestamp_ns < limits[1]:
                    continue
                segments.append(content)  # type: ignore[arg-type]
                if frame.timestamp_ns > last_ns:
                    last_ns = frame.timestamp_ns
                clock.append(last_ns)
                size += len(content.payload)  # type: ignore[union-attr]
                if len(segments) == BATCH_ROWS or size >= BATCH_BYTES:
                    yield batches.segments(segments, task.file, clock)
                    segments, clock, size = [], [], 0
            elif kind is Fragment:
                held += 1
                if not wants_fragments or (limits is not None and not limits[0] <= frame.timestamp_ns < limits[1]):
                    continue
                fragments.append(content)  # type: ignore[arg-type]
                clock_of_fragments.append(max(frame.timestamp_ns, last_ns))
                if len(fragments) == BATCH_ROWS:
                    yield batches.fragments(fragments, task.file, clock_of_fragments)
                    fragments, clock_of_fragments = [], []
            else:
                skipped[content.reason] += 1  # type: ignore[union-attr]
                if content.reason != "unsupported_link_type" or frame.link_type in task.reported_link_types:  # type: ignore[union-attr]
                    continue
                if content.detail not in reported:  # type: ignore[union-attr]
                    reported.add(content.detail)  # type: ignore[union-attr]
                    error = CaptureError(task.location.name, content.detail, None, frame.number - 1)  # type: ignore[union-attr]
                    notes.append(rows.note_of(error))
    except (RangeRefusedError, CaptureChangedError) as error:
        notes.append(NoticeRow(rows.ERROR, str(error), task.frames_before, task.start))
    except OSError as error:
        number = task.frames_before if frame is None else frame.number
        why = f"cannot be read any further: {error.strerror or error}"
        notes.append(NoticeRow(rows.ERROR, why, number, task.start))
    except Exception as error:
        behind = "before its first frame" if frame is None else f"after frame {frame.number}"
        raise ScanFailedError(
            f"{task.location.name}, from offset {task.start} on, {behind}: {type(error).__name__}: {error}"
        ) from error
    if segments:
        yield batches.segments(segments, task.file, clock)
    if fragments:
        yield batches.fragments(fragments, task.file, clock_of_fragments)
    notes += [NoticeRow(rows.SKIPPED, reason, count=count) for reason, count in sorted(skipped.items())]
    last = None if last_ns == NEVER else last_ns
    notes.append(NoticeRow(rows.SUMMARY, "", task.frames_before, count=held, timestamp_ns=last))

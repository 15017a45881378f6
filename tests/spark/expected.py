"""What rows have to be: made in process, by the way of the command line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mqttscope.capture import open_capture
from mqttscope.net.frame import CaptureError, CaptureNotice, Frame
from mqttscope.net.headers import segment as segment_of
from mqttscope.net.segment import Fragment, NotSegment, Segment
from mqttscope.spark.rows import notice_of

Read = tuple[list[Segment], list[Fragment], list[CaptureNotice], dict[tuple[str, str], int]]


def in_process(sources: Sequence[str]) -> Read:
    """Segments, fragments, notices and skipped frames by capture and reason."""
    segments: list[Segment] = []
    fragments: list[Fragment] = []
    notices: list[CaptureNotice] = []
    skipped: Counter[tuple[str, str]] = Counter()
    for item in open_capture(sources):
        segment = segment_of(item) if isinstance(item, Frame) else item
        if isinstance(segment, Segment):
            segments.append(segment)
        elif isinstance(segment, Fragment):
            fragments.append(segment)
        elif isinstance(segment, NotSegment):
            assert isinstance(item, Frame)
            skipped[item.capture, segment.reason] += 1
            if segment.reason == "unsupported_link_type":
                error = CaptureError(item.capture, segment.detail, None, item.number - 1)
                if not any(isinstance(notice, CaptureError) and notice.message == error.message for notice in notices):
                    notices.append(error)
        else:
            notices.append(segment)
    return segments, fragments, sorted(notices, key=repr), dict(skipped)


def of_rows(rows: Iterable[dict[str, Any]]) -> Read:
    """The same of rows, in their order."""
    segments: list[Segment] = []
    fragments: list[Fragment] = []
    notices: dict[tuple[str, str, str], CaptureNotice] = {}
    skipped: Counter[tuple[str, str]] = Counter()
    for row in sorted(rows, key=lambda row: (row["file"], row["frame"] or 0)):
        if row["kind"] == "segment":
            segments.append(segment_of_row(row))
        elif row["kind"] == "fragment":
            fragments.append(fragment_of_row(row))
        elif row["kind"] == "skipped":
            skipped[row["capture"], row["message"]] += row["count"]
        elif row["kind"] != "unsplit":
            names = ("kind", "capture", "message", "frame", "offset", "notice", "payload")
            notice = notice_of(*(row[name] for name in names))
            assert notice is not None
            key = row["kind"], row["capture"], repr(notice) if row["kind"] != "error" else row["message"]
            notices.setdefault(key, notice)
    return segments, fragments, sorted(notices.values(), key=repr), dict(skipped)


def segment_of_row(row: dict[str, Any]) -> Segment:
    return Segment(
        bytes(row["direction"]), row["sequence"], row["acknowledgment"], row["flags"], row["window"],
        bytes(row["payload"]), row["missing"], row["frame"], row["timestamp_ns"], row["capture"],
        bytes(row["options"] or b""), row["checksum"],
    )  # fmt: skip


def fragment_of_row(row: dict[str, Any]) -> Fragment:
    parts = row["fragment"]
    return Fragment(
        bytes(row["direction"]), parts["offset"], parts["more"], parts["protocol"], bytes(row["payload"]),
        row["missing"], bytes(parts["source"]), bytes(parts["destination"]), bytes(parts["encapsulation"]),
        row["frame"], row["timestamp_ns"], row["capture"],
    )  # fmt: skip


def all_of(batches: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """The rows of record batches."""
    for batch in batches:
        yield from batch.to_pylist()

"""Rows of the data source: their columns, and how batches of them are made.

A row is a TCP segment, an IP fragment, or a notice of a capture; ``kind`` distinguishes them.  Only the requested
columns are built.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any

import pyarrow as pa

from mqttscope.lake.rows import MOST
from mqttscope.mqtt.view import utf8
from mqttscope.net.frame import CaptureDrops, CaptureError, CaptureNotice, CaptureSecrets
from mqttscope.net.segment import Fragment, Segment, group_key

SEGMENT = "segment"
FRAGMENT = "fragment"
ERROR = "error"
"""A `CaptureError`: a capture or the rest of it cannot be read, or a link type is not supported."""
DROPS = "drops"
"""A `CaptureDrops`."""
SECRETS = "secrets"
"""A `CaptureSecrets`."""
SKIPPED = "skipped"
"""Frames without a segment: one row for each reason and range."""
UNSPLIT = "unsplit"
"""A capture or the rest of it was read in one piece, although it is longer than a range."""
READ = "read"
"""How far a stream has read a capture."""
KINDS = (SEGMENT, FRAGMENT, ERROR, DROPS, SECRETS, SKIPPED, UNSPLIT, READ)
SUMMARY = "summary"
"""Summary of one range: the time of its last segment, the number of IP fragments (``count``), and the number of earlier
frames of the capture (``frame``).  Only on request."""

BATCH_ROWS = 8192
BATCH_BYTES = 8 << 20
"""Maximum number of rows, and of payload bytes, of a batch."""
_KNOWN_FLOWS = 1 << 16

_FRAGMENT = (
    ("offset", "int"),
    ("more", "boolean"),
    ("protocol", "int"),
    ("source", "binary"),
    ("destination", "binary"),
    ("encapsulation", "binary"),
)
COLUMNS = {
    "kind": "string",
    "file": "int",
    "capture": "string",
    "frame": "bigint",
    "timestamp_ns": "bigint",
    "clock_ns": "bigint",
    "flow": "binary",
    "direction": "binary",
    "sequence": "bigint",
    "acknowledgment": "bigint",
    "flags": "int",
    "window": "int",
    "payload": "binary",
    "missing": "bigint",
    "options": "binary",
    "checksum": "int",
    "fragment": "struct<" + ",".join(f"{name}:{kind}" for name, kind in _FRAGMENT) + ">",
    "message": "string",
    "offset": "bigint",
    "count": "bigint",
    "notice": "string",
}
"""All columns with their types in SQL."""
DDL = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())


@dataclass(slots=True)
class NoticeRow:
    """A row that is neither segment nor fragment."""

    kind: str
    message: str
    frame: int | None = None
    offset: int | None = None
    count: int | None = None
    notice: str | None = None
    payload: bytes | None = None
    timestamp_ns: int | None = None


def note_of(notice: CaptureNotice, frames: int = 0, last_ns: int | None = None) -> NoticeRow:
    """A notice as a row.

    ``frames``: number of earlier frames of its capture, ``last_ns``: time of the latest segment among the frames that
    were read; rows of drops have both, since rules are less certain after them.
    """
    if isinstance(notice, CaptureError):
        return NoticeRow(ERROR, notice.message, notice.frames, notice.offset)
    fields = asdict(notice)
    fields.pop("capture")
    fields.pop("data", None)
    # Counts may exceed the 64 bits of orjson.
    written = json.dumps(fields)
    if isinstance(notice, CaptureDrops):
        message = f"interface {notice.interface} dropped {notice.dropped} frames"
        return NoticeRow(DROPS, message, frames, count=min(notice.dropped, MOST), notice=written, timestamp_ns=last_ns)
    return NoticeRow(
        SECRETS, "contains secrets for decryption", count=len(notice.data), notice=written, payload=notice.data
    )


def notice_of(
    kind: str, capture: str, message: str, frame: int | None, offset: int | None, notice: str | None, data: bytes | None
) -> CaptureNotice | None:
    """The notice of a row; ``None`` for rows that are not notices."""
    if kind == ERROR:
        return CaptureError(capture, message, offset, frame or 0)
    if kind == DROPS:
        return CaptureDrops(capture, **json.loads(notice or "{}"))
    if kind == SECRETS:
        return CaptureSecrets(capture, data=data or b"", **json.loads(notice or "{}"))
    return None


class Batches:
    """Makes record batches from the rows of one capture.

    ``schema``: the requested columns, with names and types of `COLUMNS`.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._flows: dict[bytes, bytes] = {}

    def segments(self, segments: Sequence[Segment], file: int, clock: Sequence[int]) -> pa.RecordBatch:
        """A batch of segments of one capture.  ``clock``: latest time up to each of them."""
        return self._batch(segments, SEGMENT, file, segments[0].capture, _OF_SEGMENT, clock)

    def fragments(self, fragments: Sequence[Fragment], file: int, clock: Sequence[int]) -> pa.RecordBatch:
        """A batch of fragments of one capture, as for `segments`."""
        return self._batch(fragments, FRAGMENT, file, fragments[0].capture, _OF_FRAGMENT, clock)

    def notes(self, notes: Iterable[NoticeRow], file: int, capture: str) -> Iterator[pa.RecordBatch]:
        """Batches of other rows."""
        for note in notes:
            yield self._batch([note], note.kind, file, capture, _OF_NOTE)

    def _batch(
        self,
        rows: Sequence[Any],
        kind: str,
        file: int,
        capture: str,
        columns: dict[str, Callable[[Any], Any]],
        clock: Sequence[int] = (),
    ) -> pa.RecordBatch:
        constants: dict[str, Any] = {"kind": kind, "file": file, "capture": capture}
        arrays = []
        for field in self.schema:
            name = field.name
            if name in constants:
                # The bytes of a file name may be invalid as text for Arrow.
                value = constants[name]
                value = utf8(value) if isinstance(value, str) else value
                arrays.append(pa.repeat(pa.scalar(value, field.type), len(rows)))
            elif name == "flow" and kind == SEGMENT:
                arrays.append(pa.array(self._flow([row.key for row in rows]), field.type))
            elif name == "clock_ns" and clock:
                arrays.append(pa.array(clock, field.type))
            elif name in columns:
                arrays.append(pa.array([*map(columns[name], rows)], field.type))
            else:
                arrays.append(pa.nulls(len(rows), field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _flow(self, keys: list[bytes]) -> list[bytes]:
        """Keys that are equal for both directions."""
        known = self._flows
        if len(known) > _KNOWN_FLOWS:
            known.clear()
        flows = []
        for key in keys:
            flow = known.get(key)
            if flow is None:
                flow = known[key] = group_key(key)
            flows.append(flow)
        return flows


def _parts(fragment: Fragment) -> dict[str, Any]:
    return {name: getattr(fragment, name) for name, _ in _FRAGMENT}


_OF_SEGMENT: dict[str, Callable[[Any], Any]] = {
    "frame": attrgetter("frame"),
    "timestamp_ns": attrgetter("timestamp_ns"),
    "direction": attrgetter("key"),
    "sequence": attrgetter("sequence"),
    "acknowledgment": attrgetter("acknowledgment"),
    "flags": attrgetter("flags"),
    "window": attrgetter("window"),
    "payload": attrgetter("payload"),
    "missing": attrgetter("missing"),
    "options": attrgetter("options"),
    "checksum": attrgetter("checksum"),
}
_OF_FRAGMENT: dict[str, Callable[[Any], Any]] = {
    "frame": attrgetter("frame"),
    "timestamp_ns": attrgetter("timestamp_ns"),
    "direction": attrgetter("key"),
    "payload": attrgetter("data"),
    "missing": attrgetter("missing"),
    "fragment": _parts,
}
_OF_NOTE: dict[str, Callable[[Any], Any]] = {
    name: attrgetter(name) for name in ("frame", "timestamp_ns", "message", "offset", "count", "notice", "payload")
}

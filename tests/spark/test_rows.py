"""Rows and batches of them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mqttscope.net.frame import CaptureDrops, CaptureError, CaptureNotice, CaptureSecrets
from mqttscope.net.segment import Segment, direction_key, flow_key, group_key, reverse_key
from mqttscope.spark import rows as module
from mqttscope.spark.rows import COLUMNS, DDL, Batches, NoticeRow, note_of, notice_of
from tests.spark.expected import all_of

KEYS = [direction_key(b"\x0a\0\0\1\x0a\0\0\2", b"\x04\0\x05\0", inside) for inside in (b"", b"\0\7")]
KEYS += [direction_key(bytes(range(32)), b"\x04\0\x05\0", inside) for inside in (b"", b"\0\7")]


def made(number: int) -> Segment:
    return Segment(KEYS[number % 4], number, 2, 24, 9, b"p" * number, 3, number + 1, 10**18, "a\udcff")


@pytest.mark.parametrize("key", KEYS, ids=bytes.hex)
def test_both_directions_have_one_flow(key: bytes) -> None:
    assert flow_key(key) == flow_key(reverse_key(key)) in (key, reverse_key(key))


def test_only_the_columns_that_are_asked_for_are_built() -> None:
    schema = pa.schema(
        [("flags", pa.int32()), ("frame", pa.int64()), ("message", pa.string()), ("clock_ns", pa.int64())]
    )

    batch = Batches(schema).segments([made(0), made(1)], 3, [5, 6])

    assert batch.schema == schema
    assert batch.to_pylist() == [{"flags": 24, "frame": n, "message": None, "clock_ns": n + 4} for n in (1, 2)]


def test_the_columns_are_documented_in_sql() -> None:
    assert [part.split()[0] for part in DDL.replace("offset:", "").split(", ")] == list(COLUMNS)


def test_flows_are_remembered_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KNOWN_FLOWS", 2)
    batches = Batches(pa.schema([("flow", pa.binary()), ("capture", pa.string())]))

    for _ in range(3):
        result = batches.segments([made(number) for number in range(8)], 0, [0] * 8).to_pylist()
        assert result == [{"flow": group_key(KEYS[number % 4]), "capture": "a\\xff"} for number in range(8)]


@pytest.mark.parametrize(
    "notice",
    [
        CaptureError("a", "is damaged: ü", 77, 5),
        CaptureError("a", "does not exist"),
        CaptureDrops("a", 2, None, 9),
        CaptureDrops("a", 0, 100, 9),
        CaptureSecrets("a", 0x544C534B, b"LINE \xff"),
    ],
    ids=repr,
)
def test_notices_come_back(notice: CaptureNotice) -> None:
    note = note_of(notice)

    assert notice_of(note.kind, "a", note.message, note.frame, note.offset, note.notice, note.payload) == notice


def test_other_rows_are_no_notices() -> None:
    assert notice_of("skipped", "a", "not_tcp", None, None, None, None) is None
    schema = pa.schema([("kind", pa.string()), ("message", pa.string()), ("count", pa.int64()), ("flow", pa.binary())])
    (row,) = all_of(Batches(schema).notes([NoticeRow("skipped", "not_tcp", count=5)], 0, "a"))
    assert row == {"kind": "skipped", "message": "not_tcp", "count": 5, "flow": None}

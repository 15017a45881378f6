"""Both ways of frames into the rows of an ingest end in the same rows, and in the same notes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'mqttscope[spark]'")

import pyarrow as pa

from mqttscope.capture import open_capture
from mqttscope.capture.files import Part
from mqttscope.capture.fingerprint import head_crc
from mqttscope.lake import intake as reading
from mqttscope.lake.intake import Intake
from mqttscope.lake.tables import Collector
from tests.bench.generate import generate
from tests.each import each
from tests.lake.reading import CAPTURES, Row, options, read_segments


def open_slowly(names: list[str], *, parts: dict[str, Part], direct: object) -> Any:
    """Frames of captures, none of which is offered to the fast path."""
    return open_capture(names, parts=parts)


def part(path: Path) -> Part:
    with path.open("rb") as file:
        size = path.stat().st_size
        return Part(0, size, head_crc(file, size))


def read(paths: list[Path], last_ns: int | None = None) -> tuple[Intake, list[tuple[str, Row]]]:
    rows: list[tuple[str, Row]] = []

    def write(name: str, found: pa.RecordBatch) -> None:
        rows.extend((name, row) for row in found.to_pylist())

    given = options()
    made = Intake(Collector(given, rules=given.rules), write, last_ns)
    made.read([str(path) for path in paths], {str(path): part(path) for path in paths})
    made.flush(everything=True)
    return made, rows


def notes(made: Intake) -> Any:
    return made.segments, made.now_ns, made.last_ns, made.skipped, made.out_of_order, made.overlapping


@each("path", CAPTURES[::4], ids=lambda path: path.parent.name)
def test_frames_come_either_way(path: Path) -> None:
    fast, rows = read([path])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "open_capture", open_slowly)
        slow, wanted = read([path])

    assert rows == wanted
    assert notes(fast) == notes(slow)
    assert fast.segments == len(read_segments(path))


def test_most_frames_of_a_large_capture_come_the_fast_way(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    generate(path, 3_000, devices=20)
    latest = max(one.timestamp_ns for one in read_segments(path))
    made, _ = read([path], latest)

    assert made.segments == len(read_segments(path)) > 2 * made._segments
    assert (made.now_ns, made.last_ns, made.out_of_order) == (latest, latest, {str(path)})
    assert read([path], latest + 5)[0].last_ns == latest + 5

"""The findings of a lake are those of the linter, of all scopes, in whatever pieces the captures came."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'mqttscope[spark]'")

from mqttscope.capture import PcapngWriter, open_capture
from mqttscope.dissect import dissect
from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.lake.keys import connection_id
from mqttscope.lake.rows import finding_row
from mqttscope.lake.schemas import FINDINGS
from mqttscope.lake.writer import read_table, write_lake
from mqttscope.lint.engine import Linter
from mqttscope.lint.memories import WIDE
from mqttscope.net.frame import Frame
from mqttscope.report.base import View
from mqttscope.report.findings.conceal import conceal
from tests.lake.reading import CAPTURES, Row, all_of_them, options

SCOPES = {rule.code: str(rule.scope) if rule.scope in WIDE else "connection" for rule in all_of_them()}


def linted(paths: Sequence[Path]) -> list[Row]:
    """What the linter finds in all captures together, as rows."""
    given = options()
    linter, view = Linter(given.rules, strict=True), View(width=0, payload_limit=256, secret_length=given.secret_length)
    numbers: Counter[tuple[str, str]] = Counter()
    rows = []
    for event in dissect(open_capture([*paths]), given.reading()):
        offset = event.stream_offset if isinstance(event, PacketEvent | MalformedEvent) else None
        for finding in linter.feed(event):
            name, scope = connection_id(event.connection), SCOPES[finding.rule]  # type: ignore[union-attr]
            row = finding_row(conceal(finding, view), name, scope, numbers[name, scope], offset)
            rows.append(dict(zip(FINDINGS.names, row, strict=True)))
            numbers[name, scope] += 1
    return rows


def in_lake(folder: Path) -> list[Row]:
    return [row | {"timestamp": row["timestamp_ns"] // 1000} for row in read_table(folder, "findings").to_pylist()]


def same(found: list[Row], wanted: list[Row]) -> None:
    def ordered(rows: list[Row]) -> list[Row]:
        return sorted(rows, key=lambda row: (row["connection_id"], row["scope"], row["finding_in_connection"]))

    assert ordered(found) == ordered(wanted)


def cut(path: Path, folder: Path, files: int, seed: int) -> list[Path]:
    """A capture as several files, cut at random frames."""
    frames = [one for one in open_capture([path]) if isinstance(one, Frame)]
    edges = sorted(random.Random(seed).sample(range(1, len(frames)), min(files, len(frames)) - 1))
    made = []
    for number, (start, stop) in enumerate(zip([0, *edges], [*edges, len(frames)], strict=True)):
        made.append(folder / f"{number:02d}.pcapng")
        with made[-1].open("wb") as file:
            out = PcapngWriter(file)
            for frame in frames[start:stop]:
                out.write(frame)
    return made


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.parent.name)
def test_at_once(path: Path, tmp_path: Path) -> None:
    write_lake([path], tmp_path / "lake", options())

    same(in_lake(tmp_path / "lake"), linted([path]))


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.parent.name)
def test_piece_by_piece(path: Path, tmp_path: Path) -> None:
    seed = CAPTURES.index(path)
    parts = cut(path, tmp_path, 2 + seed % 4, seed)
    for part in parts:
        write_lake([part], tmp_path / "lake", options())

    same(in_lake(tmp_path / "lake"), linted(parts))

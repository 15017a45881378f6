"""Whether lakes are equal row by row, and equal to what ``inspect`` and ``lint`` print, however large they are.

Tables are compared as Arrow, a slice of the connections at a time; lines and rows as digests of one JSON form.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from mqttscope.lake.manifest import read_manifest
from mqttscope.lake.schemas import TABLES
from tests.cli.running import command, environment
from tests.lake import as_json
from tests.lake.reading import PLACES, Row

UNPLACED = {*PLACES, "related", "details", "message"}
"""Columns that name frames."""
SLICED = 1 << 18
"""A table with more rows is compared in slices."""


def same_tables(lake: Path, wanted: Path, *, places: bool = True) -> dict[str, int]:
    """All tables have the same rows; returns how many.  ``places``: whether captures were cut in the same way.

    Where they were not, findings of wider scope are left out: rules trust less in what another capture has shown.
    """
    counted = {}
    for name in TABLES:
        kept = pc.field("scope") == "connection" if name == "findings" and not places else pc.scalar(True)
        one, other = (_dataset(folder, name) for folder in (lake, wanted))
        counted[name] = other.count_rows(filter=kept)
        assert one.count_rows(filter=kept) == counted[name], name
        columns = [column for column in TABLES[name].names if places or column not in UNPLACED]
        for part in _slices(name, counted[name]):
            tables = [each.to_table(columns=columns, filter=part & kept) for each in (one, other)]
            found, expected = (each.sort_by(_order(name, each)) for each in tables)
            assert found.equals(expected), _difference(name, found, expected)
    return counted


def _dataset(lake: Path, name: str) -> ds.Dataset:
    manifest = read_manifest(lake)
    files = (*manifest.files.get(name, ()), *manifest.open_files.get(name, ()))
    return ds.dataset([str(lake / one) for one in files], schema=TABLES[name].arrow(), format="parquet")


def _slices(name: str, rows: int) -> Iterator[Any]:
    """Conditions that each row fits one of."""
    if rows < SLICED or "connection_id" not in TABLES[name].names:
        yield pc.scalar(True)
        return
    for digit in "0123456789abcdef":
        yield pc.starts_with(pc.field("connection_id"), digit)


def _order(name: str, table: pa.Table) -> list[tuple[str, str]]:
    return [(column, "ascending") for column in TABLES[name].key if column in table.column_names]


def _difference(name: str, found: pa.Table, expected: pa.Table) -> str:
    """The first rows that differ, in the columns that do."""
    if found.num_rows != expected.num_rows:
        return f"{name}: {found.num_rows} rows, not {expected.num_rows}"
    for at in range(found.num_rows):
        (one,), (other,) = found.slice(at, 1).to_pylist(), expected.slice(at, 1).to_pylist()
        if one != other:
            names = [column for column in one if one[column] != other[column]]
            key = {column: one.get(column) for column in TABLES[name].key}
            return f"{name}: {key}: " + "; ".join(f"{each}: {one[each]!r}, not {other[each]!r}" for each in names)
    return f"{name}: the rows are equal, their columns are not"


class Names:
    """What a run counts by the names of a lake: connections, and packets as places in their connection."""

    def __init__(self, lake: Path) -> None:
        rows = _dataset(lake, "connections").to_table(columns=["connection_id", *_BEGIN]).to_pylist()
        self._known = {tuple(row[name] for name in _BEGIN): str(row["connection_id"]) for row in rows}
        self._connections: dict[int, str] = {}
        self._packets: list[int] = []
        """By the number of the packet in the run."""
        self._counted: Counter[int] = Counter()

    def open(self, line: Row) -> None:
        """Take a line that tells of a new connection."""
        self._connections[line["connection"]] = self._known[tuple(line[name] for name in _BEGIN)]

    def count(self, line: Row) -> None:
        """Take a line of a packet."""
        if line["packet"] == len(self._packets):
            self._packets.append(self._counted[line["connection"]])
            self._counted[line["connection"]] += 1

    def named(self, line: Row) -> Row:
        """A line with names instead of numbers."""
        packet = line.get("packet")
        return line | {
            "connection": self._connections[line["connection"]],
            "packet": None if packet is None else self._packets[packet],
            **({"related": [self._place(one) for one in line["related"]]} if line.get("related") else {}),
        }

    def _place(self, one: Row) -> Row:
        return one | {"packet": None if one["packet"] is None else self._packets[one["packet"]]}


_BEGIN = ("capture", "frame", "client", "server")
"""What names a connection where it begins."""


def _not_summed(found: Iterable[Row]) -> Iterator[Row]:
    """Without CON108, which ``lint`` prints once for all clients of a run."""
    return (one for one in found if one["rule"] != "CON108")


def same_as_printed(lake: Path, captures: Sequence[str], payload_limit: int) -> tuple[int, int]:
    """Packets, gaps and findings of a lake are the lines of ``inspect`` and ``lint``; returns how many.

    ``payload_limit``: how much of each payload the lake keeps.
    """
    names = [Names(lake)]

    def inspected() -> Iterator[Row]:
        names[0] = Names(lake)
        return _inspected(captures, payload_limit, names[0])

    lines = _same(inspected, lambda: _shown(lake, packets=as_json.packet, gaps=as_json.gap))
    words = "--format", "jsonl", "--select", "ALL", "--min-confidence", "heuristic", "--exit-zero", "--no-config"
    findings = _same(
        lambda: map(names[0].named, _not_summed(_lines("lint", *captures, *words))),
        lambda: _not_summed(_shown(lake, findings=as_json.finding)),
    )
    return lines, findings


def _shown(lake: Path, **shown: Callable[[Row], Row]) -> Iterator[Row]:
    """Rows of some tables in the form of lines, with their names."""
    for name, show in shown.items():
        for batch in _dataset(lake, name).to_batches():
            for row in batch.to_pylist():
                yield show(row) | {"connection": row["connection_id"], "packet": row.get("packet_in_connection")}


def _inspected(captures: Sequence[str], payload_limit: int, names: Names) -> Iterator[Row]:
    for line in _lines("inspect", *captures, "--format", "jsonl", "--payload-limit", str(payload_limit)):
        if line["event"] == "connection_opened":
            names.open(line)
        elif line["event"] in ("packet", "malformed"):
            names.count(line)
            yield names.named(line)
        elif line["event"] in ("gap", "unparsed"):
            yield names.named(line)


def _lines(*words: str) -> Iterator[Row]:
    """What a command prints."""
    with subprocess.Popen(command(*words), stdout=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None
        yield from map(orjson.loads, process.stdout)
    assert process.returncode == 0


def _same(wanted: Callable[[], Iterable[Row]], found: Callable[[], Iterable[Row]]) -> int:
    """Both have the same lines, in whatever order; returns how many."""
    one, other = (sorted(map(_digest, make())) for make in (found, wanted))
    if one != other:
        missing, more = Counter(other) - Counter(one), Counter(one) - Counter(other)
        examples = [
            next(line for line in make() if _digest(line) in odd)
            for make, odd in ((wanted, missing), (found, more))
            if odd
        ]
        raise AssertionError(f"{missing.total()} lines are missing, {more.total()} are too many: {examples}")
    return len(one)


def _digest(line: Row) -> bytes:
    return blake2b(orjson.dumps(line, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()

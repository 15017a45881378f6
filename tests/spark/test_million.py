"""Row by row: what the pipeline makes of a capture is what one process makes of it.

In one file or many, in any order, in ranges of any length, in one go or as a stream; and that is what ``inspect`` and
``lint`` print.  With a million frames where everything is tried (or as many as MQTTSCOPE_MILLION_FRAMES says), else
with few.

Tables are compared as Arrow, a slice of the connections at a time; lines and rows as digests of one JSON form.
"""

from __future__ import annotations

import heapq
import os
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from mqttscope.capture import open_capture
from mqttscope.lake.manifest import read_manifest
from mqttscope.lake.schemas import TABLES
from mqttscope.lake.writer import read_table, write_lake
from mqttscope.lint.context import WIDE
from mqttscope.lint.examples import ExampleConversation, segments
from mqttscope.net.frame import Frame
from mqttscope.spark.ingest import ingest
from mqttscope.spark.watch import watch
from tests.bench.frames import MSS, START_NS
from tests.bench.generate import STEP_NS, generate
from tests.cli.running import command, environment, invoke
from tests.conftest import EXHAUSTIVE
from tests.dissect.secure import as_frame
from tests.lake import as_json
from tests.lake.parts import write_frames
from tests.lake.reading import PLACES, Row, all_of_them, options
from tests.lake.test_all_scopes import elsewhere
from tests.spark.growth import PAST

FRAMES = int(os.environ.get("MQTTSCOPE_MILLION_FRAMES", 1_000_000 if EXHAUSTIVE else 8_000))
PAYLOAD_LIMIT = 256
LARGE = pytest.mark.exhaustive, pytest.mark.timeout(4 * 3600)


@dataclass(slots=True)
class Collection:
    """A capture in so many files, and the lake that one process makes of it."""

    files: list[str]
    lake: Path


@pytest.fixture(scope="module")
def collections(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Collection]:
    """One capture in 1, 3 and 50 files, made where they are asked for."""
    folder = tmp_path_factory.mktemp("busy")
    return _Made(folder, busy_capture(folder, FRAMES, seed=5))


class _Made(dict[int, Collection]):
    def __init__(self, folder: Path, whole: Path) -> None:
        super().__init__()
        self.folder, self.whole = folder, whole

    def __missing__(self, count: int) -> Collection:
        files = [str(self.whole)] if count == 1 else rotated(self.whole, self.folder / str(count), count, FRAMES)
        for name in files:
            os.utime(name, (PAST, PAST))
        result = self[count] = Collection(files, self.folder / f"lake-{count}")
        write_lake(files, result.lake, options(payload_limit=PAYLOAD_LIMIT))
        return result


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "split_bytes", "partitions"),
    [
        pytest.param(1, None, None, marks=LARGE),
        pytest.param(1, 999_983, 7, marks=LARGE),
        (3, 300_007, 3),
        pytest.param(3, None, None, marks=LARGE),
        pytest.param(50, None, None, marks=LARGE),
        pytest.param(50, 1_000_003, 5, marks=LARGE),
    ],
)
def test_ingest(
    spark: SparkSession,
    collections: dict[int, Collection],
    tmp_path: Path,
    count: int,
    split_bytes: int | None,
    partitions: int | None,
) -> None:
    each = collections[count]
    shuffled = random.Random(count).sample(each.files, count)
    lake_options = options(payload_limit=PAYLOAD_LIMIT)
    ingest(spark, shuffled, tmp_path / "lake", lake_options, split_bytes=split_bytes, partitions=partitions)

    rows = same_tables(tmp_path / "lake", each.lake)
    assert rows["packets"] > FRAMES // 2
    result = read_table(tmp_path / "lake", "findings", ["scope", "rule"])
    assert set(result["scope"].to_pylist()) == {"connection", "session", "broker"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "max_bytes"),
    [(3, FRAMES * 75), pytest.param(3, None, marks=LARGE), pytest.param(50, FRAMES * 20, marks=LARGE)],
)
def test_watch(
    spark: SparkSession, collections: dict[int, Collection], tmp_path: Path, count: int, max_bytes: int | None
) -> None:
    each = collections[count]
    lake_options = options(payload_limit=PAYLOAD_LIMIT)
    watch(spark, each.files, tmp_path / "lake", lake_options, once=True, max_bytes=max_bytes)

    same_tables(tmp_path / "lake", each.lake)


@pytest.mark.exhaustive
def test_cuts_make_no_difference(collections: dict[int, Collection]) -> None:
    """Where in a file something was is all that differs."""
    for count in (3, 50):
        same_tables(collections[count].lake, collections[1].lake, places=False)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("count", [pytest.param(1, marks=LARGE), 3, pytest.param(50, marks=LARGE)])
def test_printed(collections: dict[int, Collection], count: int) -> None:
    """The tables are those of the pipeline, as the other tests show."""
    each = collections[count]
    packets, findings = same_as_printed(each.lake, each.files, PAYLOAD_LIMIT)

    assert packets > FRAMES // 2
    assert findings > FRAMES // 200


@pytest.mark.exhaustive
@pytest.mark.usefixtures("spark")
def test_lint(collections: dict[int, Collection]) -> None:
    """With Spark it prints the same bytes."""
    words = "lint", *collections[1].files, "--format", "jsonl", "--select", "ALL", "--no-config"
    here, there = invoke(*words), invoke(*words, "--engine", "spark")

    # Not one large difference, which would take hours to show.
    chunks, other = there.out.splitlines(), here.out.splitlines()
    assert next(((raw, wanted) for raw, wanted in zip(chunks, other, strict=False) if raw != wanted), None) is None
    assert (len(chunks), there.code, there.err) == (len(other), here.code, here.err)


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
        rest = pc.field("scope") == "connection" if name == "findings" and not places else pc.scalar(True)
        other_each, other = (_dataset(folder, name) for folder in (lake, wanted))
        counted[name] = other.count_rows(filter=rest)
        assert other_each.count_rows(filter=rest) == counted[name], name
        columns = [column for column in TABLES[name].names if places or column not in UNPLACED]
        for part in _slices(name, counted[name]):
            tables = [each.to_table(columns=columns, filter=part & rest) for each in (other_each, other)]
            result, expected = (each.sort_by(_order(name, each)) for each in tables)
            assert result.equals(expected), _difference(name, result, expected)
    return counted


def _dataset(lake: Path, name: str) -> ds.Dataset:
    manifest = read_manifest(lake)
    files = (*manifest.files.get(name, ()), *manifest.open_files.get(name, ()))
    return ds.dataset([str(lake / file) for file in files], schema=TABLES[name].arrow(), format="parquet")


def _slices(name: str, rows: int) -> Iterator[Any]:
    """Conditions that each row fits one of."""
    if rows < SLICED or "connection_id" not in TABLES[name].names:
        yield pc.scalar(True)
        return
    for digit in "0123456789abcdef":
        yield pc.starts_with(pc.field("connection_id"), digit)


def _order(name: str, table: pa.Table) -> list[tuple[str, str]]:
    return [(column, "ascending") for column in TABLES[name].key if column in table.column_names]


def _difference(name: str, table: pa.Table, expected: pa.Table) -> str:
    """The first rows that differ, in the columns that do."""
    if table.num_rows != expected.num_rows:
        return f"{name}: {table.num_rows} rows, not {expected.num_rows}"
    for at in range(table.num_rows):
        (row,), (other,) = table.slice(at, 1).to_pylist(), expected.slice(at, 1).to_pylist()
        if row != other:
            names = [column for column in row if row[column] != other[column]]
            key = {column: row.get(column) for column in TABLES[name].key}
            return f"{name}: {key}: " + "; ".join(f"{each}: {row[each]!r}, not {other[each]!r}" for each in names)
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
            **({"related": [self._place(each) for each in line["related"]]} if line.get("related") else {}),
        }

    def _place(self, row: Row) -> Row:
        return row | {"packet": None if row["packet"] is None else self._packets[row["packet"]]}


_BEGIN = ("capture", "frame", "client", "server")
"""What names a connection where it begins."""


def _not_summed(rows: Iterable[Row]) -> Iterator[Row]:
    """Without CON108, which ``lint`` prints once for all clients of a run."""
    return (document for document in rows if document["rule"] != "CON108")


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


def _same(wanted: Callable[[], Iterable[Row]], result: Callable[[], Iterable[Row]]) -> int:
    """Both have the same lines, in whatever order; returns how many."""
    chunks, other = (sorted(map(_digest, make())) for make in (result, wanted))
    if chunks != other:
        missing, more = Counter(other) - Counter(chunks), Counter(chunks) - Counter(other)
        examples = [
            next(line for line in make() if _digest(line) in odd)
            for make, odd in ((wanted, missing), (result, more))
            if odd
        ]
        raise AssertionError(f"{missing.total()} lines are missing, {more.total()} are too many: {examples}")
    return len(chunks)


def _digest(line: Row) -> bytes:
    return blake2b(orjson.dumps(line, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


ALL_EXAMPLES = 10_600
"""Frames of all conversations that rules give as examples."""
CONVERSATIONS = [conversation for rule in all_of_them() for conversation in (*rule.bad, *rule.good)]
WIDE_CONVERSATIONS = [
    conversation for rule in all_of_them() if rule.scope in WIDE for conversation in (*rule.bad, *rule.good)
]


def busy_capture(folder: Path, frames: int, seed: int) -> Path:
    """A capture of about so many frames: generated devices, and conversations of the rules' examples among them.

    Half of the conversations have a server of their own; the others share two, so that wide rules see them together.
    """
    calm, target = folder / "calm.pcapng", folder / "busy.pcapng"
    # Half of a small capture, so that few examples are not there; a tenth of a large one.
    among = max(frames // 10, min(frames // 2, ALL_EXAMPLES))
    generate(calm, frames - among, seed=seed, devices=max(20, min(1_000, frames // 150)))
    generated = (frame for frame in open_capture([calm]) if isinstance(frame, Frame))
    examples = _conversations(random.Random(seed), among, frames * STEP_NS // 2)
    write_frames(target, heapq.merge(generated, examples, key=lambda frame: frame.timestamp_ns))
    calm.unlink()
    return target


def _conversations(chance: random.Random, frames: int, length_ns: int) -> list[Frame]:
    """Frames of conversations that begin anywhere in a time of so many nanoseconds, in the order of time."""
    new_frames: list[Frame] = []
    for number, conversation in enumerate(_each(chance)):
        if len(new_frames) >= frames:
            break
        actual_segments = segments(conversation, MSS)
        own = number >> 8 & 0xFF, number & 0xFF
        client = bytes((172, 16 + (number >> 16), *own))
        server = bytes((198, 18, *chance.choice((own, own, (255, 254), (255, 255)))))
        later_ns = START_NS + chance.randrange(length_ns) - actual_segments[0].timestamp_ns
        new_frames += map(as_frame, elsewhere(actual_segments, client, server, later_ns))
    new_frames.sort(key=lambda frame: frame.timestamp_ns)
    return new_frames


def _each(chance: random.Random) -> Iterator[ExampleConversation]:
    """Examples of wide scope, which are few; then all in an order of its own, again and again."""
    yield from WIDE_CONVERSATIONS
    while True:
        yield from chance.sample(CONVERSATIONS, len(CONVERSATIONS))


def rotated(capture: Path, folder: Path, files: int, frames: int) -> list[str]:
    """The frames of a capture in so many files, one after the other; their paths in the order of time."""
    folder.mkdir()
    actual_frames: Iterator[Frame] = (frame for frame in open_capture([capture]) if isinstance(frame, Frame))
    texts = []
    for number in range(files):
        # The last one takes what is left.
        size = None if number == files - 1 else frames // files
        texts.append(str(write_frames(folder / f"busy_{number:05d}.pcapng", islice(actual_frames, size))))
    return texts

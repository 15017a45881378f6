"""What the tasks of a fold do, in process; with Spark: test_ingest.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")

import pyarrow as pa
import pyarrow.parquet as pq

from mqttscope.lake import kernel as kernels
from mqttscope.lake.kernel import SEGMENT_COLUMNS
from mqttscope.lake.manifest import LakeError, Manifest
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.schemas import FLOW_KEYS, TABLES
from mqttscope.lake.sort_position import Drop
from mqttscope.spark.cross_connection_stage import Asides, ingest_keys
from mqttscope.spark.ingest_flows import NOTE_COLUMNS, Folded, found_wrong, take, write_errors
from mqttscope.spark.ingest_tasks import IngestFailedError, Report, Work, first_drops, fold_flows
from mqttscope.spark.rows import DROPS, ERROR, SUMMARY
from mqttscope.spark.tables import parquet_paths
from tests.lake.reading import CAPTURES, TYPES, options, ordered, read_segments, segment_rows, usual

(QOS,) = (path for path in CAPTURES if path.parent.name == "v5-qos")
EXTRA = (("message", pa.string()), ("offset", pa.int64()), ("count", pa.int64()), ("notice", pa.string()))
INPUT = pa.schema([*TYPES, *EXTRA])
Values = tuple[Any, ...]


def aside(kind: str, **values: Any) -> Values:
    """A row that belongs to no flow."""
    return tuple(({"kind": kind, "file": 0, "capture": "a.pcap"} | values).get(name) for name in INPUT.names)


def batches(*asides: Values, segments: Iterable[Values] = (), size: int = 50) -> Iterator[pa.RecordBatch]:
    """Rows as Spark hands them over: those without a flow first."""
    rows = sorted(segments, key=lambda row: (row[1], *row[3:5]))
    rows = [*asides, *((*row, None, None, None, None) for row in rows)]
    for at in range(0, len(rows), size):
        columns = [
            pa.array(one, kind) for one, kind in zip(zip(*rows[at : at + size], strict=True), INPUT.types, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=INPUT)


def folded(work: Work, *asides: Values, segments: Iterable[Values] = (), size: int = 50) -> Report:
    (row,) = (
        row for one in fold_flows(batches(*asides, segments=segments, size=size), work) for row in one.to_pylist()
    )
    return Report.load(row["report"])


def work(root: Path, **changes: Any) -> Work:
    return replace(Work(str(root), 3, options()), **changes)


def test_the_columns_of_the_input() -> None:
    assert tuple(INPUT.names) == (*SEGMENT_COLUMNS, *NOTE_COLUMNS)


@pytest.mark.parametrize("size", [1, 7, 5_000])
def test_tables_are_written_and_only_names_come_back(tmp_path: Path, size: int) -> None:
    rows = segment_rows(read_segments(QOS))

    report = folded(work(tmp_path, more=False), aside(SUMMARY, count=0), segments=rows, size=size)

    tables = {
        kind: [row for name in names for row in pq.read_table(tmp_path / name).to_pylist()]
        for kind, names in report.files.items()
    }
    assert FLOW_KEYS.name in tables
    assert ordered(tables) == ordered({name: usual(QOS).get(name, []) for name in tables})
    assert {kind: len(found) for kind, found in tables.items()} == report.rows
    assert {name.split("-")[0] for names in report.files.values() for name in names} == {
        f"{kind}/0000000003" for kind in report.files
    }
    for kind, names in report.files.items():
        schema = pq.read_schema(tmp_path / names[0])
        assert tuple(schema.names) == (TABLES | {FLOW_KEYS.name: FLOW_KEYS})[kind].names
        assert schema.metadata[b"mqttscope.table"] == kind.encode()


def test_the_watermark_is_the_last_segment_of_all_ranges(tmp_path: Path) -> None:
    """It is known before the first segment, and so ends flows that were idle for long by then."""
    rows = segment_rows(read_segments(QOS))
    last = max(row[2] for row in rows)
    day = 86_400_000_000_000

    near = folded(work(tmp_path), aside(SUMMARY, count=0, timestamp_ns=last), aside(SUMMARY, count=0), segments=rows)
    far = folded(work(tmp_path), aside(SUMMARY, count=0, timestamp_ns=last + day), segments=rows)
    told = folded(work(tmp_path, watermark_ns=last + day), segments=rows)
    earlier = folded(work(tmp_path, before_ns=last + day), aside(SUMMARY, count=0, timestamp_ns=last), segments=rows)

    assert near.last_ns == last
    assert near.rows["state"] > 0
    assert [one.rows.get("state") for one in (far, told)] == [None, None]
    # What comes late is not idle because newer captures came before.
    assert earlier.rows["state"] == near.rows["state"]
    assert far.last_ns == last + day


def test_captures_from_before_are_named(tmp_path: Path) -> None:
    rows = segment_rows(read_segments(QOS))
    times = sorted(row[2] for row in rows)

    assert folded(work(tmp_path, before_ns=times[0]), segments=rows).late == []
    assert folded(work(tmp_path, before_ns=times[1]), segments=rows).late == [str(QOS)]


def test_fragments_stop_a_task_where_that_is_wanted(tmp_path: Path) -> None:
    rows = segment_rows(read_segments(QOS))
    seen = aside(SUMMARY, count=2, file=7), aside(SUMMARY, count=0, file=8)

    stopped = folded(work(tmp_path, stops_at_fragments=True), *seen, segments=rows)
    assert (stopped.fragmented, stopped.files) == ([7], {})
    assert list(tmp_path.iterdir()) == []
    assert folded(work(tmp_path), *seen, segments=rows).rows["packets"] > 0


def test_notes_come_back_and_become_rows(tmp_path: Path) -> None:
    link = "link type 189 is not supported"
    report = folded(
        work(tmp_path),
        aside(ERROR, message=link, frame=40), aside(ERROR, message=link, frame=0),
        aside(ERROR, message="ends early", frame=80, offset=900),
        *[aside(DROPS, message="dropped", count=3, frame=7, notice='{"interface":0,"received":9,"dropped":3}')] * 2,
        aside("skipped", message="not_ip", count=2),
    )  # fmt: skip
    assert (len(report.notes), len(report.noted(DROPS))) == (3, 2)

    written = write_errors(tmp_path, 3, [one for _, one in found_wrong(report.notes, report.noted(DROPS))])

    (name,) = written.files["ingest_errors"]
    rows = pq.read_table(tmp_path / name).to_pylist()
    assert [(row["event"], row["message"], row["frames"], row["dropped"]) for row in rows] == [
        ("capture_error", link, 0, None),
        *[("capture_drops", "interface 0 dropped 3 frames", None, 3)] * 2,
        ("capture_error", "ends early", 80, None),
    ]
    assert found_wrong([], []) == []
    assert write_errors(tmp_path, 3, []) == Report()


def test_the_first_drops_of_a_capture_have_a_place_in_its_time() -> None:
    def row(kind: str, capture: str, file: int, frame: int | None, timestamp_ns: int | None) -> dict[str, Any]:
        return {"kind": kind, "capture": capture, "file": file, "frame": frame, "timestamp_ns": timestamp_ns}

    rows = [
        row(DROPS, "a", 0, 40, 900), row(DROPS, "a", 0, 20, None), row(DROPS, "b", 1, 0, None),
        row(DROPS, "c", 2, 30, 700),
        *(row(SUMMARY, "a", 0, frame, last_ns) for frame, last_ns in ((10, 500), (0, 600), (20, 1_000))),
        row(SUMMARY, "c", 2, 0, 1_000), row(SUMMARY, "c", 2, None, 2_000), row(SUMMARY, "c", 2, 50, None),
    ]  # fmt: skip
    assert first_drops(rows) == {"a": Drop(0, 20, 600), "b": Drop(1, 0), "c": Drop(2, 30, 700)}


def test_a_program_error_names_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("nothing to divide by")

    rows = segment_rows(read_segments(QOS))
    monkeypatch.setattr(kernels, "run_flows", fail)
    with pytest.raises(
        IngestFailedError, match=r"v5-qos/capture\.pcapng, from frame \d+ on: ZeroDivisionError: nothing to div"
    ):
        folded(work(tmp_path), segments=rows)
    assert list(tmp_path.rglob("*.parquet")) == []


def test_a_lake_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "packets").write_bytes(b"no folder")

    with pytest.raises(LakeError, match=f"{tmp_path} cannot be written: File exists"):
        folded(work(tmp_path, more=False), segments=segment_rows(read_segments(QOS)))
    assert list(tmp_path.rglob("*.parquet")) == []


def test_rules_across_connections_that_fail_are_named(tmp_path: Path) -> None:
    rows = [pa.RecordBatch.from_pydict({"flow": [b"k"], "kind_order": [0]})]

    with pytest.raises(IngestFailedError, match="rules across connections: KeyError"):
        list(ingest_keys(rows, work(tmp_path), Asides()))


def test_what_was_written_goes_into_the_manifest() -> None:
    after, done = Manifest(files={"packets": ["old"]}), Folded()
    kinds = ("packets", "open/packets", "state", "scope_state", "flow_keys")
    take(Report({kind: [f"{kind}/new"] for kind in kinds}, dict.fromkeys(kinds, 5)), after, done)

    assert after.files == {"packets": ["old", "packets/new"]}
    assert after.open_files == {"packets": ["open/packets/new"]}
    assert (after.state_files, after.scope_state_files) == (["state/new"], ["scope_state/new"])
    assert done.rows == {"packets": 5}


def test_paths_are_no_patterns(tmp_path: Path) -> None:
    assert parquet_paths(tmp_path / "a[1] {b}", ["packets/x.parquet"]) == [
        f"file:{tmp_path}/a\\[1\\] \\{{b\\}}/packets/x.parquet"
    ]


def test_options_reach_the_executors() -> None:
    """By value, rules and their settings too."""
    from pyspark import cloudpickle

    given = work(Path("/lake"))
    assert given.options.rules
    got = cloudpickle.loads(cloudpickle.dumps(given))  # type: ignore[no-untyped-call]
    assert [(rule.code, rule.set) for rule in got.options.rules] == [
        (rule.code, rule.set) for rule in given.options.rules
    ]
    assert isinstance(got.options, LakeOptions)

"""What the tasks of a fold do, in process; with Spark: test_ingest.py."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mqttscope.lake import kernel as kernels
from mqttscope.lake.keys import Drop
from mqttscope.lake.manifest import LakeError
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.schemas import FLOW_KEYS, TABLES
from mqttscope.lint.engine import InternalError
from mqttscope.lint.failures import RuleFailures
from mqttscope.spark.follower import BEHIND
from mqttscope.spark.ingest_tasks import (
    ROWS_AT_A_TIME,
    SELDOM,
    IngestFailedError,
    SharedNotices,
    TaskReport,
    clocked,
    ends_of,
    first_drops,
    fold_flows,
    ingest_keys,
    split_aside,
    split_batches,
    watermark,
)
from mqttscope.spark.rows import DROPS, ERROR, READ, SUMMARY
from mqttscope.spark.scan import NEVER
from tests.lake.reading import ordered, usual
from tests.spark.ingest_rows import QOS, ROWS, aside, batches, folded, work


@pytest.mark.parametrize("size", [1, 7, 5_000])
def test_tables_are_written_and_only_names_come_back(tmp_path: Path, size: int) -> None:
    report = folded(work(tmp_path, more=False), aside(SUMMARY, count=0), segments=ROWS, size=size)

    tables = {
        kind: [row for name in names for row in pq.read_table(tmp_path / name).to_pylist()]
        for kind, names in report.files.items()
    }
    assert FLOW_KEYS.name in tables
    assert ordered(tables) == ordered({name: usual(QOS).get(name, []) for name in tables})
    assert {kind: len(table) for kind, table in tables.items()} == report.rows
    assert {name.split("-")[0] for names in report.files.values() for name in names} == {
        f"{kind}/0000000003" for kind in report.files
    }
    for kind, names in report.files.items():
        schema = pq.read_schema(tmp_path / names[0])
        assert tuple(schema.names) == (TABLES | {FLOW_KEYS.name: FLOW_KEYS})[kind].names
        assert schema.metadata[b"mqttscope.table"] == kind.encode()


def test_the_watermark_is_the_last_segment_of_all_ranges(tmp_path: Path) -> None:
    """It is known before the first segment, and so ends flows that were idle for long by then."""
    last = max(row[2] for row in ROWS)
    day = 86_400_000_000_000

    near = folded(work(tmp_path), aside(SUMMARY, count=0, timestamp_ns=last), aside(SUMMARY, count=0), segments=ROWS)
    far = folded(work(tmp_path), aside(SUMMARY, count=0, timestamp_ns=last + day), segments=ROWS)
    report = folded(work(tmp_path, watermark_ns=last + day), segments=ROWS)
    earlier = folded(work(tmp_path, before_ns=last + day), aside(SUMMARY, count=0, timestamp_ns=last), segments=ROWS)

    assert near.last_ns == last
    assert near.rows["state"] > 0
    assert [task_report.rows.get("state") for task_report in (far, report)] == [None, None]
    # What comes late is not idle because newer captures came before.
    assert earlier.rows["state"] == near.rows["state"]
    assert far.last_ns == last + day


def test_captures_from_before_are_named(tmp_path: Path) -> None:
    times = sorted(row[2] for row in ROWS)

    assert folded(work(tmp_path, before_ns=times[0]), segments=ROWS).late == []
    assert folded(work(tmp_path, before_ns=times[1]), segments=ROWS).late == [str(QOS)]


def test_fragments_stop_a_task_where_that_is_wanted(tmp_path: Path) -> None:
    seen = aside(SUMMARY, count=2, file=7), aside(SUMMARY, count=0, file=8)

    stopped = folded(work(tmp_path, stops_at_fragments=True), *seen, segments=ROWS)
    assert (stopped.fragmented, stopped.files) == ([7], {})
    assert list(tmp_path.iterdir()) == []
    assert folded(work(tmp_path), *seen, segments=ROWS).rows["packets"] > 0


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

    monkeypatch.setattr(kernels, "run_flows", fail)
    with pytest.raises(
        IngestFailedError, match=r"v5-qos/capture\.pcapng, from frame \d+ on: ZeroDivisionError: nothing to div"
    ):
        folded(work(tmp_path), segments=ROWS)
    assert list(tmp_path.rglob("*.parquet")) == []


@pytest.fixture
def own_thresholds() -> Iterator[tuple[int, int, int]]:
    """Thresholds of the collector that nothing else has; a command that ran in this process may have left its own."""
    before, own = gc.get_threshold(), (701, 11, 12)
    gc.set_threshold(*own)
    yield own
    gc.set_threshold(*before)


def test_cycles_are_looked_for_seldom_while_flows_are_read_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_thresholds: tuple[int, int, int]
) -> None:
    before, seen = own_thresholds, list[tuple[int, ...]]()

    def noted(input_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for each in input_batches:
            yield each
            seen.append(gc.get_threshold())

    assert [*fold_flows(noted(batches(segments=ROWS)), work(tmp_path))]
    # The first batch is looked at for rows without a flow, before anything is read.
    assert set(seen[1:]) == {SELDOM}
    assert gc.get_threshold() == before
    seen.clear()
    assert [*ingest_keys(noted(batches(segments=[(row[0], b"10.0.0.2:1883", *row[2:]) for row in ROWS])),
        work(tmp_path), SharedNotices())]  # fmt: skip
    assert set(seen) == {SELDOM}
    assert gc.get_threshold() == before
    monkeypatch.setattr(kernels, "run_flows", lambda *_, **__: 1 / 0)
    with pytest.raises(IngestFailedError, match="ZeroDivisionError"):
        folded(work(tmp_path), segments=ROWS)
    assert gc.get_threshold() == before


def test_a_lake_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "packets").write_bytes(b"no folder")

    with pytest.raises(LakeError, match=f"{tmp_path} cannot be written: File exists"):
        folded(work(tmp_path, more=False), segments=ROWS)
    assert list(tmp_path.rglob("*.parquet")) == []


def test_options_reach_the_executors() -> None:
    """By value, rules and their settings too."""
    from pyspark import cloudpickle

    fold_settings = work(Path("/lake"))
    assert fold_settings.options.rules
    got = cloudpickle.loads(cloudpickle.dumps(fold_settings))  # type: ignore[no-untyped-call]
    assert [(rule.code, rule.set) for rule in got.options.rules] == [
        (rule.code, rule.set) for rule in fold_settings.options.rules
    ]
    assert isinstance(got.options, LakeOptions)


def row(kind: str, **values: Any) -> dict[str, Any]:
    """A row without a flow, with what the tasks look at."""
    return {"kind": kind, "file": 0, "frame": 0, "timestamp_ns": None, "message": None} | values


def test_a_report_comes_back_as_it_was_sent() -> None:
    report = TaskReport({"packets": ["packets/a"]}, {"packets": 5}, {"packets/a": 7}, [{"kind": ERROR}], {"not_ip": 2})
    report.last_ns, report.late, report.fragmented = -5, ["a\udcff.pcap"], [3]
    report.failures = RuleFailures([InternalError("TST291", "a.pcap", 7, "ValueError: odd", "")], {"TST291": 12})
    (sent,) = replace(report, late=["b.pcap"]).dump().to_pylist()

    assert TaskReport.load(sent["report"]) == replace(report, late=["b.pcap"])


@pytest.mark.parametrize("size", [1, 2, 3, 10])
def test_rows_without_a_flow_come_first_wherever_batches_end(size: int) -> None:
    rows = ROWS[:4]
    notes = aside(ERROR, message="a"), aside(SUMMARY), aside(DROPS)

    documents, rest = split_aside(batches(*notes, segments=rows, size=size))
    assert [document["kind"] for document in documents] == [ERROR, SUMMARY, DROPS]
    assert [row["frame"] for batch in rest for row in batch.to_pylist()] == sorted(row[4] for row in rows)

    documents, rest = split_aside(batches(*notes, size=size))
    assert (len(documents), list(rest)) == (3, [])
    documents, rest = split_aside(batches(segments=rows, size=size))
    assert (documents, sum(each.num_rows for each in rest)) == ([], 4)


def test_the_watermark_is_where_the_last_one_behind_is() -> None:
    summaries = [row(SUMMARY, timestamp_ns=number) for number in (5, 9, None)]

    assert watermark([]) is None
    assert watermark([], 7) == 7
    assert watermark(summaries) == 9
    assert watermark(summaries, 20) == 20
    assert watermark([*summaries, row(READ, message=BEHIND, timestamp_ns=3)]) == 3
    assert watermark([*summaries, row(READ, message=BEHIND, timestamp_ns=30)]) == 9
    assert watermark([*summaries, row(READ, message="", timestamp_ns=3), row(READ, message=BEHIND)]) == 9
    assert watermark([row(READ, message=BEHIND, timestamp_ns=3)]) is None


def test_the_ends_of_captures_stand_by_their_place() -> None:
    assert ends_of([]) == ()
    assert ends_of([row(SUMMARY, file=2, timestamp_ns=number) for number in (5, 9, 7)] + [row(SUMMARY, file=1)]) == (
        NEVER, NEVER, 9,
    )  # fmt: skip


def test_small_batches_hold_the_same_rows_in_the_same_order() -> None:
    count = 2 * ROWS_AT_A_TIME + 1
    result = list(split_batches([pa.RecordBatch.from_pydict({"a": list(range(count))})]))

    assert [each.num_rows for each in result] == [ROWS_AT_A_TIME, ROWS_AT_A_TIME, 1]
    assert [value for each in result for value in each.column("a").to_pylist()] == list(range(count))
    assert list(split_batches([])) == []


def test_time_goes_on_from_one_range_of_a_capture_to_the_next() -> None:
    """A range that is read alone does not know that later times came before it."""
    rows = pa.RecordBatch.from_pydict(
        {"file": [0, 0, 0, 1, 0], "frame": [5, 10, 15, 15, 99], "clock_ns": [1, 2, 3, 4, 500]}
    )
    ranges = [
        row(SUMMARY, frame=0, timestamp_ns=100), row(SUMMARY, frame=10, timestamp_ns=50),
        row(SUMMARY, frame=20, timestamp_ns=None), row(SUMMARY, file=1, frame=0, timestamp_ns=900),
    ]  # fmt: skip

    (clocked_rows,) = clocked([rows], ranges)
    # Of the first range there is nothing before; a capture of one range is as it is; what is later stays later.
    assert clocked_rows.column("clock_ns").to_pylist() == [1, 2, 100, 4, 500]
    assert list(clocked([rows], ranges[3:])) == [rows]

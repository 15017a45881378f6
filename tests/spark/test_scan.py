"""Tasks of reading, in process: whatever the captures are and however they are cut, nothing is lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from mqttscope.capture.locations import Location, find
from mqttscope.capture.ranges import Range
from mqttscope.spark import scan as module
from mqttscope.spark.plan import Task, measured, plan, settled, splits
from mqttscope.spark.rows import COLUMNS, Batches
from mqttscope.spark.scan import RowFilter, ScanFailedError, scan
from tests.capture.test_ranges import short_chains
from tests.conftest import ROOT
from tests.each import some
from tests.spark.expected import all_of, in_process, of_rows
from tests.spark.samples import everything, frames, pcap

FRAGMENT = pa.struct(
    [
        ("offset", pa.int32()), ("more", pa.bool_()), ("protocol", pa.int32()),
        ("source", pa.binary()), ("destination", pa.binary()), ("encapsulation", pa.binary()),
    ]
)  # fmt: skip
TYPES = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary()}
SCHEMA = pa.schema([(name, TYPES.get(kind, FRAGMENT)) for name, kind in COLUMNS.items()])


def rows(tasks: list[Task], wanted: RowFilter | None = None) -> list[dict[str, Any]]:
    batches = Batches(SCHEMA)
    return [row for task in tasks for row in all_of(scan(task, batches, wanted or RowFilter(), {}))]


def tasks(sources: list[str], split_bytes: int, *, apart: bool = False) -> list[Task]:
    locations = find(sources)
    with short_chains():
        if apart:
            planned = settled([measured(task, {}) for task in reversed(splits(locations, {}, split_bytes))])
        else:
            planned = plan(locations, {}, split_bytes)
    return [task for file, capture_plan in enumerate(planned) for task in capture_plan.tasks(file)]


@pytest.mark.parametrize("apart", [False, True], ids=["walked", "measured"])
@pytest.mark.parametrize("split_bytes", some([3000, 500, 1 << 20], 3))
def test_all_captures_of_the_project(split_bytes: int, apart: bool) -> None:
    sources = [str(ROOT / "captures" / "*" / "capture.pcap*")]

    new_tasks = tasks(sources, split_bytes, apart=apart)

    assert of_rows(rows(new_tasks)) == in_process(sources)
    assert len(new_tasks) > (600 if split_bytes == 500 else 50)


@pytest.mark.parametrize("apart", [False, True], ids=["walked", "measured"])
@pytest.mark.parametrize("split_bytes", [300, 2000, 1 << 20])
def test_whatever_is_wrong_is_a_row_and_the_rest_is_read(tmp_path: Path, split_bytes: int, apart: bool) -> None:
    sources = everything(tmp_path)

    documents = rows(tasks(sources, split_bytes, apart=apart))

    assert of_rows(documents) == in_process(sources)
    messages = {row["message"].partition(" (")[0] for row in documents if row["kind"] == "error"}
    assert {"does not exist", "is empty", "ends inside a frame record", "is not a capture file"} <= messages
    assert any(row["kind"] == "drops" and row["count"] == 3 for row in documents)
    if split_bytes < 1000:
        (unsplit,) = {
            (row["capture"], row["offset"])
            for row in documents
            if row["kind"] == "unsplit" and "damaged" in row["capture"]
        }
        assert 6900 < unsplit[1] <= 7974


def test_ports_and_times_and_kinds(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(pcap([*frames(5, port=1000), *frames(5, port=2000)]))
    new_tasks = tasks([str(tmp_path)], 1 << 20)
    start = 1_700_000_000 * 10**9

    def numbers(**wanted: Any) -> list[int]:
        return [row["frame"] for row in rows(new_tasks, RowFilter(**wanted))]

    assert numbers(ports=frozenset([2000])) == [6, 7, 8, 9, 10]
    assert numbers(ports=frozenset([1883])) == list(range(1, 11))
    assert numbers(start_ns=start + 3 * 10**9, end_ns=start + 5 * 10**9 + 5001) == [4, 5, 6]
    assert numbers(kinds=frozenset(["error"])) == []


def test_batches_end_at_their_limits(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(pcap(frames(100, 1000)))
    (task,) = tasks([str(tmp_path)], 1 << 20)

    def sizes() -> list[int]:
        return [batch.num_rows for batch in scan(task, Batches(SCHEMA), RowFilter(), {})]

    assert sizes() == [100]
    with patch.object(module, "BATCH_ROWS", 30):
        assert sizes() == [30, 30, 30, 10]
    with patch.object(module, "BATCH_BYTES", 40_000):
        assert sizes() == [40, 40, 20]


def test_a_capture_that_has_changed_is_a_row(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap(frames(100)))
    new_tasks = tasks([str(path)], 2000)
    path.write_bytes(pcap(frames(100))[:5000].ljust(path.stat().st_size, b"\0"))

    documents = rows(new_tasks)

    # Two ranges are as they were, and the last one may end anywhere.
    changed = [row for row in documents if row["kind"] == "error" and row["message"].startswith("has changed")]
    assert len(changed) == len(new_tasks) - 3
    path.write_bytes(pcap(frames(100))[:5000])
    assert {row["message"] for row in rows(new_tasks)} == {"is another file since it was found"}
    path.unlink()
    assert {row["message"] for row in rows(new_tasks)} == {"does not exist since it was found"}


def test_errors_of_the_program_name_capture_offset_and_frame(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(pcap(frames(10)))
    task = Task(0, Location("a.pcap", str(tmp_path / "a.pcap"), 1000), Range())

    with (
        patch.object(module, "segment_of", side_effect=RuntimeError("broken")),
        pytest.raises(ScanFailedError, match=r"^a\.pcap, from offset 0 on, after frame 1: RuntimeError: broken$"),
    ):
        rows([task])
    assert rows([replace(task, part=None)]) == []

"""Batches that the driver folds itself: any of them make the lake of one ingest, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mqttscope.lake import carried, key_parts
from mqttscope.lake.commit import commit
from mqttscope.lake.key_parts import KeyParts
from mqttscope.lake.manifest import Manifest, read_manifest
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.schemas import EVENT_TABLES
from mqttscope.lake.writer import next_generation, read_table, write_lake
from mqttscope.lint.failures import Failures
from mqttscope.lint.finding import Scope
from mqttscope.net.segment import Segment
from mqttscope.spark.ingest_flows import Folded, carried_of, run_stages
from mqttscope.spark.ingest_tasks import Work
from mqttscope.spark.rows import SUMMARY
from mqttscope.spark.small_batch import InDriver
from tests.bench.quiet import Crowd
from tests.each import some
from tests.lake.failing import FAILING
from tests.lake.reading import CAPTURES, options, ordered, read_segments, segment_rows
from tests.spark.ingest_rows import INPUT, aside

NARROW = tuple(one for one in options().rules if one.scope is not Scope.BROKER)
SPLIT = [one for one in CAPTURES if one.parent.name in ("v5-qos", "session-taken-over", "planted-violations")]


def rows_of(found: Sequence[Segment]) -> pa.Table:
    """The input of a fold: what Spark reads of a capture."""
    last_ns = max(one.timestamp_ns for one in found)
    rows = [(*row, None, None, None, None, 1) for row in segment_rows(found)]
    summary = aside(SUMMARY, timestamp_ns=last_ns, frame=0, count=0, capture=found[0].capture)
    schema = pa.schema([*INPUT, ("kind_order", pa.int32())])
    columns = zip(*[*rows, (*summary, 1)], strict=True)
    return pa.Table.from_arrays(
        [pa.array(one, kind) for one, kind in zip(columns, schema.types, strict=True)], schema=schema
    )


def take(root: Path, found: Sequence[Segment], given: LakeOptions) -> tuple[Folded, Manifest]:
    """Take a batch into a lake."""
    before = read_manifest(root) if (root / "manifest.json").exists() else Manifest()
    after = next_generation(before, given)
    work = Work(str(root), after.generation, given, before_ns=before.last_ns, by_time=True)
    stages = InDriver(rows_of(found), work)
    done = run_stages(stages, carried_of(stages, work, before), work, before, after)
    commit(root, before, after)
    return done, after


def tables(root: Path) -> dict[str, list[dict[str, Any]]]:
    return ordered({name: read_table(root, name).to_pylist() for name in EVENT_TABLES})


RICH = [one for one in CAPTURES if one.parent.name in ("misdelivered", "retained-mishandled", "wills-mishandled")]


@pytest.mark.parametrize("capture", some(RICH, 3), ids=lambda one: one.parent.name)
def test_what_is_read_when_it_is_asked_for_makes_no_difference(
    capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carried, "MOST_CONCERNED", 2)
    asked: list[bool] = []

    class Noted(KeyParts):
        def end(self) -> None:
            super().end()
            asked.append(self.is_restless)

    monkeypatch.setattr(key_parts, "KeyParts", Noted)
    found, root, parts = read_segments(capture), tmp_path / "lake", 6
    root.mkdir()
    for at in range(parts):
        take(root, found[at * len(found) // parts : (at + 1) * len(found) // parts], options())
    write_lake([capture], tmp_path / "one", options())

    assert False in asked
    assert tables(root) == tables(tmp_path / "one")


@pytest.mark.parametrize("capture", some(SPLIT, 3), ids=lambda one: one.parent.name)
def test_any_batches_make_the_lake_of_one_ingest(capture: Path, tmp_path: Path) -> None:
    found = read_segments(capture)
    for number, parts in enumerate((2, 7)):
        root = tmp_path / str(number)
        root.mkdir()
        for at in range(parts):
            take(root, found[at * len(found) // parts : (at + 1) * len(found) // parts], options())
    write_lake([capture], tmp_path / "one", options())

    wanted = tables(tmp_path / "one")
    assert wanted["findings"]
    assert tables(tmp_path / "0") == wanted
    assert tables(tmp_path / "1") == wanted


def test_rules_that_fail_come_out_of_the_batch(tmp_path: Path) -> None:
    (capture,) = (one for one in SPLIT if one.parent.name == "v5-qos")
    given, root = LakeOptions(rules=FAILING), tmp_path / "lake"
    root.mkdir()
    done, _ = take(root, read_segments(capture), given)
    wanted = write_lake([capture], tmp_path / "one", given)

    found = Failures.together(done.failures)
    assert found.told(given.rules) == wanted.failures_told
    assert len(wanted.failures_told) == len(FAILING)


@pytest.mark.parametrize("given", [options(), options(rules=NARROW)], ids=["all rules", "without those of servers"])
def test_a_quiet_batch_concerns_those_who_speak(given: LakeOptions, tmp_path: Path) -> None:
    root, capture, read = tmp_path / "lake", tmp_path / "tap.pcapng", 0
    root.mkdir()
    known = Manifest()
    states = []
    with capture.open("wb") as file:
        crowd = Crowd(file, 40)
        for _ in range(4):
            found = read_segments(capture)
            done, after = take(root, found[read:], given)
            read, before, known = len(found), known, after
            states.append([after.rows[name] for name in after.state_files if name not in before.state_files])
            assert done.open_flows == 40
            if len(states) > 2 and given.rules != NARROW:
                # No rule about a server looks at pings.
                assert after.scope_state_files == before.scope_state_files
            crowd.ping()
    write_lake([capture], tmp_path / "one", given)

    assert states == [[40], [37, 3], [3], [3]]
    assert tables(root) != tables(tmp_path / "one")  # the last pings are not taken
    take(root, read_segments(capture)[read:], given)
    assert tables(root) == tables(tmp_path / "one")

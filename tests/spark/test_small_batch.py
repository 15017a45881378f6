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
from mqttscope.lake.writer import begin_generation, read_table, write_lake
from mqttscope.lint.failures import RuleFailures
from mqttscope.lint.finding import Scope
from mqttscope.net.segment import Segment
from mqttscope.spark.ingest_flows import FoldResult, divide_state, run_stages
from mqttscope.spark.ingest_tasks import FoldSettings
from mqttscope.spark.rows import SUMMARY
from mqttscope.spark.small_batch import DriverStages
from tests.bench.quiet import Crowd
from tests.each import some
from tests.lake.failing import FAILING
from tests.lake.reading import CAPTURES, options, ordered, read_segments, segment_rows
from tests.spark.ingest_rows import INPUT, aside

NARROW = tuple(rule for rule in options().rules if rule.scope is not Scope.BROKER)
SPLIT = [
    capture for capture in CAPTURES if capture.parent.name in ("v5-qos", "session-taken-over", "planted-violations")
]


def rows_of(captured: Sequence[Segment]) -> pa.Table:
    """The input of a fold: what Spark reads of a capture."""
    last_ns = max(segment.timestamp_ns for segment in captured)
    rows = [(*row, None, None, None, None, 1) for row in segment_rows(captured)]
    summary = aside(SUMMARY, timestamp_ns=last_ns, frame=0, count=0, capture=captured[0].capture)
    schema = pa.schema([*INPUT, ("kind_order", pa.int32())])
    columns = zip(*[*rows, (*summary, 1)], strict=True)
    return pa.Table.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)], schema=schema
    )


def take(root: Path, segments: Sequence[Segment], lake_options: LakeOptions) -> tuple[FoldResult, Manifest]:
    """Take a batch into a lake."""
    before = read_manifest(root) if (root / "manifest.json").exists() else Manifest()
    _, after = begin_generation(root, before, lake_options)
    work = FoldSettings(str(root), after.generation, lake_options, before_ns=before.last_ns, by_time=True)
    stages = DriverStages(rows_of(segments), work)
    done = run_stages(stages, divide_state(stages, work, before), work, before, after)
    commit(root, before, after)
    return done, after


def tables(root: Path) -> dict[str, list[dict[str, Any]]]:
    return ordered({name: read_table(root, name).to_pylist() for name in EVENT_TABLES})


RICH = [
    capture
    for capture in CAPTURES
    if capture.parent.name in ("misdelivered", "retained-mishandled", "wills-mishandled")
]


@pytest.mark.parametrize("capture", some(RICH, 3), ids=lambda each: each.parent.name)
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
    segments, root, parts = read_segments(capture), tmp_path / "lake", 6
    root.mkdir()
    for at in range(parts):
        take(root, segments[at * len(segments) // parts : (at + 1) * len(segments) // parts], options())
    write_lake([capture], tmp_path / "one", options())

    assert False in asked
    assert tables(root) == tables(tmp_path / "one")


@pytest.mark.parametrize("capture", some(SPLIT, 3), ids=lambda each: each.parent.name)
def test_any_batches_make_the_lake_of_one_ingest(capture: Path, tmp_path: Path) -> None:
    segments = read_segments(capture)
    for number, parts in enumerate((2, 7)):
        root = tmp_path / str(number)
        root.mkdir()
        for at in range(parts):
            take(root, segments[at * len(segments) // parts : (at + 1) * len(segments) // parts], options())
    write_lake([capture], tmp_path / "one", options())

    wanted = tables(tmp_path / "one")
    assert wanted["findings"]
    assert tables(tmp_path / "0") == wanted
    assert tables(tmp_path / "1") == wanted


def test_rules_that_fail_come_out_of_the_batch(tmp_path: Path) -> None:
    (capture,) = (path for path in SPLIT if path.parent.name == "v5-qos")
    lake_options, root = LakeOptions(rules=FAILING), tmp_path / "lake"
    root.mkdir()
    done, _ = take(root, read_segments(capture), lake_options)
    wanted = write_lake([capture], tmp_path / "one", lake_options)

    rule_failures = RuleFailures.together(done.failures)
    assert rule_failures.sentences(lake_options.rules) == wanted.failures_told
    assert len(wanted.failures_told) == len(FAILING)


@pytest.mark.parametrize(
    "lake_options", [options(), options(rules=NARROW)], ids=["all rules", "without those of servers"]
)
def test_a_quiet_batch_concerns_those_who_speak(lake_options: LakeOptions, tmp_path: Path) -> None:
    root, capture, read = tmp_path / "lake", tmp_path / "tap.pcapng", 0
    root.mkdir()
    known = Manifest()
    states = []
    with capture.open("wb") as file:
        crowd = Crowd(file, 40)
        for _ in range(4):
            segments = read_segments(capture)
            done, after = take(root, segments[read:], lake_options)
            read, before, known = len(segments), known, after
            states.append([after.rows[name] for name in after.state_files if name not in before.state_files])
            assert done.open_flows == 40
            if len(states) > 2 and lake_options.rules != NARROW:
                # No rule about a server looks at pings.
                assert after.scope_state_files == before.scope_state_files
            crowd.ping()
    write_lake([capture], tmp_path / "one", lake_options)

    assert states == [[40], [37, 3], [3], [3]]
    assert tables(root) != tables(tmp_path / "one")  # the last pings are not taken
    take(root, read_segments(capture)[read:], lake_options)
    assert tables(root) == tables(tmp_path / "one")

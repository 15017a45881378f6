"""Findings as they are: what tasks give of flows, and counts that add up."""

from __future__ import annotations

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect_segments, segments
from mqttscope.lake.finding_collector import FindingCollector, Sums
from mqttscope.lake.kernel import SegmentRow, run_flows
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.state import dump, load
from mqttscope.lint.catalogue import select, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding
from mqttscope.lint.quality import Quality
from mqttscope.lint.rule import Rule
from tests.cli.running import capture
from tests.lake.failing import FAILING
from tests.lake.reading import read_segments, segment_rows


def judged(name: str, rules: tuple[str, ...], more: tuple[Rule, ...] = ()) -> FindingCollector:
    """A capture of one flow, judged as a task would."""
    options = LakeOptions(rules=(*(usual_rule(rule) for rule in select(rules, (), ()).values()), *more))
    judge = FindingCollector(options)
    rows = (SegmentRow._make(segment_row) for segment_row in segment_rows(read_segments(capture(name))))
    for _ in run_flows(rows, options, judge, []):
        pass
    assert judge.linter is not None
    judge.sums.take_linter(judge.linter, quality=True)
    return judge


def test_findings_are_those_of_the_linter_but_for_how_packets_are_counted() -> None:
    linter = Linter(usual_rule(rule) for rule in select(("PUB", "ALS", "FLW"), (), ()).values())
    events = dissect_segments(segments(open_capture([capture("failing-device")])))
    here = [finding for event in events for finding in linter.feed(event)]

    judge = judged("failing-device", ("PUB", "ALS", "FLW"))
    there: list[Finding] = [load(row[-1]) for row in judge.finding_rows]
    assert len(here) > 2
    assert there == here
    assert [row[0] for row in judge.connection_rows] == [judge.finding_rows[0][0]]
    assert {row[3] for row in judge.packets} >= {finding.packet for finding in here}
    assert judge.sums.quality == linter.quality


def added_up(more: tuple[Rule, ...] = ()) -> tuple[Sums, Sums, Sums]:
    """What two tasks count, and both together."""
    other_sums, other = (judged(name, ("CON",), more).sums for name in ("failing-device", "joined-v5"))
    both = Sums()
    for sums in (other_sums, other):
        both.add(load(dump(sums)))
    return other_sums, other, both


def test_rules_that_fail_are_counted() -> None:
    sums, other, both = added_up(FAILING)

    assert both.failures.counts["TST292"] == both.connections > 1
    assert both.failures.counts["TST291"] > 1
    assert both.failures.errors == [*sums.failures.errors, *other.failures.errors]
    assert "TST491" not in both.failures.counts


def test_sums_of_tasks_add_up() -> None:
    sums, other, both = added_up()

    assert both.connections == both.quality.connections == sums.connections + other.connections
    assert both.quality.joined == other.quality.joined > 0
    assert both.clients == sums.clients | other.clients
    assert sum(both.spoken.values()) == sum(sums.spoken.values()) + sum(other.spoken.values()) > 0
    assert both.spoken == sums.spoken | other.spoken
    assert len(both.spoken) == 2
    assert both.kept_bytes == sums.kept_bytes + other.kept_bytes > 0
    assert Quality() != both.quality

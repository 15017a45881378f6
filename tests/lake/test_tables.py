"""One pass over events gives all tables."""

from __future__ import annotations

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect, dissect_segments
from mqttscope.dissect import segments as segments_of
from mqttscope.lake.keys import Drop
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.schemas import FLOW_KEYS, TABLES, event_schema
from mqttscope.lake.tables import Collector, batch, event_batch
from mqttscope.net.frame import CaptureDrops
from tests.cli.running import capture
from tests.lake import reading
from tests.lake.parts import frames_of

PLANTED = capture("planted-violations")


def sure(tables: reading.Tables) -> list[tuple[str, int, str]]:
    return sorted((row["rule"], row["frame"], row["confidence"]) for row in tables["findings"])


@pytest.mark.parametrize("frame", [0, 60, 100, 10_000])
def test_findings_of_flows_are_as_sure_as_those_of_all_together(frame: int) -> None:
    lake_options = reading.options(rules=tuple(reading.options().narrow_rules()))
    frames = frames_of(PLANTED)
    drops = CaptureDrops(str(PLANTED), 0, None, 3)
    together = reading.collect(dissect_segments(segments_of([*frames[:frame], drops, *frames[frame:]])), lake_options)
    segments = reading.read_segments(PLANTED)
    last_ns = max((segment.timestamp_ns for segment in segments if segment.frame <= frame), default=None)

    apart = reading.by_kernel(
        reading.segment_rows(segments), lake_options, drops={str(PLANTED): Drop(0, frame, last_ns)}
    )

    assert sure(apart) == sure(together)
    unsure = reading.by_kernel(reading.segment_rows(segments), lake_options, dropping={str(PLANTED)})
    assert (sure(apart) == sure(unsure)) is (frame == 0)


def test_what_an_earlier_run_knew_holds_from_the_beginning() -> None:
    segments = reading.read_segments(PLANTED)
    name = str(PLANTED)
    lake_options = reading.options()

    both = reading.by_kernel(
        reading.segment_rows(segments), lake_options, dropping={name}, drops={name: Drop(0, 10_000)}
    )

    assert sure(both) == sure(reading.by_kernel(reading.segment_rows(segments), lake_options, dropping={name}))


def run(collector: Collector) -> Collector:
    for event in dissect(open_capture([PLANTED]), collector.options.reading()):
        collector.feed(event)
    return collector


def test_batches_come_when_there_are_enough_rows() -> None:
    collector = Collector(LakeOptions(batch_rows=3))
    sizes = []
    for event in dissect(open_capture([PLANTED]), collector.options.reading()):
        collector.feed(event)
        sizes += [result.num_rows for _, result in collector.batches()]
    assert set(sizes) == {3}
    rest = dict(collector.batches(everything=True))
    assert all(0 < result.num_rows < 3 for result in rest.values())
    assert not list(collector.batches(everything=True))


def test_batches_have_the_schemas_of_their_tables() -> None:
    for name, result in run(Collector(LakeOptions(rules=reading.all_of_them()))).batches(everything=True):
        assert result.schema == (TABLES | {FLOW_KEYS.name: FLOW_KEYS})[name].arrow()
        wide = event_batch(name, result)
        assert wide.schema == event_schema()
        assert wide.column(name).to_pylist() == result.to_pylist()
        assert wide.column("kind").unique().to_pylist() == [name]
        each = event_batch(name, result, event_schema((name,)))
        assert each.num_columns == 2


def test_nothing_is_kept_of_what_has_ended() -> None:
    collector = run(Collector(LakeOptions(rules=reading.all_of_them())))

    assert not collector.trackers
    assert not collector._introductions


def test_rows_must_fit_their_table() -> None:
    with pytest.raises(ValueError, match="zip"):
        batch("ingest_errors", [("a", "b")])

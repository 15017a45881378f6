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
    given = reading.options(rules=tuple(reading.options().narrow_rules()))
    frames = frames_of(PLANTED)
    drops = CaptureDrops(str(PLANTED), 0, None, 3)
    together = reading.collect(dissect_segments(segments_of([*frames[:frame], drops, *frames[frame:]])), given)
    found = reading.read_segments(PLANTED)
    last_ns = max((one.timestamp_ns for one in found if one.frame <= frame), default=None)

    apart = reading.by_kernel(reading.segment_rows(found), given, drops={str(PLANTED): Drop(0, frame, last_ns)})

    assert sure(apart) == sure(together)
    unsure = reading.by_kernel(reading.segment_rows(found), given, dropping={str(PLANTED)})
    assert (sure(apart) == sure(unsure)) is (frame == 0)


def test_what_an_earlier_run_knew_holds_from_the_beginning() -> None:
    found = reading.read_segments(PLANTED)
    name = str(PLANTED)
    given = reading.options()

    both = reading.by_kernel(reading.segment_rows(found), given, dropping={name}, drops={name: Drop(0, 10_000)})

    assert sure(both) == sure(reading.by_kernel(reading.segment_rows(found), given, dropping={name}))


def run(collector: Collector) -> Collector:
    for event in dissect(open_capture([PLANTED]), collector.options.reading()):
        collector.feed(event)
    return collector


def test_batches_come_when_there_are_enough_rows() -> None:
    collector = Collector(LakeOptions(batch_rows=3))
    sizes = []
    for event in dissect(open_capture([PLANTED]), collector.options.reading()):
        collector.feed(event)
        sizes += [found.num_rows for _, found in collector.batches()]
    assert set(sizes) == {3}
    rest = dict(collector.batches(everything=True))
    assert all(0 < found.num_rows < 3 for found in rest.values())
    assert not list(collector.batches(everything=True))


def test_batches_have_the_schemas_of_their_tables() -> None:
    for name, found in run(Collector(LakeOptions(rules=reading.all_of_them()))).batches(everything=True):
        assert found.schema == (TABLES | {FLOW_KEYS.name: FLOW_KEYS})[name].arrow()
        wide = event_batch(name, found)
        assert wide.schema == event_schema()
        assert wide.column(name).to_pylist() == found.to_pylist()
        assert wide.column("kind").unique().to_pylist() == [name]
        one = event_batch(name, found, event_schema((name,)))
        assert one.num_columns == 2


def test_nothing_is_kept_of_what_has_ended() -> None:
    collector = run(Collector(LakeOptions(rules=reading.all_of_them())))

    assert not collector.trackers
    assert not collector._introductions


def test_rows_must_fit_their_table() -> None:
    with pytest.raises(ValueError, match="zip"):
        batch("ingest_errors", [("a", "b")])

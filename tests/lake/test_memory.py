"""What is remembered of a flow, and taken up again."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'mqttscope[spark]'")

from mqttscope.dissect import Dissector
from mqttscope.dissect.flow_state import Over
from mqttscope.events import DiscardedEvent
from mqttscope.lake.memory import connection_of, remembered, resume
from mqttscope.lake.state import dump, load
from mqttscope.lake.tables import Collector
from mqttscope.net.flow_expiry import LINGER_NS
from mqttscope.net.segment import FIN
from tests.lake.fleet import segments
from tests.lake.reading import collected, options

FOUND = segments(1, 3)


def test_a_connection_goes_on_with_its_tracker() -> None:
    given = options()
    dissector, collector = Dissector(given.reading()), Collector(given)
    for one in FOUND[:9]:
        for event in dissector.feed(one):
            collector.feed(event)
    (memory,) = load(dump(remembered(dissector, collector)))

    again, next_one = Dissector(given.reading()), Collector(given)
    again.connections = 5
    resume(memory, again, next_one)

    (flow,) = again.flows.flows.values()
    assert connection_of(flow).number == 5
    assert next_one.trackers[5] == memory.tracker is not None
    assert again.connections == 6


def test_of_a_flow_that_is_over_late_segments_are_known_for_a_while() -> None:
    """They belong to the connection by its name, whatever number others have by now."""
    given = options()
    dissector, collector = Dissector(given.reading()), Collector(given)
    for one in FOUND:
        for event in dissector.feed(one):
            collector.feed(event)
    (row,) = collected(collector)["connections"]
    now = FOUND[-1].timestamp_ns
    assert remembered(dissector, collector, now + LINGER_NS + 10**9) == []
    (memory,) = load(dump(remembered(dissector, collector, now)))
    assert isinstance(memory.flow.context, Over)

    again, next_one = Dissector(given.reading()), Collector(given)
    again.connections = 7
    resume(memory, again, next_one)
    late = next(one for one in FOUND if one.flags & FIN)
    late.payload, late.flags, late.timestamp_ns = b"more", 24, now + 1
    events = list(again.feed(late))

    assert [type(one) for one in events] == [DiscardedEvent]
    for event in events:
        next_one.feed(event)
    (gap,) = collected(next_one)["gaps"]
    assert (gap["connection_id"], gap["event"], gap["event_in_connection"]) == (row["connection_id"], "discarded", 0)
    assert (gap["length"], gap["reason"], gap["stream_offset"]) == (4, "after_close", None)
    assert not next_one.trackers

"""A flow is told of by events: with the place of the segment that they are owed to, and the direction it went in."""

from __future__ import annotations

import pytest

from mqttscope.net.flow import Flow, FlowReport, SegmentDiscarded, StreamClosed, StreamData, StreamGap, StreamOverlap

PLACE = 7, 1_000, "a.pcap"


def report(*, from_initiator: bool = True, acknowledged: int = -1) -> FlowReport:
    """A report about a flow of which 10 bytes of the initiator and 20 of the responder were delivered."""
    flow = Flow(b"key", True, 0, 1, "a.pcap", 0, 1, "a.pcap")
    flow.initiator.offset, flow.responder.offset = 10, 20
    return FlowReport(flow, from_initiator, PLACE, [], acknowledged)


@pytest.mark.parametrize(("from_initiator", "shown"), [(True, 20), (False, 10)])
def test_bytes_say_how_much_of_the_other_direction_the_capture_had_shown(from_initiator: bool, shown: int) -> None:
    made = report(from_initiator=from_initiator, acknowledged=5)
    made.data(b"abc", 4)

    assert made.events == [StreamData(made.flow, from_initiator, b"abc", 4, *PLACE, acknowledged=5, shown=shown)]


def test_events_stand_in_the_order_in_which_they_were_made() -> None:
    made = report(from_initiator=False)
    made.gap(3, 8, "cut")
    made.overlap(2, 6)
    made.discarded(9, "late")
    made.closed("fin")

    assert made.events == [
        StreamGap(made.flow, False, 3, 8, "cut", *PLACE),
        StreamOverlap(made.flow, False, 2, 6, *PLACE),
        SegmentDiscarded(made.flow, False, 9, "late", *PLACE),
        StreamClosed(made.flow, False, "fin", *PLACE),
    ]


def test_an_end_may_have_the_place_of_an_earlier_frame() -> None:
    made = report()
    made.closed("reset", (3, 500, "b.pcap"))

    assert made.events == [StreamClosed(made.flow, True, "reset", 3, 500, "b.pcap")]

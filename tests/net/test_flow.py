"""Events about a flow: with the place of their segment, and its direction."""

from __future__ import annotations

import pytest

from mqttscope.net.flow import Flow, FlowReport, SegmentDiscarded, StreamClosed, StreamData, StreamGap, StreamOverlap

PLACE = 7, 1_000, "a.pcap"


def report(*, from_initiator: bool = True, acknowledged: int = -1) -> FlowReport:
    """A report about a flow with 10 delivered bytes of the initiator and 20 of the responder."""
    flow = Flow(b"key", True, 0, 1, "a.pcap", 0, 1, "a.pcap")
    flow.initiator.offset, flow.responder.offset = 10, 20
    return FlowReport(flow, from_initiator, PLACE, [], acknowledged)


@pytest.mark.parametrize(("from_initiator", "shown"), [(True, 20), (False, 10)])
def test_bytes_say_how_much_of_the_other_direction_the_capture_had_shown(from_initiator: bool, shown: int) -> None:
    flow_report = report(from_initiator=from_initiator, acknowledged=5)
    flow_report.data(b"abc", 4)

    assert flow_report.events == [
        StreamData(flow_report.flow, from_initiator, b"abc", 4, *PLACE, acknowledged=5, shown=shown)
    ]


def test_events_stand_in_the_order_in_which_they_were_made() -> None:
    flow_report = report(from_initiator=False)
    flow_report.gap(3, 8, "cut")
    flow_report.overlap(2, 6)
    flow_report.discarded(9, "late")
    flow_report.closed("fin")

    assert flow_report.events == [
        StreamGap(flow_report.flow, False, 3, 8, "cut", *PLACE),
        StreamOverlap(flow_report.flow, False, 2, 6, *PLACE),
        SegmentDiscarded(flow_report.flow, False, 9, "late", *PLACE),
        StreamClosed(flow_report.flow, False, "fin", *PLACE),
    ]


def test_an_end_may_have_the_place_of_an_earlier_frame() -> None:
    flow_report = report()
    flow_report.closed("reset", (3, 500, "b.pcap"))

    assert flow_report.events == [StreamClosed(flow_report.flow, True, "reset", 3, 500, "b.pcap")]

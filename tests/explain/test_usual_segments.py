"""Usual segments give the facts that `SegmentWatch` has from segments one by one."""

from __future__ import annotations

from pathlib import Path

from mqttscope.capture import open_capture
from mqttscope.explain.segments import SegmentWatch, seen_of
from mqttscope.explain.usual_segments import UsualSegments
from mqttscope.net.frame import Frame
from mqttscope.net.headers import locate, segment
from mqttscope.net.segment import Segment
from tests.conftest import ROOT
from tests.each import each


def _facts(watch: SegmentWatch) -> object:
    """Everything that a watch knows, with its rows as objects."""
    for flows in watch.flows.values():
        for facts in flows:
            assert all(half.recent is half.rows for half in facts.halves)
            facts.settled = seen_of(facts.settled)
    return watch.flows, watch.knocks, watch.now_ns, watch.dropped, watch.last


@each("path", sorted((ROOT / "captures").glob("*/capture.pcap*")))
def test_usual_segments_and_single_segments_give_equal_facts(path: Path) -> None:
    single, usual = SegmentWatch(), SegmentWatch()
    fast = UsualSegments(usual)
    frames = [frame for frame in open_capture([str(path)]) if isinstance(frame, Frame)]
    for frame in single.frames(iter(frames)):
        assert isinstance(frame, Frame)
        piece, data = segment(frame), frame.data
        header = locate(data, 0, len(data), frame.link_type)
        if isinstance(piece, Segment):
            single.feed(piece)
        if header[0]:
            fast.take(data, 0, len(data), *header, frame.number, frame.timestamp_ns, frame.capture)
        elif isinstance(piece, Segment):
            fast.pass_on(piece, data)
    single.last = usual.last
    for watch in (single, usual):
        for flows in watch.flows.values():
            for facts in flows:
                watch.settle(facts)

    assert _facts(single) == _facts(usual)

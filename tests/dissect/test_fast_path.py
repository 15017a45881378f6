"""The fast path gives what the general way gives: every capture, cut everywhere, in chunks of any size."""

from __future__ import annotations

from io import BytesIO

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import CaptureOrder, Dissector, FastPath, dissect_segments, segments
from mqttscope.events import Event
from mqttscope.lint.catalogue import all_rules, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.report.jsonl import EventJsonLines
from tests.conftest import ROOT

CAPTURES = sorted(path.parent.name for path in (ROOT / "captures").glob("*/capture.pcap*"))
JUDGED = ("planted-violations", "keep-alive", "out-of-order", "misdelivered", "v5-topic-alias-client")


class Seen:
    """The result of a run: its lines, the counts of the dissector, and the number of frames on the fast path."""

    def __init__(self, data: bytes, *, fast: bool, chunk_size: int = 1 << 18, judged: bool = False) -> None:
        self.lines = BytesIO()
        self.fast_frames = 0
        self.findings: list[str] = []
        reporter = EventJsonLines(self.lines, show_secrets=True)
        dissector = Dissector()
        linter = Linter([usual_rule(rule) for rule in all_rules().values()] if judged else [])

        def feed(event: Event) -> None:
            self.findings += map(repr, linter.feed(event))
            reporter.feed(event)

        path = FastPath(dissector, feed, counting=True, passing=True, reusing=not judged) if fast else None
        frames = open_capture(["-"], stdin=BytesIO(data), chunk_size=chunk_size, direct=path)
        for event in dissect_segments(segments(frames), dissector=dissector):
            feed(event)
        reporter.close()
        if path is not None:
            self.fast_frames = sum(count.frames for count in path.counts.values())
        self.counted = (
            dissector.packets,
            dissector.connections,
            dissector.kept_bytes,
            dissector.overlaps,
            dissector.copied_segments,
            dissector.discarded_segments,
        )


@pytest.mark.parametrize("start", range(4))
def test_every_capture_gives_the_same(start: int) -> None:
    number = 0
    for name in CAPTURES[start::4]:
        data = next((ROOT / "captures" / name).glob("capture.pcap*")).read_bytes()
        general, direct = Seen(data, fast=False), Seen(data, fast=True)
        assert direct.lines.getvalue() == general.lines.getvalue(), name
        assert direct.counted == general.counted, name
        number += direct.fast_frames
    assert number > 200


@pytest.mark.long
def test_captures_cut_at_every_byte_give_the_same() -> None:
    for name in ("v5-limits", "session-taken-over"):
        path = ROOT / "captures" / name / "capture.pcapng"
        data = path.read_bytes()
        for end in range(0, len(data), 3):
            general, direct = Seen(data[:end], fast=False), Seen(data[:end], fast=True)
            assert direct.lines.getvalue() == general.lines.getvalue(), (name, end)


@pytest.mark.parametrize("chunk_size", [1, 7, 64, 333])
def test_chunks_of_any_size_give_the_same(chunk_size: int) -> None:
    data = (ROOT / "captures" / "v5-publish-properties" / "capture.pcapng").read_bytes()
    general, direct = Seen(data, fast=False), Seen(data, fast=True, chunk_size=chunk_size)
    assert direct.lines.getvalue() == general.lines.getvalue()
    assert direct.fast_frames


@pytest.mark.parametrize("name", JUDGED)
def test_findings_are_the_same(name: str) -> None:
    data = (ROOT / "captures" / name / "capture.pcapng").read_bytes()
    general, direct = Seen(data, fast=False, judged=True), Seen(data, fast=True, judged=True)
    assert direct.findings == general.findings
    assert direct.findings
    assert direct.fast_frames


def test_a_closed_path_takes_nothing() -> None:
    data = (ROOT / "captures" / "v5-qos" / "capture.pcapng").read_bytes()
    path = FastPath(Dissector(), lambda event: None)
    path.closed = True
    frames = list(open_capture(["-"], stdin=BytesIO(data), direct=path))
    assert len(frames) == len(list(open_capture(["-"], stdin=BytesIO(data))))


def test_the_end_of_a_capture_is_the_time_of_its_latest_segment() -> None:
    order = CaptureOrder()
    assert order.end_ns("a") is None
    for capture, timestamp_ns in (("a", 9), ("a", 7), ("b", 3), ("a", 8), ("b", 4)):
        order.see(capture, timestamp_ns)
    assert [order.end_ns(name) for name in ("a", "b", "c")] == [9, 4, None]


def test_a_place_in_another_frame_or_capture_is_unknown() -> None:
    path = FastPath(Dissector(), lambda event: None)

    assert [path.place_of(b"x", frame, name) for frame, name in ((1, ""), (0, "other"), (0, ""))] == [-1, -1, -1]

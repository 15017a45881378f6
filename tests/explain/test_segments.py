"""Facts of TCP."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import segments as segments_of
from mqttscope.explain import segments
from mqttscope.explain.segments import MAX_GENERATIONS, FlowFacts, Half, SegmentWatch, ip_facts
from mqttscope.net.checksum import RIGHT, UNJUDGED, WRONG
from mqttscope.net.frame import Frame
from mqttscope.net.segment import ACK, FIN, PSH, RST, SYN, Segment, direction_key
from tests.each import each
from tests.explain.running import capture

SECOND = 1_000_000_000
CLIENT, SERVER = b"\x0a\0\0\x01", b"\x0a\0\0\x02"
TO_SERVER = direction_key(CLIENT + SERVER, b"\xc3\x50\x07\x5b")
TO_CLIENT = direction_key(SERVER + CLIENT, b"\x07\x5b\xc3\x50")


def segment(key: bytes, sequence: int, acknowledgment: int, flags: int, payload: bytes = b"", at: float = 0) -> Segment:
    return Segment(key, sequence, acknowledgment, flags, 1000, payload, 0, 1, int(at * SECOND), "a")


def fed(*arguments: Segment) -> SegmentWatch:
    watch = SegmentWatch()
    for single_segment in arguments:
        watch.feed(single_segment)
    return watch


def facts_of(watch: SegmentWatch, opened_ns: int = 0, **more: Any) -> FlowFacts:
    """What is known of the connection to the server."""
    flow_facts = watch.facts(TO_SERVER, opened_ns, **more)
    assert flow_facts is not None
    return flow_facts


def client_of(*arguments: Segment) -> Half:
    """What is known of the client after segments."""
    return facts_of(fed(*arguments)).half("10.0.0.1:50000")


OPENED = (
    segment(TO_SERVER, 100, 0, SYN),
    segment(TO_CLIENT, 500, 101, SYN | ACK),
    segment(TO_SERVER, 101, 501, ACK),
)


SENT = [segment(TO_SERVER, 101, 501, PSH | ACK, b"\xc0\0", at) for at in (1, 2, 3)]
PROBES = [segment(TO_SERVER, 102, 501, ACK, b"", at) for at in (60, 70)]


@each(
    "expected, known",
    [
        (SENT, (2, 2, SECOND)),
        # An acknowledgment ends the count, and a probe of TCP is no repetition.
        ([*SENT[:2], segment(TO_CLIENT, 501, 103, ACK, at=3)], (0, 0, None)),
        ([SENT[0], segment(TO_CLIENT, 501, 103, ACK, at=1.1), *PROBES], (0, 0, None)),
    ],
)
def test_what_is_not_acknowledged_is_outstanding_and_what_comes_again_is_counted(
    expected: list[Segment], known: tuple[int, int, int | None]
) -> None:
    half = client_of(*OPENED, *expected)

    assert (half.outstanding, half.repeats, half.unanswered_ns) == known
    assert facts_of(fed(*OPENED, *expected)).half("10.0.0.2:1883").outstanding == 0


@pytest.mark.parametrize("verified", [True, False])
def test_a_segment_with_a_wrong_checksum_says_nothing_where_others_are_right(verified: bool) -> None:
    opened = [replace(each, checksum=RIGHT if verified else UNJUDGED) for each in OPENED]
    reset = replace(segment(TO_SERVER, 101, 501, RST | ACK, at=1), checksum=WRONG)
    half = client_of(*opened, reset)

    assert (len(half.resets), len(half.damaged)) == ((0, 1) if verified else (1, 0))


def test_a_refused_syn_is_remembered_by_its_server() -> None:
    watch = fed(segment(TO_SERVER, 100, 0, SYN), segment(TO_CLIENT, 0, 101, RST | ACK, at=0.1))

    (knock,) = watch.unanswered("10.0.0.2:1883", 0, SECOND)
    assert knock.client == "10.0.0.1:50000"
    assert watch.unanswered("10.0.0.2:1883", SECOND, 2 * SECOND) == []


def test_each_connection_of_the_same_endpoints_has_its_own_facts() -> None:
    watch = fed(*OPENED, segment(TO_SERVER, 101, 501, FIN | ACK, at=1))
    for count in range(1, MAX_GENERATIONS + 3):
        watch.feed(segment(TO_SERVER, 1000 * count, 0, SYN, at=10 * count))

    assert facts_of(watch, 45 * SECOND).first_ns == 40 * SECOND
    assert watch.facts(TO_SERVER, 0) is None
    assert watch.facts(b"", 0) is None


def test_facts_begin_anew_at_the_first_frame_of_a_connection() -> None:
    """Up to it segments are of the connection before, from it on of the new one."""
    second = [
        replace(segment(TO_SERVER, 40, 70, PSH | ACK, b"\x10\0", 2), frame=2),
        replace(segment(TO_CLIENT, 70, 42, PSH | ACK, b"\x20\0", 3), frame=3),
    ]
    watch = fed(*OPENED, *second)
    before = facts_of(watch, until=(2, "a"))
    watch.begin(TO_SERVER, 2 * SECOND, 2, "a")
    after = facts_of(watch, 2 * SECOND)

    assert [(facts.first_frame, facts.is_mixed) for facts in (before, after)] == [(1, False), (2, False)]
    client, server = before.half("10.0.0.1:50000"), after.half("10.0.0.1:50000")
    assert [(half.segments, half.end, half.repeats) for half in (client, server)] == [(2, 101, 0), (1, 42, 0)]


def test_a_capture_that_is_read_later_and_is_older_has_facts_of_its_own() -> None:
    other = [replace(each, capture="b", timestamp_ns=each.timestamp_ns - 9 * SECOND, sequence=7) for each in OPENED]
    watch = fed(*OPENED, segment(TO_SERVER, 101, 501, PSH | ACK, b"\xc0\0", 1), *other[1:])
    watch.begin(TO_SERVER, -9 * SECOND, 1, "b")
    both = facts_of(watch, first=(1, "a")), facts_of(watch, -9 * SECOND, first=(1, "b"))

    assert [sum(half.segments for half in facts.halves) for facts in both] == [4, 2]


def test_a_connection_that_continues_after_a_long_silence_has_the_same_facts() -> None:
    later = replace(segment(TO_SERVER, 101, 501, PSH | ACK, b"\xc0\0", 90_000), frame=2)
    watch = fed(*OPENED, later)
    before = watch.facts(TO_SERVER, 0)
    watch.begin(TO_SERVER, 90_000 * SECOND, 2, "a")

    assert watch.facts(TO_SERVER, 90_000 * SECOND) is before


def test_the_answer_of_an_open_connection_to_a_syn_is_not_of_the_new_one() -> None:
    watch = fed(
        *OPENED, segment(TO_SERVER, 900, 0, SYN, at=1), segment(TO_CLIENT, 501, 101, ACK, at=1.1),
        segment(TO_SERVER, 900, 0, SYN, at=2), segment(TO_CLIENT, 4_000_000_000, 901, SYN | ACK, at=2.1),
        segment(TO_SERVER, 901, 4_000_000_001, ACK, at=2.2),
    )  # fmt: skip
    server = facts_of(watch, 3 * SECOND).half("10.0.0.2:1883")
    assert (server.end, server.outstanding, server.repeats) == (4_000_000_001, 0, 0)


def test_the_time_to_live_of_a_reset_is_that_of_its_frame() -> None:
    watch = SegmentWatch()
    for item in watch.segments(segments_of(watch.frames(open_capture([str(capture("reset-by-middlebox"))])))):
        assert item is not None
    (known,) = watch.flows.values()

    assert [half.usual_ttl for half in known[0].halves] == [64, 52]
    assert [half.resets[0].ttl for half in known[0].halves] == [63, 63]
    assert {half.resets[0].identification for half in known[0].halves} == {41_000, 41_001}


def test_headers_are_found_by_their_addresses() -> None:
    header = bytes.fromhex("45000028") + b"\x12\x34" + bytes.fromhex("4000330600 00") + CLIENT + SERVER
    six = bytes.fromhex("6000000000140639") + b"\xfd" * 32

    assert ip_facts(b"\0" * 14 + header + b"\0" * 20, TO_SERVER) == (0x33, 0x1234)
    assert ip_facts(b"\0" * 14 + six + b"\0" * 20, b"\xfd" * 32 + b"\0\1\0\2") == (0x39, None)
    assert ip_facts(b"\0" * 60, TO_SERVER) == (None, None)
    assert ip_facts(b"", TO_SERVER) == (None, None)


def test_frames_that_were_read_ahead() -> None:
    """Frames of which tshark was still to answer when later ones came, up to a limit; those without TCP are passed."""
    frames = [item for item in open_capture([str(capture("v5-qos"))]) if isinstance(item, Frame)]
    together, ahead = SegmentWatch(), SegmentWatch()
    for watch, size in ((together, 1), (ahead, len(frames))):
        for start in range(0, len(frames), size):
            for item in segments_of(list(watch.frames(iter(frames[start : start + size])))):
                watch.feed(item)  # type: ignore[arg-type]
    assert len(frames) < segments.MAX_FRAMES

    ttls = [
        [half.ttls for flows in watch.flows.values() for facts in flows for half in facts.halves]
        for watch in (together, ahead)
    ]

    assert ttls[0] == ttls[1]
    assert all(ttls[0])

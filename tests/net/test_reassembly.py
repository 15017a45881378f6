from __future__ import annotations

import random
from dataclasses import fields

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mqttscope.budget import Budget
from mqttscope.dissect.dissector import COUNTERS
from mqttscope.net.flow import (
    Flow,
    FlowEvent,
    FlowOpened,
    FlowReport,
    SegmentDiscarded,
    StreamData,
    StreamGap,
    StreamOverlap,
)
from mqttscope.net.flows import FlowTable
from mqttscope.net.reassembly import HalfStream, ReassemblyBuffer, difference
from mqttscope.net.segment import ACK, FIN, MODULUS, SYN, Segment
from tests.conftest import THOROUGH
from tests.each import each
from tests.net.script import BACKWARD, FORWARD, HANDSHAKE, UNFINISHED, check_tiling, feed, parse, play, render, script
from tests.tables import cases_of, steps


@pytest.mark.parametrize(
    ("raw", "other", "expected"),
    [
        (b"", b"", (-1, 0)),
        (b"same", b"same", (-1, 0)),
        (b"same", b"sa", (-1, 0)),
        (b"", b"other", (-1, 0)),
        (b"xbc", b"abc", (0, 1)),
        (b"abx", b"abc", (2, 1)),
        (b"axcx", b"abcd", (1, 2)),
        (b"\0\0\0", b"\0\x01\0", (1, 1)),
        (b"axc-longer", b"abc", (1, 1)),
    ],
)
def test_difference_counts_and_places_what_differs(raw: bytes, other: bytes, expected: tuple[int, int]) -> None:
    assert difference(raw, other) == expected


def pieces(*entries: tuple[int, bytes]) -> ReassemblyBuffer:
    held = ReassemblyBuffer()
    for start, data in entries:
        held.insert(start, data, 0)
    return held


@pytest.mark.parametrize(
    ("known", "start", "data", "expected", "repeated"),
    [
        pytest.param([], 5, b"abc", [(5, b"abc")], 0, id="into nothing"),
        pytest.param([(5, b"abc")], 8, b"def", [(5, b"abc"), (8, b"def")], 0, id="right after another"),
        pytest.param([(5, b"abc")], 2, b"def", [(2, b"def"), (5, b"abc")], 0, id="right before another"),
        pytest.param([(5, b"abc")], 5, b"abc", [(5, b"abc")], 3, id="the same again"),
        pytest.param([(5, b"abc")], 6, b"b", [(5, b"abc")], 1, id="inside another"),
        pytest.param([(5, b"abc")], 3, b"xyab", [(3, b"xy"), (5, b"abc")], 2, id="overlapping the front of another"),
        pytest.param([(5, b"abc")], 7, b"cxy", [(5, b"abc"), (8, b"xy")], 1, id="overlapping the end of another"),
        pytest.param([(5, b"abc")], 4, b"-abc-", [(4, b"-"), (5, b"abc"), (8, b"-")], 3, id="around another"),
        pytest.param(
            [(2, b"b"), (4, b"d"), (6, b"f")],
            1,
            b"abcdefg",
            [(1, b"a"), (2, b"b"), (3, b"c"), (4, b"d"), (5, b"e"), (6, b"f"), (7, b"g")],
            3,
            id="over several with holes between",
        ),
    ],
)
def test_inserting_a_piece_fills_holes_and_leaves_what_is_there(
    known: list[tuple[int, bytes]], start: int, data: bytes, expected: list[tuple[int, bytes]], repeated: int
) -> None:
    held = pieces(*known)

    result = held.insert(start, data, 0)

    assert list(zip(held.starts, held.parts, strict=True)) == expected
    assert result.repeated == repeated
    assert result.new == (repeated < len(data))
    assert held.size == sum(len(part) for part in held.parts)


def test_bytes_that_come_again_with_other_content_are_counted_and_do_not_replace_the_first() -> None:
    held = pieces((10, b"abc"), (20, b"def"))

    result = held.insert(9, b"-aXc-------dYY-", 0)

    assert (result.first_difference, result.differences) == (11, 2 + 1)
    assert held.take(9)[0] == b"-abc-------def-"
    assert len(held) == 0
    assert held.size == 0


def test_a_cut_belongs_to_its_piece_and_ends_what_can_be_taken_at_once() -> None:
    held = ReassemblyBuffer()
    held.insert(0, b"ab", 3)
    held.insert(5, b"fg", 0)

    assert held.insert(1, b"bcdef", 0).new is False
    assert held.end() == 7
    assert held.take(0) == (b"ab", 3)
    assert held.take(5) == (b"fg", 0)
    assert held.cut == {}


def test_a_cut_segment_is_split_around_what_is_known() -> None:
    held = pieces((3, b"def"))

    held.insert(0, b"ab", 10)

    assert held.take(0) == (b"ab", 1)
    assert held.take(3) == (b"def", 6)


def test_shifting_moves_starts_and_cuts_alike() -> None:
    held = ReassemblyBuffer()
    held.insert(-5, b"ab", 3)
    held.shift(-5)

    assert held.take(0) == (b"ab", 3)


def test_taking_where_nothing_starts_gives_nothing() -> None:
    assert pieces((5, b"abc")).take(4) == (b"", 0)


@settings(max_examples=200 if THOROUGH else 100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.binary(min_size=1, max_size=20)), max_size=25))
def test_pieces_behave_like_a_table_of_bytes_in_which_the_first_stands(entries: list[tuple[int, bytes]]) -> None:
    held = ReassemblyBuffer()
    model: dict[int, int] = {}
    for start, data in entries:
        repeated = [(start + i, byte) for i, byte in enumerate(data) if start + i in model]
        different = [place for place, byte in repeated if model[place] != byte]
        result = held.insert(start, data, 0)
        for i, byte in enumerate(data):
            model.setdefault(start + i, byte)

        assert result.repeated == len(repeated)
        assert result.differences == len(different)
        assert result.first_difference == (different[0] if different else -1)
        assert result.new == (len(repeated) < len(data))

    flat = [(s + i, byte) for s, part in zip(held.starts, held.parts, strict=True) for i, byte in enumerate(part)]
    assert flat == sorted(model.items())
    assert held.size == len(model)


STREAMS = """
in order
    > A 101:abc 501; > A 104:def 501 | > 0:abc; > 3:def
both directions
    > A 101:abc 501; < A 501:xyz 104; > A 104:d 504 | > 0:abc; < 0:xyz; > 3:d
two segments swapped
    > A 104:def 501; > A 101:abc 501 | > 0:abcdef
three segments reversed
    > A 107:ghi 501; > A 104:def 501; > A 101:abc 501 | > 0:abcdefghi
exact retransmission
    > A 101:abc 501; > A 101:abc 501 | > 0:abc
retransmission repacked into one segment
    > A 101:abc 501; > A 104:def 501; > A 101:abcdef 501 | > 0:abc; > 3:def
retransmission with new data after
    > A 101:abc 501; > A 101:abcdef 501 | > 0:abc; > 3:def
overlap with the end of old data
    > A 101:abcdef 501; > A 103:cdefgh 501 | > 0:abcdef; > 6:gh
overlap with the front of buffered data
    > A 104:def 501; > A 101:abcd 501 | > 0:abcdef
overlap with the end of buffered data
    > A 104:def 501; > A 106:fgh 501; > A 101:abc 501 | > 0:abcdefgh
around buffered data
    > A 104:de 501; > A 103:cdef 501; > A 101:ab 501 | > 0:abcdef
inside buffered data
    > A 103:cdef 501; > A 104:de 501; > A 101:ab 501 | > 0:abcdef
exactly the buffered data again
    > A 103:cd 501; > A 103:cd 501; > A 101:ab 501 | > 0:abcd
other content than delivered: the first stands
    > A 101:abc 501; > A 101:aXc 501 | > 0:abc; > overlap 1+1
other content than several deliveries, with new data
    > A 101:abc 501; > A 104:def 501; > A 102:XcdYfgh 501 | > 0:abc; > 3:def; > overlap 1+2; > 6:gh
other content than buffered: the first stands
    > A 104:def 501; > A 104:dXY 501; > A 101:abc 501 | > overlap 4+2; > 0:abcdef
the segment that fills the hole differs from what is buffered
    > A 103:cd 501; > A 101:abXX 501 | > overlap 2+2; > 0:abcd
keep-alive probes with and without a garbage byte
    > A 101:abc 501; < A 501 104; > A 103:~ 501; < A 501 104; > A 103 501; > A 104:d 501 | > 0:abc; > 3:d
keep-alive probe that was overtaken by data
    > A 101:abc 501; > A 104:def 501; < A 501 107; > A 103:~ 501 | > 0:abc; > 3:def
zero-window probe with the next byte, sent again later
    > A 101:abc 501; < A 501 104 window=0; > A 104:d 501; < A 501 104 window=0; > A 104:def 501 |
    > 0:abc; < window 0; > 3:d; < window 0; > 4:ef
cut by the snap length
    > A 101:abc 501 missing=4; > A 108:hij 501 | > 0:abc; > gap 3+4 cut; > 7:hij
cut by the snap length and out of order
    > A 108:hij 501 missing=2; > A 101:abc 501 missing=4; > A 113:m 501 |
    > 0:abc; > gap 3+4 cut; > 7:hij; > gap 10+2 cut; > 12:m
no byte of the data within the snap length
    > A 101 501 missing=4; > A 105:e 501 | > gap 0+4 cut; > 4:e
data without the ACK bit
    > - 101:abc | > 0:abc
"""


@each("lines, expected", cases_of(STREAMS, script, steps))
def test_segments_behind_a_handshake(lines: list[str], expected: list[str]) -> None:
    assert play(HANDSHAKE + lines) == ["opened", *expected, UNFINISHED]


JOINED = """
the first segment is out of order, and the other side waits for what is before it
    > A 104:def 501; < A 501 101; > A 101:abc 501; < A 501 107 | > 0:abcdef
the other side has all before it: what comes is older than the capture
    > A 104:def 501; < A 501 104; > A 101:abc 501 | > 0:def; > discarded 3 before_start
a keep-alive probe comes first
    > A 100 501 t=0; < A 501 101 t=0.1; > A 101:abc 501 t=9 | > 0:abc
an empty segment comes first, and two bytes are missing
    > A 100 501 t=0; < A 501 102 t=0.1; > A 102:bc 501 t=9; < A 501 104 t=9.1; > A 104:d 501 t=19 |
    > gap 0+2 not_captured; > 2:bc; > 4:d
an acknowledgment comes first, and says where the stream is
    < A 501 100 t=0; > A 101:abc 501 t=9; < A 501 104 t=9.1; > A 104:d 501 t=19 | > gap 0+1 not_captured; > 1:abc; > 4:d
"""


@pytest.mark.parametrize(("lines", "expected"), cases_of(JOINED, script, steps))
def test_segments_of_a_connection_that_is_joined(lines: list[str], expected: list[str]) -> None:
    assert play(lines) == ["opened", *expected, UNFINISHED]


@pytest.mark.parametrize(
    ("reset", "gap"),
    [("< RA 501 104", []), ("< RA 501 105", []), ("< RA 501 106", ["> gap 3+2 not_captured"]), ("< R 501 106", [])],
    ids=["all that was captured", "one byte more, which may be a FIN", "two bytes more", "no acknowledgment"],
)
def test_a_reset_may_acknowledge_what_the_capture_lacks(reset: str, gap: list[str]) -> None:
    events = play([*HANDSHAKE, "> A 101:abc 501", reset])

    assert [event for event in events if event.startswith(("> 0", "> gap"))] == ["> 0:abc", *gap]


@each("missing, after", [(0, b"c"), (0, b""), (2, b"c"), (4, b"")])
def test_what_waits_before_the_number_of_a_late_syn_is_discarded(missing: int, after: bytes) -> None:
    report = FlowReport(Flow(FORWARD, True, 0, 1, "c", 0, 1, "c"), True, (1, 0, "c"), [])
    half = HalfStream()
    half.receive(100, b"ab" + after, missing, False, report)
    half.synchronize(101, report)

    (dropped,) = (event for event in report.events if isinstance(event, SegmentDiscarded))
    assert (dropped.length, dropped.reason) == (2, "before_start")
    assert (half.offset, half.buffer.size) == (len(after) + missing, 0)


def test_counters_say_what_came_again() -> None:
    table = FlowTable()
    lines = [
        *HANDSHAKE,
        "> A 101:abc 501",
        "> A 101:abc 501",
        "> A 108:hi 501",
        "> A 102:bXd 501",
        "> A 103:~ 501",
        "> A 105:efg 501 window=0",
        "> A 109 501",
        "> A 101 501",
    ]
    flow = feed(table, parse(lines))[0].flow
    half = flow.initiator

    assert half.delivered_bytes == half.offset == 9
    assert half.segments == len(lines) - 1
    assert (half.data_segments, half.empty_segments) == (6, 4)
    assert (half.retransmitted_segments, half.retransmitted_bytes, half.duplicate_segments) == (2, 5, 1)
    assert (half.out_of_order_segments, half.overlaps, half.zero_windows) == (1, 1, 1)
    assert half.keep_alive_probes == 2


def test_only_so_much_is_remembered_of_what_was_delivered() -> None:
    table = FlowTable()
    lines = [*HANDSHAKE, *(f"> A {101 + i}:x 501" for i in range(1000))]
    flow = feed(table, parse(lines))[0].flow

    assert 8 <= len(flow.initiator.history) <= 16


def test_the_frame_that_fills_a_hole_is_the_one_that_made_the_bytes_available() -> None:
    table = FlowTable()
    _, event = feed(table, parse([*HANDSHAKE, "> A 102:b 501 t=1", "> A 101:a 501 t=2"]))

    assert isinstance(event, StreamData)
    assert (event.frame, event.timestamp_ns, event.capture) == (5, 2_000_000_000, "test.pcap")


@each("isn", [MODULUS - 1 - at for at in range(14)])
@each("reverse", [False, True], ids=["in order", "reversed"])
def test_the_sequence_may_wrap_at_any_byte(isn: int, reverse: bool) -> None:
    data = "abcdefghijkl"
    lines = [f"> A {isn + 1 + i}:{data[i : i + 3]} 501" for i in range(0, 12, 3)]
    if reverse:
        lines.reverse()
    events = play([f"> S {isn}", f"< SA 500 {isn + 1}", *lines, f"> FA {isn + 13} 501"])

    assert "".join(event.partition(":")[2] for event in events if event.startswith("> ") and ":" in event) == data
    assert events[-2:] == ["> closed fin", UNFINISHED]


@st.composite
def shuffled_streams(draw: st.DrawFn) -> tuple[bytes, bytes, int, int, list[tuple[bool, int, int]]]:
    streams = draw(st.binary(min_size=1, max_size=120)), draw(st.binary(min_size=1, max_size=120))
    isns = [draw(st.sampled_from([0, 1000, 2**31 - 50, MODULUS - 1, MODULUS - 60])) for _ in streams]
    parts: list[tuple[bool, int, int]] = []
    for from_initiator, data in zip((True, False), streams, strict=True):
        cuts = sorted(draw(st.sets(st.integers(1, len(data)), max_size=12)) | {len(data)})
        start = 0
        for cut in cuts:
            before = draw(st.integers(0, min(3, start)))
            behind = draw(st.integers(0, min(3, len(data) - cut)))
            parts.extend([(from_initiator, start - before, cut + behind)] * draw(st.integers(1, 2)))
            start = cut
    return streams[0], streams[1], isns[0], isns[1], draw(st.permutations(parts))


def wire(from_initiator: bool, sequence: int, acknowledgment: int, flags: int, data: bytes, frame: int) -> Segment:
    key = FORWARD if from_initiator else BACKWARD
    return Segment(key, sequence % MODULUS, acknowledgment % MODULUS, flags, 1000, data, 0, frame, frame * 1000, "c")


@settings(max_examples=250 if THOROUGH else 125, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(shuffled_streams(), st.booleans())
@example((b"abc", b"GET /", 0, 0, [(True, 0, 1), (False, 0, 5), (False, 0, 5), (True, 1, 3)]), True)
def test_any_order_duplication_splitting_and_overlap_gives_the_same_streams(
    drawn: tuple[bytes, bytes, int, int, list[tuple[bool, int, int]]], fins_first: bool
) -> None:
    up, down, up_isn, down_isn, parts = drawn
    opening = [wire(True, up_isn, 0, SYN, b"", 1), wire(False, down_isn, up_isn + 1, SYN | ACK, b"", 2)]
    ends = [
        wire(True, up_isn + 1 + len(up), down_isn + 1, FIN | ACK, b"", 3),
        wire(False, down_isn + 1 + len(down), up_isn + 1, FIN | ACK, b"", 4),
    ]
    middle = []
    for number, (from_initiator, start, stop) in enumerate(parts, 5):
        data, isn, other = (up, up_isn, down_isn) if from_initiator else (down, down_isn, up_isn)
        middle.append(wire(from_initiator, isn + 1 + start, other + 1, ACK, data[start:stop], number))
    table = FlowTable()
    events = feed(table, opening + (ends + middle if fins_first else middle + ends))
    # A repeated beginning may be another connection, so segments after it wait: here for the end of the capture.
    events += table.close()

    check_tiling(events)
    for from_initiator, data in ((True, up), (False, down)):
        pieces = [e for e in events if isinstance(e, StreamData) and e.from_initiator == from_initiator]
        assert b"".join(piece.data for piece in pieces) == data
    assert not [event for event in events if isinstance(event, (StreamGap, StreamOverlap))]
    assert render(events[-1]) == "closed fin"


class Thorough(FlowTable):
    """A table that looks at every segment from all sides."""

    def take_in_order(self, segment: Segment) -> None:
        return None


def essence(event: FlowEvent) -> tuple[object, ...]:
    """All of an event but the flow."""
    return type(event), *(getattr(event, field.name) for field in fields(event) if field.name != "flow")


def standing(half: HalfStream) -> tuple[object, ...]:
    """The state of a direction, without fields that the fast path leaves alone in a stream without holes."""
    counters = tuple(getattr(half, name) for name in COUNTERS)
    return half.state, half.sequence, half.offset, half.acknowledged, half.history, half.segments, counters


@settings(max_examples=250 if THOROUGH else 125, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(shuffled_streams(), st.lists(st.tuples(st.integers(0, 40), st.integers(-3, 3), st.integers(0, 2)), max_size=4))
def test_segments_in_order_do_the_same_on_the_fast_path(
    drawn: tuple[bytes, bytes, int, int, list[tuple[bool, int, int]]], odd: list[tuple[int, int, int]]
) -> None:
    up, down, up_isn, down_isn, parts = drawn
    segments = [wire(True, up_isn, 0, SYN, b"", 1), wire(False, down_isn, up_isn + 1, SYN | ACK, b"", 2)]
    sent = {True: up_isn + 1, False: down_isn + 1}
    for number, (from_initiator, start, stop) in enumerate(sorted(parts, key=lambda part: part[1]), 3):
        data = (up if from_initiator else down)[start:stop]
        sequence, acknowledgment = sent[from_initiator], sent[not from_initiator]
        segments.append(wire(from_initiator, sequence, acknowledgment, ACK, data, number))
        sent[from_initiator] += len(data)
        segments.append(wire(not from_initiator, sent[not from_initiator], sent[from_initiator], ACK, b"", number))
    for place, shift, window in odd:
        other_segment = segments[place % len(segments)]
        other_segment.sequence = (other_segment.sequence + shift) % MODULUS
        other_segment.window = window
    quick, thorough = FlowTable(), Thorough()
    for segment in segments:
        assert [*map(essence, quick.feed(segment))] == [*map(essence, thorough.feed(segment))]
        for flow, other in zip(quick.flows.values(), thorough.flows.values(), strict=True):
            assert [*map(standing, (flow.initiator, flow.responder))] == [
                *map(standing, (other.initiator, other.responder))
            ]
            assert (flow.last_frame, flow.last_timestamp_ns) == (other.last_frame, other.last_timestamp_ns)
    assert [*map(essence, quick.close())] == [*map(essence, thorough.close())]


@settings(max_examples=200 if THOROUGH else 100, deadline=None)
@given(st.binary(min_size=1, max_size=200), st.randoms(use_true_random=False), st.booleans())
def test_dropped_segments_become_gaps_of_the_right_length(
    data: bytes, chance: random.Random, acknowledged: bool
) -> None:
    isn = chance.choice([0, MODULUS - 100])
    segments = [wire(True, isn, 0, SYN, b"", 1), wire(False, 500, isn + 1, SYN | ACK, b"", 2)]
    buffer = bytearray()
    lost = 0
    at = 0
    while at < len(data):
        size = chance.randint(1, 20)
        part = data[at : at + size]
        if chance.random() < 0.7:
            segments.append(wire(True, isn + 1 + at, 501, ACK, part, len(segments) + 1))
            buffer += part
        else:
            lost += len(part)
        at += len(part)
    segments.append(wire(True, isn + 1 + len(data), 501, FIN | ACK, b"", len(segments) + 1))
    if acknowledged:
        segments.append(wire(False, 501, isn + 2 + len(data), ACK, b"", len(segments) + 1))
    table = FlowTable()
    events = feed(table, segments)
    events.extend(table.close())

    check_tiling(events)
    gaps = [event for event in events if isinstance(event, StreamGap)]
    assert b"".join(event.data for event in events if isinstance(event, StreamData)) == bytes(buffer)
    assert sum(gap.length for gap in gaps) == lost
    assert {gap.reason for gap in gaps} <= {"not_captured" if acknowledged else "unproven"}
    half = events[0].flow.initiator
    assert (half.offset, half.lost_bytes, half.fin_offset) == (len(data), lost, len(data))


@settings(max_examples=400 if THOROUGH else 200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.booleans(),
            st.integers(0, 63),
            st.one_of(st.integers(0, 40), st.integers(0, MODULUS - 1)),
            st.one_of(st.integers(0, 40), st.integers(0, MODULUS - 1)),
            st.binary(max_size=12),
            st.integers(0, 3),
            st.integers(0, 3),
        ),
        max_size=40,
    )
)
@example(
    [
        *3 * [(False, 0, 0, 0, b"", 0, 0)],
        (True, 0, 0, 0, b"ab", 0, 0),
        (True, SYN, 0, 0, b"", 0, 1),
        (False, 0, 2, 0, b"x", 0, 0),  # its number is that of the SYN that comes next
        (False, SYN | ACK, 2, 0, b"", 0, 0),
    ]
)
def test_arbitrary_segments_never_raise_and_streams_stay_tiled(
    drawn: list[tuple[bool, int, int, int, bytes, int, int]],
) -> None:
    table = FlowTable(max_buffered_bytes=30, max_buffered_segments=4, budget=Budget(40))
    events: list[FlowEvent] = []
    now = 0
    for number, (forward, flags, sequence, acknowledgment, data, missing, wait) in enumerate(drawn, 1):
        now += wait * 1_000_000_000
        key = FORWARD if forward else BACKWARD
        segment = Segment(key, sequence, acknowledgment, flags, wait, data, missing, number, now, "c")
        events.extend(table.feed(segment))
        assert table.buffered_bytes <= 40
    events.extend(table.close())

    check_tiling(events)
    assert table.buffered_bytes == 0


def test_thousands_of_tiny_segments_in_reverse_come_out_whole() -> None:
    count = 20_000
    data = bytes(i & 0xFF for i in range(3 * count))
    segments = [wire(True, 0, 0, SYN, b"", 1)]
    segments += [wire(True, 1 + 3 * i, 501, ACK, data[3 * i : 3 * i + 3], 2) for i in reversed(range(count))]
    events = feed(FlowTable(), segments)

    assert [type(event) for event in events] == [FlowOpened, StreamData]
    assert isinstance(events[1], StreamData)
    assert events[1].data == data


HOLE = ["> A 101:abc 501 t=1", "> A 107:ghi 501 t=1.01", "< A 501 110 t=1.02", "> A 110:jkl 501 t=1.5"]
"""A hole at 3 that was acknowledged and given up."""
LATE = """
what comes for it is said
    > A 104:def 501 t=1.6 | > discarded 3 late
only the bytes of the gap are late
    > A 103:cdefgh 501 t=1.6 | > discarded 3 late
they may come one by one
    > A 104:d 501 t=1.6; > A 105:ef 501 t=1.61 | > discarded 1 late; > discarded 2 late
new data behind them is no less new
    > A 104:defghijklmno 501 t=1.6 | > discarded 3 late; > 12:mno
what comes within the time of a second tap is no copy
    > A 104:def 501 t=1.5001 | > discarded 3 late
"""


@pytest.mark.parametrize(("lines", "expected"), cases_of(LATE, script, steps))
def test_what_comes_after_its_gap_was_given_up(lines: list[str], expected: list[str]) -> None:
    gave_up = ["opened", "> 0:abc", "> gap 3+3 not_captured", "> 6:ghi", "> 9:jkl"]

    assert play([*HANDSHAKE, *HOLE, *lines]) == [*gave_up, *expected, UNFINISHED]


def test_what_came_late_is_no_copy_but_its_second_copy_is() -> None:
    lines = [*HANDSHAKE, *HOLE, "> A 104:def 501 t=1.6", "> A 104:def 501 t=1.7"]
    half = feed(FlowTable(), parse(lines))[0].flow.initiator

    assert (half.duplicate_segments, half.retransmitted_bytes, half.given_up) == (1, 3, [])


@pytest.mark.parametrize("after", [0.3, 2.0, 5.0, 30.0, 100.0])
@pytest.mark.parametrize("end", ["fin", "reset"])
def test_what_comes_for_a_gap_after_the_end_is_late(after: float, end: str) -> None:
    over = {
        "fin": ["> FA 113 501 t=1.6", "< FA 501 114 t=1.61", "> A 114 502 t=1.62"],
        "reset": ["> RA 113 501 t=1.6"],
    }[end]
    events = play([*HANDSHAKE, *HOLE, *over, f"> A 104:def 501 t={1.62 + after}"])

    assert [event for event in events if "discarded" in event] == ["> discarded 3 late"]


def test_what_the_snap_length_cut_off_is_late_where_it_comes_whole() -> None:
    lines = [*HANDSHAKE, "> A 101:ab 501 missing=4", "< A 501 107", "> A 101:abcdef 501", "> A 101:ab 501 missing=4"]

    assert play(lines) == ["opened", "> 0:ab", "> gap 2+4 cut", "> discarded 4 late", UNFINISHED]

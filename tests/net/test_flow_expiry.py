from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mqttscope.budget import Budget
from mqttscope.net.flow import FlowClosed, FlowEvent, FlowOpened, StreamData, StreamGap
from mqttscope.net.flow_expiry import LINGER_NS, REMEMBERED_BYTES
from mqttscope.net.flows import FlowTable
from mqttscope.net.segment import ACK, RST, SYN, Segment, direction_key
from tests.net.script import (
    CLOSED,
    FORWARD,
    HANDSHAKE,
    STEP,
    UNFINISHED,
    check_tiling,
    feed,
    parse,
    play,
    render,
    script,
)
from tests.tables import cases_of, steps

HOLES = """
acknowledged: the capture lost it
    > A 101:abc 501; > A 110:jkl 501; < A 501 113 | > 0:abc; > gap 3+6 not_captured; > 9:jkl
not acknowledged: unproven
    > A 101:abc 501; > A 110:jkl 501; < A 501 104 | > 0:abc; > gap 3+6 unproven; > 9:jkl
acknowledged in part only: unproven
    > A 101:abc 501; > A 110:jkl 501; < A 501 107 | > 0:abc; > gap 3+6 unproven; > 9:jkl
only an acknowledgment is left
    > A 101:abc 501; < A 501 110 | > 0:abc; > gap 3+6 not_captured
only an empty segment is left
    > A 101:abc 501; > A 110 501 | > 0:abc; > gap 3+6 unproven
the acknowledgment was captured before the data
    > A 101:abc 501; < A 501 110; > A 104:defghi 501 | > 0:abc; > 3:defghi
one byte beyond may be a FIN that was not captured
    > A 101:abc 501; < A 501 105 | > 0:abc
an empty segment one byte on may follow a FIN that was not captured
    > A 101:abc 501; > A 105 501; < A 501 105; > A 105 501 t=5 | > 0:abc
two holes
    > A 101:abc 501; > A 110:jkl 501; > A 120:tu 501 |
    > 0:abc; > gap 3+6 unproven; > 9:jkl; > gap 12+7 unproven; > 19:tu
acknowledged but late by less than a quarter of a second
    > A 101:abc 501; > A 110:jkl 501; < A 501 113; > A 113:m 501 t=0.2; > A 104:defghi 501 t=0.24 |
    > 0:abc; > 3:defghijklm
acknowledged and late by more than a quarter of a second
    > A 101:abc 501; > A 110:jkl 501; < A 501 113; > A 113:m 501 t=0.265; > A 104:defghi 501 t=0.3 |
    > 0:abc; > gap 3+6 not_captured; > 9:jkl; > 12:m; > discarded 6 late
not acknowledged: waits for the retransmission however long it takes
    > A 101:abc 501; > A 110:jkl 501; < A 501 104 t=1; > A 104:defghi 501 t=900 | > 0:abc; > 3:defghijkl
acknowledged and passed by an empty segment, then two seconds
    > A 101:abc 501; < A 501 110; > A 110 501 t=1; > A 110:j 501 t=4 | > 0:abc; > gap 3+6 not_captured; > 9:j
a segment outside of any window is not the stream
    > A 101:abc 501; > A 1073842000:x 501; > A 104:d 501 | > 0:abc; > discarded 1 out_of_window; > 3:d
a run of segments outside of any window is where the stream continues
    > A 101:abc 501; > A 1500000000:x 501; > A 1500000001:x 501; > A 1500000002:x 501; > A 1500000003:x 501;
      > A 1500000004:yz 501 |
    > 0:abc; > discarded 1 out_of_window; > discarded 1 out_of_window; > gap 3+1499999898 unproven; > 1499999901:x;
      > 1499999902:x; > 1499999903:yz
"""


@pytest.mark.parametrize(("lines", "expected"), cases_of(HOLES, script, steps))
def test_holes(lines: list[str], expected: list[str]) -> None:
    assert play(HANDSHAKE + lines) == ["opened", *expected, UNFINISHED]


ONE_SIDED = ["> S 100", "> A 101 501"]


ONE_SIDED_HOLES = """
what the silent side sent is known from the acknowledgments alone
    > A 101:abc 501; > A 104:def 521 | > 0:abc; > 3:def; < gap 0+20 not_captured
late by less than five seconds
    > A 110:jkl 501; > A 101:abcdefghi 501 t=4.9 | > 0:abcdefghijkl
late by more than five seconds
    > A 110:jkl 501; > A 113:m 501 t=5.01; > A 101:abcdefghi 501 t=5.1 |
    > gap 0+9 unproven; > 9:jkl; > 12:m; > discarded 9 late
"""


@pytest.mark.parametrize(("lines", "expected"), cases_of(ONE_SIDED_HOLES, script, steps))
def test_one_sided_captures(lines: list[str], expected: list[str]) -> None:
    assert play(ONE_SIDED + lines) == ["opened", *expected, UNFINISHED]


def test_a_proven_hole_is_given_up_when_a_quarter_of_the_buffer_waits_behind_it() -> None:
    table = FlowTable(max_buffered_bytes=100)
    lines = [*HANDSHAKE, f"> A 102:{'x' * 20} 501", "< A 501 122", "> A 122:yyyyy 501"]

    assert [render(event) for event in feed(table, parse(lines))][1:] == [
        "> gap 0+1 not_captured",
        f"> 1:{'x' * 20}yyyyy",
    ]


@pytest.mark.parametrize("limits", [{"max_buffered_bytes": 10}, {"max_buffered_segments": 2}])
def test_a_full_buffer_gives_up_the_first_hole(limits: dict[str, Any]) -> None:
    table = FlowTable(**limits)
    lines = [*HANDSHAKE, "> A 103:xxxx 501", "> A 109:yyyy 501", "> A 115:zzzz 501", "> A 107:-- 501"]
    events = feed(table, parse(lines))

    assert [render(event) for event in events][1:] == ["> gap 0+2 unproven", "> 2:xxxx", "> 6:--yyyy"]


def other_flow(number: int, now: float, data: bytes = b"", sequence: int = 100) -> Segment:
    """A segment of one of many flows: a SYN, or data."""
    addresses = bytes([10, 1, number >> 8, number & 0xFF, 10, 0, 0, 2])
    key = direction_key(addresses, (50000).to_bytes(2, "big") + (1883).to_bytes(2, "big"))
    return Segment(key, sequence, 0, ACK if data else SYN, 1000, data, 0, number, round(now * 1e9), "c")


def test_the_longest_idle_flow_is_evicted_when_the_table_is_full() -> None:
    table = FlowTable(max_flows=4)
    events = feed(table, [other_flow(number, number) for number in range(4)])
    events += feed(table, [other_flow(0, 10, b"abc", 101), other_flow(1, 11, b"bcd", 102)])
    events += feed(table, [other_flow(number, number) for number in range(20, 23)])

    evicted = [event.flow.first_frame for event in events if isinstance(event, FlowClosed)]
    assert evicted == [2, 3, 0]
    assert (table.evicted_flows, table.opened_flows, len(table.flows)) == (3, 7, 4)
    events += table.close()
    check_tiling(events)
    assert [render(event) for event in events if isinstance(event, StreamGap)] == ["> gap 0+1 unproven"]


def test_closed_flows_make_room_before_open_ones_are_evicted() -> None:
    table = FlowTable(max_flows=2)
    events = feed(table, [other_flow(0, 0), *parse(CLOSED), other_flow(1, 1)])

    assert [event.how for event in events if isinstance(event, FlowClosed)] == ["fin"]
    assert len(table.flows) == 2


def test_many_evictions_stay_exact() -> None:
    table = FlowTable(max_flows=50)
    events = feed(table, [other_flow(number, number / 1000) for number in range(1000)])

    assert [event.flow.first_frame for event in events if isinstance(event, FlowClosed)] == list(range(950))


def test_idle_flows_are_closed_by_the_traffic_of_others() -> None:
    table = FlowTable(idle_timeout_ns=60 * 10**9)
    events = feed(table, [*parse([*HANDSHAKE, "> A 102:bc 501"]), *(other_flow(1, t) for t in range(0, 200, 5))])

    assert [render(event) for event in events if event.flow.first_frame == 1 and event.flow.key == FORWARD] == [
        "opened",
        "> gap 0+1 unproven",
        "> 1:bc",
        "closed idle",
    ]
    assert table.idle_flows == 1
    closing = next(event for event in events if isinstance(event, FlowClosed))
    assert (closing.frame, closing.timestamp_ns) == (4, round(3 * STEP * 1e9))


TIMES = """
a hole is given up in time though its flow is silent
    handshake; > A 102:bc 501; < A 501 104; other 0.2; other 0.6 |
    opened; opened other; > gap 0+1 not_captured; > 1:bc
a hole is given up in time though no segment comes
    handshake; > A 102:bc 501; < A 501 104; until 0.1; until 1; until 200 |
    opened; > gap 0+1 not_captured; > 1:bc; closed idle
a held start is released in time though its flow is silent
    > A 101:abc 501; other 0.5 | opened; > 0:abc; opened other
an older capture may follow a newer one
    other 1000000; handshake; > A 102:bc 501; < A 501 104; other 3 |
    opened other; opened; > gap 0+1 not_captured; > 1:bc
"""


@pytest.mark.parametrize(("lines", "expected"), cases_of(TIMES, script, steps))
def test_time_outs(lines: list[str], expected: list[str]) -> None:
    table, events = FlowTable(idle_timeout_ns=60 * 10**9), list[FlowEvent]()
    assert table.advance(10**9 if "until 1" in lines else 0) == []
    segments = iter(parse([line for line in lines if line[0] in "<>"]))
    for line in lines:
        word, _, seconds = line.partition(" ")
        if word == "until":
            events += table.advance(round(float(seconds) * 1e9))
        else:
            events += table.feed(other_flow(1, float(seconds)) if word == "other" else next(segments))

    assert [render(event) + (" other" if event.flow.key != FORWARD else "") for event in events] == expected


@pytest.mark.parametrize(
    "lines",
    [
        [*HANDSHAKE, "> A 102:bc 501", "< A 501 104", "> A 104:d 501 t=3", "> A 101:a 501 t=4"],
        [*HANDSHAKE, "> A 101:a 501 t=8000", "> A 102:b 501 t=9000"],
        ["> A 102:bc 501", "> A 101:a 501 t=1", "> A 104:d 501 t=2"],
        [*CLOSED, "> A 101:late 501 t=100", "> A 101:ghost 501 t=130", "> A 106:x 501 t=131"],
    ],
    ids=["hole", "idle", "held start", "closed flow"],
)
def test_what_happens_to_a_flow_does_not_depend_on_the_traffic_around_it(lines: list[str]) -> None:
    alone, crowded = FlowTable(), FlowTable()
    segments = parse(lines)
    end = segments[-1].timestamp_ns // 10**9 + 60
    noise = [other_flow(7, t / 10) for t in range(1500)] + [other_flow(7, t) for t in range(150, end, 50)]
    together = sorted([*noise, *segments], key=lambda segment: segment.timestamp_ns)
    apart = [*feed(alone, segments), *alone.close()]
    mixed = [event for event in [*feed(crowded, together), *crowded.close()] if event.flow.key == FORWARD]

    def lines_of(events: list[FlowEvent]) -> list[tuple[str, int, int]]:
        return [(render(event), event.frame, event.timestamp_ns) for event in events]

    assert lines_of(mixed) == lines_of(apart)


def test_time_outs_count_at_their_own_time_whoever_brings_them_out() -> None:
    table = FlowTable(idle_timeout_ns=10 * 10**9)
    hole = [other_flow(1, 0), other_flow(1, 9.9, b"late", 105)]
    feed(table, [hole[0], other_flow(2, 4), other_flow(3, 6), hole[1], other_flow(2, 13, b"x", 101)])

    result = feed(table, [other_flow(4, 100)])

    pairs = [(type(event).__name__, event.flow.first_frame) for event in result if not isinstance(event, StreamData)]
    assert pairs == [
        ("StreamGap", 1), ("FlowClosed", 3), ("FlowClosed", 1), ("FlowClosed", 2), ("FlowOpened", 4),
    ]  # fmt: skip
    assert table.next_due_ns == 110 * 10**9 + 1


def test_of_time_outs_at_once_that_of_the_earlier_frame_counts_first() -> None:
    table = FlowTable()
    feed(table, [replace(other_flow(number, 0), frame=9 - number) for number in range(5)])

    assert [event.frame for event in table.advance(10**15) if isinstance(event, FlowClosed)] == [5, 6, 7, 8, 9]
    assert table.next_due_ns is None


def test_flows_that_come_and_go_leave_no_time_outs_behind() -> None:
    table = FlowTable(max_flows=50)
    feed(table, [other_flow(number, number / 1000) for number in range(5000)])

    assert len(table._dues) < 2 * 50 + 1_100


def test_closed_flows_are_forgotten_after_a_while() -> None:
    table = FlowTable()
    feed(table, [*parse([*HANDSHAKE, "> A 101:abc 501", "> FA 104 501", "< FA 501 105"]), other_flow(1, 100)])
    assert table.flows[FORWARD].closed == "fin"
    assert sum(map(len, table.flows[FORWARD].initiator.history)) <= REMEMBERED_BYTES

    feed(table, [other_flow(1, 200)])
    assert FORWARD not in table.flows


@pytest.mark.parametrize(("later_ns", "opened"), [(LINGER_NS, 1), (LINGER_NS + 1, 2)])
def test_a_fin_that_is_sent_again_and_again_opens_no_connection(later_ns: int, opened: int) -> None:
    """Nobody acknowledges it any more; each time it comes as long after the last one as a sender waits at most."""
    table = FlowTable()
    segments = parse([*HANDSHAKE, "> A 101:abc 501", "> FA 104 501", "< FA 501 105", "> A 105 502"])
    fin = segments[-2]
    for number in range(1, 4):
        segments.append(replace(fin, timestamp_ns=segments[-1].timestamp_ns + LINGER_NS, frame=100 + number))
    last = replace(fin, timestamp_ns=segments[-1].timestamp_ns + later_ns, frame=200)
    events = feed(table, [*segments, last])

    assert sum(isinstance(event, FlowOpened) for event in events) == opened


def test_all_buffers_together_are_limited() -> None:
    table = FlowTable(budget=Budget(25))
    events = feed(table, [other_flow(number, 0) for number in range(4)])
    events += feed(table, [other_flow(number, 0, b"x" * 10, 200) for number in range(4)])

    assert [event.flow.first_frame for event in events if isinstance(event, StreamGap)] == [2, 3]
    assert (table.buffered_bytes, table.total_limit_hits) == (20, 2)
    check_tiling([*events, *table.close()])


def test_flows_are_forgotten_at_their_own_time_whichever_closed_before() -> None:
    """Capture times may go back, so that a flow which closed first may be remembered longest."""
    table = FlowTable()

    def reset_at(port: int, seconds: int) -> None:
        """A connection that opens and is reset."""
        client, server = b"\x0a\0\0\1", b"\x0a\0\0\2"
        there = direction_key(client + server, port.to_bytes(2, "big") + b"\x07\x5b")
        back = direction_key(server + client, b"\x07\x5b" + port.to_bytes(2, "big"))
        for key, sequence, acknowledgment, flags in (
            (there, 100, 0, SYN),
            (back, 500, 101, SYN | ACK),
            (there, 101, 501, RST | ACK),
        ):
            table.feed(Segment(key, sequence, acknowledgment, flags, 1_000, b"", 0, 1, seconds * 1_000_000_000, ""))

    reset_at(1, 1_000)
    reset_at(2, 10)
    assert [flow.closed_ns // 1_000_000_000 for flow in table.flows.values()] == [1_000, 10]

    reset_at(3, 200)

    assert [flow.closed_ns // 1_000_000_000 for flow in table.flows.values()] == [1_000, 200]

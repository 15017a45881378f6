"""Where connections between the same endpoints begin and end, what is a copy, and what clocks of stacks say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqttscope.net.flow import Flow
from mqttscope.net.flow_identity import (
    NO_STAMP,
    VIEW_NS,
    asks_for_one,
    differs,
    in_order,
    is_other_stack,
    is_other_syn,
    is_same_syn,
    is_whole,
    last_beginning,
    past,
    repeat_one,
    repeats,
    time_stamp,
)
from mqttscope.net.flows import FlowTable
from mqttscope.net.reassembly import HalfStream
from mqttscope.net.segment import ACK, SYN, endpoints
from tests.dissect.talk import SECOND, START, Talk
from tests.each import each
from tests.net.script import BACKWARD, CLOSED, FORWARD, HANDSHAKE, feed, parse, play

CLOSED_EVENTS = ["opened", "> closed fin", "< closed fin", "closed fin"]
END = "closed capture_end"


@each(
    "lines, expected",
    [
        pytest.param(
            [*HANDSHAKE, "> FA 101:bye 501", "< FA 501 105"],
            ["opened", "> 0:bye", "> closed fin", "< closed fin", "closed fin"],
            id="FIN with data",
        ),
        pytest.param(
            [*HANDSHAKE, "> FA 104:def 501", "> A 101:abc 501"],
            ["opened", "> 0:abcdef", "> closed fin", END],
            id="FIN out of order waits for the data before it",
        ),
        pytest.param(
            [*HANDSHAKE, "> FA 101 501", "> FA 101 501", "> FA 101 501"],
            ["opened", "> closed fin", END],
            id="FIN retransmitted",
        ),
        pytest.param(
            [*HANDSHAKE, "> FA 104 501", "< A 501 105", "< FA 501 105", "> A 105 502"],
            ["opened", "< closed fin", "> gap 0+3 not_captured", "> closed fin", "closed fin"],
            id="data before the FIN lost: both directions still end",
        ),
        pytest.param(
            [*HANDSHAKE, "> FA 101 501", "> A 101:more 501", "> A 102:more 501"],
            ["opened", "> closed fin", "> discarded 4 after_fin", "> discarded 4 after_fin", END],
            id="data after the FIN is discarded",
        ),
        pytest.param(
            [*HANDSHAKE, "> FA 104 501", "> A 101:abcdef 501"],
            ["opened", "> discarded 3 after_fin", "> 0:abc", "> closed fin", END],
            id="data beyond a FIN that came early is discarded",
        ),
        pytest.param(
            [*HANDSHAKE, "> A 103:cdef 501", "> FA 104 501", "> A 101:ab 501"],
            ["opened", "> 0:abcdef", END],
            id="FIN in the middle of known data is ignored",
        ),
        pytest.param(
            [*HANDSHAKE, "> A 101:abc 501", "> RA 104 501"],
            ["opened", "> 0:abc", "> closed reset", "< closed reset", "closed reset"],
            id="reset ends both directions",
        ),
        pytest.param(
            [*HANDSHAKE, "> R 101:reason 0"],
            ["opened", "> discarded 6 in_reset", "> closed reset", "< closed reset", "closed reset"],
            id="text in a reset is not data",
        ),
        pytest.param(
            [*HANDSHAKE, "> A 102:bc 501", "< R 501"],
            ["opened", "> gap 0+1 unproven", "> 1:bc", "< closed reset", "> closed reset", "closed reset"],
            id="reset flushes what waits",
        ),
        pytest.param(
            [*HANDSHAKE, "> A 102:bc 501", "> R 104"],
            ["opened", "> gap 0+1 unproven", "> 1:bc", "> closed reset", "< closed reset", "closed reset"],
            id="reset flushes what waits on its own side",
        ),
        pytest.param(
            [*HANDSHAKE, "> A 101:abc 501", "< A 501 104", "> R 102", "> A 104:def 501"],
            ["opened", "> 0:abc", "> 3:def", END],
            id="reset before what was acknowledged is ignored",
        ),
        pytest.param(
            [*HANDSHAKE, "> R 90000", "> R 5", "< R 490", "> A 101:abc 501"],
            ["opened", "> 0:abc", END],
            id="reset outside the window is ignored",
        ),
        pytest.param(
            [*HANDSHAKE, "> FA 101 501", "< R 501"],
            ["opened", "> closed fin", "< closed reset", "closed reset"],
            id="FIN answered by reset",
        ),
        pytest.param(
            ["> S 100", "< RA 0 101"],
            ["opened", "< closed reset", "> closed reset", "closed reset"],
            id="connection refused",
        ),
        pytest.param(
            ["> S 100", "< RA 0 100", "< R 0", *HANDSHAKE[1:], "> A 101:abc 501"],
            ["opened", "> 0:abc", END],
            id="reset that does not acknowledge the SYN is ignored",
        ),
        pytest.param(["> R 100", "< RA 0 5"], [], id="reset of a connection that is not known opens none"),
        pytest.param(
            ["> S 100:abc", "< SA 500 104", "> A 104:def 501"],
            ["opened", "> 0:abc", "> 3:def", END],
            id="SYN with data (TCP Fast Open)",
        ),
        pytest.param(
            ["> S 100:abc", "< SA 500 101", "> A 101:abcdef 501"],
            ["opened", "> 0:abc", "> 3:def", END],
            id="SYN with data that was not taken and sent again",
        ),
        pytest.param(
            ["> S 100", "> S 100", "< SA 500 101", "< SA 500 101", "> A 101:abc 501", "> S 100"],
            ["opened", "> 0:abc", END],
            id="SYN and SYN-ACK retransmitted",
        ),
        pytest.param(
            ["> S 100", "< S 500", "> SA 100 501", "< SA 500 101", "> A 101:abc 501", "< A 501:xyz 104"],
            ["opened", "> 0:abc", "< 0:xyz", END],
            id="simultaneous open",
        ),
        pytest.param(
            ["> S 100", "< A 400 101", "< S 500", "> SA 100 501", "< A 501:xyz 101"],
            ["opened", "< 0:xyz", END],
            id="split handshake",
        ),
        pytest.param(
            ["< SA 500 101", "> S 100", "> A 101:abc 501"],
            ["opened", "> 0:abc", END],
            id="SYN-ACK captured before the SYN",
        ),
        pytest.param(
            ["< SA 500 101", "> A 104:def 501", "> A 101:abc 501"],
            ["opened", "> 0:abcdef", END],
            id="SYN not captured: the SYN-ACK says where the stream starts",
        ),
        pytest.param(
            ["> A 101:abc 501", "> S 100", "< SA 500 101", "< A 501:xyz 104"],
            ["opened", "> 0:abc", "< 0:xyz", END],
            id="data captured before the SYN",
        ),
        pytest.param(
            ["> A 104:def 501", "> S 100", "> A 101:abc 501"],
            ["opened", "> 0:abcdef", END],
            id="later data captured before the SYN and earlier data after it",
        ),
        pytest.param(
            ["> A 101 501", "> FA 104:d 501 t=2", "> S 100", "> A 101:abc 501"],
            ["opened", "> 0:abcd", "> closed fin", END],
            id="FIN with data captured before the SYN and before earlier data",
        ),
        pytest.param(
            ["> A 103 501", "> FA 106:f 501 t=2", "> S 100", "> A 101:abcde 501"],
            ["opened", "> 0:abcdef", "> closed fin", END],
            id="FIN and data captured before a SYN that moves the start back",
        ),
        pytest.param(
            ["> A 101 501", "> FA 104 501 t=2", "> S 98", "> A 99:abcde 501"],
            ["opened", "> 0:abcde", "> closed fin", END],
            id="FIN without data captured before a SYN that moves the start back",
        ),
        pytest.param(
            ["> A 101:abc 501", "> A 104:def 501"], ["opened", "> 0:abc", "> 3:def", END], id="no handshake, in order"
        ),
        pytest.param(
            ["> A 104:def 501", "> A 101:abc 501", "> A 107:g 501"],
            ["opened", "> 0:abcdef", "> 6:g", END],
            id="no handshake, first two segments swapped",
        ),
        pytest.param(
            ["> A 101:abc 501", "< A 504:def 104", "< A 501:abc 104", "< A 507:g 104"],
            ["opened", "> 0:abc", "< 0:abcdef", "< 6:g", END],
            id="no handshake, answer swapped",
        ),
        pytest.param(
            ["> A 101:abc 501", "< A 600:xyz 104 t=0.5", "< A 603:u 104"],
            ["opened", "> 0:abc", "< 0:xyz", "< 3:u", END],
            id="no handshake, the answer was under way already: no gap",
        ),
        pytest.param(
            ["> A 101:abc 501", "< A 600:xyz 104 t=7", "> A 104 603 t=7.1", "> A 104 603 t=10"],
            ["opened", "> 0:abc", "< gap 0+99 not_captured", "< 99:xyz", END],
            id="no handshake, the start of the answer was lost later on",
        ),
        pytest.param(
            ["> A 101:abc 501", "< A 1500000000:xyz 104 t=7", "< A 1500000003:u 104"],
            ["opened", "> 0:abc", "< 0:xyz", "< 3:u", END],
            id="no handshake, an acknowledgment that has nothing to do with the answer",
        ),
        pytest.param(
            ["> A 101:abc 501", "> A 104:def 501", "> A 91:earlier... 501", "> A 107:g 501"],
            ["opened", "> 0:abc", "> 3:def", "> discarded 10 before_start", "> 6:g", END],
            id="no handshake, earlier data comes too late",
        ),
        pytest.param(
            ["> A 100:~ 501", "< A 501 101", "> A 101:abc 501"],
            ["opened", "> 0:abc", END],
            id="no handshake, keep-alive probe first",
        ),
        pytest.param(["> A 101:abc 501"], ["opened", "> 0:abc", END], id="no handshake, a single segment"),
        pytest.param(
            [*CLOSED, "> FA 101 501", "< FA 501 102", "> A 101:late 501"],
            [*CLOSED_EVENTS, "> discarded 4 after_close"],
            id="late segments of a closed flow",
        ),
        pytest.param([*CLOSED, "> S 100 0", "< SA 500 101"], CLOSED_EVENTS, id="late copies of the handshake"),
        pytest.param(
            [*CLOSED, "< SA 500 101 t=60"],
            [*CLOSED_EVENTS, "opened", END],
            id="a SYN-ACK long after the end answers a SYN that was not captured",
        ),
        pytest.param(
            [*CLOSED, "> S 9000", "< SA 7000 9001", "> A 9001:abc 7001"],
            [*CLOSED_EVENTS, "opened", "> 0:abc", END],
            id="port reused after the end",
        ),
        pytest.param(
            [*CLOSED, "> S 100 t=60", "< SA 500 101", "> A 101:abc 501"],
            [*CLOSED_EVENTS, "opened", "> 0:abc", END],
            id="port reused after the end with the same sequence numbers",
        ),
        pytest.param(
            ["> S 100", "< RA 0 101", "> S 100 t=0.5", "< RA 0 101"],
            ["opened", "< closed reset", "> closed reset", "closed reset"] * 2,
            id="refused connection tried again with the same sequence number",
        ),
        pytest.param(
            [*HANDSHAKE, "> A 102:bc 501", "> S 9000", "< SA 7000 9001", "> A 9001:abc 7001"],
            ["opened", "> gap 0+1 unproven", "> 1:bc", "closed port_reused", "opened", "> 0:abc", END],
            id="port reused while open",
        ),
        pytest.param(
            [*HANDSHAKE, "< S 9000", "> SA 7000 9001", "< A 9001:abc 7001"],
            ["opened", "closed port_reused", "opened", "> 0:abc", END],
            id="port reused in the other direction",
        ),
        pytest.param(
            [*HANDSHAKE, "< A 501:abc 101", "< SA 7000 9001", "> A 9001:abc 7001"],
            ["opened", "< 0:abc", "closed port_reused", "opened", "> 0:abc", END],
            id="port reused, SYN not captured",
        ),
        pytest.param(
            [*HANDSHAKE, "< A 501:abc 101", "< SA 7000 101", "< A 504:def 101"],
            ["opened", "< 0:abc", "< 3:def", END],
            id="second SYN-ACK for the same SYN is ignored",
        ),
        pytest.param(
            ["> A 101:abc 501", "< A 501:xyz 104", "> S 9000 t=9", "< SA 7000 9001", "> A 9001:abc 7001"],
            ["opened", "> 0:abc", "< 0:xyz", "closed port_reused", "opened", "> 0:abc", END],
            id="port reused, first connection joined in the middle",
        ),
        pytest.param(
            [*HANDSHAKE, "> A 101:abc 501 t=7200", "> A 104:def 501 t=14401"],
            ["opened", "> 0:abc", "closed idle", "opened", "> 0:def", END],
            id="idle for more than two hours",
        ),
    ],
)
def test_connections(lines: list[str], expected: list[str]) -> None:
    assert play(lines) == expected


@pytest.mark.parametrize(
    ("lines", "initiator", "known"),
    [
        (["> S 100"], FORWARD, True),
        (["< S 100"], BACKWARD, True),
        (["< SA 500 101"], FORWARD, True),
        (["> A 101:abc 501"], FORWARD, False),
        (["< A 101:abc 501"], FORWARD, False),
        (["> A 101 501", "> S 100"], FORWARD, True),
        (["< A 101 501", "< S 100"], BACKWARD, True),
        (["< A 101 501", "> SA 500 101"], BACKWARD, True),
        (["< A 101:abc 501", "< S 100"], BACKWARD, True),
        (["< A 101:abc 501", "< A 104:d 501", "< S 100"], FORWARD, False),
        (["< FA 101 501", "< S 100"], FORWARD, False),
    ],
    ids=[
        "SYN",
        "SYN from the lower port",
        "SYN-ACK",
        "data from the higher port",
        "data from the lower port",
        "SYN late",
        "SYN late, against the assumption",
        "SYN-ACK late, against the assumption",
        "SYN right after data, against the assumption",
        "SYN against the assumption after data was delivered",
        "SYN against the assumption after a stream was closed",
    ],
)
def test_who_the_initiator_is(lines: list[str], initiator: bytes, known: bool) -> None:
    table = FlowTable()
    flow = feed(table, parse(lines))[0].flow

    assert endpoints(flow.key) == endpoints(initiator)
    assert flow.initiator_known is known
    assert table.flows == {flow.key: flow}


def test_a_flow_remembers_its_handshake_and_where_it_was_seen() -> None:
    flow = feed(FlowTable(), parse([*HANDSHAKE, "> A 101:abc 501 t=3"]))[0].flow

    assert (flow.syn_seen, flow.syn_ack_seen) == (True, True)
    assert (flow.opened_ns, flow.first_frame, flow.capture) == (0, 1, "test.pcap")
    assert (flow.last_timestamp_ns, flow.last_frame, flow.last_capture) == (3_000_000_000, 4, "test.pcap")


def test_a_syn_behind_a_pause_is_a_beginning_among_what_is_kept() -> None:
    assert last_beginning(parse(["< A 501:xy 106", "> S 100 t=1"])) == 1
    assert last_beginning(parse(["< A 501:xy 106", "> S 100"])) == 0


def test_copies_of_an_answer_ask_for_no_connection() -> None:
    flow = feed(FlowTable(), parse(HANDSHAKE))[0].flow

    assert not asks_for_one(flow, parse(["< A 501:xy 106", "> A 106 503"]))
    assert asks_for_one(flow, parse(["< SA 500 101"]))


TALK = [*HANDSHAKE, "> A 101:hello 501", "< A 501:you 106", "> A 106 504"]


def flow_of(lines: list[str]) -> Flow:
    table = FlowTable()
    feed(table, parse(lines))
    found = table.direction(FORWARD)
    assert found is not None
    return found[0]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("> S 100", True),
        ("> S 99", False),
        ("< SA 500 101", True),
        ("< SA 700 101", False),
        ("> A 101:hello 501", True),
        ("> A 101:hallo 501", False),
        ("> A 101:hello 901", False),
        ("> A 106:more 504", False),
        ("< A 501:you 106", True),
    ],
)
def test_what_repeats_a_connection(line: str, expected: bool) -> None:
    assert repeats(flow_of(TALK), parse([line])[0]) is expected


def test_a_connection_is_remembered_as_long_as_a_view_may_show_it() -> None:
    flow = flow_of(TALK)

    assert [one.key for one in past(flow, flow.last_timestamp_ns + VIEW_NS)] == [FORWARD]
    assert past(flow, flow.last_timestamp_ns + VIEW_NS + 1) == []


def test_all_segments_have_to_repeat_one_and_the_same() -> None:
    flow = flow_of(TALK)
    later = Flow(FORWARD, True, 0, 1, "a", 0, 1, "a", past=past(flow, flow.last_timestamp_ns))

    assert repeat_one(later, parse(TALK))
    assert not repeat_one(later, parse([*TALK, "> A 106:more 504"]))


def test_a_view_is_whole_when_it_has_come_as_far_as_the_flow() -> None:
    flow = flow_of(TALK)

    assert is_whole(flow, parse(TALK))
    assert not is_whole(flow, parse(TALK[:-2]))


def test_the_beginning_of_a_stream_is_remembered_however_much_follows() -> None:
    lines = [*HANDSHAKE, *(f"> A {101 + 5 * number}:{number:05} 501" for number in range(40))]
    half = flow_of(lines).initiator

    assert not differs(half, 0, b"0000000001")
    assert differs(half, 0, b"0000000002")
    assert differs(half, 3, b"02")


def test_a_view_that_stops_halfway_is_a_connection_of_its_own() -> None:
    again = ["> S 100 t=2", "< SA 500 101 t=2.1", "> A 101 501 t=2.2", "> A 101:hello 501 t=2.3"]

    assert play([*TALK, *again]).count("opened") == 2
    assert play([*TALK, *again, "< A 501:you 106 t=2.4"]).count("opened") == 1


def test_a_view_and_a_connection_come_in_order() -> None:
    assert in_order(parse(["> A 101:ab 501", "< A 501:xy 103", "> A 101:ab 501", "> A 103:c 503", "> A 90 503"]))
    assert not in_order(parse(["> A 103:c 501", "< A 501:xy 103", "> A 101:ab 501"]))
    assert in_order(parse([f"> A {2**32 - 2}:abcd 501", "> A 2:ef 501"]))


STAMP = b"\x08\x0a\0\0\x01\x02\0\0\0\0"
ONE = Talk().handshake().tape.segments[2]


@pytest.mark.parametrize(
    ("options", "ticks"),
    [
        (b"", NO_STAMP),
        (b"\x01\x01" + STAMP, 0x102),
        (STAMP + b"\0\0", 0x102),
        (b"\x02\x04\x05\xb4\x04\x02" + STAMP + b"\x01\x03\x03\x07", 0x102),
        (b"\x01\x01" + STAMP[:9], NO_STAMP),
        (b"\0" + STAMP, NO_STAMP),
        (b"\x08\x08" + bytes(8), NO_STAMP),
        (b"\x05\x00" + STAMP, NO_STAMP),
        (b"\x05", NO_STAMP),
        (bytes(40), NO_STAMP),
    ],
)
def test_the_time_stamp_is_found_among_the_options(options: bytes, ticks: int) -> None:
    assert time_stamp(options) == ticks


def options(ticks: int) -> bytes:
    return b"\x01\x01\x08\x0a" + (ticks % 2**32).to_bytes(4, "big") + bytes(4)


@each(
    "ticks, seconds, other",
    [
        (0, 0, False),
        (1_000, 1, False),
        (1_000_000, 1, False),
        (-5_000, 0, False),
        (1_000, -3_600, False),
        (-20_000, 0, True),
        (20_000, 0, True),
        (2_000_000, 1, True),
        (1 << 31, 60, True),
    ],
)
@each("begin", [50_000, 2**32 - 500, 0])
def test_a_clock_goes_on_as_fast_as_clocks_do(begin: int, ticks: int, seconds: int, other: bool) -> None:
    half = HalfStream(options=options(begin), options_ns=START)
    segment = replace(ONE, options=options(begin + ticks), timestamp_ns=START + seconds * SECOND)

    assert is_other_stack(half, segment) is other


def test_a_connection_has_time_stamps_in_all_segments_or_in_none() -> None:
    with_stamp, without = replace(ONE, options=options(7)), replace(ONE, options=b"")

    assert is_other_stack(HalfStream(options=options(7), options_ns=START), without)
    assert is_other_stack(HalfStream(options=b"", options_ns=START), with_stamp)
    assert not is_other_stack(HalfStream(options=b"", options_ns=START), without)
    assert not is_other_stack(HalfStream(), with_stamp)
    assert not is_other_stack(HalfStream(options=options(7), options_ns=START), replace(without, missing=3))


@pytest.mark.parametrize("flags", [SYN, SYN | ACK])
def test_the_same_syn_has_the_same_time_stamp(flags: int) -> None:
    segment = replace(ONE, flags=flags, options=options(77))

    assert is_same_syn(HalfStream(syn_stamp=77), segment)
    assert not is_other_syn(HalfStream(syn_stamp=77), segment)
    assert is_other_syn(HalfStream(syn_stamp=78), segment)
    assert not is_other_syn(HalfStream(), segment)
    assert not is_same_syn(HalfStream(syn_stamp=0), replace(segment, options=options(0)))

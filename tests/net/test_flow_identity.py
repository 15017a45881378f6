"""Borders of connections between the same endpoints, copies, and clocks of stacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from mqttscope.net.flow import Flow
from mqttscope.net.flow_identity import (
    asks_for_connection,
    beginning_kind,
    begins,
    disowns,
    is_challenge,
    is_early,
    is_syn,
    is_whole,
    known_kind,
    last_beginning,
    plausible_reset,
)
from mqttscope.net.flows import FlowTable
from mqttscope.net.reassembly import HalfStream
from mqttscope.net.segment import Segment, endpoints
from tests.dissect.talk import connect, wire
from tests.each import each
from tests.net.script import BACKWARD, FORWARD, HANDSHAKE, feed, parse, play, script
from tests.tables import cases_of, steps

CONNECTIONS = """
FIN with data
    handshake; > FA 101:bye 501; < FA 501 105 | opened; > 0:bye; > closed fin; < closed fin; closed fin
FIN out of order waits for the data before it
    handshake; > FA 104:def 501; > A 101:abc 501 | opened; > 0:abcdef; > closed fin; closed capture_end
FIN retransmitted
    handshake; > FA 101 501; > FA 101 501; > FA 101 501 | opened; > closed fin; closed capture_end
data before the FIN lost: both directions still end
    handshake; > FA 104 501; < A 501 105; < FA 501 105; > A 105 502 |
    opened; < closed fin; > gap 0+3 not_captured; > closed fin; closed fin
data after the FIN is discarded
    handshake; > FA 101 501; > A 101:more 501; > A 102:more 501 |
    opened; > closed fin; > discarded 4 after_fin; > discarded 4 after_fin; closed capture_end
data beyond a FIN that came early is discarded
    handshake; > FA 104 501; > A 101:abcdef 501 |
    opened; > discarded 3 after_fin; > 0:abc; > closed fin; closed capture_end
FIN in the middle of known data is ignored
    handshake; > A 103:cdef 501; > FA 104 501; > A 101:ab 501 | opened; > 0:abcdef; closed capture_end
reset ends both directions
    handshake; > A 101:abc 501; > RA 104 501 | opened; > 0:abc; > closed reset; < closed reset; closed reset
text in a reset is not data
    handshake; > R 101:reason 0 | opened; > discarded 6 in_reset; > closed reset; < closed reset; closed reset
reset flushes what waits
    handshake; > A 102:bc 501; < R 501 |
    opened; > gap 0+1 unproven; > 1:bc; < closed reset; > closed reset; closed reset
reset flushes what waits on its own side
    handshake; > A 102:bc 501; > R 104 |
    opened; > gap 0+1 unproven; > 1:bc; > closed reset; < closed reset; closed reset
reset before what was acknowledged is ignored
    handshake; > A 101:abc 501; < A 501 104; > R 102; > A 104:def 501 | opened; > 0:abc; > 3:def; closed capture_end
reset outside the window is ignored
    handshake; > R 90000; > R 5; < R 490; > A 101:abc 501 | opened; > 0:abc; closed capture_end
FIN answered by reset
    handshake; > FA 101 501; < R 501 | opened; > closed fin; < closed reset; closed reset
data of one side after a reset does not open the flow again
    handshake; > A 101:abc 501; < R 501; > A 104:def 501; < A 501 104 |
    opened; > 0:abc; < closed reset; > closed reset; closed reset; > discarded 3 after_reset
an acknowledgment of data after a reset opens the flow again
    handshake; > A 101:abc 501; < R 501; > A 104:def 501; < A 501 107 |
    opened; > 0:abc; < closed reset; > closed reset; closed reset; opened; > 0:def; closed capture_end
only a segment with ACK acknowledges data after a reset
    handshake; > A 101:abc 501; < R 501; > A 104:def 501; < - 501 107 |
    opened; > 0:abc; < closed reset; > closed reset; closed reset; > discarded 3 after_reset
the end of the window after a reset
    handshake; > A 101:abc 501; < R 501; > A 104:def 501; < A 501 1048680 |
    opened; > 0:abc; < closed reset; > closed reset; closed reset; opened; > 0:def;
    > gap 3+1048573 not_captured; closed capture_end
beyond the window after a reset
    handshake; > A 101:abc 501; < R 501; > A 104:def 501; < A 501 1048681 |
    opened; > 0:abc; < closed reset; > closed reset; closed reset; > discarded 3 after_reset
connection refused
    > S 100; < RA 0 101 | opened; < closed reset; > closed reset; closed reset
reset that does not acknowledge the SYN is ignored
    > S 100; < RA 0 100; < R 0; < SA 500 101; > A 101 501; > A 101:abc 501 | opened; > 0:abc; closed capture_end
reset of a connection that is not known opens none
    > R 100; < RA 0 5 | nothing
SYN with data (TCP Fast Open)
    > S 100:abc; < SA 500 104; > A 104:def 501 | opened; > 0:abc; > 3:def; closed capture_end
SYN with data that was not taken and sent again
    > S 100:abc; < SA 500 101; > A 101:abcdef 501 | opened; > 0:abc; > 3:def; closed capture_end
SYN and SYN-ACK retransmitted
    > S 100; > S 100; < SA 500 101; < SA 500 101; > A 101:abc 501; > S 100 | opened; > 0:abc; closed capture_end
simultaneous open
    > S 100; < S 500; > SA 100 501; < SA 500 101; > A 101:abc 501; < A 501:xyz 104 |
    opened; > 0:abc; < 0:xyz; closed capture_end
split handshake
    > S 100; < A 400 101; < S 500; > SA 100 501; < A 501:xyz 101 | opened; < 0:xyz; closed capture_end
SYN-ACK captured before the SYN
    < SA 500 101; > S 100; > A 101:abc 501 | opened; > 0:abc; closed capture_end
SYN not captured: the SYN-ACK says where the stream starts
    < SA 500 101; > A 104:def 501; > A 101:abc 501 | opened; > 0:abcdef; closed capture_end
data captured before the SYN
    > A 101:abc 501; > S 100; < SA 500 101; < A 501:xyz 104 | opened; > 0:abc; < 0:xyz; closed capture_end
later data captured before the SYN and earlier data after it
    > A 104:def 501; > S 100; > A 101:abc 501 | opened; > 0:abcdef; closed capture_end
FIN with data captured before the SYN and before earlier data
    > A 101 501; > FA 104:d 501 t=2; > S 100; > A 101:abc 501 | opened; > 0:abcd; > closed fin; closed capture_end
FIN and data captured before a SYN that moves the start back
    > A 103 501; > FA 106:f 501 t=2; > S 100; > A 101:abcde 501 | opened; > 0:abcdef; > closed fin; closed capture_end
FIN without data captured before a SYN that moves the start back
    > A 101 501; > FA 104 501 t=2; > S 98; > A 99:abcde 501 | opened; > 0:abcde; > closed fin; closed capture_end
no handshake, in order
    > A 101:abc 501; > A 104:def 501 | opened; > 0:abc; > 3:def; closed capture_end
no handshake, first two segments swapped
    > A 104:def 501; > A 101:abc 501; > A 107:g 501 | opened; > 0:abcdef; > 6:g; closed capture_end
no handshake, answer swapped
    > A 101:abc 501; < A 504:def 104; < A 501:abc 104; < A 507:g 104 |
    opened; > 0:abc; < 0:abcdef; < 6:g; closed capture_end
no handshake, the answer was under way already: no gap
    > A 101:abc 501; < A 600:xyz 104 t=0.5; < A 603:u 104 | opened; > 0:abc; < 0:xyz; < 3:u; closed capture_end
no handshake, the start of the answer was lost later on
    > A 101:abc 501; < A 600:xyz 104 t=7; > A 104 603 t=7.1; > A 104 603 t=10 |
    opened; > 0:abc; < gap 0+99 not_captured; < 99:xyz; closed capture_end
no handshake, an acknowledgment that has nothing to do with the answer
    > A 101:abc 501; < A 1500000000:xyz 104 t=7; < A 1500000003:u 104 |
    opened; > 0:abc; < 0:xyz; < 3:u; closed capture_end
no handshake, earlier data comes too late
    > A 101:abc 501; > A 104:def 501; > A 91:earlier... 501; > A 107:g 501 |
    opened; > 0:abc; > 3:def; > discarded 10 before_start; > 6:g; closed capture_end
no handshake, keep-alive probe first
    > A 100:~ 501; < A 501 101; > A 101:abc 501 | opened; > 0:abc; closed capture_end
no handshake, a single segment
    > A 101:abc 501 | opened; > 0:abc; closed capture_end
late segments of a closed flow
    connection; > FA 101 501; < FA 501 102; > A 101:late 501 |
    opened; > closed fin; < closed fin; closed fin; > discarded 4 after_close
late copies of the handshake
    connection; > S 100 0; < SA 500 101 | opened; > closed fin; < closed fin; closed fin
a SYN-ACK long after the end answers a SYN that was not captured
    connection; < SA 500 101 t=60 | opened; > closed fin; < closed fin; closed fin; opened; closed capture_end
port reused after the end
    connection; > S 9000; < SA 7000 9001; > A 9001:abc 7001 |
    opened; > closed fin; < closed fin; closed fin; opened; > 0:abc; closed capture_end
port reused after the end with the same sequence numbers
    connection; > S 100 t=60; < SA 500 101; > A 101:abc 501 |
    opened; > closed fin; < closed fin; closed fin; opened; > 0:abc; closed capture_end
refused connection tried again with the same sequence number
    > S 100; < RA 0 101; > S 100 t=0.5; < RA 0 101 |
    opened; < closed reset; > closed reset; closed reset; opened; < closed reset; > closed reset; closed reset
port reused while open
    handshake; > A 102:bc 501; > S 9000; < SA 7000 9001; > A 9001:abc 7001 |
    opened; > gap 0+1 unproven; > 1:bc; closed port_reused; opened; > 0:abc; closed capture_end
port reused in the other direction
    handshake; < S 9000; > SA 7000 9001; < A 9001:abc 7001 |
    opened; closed port_reused; opened; > 0:abc; closed capture_end
port reused, SYN not captured
    handshake; < A 501:abc 101; < SA 7000 9001; > A 9001:abc 7001 |
    opened; < 0:abc; closed port_reused; opened; > 0:abc; closed capture_end
second SYN-ACK for the same SYN is ignored
    handshake; < A 501:abc 101; < SA 7000 101; < A 504:def 101 | opened; < 0:abc; < 3:def; closed capture_end
port reused, first connection joined in the middle
    > A 101:abc 501; < A 501:xyz 104; > S 9000 t=9; < SA 7000 9001; > A 9001:abc 7001 |
    opened; > 0:abc; < 0:xyz; closed port_reused; opened; > 0:abc; closed capture_end
idle for more than three hours
    handshake; > A 101:abc 501 t=7200; > A 104:def 501 t=18001 |
    opened; > 0:abc; closed idle; opened; > 0:def; closed capture_end
a keep-alive probe after two hours
    handshake; > A 101:abc 501; < A 500 104 t=7201; > A 104 501 t=7201; > A 104:def 501 t=7875 |
    opened; > 0:abc; > 3:def; closed capture_end
the capture begins with a keep-alive probe
    < A 500 104; > A 104 501; > A 104:abc 501 t=2; < A 501 107 t=3; < A 501:xyz 107 t=4 |
    opened; > 0:abc; < 0:xyz; closed capture_end
"""


@each("lines, expected", cases_of(CONNECTIONS, script, steps))
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


TALK = [*HANDSHAKE, "> A 101:hello 501", "< A 501:you 106", "> A 106 504"]


def test_a_view_that_stops_halfway_is_a_connection_of_its_own() -> None:
    again = ["> S 100 t=2", "< SA 500 101 t=2.1", "> A 101 501 t=2.2", "> A 101:hello 501 t=2.3"]

    assert play([*TALK, *again]).count("opened") == 2
    assert play([*TALK, *again, "< A 501:you 106 t=2.4"]).count("opened") == 1


CONNECT_BYTES = wire(connect())
CONNECT_3_1 = wire(connect(level=3))
SEGMENT = parse(["> A 101:x 501"])[0]


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (CONNECT_BYTES, "CONNECT"),
        (CONNECT_3_1, "CONNECT"),
        (b"\x10\x80\x80\x80\x01" + CONNECT_BYTES[2:], "CONNECT"),
        (b"\x10\x80\x80\x80\x80\x01" + CONNECT_BYTES[2:], ""),
        (b"\x11" + CONNECT_BYTES[1:], ""),
        (b"\x10\x0c\0\x04MQTS\x04", ""),
        (b"\x20\x02\0\0", "CONNACK"),
        (b"\x20\x02\x01\0", "CONNACK"),
        (b"\x20\x02\x02\0", ""),
        (b"\x20\x01\0\0", ""),
        (b"\x20\x02\0", ""),
        (b"\x16\x03\x01\x02\0\x01", "TLS"),
        (b"\x16\x03\x03\0\x4a\x02", "TLS"),
        (b"\x16\x03\x03\0\x4a\x0b", ""),
        (b"\x16\x03\x03\0\x4a", ""),
        (b"GET /mqtt HTTP/1.1", "HTTP"),
        (b"HTTP/1.1 101 Switching Protocols", "HTTP"),
        (b"HTTP/1.1 200 OK", ""),
        (b"", ""),
    ],
)
def test_the_kind_of_a_beginning(payload: bytes, kind: str) -> None:
    assert beginning_kind(payload) == kind


@pytest.mark.parametrize(
    ("known", "payload", "expected"),
    [
        (CONNECT_BYTES, CONNECT_BYTES, True),
        (CONNECT_BYTES, CONNECT_3_1, True),
        (CONNECT_BYTES, b"GET / HTTP/1.1", False),
        (CONNECT_BYTES, b"\x20\x4e\0\0", False),
        (b"GET / HTTP/1.1", b"GET /other HTTP/1.1", True),
        (b"\xc0\0", CONNECT_BYTES, True),
        (b"\xc0\0", b"\xc0\0", False),
    ],
)
def test_a_beginning_is_of_the_kind_of_the_known_stream(known: bytes, payload: bytes, expected: bool) -> None:
    """If the capture joined a stream in its middle, any kind is one."""
    segment = replace(SEGMENT, payload=payload)

    assert begins(HalfStream(history=[known]), segment) is expected
    assert begins(HalfStream(history=[b"later"], beginning=known), segment) is expected


def test_the_kind_of_a_stream_without_bytes_is_not_known() -> None:
    assert known_kind(HalfStream()) == ""


def test_a_syn_ack_is_no_syn() -> None:
    assert [is_syn(segment) for segment in parse(["> S 100", "< SA 500 101", "> A 101 501"])] == [True, False, False]


def test_a_syn_behind_a_pause_is_a_beginning_among_what_is_kept() -> None:
    assert last_beginning(parse(["< A 501:xy 106", "> S 100 t=1"])) == 1
    assert last_beginning(parse(["< A 501:xy 106", "> S 100"])) == 0


def test_copies_of_an_answer_ask_for_no_connection() -> None:
    flow = feed(FlowTable(), parse(HANDSHAKE))[0].flow

    assert not asks_for_connection(flow, parse(["< A 501:xy 106", "> A 106 503"]))
    assert asks_for_connection(flow, parse(["< SA 500 101"]))


def test_a_view_is_whole_when_it_has_come_as_far_as_the_flow() -> None:
    flow = feed(FlowTable(), parse(TALK))[0].flow

    assert is_whole(flow, parse(TALK))
    assert not is_whole(flow, parse(TALK[:-2]))


DIALOGUE = [*HANDSHAKE, "> A 101:hello 501", "< A 501:you 106"]


def plausible(_: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> bool:
    return plausible_reset(half, peer, segment)


def disowning(_: Flow, half: HalfStream, __: HalfStream, segment: Segment) -> bool:
    return disowns(half, segment)


Judge = Callable[[Flow, HalfStream, HalfStream, Segment], bool]


@pytest.mark.parametrize(
    ("judge", "lines", "line", "expected"),
    [
        # A reset ends a flow with numbers that fit.
        (plausible, DIALOGUE, "> R 106", True),
        (plausible, DIALOGUE, "> R 105", False),
        (plausible, ["> S 100"], "> R 100", True),
        (plausible, ["> S 100"], "> R 101", True),
        (plausible, ["> S 100"], "> R 102", False),
        (plausible, ["> S 100"], "< RA 0 101", True),
        (plausible, ["> S 100"], "< RA 0 102", False),
        (plausible, ["> S 100"], "< R 0", False),
        # A reset after bytes that were not captured comes early.
        (is_early, DIALOGUE, "> RA 106 504", False),
        (is_early, DIALOGUE, "> RA 107 504", True),
        (is_early, DIALOGUE, "> RA 106 505", True),
        (is_early, DIALOGUE, "> RA 999999 504", False),
        # A stack that does not know a connection resets it without an acknowledgment.
        (disowning, [*DIALOGUE, "< A 504 106"], "> R 101", False),
        (disowning, [*DIALOGUE, "< A 504 106"], "> R 106", True),
        (disowning, [*DIALOGUE, "< A 504 106"], "> RA 106 504", False),
        # An acknowledgment of another connection challenges a SYN.
        (is_challenge, ["> S 100"], "< A 900 777", True),
        (is_challenge, ["> S 100"], "< A 900 101", False),
        (is_challenge, ["> S 100"], "< A 900:x 777", False),
        (is_challenge, ["> S 100"], "< RA 900 777", False),
        (is_challenge, HANDSHAKE, "< A 501 777", False),
    ],
)
def test_what_a_segment_says_of_a_flow(judge: Judge, lines: list[str], line: str, expected: bool) -> None:
    table = FlowTable()
    feed(table, parse(lines))
    flow, half, _, _ = table.entry(FORWARD if line.startswith(">") else BACKWARD) or pytest.fail("no flow")
    peer = flow.responder if half is flow.initiator else flow.initiator

    assert judge(flow, half, peer, parse([line])[0]) is expected

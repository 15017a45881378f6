from __future__ import annotations

import contextlib
import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dpkt
import pytest

from mqttscope.net.events import FlowClosed, FlowEvent, FlowOpened, StreamData, StreamGap, StreamOverlap
from mqttscope.net.flows import Flow, FlowTable
from mqttscope.net.segment import ACK, SYN, Segment, direction_key, endpoints, reverse_key
from tests.conftest import ROOT, shared_path
from tests.net.test_reassembly import BACKWARD, FORWARD, HANDSHAKE, check_tiling, feed, parse, play, render

if TYPE_CHECKING:
    from collections.abc import Iterator

CAPTURES = ROOT.parent / "shared" / "captures"
DERIVED = sorted(CAPTURES.glob("derived/*/tcp-*.pcap"))
TORTURE = sorted(CAPTURES.glob("tcp-*/*.pcap*"))
NETWORK_LAYER = {1: dpkt.ethernet.Ethernet, 113: dpkt.sll.SLL, 276: dpkt.sll2.SLL2}


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


CLOSED = [*HANDSHAKE, "> FA 101 501", "< FA 501 102", "> A 102 502"]
CLOSED_EVENTS = ["opened", "> closed fin", "< closed fin", "closed fin"]
END = "closed capture_end"


@pytest.mark.parametrize(
    ("lines", "expected"),
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
            ["opened", "> closed fin", END],
            id="data after the FIN is ignored",
        ),
        pytest.param(
            [*HANDSHAKE, "> FA 104 501", "> A 101:abcdef 501"],
            ["opened", "> 0:abc", "> closed fin", END],
            id="data beyond a FIN that came early is ignored",
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
            ["opened", "> closed reset", "< closed reset", "closed reset"],
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
            id="later data captured before the SYN and earlier data behind it",
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
            ["opened", "> 0:abc", "> 3:def", "> 6:g", END],
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
            CLOSED_EVENTS,
            id="late segments of a closed flow",
        ),
        pytest.param([*CLOSED, "> S 100 0", "< SA 500 101"], CLOSED_EVENTS, id="late copies of the handshake"),
        pytest.param([*CLOSED, "< SA 500 101 t=60"], CLOSED_EVENTS, id="very late copy of the SYN-ACK"),
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
        "SYN right behind data, against the assumption",
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


def test_acknowledgments_of_both_sides_are_kept_as_stream_offsets() -> None:
    lines = [*HANDSHAKE, "> A 101:abc 501", "< A 501:xyz 103", "> FA 104 504", "< A 504 105"]
    flow = feed(FlowTable(), parse(lines))[0].flow

    assert flow.initiator.acknowledged == 4
    assert flow.responder.acknowledged == 3


def test_an_old_acknowledgment_does_not_take_back_a_newer_one() -> None:
    flow = feed(FlowTable(), parse([*HANDSHAKE, "> A 101:abc 501", "< A 501 104", "< A 501 102"]))[0].flow

    assert flow.initiator.acknowledged == 3


def test_what_was_ignored_is_counted() -> None:
    table = FlowTable()
    lines = [*HANDSHAKE, "> S 100", "> R 90000", "< A 501 200000000", "> FA 101 501", "> FA 101 501", "> A 102:xyz 501"]
    half = feed(table, parse(lines))[0].flow.initiator

    assert (half.ignored_syns, half.ignored_resets, half.implausible_acknowledgments) == (1, 1, 1)
    assert (half.ignored_fins, half.after_end_bytes) == (1, 3)


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
    assert (closing.frame, closing.timestamp_ns) == (4, 0)


def test_a_hole_is_given_up_in_time_though_its_flow_is_silent() -> None:
    table = FlowTable()
    feed(table, parse([*HANDSHAKE, "> A 102:bc 501", "< A 501 104"]))

    assert not [event for event in feed(table, [other_flow(1, 1.9)]) if isinstance(event, StreamGap)]
    assert [render(event) for event in feed(table, [other_flow(1, 2.5)])] == ["> gap 0+1 not_captured", "> 1:bc"]


def test_a_held_start_is_released_in_time_though_its_flow_is_silent() -> None:
    table = FlowTable()
    assert [render(event) for event in feed(table, parse(["> A 101:abc 501"]))] == ["opened"]
    assert [render(event) for event in feed(table, [other_flow(1, 0.5)])] == ["> 0:abc", "opened"]


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


def test_closed_flows_are_forgotten_after_a_while() -> None:
    table = FlowTable()
    feed(table, [*parse([*HANDSHAKE, "> A 101:abc 501", "> FA 104 501", "< FA 501 105"]), other_flow(1, 100)])
    assert table.flows[FORWARD].closed == "fin"
    assert not table.flows[FORWARD].initiator.history

    feed(table, [other_flow(1, 200)])
    assert FORWARD not in table.flows


def test_an_older_capture_may_follow_a_newer_one() -> None:
    table = FlowTable()
    feed(table, [other_flow(1, 1_000_000)])
    events = feed(table, [*parse([*HANDSHAKE, "> A 102:bc 501", "< A 501 104"]), other_flow(2, 3)])

    assert [render(event) for event in events] == ["opened", "> gap 0+1 not_captured", "> 1:bc", "opened"]


def test_all_buffers_together_are_limited() -> None:
    table = FlowTable(max_total_buffered_bytes=25)
    events = feed(table, [other_flow(number, 0) for number in range(4)])
    events += feed(table, [other_flow(number, 0, b"x" * 10, 200) for number in range(4)])

    assert [event.flow.first_frame for event in events if isinstance(event, StreamGap)] == [2, 3]
    assert (table.buffered_bytes, table.total_limit_hits) == (20, 2)
    check_tiling([*events, *table.close()])


def test_a_connection_of_an_endpoint_with_itself_does_no_harm() -> None:
    key = direction_key(bytes([10, 0, 0, 1] * 2), (1883).to_bytes(2, "big") * 2)
    assert reverse_key(key) == key

    table = FlowTable()
    segments = [
        Segment(key, 100, 0, SYN, 1000, b"", 0, 1, 0, "c"),
        Segment(key, 100, 101, SYN | ACK, 1000, b"", 0, 2, 0, "c"),
        Segment(key, 101, 101, ACK, 1000, b"abc", 0, 3, 0, "c"),
    ]
    check_tiling([*feed(table, segments), *table.close()])
    assert not table.flows


def test_a_flow_goes_on_in_another_table() -> None:
    first, second = FlowTable(), FlowTable()
    segments = parse([*HANDSHAKE, "> A 103:cd 501", "< A 501 105", "> A 101:ab 501", "> FA 105 501"])
    events = feed(first, segments[:4])
    flow: Flow = events[0].flow
    second.adopt(flow)
    events += feed(second, segments[4:])

    assert [render(event) for event in events] == ["opened", "> 0:abcd", "> closed fin"]
    assert second.buffered_bytes == 0


def test_the_context_belongs_to_the_layer_above() -> None:
    table = FlowTable()
    flow = feed(table, parse(HANDSHAKE))[0].flow
    assert flow.context is None

    flow.context = "mine"
    (event,) = feed(table, parse(["> A 101:abc 501"]))
    assert event.flow.context == "mine"


def read_segments(path: Path) -> Iterator[Segment]:
    """The TCP segments of a capture as dpkt sees them."""
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        records: list[tuple[int, bytes]] = []
        with contextlib.suppress(ValueError, dpkt.Error):
            reader = dpkt.pcap.UniversalReader(file)
            records.extend((round(float(timestamp) * 1e9), data) for timestamp, data in reader)
        for number, (timestamp_ns, data) in enumerate(records, 1):
            try:
                layer = NETWORK_LAYER.get(reader.datalink(), dpkt.ip.IP)(data)
            except dpkt.Error:
                continue
            while not isinstance(layer, (dpkt.ip.IP, dpkt.ip6.IP6, bytes)):
                layer = layer.data
            if isinstance(layer, bytes) or not isinstance(layer.data, dpkt.tcp.TCP):
                continue
            tcp = layer.data
            if isinstance(layer, dpkt.ip.IP):
                length = layer.len - layer.hl * 4 - tcp.off * 4
            else:
                length = layer.plen - tcp.off * 4
            payload = bytes(tcp.data)[: max(0, length)]
            key = direction_key(layer.src + layer.dst, tcp.sport.to_bytes(2, "big") + tcp.dport.to_bytes(2, "big"))
            missing = max(0, length - len(payload))
            where = (number, timestamp_ns, path.name)
            yield Segment(key, tcp.seq, tcp.ack, tcp.flags, tcp.win, payload, missing, *where)


def run(path: Path) -> list[FlowEvent]:
    table = FlowTable()
    events = feed(table, list(read_segments(path)))
    events.extend(table.close())
    check_tiling(events)
    assert table.buffered_bytes == 0
    assert not table.flows
    return events


def streams(events: list[FlowEvent]) -> list[tuple[str, bytes]]:
    """Direction and content of every stream, with a byte of FF for each one lost."""
    contents: dict[tuple[int, str], bytes] = defaultdict(bytes)
    for event in events:
        if isinstance(event, FlowOpened):
            contents[id(event.flow), "c2s"] += b""
            contents[id(event.flow), "s2c"] += b""
        elif isinstance(event, (StreamData, StreamGap)):
            data = event.data if isinstance(event, StreamData) else b"\xff" * event.length
            contents[id(event.flow), "c2s" if event.from_initiator else "s2c"] += data
    return sorted((direction, data) for (_, direction), data in contents.items())


def truth(path: Path) -> list[tuple[str, bytes]]:
    entries = json.loads(path.with_name("truth.json").read_text())
    return sorted((entry["direction"], bytes.fromhex("".join(entry["packets"]))) for entry in entries)


def test_the_shared_captures_are_found() -> None:
    shared_path("captures")
    assert len(DERIVED) >= 40
    assert len(TORTURE) >= 100


@pytest.mark.parametrize("path", [p for p in DERIVED if "lost" not in p.name], ids=name_of)
def test_real_streams_come_out_whole_however_they_were_cut_and_mixed(path: Path) -> None:
    events = run(path)

    assert streams(events) == truth(path)
    assert not [event for event in events if isinstance(event, (StreamGap, StreamOverlap))]


@pytest.mark.parametrize("path", [p for p in DERIVED if "lost" in p.name], ids=name_of)
def test_a_lost_segment_of_a_real_stream_is_a_proven_gap_of_its_length(path: Path) -> None:
    events = run(path)
    gaps = [event for event in events if isinstance(event, StreamGap)]

    assert {gap.reason for gap in gaps} == {"not_captured"}
    found = streams(events)
    assert [(direction, len(data)) for direction, data in found] == [(way, len(data)) for way, data in truth(path)]
    lost = 0
    for (_, data), (_, wanted) in zip(found, truth(path), strict=True):
        different = [at for at, (one, other) in enumerate(zip(data, wanted, strict=True)) if one != other]
        lost += len(different)
        assert all(data[at] == 0xFF for at in different)
    assert 0 < lost <= sum(gap.length for gap in gaps)


@pytest.mark.parametrize("path", TORTURE, ids=name_of)
def test_strange_captures_never_raise_and_keep_the_laws(path: Path) -> None:
    run(path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tcp-zeek/tcp__handshake-reorder.pcap", [("c2s", 136, 0), ("s2c", 5007, 0)]),
        ("tcp-zeek/tcp__miss_end_data.pcap", [("c2s", 538, 0), ("s2c", 2902, 2902)]),
        ("tcp-suricata-verify/leading-gap.pcap", [("c2s", 12, 4), ("s2c", 0, 0)]),
        ("tcp-suricata-verify/rst-with-data.pcap", [("c2s", 0, 0), ("s2c", 17, 0)]),
        ("tcp-zeek/tcp__rst-inject-rae.pcap", [("c2s", 25, 0), ("s2c", 0, 0)]),
        ("tcp-suricata-verify/split-handshake-5whs.pcap", [("c2s", 4, 0), ("s2c", 0, 0)]),
    ],
)
def test_known_captures(name: str, expected: list[tuple[str, int, int]]) -> None:
    events = run(shared_path("captures", name))
    lost = {"c2s": 0, "s2c": 0}
    for event in events:
        if isinstance(event, StreamGap):
            lost["c2s" if event.from_initiator else "s2c"] += event.length

    assert [(direction, len(data), lost[direction]) for direction, data in streams(events)] == expected

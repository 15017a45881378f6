"""Second views of connections: segments that repeat an ended connection."""

from __future__ import annotations

import pytest

from mqttscope.net.flow import Flow
from mqttscope.net.flows import FlowTable
from mqttscope.net.tap_views import VIEW_NS, differs, in_order, repeat_past, repeats, viewable_flows
from tests.net.script import FORWARD, HANDSHAKE, feed, parse

TALK = [*HANDSHAKE, "> A 101:hello 501", "< A 501:you 106", "> A 106 504"]


def flow_of(lines: list[str]) -> Flow:
    table = FlowTable()
    feed(table, parse(lines))
    direction = table.entry(FORWARD)
    assert direction is not None
    return direction[0]


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

    assert [ended.key for ended in viewable_flows(flow, flow.last_timestamp_ns + VIEW_NS)] == [FORWARD]
    assert viewable_flows(flow, flow.last_timestamp_ns + VIEW_NS + 1) == []


def test_all_segments_have_to_repeat_past_and_the_same() -> None:
    flow = flow_of(TALK)
    later = Flow(FORWARD, True, 0, 1, "a", 0, 1, "a", past=viewable_flows(flow, flow.last_timestamp_ns))

    assert repeat_past(later, parse(TALK))
    assert not repeat_past(later, parse([*TALK, "> A 106:more 504"]))


def test_the_beginning_of_a_stream_is_remembered_however_much_follows() -> None:
    lines = [*HANDSHAKE, *(f"> A {101 + 5 * number}:{number:05} 501" for number in range(40))]
    half = flow_of(lines).initiator

    assert not differs(half, 0, b"0000000001")
    assert differs(half, 0, b"0000000002")
    assert differs(half, 3, b"02")


def test_a_view_and_a_connection_come_in_order() -> None:
    assert in_order(parse(["> A 101:ab 501", "< A 501:xy 103", "> A 101:ab 501", "> A 103:c 503", "> A 90 503"]))
    assert not in_order(parse(["> A 103:c 501", "< A 501:xy 103", "> A 101:ab 501"]))
    assert in_order(parse([f"> A {2**32 - 2}:abcd 501", "> A 2:ef 501"]))

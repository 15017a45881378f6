"""What SYN and RST segments do to a flow."""

from __future__ import annotations

import pytest

from mqttscope.net.flows import FlowTable
from mqttscope.net.reassembly import HalfStream
from mqttscope.net.tcp_control import disowns, is_challenge, is_early, plausible_reset
from tests.net.script import BACKWARD, FORWARD, HANDSHAKE, feed, parse

TALK = [*HANDSHAKE, "> A 101:hello 501", "< A 501:you 106"]


def sides(lines: list[str], last: str) -> tuple[FlowTable, HalfStream, HalfStream]:
    """A table that has read lines, the direction of the last one, and the other direction."""
    table = FlowTable()
    feed(table, parse(lines))
    flow, half, _ = table.direction(FORWARD if last.startswith(">") else BACKWARD) or pytest.fail("no flow")
    return table, half, flow.responder if half is flow.initiator else flow.initiator


@pytest.mark.parametrize(
    ("lines", "line", "plausible"),
    [
        (TALK, "> R 106", True),
        (TALK, "> R 105", False),
        (TALK, f"> R {106 + 65_535}", True),
        (TALK, f"> R {106 + 65_536}", False),
        (["> S 100"], "> R 100", True),
        (["> S 100"], "> R 101", True),
        (["> S 100"], "> R 102", False),
        (["> S 100"], "< RA 0 101", True),
        (["> S 100"], "< RA 0 102", False),
        (["> S 100"], "< R 0", False),
    ],
)
def test_a_reset_ends_a_flow_with_numbers_that_fit(lines: list[str], line: str, plausible: bool) -> None:
    _, half, peer = sides(lines, line)

    assert plausible_reset(half, peer, parse([line])[0]) is plausible


@pytest.mark.parametrize(
    ("line", "early"),
    [
        ("> RA 106 504", False),
        ("> RA 107 504", True),
        ("> RA 106 505", True),
        ("> RA 999999 504", False),
    ],
)
def test_a_reset_after_bytes_that_were_not_captured_comes_early(line: str, early: bool) -> None:
    table, half, peer = sides(TALK, line)
    flow = next(iter(table.flows.values()))

    assert is_early(flow, half, peer, parse([line])[0]) is early


@pytest.mark.parametrize(("line", "expected"), [("> R 101", False), ("> R 106", True), ("> RA 106 504", False)])
def test_a_stack_that_does_not_know_a_connection_resets_it_without_an_acknowledgment(line: str, expected: bool) -> None:
    _, half, _ = sides([*TALK, "< A 504 106"], line)

    assert disowns(half, parse([line])[0]) is expected


@pytest.mark.parametrize(
    ("lines", "line", "expected"),
    [
        (["> S 100"], "< A 900 777", True),
        (["> S 100"], "< A 900 101", False),
        (["> S 100"], "< A 900:x 777", False),
        (["> S 100"], "< RA 900 777", False),
        (HANDSHAKE, "< A 501 777", False),
    ],
)
def test_an_acknowledgment_of_another_connection_challenges_a_syn(lines: list[str], line: str, expected: bool) -> None:
    table, half, peer = sides(lines, line)

    assert is_challenge(next(iter(table.flows.values())), half, peer, parse([line])[0]) is expected

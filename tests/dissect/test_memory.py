"""What the dissector keeps, and that all of it is plain data."""

from __future__ import annotations

import dataclasses
from enum import Enum

import pytest

from mqttscope.dissect import Dissector
from mqttscope.dissect.flow_state import Over
from mqttscope.events import (
    ConnectionClosed,
)
from mqttscope.net.flow import FlowClosed
from mqttscope.net.flow_expiry import LINGER_NS
from tests.dissect.scenes import mixed_tape, opened, parts
from tests.dissect.talk import (
    SECOND,
    Talk,
    Tape,
    connect,
)


def test_flows_with_all_that_hangs_on_them_are_plain_data() -> None:
    tape = mixed_tape()
    dissector = Dissector()
    half = len(tape.segments) - 8
    for segment in tape.segments[:half]:
        list(dissector.feed(segment))

    assert len(dissector.flows.flows) == 5
    for flow in dissector.flows.flows.values():
        for path, value in parts(flow):
            plain = value is None or type(value) in (int, str, bytes, bool, list, dict, tuple, bytearray)
            assert plain or isinstance(value, Enum) or dataclasses.is_dataclass(value), f"{path} is a {type(value)}"


@pytest.mark.slow
def test_many_short_connections_do_not_let_the_tables_grow() -> None:
    """Thirty thousand flows of all kinds, two a second."""
    dissector = Dissector()
    largest = 0
    reported = 0
    tape = Tape()
    for number in range(30_000):
        talk = Talk(tape, (1883, 9999, 22, 8883)[number % 4], 10_000 + number % 20_000)
        talk.position = {"client": 1000 + number * 7919, "server": 5000 + number * 104_729}
        if number % 4 == 2:
            talk.handshake()
            talk.client(b"SSH-2.0-x\r\n")
            talk.reset("server")
        elif number % 8 == 0:
            talk.handshake()
            talk.client(connect())
            talk.close()
        else:
            talk.refused()
        for segment in tape.segments:
            for event in dissector.feed(segment):
                reported += isinstance(event, ConnectionClosed)
        tape.segments.clear()
        tape.wait(0.5)
        if number % 1000 == 0:
            largest = max(largest, len(dissector.flows.flows))

    assert reported == 7_500
    assert largest < 3 * 2 * LINGER_NS // SECOND
    for flow in dissector.flows.flows.values():
        assert flow.context is None or isinstance(flow.context, Over)
    assert list(dissector.close()) == []
    assert not dissector.flows.flows
    assert dissector.flows.buffered_bytes == 0
    assert (dissector.connections, dissector.other_flows) == (7_500, 22_500)


def test_a_closed_flow_lets_go_of_its_dialogue_even_when_nobody_reads_on() -> None:
    talk = opened()
    talk.close()
    dissector = Dissector()
    for segment in talk.tape.segments[:-3]:
        list(dissector.feed(segment))
    closing = [event for segment in talk.tape.segments[-3:] for event in dissector.flows.feed(segment)]

    (end,) = [event for event in closing if isinstance(event, FlowClosed)]
    for event in closing:
        list(dissector._handle(event))

    over = end.flow.context
    assert isinstance(over, Over)
    assert over.connection.history is None
    assert not over.connection.details

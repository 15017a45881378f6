"""Mutated flows as captures."""

from __future__ import annotations

from itertools import count

from mqttscope.broker_test.synthetic_capture import case_frames, client_of
from mqttscope.dissect import dissect
from mqttscope.events import ConnectionClosed, MalformedEvent, PacketEvent
from tests.broker_test.flows import make_case, script


def test_a_flow_is_a_whole_connection() -> None:
    case = make_case("publish:qos-3", script())
    frames = [made.frame for made in case_frames(case, 0, 1_000, count(1).__next__)]
    events = list(dissect(frames))

    assert [one.number for one in frames] == list(range(1, len(frames) + 1))
    assert sum(isinstance(one, MalformedEvent) for one in events) == 1
    assert sum(isinstance(one, ConnectionClosed) for one in events) == 1
    answers = [one for one in events if isinstance(one, PacketEvent) and one.direction == "server_to_client"]
    assert answers


def test_what_is_new_is_answered() -> None:
    case = make_case("flow:every-packet-type", script())
    types = {
        one.packet.packet_type.name
        for one in dissect(made.frame for made in case_frames(case, 0, 1_000, count(1).__next__))
        if isinstance(one, PacketEvent)
    }

    assert {"PUBACK", "PUBREC", "PUBCOMP", "SUBACK", "UNSUBACK", "PINGRESP"} <= types


def test_pauses_and_endings_are_kept() -> None:
    case = make_case("flow:nothing-after-connect", script())
    times = [made.frame.timestamp_ns for made in case_frames(case, 0, 0, count(1).__next__)]
    reset = list(
        dissect(made.frame for made in case_frames(make_case("flow:reset", script()), 0, 0, count(1).__next__))
    )

    assert times == sorted(times)
    closed = next(one for one in reset if isinstance(one, ConnectionClosed))
    assert closed.connection.closed_how == "reset"


def test_every_connection_has_an_endpoint_of_its_own() -> None:
    assert len({client_of(index) for index in range(0, 40_000, 8)}) == 5_000

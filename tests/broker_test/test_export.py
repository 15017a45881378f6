"""Mutated flows as captures, and as lines for a shell, which send the bytes whatever shell it is."""

from __future__ import annotations

import socket
import subprocess
from dataclasses import replace
from itertools import count

import pytest

from mqttscope.broker_test.export import MAX_PRINTF, case_frames, client_of, shell_line
from mqttscope.dissect import dissect
from mqttscope.events import ConnectionClosed, MalformedEvent, PacketEvent
from mqttscope.mutate import Action, MutatedFlow, Step
from mqttscope.transport.target import parse_broker
from tests import tools
from tests.broker_test.flows import V5, make_case, script, target


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


def flow(*steps: Step) -> MutatedFlow:
    return MutatedFlow("x", "client", V5, list(steps))


def sent_by(line: str) -> bytes:
    """What the line sends, with nc left out."""
    quick = line.rpartition(" | nc ")[0].replace("sleep 1", "true").replace("sleep 0.3", "true")
    return subprocess.run(["sh", "-c", quick], capture_output=True, check=True).stdout


def test_every_byte_arrives() -> None:
    data = bytes(range(256))
    line = shell_line(flow(Step(Action.SEND, data), Step(Action.AWAIT), Step(Action.SEND, b"%s\\'")), target(1883))

    assert sent_by(line) == data + b"%s\\'"
    assert line.endswith("| nc -w 2 127.0.0.1 1883 | xxd")
    assert "\n" not in line


def test_a_ping_comes_last_where_it_is_to_show_that_the_connection_goes_on() -> None:
    assert sent_by(shell_line(flow(Step(Action.SEND, b"\x10")), target(1883), fenced=True)) == b"\x10\xc0\x00"


def test_long_packets_go_through_xxd() -> None:
    line = shell_line(flow(Step(Action.SEND, b"a" * (MAX_PRINTF + 1))), target(1883))

    assert "xxd -r -p" in line


def test_nc_speaks_no_tls_and_no_websocket() -> None:
    for url in ("mqtts://127.0.0.1", "ws://127.0.0.1"):
        assert shell_line(flow(Step(Action.SEND, b"\x10")), parse_broker(url)) == ""


def test_pauses_are_kept() -> None:
    step = replace(Step(Action.PAUSE), nanoseconds=1_500_000_000)

    assert "sleep 1.5" in shell_line(flow(step), target(1883))


def pause(seconds: float) -> Step:
    return replace(Step(Action.PAUSE), nanoseconds=int(seconds * 1e9))


def idle(line: str) -> int:
    """How long nc waits for more."""
    return int(line.partition("-w ")[2].split()[0])


def test_nc_is_more_patient_than_the_longest_silence() -> None:
    send, wait = Step(Action.SEND, b"\x10"), Step(Action.AWAIT)

    assert idle(shell_line(flow(send, wait, send), target(1883))) == 2
    assert idle(shell_line(flow(send, pause(6), wait, pause(2), send), target(1883), fenced=True)) == 10
    assert idle(shell_line(flow(send, *[wait] * 20, send), target(1883))) == 7
    assert idle(shell_line(flow(send, pause(3), send, pause(3), send), target(1883))) == 4
    assert idle(shell_line(flow(send, pause(3)), target(1883))) == 5


def test_what_nc_can_do_of_ends() -> None:
    send = Step(Action.SEND, b"\x10")

    assert shell_line(flow(send, Step(Action.RESET)), target(1883)) == ""
    assert shell_line(flow(send, Step(Action.STOP_READING), send), target(1883)) == ""
    assert shell_line(flow(send, Step(Action.HALF_CLOSE), send), target(1883)) == ""
    half = shell_line(flow(send, Step(Action.HALF_CLOSE), pause(4)), target(1883))
    assert half == "{ printf '\\020'; } | nc -N -w 5 127.0.0.1 1883 | xxd"


@pytest.mark.long
def test_the_line_of_a_long_silence_shows_the_answer() -> None:
    """A broker that answers PINGREQ after a silence of three seconds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        line = shell_line(flow(Step(Action.SEND, b"\x10"), pause(3)), target(listener.getsockname()[1]), fenced=True)
        tools.program("nc")
        tools.program("xxd")
        with subprocess.Popen(["sh", "-c", line], stdout=subprocess.PIPE, text=True) as process:
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(1) == b"\x10"
                assert connection.recv(2) == b"\xc0\x00"
                connection.sendall(b"\xd0\x00")
                connection.shutdown(socket.SHUT_WR)
                out, _ = process.communicate(timeout=30)
    assert "d000" in out

"""Mutated flows as captures, and as lines for a shell, which send the bytes whatever shell it is."""

from __future__ import annotations

import socket
import subprocess
from itertools import count

import pytest

from mqttscope.broker_test.export import case_frames, client_of, shell_line
from mqttscope.dissect import dissect
from mqttscope.events import ConnectionClosed, MalformedEvent, PacketEvent
from mqttscope.mutate import Action, FlowStep, MutatedFlow
from mqttscope.net.frame import Frame
from mqttscope.transport.target import parse_broker
from tests import tools
from tests.broker_test.flows import V5, make_case, script, target
from tests.each import each


def frames_of(name: str, start_ns: int = 1_000) -> list[Frame]:
    """The frames of a mutation of a connection."""
    return [case_frame.frame for case_frame in case_frames(make_case(name, script()), 0, start_ns, count(1).__next__)]


def test_a_flow_is_a_whole_connection() -> None:
    frames = frames_of("publish:qos-3")
    events = list(dissect(frames))

    assert [frame.number for frame in frames] == list(range(1, len(frames) + 1))
    assert sum(isinstance(event, MalformedEvent) for event in events) == 1
    assert sum(isinstance(event, ConnectionClosed) for event in events) == 1
    assert [event for event in events if isinstance(event, PacketEvent) and event.direction == "server_to_client"]


def test_what_is_new_is_answered() -> None:
    events = dissect(frames_of("flow:every-packet-type"))
    types = {event.packet.packet_type.name for event in events if isinstance(event, PacketEvent)}

    assert {"PUBACK", "PUBREC", "PUBCOMP", "SUBACK", "UNSUBACK", "PINGRESP"} <= types


def test_pauses_and_endings_are_kept() -> None:
    times = [frame.timestamp_ns for frame in frames_of("flow:nothing-after-connect", 0)]
    assert times == sorted(times)

    (closed,) = [event for event in dissect(frames_of("flow:reset", 0)) if isinstance(event, ConnectionClosed)]
    assert closed.connection.closed_how == "reset"


def test_every_connection_has_an_endpoint_of_its_own() -> None:
    assert len({client_of(index) for index in range(0, 40_000, 8)}) == 5_000


def line_of(*steps: FlowStep, with_ping: bool = False, port: int = 1883) -> str:
    """The line for a shell that takes these steps."""
    return shell_line(MutatedFlow("x", "client", V5, list(steps)), target(port), with_ping=with_ping)


def pause(seconds: float) -> FlowStep:
    return FlowStep(Action.PAUSE, nanoseconds=int(seconds * 1e9))


def sent_by(line: str) -> bytes:
    """What the line sends, with nc left out."""
    quick = line.rpartition(" | nc ")[0].replace("sleep 1", "true").replace("sleep 0.3", "true")
    return subprocess.run(["sh", "-c", quick], capture_output=True, check=True).stdout


SEND, WAIT = FlowStep(Action.SEND, b"\x10"), FlowStep(Action.AWAIT)


def test_every_byte_arrives() -> None:
    data = bytes(range(256))
    line = line_of(FlowStep(Action.SEND, data), WAIT, FlowStep(Action.SEND, b"%s\\'"))

    assert sent_by(line) == data + b"%s\\'"
    assert line.endswith("| nc -w 2 127.0.0.1 1883 | xxd")
    assert "\n" not in line


def test_a_ping_comes_last_where_it_is_to_show_that_the_connection_goes_on() -> None:
    assert sent_by(line_of(SEND, with_ping=True)) == b"\x10\xc0\x00"


def test_nc_speaks_no_tls_and_no_websocket() -> None:
    for url in ("mqtts://127.0.0.1", "ws://127.0.0.1"):
        assert shell_line(MutatedFlow("x", "client", V5, [SEND]), parse_broker(url)) == ""


def test_pauses_are_kept() -> None:
    assert "sleep 1.5" in line_of(pause(1.5))


@each(
    "line, seconds",
    [
        (line_of(SEND, WAIT, SEND), 2),
        (line_of(SEND, pause(6), WAIT, pause(2), SEND, with_ping=True), 10),
        (line_of(SEND, *[WAIT] * 20, SEND), 7),
        (line_of(SEND, pause(3), SEND, pause(3), SEND), 4),
        (line_of(SEND, pause(3)), 5),
    ],
)
def test_nc_is_more_patient_than_the_longest_silence(line: str, seconds: int) -> None:
    assert int(line.partition("-w ")[2].split()[0]) == seconds


def test_what_nc_can_do_of_ends() -> None:
    assert line_of(SEND, FlowStep(Action.RESET)) == ""
    assert line_of(SEND, FlowStep(Action.STOP_READING), SEND) == ""
    assert line_of(SEND, FlowStep(Action.HALF_CLOSE), SEND) == ""
    half = line_of(SEND, FlowStep(Action.HALF_CLOSE), pause(4))
    assert half == "{ printf '\\020'; } | nc -N -w 5 127.0.0.1 1883 | xxd"


@pytest.mark.long
def test_the_line_of_a_long_silence_shows_the_answer() -> None:
    """A broker that answers PINGREQ after a silence of three seconds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        line = line_of(SEND, pause(3), with_ping=True, port=listener.getsockname()[1])
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

"""Both ends on transports that only note what is asked of them."""

from __future__ import annotations

from typing import Any

import pytest

from mqttscope.mqtt import Connect, ProtocolVersion, encode
from mqttscope.net.segment import ACK, FIN, PSH, RST, SYN
from mqttscope.proxy.pair import HALF_CLOSED_S, HIGH_WATER_BYTES, MAX_HEAD_BYTES, FirstPacket, ProxiedConnection
from mqttscope.transport import sockets
from mqttscope.transport.recording import Recording
from mqttscope.transport.websocket import frame
from mqttscope.transport.wire import FramedSegment
from tests.transport.linking import Transport
from tests.transport.wires import V4


class Kept(Recording):
    """Keeps the frames."""

    framed: list[FramedSegment]

    def write(self, result: Any) -> None:
        self.framed = [*getattr(self, "framed", []), *result]

    @property
    def flags(self) -> list[int]:
        return [framed_segment.segment.flags for framed_segment in self.framed]


class Clock:
    """The part of an event loop that counts time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[tuple[float, Handle]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Any, *arguments: Any) -> Handle:
        handle = Handle(call, arguments)
        self.calls.append((self.now + seconds, handle))
        return handle

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        for due in [pair for pair in self.calls if pair[0] <= self.now]:
            self.calls.remove(due)
            if not due[1].cancelled:
                due[1].call(*due[1].arguments)


class Handle:
    """A call that may be cancelled."""

    def __init__(self, call: Any, arguments: tuple[Any, ...]) -> None:
        self.call, self.arguments, self.cancelled = call, arguments, False

    def cancel(self) -> None:
        self.cancelled = True


class Scene:
    """A pair with transports, whose ends have five seconds for their first packets."""

    def __init__(self, *, tls: bool = False, early: bytes = b"", joined: bool = True) -> None:
        """``early``: said by the client before the broker is connected."""
        self.clock, self.notes = Clock(), list[str]()
        self.recording = Kept("it")
        self.dirty: list[ProxiedConnection] = []
        self.pair = ProxiedConnection(
            self.recording.wire(*V4),
            self.recording,
            self.dirty.append,
            loop=self.clock,  # type: ignore[arg-type]
            patience_s=5,
            note=self.notes.append,
        )
        self.client, self.server = Transport(tls=tls), Transport(tls=tls)
        self.pair.client.connection_made(self.client)
        if early:
            self.pair.client.data_received(early)
        if joined:
            self.join()

    def join(self) -> None:
        self.pair.server.connection_made(self.server)
        self.pair.join()

    @property
    def given_up(self) -> bool:
        return "abort" in self.client.asked and "abort" in self.server.asked

    def acknowledged(self) -> int:
        """What the last frame acknowledges."""
        return self.recording.framed[-1].segment.acknowledgment - self.recording.framed[0].segment.sequence - 1


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_client_is_read_once_its_broker_is_there(scene: Scene) -> None:
    assert scene.client.high_water_bytes == scene.server.high_water_bytes == HIGH_WATER_BYTES
    assert scene.client.asked == ["pause", "resume"]
    assert scene.server.asked == []
    assert scene.recording.flags == [SYN, SYN | ACK, ACK]


def test_bytes_are_recorded_and_forwarded(scene: Scene) -> None:
    scene.pair.client.data_received(b"hello")
    scene.pair.server.data_received(b"you")

    assert (scene.server.written, scene.client.written) == (b"hello", b"you")
    assert scene.recording.flags[3:] == [PSH | ACK] * 2
    assert scene.acknowledged() == 5
    assert scene.dirty == [scene.pair]
    assert not scene.pair.acknowledge()
    assert scene.recording.flags[5:] == [ACK]


@pytest.mark.parametrize(("tls", "known"), [(False, 2), (True, 0)])
def test_what_a_side_has_not_taken_is_not_acknowledged(tls: bool, known: int) -> None:
    """Inside TLS all or nothing is known."""
    scene = Scene(tls=tls)
    scene.pair.client.data_received(b"hello")
    scene.server.waiting = 3
    scene.pair.server.data_received(b"a")
    assert scene.acknowledged() == known
    assert scene.pair.acknowledge()
    scene.server.waiting = 0
    scene.pair.server.data_received(b"b")
    assert scene.acknowledged() == 5


def test_what_was_said_before_is_no_answer(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's bytes had arrived when the client's were sent on, but are read only now."""
    scene.pair.client.data_received(b"first")
    unread = 7
    monkeypatch.setattr(sockets, "bytes_unread", lambda _: unread)
    scene.pair.client.data_received(b"second")
    unread = 0
    scene.pair.server.data_received(b"crossed")
    assert scene.acknowledged() == len(b"first")
    scene.pair.server.data_received(b"answer")
    assert scene.acknowledged() == len(b"firstsecond")


def test_a_side_that_does_not_take_its_bytes_stops_the_other(scene: Scene) -> None:
    scene.pair.server.pause_writing()
    scene.pair.server.resume_writing()
    assert scene.client.asked[2:] == ["pause", "resume"]
    scene.pair.client.finish()
    scene.pair.server.pause_writing()
    scene.pair.server.resume_writing()
    assert scene.client.asked[4:] == []


def test_a_half_is_closed_and_then_the_other(scene: Scene) -> None:
    assert scene.pair.client.eof_received() is True
    assert scene.server.asked == ["eof"]
    assert scene.client.asked == ["pause", "resume"]
    assert scene.pair.server.eof_received() is True
    assert scene.client.asked[2:] == ["close"]
    assert scene.server.asked == ["eof", "close"]
    for end in (scene.pair.server, scene.pair.client):
        end.connection_lost(None)
    assert scene.pair.gone.is_set()
    assert scene.recording.flags[3:] == [FIN | ACK, FIN | ACK, ACK, ACK]


def test_tls_knows_no_halves() -> None:
    scene = Scene(tls=True)
    assert scene.pair.client.eof_received() is False
    assert scene.server.asked == ["close"]
    scene.pair.client.connection_lost(None)
    scene.pair.server.connection_lost(None)
    assert scene.recording.flags[3:] == [FIN | ACK, FIN | ACK, ACK, ACK]


def test_a_reset_is_passed_on(scene: Scene) -> None:
    scene.pair.server.connection_lost(ConnectionResetError())
    assert "abort" in scene.client.asked
    scene.pair.client.connection_lost(None)
    scene.pair.client.forward(b"late")
    assert scene.pair.gone.is_set()
    assert scene.recording.flags[3:] == [RST | ACK]
    assert scene.recording.framed[-1].segment.key[8:10] == (1883).to_bytes(2, "big")


def test_without_a_broker_the_client_is_reset() -> None:
    scene = Scene(early=b"early", joined=False)
    scene.pair.refuse()
    assert scene.client.asked == ["pause", "abort"]
    scene.pair.client.connection_lost(None)
    assert scene.pair.gone.is_set()
    assert scene.recording.flags[3:] == [PSH | ACK, RST | ACK]


@pytest.mark.parametrize(("gone", "asked"), [("lost", "abort"), ("finished", "eof")])
def test_a_client_that_left_meanwhile_is_not_waited_for(gone: str, asked: str) -> None:
    scene = Scene(early=b"early", joined=False)
    if gone == "lost":
        scene.pair.client.connection_lost(None)
    else:
        scene.pair.client.eof_received()
    scene.join()
    assert scene.server.written == b"early"
    assert scene.server.asked == [asked]
    # Who has finished may still listen.
    scene.pair.server.data_received(b"answer")
    assert scene.client.written == (b"" if gone == "lost" else b"answer")


def test_the_end_of_the_proxy_closes_both(scene: Scene) -> None:
    scene.pair.drop()
    scene.pair.drop()
    assert scene.server.asked == ["close"]
    assert scene.client.asked == ["pause", "resume", "close"]
    scene.pair.client.forward(b"late")
    scene.pair.server.pause_writing()
    assert (scene.client.written, scene.client.asked[3:]) == (b"", [])


CONNECT = encode(Connect(client_identifier="dev1"), ProtocolVersion.V3_1_1)
PROXY_V1 = b"PROXY TCP4 10.0.0.4 10.0.0.2 51234 1883\r\n"
PROXY_V2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12)
REQUEST = b"GET /mqtt HTTP/1.1\r\nHost: a\r\n\r\n"
HELLO = b"\x16\x03\x01\0\x05hello"


@pytest.mark.parametrize(
    "expected",
    [
        CONNECT,
        encode(Connect(client_identifier="x" * 300), ProtocolVersion.V3_1_1),
        PROXY_V1 + CONNECT,
        PROXY_V2 + CONNECT,
        REQUEST + frame(CONNECT, 2, b"mask"),
        REQUEST + frame(CONNECT[:3], 2, b"mask") + frame(CONNECT[3:], 2, b"mask"),
        PROXY_V1 + REQUEST + frame(CONNECT, 2, b"mask"),
        REQUEST + frame(b"", 8, b"mask"),
        HELLO,
        b"\x10\xff\xff\xff\xff",
        b"\xc0\0",
    ],
    ids=range(11),
)
def test_the_first_packet_is_complete_with_its_last_byte(expected: bytes) -> None:
    for size in (1, 2, 7, len(expected)):
        first = FirstPacket()
        parts = [expected[at : at + size] for at in range(0, len(expected), size)]
        assert [first.feed(part) for part in parts] == [False] * (len(parts) - 1) + [True]


@pytest.mark.parametrize("before", [b"", PROXY_V2, REQUEST], ids=["nothing", "PROXY", "HTTP"])
def test_a_first_packet_may_be_longer_than_what_is_kept(before: bytes) -> None:
    raw = encode(Connect(client_identifier="x" * 60_000, user_name="x" * 60_000), ProtocolVersion.V3_1_1)
    raw = before + (frame(raw, 2, b"mask") if before is REQUEST else raw)
    for start in (1, len(before) + 1):
        first = FirstPacket()
        assert [first.feed(raw[:start]), first.feed(raw[start:-1]), first.feed(raw[-1:])] == [False, False, True]


def test_of_a_first_packet_only_the_beginning_is_kept() -> None:
    first = FirstPacket()
    assert not first.feed(b"\x10\xff\xff\xff\x7f")
    for _ in range(100):
        assert not first.feed(bytes(100_000))
    assert len(first._head) < 100
    endless = FirstPacket()
    for _ in range(100):
        endless.feed(b"GET /" + b"x" * 10_000)
    assert len(endless._head) <= MAX_HEAD_BYTES + 1


CONNACK = b"\x20\x02\0\0"
ANSWERED = (CONNECT, ("<", CONNACK))
BYTE_BY_BYTE = [step for byte in CONNECT[:-1] for step in (0.1, bytes([byte]))] + [5.1 - 0.1 * (len(CONNECT) - 1)]
NO_CONNECT = "no CONNECT came within 5 s"
NO_ANSWER = "the broker did not answer the client's first packet within 5 s"


@pytest.mark.parametrize(
    ("early", "steps", "why"),
    [
        pytest.param(b"", [4.9], "", id="there is still time"),
        pytest.param(b"", [5.1], NO_CONNECT, id="the client says nothing"),
        pytest.param(b"", BYTE_BY_BYTE, NO_CONNECT, id="a client that begins has no more time"),
        pytest.param(b"", [4, CONNECT, 4.9], "", id="the broker has as much time"),
        pytest.param(b"", [4, CONNECT, 5.1], NO_ANSWER, id="the broker does not answer"),
        pytest.param(CONNECT, [4.9, ("<", CONNACK), 1_000_000], "", id="early, and answered"),
        pytest.param(CONNECT, [5.1], NO_ANSWER, id="early, and not answered"),
        pytest.param(CONNECT[:1], [CONNECT[1:-1], 5.1], NO_CONNECT, id="early, but not all of it"),
        pytest.param(b"", [*ANSWERED, 1_000_000], "", id="who has answered may be silent for ever"),
        pytest.param(b"", [("<", b"hello"), 4, CONNECT, 100], "", id="a broker that speaks first has answered"),
    ],
)
def test_how_long_first_packets_may_take(early: bytes, steps: list[Any], why: str) -> None:
    """Steps are seconds, and what the client says, or the broker (``<``)."""
    scene = Scene(early=early)
    assert scene.server.written == early
    for step in steps:
        if isinstance(step, bytes):
            scene.pair.client.data_received(step)
        elif isinstance(step, tuple):
            scene.pair.server.data_received(step[1])
        else:
            scene.clock.advance(step)

    assert scene.given_up is bool(why)
    assert scene.notes == ([f"{scene.pair.wire.client}: closed: {why}"] if why else [])
    if why:
        assert scene.recording.flags[-1] == RST | ACK
    elif ANSWERED[1] in steps:
        assert not [call for call in scene.clock.calls if not call[1].cancelled]


@pytest.mark.parametrize("client_first", [True, False])
def test_a_half_closed_connection_may_speak_but_not_be_silent(client_first: bool) -> None:
    scene = Scene()
    scene.pair.client.data_received(CONNECT)
    scene.pair.server.data_received(CONNACK)
    first, other = scene.pair.client, scene.pair.server
    if not client_first:
        first, other = other, first
    assert first.eof_received()
    for _ in range(5):
        scene.clock.advance(HALF_CLOSED_S - 1)
        other.data_received(b"\xd0\0")
    assert not scene.given_up
    scene.clock.advance(HALF_CLOSED_S - 1)
    scene.clock.advance(1.5)
    assert scene.given_up
    open_side = "broker" if client_first else "client"
    assert f"the {open_side} was silent for 60 s after the other side had closed" in scene.notes[0]

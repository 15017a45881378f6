"""Both ends on transports that only note what is asked of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mqttscope.net.segment import ACK, FIN, PSH, RST, SYN
from mqttscope.proxy.pair import HIGH_WATER_BYTES, Pair
from mqttscope.transport import sockets
from mqttscope.transport.recording import Recording
from mqttscope.transport.wire import Made
from tests.transport.wires import V4


class Transport(asyncio.Transport):
    """Notes what is asked of it, and never sends."""

    def __init__(self, *, tls: bool = False) -> None:
        super().__init__({"sslcontext": object() if tls else None})
        self.asked: list[str] = []
        self.written = b""
        self.waiting = 0
        self.tls = tls

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == HIGH_WATER_BYTES

    def can_write_eof(self) -> bool:
        return not self.tls

    def write_eof(self) -> None:
        self.asked.append("eof")

    def close(self) -> None:
        self.asked.append("close")

    def is_closing(self) -> bool:
        return bool({"close", "abort"} & set(self.asked))

    def abort(self) -> None:
        self.asked.append("abort")

    def pause_reading(self) -> None:
        self.asked.append("pause")

    def resume_reading(self) -> None:
        self.asked.append("resume")


class Kept(Recording):
    """Keeps the frames."""

    made: list[Made]

    def take(self, made: Any) -> None:
        self.made = [*getattr(self, "made", []), *made]

    @property
    def flags(self) -> list[int]:
        return [one.segment.flags for one in self.made]


class Scene:
    """A pair with transports."""

    def __init__(self, *, tls: bool = False) -> None:
        self.recording = Kept("it")
        self.dirty: list[Pair] = []
        self.pair = Pair(self.recording.wire(*V4), self.recording, self.dirty.append)
        self.client, self.server = Transport(tls=tls), Transport(tls=tls)
        self.pair.client.connection_made(self.client)
        self.pair.server.connection_made(self.server)
        self.pair.join()

    def acknowledged(self) -> int:
        """What the last frame acknowledges."""
        return self.recording.made[-1].segment.acknowledgment - self.recording.made[0].segment.sequence - 1


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_client_is_read_once_its_broker_is_there(scene: Scene) -> None:
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


def test_what_a_side_has_not_taken_is_not_acknowledged(scene: Scene) -> None:
    scene.pair.client.data_received(b"hello")
    scene.server.waiting = 3
    scene.pair.server.data_received(b"a")
    assert scene.acknowledged() == 2
    assert scene.pair.acknowledge()
    scene.server.waiting = 0
    scene.pair.server.data_received(b"b")
    assert scene.acknowledged() == 5


def test_inside_tls_all_or_nothing_is_known() -> None:
    scene = Scene(tls=True)
    scene.pair.client.data_received(b"hello")
    scene.server.waiting = 3
    scene.pair.server.data_received(b"a")
    assert scene.acknowledged() == 0
    scene.server.waiting = 0
    scene.pair.server.data_received(b"b")
    assert scene.acknowledged() == 5


def test_what_was_said_before_is_no_answer(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's bytes had arrived when the client's were sent on, but are read only now."""
    scene.pair.client.data_received(b"first")
    unread = 7
    monkeypatch.setattr(sockets, "unread", lambda _: unread)
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
    assert scene.recording.made[-1].segment.key[8:10] == (1883).to_bytes(2, "big")


def test_without_a_broker_the_client_is_reset() -> None:
    recording = Kept("it")
    pair = Pair(recording.wire(*V4), recording, lambda _: None)
    client = Transport()
    pair.client.connection_made(client)
    pair.client.data_received(b"early")
    pair.refuse()
    assert client.asked == ["pause", "abort"]
    pair.client.connection_lost(None)
    assert pair.gone.is_set()
    assert recording.flags[3:] == [PSH | ACK, RST | ACK]


@pytest.mark.parametrize(("gone", "asked"), [("lost", "abort"), ("finished", "eof")])
def test_a_client_that_left_meanwhile_is_not_waited_for(gone: str, asked: str) -> None:
    recording = Kept("it")
    pair = Pair(recording.wire(*V4), recording, lambda _: None)
    client = Transport()
    pair.client.connection_made(client)
    pair.client.data_received(b"early")
    if gone == "lost":
        pair.client.connection_lost(None)
    else:
        pair.client.eof_received()
    server = Transport()
    pair.server.connection_made(server)
    pair.join()
    assert server.written == b"early"
    assert server.asked == [asked]
    # Who has finished may still listen.
    pair.server.data_received(b"answer")
    assert client.written == (b"" if gone == "lost" else b"answer")


def test_the_end_of_the_proxy_closes_both(scene: Scene) -> None:
    scene.pair.drop()
    scene.pair.drop()
    assert scene.server.asked == ["close"]
    assert scene.client.asked == ["pause", "resume", "close"]
    scene.pair.client.forward(b"late")
    scene.pair.server.pause_writing()
    assert (scene.client.written, scene.client.asked[3:]) == (b"", [])

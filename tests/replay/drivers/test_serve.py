"""Our replay against our stand-in, for every capture; and one device without sockets, whose driver is tried."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from mqttscope.mqtt import (
    Connect,
    ControlPacket,
    Disconnect,
    Malformed,
    ProtocolVersion,
    Publish,
    Subscribe,
    Subscription,
    encode,
)
from mqttscope.replay.drivers import serve as serve_module
from mqttscope.replay.drivers.run import BrokerTarget, Pace, ReplayRunner
from mqttscope.replay.drivers.serve import MAX_TURN, TURN_NS, ServerDriver, ServerRun
from mqttscope.replay.rewrite.links import copy_scripts
from mqttscope.replay.script import Script, ScriptEntry
from mqttscope.replay.server import (
    ConnectionMatcher,
    ServerOptions,
    ServerPlayer,
    ServerSessions,
    live_connection,
)
from mqttscope.replay.verify import verify
from mqttscope.replay.verify.difference import Difference
from mqttscope.report.replay.summary import ServedOutcome
from mqttscope.session import Connection
from mqttscope.transport import link
from mqttscope.transport.target import BrokerUrl
from tests.replay.recordings import EXHAUSTIVE, MISBEHAVING, NAMES, captured
from tests.replay.server.desk import HELLO, MESSAGES
from tests.replay.talk import record, said_bytes
from tests.transport.linking import until

SLOW = {"v5-will-delay", "v5-message-expiry", "v5-session-present"}
"""Captures in which time has to pass; real brokers are given it in corpus/test_replay_mosquitto.py."""
PLAYED = [name for name in NAMES if name not in MISBEHAVING and any(script.begins for script in captured(name))]
"""A stand-in keeps to the protocol, so that it does not repeat what a proxy made of a server."""
EXCEPTIONS = {
    "v5-message-expiry": "property: a Message Expiry Interval tells of time that has not passed at this pace",
}
"""What replay finds, and why."""
V3_1_1 = ProtocolVersion.V3_1_1


async def both(scripts: list[Script], patience_s: float = 5.0) -> tuple[ReplayRunner, ServerRun]:
    """A replay against a stand-in, causal."""
    notes: list[str] = []
    serving = ServerRun(scripts, ConnectionMatcher(scripts), ServerOptions(speed=None), causal=True, note=notes.append)
    await serving.start("127.0.0.1", 0)
    try:
        assert serving.server is not None
        goal = BrokerTarget(BrokerUrl("mqtt", "127.0.0.1", serving.server.port))
        replay = ReplayRunner(scripts, goal, Pace(None, causal=True), patience_s=patience_s)
        await asyncio.wait_for(replay.run(), 50)
        await asyncio.wait_for(serving.stopping.wait(), 10)
    finally:
        await serving.close()
    assert not [text for text in notes if "internal error" in text]
    return replay, serving


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in PLAYED if EXHAUSTIVE or name not in SLOW])
async def test_replay_and_serve_of_one_capture_agree(name: str) -> None:
    scripts = [script for script in copy_scripts(captured(name)) if script.begins]
    # Nothing waits that long where all comes, and a machine that is busy is no difference.
    replay, serving = await both(scripts, patience_s=15.0)

    skipped: set[ScriptEntry] = set()
    for driver in replay.drivers:
        skipped |= driver.player.skipped
    verification = verify(
        [(client_driver.player.script, client_driver.player.live.script) for client_driver in replay.drivers],
        skipped=skipped,
    )
    expected = EXCEPTIONS.get(name)
    assert [difference.message for difference in verification.differences] == [] or expected
    assert {f"{difference.kind}" for difference in verification.differences} <= {(expected or "").partition(":")[0]}
    served = ServedOutcome.from_run(serving, "causal", [])
    assert [difference.message for difference in served.verify().differences] == []
    assert served.unplayed == []


def test_the_exceptions_are_captures() -> None:
    assert set(EXCEPTIONS) <= set(PLAYED)


class Talker:
    """A serving stand-in, and sockets that speak with it from a thread."""

    def __init__(self, name: str, **options: object) -> None:
        scripts = [script for script in copy_scripts(captured(name)) if script.begins]
        options.setdefault("speed", None)
        self.notes: list[str] = []
        self.serving = ServerRun(scripts, ConnectionMatcher(scripts), ServerOptions(**options), note=self.notes.append)  # type: ignore[arg-type]

    def run(self, talk: object) -> list[Difference]:
        """Let a function of a port talk, and compare."""

        async def work() -> None:
            await self.serving.start("127.0.0.1", 0)
            assert self.serving.server is not None
            try:
                await asyncio.wait_for(asyncio.to_thread(talk, self.serving.server.port), 20)  # type: ignore[arg-type]
                # What was said last is read in the next turns of the loop.
                for _ in range(20):
                    await asyncio.sleep(0.005)
            finally:
                await self.serving.close()

        asyncio.run(work())
        return ServedOutcome.from_run(self.serving, "asap", []).verify().differences


def opened(port: int, *arguments: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), 10)
    client.sendall(b"".join(arguments))
    return client


def until_closed(client: socket.socket) -> bytes:
    data = b""
    try:
        while more := client.recv(4096):
            data += more
    except ConnectionError:
        pass
    client.close()
    return data


@asynccontextmanager
async def served(scripts: list[Script]) -> AsyncIterator[tuple[ServerRun, int, list[str]]]:
    """A stand-in that runs on, with its port and what it says."""
    texts: list[str] = []
    serving = ServerRun(captured("v311-qos"), ConnectionMatcher(scripts), keep_running=True, note=texts.append)
    await serving.start("127.0.0.1", 0)
    assert serving.server is not None
    async with asyncio.timeout(20):
        yield serving, serving.server.port, texts
        await serving.close()


CONNECT = encode(Connect(client_identifier="sensor-1", keep_alive=60), V3_1_1)


def test_peers_that_misbehave_leave_the_others_alone() -> None:
    talker = Talker("v311-qos")

    def talk(port: int) -> None:
        stalled = opened(port, CONNECT[:5])
        garbage = opened(port, b"GET / HTTP/1.1\r\n\r\n")
        nothing = opened(port)
        gone = opened(port, encode(Connect(client_identifier="logger", keep_alive=60), V3_1_1))
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        gone.close()
        good = opened(port, CONNECT)
        assert good.recv(4) == b"\x20\x02\0\0"
        good.sendall(
            encode(Publish(qos=1, topic_name="plant/line1/temperature", packet_identifier=9, payload=b"21.1"), V3_1_1)
        )
        assert good.recv(4) == b"\x40\x02\0\x09"
        good.shutdown(socket.SHUT_WR)
        assert good.recv(1) == b""
        assert until_closed(garbage) == b""
        assert until_closed(opened(port, b"\x16\x03\x01\x00")) == b""
        assert until_closed(opened(port, b"\xff")) == b""
        for other_socket in (stalled, nothing, good):
            other_socket.close()

    differences = talker.run(talk)
    assert {str(difference.kind) for difference in differences} >= {"missing-packet", "close"}
    assert not [note for note in talker.notes if "internal error" in note]
    text = "\n".join(talker.notes)
    assert "--websocket" in text
    assert "--listen-cert" in text
    assert "does not begin with a CONNECT" in text


def test_a_connection_that_is_not_in_the_recording() -> None:
    talker = Talker("example-a-b-v311")
    talker.serving.matcher.choose(Connect(client_identifier="example"))

    def talk(port: int) -> None:
        client = opened(port, CONNECT)
        assert client.recv(4) == b"\x20\x02\0\0"
        client.sendall(encode(Disconnect(), V3_1_1))
        until_closed(client)

    assert "extra-connection" in [str(difference.kind) for difference in talker.run(talk)]
    assert "no (further) connection for this client" in talker.notes[0]


def test_a_device_of_another_version_gets_the_recording_in_its_version() -> None:
    talker = Talker("v311-qos")

    def talk(port: int) -> None:
        hello = Connect(protocol_level=5, client_identifier="logger", keep_alive=60)
        subscribe = Subscribe(1, None, [Subscription("plant/+/temperature", 2)])
        client = opened(port, encode(hello), encode(subscribe, ProtocolVersion.V5))
        wanted = bytes.fromhex("20030000009004000100 02".replace(" ", ""))
        data = b""
        while len(data) < len(wanted):
            data += client.recv(100)
        assert data.startswith(wanted)
        client.close()

    fields = {difference.field for difference in talker.run(talk)}
    assert "protocol_level" in fields
    assert any("speaks MQTT 5.0" in note for note in talker.notes)


def test_connections_that_are_open_at_the_end_are_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "CLOSE_TIMEOUT_S", 0.3)
    talker = Talker("v311-qos")
    left: list[socket.socket] = []

    def talk(port: int) -> None:
        left.extend((opened(port), opened(port, b"\x10"), opened(port, CONNECT)))
        assert left[-1].recv(4) == b"\x20\x02\0\0"

    differences = talker.run(talk)
    for other_socket in left:
        other_socket.close()
    assert differences
    assert not [note for note in talker.notes if "internal error" in note]


async def test_packets_that_are_not_complete_are_bounded_over_all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_module, "MAX_UNFINISHED_BYTES", 100_000)
    async with served(captured("v311-qos")) as (serving, port, texts):
        clients = []
        for number in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(encode(Connect(client_identifier=f"c{number}"), V3_1_1))
            assert await reader.readexactly(4)
            writer.write(b"\x30\xc0\x84\x3d\0\x01a" + bytes(45_000))
            await writer.drain()
            clients.append((reader, writer))
            if number < 2:
                await until(lambda at=number: serving._unfinished >= 45_000 * (at + 1))  # type: ignore[misc]
        assert await clients[2][0].read(1) == b""
        assert 80_000 < serving._unfinished <= 100_000
        for _, writer in clients:
            writer.close()
        await until(lambda: not serving.drivers)
        assert serving._unfinished == 0
    assert [text for text in texts if "too many bytes of packets that are not complete" in text] == [texts[-1]]


@dataclass
class Wire:
    """The link of a device."""

    remote: str = "device:1"
    sent: bytes = b""
    reading: bool = True
    how: str = ""

    def write(self, data: bytes) -> None:
        self.sent += data

    def read(self, on: bool) -> None:
        self.reading = on

    def close(self) -> None:
        self.how = self.how or "fin"

    def abort(self) -> None:
        self.how = "reset"


@dataclass
class Hall:
    """Who runs the driver."""

    scripts: list[Script]
    max_packet_bytes: int = 1_000
    notes: list[str] = field(default_factory=list)
    has_room: bool = True
    speed: float | None = None
    clock_ns: int = 1_000_000_000
    look_ns: int = 0
    """How much later it is each time that somebody looks at the clock."""

    def now_ns(self) -> int:
        self.clock_ns += self.look_ns
        return self.clock_ns

    def reserve(self, more: int) -> bool:
        return self.has_room

    def make_player(self, driver: ServerDriver, first: ControlPacket | Malformed) -> ServerPlayer:
        driver.recorded = self.scripts.pop()
        live = Script(Connection(0, "device", "hall", "", 0, 0))
        options = ServerOptions(speed=self.speed)
        return ServerPlayer(
            script=driver.recorded, live=live_connection(live), sessions=ServerSessions(), options=options
        )

    def horizon(self, driver: ServerDriver) -> int:
        return 1 << 62

    def notify(self, driver: ServerDriver) -> None:
        pass

    def report(self, sentence: str) -> None:
        self.notes.append(sentence)


@asynccontextmanager
async def driven(text: str = HELLO, **more: Any) -> AsyncIterator[tuple[ServerDriver, Wire, Hall]]:
    """A driver in the hands of a test."""
    wire, hall = Wire(), Hall(record(text), **more)
    driver = ServerDriver(wire, hall)  # type: ignore[arg-type]
    yield driver, wire, hall
    driver.stop()


async def test_a_device_is_answered_and_its_end_is_noted() -> None:
    async with driven(MESSAGES) as (driver, wire, hall):
        for line in ("connect", "subscribe 1 t/#:2"):
            driver.received(said_bytes("dev", line))
        assert driver.heard == 2
        assert driver.sent == 3
        assert not driver.settled
        driver.ended("fin", "")
        assert driver.is_over
        assert driver.player is not None
        assert driver.player.live.script.ending.by == "client"
        assert wire.sent[:1] == b"\x20"
        assert hall.notes == []


@pytest.mark.parametrize(
    ("data", "why"),
    [(b"\x16\x03\x01", "it speaks TLS"), (b"GET / HTTP/1.1\r\n", "it speaks HTTP"), (b"\xc0\x00", "does not begin")],
)
async def test_who_does_not_begin_with_connect_is_closed(data: bytes, why: str) -> None:
    async with driven() as (driver, wire, hall):
        driver.received(data)
        (text,) = hall.notes
        assert why in text
        assert wire.how == "fin"


async def test_a_packet_that_is_too_long_ends_the_connection() -> None:
    async with driven() as (driver, wire, hall):
        driver.received(said_bytes("dev", "connect"))
        driver.received(said_bytes("dev", f"publish a {'x' * 2_000}"))
        assert wire.sent.endswith((b"\xe0\x02\x95\x00", b"\xe0\x01\x95"))
        assert "the limit is 1,000" in hall.notes[0]
    async with driven(has_room=False) as (driver, _, hall):
        driver.received(b"\x10\x20\x00")
        assert "of all devices together" in hall.notes[0]


async def test_a_device_that_takes_nothing_is_not_listened_to() -> None:
    async with driven() as (driver, wire, _):
        driver.received(said_bytes("dev", "connect"))
        driver.writable(False)
        assert not wire.reading
        before = wire.sent
        driver.received(said_bytes("dev", "pingreq"))
        assert wire.sent == before
        driver.writable(True)
        driver.pump()
        assert wire.sent == before + b"\xd0\x00"
        assert wire.reading


async def test_who_says_much_is_listened_to_in_turns() -> None:
    """The clock is looked at when a turn begins, and after each piece and each packet that is taken."""
    async with driven() as (driver, wire, hall):
        driver.received(said_bytes("dev", "connect"))
        hall.look_ns = TURN_NS // 10
        driver.received(b"\xc0\x00" * 25)
        assert driver.heard == 1 + 10
        assert not wire.reading
        driver.pump()
        assert driver.heard == 1 + 10 + 11
        driver.pump()
        assert driver.heard == 1 + 25
        assert wire.reading
        assert wire.sent.endswith(b"\xd0\x00" * 25)


async def test_many_answers_are_sent_in_turns() -> None:
    async with driven() as (driver, wire, _):
        driver.received(said_bytes("dev", "connect"))
        driver.received(b"\xc0\x00" * (MAX_TURN + 50))
        assert wire.sent.count(b"\xd0\x00") <= MAX_TURN
        while len(wire.sent) < 2 * (MAX_TURN + 50):
            driver.pump()
        assert wire.sent.endswith(b"\xd0\x00" * (MAX_TURN + 50))

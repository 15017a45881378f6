"""Our replay against our stand-in, for every capture: neither finds a difference."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mqttscope.mqtt import Connect, Disconnect, ProtocolVersion, Publish, Subscribe, Subscription, encode
from mqttscope.replay.drivers import serve as serve_module
from mqttscope.replay.drivers.run import BrokerTarget, Pace, Replay
from mqttscope.replay.drivers.serve import ServerRun
from mqttscope.replay.rewrite.links import copy_scripts
from mqttscope.replay.script import Entry, Script
from mqttscope.replay.server import ConnectionMatcher, ServerOptions
from mqttscope.replay.verify import verify
from mqttscope.replay.verify.difference import Difference
from mqttscope.report.replay.summary import ServedOutcome
from mqttscope.transport import link
from mqttscope.transport.target import Target
from tests.replay.recordings import EXHAUSTIVE, MISBEHAVING, NAMES, captured
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


async def both(scripts: list[Script], patience_s: float = 5.0) -> tuple[Replay, ServerRun]:
    """A replay against a stand-in, causal."""
    notes: list[str] = []
    serving = ServerRun(scripts, ConnectionMatcher(scripts), ServerOptions(speed=None), causal=True, note=notes.append)
    await serving.start("127.0.0.1", 0)
    try:
        assert serving.server is not None
        goal = BrokerTarget(Target("mqtt", "127.0.0.1", serving.server.port))
        replay = Replay(scripts, goal, Pace(None, causal=True), patience_s=patience_s)
        await asyncio.wait_for(replay.run(), 50)
        await asyncio.wait_for(serving.stopping.wait(), 10)
    finally:
        await serving.close()
    assert not [one for one in notes if "internal error" in one]
    return replay, serving


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in PLAYED if EXHAUSTIVE or name not in SLOW])
async def test_replay_and_serve_of_one_capture_agree(name: str) -> None:
    scripts = [script for script in copy_scripts(captured(name)) if script.begins]
    # Nothing waits that long where all comes, and a machine that is busy is no difference.
    replay, serving = await both(scripts, patience_s=15.0)

    skipped: set[Entry] = set()
    for one in replay.drivers:
        skipped |= one.player.skipped
    found = verify([(one.player.script, one.player.live.script) for one in replay.drivers], skipped=skipped)
    expected = EXCEPTIONS.get(name)
    assert [one.message for one in found.differences] == [] or expected
    assert {f"{one.kind}" for one in found.differences} <= {(expected or "").partition(":")[0]}
    served = ServedOutcome.of(serving, "causal", [])
    assert [one.message for one in served.verify().differences] == []
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
        return ServedOutcome.of(self.serving, "asap", []).verify().differences


def opened(port: int, *said: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), 10)
    client.sendall(b"".join(said))
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
    told: list[str] = []
    serving = ServerRun(captured("v311-qos"), ConnectionMatcher(scripts), keep_running=True, note=told.append)
    await serving.start("127.0.0.1", 0)
    assert serving.server is not None
    async with asyncio.timeout(20):
        yield serving, serving.server.port, told
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
        for one in (stalled, nothing, good):
            one.close()

    differences = talker.run(talk)
    assert {str(one.kind) for one in differences} >= {"missing-packet", "close"}
    assert not [one for one in talker.notes if "internal error" in one]
    told = "\n".join(talker.notes)
    assert "--websocket" in told
    assert "--listen-cert" in told
    assert "does not begin with a CONNECT" in told


def test_a_connection_that_is_not_in_the_recording() -> None:
    talker = Talker("example-a-b-v311")
    talker.serving.matcher.choose(Connect(client_identifier="example"))

    def talk(port: int) -> None:
        client = opened(port, CONNECT)
        assert client.recv(4) == b"\x20\x02\0\0"
        client.sendall(encode(Disconnect(), V3_1_1))
        until_closed(client)

    assert "extra-connection" in [str(one.kind) for one in talker.run(talk)]
    assert "no connection for this client" in talker.notes[0]


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

    fields = {one.field for one in talker.run(talk)}
    assert "protocol_level" in fields
    assert any("speaks MQTT 5.0" in one for one in talker.notes)


def test_connections_that_are_open_at_the_end_are_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "CLOSE_TIMEOUT_S", 0.3)
    talker = Talker("v311-qos")
    left: list[socket.socket] = []

    def talk(port: int) -> None:
        left.extend((opened(port), opened(port, b"\x10"), opened(port, CONNECT)))
        assert left[-1].recv(4) == b"\x20\x02\0\0"

    differences = talker.run(talk)
    for one in left:
        one.close()
    assert differences
    assert not [one for one in talker.notes if "internal error" in one]


async def test_packets_that_are_not_complete_are_bounded_over_all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_module, "MAX_UNFINISHED_BYTES", 100_000)
    async with served(captured("v311-qos")) as (serving, port, told):
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
    assert [one for one in told if "too many bytes of packets that are not complete" in one] == [told[-1]]

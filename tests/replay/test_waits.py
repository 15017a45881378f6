"""Waits end: at an answer, or when their time is over, whatever else the broker says meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from mqttscope.mqtt import Disconnect, Pingresp
from mqttscope.replay.live import NoteKind
from mqttscope.replay.run import BrokerTarget, Pace, Replay
from mqttscope.replay.script import Script
from mqttscope.replay.verify import verify
from mqttscope.transport.target import parse_broker
from tests.cli.running import invoke
from tests.conftest import shared_path
from tests.proxy import rig
from tests.replay.builder import Builder
from tests.replay.hostile import hostile
from tests.replay.recordings import connack, connect, publish, recordings

BOUND_S = 20.0
"""Far above the waits here, and far below one that has no end."""


def dismissed(count: int = 1, keep_alive: int = 1) -> list[Script]:
    """Connections that the recorded broker ended with DISCONNECT, a fifth of a second after CONNACK."""
    builder = Builder()
    for key in range(count):
        builder.open(key)
        builder.say(key, ">", connect(f"c{key}", keep_alive=keep_alive))
        builder.say(key, "<", connack())
        builder.wait(200_000_000)
        builder.say(key, "<", Disconnect(0x8B))
        builder.end(key, "fin", "server")
        builder.close(key, "fin", "server")
    return builder.finish()


def replay(scripts: Sequence[Script], port: int, patience_s: float, pace: Pace | None = None) -> Replay:
    made = Replay(
        scripts, BrokerTarget(parse_broker(f"mqtt://127.0.0.1:{port}")), pace or Pace(), patience_s=patience_s
    )

    async def run() -> None:
        async with asyncio.timeout(BOUND_S):
            await made.run()

    asyncio.run(run())
    return made


def test_answers_to_pings_of_our_own_are_no_progress() -> None:
    """The wait is longer than the time between two PINGREQ, so that an answer always comes in it."""
    with hostile("kept-alive") as (port, _):
        done = replay(dismissed(), port, patience_s=3.0)

    (one,) = done.drivers
    pings = [entry for entry in one.player.live.script.entries if isinstance(entry.packet, Pingresp)]
    assert len(pings) >= 2
    assert done.seconds >= 3.0
    assert one.shortfall == "a connection waited in vain for the end of the connection by the server"


def test_what_the_recording_has_is_progress() -> None:
    """A broker that delivers message by message gets its time for each of them."""
    count = 8
    scripts = recordings(
        (0, ">", connect("sub")),
        (0, "<", connack()),
        *((0, "<", publish("t", payload=b"%d" % number)) for number in range(count)),
        ended={0: ("fin", "server")},
    )

    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1_000)
        writer.write(b"\x20\x03\x00\x00\x00")
        for number in range(count):
            await asyncio.sleep(0.3)
            writer.write(b"\x30\x05\x00\x01t\x00%d" % number)
        writer.close()

    async def run() -> Replay:
        server = await asyncio.start_server(slowly, "127.0.0.1", 0)
        target = parse_broker(f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        made = Replay(scripts, BrokerTarget(target), Pace(None), patience_s=2.0)
        async with asyncio.timeout(BOUND_S):
            await made.run()
        server.close()
        return made

    (one,) = asyncio.run(run()).drivers
    assert one.shortfall == ""
    assert not verify([(one.player.script, one.player.live.script)]).differences


def test_a_broker_that_reads_nothing_is_given_up() -> None:
    """More is to be sent than any buffer on the way holds."""
    scripts = recordings(
        (0, ">", connect("pub")),
        (0, "<", connack()),
        *((0, ">", publish("t", payload=bytes(1 << 20))) for _ in range(40)),
        (0, ">", Disconnect()),
    )
    with hostile("deaf") as (port, _):
        done = replay(scripts, port, 1.5, Pace(None))

    (one,) = done.drivers
    assert one.shortfall == "a connection waited in vain for the server to read what is sent"
    skipped = {note.text for note in one.player.live.notes if note.kind is NoteKind.SKIPPED}
    assert skipped == {
        "PUBLISH, because the connection had ended",
        "DISCONNECT, because the connection had ended",
    }


def test_who_was_never_connected_did_not_send_because_of_that() -> None:
    scripts = recordings((0, ">", connect("a")), (0, "<", connack()), (0, ">", Disconnect()))
    done = replay(scripts, rig.free_port(), 0.3, Pace(None))

    (one,) = done.drivers
    assert {note.text for note in one.player.live.notes} == {
        "CONNECT, because its connection was never opened",
        "DISCONNECT, because its connection was never opened",
    }


def test_a_recorded_end_by_the_broker_is_not_held_against_the_live_one() -> None:
    """The recorded client still said good-bye when the broker had closed already; the live broker closes as well."""

    def scripts(*, late: bool) -> list[Script]:
        builder = Builder()
        builder.open(0)
        builder.say(0, ">", connect("a"))
        builder.say(0, "<", connack())
        builder.wait(500_000_000)
        builder.end(0, "fin", "server")
        if late:
            builder.say(0, ">", publish("t"))
            builder.say(0, ">", Disconnect())
        builder.close(0, "fin", "server")
        return builder.finish()

    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1_000)
        writer.write(b"\x20\x03\x00\x00\x00")
        await asyncio.sleep(0.05)
        writer.close()

    async def run(recorded: list[Script]) -> Replay:
        server = await asyncio.start_server(closing, "127.0.0.1", 0)
        target = parse_broker(f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        made = Replay(recorded, BrokerTarget(target), Pace(), patience_s=5.0)
        async with asyncio.timeout(BOUND_S):
            await made.run()
        server.close()
        return made

    for late in (False, True):
        (one,) = asyncio.run(run(scripts(late=late))).drivers
        found = verify([(one.player.script, one.player.live.script)], skipped=one.player.skipped)
        assert [str(difference.kind) for difference in found.differences] == []
        assert (one.failure, one.shortfall) == ("", "")


@pytest.mark.broker
def test_the_recording_of_the_trials_that_never_ended(tmp_path: Path) -> None:
    path = shared_path("captures", "trials", "hang.pcap")
    with rig.mosquitto(tmp_path) as broker:
        began = time.monotonic()
        done = invoke("replay", path, "--broker", f"mqtt://127.0.0.1:{broker.port}", "--format", "jsonl", "--no-config")
        seconds = time.monotonic() - began

    (summary,) = [line for line in done.lines if line["event"] == "replay"]
    assert summary["connected"] == summary["connections"] == 2
    # Two connections, each with a wait of five seconds, which the recorded broker had ended.
    assert seconds < 2.3 + 2 * 5 + 10

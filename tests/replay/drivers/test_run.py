"""Whole replays over sockets: against the broker of the simulation, and against brokers that mean no good.

Waits end: at an answer, or when their time is over, whatever else the broker says meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from mqttscope.mqtt import Pingresp
from mqttscope.replay.client.player import ClientOptions
from mqttscope.replay.drivers.run import BrokerTarget, Pace, ReplayRunner, make_plan
from mqttscope.replay.live import NoteKind
from mqttscope.replay.script import Script
from mqttscope.replay.verify import verify
from mqttscope.transport.client import Address
from mqttscope.transport.target import parse_broker
from tests import corpora
from tests.broker_test.broken import Fault, broken
from tests.cli.running import invoke
from tests.proxy import rig
from tests.replay.hostile import hostile
from tests.replay.talk import OPENED, record, session


async def replayed(
    scripts: Sequence[Script],
    pace: Pace | None = None,
    *,
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]] | None = None,
    port: int = 0,
    fault: Fault = Fault.NONE,
    options: ClientOptions | None = None,
    meanwhile: Callable[[ReplayRunner], Any] | None = None,
    patience_s: float = 5.0,
) -> ReplayRunner:
    """Replay against what listens at a port, or a server on loopback, which is a broker unless it is given.

    ``meanwhile`` is called 0.1 seconds after the start.
    """
    async with broken(fault) as broker:
        server = await asyncio.start_server(serve, "127.0.0.1", 0) if serve else None
        if server is not None:
            port = server.sockets[0].getsockname()[1]
        target = parse_broker(f"mqtt://127.0.0.1:{port or broker.port}")
        replay = ReplayRunner(
            scripts, BrokerTarget(target), pace or Pace(), options or ClientOptions(), patience_s=patience_s
        )
        if meanwhile is not None:
            asyncio.get_running_loop().call_later(0.1, meanwhile, replay)
        async with asyncio.timeout(BOUND_S):
            await replay.run()
        if server:
            server.close()
    return replay


BOUND_S = 30.0
"""Far above the waits here, and far below one that has no end."""


def test_what_others_notice_is_named() -> None:
    script = session(
        "> publish kept 1 retain",
        "> publish kept 2 retain",
        "> publish cleared 1 retain",
        "> publish cleared retain",
        "> publish $SYS/mine",
        "> subscribe 1 $share/g/a b",
        hello="connect will=gone will_payload=x",
    )
    plan = make_plan([script])

    assert plan.connections == 1
    assert plan.packets == {"connect": 1, "publish": 5, "subscribe": 1, "disconnect": 1}
    assert (plan.retained, plan.cleared, plan.system) == (["kept"], ["cleared"], ["$SYS/mine"])
    assert plan.wills == [("dev", "gone")]
    assert plan.shared == ["$share/g/a"]
    assert [len(plan.warnings), plan.warnings[2]] == [5, "wills are left for gone (dev)"]


def test_nothing_to_notice_is_nothing_to_say() -> None:
    assert make_plan([session("> publish a")]).warnings == []


def conversation(*, spread_ns: int = 0) -> list[Script]:
    """One subscribes, another publishes three messages; ``spread_ns`` is put before each message."""
    text = "".join(f"pub > publish a {number} qos=1 id={number}\npub < puback {number}\n" for number in (1, 2, 3))
    came = "".join(f"sub < publish a {number}\n" for number in (1, 2, 3))
    opened = OPENED.replace("t/#:2", "a:0").replace("suback 1 2", "suback 1 0")
    scripts = record(f"{opened}{text}pub > disconnect\npub > fin\n{came}sub > disconnect\nsub > fin")
    for script in scripts:
        for entry in script.entries:
            before = sum(
                script_entry.place <= entry.place
                for script_entry in scripts[1].entries
                if script_entry.type == "publish"
            )
            entry.timestamp_ns += spread_ns * (3 if script is scripts[0] and entry.place > 6 else before)
        script.ending.timestamp_ns += 3 * spread_ns
    return scripts


def payloads(script: Script) -> list[bytes]:
    return [script_entry.packet.payload for script_entry in script.entries if script_entry.type == "publish"]  # type: ignore[union-attr]


@pytest.mark.parametrize("pace", [Pace(None), Pace(None, causal=True), Pace(1.0), Pace(4.0)])
async def test_everything_is_said_and_delivered(pace: Pace) -> None:
    replay = await replayed(conversation(), pace)
    sub, pub = replay.drivers

    assert payloads(sub.player.live.script) == payloads(pub.player.live.script) == [b"1", b"2", b"3"]
    assert [driver.failure for driver in replay.drivers] == ["", ""]
    assert (replay.context.sent, replay.context.received) == (8, 9)
    assert replay.context.gates.missed == replay.stalled == 0


async def test_the_recorded_pace_takes_its_time() -> None:
    assert (await replayed(conversation(spread_ns=200_000_000), Pace(1.0))).seconds >= 0.6


@pytest.mark.parametrize(("pace", "least"), [(Pace(None), 0), (Pace(36_000.0), 0.3), (Pace(1.0, max_gap_ns=1), 0)])
async def test_three_hours_pass_faster(pace: Pace, least: float) -> None:
    """`replayed` gives up long before they have passed at the recorded pace."""
    replay = await replayed(conversation(spread_ns=3_600_000_000_000), pace)

    assert replay.seconds >= least
    assert payloads(replay.drivers[0].player.live.script) == [b"1", b"2", b"3"]


async def test_no_more_messages_than_the_rate_allows() -> None:
    assert (await replayed(conversation(), Pace(None, rate=5))).seconds >= 0.4


async def test_a_server_that_does_not_answer_is_given_up() -> None:
    replay = await replayed(conversation(), Pace(None), fault=Fault.SILENT_SUBSCRIBE, patience_s=1.0)

    assert replay.context.gates.missed >= 1
    assert replay.stalled >= 1
    assert payloads(replay.drivers[1].player.live.script) == [b"1", b"2", b"3"]


async def test_it_can_be_stopped() -> None:
    replay = await replayed(conversation(spread_ns=10_000_000_000), Pace(1.0), meanwhile=lambda runner: runner.stop())

    assert replay.stopped
    assert replay.seconds < 5
    assert all(driver.finished.is_set() for driver in replay.drivers)
    assert [driver.player.live.script.ending.by for driver in replay.drivers] == ["client", "client"]


async def test_a_slow_replay_keeps_its_connections_alive() -> None:
    script = session("> publish a", hello="connect keep_alive=1")
    for entry in script.entries[2:]:
        entry.timestamp_ns += 500_000_000
    (driver,) = (await replayed([script], Pace(0.25))).drivers
    pings = [script_entry for script_entry in driver.player.live.script.entries if script_entry.type == "pingreq"]

    assert len(pings) in (1, 2), "after 0.75 and 1.5 seconds of two, unless the connection took long to make"
    (faithful,) = (await replayed([script], Pace(0.5), options=ClientOptions(faithful=True))).drivers
    assert not any(script_entry.type == "pingreq" for script_entry in faithful.player.live.script.entries)


def test_ports_lead_elsewhere() -> None:
    goal = BrokerTarget(
        parse_broker("mqtt://localhost:1884"), ports={1883: 1885}, addresses=[Address(2, ("127.0.0.1", 1884))]
    )

    assert goal.for_port(8883) is goal
    moved = goal.for_port(1883)
    assert moved.target.port == 1885
    assert moved.addresses == [Address(2, ("127.0.0.1", 1885))]


@pytest.mark.long
async def test_answers_to_pings_of_our_own_are_no_progress() -> None:
    """The wait is longer than the time between two PINGREQ, so that an answer always comes in it."""
    scripts = record(
        "dev > connect keep_alive=1\ndev < connack\n+0.2 dev < disconnect code=0x8b\ndev < half-fin\ndev < fin"
    )
    with hostile("kept-alive") as (port, _):
        done = await replayed(scripts, port=port, patience_s=3.0)

    (driver,) = done.drivers
    pings = [entry for entry in driver.player.live.script.entries if isinstance(entry.packet, Pingresp)]
    assert len(pings) >= 2
    assert done.seconds >= 3.0
    assert driver.shortfall == "a connection waited in vain for the end of the connection by the server"


async def test_what_the_recording_has_is_progress() -> None:
    """A broker that delivers message by message gets its time for each of them."""
    count = 8
    script = session(*(f"< publish t {number}" for number in range(count)), ended=("fin", "server"))

    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1_000)
        writer.write(b"\x20\x03\x00\x00\x00")
        for number in range(count):
            await asyncio.sleep(0.3)
            writer.write(b"\x30\x05\x00\x01t\x00%d" % number)
        writer.close()

    (driver,) = (await replayed([script], Pace(None), serve=slowly, patience_s=2.0)).drivers
    assert driver.shortfall == ""
    assert not verify([(driver.player.script, driver.player.live.script)]).differences


async def test_a_broker_that_reads_nothing_is_given_up() -> None:
    """More is to be sent than any buffer on the way holds."""
    large = f"> publish t {'x' * (1 << 20)}"
    with hostile("deaf") as (port, _):
        (driver,) = (await replayed([session(*[large] * 40)], Pace(None), port=port, patience_s=1.5)).drivers

    assert driver.shortfall == "a connection waited in vain for the server to read what is sent"
    skipped = {note.text for note in driver.player.live.notes if note.kind is NoteKind.SKIPPED}
    assert skipped == {f"{name}, because the connection had ended" for name in ("PUBLISH", "DISCONNECT")}


async def test_who_was_never_connected_did_not_send_because_of_that() -> None:
    (driver,) = (await replayed([session()], Pace(None), port=rig.free_port(), patience_s=0.3)).drivers

    why = "because its connection was never opened"
    assert {note.text for note in driver.player.live.notes} == {f"CONNECT, {why}", f"DISCONNECT, {why}"}


@pytest.mark.parametrize("late", [False, True])
async def test_a_recorded_end_by_the_broker_is_not_held_against_the_live_one(late: bool) -> None:
    """The recorded client still said good-bye when the broker had closed already; the live broker closes as well."""
    more = "dev > publish t\ndev > disconnect\n" * late
    scripts = record(f"dev > connect\ndev < connack\n+0.5 dev < half-fin\n{more}dev < fin")

    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1_000)
        writer.write(b"\x20\x03\x00\x00\x00")
        await asyncio.sleep(0.05)
        writer.close()

    (driver,) = (await replayed(scripts, serve=closing)).drivers
    verification = verify([(driver.player.script, driver.player.live.script)], skipped=driver.player.skipped)
    assert [str(difference.kind) for difference in verification.differences] == []
    assert (driver.failure, driver.shortfall) == ("", "")


@pytest.mark.long
@pytest.mark.broker
def test_the_recording_of_the_trials_that_never_ended(tmp_path: Path) -> None:
    path = corpora.path("captures", "trials", "hang.pcap")
    with rig.mosquitto(tmp_path) as broker:
        began = time.monotonic()
        done = invoke("replay", path, "--broker", f"mqtt://127.0.0.1:{broker.port}", "--format", "jsonl", "--no-config")
        seconds = time.monotonic() - began

    (summary,) = [line for line in done.lines if line["event"] == "replay"]
    assert summary["connected"] == summary["connections"] == 2
    # Two connections, each with a wait of five seconds, which the recorded broker had ended.
    assert seconds < 2.3 + 2 * 5 + 10

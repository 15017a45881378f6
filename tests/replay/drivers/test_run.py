"""Whole replays over sockets: against the broker of the simulation, and against brokers that mean no good.

Waits end: at an answer, or when their time is over, whatever else the broker says meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mqttscope.mqtt import (
    ControlPacket,
    Disconnect,
    Pingresp,
    Properties,
    Puback,
    Suback,
    Subscribe,
    Subscription,
    Will,
)
from mqttscope.mqtt.stream import PacketStream
from mqttscope.replay.client.player import ClientOptions
from mqttscope.replay.drivers.run import MAX_NAMED, BrokerTarget, Pace, Replay, make_plan
from mqttscope.replay.live import NoteKind
from mqttscope.replay.script import Script
from mqttscope.replay.verify import verify
from mqttscope.transport.client import Address
from mqttscope.transport.target import parse_broker
from tests import corpora
from tests.cli.running import invoke
from tests.proxy import rig
from tests.replay.hostile import hostile
from tests.replay.recordings import Builder, connack, connect, publish, recordings
from tests.replay.simulation import Broker, Client


@dataclass
class ServedBroker:
    """Takes connections for a broker."""

    broker: Broker
    writers: dict[int, asyncio.StreamWriter] = field(default_factory=dict)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client, stream = self.broker.connect(), PacketStream()
        self.writers[id(client)] = writer
        while not client.closed and (data := await reader.read(65_536)):
            for item in stream.feed(data):
                assert isinstance(item, ControlPacket), item
                self.broker.take(client, item.raw)
            self.flush()
        client.closed = True
        writer.close()

    def flush(self) -> None:
        """Say what is to be said to all clients."""
        for client in self.broker.clients:
            self._flush(client, self.writers[id(client)])

    def _flush(self, client: Client, writer: asyncio.StreamWriter) -> None:
        if not writer.is_closing():
            writer.write(b"".join(client.to_client))
            client.to_client.clear()
            if client.closed:
                writer.close()


def replayed(
    scripts: Sequence[Script],
    pace: Pace | None = None,
    *,
    broker: Broker | None = None,
    options: ClientOptions | None = None,
    meanwhile: Callable[[Replay], Any] | None = None,
    patience_s: float = 5.0,
) -> Replay:
    """Replay against a broker on loopback; ``meanwhile`` is called 0.1 seconds after the start."""

    async def run() -> Replay:
        server = await asyncio.start_server(ServedBroker(broker or Broker()).serve, "127.0.0.1", 0)
        target = parse_broker(f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        replay = Replay(
            scripts, BrokerTarget(target), pace or Pace(None), options or ClientOptions(), patience_s=patience_s
        )
        if meanwhile is not None:
            asyncio.get_running_loop().call_later(0.1, meanwhile, replay)
        async with asyncio.timeout(30):
            await replay.run()
        server.close()
        return replay

    return asyncio.run(run())


def test_what_others_notice_is_named() -> None:
    will = Will(will_topic="gone", will_payload=b"x", properties=Properties())
    plan = make_plan(
        recordings(
            (0, ">", connect("dev", will=will)),
            (0, "<", connack()),
            (0, ">", publish("kept", retain=True, payload=b"1")),
            (0, ">", publish("kept", retain=True, payload=b"2")),
            (0, ">", publish("cleared", retain=True, payload=b"1")),
            (0, ">", publish("cleared", retain=True)),
            (0, ">", publish("$SYS/mine")),
            (0, ">", Subscribe(1, subscriptions=[Subscription("$share/g/a", 0), Subscription("b", 0)])),
            (0, ">", Disconnect()),
        )
    )

    assert plan.connections == 1
    assert plan.packets == {"connect": 1, "publish": 5, "subscribe": 1, "disconnect": 1}
    assert (plan.retained, plan.cleared, plan.system) == (["kept"], ["cleared"], ["$SYS/mine"])
    assert plan.wills == [("dev", "gone")]
    assert plan.shared == ["$share/g/a"]
    assert [len(plan.warnings), plan.warnings[2]] == [5, "wills are left for gone (dev)"]


def test_nothing_to_notice_is_nothing_to_say() -> None:
    plan = make_plan(recordings((0, ">", connect()), (0, "<", connack()), (0, ">", publish("a"))))

    assert plan.warnings == []


def test_long_lists_are_cut() -> None:
    count = MAX_NAMED + 3
    lines = [(0, ">", publish(f"t/{number}", retain=True, payload=b"x")) for number in range(count)]
    plan = make_plan(recordings((0, ">", connect()), (0, "<", connack()), *lines))

    assert len(plan.retained) == count
    assert plan.warnings[0].endswith("t/19 and 3 more")


def conversation(*, spread_ns: int = 0) -> list[Script]:
    """One subscribes, another publishes three messages; ``spread_ns`` is put before each message."""
    said = [
        (1, arrow, packet)
        for number in range(1, 4)
        for arrow, packet in (
            (">", publish("a", qos=1, packet_identifier=number, payload=b"%d" % number)),
            ("<", Puback(number)),
        )
    ]
    scripts = recordings(
        (0, ">", connect("sub")),
        (0, "<", connack()),
        (0, ">", Subscribe(1, subscriptions=[Subscription("a", 0)])),
        (0, "<", Suback(1, reason_codes=[0])),
        (1, ">", connect("pub")),
        (1, "<", connack()),
        *said,
        (1, ">", Disconnect()),
        (0, "<", publish("a", payload=b"1")),
        (0, "<", publish("a", payload=b"2")),
        (0, "<", publish("a", payload=b"3")),
        (0, ">", Disconnect()),
    )
    for script in scripts:
        for entry in script.entries:
            before = sum(one.place <= entry.place for one in scripts[1].entries if one.type == "publish")
            entry.timestamp_ns += spread_ns * (3 if script is scripts[0] and entry.place > 6 else before)
        script.ending.timestamp_ns += 3 * spread_ns
    return scripts


def payloads(script: Script) -> list[bytes]:
    return [one.packet.payload for one in script.entries if one.type == "publish"]  # type: ignore[union-attr]


@pytest.mark.parametrize("pace", [Pace(None), Pace(None, causal=True), Pace(1.0), Pace(4.0)])
def test_everything_is_said_and_delivered(pace: Pace) -> None:
    replay = replayed(conversation(), pace)
    sub, pub = replay.drivers

    assert payloads(sub.player.live.script) == payloads(pub.player.live.script) == [b"1", b"2", b"3"]
    assert [one.failure for one in replay.drivers] == ["", ""]
    assert (replay.context.sent, replay.context.received) == (8, 9)
    assert replay.context.gates.missed == replay.stalled == 0


def test_the_recorded_pace_takes_its_time() -> None:
    assert replayed(conversation(spread_ns=200_000_000), Pace(1.0)).seconds >= 0.6


@pytest.mark.parametrize(("pace", "least"), [(Pace(None), 0), (Pace(36_000.0), 0.3), (Pace(1.0, max_gap_ns=1), 0)])
def test_three_hours_pass_faster(pace: Pace, least: float) -> None:
    """`replayed` gives up long before they have passed at the recorded pace."""
    replay = replayed(conversation(spread_ns=3_600_000_000_000), pace)

    assert replay.seconds >= least
    assert payloads(replay.drivers[0].player.live.script) == [b"1", b"2", b"3"]


def test_no_more_messages_than_the_rate_allows() -> None:
    assert replayed(conversation(), Pace(None, rate=5)).seconds >= 0.4


def test_a_server_that_does_not_answer_is_given_up() -> None:
    replay = replayed(conversation(), broker=Broker(silent=frozenset({Subscribe})), patience_s=1.0)

    assert replay.context.gates.missed >= 1
    assert replay.stalled >= 1
    assert payloads(replay.drivers[1].player.live.script) == [b"1", b"2", b"3"]


def test_it_can_be_stopped() -> None:
    replay = replayed(conversation(spread_ns=10_000_000_000), Pace(1.0), meanwhile=lambda one: one.stop())

    assert replay.stopped
    assert replay.seconds < 5
    assert all(one.finished.is_set() for one in replay.drivers)
    assert [one.player.live.script.ending.by for one in replay.drivers] == ["client", "client"]


def test_a_slow_replay_keeps_its_connections_alive() -> None:
    scripts = recordings(
        (0, ">", connect("dev", keep_alive=1)),
        (0, "<", connack()),
        (0, ">", publish("a")),
        (0, ">", Disconnect()),
    )
    for entry in scripts[0].entries[2:]:
        entry.timestamp_ns += 500_000_000
    replay = replayed(scripts, Pace(0.25))
    pings = [one for one in replay.drivers[0].player.live.script.entries if one.type == "pingreq"]

    assert len(pings) in (1, 2), "after 0.75 and 1.5 seconds of two, unless the connection took long to make"
    faithful = replayed(scripts, Pace(0.5), options=ClientOptions(faithful=True)).drivers[0].player
    assert not any(one.type == "pingreq" for one in faithful.live.script.entries)


def test_ports_lead_elsewhere() -> None:
    goal = BrokerTarget(
        parse_broker("mqtt://localhost:1884"), ports={1883: 1885}, addresses=[Address(2, ("127.0.0.1", 1884))]
    )

    assert goal.of(8883) == (goal.target, goal.addresses)
    target, addresses = goal.of(1883)
    assert target.port == 1885
    assert addresses == [Address(2, ("127.0.0.1", 1885))]


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


def played(scripts: Sequence[Script], port: int, patience_s: float, pace: Pace | None = None) -> Replay:
    made = Replay(
        scripts, BrokerTarget(parse_broker(f"mqtt://127.0.0.1:{port}")), pace or Pace(), patience_s=patience_s
    )

    async def run() -> None:
        async with asyncio.timeout(BOUND_S):
            await made.run()

    asyncio.run(run())
    return made


@pytest.mark.long
def test_answers_to_pings_of_our_own_are_no_progress() -> None:
    """The wait is longer than the time between two PINGREQ, so that an answer always comes in it."""
    with hostile("kept-alive") as (port, _):
        done = played(dismissed(), port, patience_s=3.0)

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
        done = played(scripts, port, 1.5, Pace(None))

    (one,) = done.drivers
    assert one.shortfall == "a connection waited in vain for the server to read what is sent"
    skipped = {note.text for note in one.player.live.notes if note.kind is NoteKind.SKIPPED}
    assert skipped == {
        "PUBLISH, because the connection had ended",
        "DISCONNECT, because the connection had ended",
    }


def test_who_was_never_connected_did_not_send_because_of_that() -> None:
    scripts = recordings((0, ">", connect("a")), (0, "<", connack()), (0, ">", Disconnect()))
    done = played(scripts, rig.free_port(), 0.3, Pace(None))

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

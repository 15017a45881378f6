"""Inputs at the limits of the package broker_test."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import replace

from mqttscope.broker_test.conversation import Conversation
from mqttscope.broker_test.drivers.case_runner import HOPELESS_S, CaseRunner, RecordingListener
from mqttscope.broker_test.drivers.cleanup import Cleaner
from mqttscope.broker_test.drivers.health import HealthMonitor, MemoryTrend, NoBrokerError, Process
from mqttscope.broker_test.drivers.minimize import minimize_case
from mqttscope.broker_test.drivers.probe_client import BrokerAccess, ProbeClient
from mqttscope.broker_test.isolation import IsolatedConnection
from mqttscope.broker_test.verdict import decide
from mqttscope.mqtt import PacketType, Pingresp, decode, encode
from mqttscope.mutate import Action, FlowStep
from tests.broker_test.broken import Broker, Fault, broken
from tests.broker_test.drivers.test_cleanup import kept
from tests.broker_test.drivers.test_minimize import QOS_3, Inside, trial_inside
from tests.broker_test.flows import V3_1_1, V5, begun, catalogued, confirm, make_case, ruled, script, target, trial_of
from tests.broker_test.test_export import line_of
from tests.broker_test.test_oracle import QOS_3 as CASE
from tests.broker_test.test_oracle import TOLERATED, said
from tests.broker_test.test_verdict import rulings
from tests.limits.leaping import leaping, now

PING = b"\xc0\x00"
PONG = b"\xd0\x00"
PROOF = 96 * 1024 * 1024


def line(size: int) -> bool:
    """Whether a packet of so many bytes is in the line for a shell as hexadecimal text."""
    return "xxd -r -p" in line_of(FlowStep(Action.SEND, b"a" * size))


def flood(count: int) -> str:
    """What becomes of an accusation where the broker breaks rules so often, once in the case itself."""
    heard = said(CASE)
    for number in range(count - 1):
        heard.add(False, encode(Pingresp(), V5), 3_000_000_000 + number)
    return confirm(TOLERATED, CASE, heard).why


def alone(*sizes: int) -> bool:
    """Whether a case is played alone whose mutation has steps with so many bytes."""
    own = script()
    case = catalogued("pingreq:reserved-flag-0", own)[0].case
    steps = [FlowStep(Action.SEND, bytes(size), mutated=True) for size in sizes]
    return IsolatedConnection.as_recorded(own).uses(replace(case, flow=replace(case.flow, steps=steps))).alone


def is_over(playings: int) -> bool:
    """Whether a case that harmed the broker once is played no more."""
    return decide(rulings("H" + "-" * (playings - 1))) is not None


class Valve:
    """The part of a link that a client works."""

    def __init__(self) -> None:
        self.reading = True
        self.written: list[bytes] = []

    def read(self, on: bool) -> None:
        self.reading = on

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def abort(self) -> None:
        self.reading = False


def listening(valve: Valve) -> RecordingListener:
    listener = RecordingListener(Conversation(V5), lambda _: None)
    listener.link = valve  # type: ignore[assignment]
    return listener


def pongs(size: int) -> bytes:
    """So many bytes of PINGRESP."""
    return (PONG * size)[:size]


def is_heard(size: int) -> bool:
    """Whether a broker is still listened to that has sent so many bytes."""
    valve = Valve()
    listening(valve).received(pongs(size))
    return valve.reading


def lost(size: int) -> int:
    """Bytes that are not kept of a broker that is not listened to any longer."""
    listener = listening(Valve())
    listener.most = 0
    listener.received(pongs(size))
    return size - sum(len(word.data) for word in listener.conversation.chunks)


def unasked(count: int) -> str:
    """How the connection of a client ends that gets so many packets."""
    client = ProbeClient(BrokerAccess(target(1)), V5)
    client.link = Valve()  # type: ignore[assignment]
    client.received(PONG * count)
    return client.ended_by


async def identifiers(count: int) -> list[int]:
    """Packet identifiers of messages of a client."""
    valve, client = Valve(), ProbeClient(BrokerAccess(target(1)), V5)
    client.link = valve  # type: ignore[assignment]
    for _ in range(count):
        await client.publish("a", b"", 1, 0.0)
    return [decode(data, V5).packet_identifier for data in valve.written]  # type: ignore[union-attr]


@leaping
async def left(seconds: float) -> str:
    """How the connection of a client ends whose broker closes so long after it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x20\x02\x00\x00")
        await reader.read()
        await asyncio.sleep(seconds)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        client = ProbeClient(BrokerAccess(target(server.sockets[0].getsockname()[1])))
        assert await client.connect(1.0)
        await client.leave()
        await asyncio.sleep(1)
        return client.ended_by


@leaping
async def cleaned(seconds: float) -> float:
    """How long the last attempt to clean up takes where each answer may take so long, and none comes."""
    async with broken(Fault.NONE) as broker:
        broker.hanging = True
        cleaner = Cleaner(BrokerAccess(target(broker.port)))
        cleaner.remember(kept())
        await cleaner.finish(V3_1_1, seconds)
        return now()


@leaping
async def stopped(seconds: float) -> float:
    """How long the end of a run takes that was stopped, and cleans up a broker that answers nothing in so long."""
    async with broken(Fault.NONE) as broker:
        broker.hanging = True
        test = trial_of(broker.port, patience_s=seconds)
        test.stopped = True
        test.cleaners[0].remember(kept())
        await test.end()
        return now()


class Slow(Inside):
    """Begins to listen so long after its start."""

    seconds = 0.0
    is_starting = False

    def start(self) -> None:
        self.is_starting = True
        asyncio.get_running_loop().call_later(self.seconds, self.listen)

    def listen(self) -> None:
        self.is_starting = False
        super().start()

    def alive(self) -> bool:
        return self.is_starting or super().alive()


@leaping
async def serves(seconds: float) -> bool:
    """Whether a broker is found that listens so long after its start."""
    process = Slow(Fault.NONE)
    process.seconds = seconds
    monitor = HealthMonitor(BrokerAccess(target(process.port)), 0.2, process)
    try:
        await monitor.begin()
    except NoBrokerError:
        return False
    finally:
        await asyncio.sleep(2)
        await monitor.end()
        await process.end()
    return True


def grown(size: int) -> bool:
    """Whether growth of so many bytes over a run is told of."""
    trend = MemoryTrend(None)
    for place in range(101):
        trend.add(size * place // 100)
    return bool(trend.notice())


def samples(count: int) -> int:
    """Samples that are kept of so many looks at the memory."""
    trend = MemoryTrend(None)
    for _ in range(count):
        trend.add(1)
    return len(trend._samples)


class Growing(Process):
    """A process whose memory grows by these bytes each time that its broker is provoked."""

    def __init__(self, broker: Broker, *sizes: int) -> None:
        super().__init__(os.getpid())
        self.broker, self.sizes = broker, sizes

    def memory(self) -> int:
        return sum(self.sizes[: self.broker.provocations])


@leaping
async def leak(*sizes: int) -> str:
    """The verdict on a case with which the memory grows, after the first playing."""
    own = script()
    async with broken(Fault.NONE) as broker:
        process = Growing(broker, 0, *sizes)
        async with begun(trial_of(broker.port, process)) as test:
            return ruled(await test.play_case(own, make_case(QOS_3, own))).verdict


@leaping
async def reduced(size: int) -> tuple[int, str]:
    """How often a broker is tried that crashes over a packet of so many bytes, and why no more."""
    own = script()
    case = make_case(QOS_3, own)
    steps = [FlowStep(Action.SEND, b"\xf7" + bytes((size - 2,)) + bytes(size - 2), mutated=True)]
    async with trial_inside(Fault.CRASH) as (test, _):
        result = await test.play_case(own, replace(case, flow=replace(case.flow, steps=steps)))
        reduction = await minimize_case(test, own, result, raw=True)
    assert reduction is not None
    return reduction.tries, reduction.unfinished


def runner(port: int, patience_s: float, *steps: FlowStep) -> CaseRunner:
    """Plays steps as they are."""
    own = script()
    case = make_case("publish.topic_name:spaces", own)
    case = replace(case, flow=replace(case.flow, steps=list(steps)))
    return CaseRunner(case, own, BrokerAccess(target(port)), patience_s, raw=True)


@leaping
async def vain(count: int) -> tuple[int, int]:
    """Answers that are to be waited for in vain, and those that are."""
    waits = [
        FlowStep(Action.AWAIT, awaits=PacketType.PUBACK, packet_identifier=number) for number in range(1, count + 1)
    ]
    async with broken(Fault.NONE) as broker:
        await runner(broker.port, 1.0, *waits).run()
        # The first one takes all of the patience, and so does CONNACK in the end.
        return count, 1 + round((now() - 2.0) / HOPELESS_S)


@leaping
async def fenced(seconds: float) -> bool:
    """Whether PINGRESP counts that comes so late, of a broker that sends other packets all the time."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(b"\x20\x03\x00\x00\x00")
        while await reader.readexactly(2) != PING:
            pass
        until = now() + seconds
        while now() < until:
            writer.write(b"\x30\x05\x00\x01a\x00b")
            await asyncio.sleep(min(0.15, until - now()))
        writer.write(PONG)
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    hello = FlowStep(Action.SEND, script().entries[0].raw), FlowStep(Action.AWAIT, awaits=PacketType.CONNACK)
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        played = await runner(server.sockets[0].getsockname()[1], 0.2, *hello).run()
        await asyncio.sleep(1)
    return bool(played.seen.ping_answered)

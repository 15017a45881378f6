"""Runs a replay from beginning to end: connections in recorded order, each with its player, in one event loop.

`make_plan` works out what a replay will do before anything is sent; `Replay` does it.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Connect, Publish, Subscribe
from mqttscope.mqtt.topics import parse_shared
from mqttscope.replay.client import ClientOptions, ClientPlayer, ClientSessions
from mqttscope.replay.drivers.client import LESS, ClientDriver, MonotonicClock, ReplayContext, Timeline, Timeouts
from mqttscope.replay.live import LiveConnection, Room
from mqttscope.replay.order import Gates, Opening, Step, make_order
from mqttscope.replay.script import Entry, Script
from mqttscope.session.connection import Connection
from mqttscope.transport.client import Address, connect
from mqttscope.transport.link import LinkError
from mqttscope.transport.recording import Recorder

if TYPE_CHECKING:
    from mqttscope.transport.recording import Recording
    from mqttscope.transport.target import Target

PATIENCE_SECONDS = 5.0
CONNECT_SECONDS = 10.0
LOOK_SECONDS = 0.05
"""So often it is looked whether the replay stands still."""
MAX_PACKET_BYTES = 16 * 1024 * 1024
"""A live packet that is longer, and longer than twice the longest of the recording, is passed over."""
MAX_CONNECTING = 64
"""Connections that are being made at a time."""


@dataclass(slots=True)
class Pace:
    """How fast, and in which order."""

    speed: float | None = 1.0
    """Recorded seconds per second, ``None`` for as soon as possible."""
    causal: bool = False
    """Keep everything that happened before a step before it."""
    max_gap_ns: int | None = None
    rate: float | None = None
    """Messages per second, at most."""
    text: str = "recorded"
    """How the user calls it: ``causal``, ``2x``."""


@dataclass(slots=True)
class BrokerTarget:
    """Where the connections go."""

    target: Target
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    connect_timeout_s: float = CONNECT_SECONDS
    ports: dict[int, int] = field(default_factory=dict)
    """Live ports by recorded ones."""
    addresses: Sequence[Address] | None = None
    """What the host was resolved to."""

    def of(self, recorded_port: int) -> tuple[Target, Sequence[Address] | None]:
        """Where a connection goes that went to this port."""
        port = self.ports.get(recorded_port, self.target.port)
        if port == self.target.port:
            return self.target, self.addresses
        found = self.addresses
        moved = None if found is None else [one._replace(name=(one.name[0], port, *one.name[2:])) for one in found]
        return replace(self.target, port=port), moved


@dataclass(slots=True)
class Replay:
    """One run.  Call `run` once; what happened is in ``drivers`` afterwards."""

    scripts: Sequence[Script]
    goal: BrokerTarget
    pace: Pace = field(default_factory=Pace)
    options: ClientOptions = field(default_factory=ClientOptions)
    patience_s: float = PATIENCE_SECONDS
    recording: Recording | None = None
    unreachable: Container[Entry] = ()
    """Recorded packets of the server that cannot come, such as messages whose publishers are not played."""
    watch: Callable[[Replay | None], None] | None = None
    """Called about twenty times a second."""
    drivers: list[ClientDriver] = field(default_factory=list)
    started_ns: int = 0
    seconds: float = 0.0
    """How long it took."""
    stalled: int = 0
    """How often nothing happened for so long that steps continued without what they waited for."""
    missed: set[Step] = field(default_factory=set)
    """What was waited for in vain; some of it may have come later."""
    timeouts: Timeouts = field(init=False)
    context: ReplayContext = field(init=False)
    stopped: bool = False
    """Whether somebody ended it."""
    recorded_ns: int = 0
    """How long the recording is."""
    _recorder: Recorder | None = None
    _opening: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        order = make_order(
            self.scripts,
            causal=self.pace.causal,
            fenced=(self.pace.speed is None or self.pace.speed > 1) and not self.options.faithful,
            faithful=self.options.faithful,
            unreachable=self.unreachable,
        )
        self.timeouts = Timeouts(self.scripts, self.patience_s)
        times = [one.timestamp_ns for script in self.scripts for one in script.entries if one.from_client]
        times += [script.opened_ns for script in self.scripts]
        times += [script.ending.timestamp_ns for script in self.scripts if script.ending.timestamp_ns]
        self.recorded_ns = max(times, default=0) - min(times, default=0)
        timeline = Timeline(times, self.pace.speed, self.pace.max_gap_ns)
        clock = MonotonicClock()
        self.context = ReplayContext(
            Gates(order), timeline, clock, self.patience_s, self.pace.rate, came=self.timeouts.came
        )
        self.options.delay = 0.0 if self.pace.speed is None else 1 / self.pace.speed
        sessions, room, places = ClientSessions(), Room(), count().__next__
        longest = max((len(one.raw) for script in self.scripts for one in script.entries), default=0)
        for index, script in enumerate(self.scripts):
            recorded = script.connection
            broker = str(self.goal.target)
            live = Script(Connection(recorded.number, "", broker, broker, 0, 0, handshake_seen=True))
            connection = LiveConnection(live, plays_client=True, keep=self.options.keep, room=room, next_place=places)
            player = ClientPlayer(script, connection, sessions, self.options, fences=order.fences[index])
            driver = ClientDriver(index, player, self.context)
            driver.limit_packets(max(MAX_PACKET_BYTES, 2 * longest))
            self.drivers.append(driver)

    async def run(self) -> None:
        """Perform all connections; returns when all have ended."""
        clock = self.context.clock = MonotonicClock()
        self.started_ns = clock.now_ns()
        if self.recording is not None:
            self._recorder = Recorder(self.recording)
        tasks: set[asyncio.Task[None]] = set()
        looking = asyncio.create_task(self._look())
        self._opening = asyncio.create_task(self._open_all(tasks))
        try:
            await asyncio.gather(self._opening, *(driver.finished.wait() for driver in self.drivers))
        except asyncio.CancelledError:
            if not self.stopped:
                raise
        finally:
            looking.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(looking, *tasks, return_exceptions=True)
            if self._recorder is not None:
                self._recorder.rounds.close()
            self.seconds = clock.since_start_ns() / 1e9

    def stop(self) -> None:
        """End all connections now."""
        self.stopped = True
        if self._opening is not None:
            self._opening.cancel()
        for driver in self.drivers:
            driver.stop()

    async def _open_all(self, tasks: set[asyncio.Task[None]]) -> None:
        """Open the connections in recorded order, each when it is due."""
        connecting = asyncio.Semaphore(MAX_CONNECTING)
        for driver in self.drivers:
            await self._turn(driver)
            await connecting.acquire()
            task = asyncio.create_task(self._open(driver, connecting))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)

    async def _turn(self, driver: ClientDriver) -> None:
        """Wait until a connection is to be opened."""
        context, step = self.context, Opening(driver.index)
        wait_ns = context.timeline.due_ns(driver.player.script.opened_ns) - context.clock.since_start_ns()
        if wait_ns > 0:
            await asyncio.sleep(wait_ns / 1e9)
        while not context.gates.open_for(step):
            opened = asyncio.Event()
            context.gates.when_open(step, opened.set)
            await opened.wait()

    async def _open(self, driver: ClientDriver, connecting: asyncio.Semaphore) -> None:
        goal, script = self.goal, driver.player.script
        target, addresses = goal.of(int(script.connection.server.rpartition(":")[2] or 0))
        try:
            link = await connect(
                target,
                driver,
                tls=goal.tls,
                server_name=goal.server_name,
                timeout_s=goal.connect_timeout_s,
                recorder=self._recorder,
                addresses=addresses,
                subprotocol="mqttv3.1" if script.version == ProtocolVersion.V3_1 else "mqtt",
            )
        except LinkError as error:
            driver.failed(str(error))
            return
        finally:
            connecting.release()
        connection = driver.player.connection
        connection.client, connection.server = str(link.local), str(link.remote)
        connection.opened_ns = driver.player.live.script.opened_ns = self.context.clock.now_ns()
        driver.opened(link)

    async def _look(self) -> None:
        """Let steps continue when what they wait for does not come."""
        seen, since = -1, time.monotonic()
        heard, silences = -1, 0
        allowed: float | None = None
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self.watch is not None:
                self.watch(self)
            now, context = time.monotonic(), self.context
            if context.progress != seen or context.pending or not context.gates.waiting:
                seen, since, allowed = context.progress, now, None
            else:
                if allowed is None:
                    # A server that says nothing at all gets less time from one step to the next.
                    allowed = self.timeouts.for_steps(context.gates.blocking()) / 2 ** min(silences, 10)
                    if self.options.faithful:
                        # Nobody expects that it says what was recorded: it is waited for in full once.
                        allowed /= LESS ** min(self.stalled, 10)
                if now - since >= allowed:
                    silences = silences + 1 if context.useful == heard else 1
                    heard = context.useful
                    self.stalled += 1
                    self._give_up()
                    since, allowed = now, None
            if context.useful != heard:
                silences = 0

    def _give_up(self) -> None:
        """What is waited for does not come: continue without it, and learn from it."""
        gates = self.context.gates
        missed = gates.give_up()
        for entry in self.timeouts.passed(missed):
            if gates.reach(entry):
                gates.missed += 1
                missed.append(entry)
        self.missed.update(missed)
        if self.options.faithful:
            # What it says is not what was recorded, and no reason to wait a second time.
            for driver in self.drivers:
                if any(one in missed for one in driver.player.correspondence.awaited):
                    driver.await_nothing()


MAX_NAMED = 20
"""Topics that are named; further ones are counted."""


@dataclass(slots=True)
class Plan:
    """What is going to be sent, and what of it others will notice or that stays behind."""

    connections: int = 0
    packets: Counter[str] = field(default_factory=Counter)
    """Packets of the clients, by type; acknowledgements depend on the live broker."""
    retained: list[str] = field(default_factory=list)
    """Topics on which a message will be retained, each once."""
    cleared: list[str] = field(default_factory=list)
    """Topics whose retained message will be removed."""
    wills: list[tuple[str, str]] = field(default_factory=list)
    """Client and topic of each will."""
    shared: list[str] = field(default_factory=list)
    """Shared subscriptions, which take messages away from others."""
    system: list[str] = field(default_factory=list)
    """Topics that begin with ``$`` and are published to: brokers refuse or ignore that."""

    @property
    def warnings(self) -> list[str]:
        """What somebody else at the broker will notice, as sentences."""
        found = []
        if self.retained:
            found.append(f"messages stay retained on {_named(self.retained)}")
        if self.cleared:
            found.append(f"retained messages are removed from {_named(self.cleared)}")
        if self.wills:
            found.append(f"wills are left for {_named([f'{topic} ({client})' for client, topic in self.wills])}")
        if self.shared:
            found.append(f"shared subscriptions take messages away from other members: {_named(self.shared)}")
        if self.system:
            found.append(f"messages are published to topics that belong to the broker: {_named(self.system)}")
        return found


def make_plan(scripts: Sequence[Script]) -> Plan:
    """The plan of scripts as they will be played."""
    plan = Plan(len(scripts))
    kept: dict[str, bool] = {}
    shared, system = dict[str, None](), dict[str, None]()
    for script in scripts:
        for entry in script.entries:
            if not entry.from_client:
                continue
            packet = entry.packet
            plan.packets[entry.type] += 1
            if isinstance(packet, Publish) and entry.topic is not None:
                if packet.retain:
                    kept[entry.topic] = bool(packet.payload)
                if entry.topic.startswith("$"):
                    system[entry.topic] = None
            elif isinstance(packet, Connect) and packet.will is not None:
                plan.wills.append((script.name, packet.will.will_topic))
            elif isinstance(packet, Subscribe):
                names = (one.topic_filter for one in packet.subscriptions)
                shared.update(dict.fromkeys(one for one in names if parse_shared(one)))
    plan.retained = [topic for topic, has_payload in kept.items() if has_payload]
    plan.cleared = [topic for topic, has_payload in kept.items() if not has_payload]
    plan.shared, plan.system = list(shared), list(system)
    return plan


def _named(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more

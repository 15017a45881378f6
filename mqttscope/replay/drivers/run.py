"""Runs a replay from beginning to end: connections in recorded order, each with its player, in one event loop.

`make_plan` describes what a replay will send before anything is sent; `ReplayRunner` runs it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

from mqttscope.mqtt.packets import Connect, Publish, Subscribe
from mqttscope.mqtt.topics import parse_shared
from mqttscope.replay.client import ClientOptions, ClientPlayer, ClientSessions
from mqttscope.replay.drivers.client import LESS, ClientDriver, MonotonicClock, ReplayContext, Timeline, Timeouts
from mqttscope.replay.live import LiveConnection, PacketBudget
from mqttscope.replay.order import ConnectionOpening, Gates, Step, make_order
from mqttscope.replay.script import Script, ScriptEntry
from mqttscope.session.connection import Connection, port_of
from mqttscope.transport.client import BrokerConnector
from mqttscope.transport.link import LinkError
from mqttscope.transport.recording import LinkRecorder

if TYPE_CHECKING:
    from mqttscope.transport.recording import Recording

PATIENCE_SECONDS = 5.0
LOOK_SECONDS = 0.05
"""Interval for checking whether the replay is stuck."""
MAX_PACKET_BYTES = 16 * 1024 * 1024
"""Maximum length of a live packet, or twice the longest recorded packet; longer packets are ignored."""
MAX_CONNECTING = 64
"""Maximum number of connections being opened at the same time."""


@dataclass(slots=True)
class Pace:
    """Speed of the replay, and order of its steps."""

    speed: float | None = 1.0
    """Recorded seconds per second, ``None`` for as soon as possible."""
    causal: bool = False
    """Whether each step waits for everything recorded before it."""
    max_gap_ns: int | None = None
    rate: float | None = None
    """Maximum number of messages per second."""
    text: str = "recorded"
    """Name of the pace on the command line: ``causal``, ``2x``."""


@dataclass(slots=True)
class BrokerTarget(BrokerConnector):
    """The broker that the connections go to."""

    ports: dict[int, int] = field(default_factory=dict)
    """Live ports by recorded port."""

    def for_port(self, recorded_port: int) -> BrokerTarget:
        """The broker for connections that went to this recorded port."""
        port = self.ports.get(recorded_port, self.target.port)
        if port == self.target.port:
            return self
        moved = None
        if self.addresses is not None:
            moved = [address._replace(name=(address.name[0], port, *address.name[2:])) for address in self.addresses]
        return replace(self, target=replace(self.target, port=port), addresses=moved)


@dataclass(slots=True)
class ReplayRunner:
    """One replay.  Call `run` once; ``drivers`` contains the results afterwards."""

    scripts: Sequence[Script]
    goal: BrokerTarget
    pace: Pace = field(default_factory=Pace)
    options: ClientOptions = field(default_factory=ClientOptions)
    patience_s: float = PATIENCE_SECONDS
    recording: Recording | None = None
    unreachable: Container[ScriptEntry] = ()
    """Recorded packets of the server that cannot come, such as messages of publishers that are not played."""
    watch: Callable[[ReplayRunner | None], None] | None = None
    """Called about twenty times a second."""
    drivers: list[ClientDriver] = field(default_factory=list)
    started_ns: int = 0
    seconds: float = 0.0
    """Duration of the replay."""
    stalled: int = 0
    """Number of times that nothing happened until a timeout, so that steps continued without the awaited packets."""
    missed: set[Step] = field(default_factory=set)
    """Milestones not reached before their timeout; some of them may have come later."""
    timeouts: Timeouts = field(init=False)
    context: ReplayContext = field(init=False)
    stopped: bool = False
    """Whether it was stopped from outside."""
    recorded_ns: int = 0
    """Duration of the recording."""
    _recorder: LinkRecorder | None = None
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
        times = [entry.timestamp_ns for script in self.scripts for entry in script.entries if entry.from_client]
        times += [script.opened_ns for script in self.scripts]
        times += [script.ending.timestamp_ns for script in self.scripts if script.ending.timestamp_ns]
        self.recorded_ns = max(times, default=0) - min(times, default=0)
        timeline = Timeline(times, self.pace.speed, self.pace.max_gap_ns)
        clock = MonotonicClock()
        self.context = ReplayContext(
            Gates(order), timeline, clock, self.patience_s, self.pace.rate, on_match=self.timeouts.note_arrival
        )
        self.options.delay = 0.0 if self.pace.speed is None else 1 / self.pace.speed
        sessions, budget, places = ClientSessions(), PacketBudget(), count().__next__
        longest = max((len(entry.raw) for script in self.scripts for entry in script.entries), default=0)
        for index, script in enumerate(self.scripts):
            recorded = script.connection
            broker = str(self.goal.target)
            live = Script(Connection(recorded.number, "", broker, broker, 0, 0, handshake_seen=True))
            keep = self.options.keep
            connection = LiveConnection(live, plays_client=True, keep=keep, budget=budget, next_place=places)
            player = ClientPlayer(script, connection, sessions, self.options, fences=order.fences[index])
            driver = ClientDriver(index, player, self.context)
            driver.stream.max_packet_bytes = max(MAX_PACKET_BYTES, 2 * longest)
            self.drivers.append(driver)

    async def run(self) -> None:
        """Play all connections; returns when all have ended."""
        clock = self.context.clock = MonotonicClock()
        self.started_ns = clock.now_ns()
        if self.recording is not None:
            self._recorder = LinkRecorder(self.recording)
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
        context, step = self.context, ConnectionOpening(driver.index)
        wait_ns = context.timeline.due_ns(driver.player.script.opened_ns) - context.clock.since_start_ns()
        if wait_ns > 0:
            await asyncio.sleep(wait_ns / 1e9)
        while not context.gates.open_for(step):
            opened = asyncio.Event()
            context.gates.when_open(step, opened.set)
            await opened.wait()

    async def _open(self, driver: ClientDriver, connecting: asyncio.Semaphore) -> None:
        script = driver.player.script
        goal = self.goal.for_port(int(port_of(script.connection.server) or 0))
        try:
            link = await goal.open(driver, script.version, recorder=self._recorder)
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
        """Let steps continue when awaited packets do not come."""
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
                    # A server that sends nothing at all gets less time from one step to the next.
                    allowed = self.timeouts.for_steps(context.gates.blocking()) / 2 ** min(silences, 10)
                    if self.options.faithful:
                        # Its packets are not expected to be the recorded ones: they are waited for in full once.
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
        """Continue without the awaited packets, and shorten the timeouts."""
        gates = self.context.gates
        missed = gates.give_up()
        for entry in self.timeouts.time_out(missed):
            if gates.reach(entry):
                gates.missed += 1
                missed.append(entry)
        self.missed.update(missed)
        if self.options.faithful:
            # Packets other than the recorded ones are not a reason to wait a second time.
            for driver in self.drivers:
                if any(entry in missed for entry in driver.player.correspondence.awaited):
                    driver.await_nothing()


MAX_NAMED = 20
"""Maximum number of names in one sentence; further names are only counted."""


@dataclass(slots=True)
class ReplayPlan:
    """Packets that a replay will send, and their effects on other clients of the broker."""

    connections: int = 0
    packets: Counter[str] = field(default_factory=Counter)
    """Number of packets of the clients, by type; acknowledgements depend on the live broker."""
    retained: list[str] = field(default_factory=list)
    """Topics of messages that will be retained, each once."""
    cleared: list[str] = field(default_factory=list)
    """Topics of retained messages that will be removed."""
    wills: list[tuple[str, str]] = field(default_factory=list)
    """Client and topic of each Will."""
    shared: list[str] = field(default_factory=list)
    """Shared subscriptions, which take messages away from others."""
    system: list[str] = field(default_factory=list)
    """Topics of messages that begin with ``$``: brokers refuse or ignore these."""

    @property
    def warnings(self) -> list[str]:
        """Sentences about effects that other clients of the broker will notice."""
        warnings = []
        if self.retained:
            warnings.append(f"messages stay retained on {name_list(self.retained)}")
        if self.cleared:
            warnings.append(f"retained messages are removed from {name_list(self.cleared)}")
        if self.wills:
            warnings.append(f"wills are left for {name_list([f'{topic} ({client})' for client, topic in self.wills])}")
        if self.shared:
            warnings.append(f"shared subscriptions take messages away from other members: {name_list(self.shared)}")
        if self.system:
            warnings.append(f"messages are published to topics that belong to the broker: {name_list(self.system)}")
        return warnings


def make_plan(scripts: Sequence[Script]) -> ReplayPlan:
    """The plan for scripts as they will be played."""
    plan = ReplayPlan(len(scripts))
    retained: dict[str, bool] = {}
    shared, system = dict[str, None](), dict[str, None]()
    for script in scripts:
        for entry in script.entries:
            if not entry.from_client:
                continue
            packet = entry.packet
            plan.packets[entry.type] += 1
            if isinstance(packet, Publish) and entry.topic is not None:
                if packet.retain:
                    retained[entry.topic] = bool(packet.payload)
                if entry.topic.startswith("$"):
                    system[entry.topic] = None
            elif isinstance(packet, Connect) and packet.will is not None:
                plan.wills.append((script.name, packet.will.will_topic))
            elif isinstance(packet, Subscribe):
                names = (subscription.topic_filter for subscription in packet.subscriptions)
                shared.update(dict.fromkeys(topic_filter for topic_filter in names if parse_shared(topic_filter)))
    plan.retained = [topic for topic, has_payload in retained.items() if has_payload]
    plan.cleared = [topic for topic, has_payload in retained.items() if not has_payload]
    plan.shared, plan.system = list(shared), list(system)
    return plan


def name_list(names: list[str]) -> str:
    """Names for a sentence, at most `MAX_NAMED`."""
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more

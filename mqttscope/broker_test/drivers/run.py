"""Cases one after the other: played, judged, and cleaned up after.

`BrokerTest` alone accuses a broker: `crowd` plays cases at the same time, and leaves to it what may be a deviation.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TypeVar

from mqttscope.broker_test import verdict
from mqttscope.broker_test.conversation import Conversation
from mqttscope.broker_test.drivers import probe_client
from mqttscope.broker_test.drivers.case_runner import CaseRunner, NotPlayedError, Played
from mqttscope.broker_test.drivers.cleanup import Cleaner
from mqttscope.broker_test.drivers.health import AGAIN, HealthMonitor, MemoryTrend, NoBrokerError, Process
from mqttscope.broker_test.fit import Numbered, flow_of
from mqttscope.broker_test.oracle import confirming
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Auth, Connack
from mqttscope.mutate import Action, Case
from mqttscope.replay.script import Entry, Script
from mqttscope.transport.link import LinkError

PATIENCE_S = 1.0
"""How long the broker has for each reaction unless said otherwise."""
LEAK_BYTES = 256 * 1024
"""Growth of the broker's memory in one case that is looked into."""
LEAK_PROOF_BYTES = 96 * 1024 * 1024
"""A case leaks when turn by turn the memory grows so far: heaps that are collected shrink before that."""
LEAK_TURNS = 200
"""More turns are not played to prove that."""
FLOOD = (
    f"the broker sent more than {probe_client.MAX_RECEIVED_BYTES >> 20} MiB or {probe_client.MAX_RECEIVED_PACKETS:,} "
    "packets on the connection, so that it is not judged"
)
"""What is said of a broker that sends without end."""
HURRY_S = 0.3
"""How long cleaning up may take when the run was stopped, and a broker that was started here to end."""
T = TypeVar("T")
Resting = Callable[[], AbstractAsyncContextManager[None]]
LOOK_S = 0.1
"""How long it may take until it is noticed that the run is to end."""


@dataclass(slots=True)
class CaseResult:
    """What became of one case."""

    case: Case
    ruling: verdict.Ruling | None
    """``None`` where the case was not played to its mutation."""
    not_played: str = ""
    """Why not."""
    played: Played | None = None
    script: Script | None = None
    """The connection as it was played, fitted to the broker."""
    seconds: float = 0.0
    number: int = 0
    """Of the case in its capture; `AS_RECORDED` for a connection without a mutation."""
    unclean: tuple[str, ...] = ()
    """What could not be cleaned up."""

    @property
    def deviates(self) -> bool:
        return self.ruling is not None and self.ruling.deviates


@dataclass(slots=True)
class BrokerTest:
    """One run against one broker."""

    access: probe_client.BrokerAccess
    patience_s: float = PATIENCE_S
    process: Process | None = None
    rate: float | None = None
    """Cases per second, at most."""
    stopped: bool = False
    told: list[str] = field(default_factory=list)
    """What the user should know about the run, in sentences."""
    baselines: dict[int, verdict.Baseline] = field(default_factory=dict)
    """How the broker took connections without a mutation, by their numbers."""
    monitor: HealthMonitor = field(init=False)
    """Whether the broker as a whole is well."""
    growth: MemoryTrend = field(init=False)
    """Its memory over the run."""
    cleaners: list[Cleaner] = field(init=False)
    """Those that may have something to remove; the first one is that of cases that are played alone."""
    _next: float = 0.0

    def __post_init__(self) -> None:
        self.monitor = HealthMonitor(self.access, self.patience_s, self.process, self.told)
        self.cleaners = [Cleaner(self.access)]
        self.growth = MemoryTrend(self.process)

    async def begin(self) -> None:
        await self.monitor.begin()

    async def end(self) -> None:
        """Clean up what is left, leave, and stop the broker if it was started here."""
        hurry = HURRY_S if self.stopped else None
        version = self.monitor.version
        left = await asyncio.gather(*(one.finish(version, self.patience_s, hurry) for one in self.cleaners))
        self.told += (one for one in (*left, self.growth.told()) if one)
        await self.monitor.end(hurry)

    async def run_baseline(self, script: Script) -> CaseResult:
        """Play a connection without a mutation.

        What the broker lacks then is said of this result, and not held against it in the cases of the connection.
        """
        number = script.connection.number
        found = await self._twice(script, verdict.unmutated(flow_of(script, "", number)))
        found.number = verdict.AS_RECORDED
        self.baselines[number] = verdict.Baseline(ended=True)
        if found.played is not None:
            seen = found.played.seen
            codes = frozenset(code for _, code in seen.codes)
            self.baselines[number] = verdict.Baseline(frozenset(seen.missing), codes, bool(seen.ended))
        if found.ruling is not None and found.ruling.verdict is verdict.Verdict.REFUSED_LEGAL:
            found.ruling = verdict.excused(found.ruling, "whom it lets do what may be its own affair")
        return found

    async def speaks(self, version: ProtocolVersion) -> bool:
        """Whether the broker speaks a version; `LinkError` where it cannot be reached."""
        return await probe_client.speaks(self.access, version, self.patience_s * AGAIN)

    async def connack(self, script: Script) -> Connack | None:
        """What the broker answers to the CONNECT of a connection; ``None`` when it does not accept it."""
        version, connect = script.version, script.connect
        if connect is None or not await self.monitor.alive():
            return None
        conversation = Conversation(version)
        self.cleaners[0].owe(conversation)
        made = probe_client.ProbeClient(self.access, version)
        made.link = await self.access.open(made, version)
        found: ControlPacket | Malformed | None = None
        for said in (connect, *_authentication(script)):
            conversation.add(True, said.raw, time.time_ns())
            made.link.write(said.raw)
            heard = len(made.packets)
            await made.until(lambda heard=heard: len(made.packets) > heard, self.patience_s * AGAIN)  # type: ignore[misc]
            found = made.packets[heard] if len(made.packets) > heard else None
            if not isinstance(found, Auth):
                break
        if isinstance(found, Connack):
            conversation.add(False, found.raw or encode(found, version), time.time_ns())
        await made.leave()
        await self.settle()
        return found if isinstance(found, Connack) and not found.reason_code else None

    async def run(
        self, cases: Iterable[tuple[Script, Numbered]], seconds: float | None = None
    ) -> AsyncGenerator[CaseResult, None]:
        """Play cases; ends early when it is stopped or the broker is gone for good (`NoBrokerError`).

        ``seconds``: no case begins later than so long from now.
        """
        until = None if seconds is None else time.monotonic() + seconds
        for script, numbered in cases:
            if not await self.turn(until) or self.stopped:
                return
            yield replace(await self.one(script, numbered.case), number=numbered.number)

    async def once(self, script: Script, case: Case, *, raw: bool = False) -> CaseResult:
        return await self.attempt(script, case, self.patience_s, raw=raw)

    async def one(self, script: Script, case: Case, *, raw: bool = False) -> CaseResult:
        """Play one case and judge it; what seems to deviate is played a second time with more patience.

        A case during which the run is stopped has no verdict: what stops us may have stopped the broker as well.
        """
        started = time.monotonic()
        found = await self.concluded(await self.attempt(script, case, self.patience_s, raw=raw), raw=raw)
        found.seconds = time.monotonic() - started
        return found

    async def concluded(self, found: CaseResult, *, raw: bool = False) -> CaseResult:
        """What a case comes to of which ``found`` is the first playing."""
        script, case = found.script, found.case
        assert script is not None
        found = await self._confirmed(found, raw=raw)
        if found.ruling is not None and not found.ruling.deviates and self.monitor.process is not None:
            found = await self._leaking(found, script, case, raw=raw)
        if self.stopped:
            found.ruling, found.not_played = None, "interrupted"
        return found

    # One attempt

    async def _twice(self, script: Script, case: Case, *, raw: bool = False) -> CaseResult:
        return await self._confirmed(await self.attempt(script, case, self.patience_s, raw=raw), raw=raw)

    async def _confirmed(self, found: CaseResult, *, raw: bool = False) -> CaseResult:
        """What seems to deviate is played again, with more patience."""
        assert found.script is not None
        if found.ruling is None:
            return found
        played = [found]
        while (so := verdict.decided([one.ruling for one in played])) is None and not self.stopped:
            ruling = played[-1].ruling
            if ruling is not None and ruling.verdict is verdict.Verdict.COLLATERAL and await self.monitor.lasting():
                # What has not ended is seen a second time by every client that comes.
                return replace(played[-1], ruling=replace(ruling, why=f"{ruling.why}, and so it stays"))
            try:
                patience_s = self.patience_s * AGAIN
                played.append(await self.attempt(found.script, found.case, patience_s, raw=raw, thorough=True))
            except NoBrokerError:
                # It has not come back since: for a broker that hangs there is no better proof.
                if ruling is None or ruling.verdict not in verdict.BROKER_WIDE:
                    raise
                return played[-1]
        if so is None:
            return played[-1]
        for one in verdict.unconfirmed([one.ruling for one in played], so[1]):
            told = f"{found.case.mutation.name}: {one.verdict} once in {len(played)} playings ({one.why})"
            self.told.append(told)
        return replace(played[so[0]], ruling=so[1])

    async def attempt(
        self,
        script: Script,
        case: Case,
        patience_s: float,
        *,
        raw: bool = False,
        thorough: bool = False,
        worker: int = 0,
        resting: Resting = nullcontext,
    ) -> CaseResult:
        """Play a case a single time and judge it, with a look at the broker as a whole before and after.

        ``worker`` is whose cleaner removes what it leaves; ``resting`` is entered while nothing more is sent and only
        the end of the connection is waited for.
        """
        if not await self.monitor.alive():
            raise NoBrokerError(f"{self.access.target} serves no more")
        runner = CaseRunner(
            case, script, self.access, patience_s, self.supply, self._meanwhile(patience_s), raw, thorough, resting
        )
        result = await self.played(runner, worker)
        ill = await self.monitor.ill(patience_s)
        if ill is not None:
            # Whoever brings the broker down on the way to the mutation has found something as well.
            result.ruling, result.not_played = ill, ""
            result.played = result.played or runner.played
        elif runner.listener.flooded:
            result.not_played = FLOOD
        elif result.played is not None:
            result.ruling = await self.judged(case, result.played, script)
        if ill is None or ill.verdict is verdict.Verdict.COLLATERAL:
            result.unclean = tuple(await self.settle(worker))
            self.growth.looked()
        return result

    async def played(self, runner: CaseRunner, worker: int) -> CaseResult:
        """Play a case on a clean broker, without judging it."""
        # Behind a broker that had crashed there is still something to be done.
        await self.clean(worker)
        self.cleaners[worker].owe(runner.conversation)
        result = CaseResult(runner.case, None, script=runner.script)
        try:
            result.played = await runner.run()
        except (LinkError, NotPlayedError) as error:
            result.not_played = str(error)
        return result

    async def judged(self, case: Case, played: Played, script: Script) -> verdict.Ruling:
        """The ruling on a case that was played to its end, as far as its own connection shows."""
        if played.during is None:
            return verdict.Ruling(verdict.Verdict.COLLATERAL, "the witness heard nothing while the case continued")
        ruling = verdict.judge(case, played.seen, self.baselines.get(script.connection.number, verdict.Baseline()))
        return await unhurried(confirming(ruling, case, played.conversation)) if ruling.deviates else ruling

    async def settle(self, worker: int = 0) -> list[str]:
        """Remove what cases have left on the broker; returns what could not be, by name."""
        return await self.cleaners[worker].settle(self.monitor.version, self.patience_s * AGAIN)

    async def clean(self, worker: int = 0) -> None:
        """The same before a case: what is left then is not said of that one."""
        self.told += (f"could not be removed from the broker: {one}" for one in await self.settle(worker))

    def _meanwhile(self, patience_s: float) -> Callable[[], Awaitable[float | None]]:
        async def look() -> float | None:
            return None if self.monitor.witness is None else await self.monitor.witness.round_trip(patience_s)

        return look

    async def supply(self, topic: str, payload: bytes, qos: int) -> bool:
        witness = self.monitor.witness
        return witness is not None and await witness.publish(topic, payload, qos, self.patience_s)

    async def _leaking(self, found: CaseResult, script: Script, case: Case, *, raw: bool) -> CaseResult:
        """Whether the broker's memory grows each time that the case is played."""
        process = self.monitor.process
        assert process is not None
        growth: list[int] = []
        before = process.memory()
        for _ in range(LEAK_TURNS):
            if self.stopped:
                return found
            again = await self.attempt(script, case, self.patience_s, raw=raw)
            if again.ruling is None or again.ruling.deviates:
                harm = again.ruling is not None and again.ruling.verdict in verdict.BROKER_WIDE
                again = await self._confirmed(again, raw=raw) if harm else found
                return again if again.deviates else found
            growth.append(process.memory() - before)
            before = process.memory()
            if growth[-1] < LEAK_BYTES:
                return found
            if sum(growth) >= LEAK_PROOF_BYTES:
                told = f"its memory grew in each of {len(growth)} turns, by {sum(growth) >> 20:,} MiB in all"
                return replace(found, ruling=verdict.Ruling(verdict.Verdict.LEAKED, told))
        return found

    # Before and after

    async def turn(self, until: float | None) -> bool:
        """Wait for the rate; whether there is still time for a case."""
        begins = max(self._next, time.monotonic()) if self.rate is not None else time.monotonic()
        if until is not None and begins > until:
            return False
        while not self.stopped and (left := begins - time.monotonic()) > 0:
            await asyncio.sleep(min(left, LOOK_S))
        if self.rate is not None:
            self._next = begins + 1 / self.rate
        return True


def longest_s(case: Case) -> float:
    """How long a case takes at least: its pauses."""
    return sum(step.nanoseconds for step in case.flow.steps if step.action is Action.PAUSE) / 1e9


def _authentication(script: Script) -> Iterator[Entry]:
    """What the client said in a recorded authentication, up to CONNACK."""
    for entry in script.entries:
        if isinstance(entry.packet, Connack):
            return
        if entry.from_client and isinstance(entry.packet, Auth):
            yield entry


async def unhurried(steps: Generator[None, None, T]) -> T:
    """The outcome of long work in steps, with turns for timers, signals and connections in between."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        await asyncio.sleep(0)

"""Plays, judges and cleans up one case after another.

Only `BrokerTest` accuses a broker: `crowd` plays cases in parallel and leaves possible deviations to it.
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
from mqttscope.broker_test.drivers.case_runner import CaseRunner, NotPlayedError, PlayedCase
from mqttscope.broker_test.drivers.cleanup import Cleaner
from mqttscope.broker_test.drivers.health import AGAIN, HealthMonitor, MemoryTrend, NoBrokerError, Process
from mqttscope.broker_test.fit import NumberedCase, flow_of
from mqttscope.broker_test.oracle import confirm_ruling
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Auth, Connack
from mqttscope.mutate import Action, MutationCase
from mqttscope.replay.script import Script, ScriptEntry
from mqttscope.transport.link import LinkError

PATIENCE_S = 1.0
"""Default timeout of each reaction."""
LEAK_BYTES = 256 * 1024
"""Growth of the broker's memory in one case that leads to a leak check."""
LEAK_PROOF_BYTES = 96 * 1024 * 1024
"""Total growth, in every turn, that proves a leak: garbage-collected heaps shrink before that."""
LEAK_TURNS = 200
"""Maximum number of turns of a leak check."""
FLOOD = (
    f"the broker sent more than {probe_client.MAX_RECEIVED_BYTES >> 20} MiB or {probe_client.MAX_RECEIVED_PACKETS:,} "
    "packets on the connection, so it is not judged"
)
"""Reason for not judging a broker that floods the connection."""
HURRY_S = 0.3
"""Timeout of cleaning up, and of stopping a broker started by mqttscope, after the run was interrupted."""
T = TypeVar("T")
Resting = Callable[[], AbstractAsyncContextManager[None]]
LOOK_S = 0.1
"""Interval of checks whether the run was interrupted."""


@dataclass(slots=True)
class CaseResult:
    """Result of one case."""

    case: MutationCase
    ruling: verdict.Ruling | None
    """``None`` if the case did not reach its mutation."""
    not_played: str = ""
    """Reason why the case has no ruling."""
    played: PlayedCase | None = None
    script: Script | None = None
    """The connection, adapted to the broker."""
    seconds: float = 0.0
    number: int = 0
    """Number of the case in the capture; `AS_RECORDED` for a connection without a mutation."""
    unclean: tuple[str, ...] = ()
    """Names of the state that could not be removed from the broker."""

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
    """Maximum number of cases per second."""
    stopped: bool = False
    notices: list[str] = field(default_factory=list)
    """Sentences for the user about the run."""
    baselines: dict[int, verdict.Baseline] = field(default_factory=dict)
    """Reactions of the broker to connections without a mutation, by connection number."""
    monitor: HealthMonitor = field(init=False)
    """Health of the broker as a whole."""
    growth: MemoryTrend = field(init=False)
    """Memory of the broker over the run."""
    cleaners: list[Cleaner] = field(init=False)
    """Cleaners by worker; the first one is also used for cases that are played alone."""
    _next: float = 0.0

    def __post_init__(self) -> None:
        self.monitor = HealthMonitor(self.access, self.patience_s, self.process, self.notices)
        self.cleaners = [Cleaner(self.access)]
        self.growth = MemoryTrend(self.process)

    async def begin(self) -> None:
        await self.monitor.begin()

    async def end(self) -> None:
        """Clean up, disconnect, and stop the broker if mqttscope started it."""
        hurry = HURRY_S if self.stopped else None
        version = self.monitor.version
        left = await asyncio.gather(*(cleaner.finish(version, self.patience_s, hurry) for cleaner in self.cleaners))
        self.notices += (text for text in (*left, self.growth.notice()) if text)
        await self.monitor.end(hurry)

    async def run_baseline(self, script: Script) -> CaseResult:
        """Play a connection without a mutation.

        Its deviations are reported with this result, and do not count in the cases of the connection.
        """
        number = script.connection.number
        result = await self._play_twice(script, verdict.unmutated(flow_of(script, "", number)))
        result.number = verdict.AS_RECORDED
        self.baselines[number] = verdict.Baseline(ended=True)
        if result.played is not None:
            seen = result.played.seen
            codes = frozenset(code for _, code in seen.codes)
            self.baselines[number] = verdict.Baseline(frozenset(seen.missing), codes, bool(seen.ended))
        if result.ruling is not None and result.ruling.verdict is verdict.BrokerVerdict.REFUSED_LEGAL:
            result.ruling = verdict.excuse(result.ruling, "the broker may have its own rules of access")
        return result

    async def supports_version(self, version: ProtocolVersion) -> bool:
        """Whether the broker supports a version; raises `LinkError` if it cannot be reached."""
        return await probe_client.supports_version(self.access, version, self.patience_s * AGAIN)

    async def connack(self, script: Script) -> Connack | None:
        """The CONNACK that accepts the CONNECT of a connection; ``None`` if the broker does not accept it."""
        version, connect = script.version, script.connect
        if connect is None or not await self.monitor.alive():
            return None
        conversation = Conversation(version)
        self.cleaners[0].remember(conversation)
        answer: ControlPacket | Malformed | None = None
        async with probe_client.ProbeClient(self.access, version) as probe:
            probe.link = await self.access.open(probe, version)
            for entry in (connect, *_authentication(script)):
                conversation.add(True, entry.raw, time.time_ns())
                probe.link.write(entry.raw)
                heard = len(probe.packets)
                await probe.until(lambda heard=heard: len(probe.packets) > heard, self.patience_s * AGAIN)  # type: ignore[misc]
                answer = probe.packets[heard] if len(probe.packets) > heard else None
                if not isinstance(answer, Auth):
                    break
            if isinstance(answer, Connack):
                conversation.add(False, answer.raw or encode(answer, version), time.time_ns())
        await self.settle()
        return answer if isinstance(answer, Connack) and not answer.reason_code else None

    async def run(
        self, cases: Iterable[tuple[Script, NumberedCase]], seconds: float | None = None
    ) -> AsyncGenerator[CaseResult, None]:
        """Play cases; ends early when stopped, and raises `NoBrokerError` when the broker is gone.

        No case starts later than ``seconds`` from now.
        """
        until = None if seconds is None else time.monotonic() + seconds
        for script, numbered in cases:
            if not await self.turn(until) or self.stopped:
                return
            yield replace(await self.play_case(script, numbered.case), number=numbered.number)

    async def play_once(self, script: Script, case: MutationCase, *, raw: bool = False) -> CaseResult:
        return await self.attempt(script, case, self.patience_s, raw=raw)

    async def play_case(self, script: Script, case: MutationCase, *, raw: bool = False) -> CaseResult:
        """Play one case and judge it; an apparent deviation is played again with longer timeouts.

        A case that runs while the test is interrupted has no verdict: the interrupt may have stopped the broker too.
        """
        started = time.monotonic()
        result = await self.conclude(await self.attempt(script, case, self.patience_s, raw=raw), raw=raw)
        result.seconds = time.monotonic() - started
        return result

    async def conclude(self, result: CaseResult, *, raw: bool = False) -> CaseResult:
        """The final result of a case after its first play."""
        script, case = result.script, result.case
        assert script is not None
        result = await self._confirm(result, raw=raw)
        if result.ruling is not None and not result.ruling.deviates and self.monitor.process is not None:
            result = await self._check_leak(result, script, case, raw=raw)
        if self.stopped:
            result.ruling, result.not_played = None, "interrupted"
        return result

    # One attempt

    async def _play_twice(self, script: Script, case: MutationCase, *, raw: bool = False) -> CaseResult:
        return await self._confirm(await self.attempt(script, case, self.patience_s, raw=raw), raw=raw)

    async def _confirm(self, result: CaseResult, *, raw: bool = False) -> CaseResult:
        """Play an apparent deviation again, with longer timeouts."""
        assert result.script is not None
        if result.ruling is None:
            return result
        played = [result]
        while (so := verdict.decide([play.ruling for play in played])) is None and not self.stopped:
            ruling = played[-1].ruling
            is_collateral = ruling is not None and ruling.verdict is verdict.BrokerVerdict.COLLATERAL
            if ruling is not None and is_collateral and await self.monitor.damage_lasts():
                # Lasting harm needs no second play: every new client sees it.
                return replace(played[-1], ruling=replace(ruling, why=f"{ruling.why}, and this lasts"))
            try:
                patience_s = self.patience_s * AGAIN
                played.append(await self.attempt(result.script, result.case, patience_s, raw=raw, thorough=True))
            except NoBrokerError:
                # The broker has not recovered, which is the best proof that it hangs.
                if ruling is None or ruling.verdict not in verdict.BROKER_WIDE:
                    raise
                return played[-1]
        if so is None:
            return played[-1]
        for ruling in verdict.unconfirmed([play.ruling for play in played], so[1]):
            text = f"{result.case.mutation.name}: {ruling.verdict} in one of {len(played)} plays ({ruling.why})"
            self.notices.append(text)
        return replace(played[so[0]], ruling=so[1])

    async def attempt(
        self,
        script: Script,
        case: MutationCase,
        patience_s: float,
        *,
        raw: bool = False,
        thorough: bool = False,
        worker: int = 0,
        resting: Resting = nullcontext,
    ) -> CaseResult:
        """Play a case once and judge it, with health checks of the broker before and after.

        ``worker`` selects the cleaner.  ``resting`` is a context for the final wait, when nothing more is sent and only
        the end of the connection is awaited.
        """
        if not await self.monitor.alive():
            raise NoBrokerError(f"{self.access.target} serves no more")
        runner = CaseRunner(
            case, script, self.access, patience_s, self.supply, self._witness_check(patience_s), raw, thorough, resting
        )
        result = await self.play(runner, worker)
        ill = await self.monitor.diagnose(patience_s)
        if ill is not None:
            # Harm to the broker before the mutation counts as well.
            result.ruling, result.not_played = ill, ""
            result.played = result.played or runner.played
        elif runner.listener.flooded:
            result.not_played = FLOOD
        elif result.played is not None:
            result.ruling = await self.judge(case, result.played, script)
        if ill is None or ill.verdict is verdict.BrokerVerdict.COLLATERAL:
            result.unclean = tuple(await self.settle(worker))
            self.growth.sample()
        return result

    async def play(self, runner: CaseRunner, worker: int) -> CaseResult:
        """Play a case on a clean broker, without judging it."""
        # After a crash, earlier cases may still have to be cleaned up.
        await self.clean(worker)
        self.cleaners[worker].remember(runner.conversation)
        result = CaseResult(runner.case, None, script=runner.script)
        try:
            result.played = await runner.run()
        except (LinkError, NotPlayedError) as error:
            result.not_played = str(error)
        return result

    async def judge(self, case: MutationCase, played: PlayedCase, script: Script) -> verdict.Ruling:
        """The ruling on a completed play, from its own connection."""
        if played.meanwhile_result is None:
            return verdict.Ruling(verdict.BrokerVerdict.COLLATERAL, "the witness received nothing during the case")
        ruling = verdict.judge(case, played.seen, self.baselines.get(script.connection.number, verdict.Baseline()))
        return await run_in_steps(confirm_ruling(ruling, case, played.conversation)) if ruling.deviates else ruling

    async def settle(self, worker: int = 0) -> list[str]:
        """Clean up after cases; returns the names of the state that could not be removed."""
        return await self.cleaners[worker].settle(self.monitor.version, self.patience_s * AGAIN)

    async def clean(self, worker: int = 0) -> None:
        """Clean up before a case; leftovers are reported for the run, not for the case."""
        self.notices += (f"could not be removed from the broker: {name}" for name in await self.settle(worker))

    def _witness_check(self, patience_s: float) -> Callable[[], Awaitable[float | None]]:
        async def look() -> float | None:
            return None if self.monitor.witness is None else await self.monitor.witness.round_trip(patience_s)

        return look

    async def supply(self, topic: str, payload: bytes, qos: int) -> bool:
        witness = self.monitor.witness
        return witness is not None and await witness.publish(topic, payload, qos, self.patience_s)

    async def _check_leak(self, result: CaseResult, script: Script, case: MutationCase, *, raw: bool) -> CaseResult:
        """Play the case repeatedly, and rule it a leak if the broker's memory grows every time."""
        process = self.monitor.process
        assert process is not None
        growth: list[int] = []
        before = process.memory()
        for _ in range(LEAK_TURNS):
            if self.stopped:
                return result
            again = await self.attempt(script, case, self.patience_s, raw=raw)
            if again.ruling is None or again.ruling.deviates:
                harm = again.ruling is not None and again.ruling.verdict in verdict.BROKER_WIDE
                again = await self._confirm(again, raw=raw) if harm else result
                return again if again.deviates else result
            growth.append(process.memory() - before)
            before = process.memory()
            if growth[-1] < LEAK_BYTES:
                return result
            if sum(growth) >= LEAK_PROOF_BYTES:
                reason = f"its memory grew in each of {len(growth)} plays, by {sum(growth) >> 20:,} MiB in total"
                return replace(result, ruling=verdict.Ruling(verdict.BrokerVerdict.LEAKED, reason))
        return result

    # Before and after

    async def turn(self, until: float | None) -> bool:
        """Wait as the rate demands; returns whether there is time for another case."""
        begins = max(self._next, time.monotonic()) if self.rate is not None else time.monotonic()
        if until is not None and begins > until:
            return False
        while not self.stopped and (left := begins - time.monotonic()) > 0:
            await asyncio.sleep(min(left, LOOK_S))
        if self.rate is not None:
            self._next = begins + 1 / self.rate
        return True


def longest_s(case: MutationCase) -> float:
    """Total length of the pauses of a case, in seconds."""
    return sum(step.nanoseconds for step in case.flow.steps if step.action is Action.PAUSE) / 1e9


def _authentication(script: Script) -> Iterator[ScriptEntry]:
    """AUTH packets of the client in a recorded authentication, up to CONNACK."""
    for entry in script.entries:
        if isinstance(entry.packet, Connack):
            return
        if entry.from_client and isinstance(entry.packet, Auth):
            yield entry


async def run_in_steps(steps: Generator[None, None, T]) -> T:
    """Run a generator to its result, with turns for timers, signals and connections between its steps."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        await asyncio.sleep(0)

"""Cases at the same time: most of a run is waiting, and a broker serves many clients.

What several cases at once show of a broker is no proof of anything but good conduct.  A case that conforms in the crowd
conforms; every other one is a suspect, and is played again by `BrokerTest` with no other case running, which alone
accuses.  So the verdicts are those of cases that are played one after the other, and so is their order.

Cases are played in windows: a part of them as a crowd, then its suspects alone, then the results are handed out.  A
broker that crashes, hangs or drops others ends the crowd at once: the cases under way are the suspects.  What none of
them does alone is the load's doing, which is reported, and fewer are played at once from then on.

Workers but the first use names of their own (`isolation`), if the broker takes the connection under these as it takes
it under the recorded ones.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from mqttscope.broker_test.drivers.case_runner import CaseRunner
from mqttscope.broker_test.drivers.cleanup import Cleaner, name_list
from mqttscope.broker_test.drivers.health import AGAIN, NoBrokerError
from mqttscope.broker_test.drivers.run import FLOOD, LEAK_BYTES, LOOK_S, BrokerTest, CaseResult
from mqttscope.broker_test.fit import Numbered, flow_of
from mqttscope.broker_test.isolation import Footprint, Isolated, Names, isolated
from mqttscope.broker_test.oracle import load_rules
from mqttscope.broker_test.verdict import BROKER_WIDE, Baseline, Ruling, Verdict, unmutated
from mqttscope.mqtt.packets import Connack, Disconnect, Puback, Pubrec
from mqttscope.mutate import Case
from mqttscope.replay.script import Script

WINDOW = 32
"""Cases for each worker until suspects are played alone and results are handed out."""
AHEAD = 4
"""Cases for each worker that are looked at for one that disturbs none of those under way."""
FEW = 8
"""Cases that are looked at one by one when the broker's memory grew while they were played."""
MANY_LOST = 4
"""The crowd is too large when more than one in this many cases has to be played alone."""
OF_LOAD = frozenset({0x03, 0x88, 0x89, 0x8E, 0x96, 0x97, 0x9F})
"""Reason codes that may be about other clients: unavailable (also before 5.0), busy, taken over, rates, quotas."""


T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Item:
    """A case of a window."""

    place: int
    """In the order in which results are handed out."""
    script: Script
    numbered: Numbered
    forms: dict[int, _Form] = field(default_factory=dict)
    """By worker: the case as it would be played there."""
    begun: float = 0.0
    result: CaseResult | None = None
    """Once it is known; of the crowd, where the case conforms."""
    lost: bool = False
    """It was not played in the crowd."""
    first: CaseResult | None = None
    """The first playing alone, of a case that has to be played again."""
    second: CaseResult | None = None
    """That one, with more patience."""
    handed_out: bool = False

    def conclude(self, result: CaseResult) -> None:
        self.result = replace(result, number=self.numbered.number, seconds=time.monotonic() - self.begun)


@dataclass(slots=True)
class _Form:
    """A case under the names of a worker."""

    place: Isolated
    case: Case
    footprint: Footprint


_Play = Callable[[_Item, _Form, int], Awaitable[None]]


class Crowd:
    """A run of a broker test with several cases at once."""

    def __init__(self, test: BrokerTest, jobs: int, ahead: Callable[[int], None] | None = None) -> None:
        self.test = test
        self.jobs = jobs
        """At once, at most; less for a broker that does not stand it."""
        self._ahead = ahead
        """Is told how many results are known that were not handed out yet."""
        self._clients, self._roots = Names(), Names()
        self._places: dict[tuple[int, int], Isolated | None] = {}
        """By connection and worker; ``None`` where it cannot be isolated, or fares otherwise there."""
        self._proven: set[tuple[int, int]] = set()
        self._said: set[int] = set()
        """Connections of which it was said why their cases are played one after the other."""
        self._window: list[_Item] = []
        self._alarm: Ruling | None = None
        self._watch = asyncio.Lock()
        self._heard = _Latest(self._hear)
        self._health = _Latest(self._ill)
        test.cleaners += (Cleaner(test.access) for _ in range(len(test.cleaners), jobs))

    async def run(
        self, cases: Iterable[tuple[Script, Numbered]], seconds: float | None = None
    ) -> AsyncGenerator[CaseResult, None]:
        """As `BrokerTest.run`; close it where it is left early (`contextlib.aclosing`)."""
        until = None if seconds is None else time.monotonic() + seconds
        source = (_Item(place, *one) for place, one in enumerate(cases))
        going, failed = True, None
        # Rules take seconds to load, in which nothing that comes from the broker would be looked at.
        load_rules()
        while going and failed is None and not self.test.stopped:
            self._window = []
            try:
                going = await self._crowded(source, until)
                await self._leaking([one for one in self._window if one.result is not None])
                await self._alone([one for one in self._window if one.result is None])
            except NoBrokerError as error:
                failed = error
            for item in self._window:
                if item.result is not None or failed is None:
                    item.handed_out = True
                    yield item.result or _interrupted(item)
        if failed is not None:
            raise failed

    def interrupted(self) -> Iterator[CaseResult]:
        """What was known, or begun, and not handed out when the run was broken off."""
        for item in self._window:
            if not item.handed_out:
                yield item.result or _interrupted(item)

    # The crowd

    async def _crowded(self, source: Iterator[_Item], until: float | None) -> bool:
        """Play a window; whether there may be more."""
        size, more = WINDOW * self.jobs, True
        pending: list[_Item] = []

        def drawn() -> Iterator[_Item]:
            nonlocal more
            for _ in range(size):
                item = next(source, None)
                if item is None:
                    more = False
                    return
                yield item

        window = drawn()
        while True:
            await self._ready()
            left = await self._dispatch(pending, window, self._play, until, paced=True)
            if left is None:
                return False
            pending = left
            if self._alarm is None:
                break
            await self._find_culprit()
        lost = sum(one.lost for one in self._window)
        if lost * MANY_LOST > len(self._window) > self.jobs:
            self._back_off(f"{lost} of {len(self._window)} cases were not played while others were")
        return more

    async def _ready(self) -> None:
        if not await self.test.monitor.alive():
            raise NoBrokerError(f"{self.test.access.target} serves no more")
        self._alarm = None

    async def _dispatch(
        self,
        pending: list[_Item],
        source: Iterator[_Item],
        play: _Play,
        until: float | None = None,
        *,
        paced: bool = False,
    ) -> list[_Item] | None:
        """Play cases at once as far as they do not disturb each other, until an alarm; ``paced``: at the run's rate.

        Returns those that were not begun; ``None`` where no more may be begun.
        """
        running: dict[asyncio.Task[None], tuple[int, Footprint]] = {}
        over = False
        try:
            while self._alarm is None and not self.test.stopped:
                while not over and len(pending) < AHEAD * self.jobs and (item := next(source, None)) is not None:
                    pending.append(item)
                    # Making cases is work: what is under way gets its turn.
                    await asyncio.sleep(0)
                begun = None if over or len(running) >= self.jobs else self._next(pending, running)
                if begun is not None:
                    if paced and (not await self.test.turn(until) or self.test.stopped):
                        over = True
                        continue
                    item, form, worker = begun
                    pending.remove(item)
                    if not item.begun:
                        item.begun = time.monotonic()
                        self._window.append(item)
                    task = asyncio.create_task(self._proving(item, form, worker, play, pending))
                    running[task] = worker, form.footprint
                elif running:
                    await self._one_ends(running)
                else:
                    break
            return None if over or self.test.stopped else pending
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            for look in (self._heard, self._health):
                await look.end(at_once=self.test.stopped)
            self._window.sort(key=lambda one: one.place)

    async def _one_ends(self, running: dict[asyncio.Task[None], tuple[int, Footprint]]) -> None:
        """Wait until a case has ended, or for a moment."""
        done, _ = await asyncio.wait(running, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            del running[task]
            task.result()
        if done and self._ahead is not None:
            self._ahead(sum(one.result is not None and not one.handed_out for one in self._window))

    def _next(
        self, pending: list[_Item], running: dict[asyncio.Task[None], tuple[int, Footprint]]
    ) -> tuple[_Item, _Form, int] | None:
        """The first case that disturbs none of those under way, with a worker for it."""
        busy = {worker for worker, _ in running.values()}
        worker = next(one for one in range(self.jobs) if one not in busy)
        for item in pending:
            form = self._form(item, worker)
            if not any(form.footprint.meets(other) for _, other in running.values()):
                return item, form, worker
        return None

    def _form(self, item: _Item, worker: int) -> _Form:
        """The case under the names of a worker; under the recorded ones where there are no others."""
        form = item.forms.get(worker)
        if form is None:
            place = self._place(item.script, worker)
            case = None if place is None else place.case(item.numbered.case)
            if place is None or case is None:
                if worker:
                    return self._form(item, 0)
                place, case = Isolated.as_recorded(item.script), item.numbered.case
            form = item.forms[worker] = _Form(place, case, place.uses(case))
        return form

    def _place(self, script: Script, worker: int) -> Isolated | None:
        key = script.connection.number, worker
        if key not in self._places:
            made = isolated(script, worker, self._clients, self._roots) if worker else Isolated.as_recorded(script)
            self._places[key] = made
            if made is None:
                self._say(script, "has no other names of the same length")
            elif made.footprint.everything and made.footprint.sends:
                self._say(script, "subscribes to all topics")
        return self._places[key]

    def _say(self, script: Script, why: str) -> None:
        """Say why cases of a connection are not played at the same time."""
        if script.connection.number not in self._said:
            self._said.add(script.connection.number)
            self.test.told.append(f"{script.name} {why}: its cases are played one after the other")

    async def _proving(self, item: _Item, form: _Form, worker: int, play: _Play, pending: list[_Item]) -> None:
        """Play a case, after the connection itself where it was not played under these names before."""
        key = item.script.connection.number, worker
        if form.place.exchanged and key not in self._proven:
            if not await self._fares_alike(form.place, item.script, worker):
                self._places[key] = None
                self._say(item.script, "fares otherwise under other names")
                for one in (*pending, item):
                    one.forms.pop(worker, None)
                pending.append(item)
                return
            self._proven.add(key)
        await play(item, form, worker)

    async def _fares_alike(self, place: Isolated, script: Script, worker: int) -> bool:
        """Whether the broker takes a connection under other names as it takes it under its own."""
        number = script.connection.number
        case = unmutated(flow_of(place.script, "", number))
        for patience_s in (self.test.patience_s, self.test.patience_s * AGAIN):
            played = (await self._played(case, place.script, worker, patience_s)).played
            seen = None if played is None else played.seen
            if seen is not None and self.test.baselines.get(number, Baseline()) == Baseline(
                frozenset(seen.missing), frozenset(code for _, code in seen.codes), bool(seen.ended)
            ):
                return True
        return False

    async def _played(self, case: Case, script: Script, worker: int, patience_s: float) -> CaseResult:
        """Play a case beside others; no result where the broker is ill (`_alarm`)."""
        runner = CaseRunner(case, script, self.test.access, patience_s, self.test.supply, self._heard.after_now)
        result = await self.test.played(runner, worker)
        if runner.listener.flooded:
            result.played, result.not_played = None, FLOOD
        ill = await self._health.after_now()
        if ill is not None:
            self._alarm = self._alarm or ill
            # Whose doing it is shows later; until then nobody's case has come to an end.
            await asyncio.Event().wait()
        return result

    async def _play(self, item: _Item, form: _Form, worker: int) -> None:
        """Play a case in the crowd; without a result where it has to be played alone."""
        result = await self._played(form.case, form.place.script, worker, self.test.patience_s)
        played = result.played
        result.unclean = tuple(await self.test.settle(worker))
        self.test.growth.looked()
        item.lost = played is None
        if played is None or result.unclean or _may_be_of_load(result) or self.test.stopped:
            return
        ruling = await self.test.judged(form.case, played, form.place.script)
        if not ruling.deviates:
            item.conclude(replace(result, case=item.numbered.case, script=item.script, ruling=ruling))

    async def _hear(self) -> float | None:
        """How long the witness takes to hear from itself."""
        async with self._watch:
            witness = self.test.monitor.witness
            return None if witness is None else await witness.round_trip(self.test.patience_s * AGAIN)

    async def _ill(self) -> Ruling | None:
        async with self._watch:
            if self._alarm is not None:
                return self._alarm
            return await self.test.monitor.ill(self.test.patience_s * AGAIN)

    async def _find_culprit(self) -> None:
        """Play the cases alone that were under way when the broker fell ill."""
        alarm, self._alarm = self._alarm, None
        assert alarm is not None
        suspects = [one for one in self._window if one.result is None]
        await self._alone(suspects)
        found = [one.result.ruling for one in suspects if one.result is not None]
        if not self.test.stopped and not any(one is not None and one.verdict in BROKER_WIDE for one in found):
            numbers = name_list([str(one.numbered.number) for one in suspects])
            told = f"{alarm.verdict} while cases were played at once ({numbers}: {alarm.why})"
            self._back_off(f"{told}, and in none of them alone")

    def _back_off(self, why: str) -> None:
        self.jobs = max(1, self.jobs // 2)
        self.test.told.append(f"{self.test.access.target}: {why}; from then on at most {self.jobs} at once")

    # Alone

    async def _alone(self, items: list[_Item]) -> None:
        """Play suspects one by one, as if there had been no crowd.

        Where a close is demanded and the connection continues, the second playing waits longest, and that the broker
        does nothing: these waits, and nothing else, run at the same time.
        """
        waiting: list[_Item] = []
        test = self.test
        for item in items:
            if test.stopped:
                return
            began = time.monotonic()
            found = await test.attempt(item.script, item.numbered.case, test.patience_s)
            found.seconds = time.monotonic() - began
            if _stays_open(found) and self.jobs > 1:
                item.first = found
                waiting.append(item)
            else:
                item.conclude(await test.concluded(found))
        await self._wait_together(waiting)
        for item in waiting:
            if test.stopped:
                return
            assert item.first is not None
            if item.second is not None and item.second.ruling == item.first.ruling:
                item.conclude(item.first)
            else:
                item.conclude(await test.concluded(item.first))

    async def _wait_together(self, items: list[_Item]) -> None:
        """Play cases again of which the connection stays open, one by one until only the wait for its end is left."""
        turn = asyncio.Lock()
        test = self.test

        @asynccontextmanager
        async def others_go_on() -> AsyncIterator[None]:
            turn.release()
            try:
                yield
            finally:
                await turn.acquire()

        async def again(item: _Item, form: _Form, worker: int) -> None:
            if worker and not form.place.exchanged:
                # Under its own names it is played without anything beside it.
                return
            async with turn:
                item.second = await test.attempt(
                    form.place.script, form.case, test.patience_s * AGAIN, thorough=True, worker=worker,
                    resting=others_go_on,
                )  # fmt: skip

        if items:
            # Who takes long until only that wait is left keeps nobody else from beginning it.
            items = sorted(items, key=lambda one: one.first.seconds if one.first is not None else 0.0)
            await self._dispatch([], iter(items), again)

    # Leaks

    async def _leaking(self, items: list[_Item]) -> None:
        """Take their results from cases with which the broker's memory may grow: that is looked at alone."""
        process = self.test.monitor.process
        if process is None or not items or self.test.stopped:
            return
        if len(items) <= FEW:
            for item in items:
                item.result = None
            return
        before = process.memory()
        await self._ready()
        await self._dispatch([], iter(items), self._play_again)
        if self._alarm is None and process.memory() - before < LEAK_BYTES:
            return
        self._alarm = None
        half = len(items) // 2
        await self._leaking(items[:half])
        await self._leaking(items[half:])

    async def _play_again(self, item: _Item, form: _Form, worker: int) -> None:
        await self._played(form.case, form.place.script, worker, self.test.patience_s)
        await self.test.settle(worker)


def _interrupted(item: _Item) -> CaseResult:
    return CaseResult(item.numbered.case, None, "interrupted", script=item.script, number=item.numbered.number)


def _stays_open(result: CaseResult) -> bool:
    """Whether a close was demanded, all was answered, and the connection stayed open."""
    ruling, played = result.ruling, result.played
    return ruling is not None and ruling.verdict is Verdict.TOLERATED and bool(played and played.seen.fenced)


def _may_be_of_load(result: CaseResult) -> bool:
    """Whether the broker gave a reason that may have to do with other clients."""
    answers = () if result.played is None else result.played.seen.answers
    reasons = (one.reason_code for one in answers if isinstance(one, Connack | Disconnect | Puback | Pubrec))
    return any(one in OF_LOAD for one in reasons)


class _Latest(Generic[T]):
    """Something that is looked at for many at once: each gets what a look shows that begins after it has asked."""

    def __init__(self, look: Callable[[], Awaitable[T]]) -> None:
        self._look = look
        self._tasks: list[asyncio.Task[T]] = []
        """The look under way, and the next one."""
        self._next: asyncio.Task[T] | None = None

    async def after_now(self) -> T:
        """What the next look shows."""
        if self._next is None:
            self._tasks = [one for one in self._tasks if not one.done()]
            self._next = asyncio.create_task(self._begin(list(self._tasks)))
            self._tasks.append(self._next)
        return await asyncio.shield(self._next)

    async def _begin(self, before: list[asyncio.Task[T]]) -> T:
        if before:
            await asyncio.wait(before)
        # Whoever asks from here on wants a later one.
        self._next = None
        return await self._look()

    async def end(self, *, at_once: bool) -> None:
        """Let the looks come to their end; ``at_once``: break them off."""
        for task in self._tasks if at_once else ():
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks, self._next = [], None

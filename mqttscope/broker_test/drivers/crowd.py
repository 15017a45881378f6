"""Plays several cases at the same time, because most of a run is waiting.

Parallel cases can only show conformance.  A case that conforms in the crowd is conforming.  Any other case is a
suspect, and `BrokerTest` plays it again alone; only that play can accuse the broker.  So verdicts and their order are
identical to a run without a crowd.

Cases are played in windows: first all cases of the window as a crowd, then its suspects alone, then the results are
yielded.  If the broker crashes, hangs or drops other clients, the crowd ends at once, and all running cases are
suspects.  If no suspect causes the harm alone, the load did: that is reported, and fewer cases run in parallel.

All workers except the first use other names (`isolation`), if the broker reacts to the connection with other names as
it does with the recorded names.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from mqttscope.broker_test.drivers.case_runner import CaseRunner
from mqttscope.broker_test.drivers.cleanup import Cleaner
from mqttscope.broker_test.drivers.health import AGAIN, NoBrokerError
from mqttscope.broker_test.drivers.run import FLOOD, LEAK_BYTES, LOOK_S, BrokerTest, CaseResult
from mqttscope.broker_test.fit import NumberedCase, flow_of
from mqttscope.broker_test.isolation import Footprint, IsolatedConnection, NamePool, isolate
from mqttscope.broker_test.oracle import load_rules
from mqttscope.broker_test.verdict import BROKER_WIDE, Baseline, BrokerVerdict, Ruling, unmutated
from mqttscope.mqtt.packets import Connack, Disconnect, Puback, Pubrec
from mqttscope.mutate import MutationCase
from mqttscope.replay.drivers.run import name_list
from mqttscope.replay.script import Script

WINDOW = 32
"""Number of cases per worker in a window."""
AHEAD = 4
"""Number of pending cases per worker that are searched for one without conflicts with the running cases."""
FEW = 8
"""Maximum number of cases that are checked one by one after the broker's memory grew."""
MANY_LOST = 4
"""The crowd is too large if more than one in this many cases must be played alone."""
OF_LOAD = frozenset({0x03, 0x88, 0x89, 0x8E, 0x96, 0x97, 0x9F})
"""Reason codes that other clients may cause: unavailable (also before 5.0), busy, taken over, rates, quotas."""
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _QueuedCase:
    """One case of a window."""

    place: int
    """Position in the order of results."""
    script: Script
    numbered: NumberedCase
    forms: dict[int, _WorkerCase] = field(default_factory=dict)
    """The case with the names of each worker."""
    begun: float = 0.0
    result: CaseResult | None = None
    """Final result; a result of the crowd is final only if the case conforms."""
    lost: bool = False
    """Whether the case could not be played in the crowd."""
    first: CaseResult | None = None
    """Result of the first play alone, if a second play is needed."""
    second: CaseResult | None = None
    """Result of the second play, with longer timeouts."""
    handed_out: bool = False

    def conclude(self, result: CaseResult) -> None:
        self.result = replace(result, number=self.numbered.number, seconds=time.monotonic() - self.begun)


@dataclass(slots=True)
class _WorkerCase:
    """A case with the names of one worker."""

    place: IsolatedConnection
    case: MutationCase
    footprint: Footprint


_Queue = list[_QueuedCase]
_Play = Callable[[_QueuedCase, _WorkerCase, int], Awaitable[None]]


class Crowd:
    """A run of a broker test with several cases in parallel."""

    def __init__(self, test: BrokerTest, jobs: int, ahead: Callable[[int], None] | None = None) -> None:
        self.test = test
        self.jobs = jobs
        """Maximum number of parallel cases; reduced if the broker cannot handle the load."""
        self._ahead = ahead
        """Called with the number of results that are known but not yielded yet."""
        self._clients, self._roots = NamePool(), NamePool()
        self._places: dict[tuple[int, int], IsolatedConnection | None] = {}
        """Isolated copies by connection and worker; ``None`` if other names are impossible or change the reaction."""
        self._proven: set[tuple[int, int]] = set()
        self._notified: set[int] = set()
        """Connections with a notice to the user that their cases run one by one."""
        self._window: list[_QueuedCase] = []
        self._alarm: Ruling | None = None
        self._watch = asyncio.Lock()
        self._heard = _SharedCheck(self._measure_round_trip)
        self._health = _SharedCheck(self._ill)
        test.cleaners += (Cleaner(test.access) for _ in range(len(test.cleaners), jobs))

    async def run(
        self, cases: Iterable[tuple[Script, NumberedCase]], seconds: float | None = None
    ) -> AsyncGenerator[CaseResult, None]:
        """Play cases like `BrokerTest.run`; wrap in `contextlib.aclosing` if the loop may end early."""
        until = None if seconds is None else time.monotonic() + seconds
        source = (_QueuedCase(place, *case) for place, case in enumerate(cases))
        going, failed = True, None
        # Rules take seconds to load; during a case, packets of the broker would have to wait that long.
        load_rules()
        while going and failed is None and not self.test.stopped:
            self._window = []
            try:
                going = await self._crowded(source, until)
                await self._leaking([item for item in self._window if item.result is not None])
                await self._alone([item for item in self._window if item.result is None])
            except NoBrokerError as error:
                failed = error
            for item in self._window:
                if item.result is not None or failed is None:
                    item.handed_out = True
                    yield item.result or _interrupted(item)
        if failed is not None:
            raise failed

    def interrupted(self) -> Iterator[CaseResult]:
        """Results of known or started cases that were not yielded before the run was interrupted."""
        for item in self._window:
            if not item.handed_out:
                yield item.result or _interrupted(item)

    # The crowd

    async def _crowded(self, source: Iterator[_QueuedCase], until: float | None) -> bool:
        """Play a window; returns whether more cases may follow."""
        size, more = WINDOW * self.jobs, True
        pending: list[_QueuedCase] = []

        def drawn() -> Iterator[_QueuedCase]:
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
        lost = sum(item.lost for item in self._window)
        if lost * MANY_LOST > len(self._window) > self.jobs:
            self._back_off(f"{lost} of {len(self._window)} cases could not be played in parallel")
        return more

    async def _ready(self) -> None:
        if not await self.test.monitor.alive():
            raise NoBrokerError(f"{self.test.access.target} no longer serves clients")
        self._alarm = None

    async def _dispatch(
        self,
        pending: list[_QueuedCase],
        source: Iterator[_QueuedCase],
        play: _Play,
        until: float | None = None,
        *,
        paced: bool = False,
    ) -> list[_QueuedCase] | None:
        """Play cases in parallel unless they conflict, until an alarm; ``paced`` limits them to the run's rate.

        Returns the cases that were not started; ``None`` if no more cases may start.
        """
        running: dict[asyncio.Task[None], tuple[int, Footprint]] = {}
        over = False
        try:
            while self._alarm is None and not self.test.stopped:
                while not over and len(pending) < AHEAD * self.jobs and (item := next(source, None)) is not None:
                    pending.append(item)
                    # Making cases takes CPU time: let the running cases continue.
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
                    task = asyncio.create_task(self._prove(item, form, worker, play, pending))
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
            self._window.sort(key=lambda item: item.place)

    async def _one_ends(self, running: dict[asyncio.Task[None], tuple[int, Footprint]]) -> None:
        """Wait until a case ends, at most `LOOK_S`."""
        done, _ = await asyncio.wait(running, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            del running[task]
            task.result()
        if done and self._ahead is not None:
            self._ahead(sum(item.result is not None and not item.handed_out for item in self._window))

    def _next(
        self, pending: list[_QueuedCase], running: dict[asyncio.Task[None], tuple[int, Footprint]]
    ) -> tuple[_QueuedCase, _WorkerCase, int] | None:
        """The first case without conflicts with the running cases, and a free worker."""
        busy = {worker for worker, _ in running.values()}
        worker = next(number for number in range(self.jobs) if number not in busy)
        for item in pending:
            form = self._form(item, worker)
            if not any(form.footprint.conflicts_with(other) for _, other in running.values()):
                return item, form, worker
        return None

    def _form(self, item: _QueuedCase, worker: int) -> _WorkerCase:
        """The case with the names of a worker, or with the recorded names if others are impossible."""
        form = item.forms.get(worker)
        if form is None:
            place = self._place(item.script, worker)
            case = None if place is None else place.case(item.numbered.case)
            if place is None or case is None:
                if worker:
                    return self._form(item, 0)
                place, case = IsolatedConnection.as_recorded(item.script), item.numbered.case
            form = item.forms[worker] = _WorkerCase(place, case, place.uses(case))
        return form

    def _place(self, script: Script, worker: int) -> IsolatedConnection | None:
        key = script.connection.number, worker
        if key not in self._places:
            names = self._clients, self._roots
            connection = isolate(script, worker, *names) if worker else IsolatedConnection.as_recorded(script)
            self._places[key] = connection
            if connection is None:
                self._notify_user(script, "has no free names of equal length")
            elif connection.footprint.everything and connection.footprint.sends:
                self._notify_user(script, "subscribes to all topics")
        return self._places[key]

    def _notify_user(self, script: Script, why: str) -> None:
        """Tell the user once why the cases of a connection run one by one."""
        if script.connection.number not in self._notified:
            self._notified.add(script.connection.number)
            self.test.notices.append(f"{script.name} {why}: its cases are played one by one")

    async def _prove(self, item: _QueuedCase, form: _WorkerCase, worker: int, play: _Play, rest: _Queue) -> None:
        """Play a case; before the first case with other names, check the connection without a mutation."""
        key = item.script.connection.number, worker
        if form.place.exchanged and key not in self._proven:
            if not await self._fares_alike(form.place, item.script, worker):
                self._places[key] = None
                self._notify_user(item.script, "gets another reaction under other names")
                for other in (*rest, item):
                    other.forms.pop(worker, None)
                rest.append(item)
                return
            self._proven.add(key)
        await play(item, form, worker)

    async def _fares_alike(self, place: IsolatedConnection, script: Script, worker: int) -> bool:
        """Whether the broker reacts to a connection with other names as with the recorded names."""
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

    async def _played(self, case: MutationCase, script: Script, worker: int, patience_s: float) -> CaseResult:
        """Play a case in parallel with others; waits forever if the broker fails (`_alarm`)."""
        runner = CaseRunner(case, script, self.test.access, patience_s, self.test.supply, self._heard.after_now)
        result = await self.test.play(runner, worker)
        if runner.listener.flooded:
            result.played, result.not_played = None, FLOOD
        ill = await self._health.after_now()
        if ill is not None:
            self._alarm = self._alarm or ill
            # The culprit is found later; until then no running case may end.
            await asyncio.Event().wait()
        return result

    async def _play(self, item: _QueuedCase, form: _WorkerCase, worker: int) -> None:
        """Play a case in the crowd; it gets no result if it must be played alone."""
        result = await self._played(form.case, form.place.script, worker, self.test.patience_s)
        played = result.played
        result.unclean = tuple(await self.test.settle(worker))
        self.test.growth.sample()
        item.lost = played is None
        if played is None or result.unclean or _may_be_of_load(result) or self.test.stopped:
            return
        ruling = await self.test.judge(form.case, played, form.place.script)
        if not ruling.deviates:
            item.conclude(replace(result, case=item.numbered.case, script=item.script, ruling=ruling))

    async def _measure_round_trip(self) -> float | None:
        """Round-trip time of the witness, in seconds; ``None`` without an answer."""
        async with self._watch:
            witness = self.test.monitor.witness
            return None if witness is None else await witness.round_trip(self.test.patience_s * AGAIN)

    async def _ill(self) -> Ruling | None:
        async with self._watch:
            if self._alarm is not None:
                return self._alarm
            return await self.test.monitor.diagnose(self.test.patience_s * AGAIN)

    async def _find_culprit(self) -> None:
        """Play the cases that were running when the broker failed again, one by one."""
        alarm, self._alarm = self._alarm, None
        assert alarm is not None
        suspects = [item for item in self._window if item.result is None]
        await self._alone(suspects)
        rulings = [item.result.ruling for item in suspects if item.result is not None]
        harmful = any(ruling is not None and ruling.verdict in BROKER_WIDE for ruling in rulings)
        if not self.test.stopped and not harmful:
            numbers = name_list([str(item.numbered.number) for item in suspects])
            reason = f"{alarm.verdict} while cases were played in parallel ({numbers}: {alarm.why})"
            self._back_off(f"{reason}, but not with any of them alone")

    def _back_off(self, why: str) -> None:
        self.jobs = max(1, self.jobs // 2)
        self.test.notices.append(f"{self.test.access.target}: {why}; from then on at most {self.jobs} in parallel")

    # Alone

    async def _alone(self, items: list[_QueuedCase]) -> None:
        """Play suspects one by one, as in a run without a crowd.

        If a close is demanded but the connection stays open, the second play waits longest for the close.  Only these
        waits run in parallel.
        """
        waiting: list[_QueuedCase] = []
        test = self.test
        for item in items:
            if test.stopped:
                return
            began = time.monotonic()
            result = await test.attempt(item.script, item.numbered.case, test.patience_s)
            result.seconds = time.monotonic() - began
            if _stays_open(result) and self.jobs > 1:
                item.first = result
                waiting.append(item)
            else:
                item.conclude(await test.conclude(result))
        await self._wait_together(waiting)
        for item in waiting:
            if test.stopped:
                return
            assert item.first is not None
            if item.second is not None and item.second.ruling == item.first.ruling:
                item.conclude(item.first)
            else:
                item.conclude(await test.conclude(item.first))

    async def _wait_together(self, items: list[_QueuedCase]) -> None:
        """Play cases with an open connection again, one by one; only their final waits overlap."""
        turn = asyncio.Lock()
        test = self.test

        @asynccontextmanager
        async def others_go_on() -> AsyncIterator[None]:
            turn.release()
            try:
                yield
            finally:
                await turn.acquire()

        async def again(item: _QueuedCase, form: _WorkerCase, worker: int) -> None:
            if worker and not form.place.exchanged:
                # A case with the recorded names must be played alone.
                return
            async with turn:
                item.second = await test.attempt(
                    form.place.script, form.case, test.patience_s * AGAIN, thorough=True, worker=worker,
                    resting=others_go_on,
                )  # fmt: skip

        if items:
            # Short cases first: a long case would delay the final waits of all others.
            items = sorted(items, key=lambda item: item.first.seconds if item.first is not None else 0.0)
            await self._dispatch([], iter(items), again)

    # Leaks

    async def _leaking(self, items: list[_QueuedCase]) -> None:
        """Discard the results of cases that may grow the broker's memory, so that they are played alone."""
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

    async def _play_again(self, item: _QueuedCase, form: _WorkerCase, worker: int) -> None:
        await self._played(form.case, form.place.script, worker, self.test.patience_s)
        await self.test.settle(worker)


def _interrupted(item: _QueuedCase) -> CaseResult:
    return CaseResult(item.numbered.case, None, "interrupted", script=item.script, number=item.numbered.number)


def _stays_open(result: CaseResult) -> bool:
    """Whether a close was demanded, but the connection stayed open and PINGREQ was answered."""
    if result.ruling is None or result.ruling.verdict is not BrokerVerdict.TOLERATED:
        return False
    return bool(result.played and result.played.seen.ping_answered)


def _may_be_of_load(result: CaseResult) -> bool:
    """Whether the broker sent a reason code that other clients may cause."""
    answers = () if result.played is None else result.played.seen.answers
    reasons = (answer.reason_code for answer in answers if isinstance(answer, Connack | Disconnect | Puback | Pubrec))
    return any(reason in OF_LOAD for reason in reasons)


class _SharedCheck(Generic[T]):
    """A check shared by many callers: each gets the result of a check that started after its call."""

    def __init__(self, look: Callable[[], Awaitable[T]]) -> None:
        self._look = look
        self._tasks: list[asyncio.Task[T]] = []
        """The running checks and the next one."""
        self._next: asyncio.Task[T] | None = None

    async def after_now(self) -> T:
        """The result of the next check."""
        if self._next is None:
            self._tasks = [task for task in self._tasks if not task.done()]
            self._next = asyncio.create_task(self._begin(list(self._tasks)))
            self._tasks.append(self._next)
        return await asyncio.shield(self._next)

    async def _begin(self, before: list[asyncio.Task[T]]) -> T:
        if before:
            await asyncio.wait(before)
        # Calls from here on get a later check.
        self._next = None
        return await self._look()

    async def end(self, *, at_once: bool) -> None:
        """Wait for all checks to end; ``at_once`` cancels them."""
        for task in self._tasks if at_once else ():
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks, self._next = [], None

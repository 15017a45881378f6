"""Cases one after the other: played, judged, and cleaned up behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.packets import Connack
from mqttscope.mutate import Action, Case
from mqttscope.replay.script import Script
from mqttscope.transport.errors import LinkError
from mqttscope.trial.companion import Companion, Pulse, RefusedError, forget_retained, forget_session, pulse, witness
from mqttscope.trial.conversation import Conversation
from mqttscope.trial.door import Door
from mqttscope.trial.leavings import leavings
from mqttscope.trial.numbering import Numbered
from mqttscope.trial.oracle import confirm
from mqttscope.trial.pilot import NotPlayedError, Pilot, Played
from mqttscope.trial.process import Process
from mqttscope.trial.verdict import Ruling, Verdict, excused, judge

PATIENCE_S = 1.0
"""How long the broker has for each reaction unless said otherwise."""
AGAIN = 4
"""A case that seems to deviate is played again with so many times the patience."""
START_S = 20.0
"""How long a broker that is started here may take until it serves."""
LEAK_BYTES = 256 * 1024
"""Growth of the broker's memory in one case that is looked into."""
LEAK_TURNS = 4
"""A case leaks when the memory grows again in each of so many turns."""


class NoBrokerError(Exception):
    """There is no broker that serves; the text says why."""


@dataclass(slots=True)
class Result:
    """What became of one case."""

    case: Case
    ruling: Ruling | None
    """``None`` where the case was not played to its mutation."""
    not_played: str = ""
    """Why not."""
    played: Played | None = None
    script: Script | None = None
    """The connection as it was played, fitted to the broker."""
    seconds: float = 0.0
    number: int = 0
    """Of the case in its capture."""
    unclean: tuple[str, ...] = ()
    """What could not be cleaned up."""

    @property
    def deviates(self) -> bool:
        """Whether the broker deviates."""
        return self.ruling is not None and self.ruling.deviates


@dataclass(slots=True)
class Trial:
    """One run against one broker."""

    door: Door
    patience_s: float = PATIENCE_S
    process: Process | None = None
    rate: float | None = None
    """Cases per second, at most."""
    stopped: bool = False
    _witness: Companion | None = None
    _next: float = 0.0

    async def begin(self) -> None:
        """Find the broker, or start it; `NoBrokerError` where none serves."""
        if self.process is not None:
            self.process.start()
        await self._meet(START_S if self.process is not None and self.process.command else 0.0)

    async def end(self) -> None:
        """Leave, and stop the broker if it was started here."""
        if self._witness is not None:
            await self._witness.leave()
        if self.process is not None:
            self.process.stop()

    async def connack(self, script: Script) -> Connack | None:
        """What the broker answers to the CONNECT of a connection; ``None`` when it does not accept it."""
        version, connect = script.version, script.connect
        if connect is None or not await self._alive():
            return None
        conversation = Conversation(version)
        made = Companion(self.door, version)
        made.link = await self.door.open(made, version)
        conversation.add(True, connect.raw, time.time_ns())
        made.link.write(connect.raw)
        await made.until(lambda: made.packets, self.patience_s * AGAIN)
        found = made.packets[0] if made.packets else None
        if isinstance(found, Connack):
            conversation.add(False, found.raw or encode(found, version), time.time_ns())
        await made.leave()
        await self._forget(conversation)
        return found if isinstance(found, Connack) and not found.reason_code else None

    async def run(self, cases: Iterable[tuple[Script, Numbered]]) -> AsyncIterator[Result]:
        """Play cases; ends early when it is stopped or the broker is gone for good (`NoBrokerError`)."""
        for script, numbered in cases:
            if self.stopped:
                return
            await self._turn()
            yield replace(await self.one(script, numbered.case), number=numbered.number)

    async def once(self, script: Script, case: Case, *, raw: bool = False) -> Result:
        """Play one case a single time."""
        return await self._attempt(script, case, self.patience_s, raw=raw)

    async def one(self, script: Script, case: Case, *, raw: bool = False) -> Result:
        """Play one case and judge it; what seems to deviate is played a second time with more patience."""
        started = time.monotonic()
        found = await self._attempt(script, case, self.patience_s, raw=raw)
        if found.ruling is not None and found.ruling.deviates and found.ruling.verdict is not Verdict.CRASHED:
            try:
                again = await self._attempt(script, case, self.patience_s * AGAIN, raw=raw)
            except NoBrokerError:
                # It has not come back since: there is no better proof.
                found.seconds = time.monotonic() - started
                return found
            if again.ruling is None or again.ruling.verdict != found.ruling.verdict:
                ruling = again.ruling or found.ruling
                # Once is not proof; what is worse than the first time was not seen twice either.
                again.ruling = excused(ruling, f"not the same twice: {found.ruling.verdict} first")
            found = again
        if found.ruling is not None and not found.ruling.deviates and self.process is not None:
            found = await self._leaking(found, script, case, raw=raw)
        found.seconds = time.monotonic() - started
        return found

    # One attempt

    async def _attempt(self, script: Script, case: Case, patience_s: float, *, raw: bool) -> Result:
        if not await self._alive():
            raise NoBrokerError(f"{self.door.target} serves no more")
        pilot = Pilot(case, script, self.door, patience_s, self._supply, self._meanwhile(patience_s), raw)
        result = Result(case, None, script=script)
        try:
            played = result.played = await pilot.run()
        except (LinkError, NotPlayedError) as error:
            result.not_played = str(error)
        ill = await self._ill(patience_s, case)
        if ill is not None:
            # Whoever brings the broker down on the way to the mutation has found something as well.
            result.ruling, result.not_played = ill, ""
            result.played = result.played or pilot.played
        elif result.played is not None:
            ruling = judge(case, played.seen)
            result.ruling = confirm(ruling, case, played.conversation) if ruling.deviates else ruling
            if played.during is None:
                result.ruling = Ruling(Verdict.COLLATERAL, "the witness heard nothing while the case went on")
        if ill is None or ill.verdict is Verdict.COLLATERAL:
            result.unclean = tuple(await self._forget(pilot.conversation))
        return result

    def _meanwhile(self, patience_s: float) -> Callable[[], Awaitable[float | None]]:
        async def look() -> float | None:
            return None if self._witness is None else await self._witness.round_trip(patience_s)

        return look

    async def _supply(self, topic: str, payload: bytes, qos: int) -> bool:
        """Publish in the place of others."""
        return self._witness is not None and await self._witness.publish(topic, payload, qos, self.patience_s)

    async def _ill(self, patience_s: float, case: Case) -> Ruling | None:
        """What is wrong with the broker as a whole; ``None`` when it serves the witness."""
        gone = self.process is not None and not self.process.alive()
        watching = self._witness
        if not gone and watching is not None and await watching.round_trip(patience_s) is not None:
            return None
        found = Pulse.DEAD if gone else await self._pulse(patience_s)
        gone = gone or (self.process is not None and not self.process.alive())
        how = "" if watching is None else watching.how
        await self._drop_witness()
        if gone or found is Pulse.DEAD:
            told = "its process is gone" if gone else "its port is dead, which served before"
            ending = self.process.ending if gone and self.process is not None else ""
            return Ruling(Verdict.CRASHED, f"{told} ({ending})" if ending else told)
        if found is Pulse.SILENT:
            return Ruling(Verdict.HUNG, f"it takes connections and answers no CONNECT within {patience_s * AGAIN:g} s")
        why = f"the witness lost its connection ({how})" if how else "the witness hears nothing any more"
        return Ruling(Verdict.COLLATERAL, f"{why}, while new clients are served")

    async def _pulse(self, patience_s: float) -> Pulse:
        """A fresh client, a second time where the first one fares badly."""
        assert self._witness is not None
        version = self._witness.version
        first = await pulse(self.door, version, patience_s)
        if first is Pulse.SERVES:
            return first
        await asyncio.sleep(min(0.2, patience_s))
        return await pulse(self.door, version, patience_s * AGAIN)

    async def _leaking(self, found: Result, script: Script, case: Case, *, raw: bool) -> Result:
        """Whether the broker's memory grows each time that the case is played."""
        process = self.process
        assert process is not None
        growth: list[int] = []
        before = process.memory()
        for turn in range(LEAK_TURNS):
            if turn == 1 and growth[0] < LEAK_BYTES:
                return found
            again = await self._attempt(script, case, self.patience_s, raw=raw)
            if again.ruling is None or again.ruling.deviates:
                return found
            growth.append(process.memory() - before)
            before = process.memory()
            if growth[-1] < LEAK_BYTES:
                return found
        told = ", ".join(f"{one // 1024:,}" for one in growth)
        return replace(found, ruling=Ruling(Verdict.LEAKED, f"its memory grew by {told} KiB in {len(growth)} turns"))

    # Before and behind

    async def _turn(self) -> None:
        """Wait for the rate."""
        if self.rate is None:
            return
        now = time.monotonic()
        if now < self._next:
            await asyncio.sleep(self._next - now)
        self._next = max(self._next, now) + 1 / self.rate

    async def _alive(self) -> bool:
        """Whether a witness is served; a broker of ours that is gone is started again."""
        if self._witness is not None and not self._witness.how:
            return True
        await self._drop_witness()
        if self.process is not None and self.process.command and not self.process.alive():
            self.process.start()
            await self._meet(START_S)
        else:
            try:
                await self._meet(self.patience_s * AGAIN)
            except NoBrokerError:
                if self.process is None or not self.process.command:
                    return False
                # It lives and serves nobody: a new one takes its place.
                self.process.stop()
                self.process.start()
                await self._meet(START_S)
        return self._witness is not None

    async def _meet(self, seconds: float) -> None:
        """Have a witness; try so long."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                self._witness = await witness(self.door, self.patience_s * AGAIN)
                why = f"{self.door.target} does not answer CONNECT"
            except LinkError as error:
                why = str(error)
            except RefusedError as error:
                raise NoBrokerError(f"{self.door.target} refuses the witness: {error}") from None
            if self._witness is not None:
                return
            if time.monotonic() >= deadline:
                raise NoBrokerError(why)
            await asyncio.sleep(0.05)

    async def _drop_witness(self) -> None:
        if self._witness is not None:
            await self._witness.drop()
        self._witness = None

    async def _forget(self, conversation: Conversation) -> list[str]:
        """Clean up behind a conversation; returns what is left."""
        found = leavings(conversation)
        left = []
        seconds = self.patience_s * AGAIN
        for version, identifier in found.sessions:
            if not await forget_session(self.door, version, identifier, seconds) and _lasting(conversation):
                left.append(f"session {identifier}")
        if found.topics and self._witness is not None:
            topics = await forget_retained(self.door, self._witness.version, found.topics, seconds)
            left += (f"retained message {topic}" for topic in topics)
        return left


def _lasting(conversation: Conversation) -> bool:
    """Whether the broker may keep a session of it: it accepted the connection."""
    return any(isinstance(one, Connack) and not one.reason_code for one in conversation.packets(from_client=False))


def longest_s(case: Case) -> float:
    """How long a case takes at least: its pauses."""
    return sum(step.nanoseconds for step in case.flow.steps if step.action is Action.PAUSE) / 1e9


__all__ = ["NoBrokerError", "Result", "Trial", "longest_s"]

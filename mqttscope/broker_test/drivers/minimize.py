"""A failing case with everything left out that does not matter: packets, then fields, then bytes.

What is left out is what can be left out: after each step the broker is tried again, and only what keeps the verdict
stays out.  Verdicts about one connection are held against the specification as before, so that a reduced case breaks
the same statement, and no other one: what is left would show something else.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from mqttscope.broker_test.drivers.case_runner import Played
from mqttscope.broker_test.drivers.health import NoBrokerError
from mqttscope.broker_test.drivers.run import BrokerTest, CaseResult, unhurried
from mqttscope.broker_test.oracle import blaming, breaking
from mqttscope.broker_test.verdict import ANSWERS, BROKER_WIDE, Verdict
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.stream import PacketStream
from mqttscope.mqtt.wire import write_variable_byte_integer
from mqttscope.mutate import Action, Case, MutatedFlow, Step
from mqttscope.mutate.layout import Layout
from mqttscope.replay.script import Script

MAX_TRIES = 400
"""Maximum number of tries of one case."""
MAX_S = 30.0
"""Timeout of the reduction of one case."""

_ENDS = frozenset({Action.STOP_READING, Action.HALF_CLOSE, Action.CLOSE, Action.RESET})
"""Never left out: a connection ends whatever is played, and what its end does would be put down to the bytes."""
ANSWER_TYPES = frozenset(int(one) for one in (*ANSWERS, PacketType.AUTH))
_NAMED = frozenset(int(one) for one in PacketType)
Try = Callable[[list[Step]], Awaitable[bool]]
"""Whether steps keep the verdict."""
Progress = Callable[[int], None]
"""Is told how often the broker was tried."""


@dataclass(slots=True)
class Minimized:
    """A case that was reduced."""

    case: Case
    """The same case with fewer steps; these are the bytes as they were sent."""
    verdict: Verdict
    tries: int = 0
    packets_before: int = 0
    bytes_before: int = 0
    result: CaseResult | None = None
    """Of the reduced case, played a last time."""
    unfinished: str = ""
    """Why it was not reduced any further, though there was more to try; empty when all was tried."""
    breaks: tuple[str, ...] = ()
    """Statements that the reduced flow breaks: for a broker that suffers as a whole they may be others than before."""

    fault: str = ""
    """What is wrong with the packets that are left, where it is something else than the mutation's description tells:
    for a broker that suffers as a whole that may be."""

    @classmethod
    def of(cls, case: Case, verdict: Verdict) -> Minimized:
        """A case as it is, from which nothing has been left out yet."""
        sends = [one.data for one in case.flow.steps if one.action is Action.SEND]
        return cls(case, verdict, packets_before=len(sends), bytes_before=sum(map(len, sends)))

    @property
    def sends(self) -> list[bytes]:
        return [one.data for one in self.case.flow.steps if one.action is Action.SEND and one.data]


def as_played(result: CaseResult) -> Case:
    """The case with the bytes that were really sent, as it is played without the player."""
    case, played = result.case, result.played
    assert played is not None
    flow = case.flow
    said = played.conversation
    steps: list[Step] = []
    # What the player sent comes first, with the answers that it waited for in between.
    for one in said.said[: said.begins]:
        if one.data and one.from_client:
            steps.append(Step(Action.SEND, one.data))
        elif one.data:
            steps.append(Step(Action.AWAIT, awaits=_type(one.data)))
    steps += (step for step in played.steps if step.action is not Action.SEND or step.data)
    return replace(case, flow=MutatedFlow(flow.mutation, flow.sender, flow.version, steps, flow.changes))


def _type(data: bytes) -> PacketType | None:
    kind = data[0] >> 4
    return PacketType(kind) if kind in ANSWER_TYPES else None


async def minimized(
    test: BrokerTest,
    script: Script,
    result: CaseResult,
    *,
    progress: Progress | None = None,
    worse: list[CaseResult] | None = None,
    raw: bool = False,
) -> Minimized | None:
    """Reduce a failing case; ``None`` where it does not fail the same way when its bytes are sent as they are.

    What is left when the tries or the seconds are used up, or the trial is stopped, is as far as it got.  A try that
    harms the whole broker, where the case did not, ends the reduction and is put into ``worse``.  ``raw``: the steps of
    the case are what was sent, as in one of these.
    """
    assert result.ruling is not None
    wanted = result.ruling.verdict
    case = result.case if raw else as_played(result)
    found = Minimized.of(case, wanted)

    async def once(steps: list[Step]) -> Played | None:
        """Play steps; what came of it where the verdict is the same."""
        found.tries += 1
        if progress is not None:
            progress(found.tries)
        less = replace(case, flow=replace(case.flow, steps=steps))
        try:
            tried = await test.once(script, less, raw=True)
            if _verdict(tried) in BROKER_WIDE - {wanted, Verdict.CRASHED}:
                # Once is no proof, as everywhere.
                tried = await test.one(script, less, raw=True)
        except NoBrokerError:
            return None
        if worse is not None and wanted not in BROKER_WIDE and _verdict(tried) in BROKER_WIDE:
            worse.append(replace(tried, number=result.number))
        return tried.played if _verdict(tried) is wanted else None

    steps = list(case.flow.steps)
    deadline = time.monotonic() + MAX_S
    first = await once(steps)
    if first is None:
        return None
    faithful = await _faithful_to(steps, first)
    faults = list(faults_of(steps, case.version))

    def over() -> str:
        """Why nothing more is tried."""
        if test.stopped:
            return "interrupted"
        if worse:
            return "a smaller case did worse"
        if found.tries >= MAX_TRIES:
            return f"{MAX_TRIES:,} tries used up"
        return f"{MAX_S:g} s used up" if time.monotonic() > deadline else ""

    ends = Counter(one.action for one in steps if one.action in _ENDS)

    async def keeps(steps: list[Step]) -> bool:
        if not any(one.data for one in steps) or Counter(one.action for one in steps if one.action in _ENDS) != ends:
            return False
        found.unfinished = found.unfinished or over()
        if found.unfinished:
            return False
        played = await once(steps)
        return played is not None and (wanted in BROKER_WIDE or await faithful(steps, played))

    steps = await _fewer(steps, keeps)
    steps = await _simpler(steps, keeps, case)
    steps = await _shorter(steps, keeps)
    found.case = replace(case, flow=replace(case.flow, steps=steps))
    # An interrupted case has no verdict any more: nobody knows whether what is left still shows it.
    if test.stopped:
        return None
    found.result = last = await test.one(script, found.case, raw=True)
    if last.ruling is None or last.ruling.verdict is not wanted or last.played is None:
        return None
    found.breaks = await unhurried(breaking(last.played.conversation))
    left = list(faults_of(steps, case.version))
    if faults and faults[0] not in left:
        found.fault = "; ".join(str(one) for one in left) or "nothing is malformed any more"
    return found


def _verdict(result: CaseResult) -> Verdict | None:
    return None if result.ruling is None else result.ruling.verdict


@dataclass(slots=True, frozen=True)
class Fault:
    """What is wrong with the layout of a packet: what a mutation's description tells of."""

    packet_type: int
    reason: str
    field: str
    complete: bool
    """Whether all fields are there: a byte too many is not a byte too few."""

    def __str__(self) -> str:
        name = PacketType(self.packet_type).name if self.packet_type in _NAMED else f"type {self.packet_type}"
        return f"{name}: {self.reason.replace('_', ' ')}{f' ({self.field})' if self.field else ''}"


def faults_of(steps: Sequence[Step], version: ProtocolVersion) -> Iterator[Fault]:
    """The faults of the packets that are sent, in their order."""
    stream = PacketStream()
    stream.version = version
    data = b"".join(one.data for one in steps if one.action is Action.SEND)
    for item in (*stream.feed(data), *stream.close()):
        if isinstance(item, Malformed):
            yield Fault(item.packet_type or 0, str(item.reason), item.field, item.complete)


async def _faithful_to(whole: list[Step], first: Played) -> Callable[[list[Step], Played], Awaitable[bool]]:
    """Whether fewer steps show the same: the same fault, no other, no packet more unfinished, and as far as before."""
    version = first.conversation.version
    allowed, unfinished = await unhurried(blaming(first.conversation)), _unfinished(whole, version)
    faults = list(faults_of(whole, version))

    async def faithful(steps: list[Step], played: Played) -> bool:
        left = set(faults_of(steps, version))
        return (
            played.seen.accepted == first.seen.accepted
            and bool(played.seen.fenced) == bool(first.seen.fenced)
            and (unfinished or not _unfinished(steps, version))
            and left <= set(faults)
            and (not faults or faults[0] in left)
            and await unhurried(blaming(played.conversation)) <= allowed
        )

    return faithful


def _unfinished(steps: list[Step], version: ProtocolVersion) -> bool:
    """Whether bytes are left behind the last whole packet: a broker may wait for the rest of it."""
    data = b"".join(one.data for one in steps if one.action is Action.SEND)
    stream = PacketStream()
    stream.version = version
    whole = sum(len(one.raw) for one in stream.feed(data) if isinstance(one, ControlPacket | Malformed))
    return whole < len(data)


async def _fewer(steps: list[Step], keeps: Try) -> list[Step]:
    """Leave out as many steps as possible: halves first, then ever smaller parts (Zeller's ddmin)."""
    size = max(1, len(steps) // 2)
    while True:
        at, changed = 0, False
        while at < len(steps):
            rest = steps[:at] + steps[at + size :]
            if rest and await keeps(rest):
                steps, changed = rest, True
            else:
                at += size
        if size == 1 and not changed:
            return steps
        size = max(1, size // 2)


async def _simpler(steps: list[Step], keeps: Try, case: Case) -> list[Step]:
    """Leave out fields of the packets that are left, with all lengths put right."""
    for place in range(len(steps)):
        going = True
        while going:
            going = False
            for data in _without_a_field(steps[place].data, case):
                made = _with(steps, place, data)
                if await keeps(made):
                    steps, going = made, True
                    break
    return steps


def _without_a_field(data: bytes, case: Case) -> Iterator[bytes]:
    """The packet without each of its properties and rows; nothing for bytes that are no packet."""
    try:
        count = len(Layout(data, case.version).pieces)
    except ValueError:
        return
    for index in range(count):
        layout = Layout(data, case.version)
        if not layout.block(index) and "[" not in layout.pieces[index].field:
            continue
        del layout.pieces[index]
        layout.right_property_lengths()
        yield layout.join(remaining_length=write_variable_byte_integer(len(layout.body())))


async def _shorter(steps: list[Step], keeps: Try) -> list[Step]:
    """Leave out bytes, whatever they mean: the Remaining Length goes along where it was right before."""
    for place in range(len(steps)):
        size = max(1, len(steps[place].data) // 2)
        while steps[place].data:
            at, changed = 1, False
            while at < len(steps[place].data):
                for data in _without_bytes(steps[place].data, at, size):
                    made = _with(steps, place, data)
                    if await keeps(made):
                        steps, changed = made, True
                        break
                else:
                    at += size
            if size == 1 and not changed:
                break
            size = max(1, size // 2)
    return steps


def _without_bytes(data: bytes, at: int, size: int) -> Iterator[bytes]:
    cut = data[:at] + data[at + size :]
    told = data[1] if len(data) > 1 else 0
    if told == len(data) - 2 and told < 0x80 and at > 1:
        yield bytes((data[0], len(cut) - 2)) + cut[2:]
    yield cut


def _with(steps: Sequence[Step], place: int, data: bytes) -> list[Step]:
    made = list(steps)
    made[place] = replace(made[place], data=data)
    return made

"""Reduces a failing case: removes irrelevant packets, then fields, then bytes.

After each removal the case is played again, and the removal stays only if the verdict stays.  A verdict about one
connection is checked against the specification as before, so that the reduced case breaks the original statement and
no other one.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from mqttscope.broker_test.drivers.case_runner import PlayedCase
from mqttscope.broker_test.drivers.health import NoBrokerError
from mqttscope.broker_test.drivers.run import BrokerTest, CaseResult, run_in_steps
from mqttscope.broker_test.oracle import blaming, breaking
from mqttscope.broker_test.verdict import ANSWERS, BROKER_WIDE, BrokerVerdict
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.stream import PacketStream
from mqttscope.mqtt.wire import write_variable_byte_integer
from mqttscope.mutate import Action, FlowStep, MutatedFlow, MutationCase
from mqttscope.mutate.layout import PacketLayout
from mqttscope.replay.script import Script

MAX_TRIES = 400
"""Maximum number of tries per case."""
MAX_S = 30.0
"""Timeout of the reduction of one case."""
_ENDS = frozenset({Action.STOP_READING, Action.HALF_CLOSE, Action.CLOSE, Action.RESET})
"""Actions that are never removed: otherwise the effect of the end of the connection would be attributed to bytes."""
ANSWER_TYPES = frozenset(int(kind) for kind in (*ANSWERS, PacketType.AUTH))
_NAMED = frozenset(int(kind) for kind in PacketType)
Try = Callable[[list[FlowStep]], Awaitable[bool]]
"""Returns whether the steps keep the verdict."""
IsFaithful = Callable[[list[FlowStep], PlayedCase], Awaitable[bool]]
Progress = Callable[[int], None]
"""Called with the number of completed tries."""


@dataclass(slots=True)
class MinimizedCase:
    """A reduced case."""

    case: MutationCase
    """The case with the remaining steps, which contain the bytes as sent."""
    verdict: BrokerVerdict
    tries: int = 0
    packets_before: int = 0
    bytes_before: int = 0
    result: CaseResult | None = None
    """Result of the reduced case, played a last time."""
    unfinished: str = ""
    """Reason why the reduction ended early; empty if it was complete."""
    breaks: tuple[str, ...] = ()
    """Statements that the reduced flow breaks; with harm to the whole broker, they may differ from the original."""
    fault: str = ""
    """Faults of the remaining packets, if they differ from the mutation's description; possible only with harm to
    the whole broker."""

    @classmethod
    def of(cls, case: MutationCase, verdict: BrokerVerdict) -> MinimizedCase:
        """A case before its reduction."""
        sends = [step.data for step in case.flow.steps if step.action is Action.SEND]
        return cls(case, verdict, packets_before=len(sends), bytes_before=sum(map(len, sends)))

    @property
    def sends(self) -> list[bytes]:
        return [step.data for step in self.case.flow.steps if step.action is Action.SEND and step.data]


def played_case(result: CaseResult) -> MutationCase:
    """The case with the bytes that were actually sent, for playing without the player."""
    case, played = result.case, result.played
    assert played is not None
    flow = case.flow
    conversation = played.conversation
    steps: list[FlowStep] = []
    # First the packets of the player, and waits for the answers in between.
    for chunk in conversation.chunks[: conversation.begins]:
        if chunk.data and chunk.from_client:
            steps.append(FlowStep(Action.SEND, chunk.data))
        elif chunk.data:
            steps.append(FlowStep(Action.AWAIT, awaits=_type(chunk.data)))
    steps += (step for step in played.steps if step.action is not Action.SEND or step.data)
    return replace(case, flow=MutatedFlow(flow.mutation, flow.sender, flow.version, steps, flow.changes))


def _type(data: bytes) -> PacketType | None:
    kind = data[0] >> 4
    return PacketType(kind) if kind in ANSWER_TYPES else None


async def minimize_case(
    test: BrokerTest,
    script: Script,
    result: CaseResult,
    *,
    progress: Progress | None = None,
    worse: list[CaseResult] | None = None,
    raw: bool = False,
) -> MinimizedCase | None:
    """Reduce a failing case; ``None`` if the raw bytes do not produce the original verdict.

    The reduction ends early after `MAX_TRIES` or `MAX_S`.  If a try harms the whole broker although the case did not,
    the reduction ends and the result is appended to ``worse``.  ``raw`` means that the steps of the case contain the
    bytes as sent.
    """
    assert result.ruling is not None
    wanted = result.ruling.verdict
    case = result.case if raw else played_case(result)
    reduced = MinimizedCase.of(case, wanted)

    async def once(steps: list[FlowStep]) -> PlayedCase | None:
        """Play steps; returns the play if the verdict stays."""
        reduced.tries += 1
        if progress is not None:
            progress(reduced.tries)
        less = replace(case, flow=replace(case.flow, steps=steps))
        try:
            tried = await test.play_once(script, less, raw=True)
            if _verdict(tried) in BROKER_WIDE - {wanted, BrokerVerdict.CRASHED}:
                # One play is not proof.
                tried = await test.play_case(script, less, raw=True)
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
        """Reason to stop trying, or empty."""
        if test.stopped:
            return "interrupted"
        if worse:
            return "a smaller case did more harm"
        if reduced.tries >= MAX_TRIES:
            return f"limit of {MAX_TRIES:,} tries reached"
        return f"limit of {MAX_S:g} s reached" if time.monotonic() > deadline else ""

    ends = Counter(step.action for step in steps if step.action in _ENDS)

    async def keeps(steps: list[FlowStep]) -> bool:
        left = Counter(step.action for step in steps if step.action in _ENDS)
        if left != ends or not any(step.data for step in steps):
            return False
        reduced.unfinished = reduced.unfinished or over()
        if reduced.unfinished:
            return False
        played = await once(steps)
        return played is not None and (wanted in BROKER_WIDE or await faithful(steps, played))

    steps = await _drop_steps(steps, keeps)
    steps = await _drop_fields(steps, keeps, case)
    steps = await _drop_bytes(steps, keeps)
    reduced.case = replace(case, flow=replace(case.flow, steps=steps))
    # An interrupted case has no verdict, so the reduced case is unconfirmed.
    if test.stopped:
        return None
    reduced.result = last = await test.play_case(script, reduced.case, raw=True)
    if last.ruling is None or last.ruling.verdict is not wanted or last.played is None:
        return None
    reduced.breaks = await run_in_steps(breaking(last.played.conversation))
    left = list(faults_of(steps, case.version))
    if faults and faults[0] not in left:
        reduced.fault = "; ".join(str(fault) for fault in left) or "no packet is malformed"
    return reduced


def _verdict(result: CaseResult) -> BrokerVerdict | None:
    return None if result.ruling is None else result.ruling.verdict


@dataclass(slots=True, frozen=True)
class PacketFault:
    """A fault in the layout of a packet."""

    packet_type: int
    reason: str
    field: str
    complete: bool
    """Whether all fields are present: an extra byte and a missing byte are different faults."""

    def __str__(self) -> str:
        name = PacketType(self.packet_type).name if self.packet_type in _NAMED else f"type {self.packet_type}"
        return f"{name}: {self.reason.replace('_', ' ')}{f' ({self.field})' if self.field else ''}"


def faults_of(steps: Sequence[FlowStep], version: ProtocolVersion) -> Iterator[PacketFault]:
    """The faults of the sent packets, in order."""
    stream = PacketStream()
    stream.version = version
    data = b"".join(step.data for step in steps if step.action is Action.SEND)
    for item in (*stream.feed(data), *stream.close()):
        if isinstance(item, Malformed):
            yield PacketFault(item.packet_type or 0, str(item.reason), item.field, item.complete)


async def _faithful_to(whole: list[FlowStep], first: PlayedCase) -> IsFaithful:
    """A check that fewer steps show the original fault and no other one, with all packets complete and accepted."""
    version = first.conversation.version
    allowed, unfinished = await run_in_steps(blaming(first.conversation)), _unfinished(whole, version)
    faults = list(faults_of(whole, version))

    async def faithful(steps: list[FlowStep], played: PlayedCase) -> bool:
        left = set(faults_of(steps, version))
        return (
            played.seen.accepted == first.seen.accepted
            and bool(played.seen.ping_answered) == bool(first.seen.ping_answered)
            and (unfinished or not _unfinished(steps, version))
            and left <= set(faults)
            and (not faults or faults[0] in left)
            and await run_in_steps(blaming(played.conversation)) <= allowed
        )

    return faithful


def _unfinished(steps: list[FlowStep], version: ProtocolVersion) -> bool:
    """Whether the bytes end inside a packet, so that a broker may wait for the rest."""
    data = b"".join(step.data for step in steps if step.action is Action.SEND)
    stream = PacketStream()
    stream.version = version
    whole = sum(len(packet.raw) for packet in stream.feed(data) if isinstance(packet, ControlPacket | Malformed))
    return whole < len(data)


async def _drop_steps(steps: list[FlowStep], keeps: Try) -> list[FlowStep]:
    """Remove as many steps as possible: halves first, then ever smaller parts (Zeller's ddmin)."""
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


async def _drop_fields(steps: list[FlowStep], keeps: Try, case: MutationCase) -> list[FlowStep]:
    """Remove fields of the remaining packets, and correct all lengths."""
    for place in range(len(steps)):
        going = True
        while going:
            going = False
            for data in _without_a_field(steps[place].data, case):
                candidate = _with(steps, place, data)
                if await keeps(candidate):
                    steps, going = candidate, True
                    break
    return steps


def _without_a_field(data: bytes, case: MutationCase) -> Iterator[bytes]:
    """The packet without each of its properties and list elements; nothing if the bytes are not a packet."""
    try:
        count = len(PacketLayout(data, case.version).pieces)
    except ValueError:
        return
    for index in range(count):
        layout = PacketLayout(data, case.version)
        if not layout.block(index) and "[" not in layout.pieces[index].field:
            continue
        del layout.pieces[index]
        layout.right_property_lengths()
        yield layout.join(remaining_length=write_variable_byte_integer(len(layout.body())))


async def _drop_bytes(steps: list[FlowStep], keeps: Try) -> list[FlowStep]:
    """Remove bytes regardless of their meaning; a Remaining Length that was correct is adjusted."""
    for place in range(len(steps)):
        size = max(1, len(steps[place].data) // 2)
        while steps[place].data:
            at, changed = 1, False
            while at < len(steps[place].data):
                for data in _without_bytes(steps[place].data, at, size):
                    candidate = _with(steps, place, data)
                    if await keeps(candidate):
                        steps, changed = candidate, True
                        break
                else:
                    at += size
            if size == 1 and not changed:
                break
            size = max(1, size // 2)
    return steps


def _without_bytes(data: bytes, at: int, size: int) -> Iterator[bytes]:
    cut = data[:at] + data[at + size :]
    length = data[1] if len(data) > 1 else 0
    if length == len(data) - 2 and length < 0x80 and at > 1:
        yield bytes((data[0], len(cut) - 2)) + cut[2:]
    yield cut


def _with(steps: Sequence[FlowStep], place: int, data: bytes) -> list[FlowStep]:
    changed = list(steps)
    changed[place] = replace(changed[place], data=data)
    return changed

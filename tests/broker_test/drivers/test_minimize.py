"""Reduced cases: the packet that causes it, and nothing else."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace

import pytest

from mqttscope.broker_test.drivers.health import Process
from mqttscope.broker_test.drivers.minimize import Minimized, as_played, faults_of, minimized
from mqttscope.broker_test.drivers.run import CaseResult
from mqttscope.broker_test.verdict import Verdict
from mqttscope.mqtt import ProtocolVersion
from mqttscope.mutate import Action, Step
from tests.broker_test.broken import Broker, Fault
from tests.broker_test.flows import V3_1_1, V5, make_case, script, trial_of
from tests.proxy.rig import free_port


class Inside(Process):
    """A broker with faults inside this process, which can be started again like one that is a process of its own."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(command="inside")
        self.fault = fault
        self.port = free_port()
        self.broker: Broker | None = None
        self.tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        if self.alive():
            return
        self.broker = Broker(self.fault)
        self.starts += 1
        task = asyncio.get_running_loop().create_task(self.broker.serve(socket.create_server(("127.0.0.1", self.port))))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def alive(self) -> bool:
        return self.broker is not None and not self.broker.stopped

    def stop(self, seconds: float = 0.0) -> None:
        if self.broker is not None:
            self.broker.stop()

    async def end(self) -> None:
        """Stop, and wait until every connection is gone."""
        if self.broker is not None:
            await self.broker.end()


async def reduced(
    name: str, fault: Fault, version: ProtocolVersion, more: int = 10, tries: int = 200, seconds: float = 30.0
) -> tuple[CaseResult, Minimized | None]:
    """A failing case, and what is left of it."""
    process = Inside(fault)
    test = trial_of(process.port, process, patience_s=0.05)
    await test.begin()
    try:
        own = script(version, more=more)
        found = await test.one(own, make_case(name, own))
        return found, await minimized(test, own, found, max_tries=tries, max_s=seconds)
    finally:
        await test.end()
        await process.end()


def test_a_planted_crash_is_reduced_to_the_packet_that_causes_it() -> None:
    found, made = asyncio.run(reduced("publish:qos-3", Fault.CRASH, V5))

    assert made is not None
    assert made.verdict is Verdict.CRASHED
    assert made.packets_before > 10
    assert [data[0] & 0xF6 for data in made.sends] == [0x36]
    assert len(made.sends[0]) <= 3
    assert made.result is not None
    assert made.result.ruling is not None
    assert made.result.ruling.verdict is Verdict.CRASHED
    assert made.case.mutation is found.case.mutation


@pytest.mark.long
def test_what_is_tolerated_still_breaks_the_same_statement() -> None:
    _, made = asyncio.run(reduced("publish:qos-3", Fault.TOLERATE, V3_1_1, more=0, tries=50))

    assert made is not None
    # Without CONNECT there would be no answer to PINGREQ, which shows that the connection continues.
    assert [data[0] & 0xF6 for data in made.sends] == [0x10, 0x36]
    assert made.tries <= 50
    assert "5.0 MQTT-3.3.1-4" not in made.breaks
    assert "3.1.1 MQTT-3.3.1-4" in made.breaks


def test_what_is_legal_stays_legal() -> None:
    """A broker that closes at the first packet that is no CONNECT would refuse nearly any bytes as well."""
    _, made = asyncio.run(reduced("publish.topic_name:spaces", Fault.REFUSE, V3_1_1, more=0, tries=60))

    assert made is not None
    assert [data[0] & 0xF0 for data in made.sends] == [0x10, 0x30]
    assert b" " in made.sends[-1]


def test_it_ends_in_time_and_says_so() -> None:
    _, made = asyncio.run(reduced("publish:qos-3", Fault.TOLERATE, V3_1_1, more=0, seconds=0.01))

    assert made is not None
    assert (made.tries, made.unfinished) == (1, "0.01 s used up")


def test_a_stopped_trial_reduces_no_further() -> None:
    async def run() -> tuple[list[int], Minimized | None]:
        process = Inside(Fault.TOLERATE)
        test = trial_of(process.port, process, patience_s=0.05)
        await test.begin()
        own = script(V3_1_1)
        found = await test.one(own, make_case("publish:qos-3", own))
        told: list[int] = []

        def progress(tries: int) -> None:
            told.append(tries)
            test.stopped = tries == 2

        made = await minimized(test, own, found, progress=progress)
        await test.end()
        await process.end()
        return told, made

    assert asyncio.run(run()) == ([1, 2], None)


def test_a_case_that_does_not_fail_again_is_not_reduced() -> None:
    async def run() -> Minimized | None:
        process = Inside(Fault.CRASH)
        test = trial_of(process.port, process)
        await test.begin()
        own = script()
        found = await test.one(own, make_case("publish:qos-3", own))
        process.fault = Fault.NONE
        made = await minimized(test, own, found)
        await test.end()
        await process.end()
        return made

    assert asyncio.run(run()) is None


def test_what_is_worse_than_the_case_ends_its_reduction_and_is_kept() -> None:
    """A broker that tolerates the case crashes when CONNECT is left out."""

    async def run() -> tuple[Minimized | None, list[CaseResult], Minimized | None]:
        process = Inside(Fault.FRAGILE)
        test = trial_of(process.port, process, patience_s=0.05)
        await test.begin()
        own = script()
        found = replace(await test.one(own, make_case("publish:qos-3", own)), number=7)
        worse: list[CaseResult] = []
        made = await minimized(test, own, found, worse=worse)
        assert worse[0].script is not None
        again = await minimized(test, worse[0].script, worse[0], raw=True)
        await test.end()
        await process.end()
        return made, worse, again

    made, (worse,), again = asyncio.run(run())
    assert made is not None
    assert (made.verdict, made.unfinished) == (Verdict.TOLERATED, "a smaller case did worse")
    assert worse.ruling is not None
    assert (worse.ruling.verdict, worse.number) == (Verdict.CRASHED, 7)
    assert again is not None
    assert (again.verdict, again.unfinished, len(again.sends)) == (Verdict.CRASHED, "", 1)


def test_what_was_played_is_what_was_sent() -> None:
    found, _ = asyncio.run(reduced("publish:qos-3", Fault.CRASH, V3_1_1))
    again = as_played(found)

    assert found.played is not None
    assert again.flow.sent == found.played.conversation.sent()
    assert any(step.mutated for step in again.flow.steps)


def test_how_a_connection_ends_is_never_left_out() -> None:
    async def run() -> Minimized | None:
        process = Inside(Fault.CRASH)
        test = trial_of(process.port, process)
        await test.begin()
        own = script()
        case = make_case("publish:qos-3", own)
        found = await test.one(own, case)
        steps = [Step(Action.SEND, b"\xf7\x00"), Step(Action.PAUSE), Step(Action.RESET)]
        ending = replace(case, flow=replace(case.flow, steps=steps))
        made = await minimized(test, own, replace(found, case=ending), raw=True)
        await test.end()
        await process.end()
        return made

    made = asyncio.run(run())
    assert made is not None
    assert [one.action for one in made.case.flow.steps] == [Action.SEND, Action.RESET]


@pytest.mark.long
def test_the_fault_that_the_description_tells_of_is_kept() -> None:
    """A byte after the last field: a PUBREL without any field would be tolerated as well, and is another fault."""
    found, made = asyncio.run(reduced("pubrel:extra-byte", Fault.TOLERATE, V3_1_1, more=2))

    assert made is not None
    assert made.verdict is Verdict.TOLERATED
    last = made.sends[-1]
    assert (last[0], last[1], len(last)) == (0x62, 3, 5)
    assert made.fault == ""
    assert [one.reason for one in faults_of(made.case.flow.steps, V3_1_1)] == [
        one.reason for one in faults_of(found.played.steps if found.played else [], V3_1_1)
    ]


def test_faults_are_known_by_packet_reason_and_field() -> None:
    (extra,) = faults_of([Step(Action.SEND, b"\x70\x03\x00\x02\x7e")], V3_1_1)
    (short,) = faults_of([Step(Action.SEND, b"\x70\x00")], V3_1_1)

    assert extra != short
    assert str(short).startswith("PUBCOMP: ")
    assert not list(faults_of([Step(Action.SEND, b"\x70\x02\x00\x02")], V3_1_1))

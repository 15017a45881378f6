"""Reduced cases: the packet that causes it, and nothing else."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from unittest.mock import patch

import pytest

from mqttscope.broker_test.drivers import minimize
from mqttscope.broker_test.drivers.health import Process
from mqttscope.broker_test.drivers.minimize import Minimized, as_played, faults_of, minimized
from mqttscope.broker_test.drivers.run import BrokerTest, CaseResult
from mqttscope.broker_test.verdict import Verdict
from mqttscope.mqtt import ProtocolVersion
from mqttscope.mutate import Action, Step
from tests.broker_test.broken import Broker, Fault
from tests.broker_test.flows import PATIENCE_S, V3_1_1, V5, begun, make_case, played, ruled, script, trial_of
from tests.proxy.rig import free_port

QOS_3 = "publish:qos-3"


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


@asynccontextmanager
async def trial_inside(fault: Fault, *, patience_s: float = 0.05) -> AsyncIterator[tuple[BrokerTest, Inside]]:
    """A trial that has begun of a broker that it starts inside this process."""
    process = Inside(fault)
    try:
        async with begun(trial_of(process.port, process, patience_s=patience_s)) as test:
            yield test, process
    finally:
        await process.end()


async def reduced(
    name: str, fault: Fault, version: ProtocolVersion, more: int = 10, tries: int = 200, seconds: float = 30.0
) -> tuple[CaseResult, Minimized]:
    """A failing case, and what is left of it."""
    async with trial_inside(fault) as (test, _):
        own = script(version, more=more)
        found = await test.one(own, make_case(name, own))
        with patch.multiple(minimize, MAX_TRIES=tries, MAX_S=seconds):
            made = await minimized(test, own, found)
    assert made is not None
    return found, made


async def test_a_planted_crash_is_reduced_to_the_packet_that_causes_it() -> None:
    found, made = await reduced(QOS_3, Fault.CRASH, V5)

    assert made.verdict is Verdict.CRASHED
    assert made.packets_before > 10
    assert [data[0] & 0xF6 for data in made.sends] == [0x36]
    assert len(made.sends[0]) <= 3
    assert made.result is not None
    assert ruled(made.result).verdict is Verdict.CRASHED
    assert made.case.mutation is found.case.mutation


@pytest.mark.long
async def test_what_is_tolerated_still_breaks_the_same_statement() -> None:
    _, made = await reduced(QOS_3, Fault.TOLERATE, V3_1_1, more=0, tries=50)

    # Without CONNECT there would be no answer to PINGREQ, which shows that the connection continues.
    assert [data[0] & 0xF6 for data in made.sends] == [0x10, 0x36]
    assert made.tries <= 50
    assert "5.0 MQTT-3.3.1-4" not in made.breaks
    assert "3.1.1 MQTT-3.3.1-4" in made.breaks


async def test_what_is_legal_stays_legal() -> None:
    """A broker that closes at the first packet that is no CONNECT would refuse nearly any bytes as well."""
    _, made = await reduced("publish.topic_name:spaces", Fault.REFUSE, V3_1_1, more=0, tries=60)

    assert [data[0] & 0xF0 for data in made.sends] == [0x10, 0x30]
    assert b" " in made.sends[-1]


async def test_it_ends_in_time_and_says_so() -> None:
    _, made = await reduced(QOS_3, Fault.TOLERATE, V3_1_1, more=0, seconds=0.01)

    assert (made.tries, made.unfinished) == (1, "0.01 s used up")


async def test_a_stopped_trial_reduces_no_further() -> None:
    told: list[int] = []
    own = script(V3_1_1)
    async with trial_inside(Fault.TOLERATE) as (test, _):

        def progress(tries: int) -> None:
            told.append(tries)
            test.stopped = tries == 2

        made = await minimized(test, own, await test.one(own, make_case(QOS_3, own)), progress=progress)

    assert (told, made) == ([1, 2], None)


async def test_a_case_that_does_not_fail_again_is_not_reduced() -> None:
    own = script()
    async with trial_inside(Fault.CRASH, patience_s=PATIENCE_S) as (test, process):
        found = await test.one(own, make_case(QOS_3, own))
        process.fault = Fault.NONE
        assert await minimized(test, own, found) is None


async def test_what_is_worse_than_the_case_ends_its_reduction_and_is_kept() -> None:
    """A broker that tolerates the case crashes when CONNECT is left out."""
    own = script()
    found: list[CaseResult] = []
    async with trial_inside(Fault.FRAGILE) as (test, _):
        first = replace(await test.one(own, make_case(QOS_3, own)), number=7)
        made = await minimized(test, own, first, worse=found)
        (worse,) = found
        assert worse.script is not None
        again = await minimized(test, worse.script, worse, raw=True)

    assert made is not None
    assert (made.verdict, made.unfinished) == (Verdict.TOLERATED, "a smaller case did worse")
    assert (ruled(worse).verdict, worse.number) == (Verdict.CRASHED, 7)
    assert again is not None
    assert (again.verdict, again.unfinished, len(again.sends)) == (Verdict.CRASHED, "", 1)


async def test_what_was_played_is_what_was_sent() -> None:
    found, _ = await reduced(QOS_3, Fault.CRASH, V3_1_1)
    again = as_played(found)

    assert again.flow.sent == played(found).sent()
    assert any(step.mutated for step in again.flow.steps)


async def test_how_a_connection_ends_is_never_left_out() -> None:
    own = script()
    case = make_case(QOS_3, own)
    steps = [Step(Action.SEND, b"\xf7\x00"), Step(Action.PAUSE), Step(Action.RESET)]
    async with trial_inside(Fault.CRASH, patience_s=PATIENCE_S) as (test, _):
        found = await test.one(own, case)
        ending = replace(found, case=replace(case, flow=replace(case.flow, steps=steps)))
        made = await minimized(test, own, ending, raw=True)

    assert made is not None
    assert [one.action for one in made.case.flow.steps] == [Action.SEND, Action.RESET]


@pytest.mark.long
async def test_the_fault_that_the_description_tells_of_is_kept() -> None:
    """A byte after the last field: a PUBREL without any field would be tolerated as well, and is another fault."""
    found, made = await reduced("pubrel:extra-byte", Fault.TOLERATE, V3_1_1, more=2)

    assert made.verdict is Verdict.TOLERATED
    last = made.sends[-1]
    assert (last[0], last[1], len(last)) == (0x62, 3, 5)
    assert made.fault == ""
    assert found.played is not None
    reasons = [[one.reason for one in faults_of(steps, V3_1_1)] for steps in (made.case.flow.steps, found.played.steps)]
    assert reasons[0] == reasons[1]


def test_faults_are_known_by_packet_reason_and_field() -> None:
    (extra,) = faults_of([Step(Action.SEND, b"\x70\x03\x00\x02\x7e")], V3_1_1)
    (short,) = faults_of([Step(Action.SEND, b"\x70\x00")], V3_1_1)

    assert extra != short
    assert str(short).startswith("PUBCOMP: ")
    assert not list(faults_of([Step(Action.SEND, b"\x70\x02\x00\x02")], V3_1_1))

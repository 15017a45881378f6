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
from mqttscope.broker_test.drivers.minimize import MinimizedCase, faults_of, minimize_case, played_case
from mqttscope.broker_test.drivers.run import BrokerTest, CaseResult
from mqttscope.broker_test.verdict import BrokerVerdict
from mqttscope.mqtt import ProtocolVersion
from mqttscope.mutate import Action, FlowStep
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
) -> tuple[CaseResult, MinimizedCase]:
    """A failing case, and what is left of it."""
    async with trial_inside(fault) as (test, _):
        own = script(version, more=more)
        result = await test.play_case(own, make_case(name, own))
        with patch.multiple(minimize, MAX_TRIES=tries, MAX_S=seconds):
            case = await minimize_case(test, own, result)
    assert case is not None
    return result, case


async def test_a_planted_crash_is_reduced_to_the_packet_that_causes_it() -> None:
    case_result, minimized_case = await reduced(QOS_3, Fault.CRASH, V5)

    assert minimized_case.verdict is BrokerVerdict.CRASHED
    assert minimized_case.packets_before > 10
    assert [data[0] & 0xF6 for data in minimized_case.sends] == [0x36]
    assert len(minimized_case.sends[0]) <= 3
    assert minimized_case.result is not None
    assert ruled(minimized_case.result).verdict is BrokerVerdict.CRASHED
    assert minimized_case.case.mutation is case_result.case.mutation


@pytest.mark.long
async def test_what_is_tolerated_still_breaks_the_same_statement() -> None:
    _, case = await reduced(QOS_3, Fault.TOLERATE, V3_1_1, more=0, tries=50)

    # Without CONNECT there would be no answer to PINGREQ, which shows that the connection continues.
    assert [data[0] & 0xF6 for data in case.sends] == [0x10, 0x36]
    assert case.tries <= 50
    assert "5.0 MQTT-3.3.1-4" not in case.breaks
    assert "3.1.1 MQTT-3.3.1-4" in case.breaks


async def test_what_is_legal_stays_legal() -> None:
    """A broker that closes at the first packet that is no CONNECT would refuse nearly any bytes as well."""
    _, case = await reduced("publish.topic_name:spaces", Fault.REFUSE, V3_1_1, more=0, tries=60)

    assert [data[0] & 0xF0 for data in case.sends] == [0x10, 0x30]
    assert b" " in case.sends[-1]


async def test_it_ends_in_time_and_says_so() -> None:
    _, case = await reduced(QOS_3, Fault.TOLERATE, V3_1_1, more=0, seconds=0.01)

    assert (case.tries, case.unfinished) == (1, "limit of 0.01 s reached")


async def test_a_stopped_trial_reduces_no_further() -> None:
    numbers: list[int] = []
    own = script(V3_1_1)
    async with trial_inside(Fault.TOLERATE) as (test, _):

        def progress(tries: int) -> None:
            numbers.append(tries)
            test.stopped = tries == 2

        case = await minimize_case(test, own, await test.play_case(own, make_case(QOS_3, own)), progress=progress)

    assert (numbers, case) == ([1, 2], None)


async def test_a_case_that_does_not_fail_again_is_not_reduced() -> None:
    own = script()
    async with trial_inside(Fault.CRASH, patience_s=PATIENCE_S) as (test, process):
        result = await test.play_case(own, make_case(QOS_3, own))
        process.fault = Fault.NONE
        assert await minimize_case(test, own, result) is None


async def test_what_is_worse_than_the_case_ends_its_reduction_and_is_kept() -> None:
    """A broker that tolerates the case crashes when CONNECT is left out."""
    own = script()
    results: list[CaseResult] = []
    async with trial_inside(Fault.FRAGILE) as (test, _):
        first = replace(await test.play_case(own, make_case(QOS_3, own)), number=7)
        case = await minimize_case(test, own, first, worse=results)
        (worse,) = results
        assert worse.script is not None
        again = await minimize_case(test, worse.script, worse, raw=True)

    assert case is not None
    assert (case.verdict, case.unfinished) == (BrokerVerdict.TOLERATED, "a smaller case did more harm")
    assert (ruled(worse).verdict, worse.number) == (BrokerVerdict.CRASHED, 7)
    assert again is not None
    assert (again.verdict, again.unfinished, len(again.sends)) == (BrokerVerdict.CRASHED, "", 1)


async def test_what_was_played_is_what_was_sent() -> None:
    result, _ = await reduced(QOS_3, Fault.CRASH, V3_1_1)
    again = played_case(result)

    assert again.flow.sent == played(result).sent()
    assert any(step.mutated for step in again.flow.steps)


async def test_how_a_connection_ends_is_never_left_out() -> None:
    own = script()
    case = make_case(QOS_3, own)
    steps = [FlowStep(Action.SEND, b"\xf7\x00"), FlowStep(Action.PAUSE), FlowStep(Action.RESET)]
    async with trial_inside(Fault.CRASH, patience_s=PATIENCE_S) as (test, _):
        result = await test.play_case(own, case)
        ending = replace(result, case=replace(case, flow=replace(case.flow, steps=steps)))
        minimized_case = await minimize_case(test, own, ending, raw=True)

    assert minimized_case is not None
    assert [step.action for step in minimized_case.case.flow.steps] == [Action.SEND, Action.RESET]


@pytest.mark.long
async def test_the_fault_that_the_description_tells_of_is_kept() -> None:
    """A byte after the last field: a PUBREL without any field would be tolerated as well, and is another fault."""
    result, minimized_case = await reduced("pubrel:extra-byte", Fault.TOLERATE, V3_1_1, more=2)

    assert minimized_case.verdict is BrokerVerdict.TOLERATED
    last = minimized_case.sends[-1]
    assert (last[0], last[1], len(last)) == (0x62, 3, 5)
    assert minimized_case.fault == ""
    assert result.played is not None
    reasons = [
        [packet_fault.reason for packet_fault in faults_of(steps, V3_1_1)]
        for steps in (minimized_case.case.flow.steps, result.played.steps)
    ]
    assert reasons[0] == reasons[1]


def test_faults_are_known_by_packet_reason_and_field() -> None:
    (extra,) = faults_of([FlowStep(Action.SEND, b"\x70\x03\x00\x02\x7e")], V3_1_1)
    (short,) = faults_of([FlowStep(Action.SEND, b"\x70\x00")], V3_1_1)

    assert extra != short
    assert str(short).startswith("PUBCOMP: ")
    assert not list(faults_of([FlowStep(Action.SEND, b"\x70\x02\x00\x02")], V3_1_1))

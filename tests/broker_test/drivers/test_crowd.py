"""Cases at the same time come to what they come to one after the other, and the load accuses nobody."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import aclosing

import pytest

from mqttscope.broker_test.drivers.crowd import FEW, Crowd
from mqttscope.broker_test.drivers.health import NoBrokerError, Process
from mqttscope.broker_test.drivers.run import BrokerTest, CaseResult
from mqttscope.broker_test.fit import Numbered, fitted
from mqttscope.broker_test.verdict import Verdict
from mqttscope.mqtt import Connect, Properties, Subscribe, Subscription, encode
from mqttscope.replay.script import Script
from tests.broker_test.broken import Fault, broken, broken_command
from tests.broker_test.flows import V3_1_1, V5, catalogued, script, trial_of
from tests.proxy.rig import free_port

QOS_3 = "publish:qos-3"
PLAIN = "connect.keep_alive,subscribe.packet_identifier"
"""Cases of which a broker has to accept some."""
ZERO = "subscribe.packet_identifier:zero"
"""What the broker without a fault does not look at."""
LEGAL = (
    "publish.payload,connect.keep_alive:maximum,connect.keep_alive:sign-bit,connect.keep_alive:zero,"
    "unsubscribe.topic_filters:dollar,unsubscribe.topic_filters:everything,subscribe.packet_identifier:maximum"
)
Row = tuple[int, str, Verdict | None, tuple[str, ...], str]


def row(found: CaseResult) -> Row:
    """What a report says of a case, but for times and how a connection was closed."""
    ruling = found.ruling
    assert found.unclean == ()
    return (
        found.number,
        found.case.mutation.name,
        ruling.verdict if ruling else None,
        ruling.statements if ruling else (),
        found.not_played,
    )


async def play(
    test: BrokerTest, own: Script, cases: Sequence[Numbered], jobs: int, seconds: float | None = None
) -> list[CaseResult]:
    """Play cases as the command does: the connection first, then its cases."""
    await test.begin()
    try:
        made = fitted(own, await test.connack(own))
        await test.run_baseline(made)
        source = ((made, one) for one in cases)
        run = (Crowd(test, jobs) if jobs > 1 else test).run(source, seconds)
        async with aclosing(run) as results:
            return [one async for one in results]
    finally:
        await test.end()


def both(fault: Fault, pattern: str, *, spawned: bool = False, patience_s: float = 0.15) -> list[list[Row]]:
    """What the cases of a pattern come to one after the other, and eight at once."""

    async def run(jobs: int) -> list[Row]:
        own = script()
        cases = catalogued(pattern, own)
        if spawned:
            port = free_port()
            process = Process(command=broken_command(port, fault))
            return [row(one) for one in await play(trial_of(port, process, patience_s=patience_s), own, cases, jobs)]
        async with broken(fault) as broker:
            return [row(one) for one in await play(trial_of(broker.port, patience_s=patience_s), own, cases, jobs)]

    return [asyncio.run(run(jobs)) for jobs in (1, 8)]


@pytest.mark.parametrize(
    "fault",
    [
        Fault.TOLERATE, Fault.WRONG_REASON, pytest.param(Fault.NO_ANSWER, marks=pytest.mark.long),
        pytest.param(Fault.LATE, marks=pytest.mark.long),
    ],
)  # fmt: skip
def test_the_same_verdicts_as_one_after_the_other(fault: Fault) -> None:
    alone, at_once = both(fault, "connect.keep_alive:cut-*,connect.keep_alive:zero,publish:qos-3,pingreq:all-ones")

    assert at_once == alone
    assert len(alone) == 6
    assert bool({one[2] for one in alone} - {Verdict.CONFORMING}) is (fault is not Fault.LATE)


def test_refusals_are_found() -> None:
    alone, at_once = both(Fault.REFUSE, "publish.topic_name:s*,publish.payload")

    assert at_once == alone
    assert Verdict.REFUSED_LEGAL in {one[2] for one in alone}


@pytest.mark.parametrize(
    ("fault", "verdict", "spawned"),
    [
        (Fault.CRASH, Verdict.CRASHED, True),
        pytest.param(Fault.LATE_HANG, Verdict.HUNG, True, marks=pytest.mark.long),
        pytest.param(Fault.HANG, Verdict.HUNG, True, marks=pytest.mark.long),
        pytest.param(Fault.DEAF, Verdict.COLLATERAL, True, marks=pytest.mark.long),
        (Fault.COLLATERAL, Verdict.COLLATERAL, False),
    ],
)
def test_whoever_harms_the_broker_is_found_among_those_under_way(fault: Fault, verdict: Verdict, spawned: bool) -> None:
    alone, at_once = both(fault, "publish.payload,publish:qos-3,connect.keep_alive:zero", spawned=spawned)

    assert at_once == alone
    assert [one[1] for one in alone if one[2] is not Verdict.CONFORMING] == [QOS_3]
    assert verdict in {one[2] for one in alone}


@pytest.mark.long
def test_a_leak_is_the_doing_of_one_case() -> None:
    async def run() -> list[CaseResult]:
        own, port = script(), free_port()
        process = Process(command=broken_command(port, "leak"))
        cases = catalogued(f"{LEGAL},{QOS_3}", own)
        assert len(cases) > FEW
        return await play(trial_of(port, process, patience_s=0.3), own, cases, 8)

    found = asyncio.run(run())
    assert {one.case.mutation.name: one.ruling and one.ruling.verdict for one in found if one.deviates} == {
        QOS_3: Verdict.LEAKED
    }
    assert [one.not_played for one in found if one.ruling is None] == []


@pytest.mark.parametrize(
    ("fault", "told", "spawned"),
    [
        (Fault.FRAIL, r"crashed while cases were played at once \(.*from then on at most 6 at once", True),
        (Fault.FULL, "from then on at most 6 at once|device1 fares otherwise", False),
        (Fault.CHOOSY, "device1 fares otherwise under other names: its cases are played one after the other", False),
    ],
)
def test_a_broker_that_does_not_stand_many_is_not_accused(fault: Fault, told: str, spawned: bool) -> None:
    async def run() -> tuple[list[CaseResult], list[str]]:
        own = script()
        cases = catalogued(PLAIN, own)
        async with broken(fault) as broker:
            port = free_port() if spawned else broker.port
            process = Process(command=broken_command(port, fault)) if spawned else None
            test = trial_of(port, process, patience_s=0.3)
            found = await play(test, own, cases, 12)
            assert [one.number for one in found] == [one.number for one in cases]
            return found, test.told

    found, said = asyncio.run(run())
    assert {one.case.mutation.name for one in found if one.deviates} <= {ZERO, "connect.keep_alive:one"}
    assert [one.not_played for one in found if one.ruling is None] == []
    assert [one for one in said if re.search(told, one)], said


def test_who_subscribes_to_everything_hears_nobody_else() -> None:
    block = Properties()
    own = script()
    own.entries[2].packet = packet = Subscribe(
        packet_identifier=1, properties=block, subscriptions=[Subscription("#", 0)]
    )
    packet.raw = own.entries[2].raw = encode(packet, V5)

    async def run() -> tuple[list[CaseResult], list[str]]:
        async with broken(Fault.NONE) as broker:
            test = trial_of(broker.port)
            return await play(test, own, catalogued("publish.payload", own), 8), test.told

    found, said = asyncio.run(run())
    assert [one.ruling and one.ruling.verdict for one in found] == [Verdict.CONFORMING] * len(found)
    for one in found:
        assert one.played is not None
        names = {packet.client_identifier for packet in one.played.conversation.packets(from_client=True)
                 if isinstance(packet, Connect)}  # fmt: skip
        assert len(names) == 1
    assert said == ["device1 subscribes to all topics: its cases are played one after the other"]


async def begun(crowd: Crowd, count: int) -> None:
    """Wait until so many cases have begun."""
    while len(list(crowd.interrupted())) < count:
        await asyncio.sleep(0.005)


def test_a_crowd_that_is_stopped_hands_out_what_it_knows() -> None:
    async def run() -> list[CaseResult]:
        own = script()
        async with broken(Fault.TOLERATE) as broker:
            test = trial_of(broker.port, patience_s=0.3)
            await test.begin()
            crowd = Crowd(test, 8)

            async def stop() -> None:
                await begun(crowd, 20)
                test.stopped = True

            stopping = asyncio.create_task(stop())
            async with aclosing(crowd.run((own, one) for one in catalogued("connect.*", own))) as results:
                found = [one async for one in results]
            await stopping
            await test.end()
            return found

    found = asyncio.run(run())
    numbers = [one.number for one in found]
    assert numbers == sorted(numbers)
    assert 20 <= len(found) < 100
    assert {one.not_played for one in found if one.ruling is None} == {"interrupted"}
    assert [one for one in found if one.ruling is not None]
    assert [one for one in found if one.deviates] == []


def test_a_crowd_that_is_broken_off_still_knows_what_it_did() -> None:
    async def run() -> tuple[list[CaseResult], int]:
        own = script()
        async with broken(Fault.NONE) as broker:
            test = trial_of(broker.port, patience_s=0.3)
            await test.begin()
            crowd = Crowd(test, 8)

            async def whole() -> None:
                async with aclosing(crowd.run((own, one) for one in catalogued("connect.*", own))) as results:
                    async for _ in results:
                        pytest.fail("the window has not come to its end")

            task = asyncio.create_task(whole())
            await begun(crowd, 20)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            left = len(asyncio.all_tasks())
            known = list(crowd.interrupted())
            await test.end()
            return known, left

    known, left = asyncio.run(run())
    assert left == 1
    assert [one for one in known if one.ruling is not None]
    assert {one.not_played for one in known if one.ruling is None} == {"interrupted"}


def test_a_broker_that_ends_takes_no_result_with_it() -> None:
    async def run() -> list[CaseResult]:
        own = script(V3_1_1)
        found: list[CaseResult] = []
        async with broken(Fault.NONE) as broker:
            test = trial_of(broker.port)
            await test.begin()
            crowd = Crowd(test, 4)

            async def end() -> None:
                await begun(crowd, 20)
                broker.stop()

            async def whole() -> None:
                async with aclosing(crowd.run((own, one) for one in catalogued("connect.*", own))) as results:
                    async for one in results:
                        found.append(one)  # noqa: PERF401 - what came before the error counts

            ending = asyncio.create_task(end())
            with pytest.raises(NoBrokerError, match=r"nothing listens|serves no more"):
                await whole()
            await ending
            await test.end()
        return found

    found = asyncio.run(run())
    assert found
    assert {one.ruling and one.ruling.verdict for one in found} <= {Verdict.CONFORMING, Verdict.CRASHED}


def test_no_case_begins_when_the_time_is_over() -> None:
    async def run() -> list[CaseResult]:
        own = script()
        async with broken(Fault.NONE) as broker:
            test = trial_of(broker.port)
            test.rate = 50
            return await play(test, own, catalogued("publish.topic_name", own), 8, seconds=0.5)

    found = asyncio.run(run())
    assert 1 <= len(found) <= 26
    assert [one.not_played for one in found if one.ruling is None] == []

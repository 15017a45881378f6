"""Cases at the same time come to what they come to one after the other, and the load accuses nobody."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import aclosing

import pytest

from mqttscope.broker_test.drivers.crowd import FEW, Crowd
from mqttscope.broker_test.drivers.health import NoBrokerError
from mqttscope.broker_test.drivers.run import BrokerTest, CaseResult
from mqttscope.broker_test.fit import NumberedCase
from mqttscope.broker_test.verdict import BrokerVerdict
from mqttscope.mqtt import Connect, Properties, Subscribe, Subscription, encode
from mqttscope.replay.script import Script
from tests.broker_test.broken import Fault, broken
from tests.broker_test.flows import (
    V3_1_1,
    V5,
    begun,
    catalogued,
    fit,
    played,
    ruled,
    script,
    spawned,
    trial,
    trial_of,
)

QOS_3 = "publish:qos-3"
PLAIN = "connect.keep_alive,subscribe.packet_identifier"
"""Cases of which a broker has to accept some."""
ZERO = "subscribe.packet_identifier:zero"
"""What the broker without a fault does not look at."""
LEGAL = (
    "publish.payload,connect.keep_alive:maximum,connect.keep_alive:sign-bit,connect.keep_alive:zero,"
    "unsubscribe.topic_filters:dollar,unsubscribe.topic_filters:everything,subscribe.packet_identifier:maximum"
)
Row = tuple[int, str, BrokerVerdict | None, tuple[str, ...], str]


def row(result: CaseResult) -> Row:
    """What a report says of a case, but for times and how a connection was closed."""
    ruling = result.ruling
    assert result.unclean == ()
    return (
        result.number,
        result.case.mutation.name,
        ruling.verdict if ruling else None,
        ruling.statements if ruling else (),
        result.not_played,
    )


async def play(
    test: BrokerTest, own: Script, cases: Sequence[NumberedCase], jobs: int = 8, seconds: float | None = None
) -> list[CaseResult]:
    """Play cases as the command does: the connection first, then its cases."""
    async with begun(test):
        new_script = await fit(test, own)
        await test.run_baseline(new_script)
        source = ((new_script, case) for case in cases)
        run = (Crowd(test, jobs) if jobs > 1 else test).run(source, seconds)
        async with aclosing(run) as results:
            return [result async for result in results]


async def both(fault: Fault, pattern: str, *, is_spawned: bool = False) -> list[list[Row]]:
    """What the cases of a pattern come to one after the other, and eight at once."""
    rows = []
    for jobs in (1, 8):
        own = script()
        async with broken(fault) as broker:
            test = spawned(fault) if is_spawned else trial_of(broker.port)
            rows.append([row(result) for result in await play(test, own, catalogued(pattern, own), jobs)])
    return rows


@pytest.mark.parametrize(
    "fault",
    [
        Fault.TOLERATE, Fault.WRONG_REASON, pytest.param(Fault.NO_ANSWER, marks=pytest.mark.long),
        pytest.param(Fault.LATE, marks=pytest.mark.long),
    ],
)  # fmt: skip
async def test_the_same_verdicts_as_one_after_the_other(fault: Fault) -> None:
    alone, at_once = await both(
        fault, "connect.keep_alive:cut-*,connect.keep_alive:zero,publish:qos-3,pingreq:all-ones"
    )

    assert at_once == alone
    assert len(alone) == 6
    assert bool({row[2] for row in alone} - {BrokerVerdict.CONFORMING}) is (fault is not Fault.LATE)


async def test_refusals_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """In windows of eight cases."""
    monkeypatch.setattr("mqttscope.broker_test.drivers.crowd.WINDOW", 1)
    pattern = "publish.topic_name:s*,publish.payload,connect.keep_alive:zero,connect.keep_alive:maximum"
    alone, at_once = await both(Fault.REFUSE, pattern)

    assert at_once == alone
    assert BrokerVerdict.REFUSED_LEGAL in {row[2] for row in alone}
    assert len(alone) > 8


@pytest.mark.parametrize(
    ("fault", "verdict", "is_spawned"),
    [
        (Fault.CRASH, BrokerVerdict.CRASHED, True),
        pytest.param(Fault.LATE_HANG, BrokerVerdict.HUNG, True, marks=pytest.mark.long),
        pytest.param(Fault.HANG, BrokerVerdict.HUNG, True, marks=pytest.mark.long),
        pytest.param(Fault.DEAF, BrokerVerdict.COLLATERAL, True, marks=pytest.mark.long),
        (Fault.COLLATERAL, BrokerVerdict.COLLATERAL, False),
    ],
)
async def test_whoever_harms_the_broker_is_found_among_those_under_way(
    fault: Fault, verdict: BrokerVerdict, is_spawned: bool
) -> None:
    alone, at_once = await both(fault, "publish.payload,publish:qos-3,connect.keep_alive:zero", is_spawned=is_spawned)

    assert at_once == alone
    assert [row[1] for row in alone if row[2] is not BrokerVerdict.CONFORMING] == [QOS_3]
    assert verdict in {row[2] for row in alone}


@pytest.mark.long
async def test_a_leak_is_the_doing_of_one_case() -> None:
    own = script()
    cases = catalogued(f"{LEGAL},{QOS_3}", own)
    assert len(cases) > FEW
    results = await play(spawned("leak", patience_s=0.3), own, cases)

    assert {result.case.mutation.name: ruled(result).verdict for result in results if result.deviates} == {
        QOS_3: BrokerVerdict.LEAKED
    }
    assert [result.not_played for result in results if result.ruling is None] == []


@pytest.mark.parametrize(
    ("fault", "expected", "is_spawned"),
    [
        (Fault.FRAIL, r"crashed while cases were played in parallel \(.*from then on at most 6 in parallel", True),
        (Fault.FULL, "from then on at most 6 in parallel|device1 gets another reaction", False),
        (Fault.CHOOSY, "device1 gets another reaction under other names: its cases are played one by one", False),
    ],
)
async def test_a_broker_that_does_not_stand_many_is_not_accused(fault: Fault, expected: str, is_spawned: bool) -> None:
    """On a busy machine too few cases may run at the same time to meet the limit, so there are several attempts."""
    own = script()
    cases = catalogued(PLAIN, own)
    notices: list[str] = []
    for _ in range(4):
        async with broken(fault) as broker:
            test = spawned(fault, patience_s=0.3) if is_spawned else trial_of(broker.port, patience_s=0.3)
            results = await play(test, own, cases, 12)

        assert [result.number for result in results] == [numbered_case.number for numbered_case in cases]
        assert {result.case.mutation.name for result in results if result.deviates} <= {ZERO, "connect.keep_alive:one"}
        assert [result.not_played for result in results if result.ruling is None] == []
        notices += test.notices
        if any(re.search(expected, notice) for notice in notices):
            return
    pytest.fail(f"no notice of the limit: {notices}")


async def test_who_subscribes_to_everything_hears_nobody_else() -> None:
    own = script()
    everything = [Subscription("#", 0)]
    own.entries[2].packet = packet = Subscribe(1, Properties(), everything)
    packet.raw = own.entries[2].raw = encode(packet, V5)
    async with broken(Fault.NONE) as broker:
        test = trial_of(broker.port)
        results = await play(test, own, catalogued("publish.payload", own))

    assert [ruled(case_result).verdict for case_result in results] == [BrokerVerdict.CONFORMING] * len(results)
    for result in results:
        packets = played(result).packets(from_client=True)
        assert len({packet.client_identifier for packet in packets if isinstance(packet, Connect)}) == 1
    assert test.notices == ["device1 subscribes to all topics: its cases are played one by one"]


async def under_way(crowd: Crowd, count: int) -> None:
    """Wait until so many cases have begun."""
    while len(list(crowd.interrupted())) < count:
        await asyncio.sleep(0.005)


async def watched(crowd: Crowd, own: Script, case_results: list[CaseResult]) -> None:
    """Play many cases, and note each result when it comes."""
    async with aclosing(crowd.run((own, case) for case in catalogued("connect.*", own))) as results:
        async for result in results:
            case_results.append(result)  # noqa: PERF401 - what came before an error counts


async def test_a_crowd_that_is_stopped_hands_out_what_it_knows() -> None:
    results: list[CaseResult] = []
    async with trial(Fault.TOLERATE, patience_s=0.3) as test:
        crowd = Crowd(test, 8)
        playing = asyncio.create_task(watched(crowd, script(), results))
        await under_way(crowd, 20)
        test.stopped = True
        await playing

    numbers = [result.number for result in results]
    assert numbers == sorted(numbers)
    assert 20 <= len(results) < 100
    assert {result.not_played for result in results if result.ruling is None} == {"interrupted"}
    assert [result for result in results if result.ruling is not None]
    assert [result for result in results if result.deviates] == []


async def test_a_crowd_that_is_broken_off_still_knows_what_it_did() -> None:
    results: list[CaseResult] = []
    async with trial(Fault.NONE, patience_s=0.3) as test:
        others = len(asyncio.all_tasks())
        crowd = Crowd(test, 8)
        playing = asyncio.create_task(watched(crowd, script(), results))
        await under_way(crowd, 20)
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        assert len(asyncio.all_tasks()) == others
        known = list(crowd.interrupted())

    assert results == [], "the window has not come to its end"
    assert [result for result in known if result.ruling is not None]
    assert {result.not_played for result in known if result.ruling is None} == {"interrupted"}


async def test_a_broker_that_ends_takes_no_result_with_it() -> None:
    results: list[CaseResult] = []
    async with broken(Fault.NONE) as broker, begun(trial_of(broker.port)) as test:
        crowd = Crowd(test, 4)
        playing = asyncio.create_task(watched(crowd, script(V3_1_1), results))
        await under_way(crowd, 20)
        broker.stop()
        with pytest.raises(NoBrokerError, match=r"nothing listens|serves no more"):
            await playing

    assert results
    assert {ruled(result).verdict for result in results} <= {BrokerVerdict.CONFORMING, BrokerVerdict.CRASHED}


async def test_no_case_begins_when_the_time_is_over() -> None:
    own = script()
    async with broken(Fault.NONE) as broker:
        test = trial_of(broker.port)
        test.rate = 50
        results = await play(test, own, catalogued("publish.topic_name", own), seconds=0.5)

    assert 1 <= len(results) <= 26
    assert [result.not_played for result in results if result.ruling is None] == []

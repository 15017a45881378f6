"""Each fault of a broker gets its verdict, a good broker gets none, and nothing is left behind."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest

from mqttscope.mqtt import ProtocolVersion
from mqttscope.trial.numbering import Numbered
from mqttscope.trial.process import Process
from mqttscope.trial.run import NoBrokerError, Result, longest_s
from mqttscope.trial.verdict import Verdict
from tests.proxy.rig import free_port
from tests.trial.broken import Fault, broken
from tests.trial.flows import V3_1_1, V5, make_case, script, trial_of, tried

BROKEN = Path(__file__).with_name("broken.py")
QOS_3 = "publish:qos-3"
SPACES = "publish.topic_name:spaces"

VERDICTS = (
    (Fault.NONE, QOS_3, Verdict.CONFORMING),
    (Fault.NONE, SPACES, Verdict.CONFORMING),
    (Fault.TOLERATE, QOS_3, Verdict.TOLERATED),
    (Fault.NO_ANSWER, QOS_3, Verdict.NO_ANSWER),
    (Fault.REFUSE, SPACES, Verdict.REFUSED_LEGAL),
    (Fault.CRASH, QOS_3, Verdict.CRASHED),
    (Fault.HANG, QOS_3, Verdict.HUNG),
    (Fault.COLLATERAL, QOS_3, Verdict.COLLATERAL),
)


@pytest.mark.parametrize("version", [V3_1_1, V5], ids=lambda one: str(one.text))
@pytest.mark.parametrize(("fault", "name", "verdict"), VERDICTS, ids=[f"{row[0]}-{row[1]}" for row in VERDICTS])
def test_each_fault_has_its_verdict(fault: Fault, name: str, verdict: Verdict, version: ProtocolVersion) -> None:
    found = asyncio.run(tried(name, fault, version))

    assert found.ruling is not None
    assert (found.ruling.verdict, found.not_played, found.unclean) == (verdict, "", ())
    if verdict is Verdict.TOLERATED:
        assert found.ruling.statements == (f"{version.text} MQTT-4.{'8.0-1' if version == V3_1_1 else '13.1-1'}",)


def test_a_wrong_reason_exists_in_5_0_alone() -> None:
    found = asyncio.run(tried(QOS_3, Fault.WRONG_REASON))
    before = asyncio.run(tried(QOS_3, Fault.WRONG_REASON, V3_1_1))

    assert found.ruling is not None
    assert found.ruling.verdict is Verdict.WRONG_REASON
    assert "0x9b" in found.ruling.why
    assert before.ruling is not None
    assert not before.ruling.deviates


def test_memory_that_grows_each_time_has_leaked() -> None:
    async def run(fault: Fault) -> Result:
        port = free_port()
        trial = trial_of(port, Process(command=f"{sys.executable} {BROKEN} {port} {fault}"), patience_s=0.4)
        await trial.begin()
        own = script()
        try:
            return await trial.one(own, make_case(QOS_3, own))
        finally:
            await trial.end()

    leaking, sound = asyncio.run(run(Fault.LEAK)), asyncio.run(run(Fault.NONE))
    assert leaking.ruling is not None
    assert leaking.ruling.verdict is Verdict.LEAKED
    assert sound.ruling is not None
    assert not sound.ruling.deviates


def test_a_broker_of_ours_is_started_again_when_it_has_crashed() -> None:
    port = free_port()
    process = Process(command=f"{sys.executable} {BROKEN} {port} crash")

    async def run() -> list[Result]:
        trial = trial_of(port, process, patience_s=0.4)
        await trial.begin()
        own = script()
        cases = [(own, Numbered(number, 0, make_case(QOS_3, own))) for number in (7, 8)]
        try:
            return [result async for result in trial.run(cases)]
        finally:
            await trial.end()

    found = asyncio.run(run())
    assert [(one.number, one.ruling and one.ruling.verdict) for one in found] == [
        (7, Verdict.CRASHED),
        (8, Verdict.CRASHED),
    ]
    assert found[0].ruling is not None
    assert "its process is gone (exit code 11)" in found[0].ruling.why
    assert process.starts == 2
    assert not process.alive()


def test_a_broker_that_is_gone_for_good_ends_the_run() -> None:
    async def run() -> None:
        async with broken(Fault.CRASH) as broker:
            trial = trial_of(broker.port)
            await trial.begin()
            own = script()
            assert (await trial.one(own, make_case(QOS_3, own))).deviates
            with pytest.raises(NoBrokerError):
                await trial.one(own, make_case(QOS_3, own))
            await trial.end()

    asyncio.run(run())


def test_where_nobody_listens_there_is_no_broker() -> None:
    with pytest.raises(NoBrokerError, match="nothing listens there"):
        asyncio.run(trial_of(free_port()).begin())


def test_the_rate_is_kept() -> None:
    async def run() -> float:
        async with broken(Fault.NONE) as broker:
            trial = trial_of(broker.port)
            trial.rate = 20
            await trial.begin()
            own = script()
            started = time.monotonic()
            cases = [(own, Numbered(number, 0, make_case(SPACES, own))) for number in range(5)]
            assert len([result async for result in trial.run(cases)]) == 5
            await trial.end()
            return time.monotonic() - started

    assert asyncio.run(run()) >= 0.2


def test_pauses_tell_how_long_a_case_takes() -> None:
    assert longest_s(make_case("flow:nothing-sent", script())) == 120
    assert longest_s(make_case(QOS_3, script())) == 0

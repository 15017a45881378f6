"""Reduced cases: the packet that causes it, and nothing else."""

from __future__ import annotations

import asyncio

from mqttscope.mqtt import ProtocolVersion
from mqttscope.trial.run import Result
from mqttscope.trial.smaller import Smaller, as_played, smaller
from mqttscope.trial.verdict import Verdict
from tests.trial.broken import Fault
from tests.trial.flows import V3_1_1, V5, make_case, script, trial_of
from tests.trial.inside import Inside


async def reduced(
    name: str, fault: Fault, version: ProtocolVersion, more: int = 10, tries: int = 200
) -> tuple[Result, Smaller | None]:
    """A failing case, and what is left of it."""
    process = Inside(fault)
    trial = trial_of(process.port, process, patience_s=0.05)
    await trial.begin()
    try:
        own = script(version, more=more)
        found = await trial.one(own, make_case(name, own))
        return found, await smaller(trial, own, found, max_tries=tries)
    finally:
        await trial.end()
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


def test_what_is_tolerated_still_breaks_the_same_statement() -> None:
    _, made = asyncio.run(reduced("publish:qos-3", Fault.TOLERATE, V3_1_1, more=0, tries=50))

    assert made is not None
    # Without CONNECT there would be no answer to PINGREQ, which shows that the connection goes on.
    assert [data[0] & 0xF6 for data in made.sends] == [0x10, 0x36]
    assert made.tries <= 50


def test_a_case_that_does_not_fail_again_is_not_reduced() -> None:
    async def run() -> Smaller | None:
        process = Inside(Fault.CRASH)
        trial = trial_of(process.port, process)
        await trial.begin()
        own = script()
        found = await trial.one(own, make_case("publish:qos-3", own))
        process.fault = Fault.NONE
        made = await smaller(trial, own, found)
        await trial.end()
        await process.end()
        return made

    assert asyncio.run(run()) is None


def test_what_was_played_is_what_was_sent() -> None:
    found, _ = asyncio.run(reduced("publish:qos-3", Fault.CRASH, V3_1_1))
    again = as_played(found)

    assert found.played is not None
    assert again.flow.sent == found.played.conversation.sent()
    assert any(step.mutated for step in again.flow.steps)

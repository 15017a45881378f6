"""Whether the broker serves, and whether it is the one that was started."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from mqttscope.broker_test.health_monitor import HealthMonitor, NoBrokerError
from mqttscope.broker_test.probe_client import BrokerAccess
from mqttscope.broker_test.process import Process
from mqttscope.broker_test.verdict import Verdict
from tests.broker_test.broken import Fault, broken
from tests.broker_test.flows import target
from tests.proxy.rig import free_port, until

BROKEN = Path(__file__).with_name("broken.py")


def watch(port: int, command: str = "") -> HealthMonitor:
    return HealthMonitor(BrokerAccess(target(port)), 0.2, Process(command=command) if command else None)


def test_what_listens_already_is_not_judged_for_what_is_started() -> None:
    async def run() -> None:
        async with broken(Fault.NONE) as broker:
            await watch(broker.port, "sleep 60").begin()

    with pytest.raises(NoBrokerError, match=r"something listens at .* already"):
        asyncio.run(run())


def test_what_ends_before_it_serves_is_told_at_once() -> None:
    with pytest.raises(
        NoBrokerError, match=r"what was started as the broker has ended \(exit code 1\) before it served"
    ):
        asyncio.run(watch(free_port(), "false").begin())


def test_what_goes_into_the_background_is_no_broker_to_look_at() -> None:
    """Its process is gone, and the port serves on: nothing has crashed."""
    port = free_port()

    async def run() -> None:
        one = watch(port, f"{sys.executable} {BROKEN} {port} none")
        await one.begin()
        started = one.process
        assert started is not None
        one.process = Process(command="true")
        one.process.start()
        until(lambda: one.process is not None and not one.process.alive(), "its end")
        try:
            await one.ill(0.2)
        finally:
            assert one.witness is not None
            await one.witness.leave()
            started.stop()

    with pytest.raises(NoBrokerError, match=r"has ended \(exit code 0\), and something else serves at"):
        asyncio.run(run())


def test_a_broker_that_serves_is_well_and_one_that_is_gone_has_crashed() -> None:
    async def run() -> list[Verdict | None]:
        async with broken(Fault.NONE) as broker:
            one = watch(broker.port)
            await one.begin()
            first = await one.ill(0.2)
            broker.stop()
            second = await one.ill(0.2)
            assert not await one.alive()
            await one.end()
            return [None if found is None else found.verdict for found in (first, second)]

    assert asyncio.run(run()) == [None, Verdict.CRASHED]

"""Whether the broker serves, and whether it is the one that was started."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import sys
from pathlib import Path

import pytest

from mqttscope.broker_test.drivers import health
from mqttscope.broker_test.drivers.probe_client import BrokerAccess
from mqttscope.broker_test.verdict import BrokerVerdict
from tests.broker_test.broken import Fault, broken, broken_command
from tests.broker_test.flows import target
from tests.proxy.rig import free_port, need_address, until


def watch(port: int, command: str = "") -> health.HealthMonitor:
    return health.HealthMonitor(BrokerAccess(target(port)), 0.2, health.Process(command=command) if command else None)


async def test_what_listens_already_is_not_judged_for_what_is_started() -> None:
    async with broken(Fault.NONE) as broker:
        with pytest.raises(health.NoBrokerError, match=r"another program already listens at"):
            await watch(broker.port, "sleep 60").begin()


async def test_what_ends_before_it_serves_is_told_at_once() -> None:
    text = r"the process started as the broker has ended \(exit code 1\) before it served"
    with pytest.raises(health.NoBrokerError, match=text):
        await watch(free_port(), "false").begin()


async def test_what_goes_into_the_background_is_no_broker_to_look_at() -> None:
    """Its process is gone, and the port serves on: nothing has crashed."""
    port = free_port()
    monitor = watch(port, broken_command(port, "none"))
    await monitor.begin()
    assert monitor.process is not None
    assert monitor.witness is not None
    started, gone = monitor.process, health.Process(command="true")
    gone.start()
    until(lambda: not gone.alive(), "its end")
    monitor.process = gone
    try:
        with pytest.raises(health.NoBrokerError, match=r"has ended \(exit code 0\), but another broker is at"):
            await monitor.diagnose(0.2)
    finally:
        await monitor.witness.leave()
        started.stop()


async def test_a_broker_that_serves_is_well_and_one_that_is_gone_has_crashed() -> None:
    async with broken(Fault.NONE) as broker:
        monitor = watch(broker.port)
        await monitor.begin()
        assert await monitor.diagnose(0.2) is None
        broker.stop()
        ruling = await monitor.diagnose(0.2)
        assert not await monitor.alive()
        await monitor.end()

    assert ruling is not None
    assert ruling.verdict is BrokerVerdict.CRASHED


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_ports_of_a_process(family: socket.AddressFamily, address: str) -> None:
    need_address(address)
    with (
        socket.create_server((address, 0), family=family) as server,
        socket.create_connection(server.getsockname()[:2]) as client,
    ):
        ports = health.listening_ports(os.getpid())
        assert ports is not None
        assert server.getsockname()[1] in ports
        assert client.getsockname()[1] not in ports


def test_processes_that_listen_nowhere_and_are_not_there() -> None:
    process = health.Process(command="sleep 60")
    process.start()
    assert health.listening_ports(process.pid) == frozenset()
    process.stop()
    assert health.listening_ports(2**22 + 1) is None


MIB = 1 << 20


def told(*sizes: float) -> str:
    trend = health.MemoryTrend(None)
    for size in sizes:
        trend.add(int(size * MIB))
    return trend.notice()


def test_memory_that_grows_all_the_time_is_told_of() -> None:
    assert told(*(50 + place / 5 for place in range(200))).startswith(
        "the broker's memory grew constantly, by 39 MiB while cases were played 200 times (203 KiB per play)"
    )


@pytest.mark.parametrize(
    "sizes",
    [
        [50] * 200,
        [50 + place for place in range(60)],  # too few
        [50 + place / 50 for place in range(200)],  # too little
        [50 + min(place, 40) for place in range(200)],  # a cache that was warmed up
        [50 + place % 50 for place in range(200)],  # a heap that is collected
    ],
)
def test_what_comes_to_an_end_is_no_growth(sizes: list[float]) -> None:
    assert told(*sizes) == ""


def test_a_long_run_is_sampled() -> None:
    trend = health.MemoryTrend(None)
    for place in range(health.MAX_SAMPLES):
        trend.add((50 << 20) + place * 10_000)

    assert f"played {health.MAX_SAMPLES:,} times" in trend.notice()


def test_a_process_is_looked_at() -> None:
    trend = health.MemoryTrend(health.Process(os.getpid()))
    for _ in range(100):
        trend.sample()

    assert trend.notice() == ""
    health.MemoryTrend(None).sample()


def test_a_process_that_runs() -> None:
    process = health.Process(os.getpid())

    assert process.alive()
    assert process.memory() > 1 << 20
    process.stop()
    assert process.alive(), "it is not ours to stop"


def test_a_process_of_ours_is_started_again_when_it_has_ended() -> None:
    process = health.Process(command=shlex.join([sys.executable, "-c", "import sys; sys.exit(3)"]))
    process.start()
    until(lambda: not process.alive(), "its end")

    assert process.ending == "exit code 3"
    process.start()
    assert process.starts == 2
    process.stop()
    assert process.memory() == 0 or not process.alive()


def test_a_process_that_is_stopped() -> None:
    process = health.Process(command="sleep 60")
    process.start()
    process.start()
    assert (process.alive(), process.starts, process.ending) == (True, 1, "")
    # What is typed at the terminal does not reach it.
    assert os.getsid(process.pid) == process.pid != os.getsid(0)
    process.stop()

    assert (process.alive(), process.ending) == (False, "signal 15")


def test_what_cannot_be_started_is_told() -> None:
    with pytest.raises(health.StartError, match="cannot start /nowhere/broker: No such file"):
        health.Process(command="/nowhere/broker -p 1").start()
    assert not health.Process(pid=2**22 + 1).alive()


def test_what_a_shell_has_started_ends_with_it() -> None:
    process = health.Process(command="sh -c 'sleep 60; true'")
    process.start()
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    until(children.read_text, "the start")
    child = health.Process(int(children.read_text().split()[0]))
    process.stop()

    until(lambda: not child.alive(), "its end")


def is_ignoring(process_id: int, number: int) -> bool:
    """Whether a program ignores a signal."""
    lines = Path(f"/proc/{process_id}/status").read_text("utf-8").splitlines()
    ignored = next(line.split()[1] for line in lines if line.startswith("SigIgn:"))
    return bool(int(ignored, 16) >> number - 1 & 1)


def test_a_process_that_does_not_end_is_killed() -> None:
    process = health.Process(command=shlex.join(["sh", "-c", "trap '' TERM; echo; while :; do sleep 0.01; done"]))
    process.start()
    until(lambda: is_ignoring(process.pid, signal.SIGTERM), "the trap")
    process.stop(0.05)

    assert process.ending == "signal 9"


async def test_what_takes_no_connection_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something listens that takes nothing more: what is started gets its chance, and says what is wrong."""
    monkeypatch.setattr(health, "TAKEN_S", 0.05)
    with socket.socket() as full, socket.socket() as waiting:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting.connect(full.getsockname())
        with pytest.raises(health.NoBrokerError, match="the process started as the broker has ended"):
            await watch(full.getsockname()[1], "false").begin()

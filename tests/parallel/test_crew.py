"""Processes at work: what they say, and how they end."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from mqttscope import system
from mqttscope.parallel.crew import BATCH, END, Crew, Outlet, Stop, WorkerLostError, unpickled
from mqttscope.parallel.walk import IndivisibleError, Share


def children() -> set[str]:
    """The processes of this one; others of the tests may be among them."""
    return {pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}


def room(number: int) -> bool:
    return True


def test_messages_come_in_the_order_of_each_process() -> None:
    def work(share: Share, outlet: Outlet) -> int:
        for at in range(50):
            outlet.send(bytes([share.number, at]) * 50_000)
        return share.number + 7

    said: list[list[int]] = [[], []]
    ends = {}
    with Crew(2, work) as crew:
        for number, kind, message in crew.messages(room):
            if kind == END:
                ends[number] = unpickled(message)
                continue
            assert kind == BATCH
            assert (len(message), message[0]) == (100_000, number)
            said[number].append(message[1])
    assert said == [list(range(50))] * 2
    assert ends == {0: 7, 1: 8}


def test_a_process_waits_while_there_is_no_room() -> None:
    def work(share: Share, outlet: Outlet) -> None:
        for _ in range(100):
            outlet.send(bytes(1 << 20))

    read = [0, 0]
    with Crew(2, work) as crew:
        for number, _, message in crew.messages(lambda number: number == 1):
            read[number] += len(message)
            if read[1] >= 99 << 20:
                break
    # The pipe of the first is full, and nothing of it is here.
    assert read[0] == 0


def test_an_exception_is_raised_here_with_its_trace() -> None:
    def work(share: Share, outlet: Outlet) -> None:
        raise KeyError("lost")

    with Crew(2, work) as crew, pytest.raises(KeyError, match="lost") as raised:
        list(crew.messages(room))
    assert "in work" in raised.value.__notes__[0]


def test_what_is_indivisible_is_raised_here() -> None:
    def work(share: Share, outlet: Outlet) -> None:
        if share.number:
            raise IndivisibleError("why")
        time.sleep(60)

    started = time.monotonic()
    with pytest.raises(IndivisibleError, match="why"), Crew(2, work) as crew:
        list(crew.messages(room))
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(("number", "told"), [(signal.SIGKILL, "was killed by SIGKILL"), (None, "ended with code 5")])
def test_a_process_that_is_lost_is_told_and_takes_the_others_with_it(number: int | None, told: str) -> None:
    def work(share: Share, outlet: Outlet) -> None:
        if not share.number:
            time.sleep(60)
        if number is None:
            os._exit(5)
        os.kill(os.getpid(), number)

    before = children()
    crew = Crew(2, work)
    started = time.monotonic()
    with pytest.raises(WorkerLostError, match=told), crew:
        list(crew.messages(room))
    assert time.monotonic() - started < 30
    assert children() <= before


def test_processes_end_with_the_parents_interest() -> None:
    def work(share: Share, outlet: Outlet) -> None:
        while True:
            outlet.send(b"x")

    before = children()
    with Crew(3, work) as crew:
        next(crew.messages(room))
        assert len(children() - before) == 3
    assert children() <= before


@pytest.mark.parametrize("count", [1, 2])
def test_processes_that_are_asked_to_end_while_they_start(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(share: Share, outlet: Outlet) -> int:
        time.sleep(0.2)
        stop = Stop()
        while not stop.asked:
            time.sleep(0.01)
        return share.number

    def fork() -> int:
        process = os.fork()
        if process and next(started) == count:
            crew.stop()
        return process

    started = iter((1, 2))
    monkeypatch.setattr(system, "fork", fork)
    crew = Crew(2, work)
    with crew:
        ended = [unpickled(message) for _, kind, message in crew.messages(room) if kind == END]

    assert sorted(ended) == [0, 1]

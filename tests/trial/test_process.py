"""The broker as a process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from mqttscope.trial.process import Process, StartError
from tests.proxy.rig import until


def test_a_process_that_runs() -> None:
    one = Process(os.getpid())

    assert one.alive()
    assert one.memory() > 1 << 20
    one.stop()
    assert one.alive(), "it is not ours to stop"


def test_a_process_of_ours_is_started_again_when_it_has_ended() -> None:
    one = Process(command=f"{sys.executable} -c 'import sys; sys.exit(3)'")
    one.start()
    until(lambda: not one.alive(), "its end")

    assert one.ending == "exit code 3"
    one.start()
    assert one.starts == 2
    one.stop()
    assert one.memory() == 0 or not one.alive()


def test_a_process_that_is_stopped() -> None:
    one = Process(command="sleep 60")
    one.start()
    one.start()
    assert (one.alive(), one.starts, one.ending) == (True, 1, "")
    one.stop()

    assert (one.alive(), one.ending) == (False, "signal 15")


def test_what_cannot_be_started_is_told() -> None:
    with pytest.raises(StartError, match="cannot start /nowhere/broker: No such file"):
        Process(command="/nowhere/broker -p 1").start()
    assert not Process(pid=2**22 + 1).alive()


def test_what_is_typed_at_the_terminal_does_not_reach_it() -> None:
    one = Process(command="sleep 60")
    one.start()

    assert os.getsid(one.pid) == one.pid != os.getsid(0)
    one.stop()


def test_what_a_shell_has_started_ends_with_it() -> None:
    one = Process(command="sh -c 'sleep 60; true'")
    one.start()
    children = Path(f"/proc/{one.pid}/task/{one.pid}/children")
    until(children.read_text, "the start")
    child = Process(int(children.read_text().split()[0]))
    one.stop()

    until(lambda: not child.alive(), "its end")

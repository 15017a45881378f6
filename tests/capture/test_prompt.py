"""Frames come sooner where that can be asked for, and anything else goes on as it would have."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mqttscope.capture import prompt

PACKET_SOCKET = """if True:
    import socket, struct, sys
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    made.setsockopt(263, 10, 2)
    # The time comes back in no other way than by what the kernel makes of it: a ring it refuses shows the change.
    request = struct.pack("=7I", 1 << 18, 4, 1 << 18, 4, 250, 0, 0)
    made.setsockopt(263, 5, request)
    print("ring", flush=True)
    sys.exit(5)
"""


def start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, preexec_fn=prompt.trace_me)


@pytest.fixture(autouse=True)
def _where_it_can_be_done() -> None:
    if not prompt.available():
        pytest.skip("needs root on Linux, and ptrace")


def test_a_ring_is_made_prompt_and_the_program_goes_on() -> None:
    running = start(sys.executable, "-S", "-c", PACKET_SOCKET)

    made = prompt.shorten(running.pid, 1)
    out, _ = running.communicate(timeout=20)

    if out != b"ring\n":
        pytest.skip("no packet sockets here")
    assert made == 1
    assert running.returncode == 5


def test_a_program_that_ends_without_a_ring_keeps_its_exit_code() -> None:
    running = start("/bin/sh", "-c", "echo hello; exit 7")

    assert prompt.shorten(running.pid, 1) == 0
    assert running.communicate(timeout=20)[0] == b"hello\n"
    assert running.returncode == 7


def test_a_program_that_makes_no_ring_in_time_runs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt, "TRACE_SECONDS", 0.2)
    running = start("/bin/sh", "-c", "sleep 0.6; echo hello")

    assert prompt.shorten(running.pid, 1) == 0
    assert running.communicate(timeout=20)[0] == b"hello\n"
    assert running.returncode == 0


def test_a_program_that_could_not_be_traced_runs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt, "TRACE_SECONDS", 0.1)
    running = subprocess.Popen(["/bin/sh", "-c", "sleep 0.5; echo hello"], stdout=subprocess.PIPE)

    assert prompt.shorten(running.pid, 1) == 0
    assert running.communicate(timeout=20)[0] == b"hello\n"
    assert running.returncode == 0


def test_a_program_that_is_not_there() -> None:
    assert prompt.shorten(os.getpid(), 0) == 0

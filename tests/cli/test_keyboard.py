"""Keys from a terminal, which is left as it was."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.conftest import ROOT

SHOWS = """
import sys, time
from mqttscope.cli.sniffing import keyboard
found = keyboard()
if found is None:
    print("none", flush=True)
    sys.exit()
found.open()
print("open", flush=True)
while True:
    keys = found.pressed()
    if keys:
        print("keys", ascii("".join(keys)), flush=True)
    if "q" in keys or not found.watched():
        break
    time.sleep(0.01)
found.close()
print("closed", flush=True)
"""


@dataclass
class Terminal:
    """A program in a terminal of its own."""

    running: subprocess.Popen[bytes]
    ours: int
    shown: str = ""

    def press(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def until(self, text: str) -> str:
        deadline = time.monotonic() + 20
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            self.shown += os.read(self.ours, 1 << 12).decode()
        return self.shown

    def mode(self) -> int:
        return int(termios.tcgetattr(self.ours)[3]) & (termios.ICANON | termios.ECHO)


def _own() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-c", SHOWS], stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, preexec_fn=_own,
    )  # fmt: skip
    os.close(theirs)
    yield Terminal(running, ours)
    running.kill()
    running.wait()
    os.close(ours)


def test_keys_are_read_without_enter_and_echo_and_the_terminal_is_left_as_it_was(terminal: Terminal) -> None:
    before = terminal.mode()
    terminal.until("open")
    assert terminal.mode() == 0
    terminal.press(b"p")
    terminal.until("keys 'p'")
    # Arrows and function keys are no keys of their letters; é comes in two pieces.
    terminal.press(b"\x1b[A\x1bOP\x1b[15~s")
    terminal.until("keys 's'")
    terminal.press(b"\xc3")
    time.sleep(0.05)
    terminal.press(b"\xa9")
    terminal.until("keys '\\xe9'")
    terminal.press(b"\x1b")
    terminal.until("keys '\\x1b'")
    terminal.press(b"q")
    shown = terminal.until("closed")
    assert "pkeys" not in shown
    assert terminal.mode() == before


def test_a_terminal_that_a_shell_gave_back_is_taken_again(terminal: Terminal) -> None:
    terminal.until("open")
    changed = termios.tcgetattr(terminal.ours)
    changed[3] |= termios.ICANON | termios.ECHO
    termios.tcsetattr(terminal.ours, termios.TCSANOW, changed)
    deadline = time.monotonic() + 20
    while terminal.mode() and time.monotonic() < deadline:
        time.sleep(0.01)
    terminal.press(b"q")
    terminal.until("closed")


def test_a_stop_signal_does_not_lose_the_keys(terminal: Terminal) -> None:
    terminal.until("open")
    terminal.running.send_signal(signal.SIGSTOP)
    terminal.press(b"s")
    terminal.running.send_signal(signal.SIGCONT)
    terminal.until("keys 's'")


def test_there_are_no_keys_without_a_terminal() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHOWS], stdin=subprocess.DEVNULL, capture_output=True, cwd=ROOT, check=True
    )
    assert done.stdout == b"none\n"


def test_there_are_no_keys_of_a_terminal_that_belongs_to_others() -> None:
    ours, theirs = pty.openpty()
    done = subprocess.run([sys.executable, "-c", SHOWS], stdin=theirs, capture_output=True, cwd=ROOT, check=True)
    os.close(theirs)
    os.close(ours)
    assert done.stdout == b"none\n"

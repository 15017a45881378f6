"""Signals end each command soon, with what it has found so far: FIFOs that never end, readers that do not read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from mqttscope.cli import ending
from tests.cli.running import CAPTURES, Word, capture, command, environment
from tests.proxy.rig import PATIENCE_S, end, until

ENDS_S = 8.0
"""The end after a signal takes less than two seconds; a busy machine gets more."""
CODES = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGHUP: 129}


class Endless:
    """A FIFO with a capture in it that does not end."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "endless.pcapng"
        os.mkfifo(self.path)
        self._taken = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        with suppress(OSError), self.path.open("wb", buffering=0) as fifo:
            fifo.write(capture("v311-qos").read_bytes())
            self._taken.set()
            self._over.wait(60)

    def wait(self) -> None:
        """Wait until the capture was taken out of it."""
        assert self._taken.wait(PATIENCE_S)

    def close(self) -> None:
        """End it, also where nobody has opened it."""
        self._over.set()
        with suppress(OSError):
            os.close(os.open(self.path, os.O_RDONLY | os.O_NONBLOCK))
        self._thread.join(PATIENCE_S)


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[Endless]:
    made = Endless(tmp_path)
    yield made
    made.close()


@contextmanager
def started(folder: Path, *words: Word, stdout: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A command at work, whose output goes to a file."""
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(command(*words), stdout=stdout or out, stderr=err, env=environment())
        try:
            yield process
        finally:
            end(process)  # type: ignore[arg-type]


def asked_to_end(process: subprocess.Popen[bytes], number: signal.Signals) -> int:
    """The exit code after a signal."""
    began = time.monotonic()
    process.send_signal(number)
    code = process.wait(PATIENCE_S)
    assert time.monotonic() - began < ENDS_S
    return code


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("inspect",), b" CONNECT "),
        (("inspect", "--format", "jsonl"), b'"type":"connect"'),
        (("lint", "--no-config", "--format", "json"), b'"findings"'),
        (("lint", "--no-config"), b" rules\n"),
        (("stats",), b"packets"),
        (("stats", "--format", "json"), b'"totals"'),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_endless_capture(
    tmp_path: Path, endless: Endless, words: tuple[str, ...], found: bytes, number: signal.Signals
) -> None:
    with started(tmp_path, *words, endless.path) as process:
        endless.wait()
        # What is in the pipe is read by and by.
        time.sleep(1)
        assert asked_to_end(process, number) == CODES[number]
    out, err = (tmp_path / "out").read_bytes(), (tmp_path / "err").read_text()
    assert found in out
    assert "Traceback" not in err
    assert "before everything was written" not in err


def test_a_capture_that_never_begins(tmp_path: Path) -> None:
    fifo = tmp_path / "nobody.pcapng"
    os.mkfifo(fifo)
    with started(tmp_path, "inspect", fifo) as process:
        time.sleep(1.5)
        assert asked_to_end(process, signal.SIGTERM) == 143
    assert (tmp_path / "err").read_text() == ""


def test_a_reader_that_does_not_read(tmp_path: Path) -> None:
    """More output than the pipe takes: what cannot be written is not waited for, and that is said."""
    with started(tmp_path, "inspect", "--format", "jsonl", *CAPTURES, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 1)
        time.sleep(2)
        assert process.poll() is None
        assert asked_to_end(process, signal.SIGTERM) == 143
        process.stdout.close()
    assert (tmp_path / "err").read_text() == "mqttscope: ended by the signal before everything was written\n"


def test_the_end_of_the_terminal_is_ignored_under_nohup(tmp_path: Path, endless: Endless) -> None:
    script = "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); from mqttscope.cli import run; run()"
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", script, "inspect", str(endless.path)], stdout=out, stderr=out, env=environment()
        )
        try:
            endless.wait()
            time.sleep(0.5)
            process.send_signal(signal.SIGHUP)
            time.sleep(0.5)
            assert process.poll() is None
            assert asked_to_end(process, signal.SIGTERM) == 143
        finally:
            end(process)  # type: ignore[arg-type]


def test_a_rule_that_takes_minutes_does_not_matter(tmp_path: Path) -> None:
    """The interpreter hears of the signal in the middle of a packet."""
    script = """if True:
        import sys
        from mqttscope.cli import run
        from mqttscope.lint.engine import Linter

        marker = sys.argv.pop()

        def feed(self, event):
            open(marker, "w").close()
            while True:
                sum(range(1000))

        Linter.feed = feed
        run()
    """
    marker = tmp_path / "busy"
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", script, "lint", "--no-config", str(capture("v311-qos")), str(marker)],
            stdout=out,
            stderr=out,
            env=environment(),
        )
        try:
            until(marker.exists, "the first event")
            assert asked_to_end(process, signal.SIGTERM) == 143
        finally:
            end(process)  # type: ignore[arg-type]
    assert b"nothing to judge" in (tmp_path / "out").read_bytes()


def test_nothing_is_limited_where_the_process_is_somebody_elses() -> None:
    ending.limit_ending(signal.SIGTERM)
    assert ending._limits == []


def test_what_is_raised() -> None:
    assert type(ending.interruption(signal.SIGINT)) is KeyboardInterrupt
    raised = ending.interruption(signal.SIGTERM)
    assert isinstance(raised, ending.Terminated)
    assert raised.exit_code == 143

"""A forked program is one that was started: in what it writes, how it ends, and what it has of its surroundings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.cli.running import Word, capture, command
from tests.each import some
from tests.forked import Forked, Starter, environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are forked on Linux alone")


def both(*words: Word, stdin: bytes = b"", **more: Any) -> list[tuple[int, bytes, bytes]]:
    """What a forked and a started program leave."""
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment()}
    rows = []
    for kind in (Forked, subprocess.Popen):
        with kind(command(*words), **{**options, **more}) as process:
            assert getattr(process, "forked", False) is (kind is Forked)
            out, err = process.communicate(stdin, 60)
        rows.append((process.returncode, out, err))
    return rows


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("inspect", capture("v5-qos")), 0),
        (("lint", "--no-config", capture("failing-device")), 1),
        (("inspect", "--nonsense"), 2),
        (("explain", b"\xff.pcap"), 3),
        (("decode", "-"), 0),
    ],
    ids=["clean", "findings", "usage", "unreadable", "input"],
)
def test_it_does_what_a_started_one_does(words: tuple[Word, ...], code: int) -> None:
    row, other = both(*words, stdin=b"c000\n")

    assert row == other
    assert row[0] == code


def test_it_runs_in_its_folder_with_its_environment(tmp_path: Path) -> None:
    (tmp_path / "a.pcapng").write_bytes(capture("v5-qos").read_bytes())
    row, other = both(
        "inspect", "a.pcapng", cwd=tmp_path, env=environment({"FORCE_COLOR": "1", "COLUMNS": "60", "NO_COLOR": ""})
    )

    assert row == other
    assert b"\x1b[" in row[1]


@pytest.mark.parametrize("number", some([signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL]))
def test_signals_end_it(number: signal.Signals) -> None:
    if number != signal.SIGKILL and signal.getsignal(number) == signal.SIG_IGN:
        pytest.skip("programs that are started here ignore it, as they do with nohup")
    data = capture("v5-qos").read_bytes()
    pairs = []
    for kind in (Forked, subprocess.Popen):
        with kind(
            command("inspect", "-", "--format", "jsonl"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
        ) as process:  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(data[:3000])
            process.stdin.flush()
            assert process.stdout.readline()
            assert process.poll() is None
            process.send_signal(number)
            pairs.append((process.wait(30), process.communicate()[1]))

    assert pairs[0] == pairs[1]


@pytest.mark.long
@pytest.mark.parametrize("full", [True, False])
def test_output_that_cannot_be_written(full: bool) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as gone, open("/dev/full", "wb") as device:
        row, other = both("rules", stdout=device if full else gone)

    assert row == other
    assert row[0] == (2 if full else 0)


def test_what_a_run_changes_stays_with_it() -> None:
    first, second = (
        forked.run(command("decode", "c000"), env=environment({"FORCE_COLOR": str(number)})) for number in (1, 1)
    )
    assert first.stdout == second.stdout

    plain = forked.run(command("decode", "c000"), env=environment())
    assert b"\x1b" not in plain.stdout


def test_it_is_our_child_and_in_our_group_or_a_session_of_its_own() -> None:
    for session in (False, True):
        with Forked(
            command("decode", "-"), stdin=subprocess.PIPE, env=environment(), start_new_session=session
        ) as process:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            deadline = time.monotonic() + 20
            while session and os.getsid(process.pid) != process.pid and time.monotonic() < deadline:
                time.sleep(0.01)
            assert int(fields[1]) == os.getpid()
            assert (os.getsid(process.pid) == process.pid) is session
            process.communicate(b"")
            assert process.returncode == 0
    # Others that lose their parent are none of ours.
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, 0)


def test_no_descriptor_of_others_is_left_open_in_it() -> None:
    """A program that would hold the other end of a pipe would keep its reader waiting."""
    reader, writer = os.pipe()
    with (
        Forked(command("decode", "-"), stdin=subprocess.PIPE, stdout=writer, env=environment()) as process,
        Forked(command("decode", "-"), stdin=subprocess.PIPE, env=environment()) as two,
    ):
        os.close(writer)
        process.communicate(b"c000\n", 30)
        with os.fdopen(reader, "rb") as shown:
            assert b"PINGREQ" in shown.read()
        numbers = sorted(int(path.name) for path in Path(f"/proc/{two.pid}/fd").iterdir())
        assert numbers[:3] == [0, 1, 2]
        assert not any("socket" in os.readlink(f"/proc/{two.pid}/fd/{number}") for number in numbers[3:])


@pytest.mark.long
@pytest.mark.parametrize(
    "change",
    [
        lambda: {"env": environment({"PYTHONIOENCODING": "latin-1"})},
        lambda: {"preexec_fn": lambda: None},
        lambda: {"cwd": "/", "env": environment({"PYTHONHASHSEED": "1"})},
    ],
)
def test_what_a_fork_cannot_have_is_started(change: Callable[[], dict[str, Any]]) -> None:
    with Forked(command("decode", "c000"), stdout=subprocess.PIPE, **{"env": environment(), **change()}) as process:
        assert not process.forked  # type: ignore[attr-defined]
        assert process.communicate()[0]
    assert process.returncode == 0
    with pytest.raises(FileNotFoundError):
        Forked(command("decode", "c000"), cwd="/there/is/none", env=environment())


@pytest.mark.long
def test_a_starter_that_has_ended_is_an_error() -> None:
    starter = Starter()
    starter._process.kill()
    starter._process.wait()
    with pytest.raises((RuntimeError, OSError), match=r"ended|Broken pipe|reset"):
        starter.start(command("decode", "c000"), "/", environment(), 0, 1, 2, session=False)  # type: ignore[arg-type]
    starter.close()


@pytest.mark.long
def test_a_starter_ends_with_who_made_it() -> None:
    script = "from tests.forked import starter; import os; print(starter()._process.pid, flush=True); os._exit(0)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, env=environment(), cwd=forked.ROOT, check=True
    )
    number = int(done.stdout)
    deadline = time.monotonic() + 20
    while Path(f"/proc/{number}/cmdline").exists() and Path(f"/proc/{number}/cmdline").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.02)

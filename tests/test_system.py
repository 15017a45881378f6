"""Systems without what Linux has: each command works or says in a sentence what it cannot do."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mqttscope import system
from mqttscope.capture import live
from tests import tools
from tests.broker_test.broken import broken_command
from tests.cli.running import Done, capture, invoke
from tests.each import each
from tests.live import replace_dumpcap
from tests.proxy.rig import free_port

ELSEWHERE = {system.PORTABLE: "1"}


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that has nothing of its own."""
    monkeypatch.setenv(system.PORTABLE, "1")


def run(*words: object) -> Done:
    """A command on such a system."""
    done = invoke(*words, env=ELSEWHERE)  # type: ignore[arg-type]
    assert "Traceback" not in done.err, done.err
    assert "bug" not in done.err, done.err
    return done


def test_this_is_linux() -> None:
    assert system.linux() is sys.platform.startswith("linux")
    assert system.processors() >= 1
    assert system.is_running(os.getpid())
    assert system.is_running(2**22 + 1) is False
    assert system.resident_bytes(os.getpid()) > 1 << 20
    assert system.memory_file("test") is not None
    assert system.is_own(os.getuid())


def test_words_are_quoted_for_the_shell_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["pip", "--upgrade", "mqttscope[lake]", "pandas>=2.2,<3", "/home/a b/c.whl", r"C:\venv\python.exe"]

    assert shlex.split(" ".join(map(system.quote, words))) == words
    monkeypatch.setenv(system.PORTABLE, "1")
    assert [system.quote(word) for word in words] == [
        "pip", "--upgrade", '"mqttscope[lake]"', '"pandas>=2.2,<3"', '"/home/a b/c.whl"', r"C:\venv\python.exe",
    ]  # fmt: skip


@pytest.mark.usefixtures("elsewhere")
def test_elsewhere_nothing_of_it_is_used(tmp_path: Path) -> None:
    assert not system.linux()
    assert not system.posix()
    assert not system.can_fork()
    assert system.processors() == (os.cpu_count() or 1)
    assert system.is_running(os.getpid()) is None
    assert system.resident_bytes(os.getpid()) == 0
    assert system.process_folder("self") is None
    assert (system.memory_file("test"), system.alarm_signal()) == (None, None)
    assert system.bytes_under_way(0) == system.bytes_unread(0) == 0
    assert system.inherited((3,)) == {}
    assert "start_new_session" not in system.apart()
    assert not system.end_all(os.getpid(), at_once=True)
    assert system.is_own(-1)
    system.set_alarm(0.001)
    system.allow_descriptors(10**9)
    system.sync_folder(tmp_path)
    inner, outer = os.pipe()
    system.widen(outer, 1 << 20)
    with pytest.raises(OSError, match="cannot be watched"):
        system.unblock(inner)
    with (tmp_path / "a").open("wb") as writer, (tmp_path / "a").open("rb+") as other:
        assert system.lock(writer.fileno())
        assert system.lock(other.fileno())
    os.close(inner)
    os.close(outer)


def test_a_lock_is_for_one_at_a_time(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as writer, (tmp_path / "a").open("rb+") as other:
        assert system.lock(writer.fileno())
        assert not system.lock(other.fileno())


@pytest.mark.parametrize("at_once", [False, True])
def test_a_process_apart_ends_with_what_it_has_started(at_once: bool) -> None:
    process = subprocess.Popen(["sh", "-c", "sleep 60 & wait"], **system.apart())
    assert system.is_running(process.pid)
    assert system.end_all(process.pid, at_once=at_once)
    assert process.wait(10) != 0
    assert system.end_all(process.pid, at_once=at_once)


@pytest.mark.usefixtures("elsewhere")
def test_a_capture_that_cannot_be_watched_is_not_begun() -> None:
    assert not live.can_shorten_time_out()
    assert len(live.DropCounter(os.getpid())) == 0


SAME: list[tuple[object, ...]] = [
    ("inspect", capture("v5-qos")),
    ("inspect", capture("v5-qos"), "--format", "jsonl"),
    ("stats", capture("v311-qos"), "--format", "json"),
    ("lint", capture("v5-qos"), "--format", "concise"),
    ("explain", capture("v5-qos")),
    ("compare", capture("v5-qos"), capture("v5-qos")),
    ("decode", "c000"),
    ("mutate", "--list", "--mutation", "publish:qos-3"),
]


@each("words", SAME, lambda words: words[0])
def test_what_reads_files_is_the_same_everywhere(words: tuple[object, ...]) -> None:
    here, there = invoke(*words), run(*words)  # type: ignore[arg-type]

    assert (there.code, there.out) == (here.code, here.out)


def test_files_are_written_without_locks(tmp_path: Path) -> None:
    for name in ("deltalake", "msgspec", "pyarrow"):
        tools.package(name)
    path = tmp_path / "a.pcapng"
    done = run("mutate", capture("v5-qos"), "--write", path, "--mutation", "publish:qos-3")
    lake = run("pipeline", "ingest", capture("v5-qos"), "--lake", tmp_path / "lake", "--engine", "local")
    redacted = run("redact", capture("v5-qos"), "-o", tmp_path / "b.pcapng")

    assert (done.code, lake.code, redacted.code) == (0, 0, 0), lake.err + redacted.err
    assert path.stat().st_size > 1_000
    assert (tmp_path / "lake" / "packets").is_dir()


def test_a_broker_is_started_and_ended_without_sessions() -> None:
    port = free_port()
    words = ("mutate", capture("v311-qos"), "--broker", f"mqtt://127.0.0.1:{port}", "--mutation", "publish:qos-3")
    done = run(*words, "--spawn", broken_command(port, "none"), "--wait", "0.1", "--jobs", "2")
    watched = run(*words, "--broker-pid", str(os.getpid()))

    assert done.code == 0, done.err
    assert "conforming" in done.text
    assert watched.code == 2
    assert "this system does not show the state of processes" in watched.err


def test_live_captures_are_refused_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_dumpcap(tmp_path, monkeypatch, 'case "$1" in -D) echo "1. lo";; *) exit 1;; esac')
    done = invoke("sniff", "-i", "lo", env={**ELSEWHERE, "PATH": os.environ["PATH"]})

    assert (done.code, "Traceback" in done.err) == (3, False), done.err
    assert "dumpcap -i 1 -w - | mqttscope inspect -" in done.err

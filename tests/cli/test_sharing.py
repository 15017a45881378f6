"""``--jobs``: the same output from several processes, and the same ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from mqttscope.capture.write import PcapngWriter
from mqttscope.cli import output as outputs
from mqttscope.cli.errors import CommandFailedError
from mqttscope.cli.output import Watch
from mqttscope.cli.reading import Reading
from mqttscope.cli.sharing import Rest, Sources, processes, refuse_changes, shown_progress
from mqttscope.net.frame import CaptureError
from mqttscope.parallel import merge
from mqttscope.stats.collect import Statistics
from tests.capture.doubled import recorded
from tests.cli.running import CAPTURES, Done, capture, command, environment, invoke
from tests.cli.test_output import Terminal
from tests.conftest import ROOT
from tests.each import some
from tests.parallel.shared import by_several, items_of
from tests.proxy.rig import is_waiting, until

QOS = capture("v5-qos")


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All captures in one file, one after the other: a time that goes back has to be read by one process."""
    path = tmp_path_factory.mktemp("large") / "all.pcapng"
    with PcapngWriter(path) as writer:
        before_ns = 0
        for frames in map(recorded, CAPTURES):
            later_ns = before_ns + 1_000_000 - frames[0].timestamp_ns if before_ns else 0
            for frame in frames:
                before_ns = frame.timestamp_ns + later_ns
                writer.write(replace(frame, timestamp_ns=before_ns))
    return path


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    path = tmp_path / "damaged.pcapng"
    path.write_bytes(QOS.read_bytes()[:-37])
    return path


def both(*arguments: str | Path) -> tuple[Done, Done]:
    """What one process and what several give."""
    return invoke(*arguments, "--jobs", "1"), invoke(*arguments, "--jobs", "3")


SAMPLE = tuple(map(str, CAPTURES[::4]))
TWO = (str(QOS), str(capture("websocket-cut-frame")))
OTHER_TWO = (str(QOS), str(capture("websocket-split")))


@pytest.mark.parametrize(
    "words",
    [
        *(("inspect", *SAMPLE, "--format", form) for form in ("jsonl", "text", "csv")),
        ("inspect", *TWO, "--filter", "type == publish"),
        ("inspect", *TWO, "--filter", "packet > 20"),
        ("inspect", *TWO, "--filter", "type == auth"),
        ("inspect", *TWO, "--connection", "2"),
        ("inspect", *TWO, "--connection", "99"),
        ("inspect", *TWO, "--limit", "7"),
        ("inspect", *TWO, "--time", "delta"),
        ("inspect", *TWO, "--time", "epoch", "--color"),
        ("inspect", *TWO, "--payload", "hex", "--payload-limit", "3", "--show-secrets"),
        ("inspect", *TWO, "--port", "9999:ws", "--mqtt-version", "3.1.1"),
        *some([("stats", *SAMPLE, "--format", form) for form in ("json", "text")]),
        ("stats", *OTHER_TWO, "--filter", "type == publish"),
        ("stats", *OTHER_TWO, "--filter", "type == auth"),
        ("stats", *OTHER_TWO, "--filter", "packet < 9"),
        ("stats", *OTHER_TWO, "--connection", "1"),
        ("stats", *OTHER_TWO, "--by", "client,topic", "--sort", "name"),
    ],
    ids=lambda words: " ".join(word for word in words if not word.startswith("/")),
)
def test_several_processes_write_the_same(words: tuple[str, ...]) -> None:
    alone, several = both(*words)

    assert several == alone


@pytest.mark.parametrize("name", ["planted-violations", "five-byte-length", "example-length-too-long"])
def test_malformed_packets_among_others_have_the_same(name: str) -> None:
    """They come in segments of known connections too, which the fast path takes."""
    alone, several = both("inspect", capture(name), "--format", "jsonl")

    assert several == alone
    assert b'"event":"malformed"' in several.out


@pytest.mark.long
def test_captures_whose_times_go_back_have_the_same(large: Path) -> None:
    """Each process forgets flows that closed at the same time as one process does, whichever closed before."""
    alone, several = both("inspect", large, "--format", "jsonl")

    assert several == alone


@pytest.mark.parametrize("limit", ["connections", "clients", "topics", "topic_clients", "topic_client_pairs"])
def test_one_process_counts_where_a_limit_may_be_reached(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = Statistics.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, f"max_{limit}", 3)
    alone, several = both("stats", QOS, capture("v311-qos"), "--format", "json")

    assert several == alone


@pytest.mark.parametrize("words", [("stats", "json"), ("inspect", "jsonl"), ("inspect", "text")], ids=" ".join)
def test_damage_is_told_the_same(words: tuple[str, str], damaged: Path, tmp_path: Path) -> None:
    command, form = words
    empty = tmp_path / "empty.pcap"
    empty.write_bytes(b"")
    alone, several = both(command, damaged, QOS, empty, tmp_path / "none.pcap", "--format", form)

    assert alone.code == 3
    assert several == alone


@pytest.mark.long
def test_a_file_has_the_same(tmp_path: Path, large: Path) -> None:
    for jobs in "12":
        assert invoke("inspect", large, "--jobs", jobs, "--output", tmp_path / f"{jobs}.txt").code == 0

    assert (tmp_path / "1.txt").read_bytes() == (tmp_path / "2.txt").read_bytes() != b""


@pytest.mark.parametrize("most", some([3, 40]))
def test_one_process_takes_over_where_a_limit_for_all_may_be_reached(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun_again: list[Watch] = []
    alone = invoke("inspect", *CAPTURES[::2], "--format", "jsonl", "--jobs", "1")
    really = Watch.again

    def noted(watch: Watch) -> None:
        begun_again.append(watch)
        really(watch)

    monkeypatch.setattr(merge, "MAX_FLOWS", most)
    monkeypatch.setattr(Watch, "again", noted)
    again = invoke("inspect", *CAPTURES[::2], "--format", "jsonl", "--jobs", "2")

    assert again == alone
    assert len(begun_again) == 1


def test_how_many_processes(damaged: Path) -> None:
    def count(*captures: Path | str, jobs: int | None = 5, divisible: bool = True) -> int:
        return processes(jobs, Sources(Reading([str(one) for one in captures])), divisible=divisible)

    assert count(QOS) == count(QOS, damaged) == 5
    assert count(QOS, jobs=1) == count(QOS, jobs=None) == count(QOS, divisible=False) == 1
    for captures in (("-",), (QOS, QOS), (os.devnull,), (QOS.parent / "none.pcap",)):
        assert count(*captures) == 1


def test_large_captures_are_shared_out_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttscope.cli.sharing.processors", lambda: 99)
    path = tmp_path / "large.pcapng"
    path.write_bytes(QOS.read_bytes())
    os.truncate(path, 33 << 20)

    assert processes(None, Sources(Reading([str(path)])), divisible=True) == 8


def test_what_was_told_is_not_told_twice(capsys: pytest.CaptureFixture[str]) -> None:
    watch = Watch(progress=False)
    for _ in range(2):
        watch.note(CaptureError("a", "first"))
        watch.again()
    watch.note(CaptureError("a", "first"))
    watch.note(CaptureError("a", "second"))

    assert capsys.readouterr().err == "mqttscope: a: first\nmqttscope: a: second\n"
    assert watch.errors == 2


def test_a_capture_that_changes_is_told() -> None:
    counts = by_several(items_of(QOS), "jsonl", 2)[1]
    refuse_changes(counts)
    counts[1].frames += 1

    with pytest.raises(CommandFailedError, match="was changed while it was read"):
        refuse_changes(counts)


def test_what_was_written_is_not_written_twice() -> None:
    written: list[bytes] = []

    class Sink:
        def write(self, data: bytes) -> None:
            written.append(data)

    rest = Rest(Sink(), 5)
    for data in (b"abc", b"def", b"ghi"):
        rest.write(data)
    assert written == [b"f", b"ghi"]


def test_progress_is_that_of_the_process_that_is_ahead(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = Sources(Reading([str(large)]))
    assert sources.divisible()
    assert sources.passed == 0
    child = os.fork()
    if not child:
        for _ in sources.frames():
            pass
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert sources.passed == sources.size == large.stat().st_size

    taken: list[object] = []
    assert shown_progress(taken.append, sources, enabled=False) == taken.append
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(outputs, "PROGRESS_AFTER_S", 0)
    shown_progress(taken.append, sources, enabled=True)("entries")
    assert taken == ["entries"]
    assert re.search(rf"\r100 % of {outputs.sized(sources.size)}, [\d.,]+ [kMG]?B/s, 0:00 left", terminal.getvalue())
    outputs.Progress.clear()


@contextmanager
def running(path: Path, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """A run whose output nobody has read yet, with its processes."""
    arguments = command(*(words or ("inspect", "--format", "jsonl")), path, "--jobs", "2")
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), start_new_session=True
    ) as process:
        try:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            until(lambda: len(children.read_text().split()) == 2, "the start of both processes")
            known = [int(number) for number in children.read_text().split()]
            # Something is in the pipe, so that the run is under way.
            assert process.stdout is not None
            if not words:
                assert os.read(process.stdout.fileno(), 1)
            yield process, known
        finally:
            process.kill()


def hold(processes: list[int], size: int) -> None:
    """Stop processes where each has read so many bytes."""
    for process in processes:
        os.kill(process, signal.SIGSTOP)
        while bytes_read(process) < size:
            os.kill(process, signal.SIGCONT)
            time.sleep(0.001)
            os.kill(process, signal.SIGSTOP)


def bytes_read(process: int) -> int:
    return int(Path(f"/proc/{process}/io").read_text().partition("rchar:")[2].split()[0])


def wait_for_end(processes: list[int]) -> None:
    """Wait until processes have ended."""
    until(lambda: not any(Path(f"/proc/{process}").exists() for process in processes), "the end of the processes")


def test_a_process_that_is_killed_is_told(large: Path) -> None:
    with running(large, "inspect", "--format", "jsonl") as (process, known):
        hold(known[1:], 1 << 17)
        os.kill(known[1], signal.SIGKILL)
        out, err = process.communicate(timeout=60)

    assert process.returncode == 3
    told = "Error: a process of --jobs 2 was killed by SIGKILL, so that the rest is missing"
    assert told in err.decode()
    assert out[-2:] in (b"", b"}\n"), "whole lines"
    wait_for_end(known)


def test_ctrl_c_ends_all_of_them(large: Path) -> None:
    with running(large) as (process, known):
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)

    assert (process.returncode, err, out[-2:]) == (130, b"", b"}\n")
    wait_for_end(known)


@pytest.mark.parametrize("how", some([signal.SIGINT, signal.SIGTERM], 2))
def test_stats_shows_what_was_counted_before_the_end(large: Path, how: signal.Signals) -> None:
    with running(large, "stats", "--format", "json") as (process, known):
        hold(known, 1 << 17)
        process.send_signal(how)
        until(lambda: is_waiting(process), "the handler of the signal")
        for worker in known:
            os.kill(worker, signal.SIGCONT)
        out, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (128 + how, b"")
    assert json.loads(out)["totals"]["frames"] > 0
    wait_for_end(known)


def test_a_reader_that_has_gone_ends_all_of_them(large: Path) -> None:
    with running(large) as (process, known):
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        err = process.stderr.read()
        assert process.wait(60) == 0

    assert err == b""
    wait_for_end(known)


def test_nobody_is_left_where_the_program_is_killed(large: Path) -> None:
    with running(large) as (process, known):
        process.kill()
        process.wait(60)
        wait_for_end(known)


@pytest.mark.parametrize("name", ["clock-set-back", "clock-set-forward"])
@pytest.mark.parametrize("words", [("stats", "json"), ("inspect", "jsonl")], ids=" ".join)
def test_a_clock_that_was_set_is_found_by_one_process(words: tuple[str, str], name: str) -> None:
    command, form = words
    path = ROOT / "tests" / "data" / "captures" / "field" / f"{name}.pcap"
    alone, several = both(command, path, "--format", form)

    assert "the clock was set" in alone.err
    assert several == alone

"""Where output goes, and how it ends: closed pipes, Ctrl-C, terminals; no file is written that is read."""

from __future__ import annotations

import fcntl
import gzip
import io
import json
import os
import pty
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import pytest

from mqttscope.cli import output as outputs
from mqttscope.cli.export import Export
from mqttscope.cli.main import group
from mqttscope.cli.options import FINDING_FORMATS
from mqttscope.cli.output import FileSink, Output, awaited, describe, refuse_inputs, same_file, wants_colour, warn
from mqttscope.cli.reading import CommandReading
from mqttscope.dissect import dissect_segments
from mqttscope.net.frame import CaptureError
from mqttscope.report.escape import cells
from mqttscope.system import bytes_unread
from tests import forked
from tests.capture.doubled import recorded, write
from tests.cli.running import FORMATS, Done, Started, Word, capture, command, environment, inspected, invoke, started
from tests.cli.terminals import on_terminal
from tests.proxy.rig import is_waiting, until

QOS = capture("v5-qos")
TWO_THIRDS = QOS.read_bytes()[: QOS.stat().st_size * 2 // 3]


class Slow:
    """A binary stream that takes a few bytes at a time, and sometimes none."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.turn = 0

    def write(self, data: memoryview) -> int | None:
        self.turn += 1
        if self.turn % 3 == 0:
            return None
        self.written += data[:7]
        return len(data[:7])

    def flush(self) -> None:
        pass

    def fileno(self) -> int:
        return sys.__stdout__.fileno() if sys.__stdout__ is not None else 1


@pytest.fixture
def output() -> Iterator[Output]:
    before = signal.getsignal(signal.SIGINT)
    new_output = Output()
    new_output.stream = Slow()
    yield new_output
    signal.signal(signal.SIGINT, before)


def test_everything_is_written_to_a_stream_that_takes_little(output: Output) -> None:
    lines = [b"line %d\n" % number for number in range(100)]
    for line in lines:
        output.write(line)
    assert not output.stream.written
    output.flush()
    output.flush()
    assert output.stream.written == b"".join(lines)

    # When somebody waits, lines are written at once.
    output.immediate = True
    output.write(b"a line\n")
    assert output.stream.written.endswith(b"line 99\na line\n")


def test_an_interrupt_waits_for_the_line_that_is_being_written(output: Output) -> None:
    output.write(b"a line that takes several turns\n")
    write = output.stream.write

    def interrupted(data: memoryview) -> int | None:
        if not output.stream.written:
            signal.raise_signal(signal.SIGINT)
        return write(data)  # type: ignore[no-any-return]

    output.stream.write = interrupted
    with pytest.raises(KeyboardInterrupt):
        output.flush()

    assert output.stream.written == b"a line that takes several turns\n"


def test_a_second_interrupt_does_not_wait(output: Output) -> None:
    output.write(b"a line\n")

    def interrupted(data: memoryview) -> int | None:
        signal.raise_signal(signal.SIGINT)
        return None

    output.stream.write = interrupted
    with pytest.raises(KeyboardInterrupt):
        output.flush()


@pytest.mark.parametrize("form", FORMATS)
def test_a_reader_that_goes_away_ends_the_program_quietly(form: str, tmp_path: Path) -> None:
    with started("inspect", repeated(tmp_path, 60), "--format", form) as running:
        assert running.out.readline().endswith(b"\n")
        running.out.close()

        assert (running.err.read(), running.process.wait(60)) == (b"", 0)


def repeated(directory: Path, times: int) -> Path:
    """A capture whose connections come again and again, long enough to fill pipes."""
    frames = []
    for turn in range(times):
        for frame in recorded(QOS):
            # Another client address each time, at its fixed place in an Ethernet frame.
            data = bytearray(frame.data)
            at = 26 if int.from_bytes(data[36:38], "big") == 1883 else 30
            data[at : at + 4] = bytes((10, 0, turn // 256, turn % 256))
            later_ns = frame.timestamp_ns + turn * 10_000_000_000
            frames.append(replace(frame, timestamp_ns=later_ns, data=bytes(data)))
    return write(directory / "big.pcapng", frames)


def test_the_long_capture_is_what_the_tests_take_it_for(tmp_path: Path) -> None:
    assert len(inspected(repeated(tmp_path, 3)).packets) == 3 * 24


def bash(script: str, *words: Word) -> subprocess.CompletedProcess[str]:
    """Run a script of bash, in which Python is ``$0``."""
    return subprocess.run(
        ["bash", "-c", script, sys.executable, *words],
        capture_output=True, text=True, env=environment(), timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "beginning"),
    [(("inspect", "--format", "jsonl"), '{"schema":1,"event":"connection_opened"'), (("stats",), "1 capture")],
)
def test_a_pager_that_reads_one_line(words: tuple[str, ...], beginning: str, tmp_path: Path) -> None:
    script = '"$0" -m mqttscope "$@" | head -1; echo "${PIPESTATUS[0]}"'
    done = bash(script, *words, repeated(tmp_path, 60))
    first, code = done.stdout.splitlines()

    assert first.startswith(beginning)
    assert (code, done.stderr) == ("0", "")


@pytest.mark.parametrize(
    ("name", "code", "form"),
    [*(("failing-device", 1, form) for form in FINDING_FORMATS), ("v5-qos", 0, FINDING_FORMATS[0])],
)
def test_lint_goes_on_without_its_reader(name: str, code: int, form: str, tmp_path: Path) -> None:
    more = tmp_path / "lint.json"
    reader, writer = os.pipe()
    os.close(reader)
    done = forked.run(
        command("lint", "--no-config", capture(name), "--format", form, "--output", f"json={more}"),
        stdout=writer, env=environment(),
    )  # fmt: skip
    os.close(writer)

    assert (done.returncode, done.stderr) == (code, b"")
    assert json.loads(more.read_text("utf-8"))["summary"]["findings"]["error"] == (3 if code else 0)


def test_lint_goes_on_when_its_reader_leaves_in_the_middle() -> None:
    captures = [capture("failing-device")] * 40
    with started("lint", "--no-config", *captures, "--format", "full", "--select", "ALL") as running:
        assert running.out.readline()
        running.out.close()

        chunks = [line for line in running.err.read().splitlines() if b"captured twice" not in line]
        assert (chunks, running.process.wait(60)) == ([], 1)


def test_help_for_a_reader_that_is_gone() -> None:
    assert bash('sleep 0.01 | { "$0" -m mqttscope inspect --help; echo "$?" >&2; } | true').stderr == "0\n"


def interrupted(running: Started) -> list[bytes]:
    """The lines that come after Ctrl-C, which ends the program quietly."""
    running.process.send_signal(signal.SIGINT)
    rest, raw = running.process.communicate(timeout=60)
    assert (running.process.returncode, raw) == (130, b"")
    lines: list[bytes] = rest.splitlines(keepends=True)
    return lines


@pytest.mark.parametrize("form", FORMATS)
def test_ctrl_c_ends_quietly_with_whole_lines(form: str) -> None:
    with started("inspect", "-", "--format", form, stdin=TWO_THIRDS) as running:
        shown = [running.out.readline(), *interrupted(running)]

    assert shown[-1].endswith(b"\n")
    if form == "jsonl":
        assert all(json.loads(line)["schema"] == 1 for line in shown)


def test_ctrl_c_keeps_what_was_found_for_the_export(tmp_path: Path) -> None:
    target = tmp_path / "out.pcapng"
    with started("inspect", "-", "--format", "jsonl", "-w", target, stdin=TWO_THIRDS) as running:
        shown = [running.out.readline() for _ in range(4)]
        shown += interrupted(running)

    packets = [line for line in shown if json.loads(line)["event"] == "packet"]
    # One more may have been noted and not shown yet.
    assert 2 < len(packets) <= len(inspected(target).packets) <= len(packets) + 1


def test_ctrl_c_while_the_reader_is_slow_gives_whole_lines(tmp_path: Path) -> None:
    with started("inspect", repeated(tmp_path, 60), "--format", "jsonl") as running:
        begun = running.out.readline()
        pipe, process = running.out.fileno(), running.process
        size = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
        until(lambda: bytes_unread(pipe) > size // 2 and is_waiting(process), "a full pipe")
        process.send_signal(signal.SIGINT)
        until(lambda: is_waiting(process), "the handler of the signal")
        rest, raw = process.communicate(timeout=60)

    assert (process.returncode, raw) == (130, b"")
    lines = [json.loads(line) for line in (begun + rest).splitlines()]
    assert all(line["schema"] == 1 for line in lines)
    numbers = [line["packet"] for line in lines if "packet" in line]
    assert numbers == list(range(len(numbers)))


def test_a_terminal_gets_colour_and_its_own_width() -> None:
    shown, _ = on_terminal("inspect", capture("v5-publish-properties"), size=(40, 64))
    plain, _ = on_terminal("inspect", capture("v5-publish-properties"), "--no-color", size=(40, 64))

    assert "\x1b[" in shown
    assert "\x1b" not in plain
    assert max(cells(line) for line in plain.splitlines()) <= 64


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "dumb"])
def test_a_terminal_that_wants_no_colour_gets_none(env: dict[str, str]) -> None:
    assert "\x1b" not in on_terminal("inspect", QOS, env=env)[0]


def test_an_error_is_told_once_where_output_and_errors_share_a_terminal() -> None:
    assert on_terminal("inspect", "no.pcap", "--no-color")[0].count("does not exist") == 1


def test_ctrl_c_in_a_terminal_leaves_the_prompt_on_a_line_of_its_own() -> None:
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        command("inspect", "-", "--format", "jsonl"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=follower,
        env=environment(),
    )  # fmt: skip
    os.close(follower)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.write(QOS.read_bytes()[:-50])
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        process.wait(60)
    raw = os.read(leader, 1000)
    os.close(leader)

    assert raw == b"\r\n"


def test_input_that_may_still_be_written_is_shown_line_by_line() -> None:
    data = QOS.read_bytes()
    with started("inspect", "-", "--format", "jsonl", stdin=data[:2000]) as running:
        assert json.loads(running.out.readline())["event"] == "connection_opened"
        assert json.loads(running.out.readline())["type"] == "connect"
        running.input.write(data[2000:])
        running.input.close()
        assert len(running.out.readlines()) > 20
        assert running.process.wait(60) == 0


def test_who_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    with QOS.open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert not awaited(["-"])
    reader, writer = os.pipe()
    with os.fdopen(reader) as pipe, os.fdopen(writer, "w"):
        monkeypatch.setattr(sys, "stdin", pipe)
        assert awaited(["-"])
        assert not awaited(["a.pcap"])
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert awaited(["a.pcap"])


@pytest.mark.parametrize(
    ("option", "env", "terminal", "wanted"),
    [
        (True, {"NO_COLOR": "1"}, False, True),
        (False, {"FORCE_COLOR": "1"}, True, False),
        (None, {}, True, True),
        (None, {}, False, False),
        (None, {"NO_COLOR": "1"}, True, False),
        (None, {"NO_COLOR": "", "TERM": "xterm"}, True, True),
        (None, {"FORCE_COLOR": "1"}, False, True),
        (None, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
        (None, {"NO_COLOR": ""}, False, False),
        (None, {"TERM": "dumb"}, True, False),
    ],
)
def test_who_gets_colour(
    option: bool | None, env: dict[str, str], terminal: bool, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)

    assert wants_colour(option) is wanted


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (CaptureError("a.pcap", "does not exist"), "a.pcap: does not exist"),
        (CaptureError("a.pcap", "is empty", 0, 0), "a.pcap: is empty"),
        (
            CaptureError("a.pcap", "ends in the middle of a frame", 1234567, 12345),
            "a.pcap: ends in the middle of a frame at offset 1,234,567 (12,345 frames before it were read)",
        ),
    ],
)
def test_a_capture_error_as_a_line(error: CaptureError, line: str) -> None:
    assert describe(error) == line


def test_warnings_never_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    warn("a\x1b[31m\nb\udcff é")

    assert capsys.readouterr().err == "mqttscope: a\\x1b[31m\\nb\\udcff é\n"


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


class TestProgress:
    def terminal(self, monkeypatch: pytest.MonkeyPatch) -> Terminal:
        """Standard error as a terminal; not a fixture, since pytest puts its own in place before each test."""
        actual_terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", actual_terminal)
        monkeypatch.setattr(outputs, "PROGRESS_AFTER_S", 0)
        monkeypatch.setattr(outputs, "PROGRESS_EVERY_S", 0)
        monkeypatch.setattr(outputs, "PROGRESS_EVENTS", 1)
        monkeypatch.setattr(outputs, "READ_EVERY_S", 0)
        return actual_terminal

    def read(self, *names: str, stdin: bytes | None = None) -> None:
        """Read captures, as commands do."""
        watch = outputs.CaptureWatch(progress=True)
        reading = CommandReading(names, stdin=None if stdin is None else io.BytesIO(stdin))
        list(watch.events(dissect_segments(watch.follow(reading).segments(watch.skipped))))

    def test_a_line_is_shown_and_taken_away(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = self.terminal(monkeypatch)
        self.read(str(QOS))

        size = outputs.sized(QOS.stat().st_size)
        assert re.search(rf"\r\d+ % of {size}, [\d.]+ [kMG]?B/s, \d+:\d\d left\x1b\[K", terminal.getvalue())
        assert "\r100 % of" in terminal.getvalue()
        assert terminal.getvalue().endswith("\r\x1b[K")

    def test_bytes_of_all_captures_count(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        terminal = self.terminal(monkeypatch)
        raw = capture("v5-qos").read_bytes()
        (tmp_path / "b.pcapng").write_bytes(raw)
        (tmp_path / "c.pcapng.gz").write_bytes(gzip.compress(raw))
        self.read(str(tmp_path))
        size = outputs.sized(sum(path.stat().st_size for path in tmp_path.iterdir()))
        shown = [int(hit) for hit in re.findall(rf"(\d+) % of {size}", terminal.getvalue())]
        assert shown == sorted(shown)
        assert shown[-1] == 100

    def test_standard_input_has_no_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = self.terminal(monkeypatch)
        self.read("-", stdin=capture("v5-qos").read_bytes())
        assert re.search(r"\r[\d.]+ kB read, [\d.]+ [kMG]?B/s\x1b\[K", terminal.getvalue())

    def test_ten_times_a_second_at_most(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = self.terminal(monkeypatch)
        monkeypatch.setattr(outputs, "READ_EVERY_S", 0.1)
        now = [100.0]
        monkeypatch.setattr("mqttscope.cli.output.time.monotonic", lambda: now[0])
        progress = outputs.ReadProgress()
        for _ in range(1_000):
            now[0] += 0.001
            progress.seen(1_000_000)
        assert terminal.getvalue().count("\r") in (10, 11)
        progress.clear()

    def test_sizes_and_times(self) -> None:
        sizes = {0: "0 B", 999: "999 B", 1_000: "1.0 kB", 123_456: "123 kB", 999_999: "1.0 MB", 2_940_000_000: "2.9 GB"}
        times = {0.4: "0:00", 65: "1:05", 3_723: "1:02:03", 1e9: "277,777:46:40"}
        assert {count: outputs.sized(count) for count in sizes} == sizes
        assert {seconds: outputs.lasting(seconds) for seconds in times} == times

    def test_a_size_that_is_not_known_is_none(self, tmp_path: Path) -> None:
        for name in (tmp_path / "missing.pcap", tmp_path, "-"):
            assert outputs.total_size([str(name)]) == 0

    def test_two_watches_may_share_a_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.terminal(monkeypatch)
        first = outputs.CaptureWatch(progress=True)
        assert outputs.CaptureWatch(progress=first)._progress is first._progress
        assert outputs.CaptureWatch(progress=outputs.CaptureWatch(progress=False))._progress is None

    @pytest.mark.parametrize("command", ["triage", "lint", "stats", "explain", "inspect", "redact", "compare"])
    def test_every_command_that_reads_shows_it(
        self, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        terminal = self.terminal(monkeypatch)
        path = str(capture("v5-qos"))
        more = {
            "inspect": ["-o", str(tmp_path / "x.txt")],
            "redact": ["-o", str(tmp_path / "x.pcapng")],
            "compare": [path],
        }
        with group.make_context("mqttscope", [command, path, *more.get(command, [])]) as context:
            group.invoke(context)
        assert " % of " in terminal.getvalue()
        assert "\x1b[K" in terminal.getvalue()

    @pytest.mark.parametrize("early", [True, False], ids=["in the first second", "no terminal"])
    def test_nothing_is_shown(self, early: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = self.terminal(monkeypatch)
        monkeypatch.setattr(outputs, "PROGRESS_AFTER_S", 3600 if early else 0)
        monkeypatch.setattr(terminal, "isatty", lambda: early)
        self.read(str(QOS))

        assert terminal.getvalue() == ""

    def test_warnings_do_not_stand_behind_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = self.terminal(monkeypatch)
        progress = outputs.Progress()
        progress.show("half of it")
        outputs.warn("something else")

        assert terminal.getvalue() == "\rhalf of it\x1b[K\r\x1b[Kmqttscope: something else\n"

    def test_it_is_no_wider_than_the_terminal_and_harmless(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = self.terminal(monkeypatch)
        monkeypatch.setenv("COLUMNS", "20")
        outputs.Progress().show("\x1b[31m" + "x" * 100)

        assert terminal.getvalue() == "\r\\x1b[31m" + "x" * 11 + "\x1b[K"
        outputs.Progress.clear()

    def test_the_export_shows_its_second_reading(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        terminal = self.terminal(monkeypatch)
        export = Export([str(capture("v5-qos"))], str(tmp_path / "out.pcapng"))
        export.write()

        assert "52 frames read again, 0 written to out.pcapng" in terminal.getvalue()
        assert terminal.getvalue().endswith("\r\x1b[K")


NOBODY = "mqtt://127.0.0.1:1"
"""Nothing listens there."""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copy(QOS, tmp_path / "mine.pcapng"))


def refused(done: Done, copy: Path) -> str:
    """The last line of a usage error that left the capture alone."""
    assert (done.code, done.out) == (2, b"")
    assert copy.read_bytes() == QOS.read_bytes()
    return done.err.splitlines()[-1]


@pytest.mark.parametrize("command_name", ["lint", "inspect"])
class TestCapturesAreKept:
    """Both commands that write files."""

    def run(self, command_name: str, *arguments: str | Path) -> Done:
        return invoke(command_name, *(["--no-config"] if command_name == "lint" else []), *arguments)

    @pytest.mark.parametrize(
        ("source", "target"),
        [
            ("mine.pcapng", "mine.pcapng"),
            ("mine.pcapng", "soft"),
            ("soft", "mine.pcapng"),
            ("mine.pcapng", "hard"),
            ("hard", "mine.pcapng"),
            ("*.pcapng", "mine.pcapng"),
            ("", "mine.pcapng"),
        ],
    )
    def test_a_capture_is_not_overwritten(
        self, command_name: str, source: str, target: str, copy: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "soft").symlink_to(copy)
        (tmp_path / "hard").hardlink_to(copy)
        text = refused(self.run(command_name, tmp_path / source, "-o", tmp_path / target), copy)

        assert text == f"Error: --output: {tmp_path / target} is an input capture"

    def test_another_file_of_the_folder_is_written_anew(self, command_name: str, copy: Path, tmp_path: Path) -> None:
        report = tmp_path / "report"
        report.write_text("an old one", "utf-8")

        assert self.run(command_name, tmp_path, "-o", report).code in (0, 1)
        assert b"an old one" not in report.read_bytes()
        assert copy.read_bytes() == QOS.read_bytes()

    def test_standard_input(self, command_name: str, copy: Path) -> None:
        with copy.open("rb") as file:
            done = forked.run(command(command_name, "-", "-o", copy), stdin=file, env=environment())

        assert done.returncode == 2
        assert b"is an input capture" in done.stderr
        assert copy.read_bytes() == QOS.read_bytes()


def test_lint_refuses_further_formats_as_well(copy: Path, tmp_path: Path) -> None:
    other = tmp_path / "lint.sarif"
    arguments = ("lint", "--no-config", copy, "--output", f"sarif={other}", "--output", f"json={copy}")

    assert "is an input capture" in refused(invoke(*arguments), copy)
    assert not other.exists()


@pytest.mark.parametrize(
    ("option", "name", "text", "what"),
    [
        ("--config", "ours.toml", "", "the configuration file"),
        ("--baseline", "base.json", '{"schema": 1, "findings": []}', "the baseline"),
        ("--profile", "cloud.toml", "dated = 2026-11-21\n[limits]\nmaximum_qos = 1\n", "the profile"),
    ],
)
def test_lint_refuses_the_other_files_that_it_reads(
    option: str, name: str, text: str, what: str, tmp_path: Path
) -> None:
    file, link = tmp_path / name, tmp_path / "link"
    file.write_text(text, "utf-8")
    link.symlink_to(file)
    for target in (file, link):
        done = invoke("lint", QOS, option, file, "-o", target)

        assert (done.code, done.err.splitlines()[-1]) == (2, f"Error: --output: {target} is {what}")
        assert file.read_text("utf-8") == text


def test_a_baseline_that_is_made_is_no_report(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    done = invoke("lint", "--no-config", QOS, "--baseline", path, "--update-baseline", "-o", tmp_path / "." / path.name)

    assert done.code == 2
    assert not path.exists()


def test_a_report_that_a_pattern_would_find_is_not_left_behind(copy: Path, tmp_path: Path) -> None:
    report = tmp_path / "lint.json"
    done = invoke("lint", "--no-config", tmp_path / "*", "-o", report)

    assert (done.code, done.out) == (2, b"")
    assert "is one of the input captures" in done.err
    assert not report.exists()


def test_files_are_the_same_before_they_exist(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "made")

    assert same_file(tmp_path / "link", tmp_path / "made")
    assert not same_file(tmp_path / "made", tmp_path / "other")
    refuse_inputs(os.devnull, [os.devnull])
    refuse_inputs(str(tmp_path / "new"), [str(tmp_path), "-"], {"the baseline": None})


def test_a_path_that_cannot_be_is_said(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match="cannot write"):
        FileSink(str(tmp_path / "no" / "folder"))
    with pytest.raises(click.ClickException, match="null"):
        FileSink("a\0b")


def test_a_pipe_that_nobody_reads_any_more_takes_everything() -> None:
    reader, writer = os.pipe()
    sink = FileSink(f"/dev/fd/{writer}")
    os.close(reader)

    sink.write(b"x" * 100_000)
    sink.close()
    os.close(writer)


FAILING = [
    ("mutate", QOS, "--broker", NOBODY, "--format", "html"),
    ("mutate", QOS, "--broker", NOBODY, "--format", "junit"),
    ("inspect", QOS, "--keylog", "missing.log"),
    ("lint", QOS, "--no-config", "--keylog", "missing.log"),
    ("replay", QOS, "--broker", NOBODY, "--keylog", "missing.log"),
    ("serve", QOS, "--listen", "192.0.2.1:1"),
    ("proxy", "--upstream", NOBODY, "--listen", "192.0.2.1:1"),
]


@pytest.mark.parametrize("words", FAILING, ids=lambda words: words[0])
def test_a_command_that_fails_before_it_writes_leaves_all_as_it_was(words: tuple[str, ...], tmp_path: Path) -> None:
    new, old = tmp_path / "new.txt", tmp_path / "old.txt"
    old.write_text("before")

    assert [invoke(*words, "-o", path).code for path in (new, old)] in ([2, 2], [3, 3])

    assert old.read_text("utf-8") == "before"
    assert list(tmp_path.iterdir()) == [old]


@pytest.mark.parametrize("more", [(), ("--filter", "topic == 'none'")], ids=["shorter", "nothing"])
def test_a_report_leaves_nothing_of_what_was_there(more: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "old.txt"
    path.write_text("before" * 100_000)
    words: tuple[str | Path, ...] = ("inspect", QOS, "--format", "jsonl", *more)

    assert invoke(*words, "-o", path).code == 0
    assert path.read_bytes() == invoke(*words).out
    assert bool(path.read_bytes()) is not bool(more)


@pytest.mark.parametrize("command", ["inspect", "stats", "explain", "lint"])
def test_a_page_of_nothing_that_could_be_read_is_not_written(command: str, tmp_path: Path) -> None:
    path, new, cut = tmp_path / "old.html", tmp_path / "new.html", tmp_path / "cut.pcapng"
    path.write_text("before")
    cut.write_bytes(QOS.read_bytes()[:-9])

    for target in (path, new):
        done = invoke(command, "missing.pcap", "-o", target)
        assert done.code == 3
        assert f"mqttscope: {target} is not written: nothing could be read" in done.err
    assert path.read_text("utf-8") == "before"
    assert not new.exists()
    assert invoke(command, cut, "-o", path).code == 3
    assert path.read_text("utf-8").rstrip().endswith("</html>")


@pytest.mark.parametrize("command", ["inspect", "stats", "explain", "lint"])
def test_a_format_and_a_name_that_say_different_things(command: str, tmp_path: Path) -> None:
    lines = "jsonl" if command == "inspect" else "json"
    for form, name, cure in (
        (lines, "x.html", "use --format html, or another name"),
        ("html", "x.json", "call it .html"),
        ("html", "x.sh", "call it .html"),
    ):
        done = invoke(command, QOS, "--format", form, "-o", tmp_path / name)
        assert done.code == 2
        assert f"--format {form} contradicts --output {tmp_path / name}: {cure}" in done.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_reports_without_secrets_have_the_mode_that_the_umask_leaves(tmp_path: Path, umask: int) -> None:
    failing = capture("failing-device")
    mutate = ("mutate", failing, "--mutation", "publish:qos-3", "--format", "json")
    before = os.umask(umask)
    try:
        outputs = ("--output", tmp_path / "lint.html", "--output", f"junit={tmp_path / 'lint.xml'}")
        assert invoke("lint", failing, *outputs).code == 1
        assert invoke(*mutate, "--write", tmp_path / "m.pcapng", "--output", tmp_path / "m.json").code == 0
        assert invoke("inspect", failing, "--output", tmp_path / "packets.txt").code == 0
    finally:
        assert os.umask(before) == umask

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    private = dict.fromkeys(("m.pcapng", "packets.txt"), 0o600)
    assert modes == dict.fromkeys(("lint.html", "lint.xml", "m.json"), 0o666 & ~umask) | private


def test_a_report_keeps_the_mode_of_the_file_that_is_there(tmp_path: Path) -> None:
    path, link = tmp_path / "lint.json", tmp_path / "link.json"
    path.touch(0o640)
    link.symlink_to(path)

    assert invoke("lint", capture("failing-device"), "--format", "json", "--output", link).code == 1
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.stat().st_size > 0


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (("inspect", "--output", "jsonl=-"), "use --format jsonl alone"),
        (("inspect", "--output", "csv=a.csv"), "use --format csv --output a.csv"),
        (("stats", "-o", "json="), "use --format json --output FILE"),
        (("explain", "-o", "html=a.html"), "use --format html --output a.html"),
    ],
)
def test_a_format_before_the_name_of_the_only_report_is_refused(
    words: tuple[str, ...], instead: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = invoke(*words, QOS)

    assert done.code == 2
    assert f"{instead}; a file of that name is ./{words[2]}" in done.err
    assert not [*tmp_path.iterdir()]

    assert invoke("inspect", "--output", "./text=a", QOS).code == 0
    assert (tmp_path / "text=a").exists()
    assert invoke("inspect", "--output", "text=a", QOS).code == 0  # it exists

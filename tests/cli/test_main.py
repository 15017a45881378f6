"""What holds for every command: help, version, exit codes, what is imported, and how it ends.

Signals end each command soon, with what it has found so far: FIFOs that never end, readers that do not read.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click
import pytest

from mqttscope import __version__
from mqttscope.cli import main as program
from mqttscope.cli.main import COMMANDS, group, is_capture
from mqttscope.dev.generate import command_names, find_command, help_text
from mqttscope.kernel import status
from mqttscope.system import bytes_unread
from tests.cli.running import BUSY, CAPTURES, Done, Word, capture, command, environment, invoke, python, run
from tests.each import some
from tests.forked import Forked
from tests.proxy.rig import PATIENCE_S, end, is_catching, is_waiting, until

LINES = 85
"""Lines that a help page may have: it has headings to find one's way by."""
EVERY = [(), *command_names()]
"""The names that lead to each command, and to the overview."""


def imported(*arguments: str) -> set[str]:
    """The top-level packages that the program has imported when it ends."""
    script = (
        "import atexit, json, sys\n"
        "sys.argv = ['mqttscope', *sys.argv[1:]]\n"
        "atexit.register(lambda: sys.stderr.write(json.dumps(sorted(sys.modules))))\n"
        "from mqttscope.cli import run\n"
        "run()\n"
    )
    done = python(script, *arguments)
    assert done.returncode == 0
    return {name.partition(".")[0] for name in json.loads(done.stderr)}


@pytest.mark.parametrize("option", some(["--version", "-V"]))
def test_version_is_told_without_importing_anything_slow(option: str) -> None:
    assert run(option).out.decode() == f"mqttscope {__version__}\n{status()}\n"
    assert not imported(option) & {"click", "rich", "pyshark", "dpkt", "orjson", "lz4", "zstandard", "asyncio"}


@pytest.mark.parametrize("names", some(EVERY[1:], 4), ids=" ".join)
def test_help_of_a_command_imports_neither_rich_nor_pyshark(names: tuple[str, ...]) -> None:
    assert not imported(*names, "--help") & {"rich", "pyshark", "dpkt", "pyspark", "pyarrow", "asyncio"}


@pytest.mark.parametrize(
    "words",
    [
        ("inspect", "--format", "jsonl"),
        ("stats", "--format", "json"),
        ("explain", "--format", "json"),
    ],
    ids=" ".join,
)
def test_json_imports_neither_rich_nor_pyshark(words: tuple[str, ...]) -> None:
    assert not imported(*words, str(capture("v5-qos"))) & {"rich", "pyshark", "dpkt", "asyncio", "ssl"}


@pytest.mark.parametrize("name", some(["triage", "lint", "compare"], 1))
def test_reading_a_capture_needs_no_event_loop(name: str) -> None:
    captures = [str(capture("v5-qos"))] * (2 if name == "compare" else 1)
    assert not imported(name, *captures) & {"pyshark", "asyncio", "ssl"}


def test_overview_lists_commands_without_importing_them() -> None:
    script = """if True:
        import click, sys
        from mqttscope.cli.main import group
        group.get_help(click.Context(group, info_name="mqttscope"))
        print(*(name for name in sys.modules if name.startswith("mqttscope.")))
    """
    texts = python(script).stdout.split()

    assert {*texts} == {"mqttscope.errors", "mqttscope.system", "mqttscope.cli", "mqttscope.cli.main"}


@pytest.mark.parametrize("names", EVERY, ids=lambda names: " ".join(names) or "overview")
def test_help_is_short_enough_to_be_read_and_says_what_every_option_does(names: tuple[str, ...]) -> None:
    command, lines = find_command(*names), help_text(*names).splitlines()

    assert len(lines) <= LINES
    assert max(map(len, lines)) <= 104
    options = [param for param in command.params if isinstance(param, click.Option)]
    # Choices may speak for themselves.
    assert [option.name for option in options if not option.help and not isinstance(option.type, click.Choice)] == []
    # A command has the settings of the program on its own too.
    context = command.make_context("alone", [], resilient_parsing=True)
    assert (context.help_option_names, context.max_content_width) == (["-h", "--help"], 100)


def examples(names: tuple[str, ...]) -> list[str]:
    """The command lines under "Examples:" of a help page."""
    _, _, rest = help_text(*names).partition("Examples:\n")
    return [line.strip() for line in rest.partition("\n\n")[0].splitlines() if line.strip()]


def own_part(line: str) -> list[str]:
    """The words of the mqttscope command in a pipeline."""
    words = shlex.shlex(line, posix=True, punctuation_chars="|")
    words.whitespace_split = True
    commands = "\0".join(words).split("\0|\0")
    (own,) = [command.split("\0")[1:] for command in commands if command.startswith("mqttscope\0")]
    return own


@pytest.mark.parametrize("names", EVERY, ids=lambda names: " ".join(names) or "overview")
def test_help_has_at_least_two_examples_that_the_command_line_accepts(names: tuple[str, ...]) -> None:
    texts = examples(names)

    assert len(texts) >= 2
    for line in texts:
        chosen, command, arguments = group.resolve_command(click.Context(group), own_part(line))
        assert command is not None
        assert chosen is not None
        assert (chosen, *arguments)[: len(names)] == names
        context = command.make_context(chosen, arguments)
        expression = context.params.get("expression")
        if expression is not None:
            from mqttscope import filter as filters

            filters.compile(expression)


def test_nothing_given_shows_the_overview_and_counts_as_usage() -> None:
    done = invoke()

    assert done.code == 2
    assert all(line in done.err for _, line in COMMANDS.values())


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspekt",),
        ("inspect",),
        ("inspect", "--nonsense"),
        ("decode",),
        ("decode", "zz"),
        ("decode", "3"),
        ("decode", ""),
        ("decode", "-", "30"),
        ("decode", "30", "--from", "broker"),
        ("stats",),
    ],
    ids=" ".join,
)
def test_usage_errors_have_exit_code_2_and_print_nothing(arguments: tuple[str, ...]) -> None:
    done = invoke(*arguments)

    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("Usage: mqttscope")
    assert "\nError: " in done.err


def while_a_class_is_made() -> Exception:
    """What Python makes of Ctrl-C there."""
    error = RuntimeError("Error calling __set_name__ on 'Field' instance")
    error.__cause__ = KeyboardInterrupt()
    return error


@pytest.mark.parametrize(
    ("error", "code", "first", "more"),
    [
        (ZeroDivisionError("by zero"), 3, "mqttscope: internal error: ZeroDivisionError: by zero", True),
        (OSError(28, "No space left on device"), 3, "mqttscope: No space left on device", False),
        (OSError(28, "No space left on device", "b.pcap"), 2, "mqttscope: b.pcap: No space left on device", False),
        (while_a_class_is_made(), 130, "", False),
    ],
    ids=["a bug", "something is full", "a file is full", "Ctrl-C"],
)
def test_what_is_raised_is_told_in_words(
    error: Exception, code: int, first: str, more: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing() -> object:
        raise error

    monkeypatch.setattr(program, "_run", failing)
    done = invoke("decode", "c000", env={"MQTTSCOPE_TRACEBACK": None})
    text, _, rest = done.err.partition("\n")

    assert (done.code, text, bool(rest)) == (code, first, more)
    assert "Traceback" not in done.err
    if more:
        # The traceback is there on demand.
        with pytest.raises(ZeroDivisionError):
            invoke("decode", "c000")


@pytest.mark.parametrize(
    "arguments", [("decode", "c000"), ("inspect", str(capture("v5-qos"))), ("--help",), ("--version",)]
)
def test_output_that_cannot_be_written_is_said_in_one_line(arguments: tuple[str, ...]) -> None:
    done = in_shell(">/dev/full", *arguments)

    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "standard output" in done.err
    assert "No space left on device" in done.err


def in_shell(redirected: str, *arguments: str | Path) -> Done:
    """The program with standard streams that a shell has redirected or closed."""
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m mqttscope "$@" {redirected}', sys.executable, *arguments],
        capture_output=True, env=environment(), timeout=60, check=False,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr.decode())


FAILING = str(capture("failing-device"))


@pytest.mark.parametrize(
    "arguments",
    some(
        [
            ("decode", "c000"),
            ("inspect", FAILING),
            ("inspect", FAILING, "--format", "tree"),
            ("inspect", FAILING, "--format", "jsonl"),
            ("stats", FAILING),
            ("stats", FAILING, "--format", "json"),
            ("rules",),
            ("rules", "PUB101"),
            ("rules", "--coverage", "--format", "json"),
            ("lint", "--no-config", FAILING),
            ("lint", "--no-config", FAILING, "--format", "sarif"),
            ("lint", "--no-config", FAILING, "--statistics"),
            ("lint", "--no-config", "--show-settings"),
        ],
        5,
    ),
    ids=" ".join,
)
def test_closed_standard_output_is_said(arguments: tuple[str, ...]) -> None:
    done = in_shell(">&-", *arguments)

    assert (done.code, done.err) == (2, "Error: standard output is closed\n")


def test_closed_standard_output_is_no_matter_to_what_writes_files(tmp_path: Path) -> None:
    report = tmp_path / "lint.json"
    done = in_shell(">&-", "lint", "--no-config", FAILING, "--format", "json", "-o", report)

    assert (done.code, done.err) == (1, "")
    assert json.loads(report.read_text("utf-8"))["findings"]


@pytest.mark.parametrize("arguments", some([("lint", "--no-config"), ("inspect",), ("stats",)], 3), ids=" ".join)
def test_closed_standard_input_and_errors_are_no_matter(arguments: tuple[str, ...]) -> None:
    assert in_shell("<&- 2>&-", *arguments, FAILING).out == in_shell("", *arguments, FAILING).out
    unreadable = in_shell("<&-", *arguments, "-")

    assert unreadable.code == 3
    assert "standard input is closed" in unreadable.err
    assert in_shell("<&- 2>&- >&-", *arguments, "-").code == 2


def completed(words: str, position: int) -> Done:
    env = {"_MQTTSCOPE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(position)}
    return run(env=env)


def test_the_shell_completes_commands_and_options_and_choices() -> None:
    assert completed("mqttscope in", 1).text == "plain,inspect\nfile,in\n"
    assert completed("mqttscope pipeline in", 2).text == "plain,ingest\n"
    assert completed("mqttscope --v", 1).text == "plain,--version\n"
    assert "plain,--keylog\n" in completed("mqttscope captures/v5-qos/capture.pcapng --", 2).text
    assert "plain,--filter\n" in completed("mqttscope inspect --", 2).text
    assert completed("mqttscope inspect --format l", 3).text == "plain,ladder\n"


@pytest.mark.parametrize(("module", "code"), [("click", -signal.SIGINT), ("mqttscope.dissect.flow_state", 130)])
def test_ctrl_c_while_modules_are_imported_is_quiet(module: str, code: int) -> None:
    script = f"""if True:
        import os, signal, sys
        # Who starts the tests in the background has them ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        class Finder:
            def find_spec(self, name, *others):
                if name == {module!r}:
                    os.kill(os.getpid(), signal.SIGINT)
        sys.meta_path.insert(0, Finder())
        from mqttscope.cli import run
        run()
    """
    done = python(script, "inspect", capture("v5-qos"))

    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


class TestUnknownCommands:
    @pytest.mark.parametrize(
        ("words", "hint"),
        [
            (("insepct",), "'insepct' is neither a command nor a file. Did you mean inspect?"),
            (("lnt", "a.pcap"), "'lnt' is neither a command nor a file. Did you mean lint?"),
            (("STATS",), "'STATS' is neither a command nor a file. Did you mean stats?"),
            (("pipeline", "ingst"), "No such command 'ingst'. Did you mean ingest?"),
            (("pipeline", "a.pcap"), "No such command 'a.pcap'. There are ingest,"),
            (("xyz",), "'xyz' is neither a command nor a file. There are triage, inspect, browse, sniff, decode,"),
            (("",), "'' is neither a command nor a file. There are triage,"),
            (("a\x1b[31m",), r"'a\x1b[31m' is neither a command nor a file"),
        ],
    )
    def test_names_that_are_like_it_are_said(self, words: tuple[str, ...], hint: str) -> None:
        done = invoke(*words)

        assert (done.code, done.out) == (2, b"")
        assert done.err.splitlines()[-1].startswith(f"Error: {hint}")

    @pytest.mark.parametrize(
        ("word", "is_one"),
        [
            ("-", True), ("a.pcap", True), ("a.PCAPNG", True), ("a.pcap.gz", True), ("a.pcap1", True),
            ("a.pcap_1", True), ("a/b", True), ("./lint", True), ("day*.pcap", True),
            ("lint", False), ("pcap", False), ("a.txt", False), ("day*", False), ("", False), ("pcap.a", False),
        ],
    )  # fmt: skip
    def test_words_that_mean_captures(self, word: str, is_one: bool, tmp_path: Path, monkeypatch: Any) -> None:
        monkeypatch.chdir(tmp_path)
        assert is_capture(word) is is_one

    def test_whatever_exists_is_a_capture(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "day-1").touch()
        (tmp_path / "folder").mkdir()
        (tmp_path / "dangling").symlink_to("nowhere")
        assert all(map(is_capture, ("day-1", "folder", "dangling", "day*")))


CODES = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGHUP: 129}


class Endless:
    """A FIFO with a capture in it that does not end."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "endless.pcapng"
        os.mkfifo(self.path)
        self._written = -1
        """Its descriptor, once the capture is in it."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        with suppress(OSError), self.path.open("wb", buffering=0) as fifo:
            fifo.write(capture("v311-qos").read_bytes())
            self._written = fifo.fileno()
            self._over.wait(60)

    def wait(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until a program has read the capture and waits for more."""
        until(lambda: self._written >= 0, "the start of reading")
        until(lambda: not bytes_unread(self._written) and is_waiting(process), "the end of the capture")

    def close(self) -> None:
        """End it, also where nobody has opened it."""
        self._over.set()
        with suppress(OSError):
            os.close(os.open(self.path, os.O_RDONLY | os.O_NONBLOCK))
        self._thread.join(PATIENCE_S)


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[Endless]:
    new_endless = Endless(tmp_path)
    yield new_endless
    new_endless.close()


@contextmanager
def running(
    folder: Path, *words: Word, script: str = "", stdout: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A command at work, or a script of Python that runs it; its output goes to files."""
    line = [sys.executable, "-c", script, *words] if script else command(*words)
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = Forked(line, stdout=stdout or out, stderr=err, env=environment())
        try:
            yield process
        finally:
            end(process)  # type: ignore[arg-type]


def asked_to_end(process: subprocess.Popen[bytes], number: signal.Signals) -> int:
    """The exit code after a signal."""
    process.send_signal(number)
    return process.wait(PATIENCE_S)


@pytest.mark.parametrize("number", some([signal.SIGINT, signal.SIGTERM, signal.SIGHUP]), ids=lambda number: number.name)
@pytest.mark.parametrize(
    ("words", "expected"),
    some(
        [
            (("inspect",), b" CONNECT "),
            (("inspect", "--format", "jsonl"), b'"type":"connect"'),
            (("lint", "--no-config", "--format", "json"), b'"findings"'),
            (("lint", "--no-config"), b" rules\n"),
            (("stats",), b"packets"),
            (("stats", "--format", "json"), b'"totals"'),
        ],
        3,
        several=True,
    ),
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_endless_capture(
    tmp_path: Path, endless: Endless, words: tuple[str, ...], expected: bytes, number: signal.Signals
) -> None:
    with running(tmp_path, *words, endless.path) as process:
        endless.wait(process)
        assert asked_to_end(process, number) == CODES[number]
    out, err = (tmp_path / "out").read_bytes(), (tmp_path / "err").read_text()
    assert expected in out
    assert "Traceback" not in err
    assert "before everything was written" not in err


def test_a_capture_that_never_begins(tmp_path: Path) -> None:
    fifo = tmp_path / "nobody.pcapng"
    os.mkfifo(fifo)
    with running(tmp_path, "inspect", fifo) as process:
        until(lambda: is_catching(process, signal.SIGTERM) and is_waiting(process), "the opening of the FIFO")
        assert asked_to_end(process, signal.SIGTERM) == 143
    assert (tmp_path / "err").read_text() == ""


@pytest.mark.long
def test_a_reader_that_does_not_read(tmp_path: Path) -> None:
    """More output than the pipe takes: what cannot be written is not waited for, and that is said."""
    with running(tmp_path, "inspect", "--format", "jsonl", *CAPTURES, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        size = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
        until(lambda: bytes_unread(pipe) > size // 2 and is_waiting(process), "a full pipe")
        assert asked_to_end(process, signal.SIGTERM) == 143
        process.stdout.close()
    assert (tmp_path / "err").read_text() == "mqttscope: ended by the signal before everything was written\n"


def test_the_end_of_the_terminal_is_ignored_under_nohup(tmp_path: Path, endless: Endless) -> None:
    script = "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); from mqttscope.cli import run; run()"
    with running(tmp_path, "inspect", endless.path, script=script) as process:
        endless.wait(process)
        process.send_signal(signal.SIGHUP)
        until(lambda: is_waiting(process), "the end of what SIGHUP does")
        assert asked_to_end(process, signal.SIGTERM) == 143


REPORT = """if True:
    import asyncio, os, signal, sys
    from mqttscope.cli import main
    from mqttscope.cli.output import Output

    number, times = int(sys.argv[1]), int(sys.argv[2])

    async def run():
        with main.endings(print):
            pass

    main.install()
    asyncio.run(run())
    with main.reporting():
        sink = Output(immediate=True)
        sink.write(b"first\\n")
        for _ in range(times):
            os.kill(os.getpid(), number)
        sink.write(b"last\\n")
"""


@pytest.mark.parametrize("number", some(CODES, 3))
def test_a_report_that_has_begun_is_written_to_its_end(number: int) -> None:
    """The loop of the run has ended by itself; loops that close set Python's own handlers."""
    once, twice = (python(REPORT, str(int(number)), times) for times in ("1", "2"))

    assert (once.returncode, once.stdout, once.stderr) == (0, "first\nlast\n", "")
    assert twice.returncode != 0
    assert twice.stdout == "first\n"


@pytest.mark.parametrize("number", some(CODES, 3))
def test_a_signal_after_all_is_written_shows_no_traceback(number: int) -> None:
    script = f"""if True:
        import atexit, os, signal, sys
        from mqttscope.cli import run

        atexit.register(lambda: os.kill(os.getpid(), {int(number)}))
        sys.argv[1:] = ["rules", "--format", "json"]
        run()
    """
    done = python(script)

    assert (done.returncode, done.stderr) == (-number, "")
    assert json.loads(done.stdout)


LOST = """if True:
    import os, sys, threading
    from mqttscope.cli import main

    number = int(sys.argv[1])

    class Asking:
        def __del__(self):
            os.kill(os.getpid(), number)

    class Failing:
        def __del__(self):
            raise ValueError("of a destructor")

    main.install()
    Failing()
    try:
        Asking()
        threading.Event().wait(20)
    except KeyboardInterrupt as interrupt:
        print(main._interrupted(interrupt))
"""
"""Python discards what is raised in a destructor."""


@pytest.mark.parametrize("number", some(CODES, 3))
def test_a_signal_is_not_lost_where_python_discards_exceptions(number: int) -> None:
    done = python(LOST, str(int(number)))

    assert (done.returncode, done.stdout) == (0, f"{CODES[signal.Signals(number)]}\n")
    assert done.stderr.startswith("Exception ignored in: <function Failing.__del__ ")
    assert "KeyboardInterrupt" not in done.stderr


def test_the_end_of_the_terminal_ends_no_run_under_nohup() -> None:
    script = """if True:
        import asyncio, os, signal
        from mqttscope.cli import main

        async def run():
            with main.endings(lambda number: print(signal.Signals(number).name)):
                for number in (signal.SIGHUP, signal.SIGTERM):
                    os.kill(os.getpid(), number)
                await asyncio.sleep(0.1)

        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        asyncio.run(run())
    """
    done = python(script)

    assert (done.returncode, done.stdout, done.stderr) == (0, "SIGTERM\n", "")


def test_a_rule_that_takes_minutes_does_not_matter(tmp_path: Path) -> None:
    """The interpreter hears of the signal in the middle of a packet."""
    marker = tmp_path / "busy"
    with running(tmp_path, "lint", "--no-config", capture("v311-qos"), marker, script=BUSY) as process:
        until(marker.exists, "the first event")
        assert asked_to_end(process, signal.SIGTERM) == 143
    assert b"nothing to judge" in (tmp_path / "out").read_bytes()


def test_nothing_is_limited_where_the_process_is_somebody_elses() -> None:
    program.limit_ending(signal.SIGTERM)
    assert program._limits == []


def test_what_is_raised() -> None:
    assert type(program.interruption(signal.SIGINT)) is KeyboardInterrupt
    raised = program.interruption(signal.SIGTERM)
    assert isinstance(raised, program.Terminated)
    assert raised.exit_code == 143


def test_a_handler_gets_signals_meanwhile_and_the_one_before_is_back_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    got: list[int] = []
    with program.handling(lambda number, frame: got.append(number), (signal.SIGTERM,)) as known:
        signal.raise_signal(signal.SIGTERM)
    assert (got, known) == ([signal.SIGTERM], {signal.SIGTERM: before})
    assert signal.getsignal(signal.SIGTERM) is before


def test_another_thread_leaves_handlers_as_they_are() -> None:
    documents: list[dict[int, object]] = []

    def work() -> None:
        with program.handling(lambda number, frame: None) as before:
            documents.append(before)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert documents == [{}]

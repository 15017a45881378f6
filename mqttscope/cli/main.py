"""The command group and what holds for every command: lazy loading, exit codes, and ends in time after a signal."""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import click

from mqttscope import __version__
from mqttscope.system import signals

COMMANDS: dict[str, tuple[str, str]] = {
    "triage": ("mqttscope.cli.triage:command", "Show what a capture holds, what broke, and what to type next."),
    "inspect": ("mqttscope.cli.inspect:command", "Show the MQTT packets of captures."),
    "browse": ("mqttscope.cli.browse:command", "Look through captures in an interactive screen."),
    "sniff": ("mqttscope.cli.sniff:command", "Show the MQTT packets of interfaces as they come."),
    "decode": ("mqttscope.cli.decode:command", "Decode bytes given in hexadecimal."),
    "lint": ("mqttscope.cli.lint:command", "Find violations of the MQTT specification in captures."),
    "rules": ("mqttscope.cli.rules:command", "List and explain the rules of lint, and what they cover."),
    "explain": ("mqttscope.cli.explain:command", "Explain why connections ended, and why messages did not arrive."),
    "stats": ("mqttscope.cli.stats:command", "Count and measure the traffic of captures."),
    "redact": ("mqttscope.cli.redact:command", "Write a capture without what is private in it."),
    "compare": ("mqttscope.cli.compare:command", "Compare two captures by meaning."),
    "replay": ("mqttscope.cli.live:replay", "Play recorded connections against a broker."),
    "serve": ("mqttscope.cli.live:serve", "Play the broker of recorded connections to devices."),
    "mutate": ("mqttscope.cli.live:mutate", "Send mutated flows to a broker, and judge its answers."),
    "proxy": ("mqttscope.cli.live:proxy", "Forward MQTT connections, record and lint them."),
    "pipeline": ("mqttscope.cli.pipeline:command", "Build tables from collections of captures."),
}
"""Command name -> its place in the notation of entry points, and its line in the overview."""

DEFAULT = "triage"
"""The command for a command line that begins with a capture."""
_CAPTURE = re.compile(r"\.(?:pcap|pcapng|cap|dmp|ntar)[-_.\w]*\Z", re.IGNORECASE)
"""How captures are called, rotated and compressed ones too."""

COMPLETE = "_MQTTSCOPE_COMPLETE"
"""Set by the shell when it asks what could complete a command line."""

EXIT_CLEAN = 0
EXIT_FINDINGS = 1
EXIT_USAGE = 2
EXIT_UNREADABLE = 3
EXIT_FAILED = 3
"""The same number for commands that read no captures: what they are for could not be done."""
EXIT_INTERRUPTED = 130
LIMIT_S = 1.8
"""What a command has for its reports after a signal; then the process ends, whatever holds it up."""
UNWRITTEN = "ended by the signal before everything was written"
"""Message on standard error when `LIMIT_S` ends the process."""
ENDINGS = tuple(signals("SIGINT", "SIGTERM", "SIGHUP"))
"""Ctrl-C, what a service manager sends, and the end of the terminal."""
_limits: list[threading.Timer] = []
_leaving: list[Callable[[], str | None]] = []
_whole_process = False
"""The process is this program alone, and may be ended; a test that runs a command is not."""


class LazyGroup(click.Group):
    """Imports a command's module when the command is used; the overview needs none of them.

    ``table`` is of the form of `COMMANDS`.
    """

    unknown = "No such command '{}'"
    """What is said of a word that is not a command."""

    def __init__(self, *arguments: Any, table: Mapping[str, tuple[str, str]], **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, loaded now."""
        row = self.table.get(cmd_name)
        if row is None:
            return None
        module, _, name = row[0].partition(":")
        found = getattr(importlib.import_module(module), name)
        assert isinstance(found, click.Command)
        # As below the group: click keeps the help option that it makes first, also for a command on its own.
        found.context_settings = {**self.context_settings, **found.context_settings}
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but a name that is not known brings those to mind that are like it."""
        if args and args[0] not in self.table and not args[0].startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            name = args[0] if args[0].isprintable() else repr(args[0])[1:-1]
            close = get_close_matches(args[0].lower(), self.table, 3, 0.6)
            hint = f" Did you mean {' or '.join(close)}?" if close else f" There are {', '.join(self.table)}."
            ctx.fail(f"{self.unknown.format(name[:100])}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.table.items()])


class CaptureGroup(LazyGroup):
    """The program: a capture in the place of a command is looked at by `DEFAULT`."""

    unknown = "'{}' is neither a command nor a file"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options that only `DEFAULT` has may come before the capture."""
        name = args[0].partition("=")[0] if args else ""
        if name.startswith("-") and name not in ("-", "--") and not _is_option(self, ctx, name):
            command = self.get_command(ctx, DEFAULT)
            if command is not None and _is_option(command, ctx, name):
                args = [DEFAULT, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command; a command goes before a file of its name."""
        if args and args[0] not in self.table and is_capture(args[0]):
            # What begins like an option came after `--`.
            return super().resolve_command(ctx, [DEFAULT, *(["--"] if args[0][0] == "-" != args[0] else []), *args])
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Commands and files."""
        from click.shell_completion import CompletionItem

        files = [] if incomplete.startswith("-") else [CompletionItem(incomplete, type="file")]
        return [*super().shell_complete(ctx, incomplete), *files]


def _is_option(command: click.Command, context: click.Context, name: str) -> bool:
    return any(name in (*option.opts, *option.secondary_opts) for option in command.get_params(context))


def is_capture(word: str) -> bool:
    """Whether a word means a capture: standard input, what exists, a pattern that matches, or a name like one."""
    if word == "-" or (word and os.path.lexists(word)):
        return True
    if any(mark in word for mark in "*?["):
        from glob import glob

        return bool(glob(word)) or bool(_CAPTURE.search(word))
    return any(sep in word for sep in (os.sep, os.altsep) if sep) or bool(_CAPTURE.search(word))


@click.group(
    cls=CaptureGroup,
    table=COMMANDS,
    subcommand_metavar="COMMAND|CAPTURE...",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  mqttscope capture.pcapng
  mqttscope inspect capture.pcapng
  mqttscope decode 32 07 00 03 61 2f 62 00 0a

Exit codes: 0 clean, 1 findings, 2 usage or output that cannot be written, 3 input unreadable or truncated (results
so far are printed).
""",
)
@click.version_option(__version__, "-V", "--version", message="mqttscope %(version)s")
def group() -> None:
    """See, check and replay MQTT traffic as it really crossed the wire.

    Begin with mqttscope CAPTURE: what a capture holds, what broke in it, and what to type next.
    """


def main() -> None:
    """Run the group; ends quietly on a broken pipe, on Ctrl-C and on SIGTERM."""
    # Millions of small objects die young and in order: collecting cycles often only costs time.
    gc.set_threshold(500_000, 20, 50)
    gc.freeze()
    try:
        code = _run()
        if sys.stdout is not None:
            sys.stdout.flush()
        gc.freeze()  # what is left ends with the process: nobody has to look for cycles in it
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        _complain(shown.getvalue().rstrip("\n"))
        code = error.exit_code
    except click.Abort:
        # Ctrl-C or the end of input where a question was asked.
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        code = EXIT_CLEAN
        _silence_stdout()
    except OSError as error:
        if os.environ.get("MQTTSCOPE_TRACEBACK"):
            raise
        code = _failed(error)
    except KeyboardInterrupt as interrupt:
        code = _interrupted(interrupt)
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            # Python packs it when it comes while a class is made (`__set_name__`), as it does during imports.
            sys.exit(_interrupted(error.__cause__))
        if os.environ.get("MQTTSCOPE_TRACEBACK"):
            raise
        _complain(
            f"mqttscope: internal error: {type(error).__name__}: {error}\n"
            "This is a bug in mqttscope. MQTTSCOPE_TRACEBACK=1 shows where it happened; please report it with that."
        )
        code = EXIT_UNREADABLE
    sys.exit(code if isinstance(code, int) else EXIT_CLEAN)


def _failed(error: OSError) -> int:
    """Report what could not be read or written; returns the exit code."""
    name, code = error.filename, EXIT_USAGE
    if name is None and (_stdout_fails() or _was_echoed(error)):
        name = "standard output"
        _silence_stdout()
    elif name is None:
        # Of an open file that says nothing of itself: only who opened it could name it.
        code = EXIT_FAILED
    told = error.strerror or str(error)
    plain = told if name is None else f"{os.fsdecode(name) if isinstance(name, bytes) else name}: {told}"
    _complain(f"mqttscope: {plain}")
    return code


def _complain(told: str) -> None:
    """Lines on standard error, escaped: values of options and paths may be untrusted text."""
    from mqttscope.secrets.addresses import without_secrets

    click.echo("\n".join(printable(without_secrets(line)) for line in told.split("\n")), err=True)


def printable(told: str) -> str:
    """A text with escapes for what a terminal does not show, or would obey."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in told)


def _stdout_fails() -> bool:
    """Whether standard output takes nothing: what it did not take waits to be written, and fails again."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        return True
    return False


def _was_echoed(error: OSError) -> bool:
    """Whether click was writing to standard output: where Python does not buffer that, nothing waits."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return place is not None and place.tb_frame.f_code is click.echo.__code__ and not place.tb_frame.f_locals["err"]


def _interrupted(interrupt: KeyboardInterrupt) -> int:
    if isinstance(interrupt, Terminated):
        return interrupt.exit_code
    if sys.stderr is not None and sys.stderr.isatty():
        # The terminal shows ^C, and the prompt is to come below it.
        sys.stderr.write("\n")
    return EXIT_INTERRUPTED


def _run() -> object:
    if COMPLETE in os.environ:
        from click.shell_completion import add_completion_class

        from mqttscope.cli.completing import BashComplete

        add_completion_class(BashComplete)
        group.main(prog_name="mqttscope", complete_var=COMPLETE)
    # Not `group.main`: that turns a broken pipe into exit code 1, which stands for findings here.
    try:
        with group.make_context("mqttscope", sys.argv[1:]) as context:
            return group.invoke(context)
    except click.exceptions.Exit as left:
        return left.exit_code


def _silence_stdout() -> None:
    # Python flushes stdout once more at exit; with the reader gone that would print an error.
    if sys.stdout is None:
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Terminated(KeyboardInterrupt):
    """A service manager or the end of the terminal asks the command to end: it does so as with Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number


def limit_ending(number: int, code: int | None = None) -> None:
    """Have the process end in `LIMIT_S`: the reader of its output may not read, a packet may take a rule minutes.

    ``code``: exit code of that end; 128 + ``number`` by default.  Commands that a signal ends in the usual way, with a
    report, pass `EXIT_FAILED`: their report is incomplete.
    """
    if _limits or not _whole_process:
        return
    timer = threading.Timer(LIMIT_S, _leave, (128 + number if code is None else code,))
    timer.daemon = True
    _limits.append(timer)
    timer.start()


@contextmanager
def reporting() -> Iterator[None]:
    """While a report is made and written, a first signal limits the time for it (`LIMIT_S`); a second one raises."""
    if not _whole_process or threading.current_thread() is not threading.main_thread():
        yield
        return
    for number in ENDINGS:
        if not _is_ignored(number):
            signal.signal(number, _limit)
    try:
        yield
    finally:
        for number in filter(limited, ENDINGS):
            signal.signal(number, _raise)


@contextmanager
def leaving(do: Callable[[], str | None]) -> Iterator[None]:
    """Have something done where `limit_ending` ends the process: what it started ends with it.

    ``do`` is called in another thread and must not wait; it may return what is said in place of the usual sentence.
    """
    _leaving.append(do)
    try:
        yield
    finally:
        _leaving.remove(do)


def interruption(number: int) -> KeyboardInterrupt:
    return KeyboardInterrupt() if number == signal.SIGINT else Terminated(number)


def install() -> None:
    """Let signals that end a program raise, and limit the time that is left; for the start of the process.

    Commands may have handlers of their own, with `limit_ending` in them.
    """
    global _whole_process
    _whole_process = True
    for number in ENDINGS[1:]:
        # nohup has said that the end of the terminal is none of the program's business.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _raise)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _raise)
    sys.unraisablehook = _raise_again


def uninstall() -> None:
    """Give the signals back to the system, which ends the process at once."""
    for number in ENDINGS:
        if not _is_ignored(number):
            signal.signal(number, signal.SIG_DFL)


def _is_ignored(number: int) -> bool:
    """Whether the program was started to ignore a signal, as nohup does with the end of the terminal.

    SIGINT counts all the same: shells make background jobs of scripts ignore it, but whoever sends it to one means it.
    """
    return number not in (signal.SIGINT, signal.SIGTERM) and signal.getsignal(number) is signal.SIG_IGN


@contextmanager
def handling(handler: Callable[[int, Any], None], numbers: Iterable[int] = ENDINGS) -> Iterator[dict[int, Any]]:
    """Give signals to a handler meanwhile; gives the handlers before.

    Only the main thread gets signals: in others nothing happens.
    """
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield before
    finally:
        for number, known in before.items():
            signal.signal(number, known)


@contextmanager
def endings(call: Callable[[int], None], times: int = 1) -> Iterator[None]:
    """Have the running event loop call this for the first ``times`` signals that end a program; the next one raises.

    A signal that comes later, after the run has ended by itself, leaves `LIMIT_S` for what is reported of it.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    left = times

    def hand_over(number: int, frame: FrameType | None) -> None:
        nonlocal left
        if left:
            left -= 1
            loop.call_soon_threadsafe(call, number)
        else:
            _raise(number, frame)

    # Not the loop's own handlers: it sets those of Python when it closes, and half a report would be all there is.
    before = {number: signal.getsignal(number) for number in ENDINGS}
    for number in before:
        if not _is_ignored(number):
            signal.signal(number, hand_over)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is hand_over:
                signal.signal(number, _limit if _whole_process else handler)


def leave(code: object) -> None:
    """End the process where a signal asked for it, with all that is to be written written.

    Python would first take apart all that is in memory, which takes seconds where that is much.
    """
    if not _limits:
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            if stream is not None:
                stream.flush()
    atexit._run_exitfuncs()
    os._exit(code if isinstance(code, int) else 0)


def installed(number: int) -> bool:
    """Whether a signal raises because of `install`."""
    return signal.getsignal(number) is _raise


def limited(number: int) -> bool:
    """Whether a signal only limits the time of a report, because of `reporting`."""
    return signal.getsignal(number) is _limit


def _limit(number: int, frame: FrameType | None) -> None:
    signal.signal(number, _raise)
    limit_ending(number, EXIT_FAILED)


def _raise(number: int, frame: FrameType | None) -> None:
    limit_ending(number)
    raise interruption(number)


def _leave(code: int) -> None:
    said = UNWRITTEN
    for do in _leaving[::-1]:
        with suppress(Exception):
            said = do() or said
    with suppress(OSError):
        os.write(2, f"mqttscope: {said}\n".encode())
    os._exit(code)


def _raise_again(lost: sys.UnraisableHookArgs) -> None:
    """Raise a signal's exception again that Python discarded, as it does in destructors and weakref callbacks.

    The import system has such callbacks, and commands import modules late.
    """
    error = lost.exc_value
    if not isinstance(error, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return

    def raise_outside(frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code is not _raise_again.__code__:
            sys.setprofile(None)
            raise error

    # Python calls this at the next call or return, which is the end of this function or later.
    sys.setprofile(raise_outside)

"""The command group and the behaviour of every command: lazy loading, exit codes, a bounded end after a signal."""

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
    "triage": ("mqttscope.cli.triage:command", "Show what a capture contains, what broke, and what to run next."),
    "inspect": ("mqttscope.cli.inspect:command", "Show the MQTT packets of captures."),
    "browse": ("mqttscope.cli.browse:command", "Look through captures in an interactive screen."),
    "sniff": ("mqttscope.cli.sniff:command", "Capture from network interfaces and show the MQTT packets."),
    "decode": ("mqttscope.cli.decode:command", "Decode hexadecimal bytes from a log or a bug report."),
    "lint": ("mqttscope.cli.lint:command", "Find violations of the MQTT specification in captures."),
    "rules": ("mqttscope.cli.rules:command", "List and explain the rules of the linter."),
    "explain": ("mqttscope.cli.explain:command", "Explain why connections ended, and why messages did not arrive."),
    "stats": ("mqttscope.cli.stats:command", "Count and measure the traffic of captures."),
    "redact": ("mqttscope.cli.redact:command", "Write a copy of captures that can be shared safely."),
    "compare": ("mqttscope.cli.compare:command", "Compare two captures by meaning."),
    "replay": ("mqttscope.cli.live:replay", "Play recorded connections against a broker."),
    "serve": ("mqttscope.cli.live:serve", "Stand in for the recorded broker."),
    "mutate": ("mqttscope.cli.live:mutate", "Send mutated flows to a broker, and judge its answers."),
    "proxy": ("mqttscope.cli.live:proxy", "Forward MQTT connections, and record and lint them."),
    "pipeline": ("mqttscope.cli.pipeline:command", "Build tables from collections of captures."),
}
"""Command name -> entry point and line in the overview."""

DEFAULT = "triage"
"""The command for a command line that begins with a capture."""
_CAPTURE = re.compile(r"\.(?:pcap|pcapng|cap|dmp|ntar)[-_.\w]*\Z", re.IGNORECASE)
"""File names of captures, including rotated and compressed ones."""

COMPLETE = "_MQTTSCOPE_COMPLETE"
"""Environment variable that the shell sets to request completions."""

EXIT_CLEAN = 0
EXIT_FINDINGS = 1
EXIT_USAGE = 2
EXIT_UNREADABLE = 3
EXIT_FAILED = 3
"""Exit code of commands without captures when they could not do their work."""
EXIT_INTERRUPTED = 130
LIMIT_S = 1.8
"""Maximum time for reports after a signal; then the process ends in any case."""
UNWRITTEN = "ended by the signal before everything was written"
"""Message on standard error when `LIMIT_S` ends the process."""
ENDINGS = tuple(signals("SIGINT", "SIGTERM", "SIGHUP"))
"""Signals of Ctrl-C, of a service manager and of a closed terminal."""
_limits: list[threading.Timer] = []
_leaving: list[Callable[[], str | None]] = []
_whole_process = False
"""Whether this program may end the process; false in a test that runs a command."""


class LazyGroup(click.Group):
    """Imports a command's module only when the command is used; the overview does not need it.

    ``table`` has the form of `COMMANDS`.
    """

    unknown = "No such command '{}'"
    """Message for a word that is not a command."""

    def __init__(self, *arguments: Any, table: Mapping[str, tuple[str, str]], **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command with this name."""
        row = self.table.get(cmd_name)
        if row is None:
            return None
        module, _, name = row[0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        # click reuses the first help option that it creates, so it needs the settings of the group.
        command.context_settings = {**self.context_settings, **command.context_settings}
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command like click, and suggest similar names for an unknown one."""
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
    """The program; a capture in place of a command runs `DEFAULT`."""

    unknown = "'{}' is neither a command nor a file"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Accept options of `DEFAULT` before the capture."""
        name = args[0].partition("=")[0] if args else ""
        if name.startswith("-") and name not in ("-", "--") and not _is_option(self, ctx, name):
            command = self.get_command(ctx, DEFAULT)
            if command is not None and _is_option(command, ctx, name):
                args = [DEFAULT, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command, or run `DEFAULT` on a capture; a command precedes a file with its name."""
        if args and args[0] not in self.table and is_capture(args[0]):
            # A name that starts like an option followed `--`.
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
    """Whether a word means a capture: ``-``, an existing path, a matching pattern, or the name of a capture."""
    if word == "-" or (word and os.path.lexists(word)):
        return True
    if any(mark in word for mark in "*?["):
        from glob import glob

        return bool(glob(word)) or bool(_CAPTURE.search(word))
    return any(sep in word for sep in (os.sep, os.altsep) if sep) or bool(_CAPTURE.search(word))


def _show_version(context: click.Context, option: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        from mqttscope.kernel import status

        click.echo(f"mqttscope {__version__}\n{status()}")
        context.exit()


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

Exit codes: 0 clean, 1 findings, 2 wrong usage or unwritable output, 3 unreadable or truncated input (partial results
are printed).
""",
)
@click.option(
    "-V", "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version,
    help="Show the version and exit.",
)  # fmt: skip
def group() -> None:
    """See, check and replay MQTT traffic as it really crossed the wire.

    Start with mqttscope CAPTURE: it shows what the capture contains, what broke, and what to run next.
    """


def main() -> None:
    """Run the group; a broken pipe, Ctrl-C and SIGTERM end it without a traceback."""
    # Millions of small objects die young without cycles: frequent collections only cost time.
    gc.set_threshold(500_000, 20, 50)
    gc.freeze()
    try:
        code = _run()
        if sys.stdout is not None:
            sys.stdout.flush()
        gc.freeze()  # remaining objects end with the process: no search for cycles at exit
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        _complain(shown.getvalue().rstrip("\n"))
        code = error.exit_code
    except click.Abort:
        # Ctrl-C or end of input at a prompt.
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
            # Python wraps an interrupt during class creation (`__set_name__`), which happens during imports.
            sys.exit(_interrupted(error.__cause__))
        if os.environ.get("MQTTSCOPE_TRACEBACK"):
            raise
        _complain(
            f"mqttscope: internal error: {type(error).__name__}: {error}\n"
            "This is a bug in mqttscope. Please report it with the traceback that MQTTSCOPE_TRACEBACK=1 shows."
        )
        code = EXIT_UNREADABLE
    sys.exit(code if isinstance(code, int) else EXIT_CLEAN)


def _failed(error: OSError) -> int:
    """Report the file that could not be read or written; returns the exit code."""
    name, code = error.filename, EXIT_USAGE
    if name is None and (_stdout_fails() or _was_echoed(error)):
        name = "standard output"
        _silence_stdout()
    elif name is None:
        # The error names no file; only its opener could.
        code = EXIT_FAILED
    reason = error.strerror or str(error)
    plain = reason if name is None else f"{os.fsdecode(name) if isinstance(name, bytes) else name}: {reason}"
    _complain(f"mqttscope: {plain}")
    return code


def _complain(text: str) -> None:
    """Print lines on standard error, escaped: option values and paths may be untrusted text."""
    from mqttscope.secrets.addresses import without_secrets

    click.echo("\n".join(printable(without_secrets(line)) for line in text.split("\n")), err=True)


def printable(text: str) -> str:
    """A text with escapes for control characters and other unprintable ones."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _stdout_fails() -> bool:
    """Whether standard output fails: its buffered rest fails again when flushed."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        return True
    return False


def _was_echoed(error: OSError) -> bool:
    """Whether click was writing to standard output, which matters when that is unbuffered."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return place is not None and place.tb_frame.f_code is click.echo.__code__ and not place.tb_frame.f_locals["err"]


def _interrupted(interrupt: KeyboardInterrupt) -> int:
    if isinstance(interrupt, Terminated):
        return interrupt.exit_code
    if sys.stderr is not None and sys.stderr.isatty():
        # The terminal shows ^C; the prompt belongs below it.
        sys.stderr.write("\n")
    return EXIT_INTERRUPTED


def _run() -> object:
    if COMPLETE in os.environ:
        from click.shell_completion import add_completion_class

        from mqttscope.cli.completing import BashCompletion

        add_completion_class(BashCompletion)
        group.main(prog_name="mqttscope", complete_var=COMPLETE)
    # Not `group.main`: it turns a broken pipe into exit code 1, which means findings here.
    try:
        with group.make_context("mqttscope", sys.argv[1:]) as context:
            return group.invoke(context)
    except click.exceptions.Exit as left:
        return left.exit_code


def _silence_stdout() -> None:
    # Python flushes stdout again at exit, which would print an error without a reader.
    if sys.stdout is None:
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Terminated(KeyboardInterrupt):
    """A service manager or a closed terminal ended the command, which reacts as to Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number


def limit_ending(number: int, code: int | None = None) -> None:
    """End the process after `LIMIT_S`: the reader of its output may be blocked, a rule may take minutes for a packet.

    ``code``: exit code in that case; 128 + ``number`` by default.  Commands that normally end with a report after a
    signal pass `EXIT_FAILED`: the report is incomplete.
    """
    if _limits or not _whole_process:
        return
    timer = threading.Timer(LIMIT_S, _leave, (128 + number if code is None else code,))
    timer.daemon = True
    _limits.append(timer)
    timer.start()


@contextmanager
def reporting() -> Iterator[None]:
    """While a report is written, the first signal limits its time to `LIMIT_S`; the second signal raises."""
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
    """Run a cleanup if `limit_ending` ends the process, such as ending child processes.

    ``do`` is called in another thread and must not block; it may return a message that replaces `UNWRITTEN`.
    """
    _leaving.append(do)
    try:
        yield
    finally:
        _leaving.remove(do)


def interruption(number: int) -> KeyboardInterrupt:
    return KeyboardInterrupt() if number == signal.SIGINT else Terminated(number)


def install() -> None:
    """Make ending signals raise and limit the remaining time; called when the process starts.

    Handlers of commands call `limit_ending` themselves.
    """
    global _whole_process
    _whole_process = True
    for number in ENDINGS[1:]:
        # nohup ignores SIGHUP on purpose.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _raise)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _raise)
    sys.unraisablehook = _raise_again


def uninstall() -> None:
    """Restore the default handlers, which end the process at once."""
    for number in ENDINGS:
        if not _is_ignored(number):
            signal.signal(number, signal.SIG_DFL)


def _is_ignored(number: int) -> bool:
    """Whether the program was started with a signal ignored, as nohup does with SIGHUP.

    SIGINT is never ignored: shells make background jobs ignore it, but a SIGINT sent to one is meant for it.
    """
    return number not in (signal.SIGINT, signal.SIGTERM) and signal.getsignal(number) is signal.SIG_IGN


@contextmanager
def handling(handler: Callable[[int, Any], None], numbers: Iterable[int] = ENDINGS) -> Iterator[dict[int, Any]]:
    """Install a handler for signals for the duration of the context; yields the previous handlers.

    Python handles signals only in the main thread: in other threads this has no effect.
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
    """Have the running event loop call a function for the first ``times`` ending signals; the next one raises.

    A signal after the end of the run leaves `LIMIT_S` for the report.
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

    # Not the loop's own handlers: closing the loop restores Python's, and a signal would cut the report in half.
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
    """Flush all output and end the process if a signal arrived.

    A normal exit would first free all memory, which can take seconds.
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
    """Whether a signal only limits the time for a report (`reporting`)."""
    return signal.getsignal(number) is _limit


def _limit(number: int, frame: FrameType | None) -> None:
    signal.signal(number, _raise)
    limit_ending(number, EXIT_FAILED)


def _raise(number: int, frame: FrameType | None) -> None:
    limit_ending(number)
    raise interruption(number)


def _leave(code: int) -> None:
    message = UNWRITTEN
    for do in _leaving[::-1]:
        with suppress(Exception):
            message = do() or message
    with suppress(OSError):
        os.write(2, f"mqttscope: {message}\n".encode())
    os._exit(code)


def _raise_again(lost: sys.UnraisableHookArgs) -> None:
    """Raise a signal's exception again if Python discarded it in a destructor or weakref callback.

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

    # Python calls this at the next call or return: at the end of this function or later.
    sys.setprofile(raise_outside)

"""Output of commands: files and standard output for results, standard error for warnings and progress.

`Output` and `FileSink` are sinks of reports; `CaptureWatch` passes events on, reports damaged captures and shows
progress (`ReadProgress`).  On a terminal, output is coloured and each line is flushed.

A command must not write to a file that it reads, and its outputs must be different files: `refuse_inputs` and
`refuse_name` check that before anything is opened.
"""

from __future__ import annotations

import importlib.util
import os
import select
import shutil
import signal
import stat
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

import click

from mqttscope.capture.files import find_captures, is_source
from mqttscope.capture.write import open_shared, opener
from mqttscope.cli.main import ENDINGS, EXIT_USAGE, installed, interruption, limit_ending, limited, printable
from mqttscope.errors import MqttscopeError
from mqttscope.events import CaptureRemark, ClockStep, Event, PacketEvent
from mqttscope.mqtt.view import PAYLOAD_LIMIT, utf8
from mqttscope.mqtt.wire import counted
from mqttscope.net.frame import CaptureError
from mqttscope.report.base import View
from mqttscope.secrets.addresses import without_secrets

if TYPE_CHECKING:
    from mqttscope.api.reading import CaptureReading

BUFFER_BYTES = 1 << 16
"""Maximum bytes in the buffer."""
PROGRESS_AFTER_S = 1.0
PROGRESS_EVERY_S = 0.2
READ_EVERY_S = 0.1
"""Minimum interval between updates of the line about the progress of reading."""
PROGRESS_EVENTS = 2_000
"""Number of events between two looks at the clock."""


class Progress:
    """One line on standard error with the progress of some work: only on a terminal, and after a second.

    `Output` and `warn` clear the line before they write to the terminal.
    """

    _line: ClassVar[bool] = False
    """Whether the terminal shows such a line."""

    def __init__(self) -> None:
        self.enabled = _is_terminal(sys.stderr)
        self._started = self._shown = time.monotonic() if self.enabled else 0.0

    def due(self, count: int) -> bool:
        """Whether it is time for an update; reads the clock once per `PROGRESS_EVENTS` calls."""
        if not self.enabled or count % PROGRESS_EVENTS:
            return False
        now = time.monotonic()
        return now - self._started > PROGRESS_AFTER_S and now - self._shown > PROGRESS_EVERY_S

    def show(self, text: str) -> None:
        """Replace the line."""
        self._shown = time.monotonic()
        width = shutil.get_terminal_size().columns
        sys.stderr.write(f"\r{printable(text)[: max(1, width - 1)]}\x1b[K")
        sys.stderr.flush()
        Progress._line = True

    def show_now(self, text: str) -> None:
        """Show a line at once, on a terminal."""
        if self.enabled:
            self.show(text)

    @staticmethod
    def clear() -> None:
        """Remove the line, if there is one."""
        if Progress._line:
            Progress._line = False
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


class ReadProgress:
    """Progress of reading captures, as a line of `Progress`: share of all bytes, rate, and time left.

    Readers report the bytes read (`capture.open_capture`) once per several thousand packets.
    """

    def __init__(self) -> None:
        self._progress = Progress()
        self.enabled = self._progress.enabled
        self._captures: list[str] = []
        self._total: int | None = None
        self.read = 0
        """Number of bytes read."""
        self._started = time.monotonic()
        self._due = self._started + PROGRESS_AFTER_S

    def follow(self, captures: Sequence[str]) -> None:
        self._captures += captures
        self._total = None

    def seen(self, count: int) -> None:
        """Add a number of bytes read."""
        self.read += count
        now = time.monotonic()
        if now >= self._due:
            self._due = now + READ_EVERY_S
            self._progress.show(self.text(now - self._started))

    def text(self, seconds: float) -> str:
        """Text of the line after some seconds."""
        if self._total is None:
            self._total = total_size(self._captures)
        rate = self.read / max(seconds, 1e-9)
        if not 0 < self.read <= self._total:
            # Standard input, or captures that still grow.
            return f"{sized(self.read)} read, {sized(rate)}/s"
        left = (self._total - self.read) / rate
        part = f"{100 * self.read // self._total} %"
        return f"{part} of {sized(self._total)}, {sized(rate)}/s, {lasting(left)} left"

    def clear(self) -> None:
        self._progress.clear()


def total_size(captures: Sequence[str]) -> int:
    """Total bytes of the captures in names, patterns and directories; 0 if the size of one is unknown."""
    total = 0
    for name in find_captures(captures):
        if not isinstance(name, str):
            return 0
        try:
            total += os.path.getsize(name)
        except (OSError, ValueError):
            return 0
    return total


def sized(count: float) -> str:
    """A number of bytes with a fitting unit: ``2.9 GB``."""
    for unit in ("B", "kB", "MB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 99.95 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"


def lasting(seconds: float) -> str:
    """Format a remaining time: ``0:07``, ``1:02:03``."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours:,}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


class CannotWriteError(MqttscopeError, click.ClickException):
    """The output cannot be written; a usage error, because the command line has to change."""

    exit_code = EXIT_USAGE


class Output:
    """Standard output as a binary sink.

    Lines are buffered unless a reader waits for each of them (a terminal, or input that is still being produced).
    Ctrl-C waits for a write in progress, so that the last line is complete; a second Ctrl-C does not wait.
    Without a reader, the command ends with a BrokenPipeError, unless it ``continues``: then further output is
    dropped.
    """

    def __init__(self, *, immediate: bool = False, continues: bool = False) -> None:
        if sys.stdout is None:
            raise CannotWriteError("standard output is closed")
        # Unbuffered, so that it is always known how much was written.
        self.stream: Any = getattr(sys.stdout.buffer, "raw", sys.stdout.buffer)
        self.immediate = immediate
        self.continues = continues
        self._gone = False
        self._parts: list[bytes] = []
        self._held = 0
        self._writing = False
        self._interrupted = 0
        """Signal that arrived during a write, or 0."""
        if threading.current_thread() is threading.main_thread():
            for number in ENDINGS:
                if (number == signal.SIGINT and not limited(number)) or installed(number):
                    signal.signal(number, self._interrupt)

    def write(self, data: bytes) -> None:
        """Write bytes; BrokenPipeError without a reader, unless the command continues."""
        if self._gone:
            return
        self._parts.append(data)
        self._held += len(data)
        if self.immediate or self._held > BUFFER_BYTES:
            self.flush()

    def write_all(self, data: bytes) -> None:
        self.write(data)
        self.flush()

    def flush(self) -> None:
        """Write the buffer."""
        if not self._parts:
            return
        Progress.clear()
        self._writing = True
        try:
            left = memoryview(b"".join(self._parts))
            self._parts, self._held = [], 0
            while left:
                # A full non-blocking pipe accepts nothing: wait for its reader.
                left = left[self.stream.write(left) or self._wait() :]
            self.stream.flush()
        except BrokenPipeError:
            if not self.continues:
                raise
            self._gone = True
        except OSError as error:
            raise CannotWriteError(f"cannot write to standard output: {error.strerror or error}") from None
        finally:
            self._writing = False
        if self._interrupted:
            number, self._interrupted = self._interrupted, 0
            raise interruption(number)

    def _wait(self) -> int:
        select.select([], [self.stream], [], 1)
        return 0

    def _interrupt(self, number: int, frame: object) -> None:
        limit_ending(number)
        if self._writing and not self._interrupted:
            self._interrupted = number
        else:
            raise interruption(number)


def awaited(captures: Sequence[str]) -> bool:
    """Whether a reader waits for each line: output to a terminal, or input that may still grow."""
    if _is_terminal(sys.stdout):
        return True
    if "-" not in captures or sys.stdin is None:
        return False
    try:
        return not stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode)
    except (OSError, ValueError):
        return True


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def in_terminal() -> bool:
    """Whether screens can be shown: they go to standard error, and keys come from standard input."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def require_screens(name: str) -> None:
    """`CommandFailedError` if this command or option has no terminal, or no package to show screens."""
    from mqttscope.cli.errors import CommandFailedError
    from mqttscope.installation import extra_command

    if not in_terminal():
        raise CommandFailedError(
            f"{name} needs a terminal for output and keys; use inspect or sniff for files and pipes"
        )
    if importlib.util.find_spec("textual") is None:
        raise CommandFailedError(f"{name} needs textual, which is not installed: {extra_command('browse')}")


def is_terminal() -> bool:
    return _is_terminal(sys.stdout)


def wants_colour(colour: bool | None) -> bool:
    """Whether to colour standard output: by the option, else NO_COLOR, FORCE_COLOR, else if it is a terminal."""
    if colour is not None:
        return colour
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return _is_terminal(sys.stdout) and os.environ.get("TERM") != "dumb"


def make_view(
    *,
    colour: bool | None,
    time_format: str = "iso",
    payload: str = "auto",
    payload_limit: int = PAYLOAD_LIMIT,
    show_secrets: bool = False,
) -> View:
    """Make the view for standard output."""
    width = 0
    if _is_terminal(sys.stdout) or os.environ.get("COLUMNS", "").isdigit():
        width = shutil.get_terminal_size().columns
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "")
    return View(
        width=width,
        colour=wants_colour(colour),
        time=time_format,
        payload=payload,
        payload_limit=payload_limit,
        show_secrets=show_secrets,
        unicode=encoding.startswith("utf"),
    )


def warn(message: str) -> None:
    """Print one line on standard error."""
    Progress.clear()
    click.echo(f"mqttscope: {printable(without_secrets(message))}", err=True)


def warn_all(sentences: Iterable[str | None]) -> None:
    """Print non-empty sentences as lines on standard error."""
    for sentence in filter(None, sentences):
        warn(sentence)


class CaptureWatch:
    """Passes events on, reports errors of the captures, and shows progress."""

    def __init__(self, *, progress: bool | CaptureWatch, shown: bool = False) -> None:
        """``progress``: show the progress of reading; with another `CaptureWatch`, share its line.

        ``shown``: the report on standard output also shows errors of captures.
        """
        self._shown_in_report = shown and _is_terminal(sys.stdout)
        self.errors = 0
        self.dropped = 0
        self.skipped: Counter[str] = Counter()
        other = progress._progress if isinstance(progress, CaptureWatch) else None
        wanted = other is not None or progress is True
        shows_progress = wanted and not self._shown_in_report and _is_terminal(sys.stderr)
        self._progress: ReadProgress | None = (other or ReadProgress()) if shows_progress else None

    def follow(self, reading: CaptureReading) -> CaptureReading:
        """Show the progress of a reading; returns it."""
        if self._progress is not None:
            self._progress.follow([str(capture) for capture in reading.captures])
            reading.seen = self._progress.seen
        return reading

    def read_nothing(self, flows: int) -> bool:
        """Whether no frame of the captures could be read; ``flows``: number of TCP flows."""
        return bool(self.errors) and not flows and not self.skipped

    def events(self, source: Iterable[Event]) -> Iterator[Event]:
        """Pass events on; report capture errors and drops on standard error."""
        try:
            for event in source:
                if type(event) is not PacketEvent:
                    self.note(event)
                yield event
        finally:
            if self._progress is not None:
                self._progress.clear()

    def note(self, event: Event) -> None:
        """Report a capture error, a clock step or drops; ignore other events."""
        if not isinstance(event, CaptureRemark):
            return
        if isinstance(event, CaptureError):
            self.errors += 1
            if not self._shown_in_report:
                warn(describe(event))
        elif isinstance(event, ClockStep):
            if not self._shown_in_report:
                warn(f"{utf8(event.capture)}: {event.message}")
        else:
            self.dropped += event.dropped
            if not self._shown_in_report:
                dropped = counted(event.dropped, "frame")
                warn(f"{event.capture}: interface {event.interface} dropped {dropped} while capturing")


def describe(error: CaptureError) -> str:
    """A capture error as one line: file, error, offset, frames read before it."""
    return f"{utf8(error.capture)}: {describe_fault(error)}"


def describe_fault(error: CaptureError) -> str:
    """A capture error as one line without the file."""
    where = f" at offset {error.offset:,}" if error.offset else ""
    frames = (
        f" ({error.frames:,} {'frame before it was' if error.frames == 1 else 'frames before it were'} read)"
        if error.frames
        else ""
    )
    return f"{error.message}{where}{frames}"


STDIN = "-"
FORMS = frozenset(("text", "tree", "ladder", "jsonl", "csv", "json", "markdown", "html", "pcapng"))
"""Formats of reports, which ``lint`` takes before the name of a file."""
CAPTURE = "capture"
REPORT = "report"
CAPTURE_NAMES = (".pcap", ".pcapng", ".cap", ".dmp")
"""Suffixes of captures."""
REPORT_NAMES = (
    ".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".txt", ".log", ".md", ".html", ".htm", ".xml", ".sarif", ".yaml",
    ".yml",
)  # fmt: skip
"""Suffixes of reports."""
COMPRESSED_NAMES = (".gz", ".zst", ".lz4", ".xz", ".bz2")


def refuse_name(target: str, option: str, what: str) -> None:
    """Raise a usage error for a `CAPTURE` that is named like a `REPORT`, or vice versa."""
    if target == "-":
        instead = "" if what == CAPTURE else f"; without {option} the report goes to standard output"
        raise click.UsageError(f"{option} needs a file name{instead}")
    form, equals, path = target.partition("=")
    if equals and form in FORMS and not os.path.exists(target):
        # As lint takes it, which writes several reports.
        instead = f"use --format {form} {option} {path or 'FILE'}" if path != "-" else f"use --format {form} alone"
        raise click.UsageError(f"{option} {target}: {instead}; a file of that name is ./{target}")
    stem, suffix = os.path.splitext(target.lower())
    if what == CAPTURE:
        if suffix in REPORT_NAMES:
            # If --output is the capture, the report needs another file.
            instead = "" if option == "--output" else ", or use --output for the report"
            raise click.UsageError(
                f"{option} writes a capture, and {target} is named like a report; call it .pcapng{instead}"
            )
        if suffix == ".pcap":
            # Readers that go by the name would not read pcapng.
            raise click.UsageError(f"{option} writes pcapng, and {target} is named like pcap; call it .pcapng")
        if suffix in COMPRESSED_NAMES:
            raise click.UsageError(f"{option}: {target} would not be compressed; call it .pcapng")
        return
    packed = os.path.splitext(stem)[1] if suffix in COMPRESSED_NAMES else suffix
    if packed in CAPTURE_NAMES:
        raise click.UsageError(
            f"{option} writes the report, and {target} is named like a capture; use --write for the frames"
        )


HTML = "html"
PAGE_NAMES = (".html", ".htm")
"""Suffixes of pages."""

NO_PAGE_NAMES = (*(suffix for suffix in REPORT_NAMES if suffix not in PAGE_NAMES), ".sh", ".py")
"""Suffixes of files that are not pages."""


def is_page(output: str | None) -> bool:
    """Whether an output is named like a page, which makes HTML the default format."""
    return output is not None and output.lower().endswith(PAGE_NAMES)


def refuse_form(form: str, output: str | None) -> None:
    """Raise a usage error if ``--format`` and the name of the output disagree about a page."""
    suffix = os.path.splitext((output or "").lower())[1]
    if output is None or (form == HTML) is is_page(output) or (form == HTML and suffix not in NO_PAGE_NAMES):
        return
    instead = "call it .html" if form == HTML else f"use --format {HTML}, or another name"
    raise click.UsageError(f"--format {form} contradicts --output {output}: {instead}")


def refuse_terminal(form: str, output: str | None) -> None:
    """Raise a usage error for a page on a terminal."""
    if form == HTML and output is None and is_terminal():
        raise click.UsageError("--format html is a page for a browser; write it to a file: --output FILE.html")


def refuse_report(form: str, output: str | None, captures: Sequence[str]) -> None:
    """Raise usage errors for an impossible ``--output`` of a report on captures."""
    refuse_form(form, output)
    refuse_terminal(form, output)
    if output is not None:
        refuse_inputs(output, captures)
        refuse_name(output, "--output", REPORT)


def refuse_inputs(
    target: str,
    captures: Sequence[str],
    others: Mapping[str, str | Path | None] | None = None,
    option: str = "--output",
) -> None:
    """Raise a usage error if ``--output`` is an input file, under any name; opens nothing.

    ``others``: further input files by role (``the baseline``).
    """
    for what, path in (others or {}).items():
        if path is not None and same_file(target, path):
            raise click.UsageError(f"{option}: {target} is {what}")
    if os.path.isfile(target) and (is_source(target, captures) or (STDIN in captures and _is_stdin(target))):
        raise click.UsageError(f"{option}: {target} is an input capture")


def same_file(first: str | Path, other: str | Path) -> bool:
    """Whether two paths lead to one file, also through links, or will once the file exists."""
    try:
        return os.path.samefile(first, other)
    except OSError:
        return os.path.realpath(first) == os.path.realpath(other)


def _is_stdin(target: str) -> bool:
    """Whether standard input is this file."""
    try:
        stdin_status = os.fstat(sys.stdin.fileno())
    except (AttributeError, OSError, ValueError):
        return False
    return stat.S_ISREG(stdin_status.st_mode) and os.path.samestat(stdin_status, os.stat(target))


class FileSink:
    """A file as a binary sink, opened at once so that a wrong path is reported before the work.

    Old contents stay until the first write; a new file is removed if the command fails before that.
    A new file that matches a pattern of ``captures`` is refused and removed.

    ``private``: only the owner can read a new file. Reports that hide all secrets are not private: in continuous
    integration, a user other than the one in a container reads them, and other programs use the umask too.
    """

    def __init__(self, path: str, captures: Sequence[str] = (), *, private: bool = True) -> None:
        self.path = path
        self._fresh = not os.path.exists(path)
        self._begun = False
        make = opener if private else open_shared
        try:
            self.file = open(path, "wb", opener=lambda name, flags: make(name, flags & ~os.O_TRUNC))  # noqa: SIM115
        except (OSError, ValueError) as error:
            raise self._failed(error) from None
        if self._fresh and is_source(path, captures):
            self._take_back()
            raise click.UsageError(f"--output: {path} is one of the input captures")
        context = click.get_current_context(silent=True)
        if context is not None:
            context.call_on_close(self.close)

    def write(self, data: bytes, /) -> object:
        """Write bytes; drop them for a pipe without a reader."""
        try:
            self._begin()
            return self.file.write(data)
        except BrokenPipeError:
            return len(data)
        except OSError as error:
            raise self._failed(error) from None

    def flush(self) -> None:
        """Flush the file."""
        try:
            self._begin()
            self.file.flush()
        except BrokenPipeError:
            pass
        except OSError as error:
            raise self._failed(error) from None

    def leave(self) -> None:
        """Restore the original state if nothing was written, with a warning."""
        if not self._begun and not self.file.closed:
            self._take_back()
            warn(f"{self.path} is not written: nothing could be read")

    def close(self) -> None:
        """Flush and close the file; restore the original state if the command failed before its first write."""
        if self.file.closed:
            return
        fault = sys.exc_info()[1]
        if not self._begun and fault is not None and not isinstance(fault, click.exceptions.Exit):
            self._take_back()
            return
        try:
            self._begin()
            self.file.close()
        except BrokenPipeError:
            pass
        except OSError as error:
            raise self._failed(error) from None

    def _begin(self) -> None:
        """Truncate the file before the first write."""
        if not self._begun:
            self._begun = True
            if stat.S_ISREG(os.fstat(self.file.fileno()).st_mode):
                os.ftruncate(self.file.fileno(), 0)

    def _take_back(self) -> None:
        """Remove a new file, unless another one has replaced it."""
        status = os.fstat(self.file.fileno())
        self.file.close()
        target = os.path.realpath(self.path)
        with suppress(OSError):
            if self._fresh and os.path.samestat(status, os.stat(target)):
                os.unlink(target)

    def _failed(self, error: Exception) -> CannotWriteError:
        return CannotWriteError(f"cannot write {self.path}: {getattr(error, 'strerror', None) or error}")

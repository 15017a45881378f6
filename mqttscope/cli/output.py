"""Writes what commands produce: files and standard output for results, standard error for warnings and progress.

`Output` and `FileSink` are the sinks of reports; `Watch` passes events on, notes damage of the captures and shows how
much of them was read (`ReadProgress`).  Whether output goes to a terminal decides on colour, and on when lines are
flushed.

A file that a command writes must not be one that it reads, and no two outputs may be the same file: `refuse_inputs` and
`refuse_name` check that before anything is opened.
"""

from __future__ import annotations

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
    from mqttscope.api.reading import Reading

BUFFER_BYTES = 1 << 16
"""Bytes that are gathered at most before they are written together."""
PROGRESS_AFTER_S = 1.0
PROGRESS_EVERY_S = 0.2
READ_EVERY_S = 0.1
"""So often at most a line about captures that are read is written again."""
PROGRESS_EVENTS = 2_000
"""The clock is looked at once in so many events."""


class Progress:
    """One line on standard error that shows how far some work is: on a terminal alone, and after a second.

    What else is written to the terminal takes its place: `Output` and `warn` clear it first.
    """

    _line: ClassVar[bool] = False
    """Whether such a line stands on the terminal."""

    def __init__(self) -> None:
        self.enabled = _is_terminal(sys.stderr)
        self._started = self._shown = time.monotonic() if self.enabled else 0.0

    def due(self, count: int) -> bool:
        """Whether it is time to show a line; the clock is looked at once in `PROGRESS_EVENTS` calls."""
        if not self.enabled or count % PROGRESS_EVENTS:
            return False
        now = time.monotonic()
        return now - self._started > PROGRESS_AFTER_S and now - self._shown > PROGRESS_EVERY_S

    def show(self, text: str) -> None:
        """Put a line in the place of the one before."""
        self._shown = time.monotonic()
        width = shutil.get_terminal_size().columns
        sys.stderr.write(f"\r{printable(text)[: max(1, width - 1)]}\x1b[K")
        sys.stderr.flush()
        Progress._line = True

    def say(self, text: str) -> None:
        """Show a line at once, on a terminal."""
        if self.enabled:
            self.show(text)

    @staticmethod
    def clear() -> None:
        """Take the line away, if there is one."""
        if Progress._line:
            Progress._line = False
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


class ReadProgress:
    """How much of captures was read, as a line of `Progress`: bytes of all of them, rate, and time left.

    Those who read bytes report them (`capture.open_capture`), once in thousands of packets.
    """

    def __init__(self) -> None:
        self._progress = Progress()
        self.enabled = self._progress.enabled
        self._captures: list[str] = []
        self._total: int | None = None
        self.read = 0
        """Bytes so far."""
        self._started = time.monotonic()
        self._due = self._started + PROGRESS_AFTER_S

    def follow(self, captures: Sequence[str]) -> None:
        self._captures += captures
        self._total = None

    def seen(self, count: int) -> None:
        """So many more bytes were read."""
        self.read += count
        now = time.monotonic()
        if now >= self._due:
            self._due = now + READ_EVERY_S
            self._progress.show(self.text(now - self._started))

    def text(self, seconds: float) -> str:
        """What is shown after some time."""
        if self._total is None:
            self._total = total_size(self._captures)
        rate = self.read / max(seconds, 1e-9)
        if not 0 < self.read <= self._total:
            # Standard input, which has no end yet, or captures that are being written.
            return f"{sized(self.read)} read, {sized(rate)}/s"
        left = (self._total - self.read) / rate
        part = f"{100 * self.read // self._total} %"
        return f"{part} of {sized(self._total)}, {sized(rate)}/s, {lasting(left)} left"

    def clear(self) -> None:
        self._progress.clear()


def total_size(captures: Sequence[str]) -> int:
    """Bytes of all captures that names, patterns and directories stand for; 0 where one of them has no size."""
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
    """A number of bytes in the unit that suits it: ``2.9 GB``."""
    for unit in ("B", "kB", "MB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 99.95 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"


def lasting(seconds: float) -> str:
    """A time that is left: ``0:07``, ``1:02:03``."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours:,}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


class CannotWriteError(MqttscopeError, click.ClickException):
    """The output cannot be written: the command line has to change, so it counts as usage."""

    exit_code = EXIT_USAGE


class Output:
    """Standard output as a binary sink.

    Lines are gathered unless a reader waits for each of them (a terminal, or input that is still being produced).
    Ctrl-C waits until what is being written is written, so that the last line is complete; a second one does not wait.
    When the reader has gone, the command ends with a BrokenPipeError, unless it ``continues``: then nothing is written
    any more.
    """

    def __init__(self, *, immediate: bool = False, continues: bool = False) -> None:
        if sys.stdout is None:
            raise CannotWriteError("standard output is closed")
        # Without Python's own buffer it is always known what was written.
        self.stream: Any = getattr(sys.stdout.buffer, "raw", sys.stdout.buffer)
        self.immediate = immediate
        self.continues = continues
        self._gone = False
        self._parts: list[bytes] = []
        self._held = 0
        self._writing = False
        self._interrupted = 0
        """The signal that asked for the end while something was being written."""
        if threading.current_thread() is threading.main_thread():
            for number in ENDINGS:
                if (number == signal.SIGINT and not limited(number)) or installed(number):
                    signal.signal(number, self._interrupt)

    def write(self, data: bytes) -> None:
        """Write bytes; BrokenPipeError when the reader has gone and the command does not continue."""
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
        """Write what was gathered."""
        if not self._parts:
            return
        Progress.clear()
        self._writing = True
        try:
            left = memoryview(b"".join(self._parts))
            self._parts, self._held = [], 0
            while left:
                # A pipe that does not block and is full takes nothing: wait for its reader.
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
    """Whether a reader waits for each line: output to a terminal, or input that may still be in the making."""
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


def is_terminal() -> bool:
    return _is_terminal(sys.stdout)


def wants_colour(colour: bool | None) -> bool:
    """Whether standard output gets colour: the option, else NO_COLOR, FORCE_COLOR, else whether it is a terminal."""
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
    """The view for standard output."""
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
    """One line on standard error."""
    Progress.clear()
    click.echo(f"mqttscope: {printable(without_secrets(message))}", err=True)


def warn_all(sentences: Iterable[str | None]) -> None:
    """Lines on standard error, of those that there are."""
    for sentence in filter(None, sentences):
        warn(sentence)


class Watch:
    """Passes events on, notes what went wrong with the captures, and shows progress."""

    def __init__(self, *, progress: bool | Watch, shown: bool = False) -> None:
        """``progress``: show how far the work is, in the same line as another.

        ``shown``: the report writes events to standard output as they come, and what went wrong with captures as well.
        """
        self._told = shown and _is_terminal(sys.stdout)
        self.errors = 0
        self.dropped = 0
        self.skipped: Counter[str] = Counter()
        self.noted = 0
        """Notices so far."""
        self.known = 0
        """Notices that come first and were told before, by processes that left the work to this one."""
        other = progress._progress if isinstance(progress, Watch) else None
        wanted = other is not None or progress is True
        self.shows_progress = wanted and not self._told and _is_terminal(sys.stderr)
        self._progress: ReadProgress | None = (other or ReadProgress()) if self.shows_progress else None

    def follow(self, reading: Reading) -> Reading:
        """Show how much of captures was read; returns what reads them."""
        if self._progress is not None:
            self._progress.follow([str(one) for one in reading.captures])
            reading.seen = self._progress.seen
        return reading

    def read_nothing(self, flows: int) -> bool:
        """Whether no frame of the captures could be read; ``flows``: how many there were of TCP."""
        return bool(self.errors) and not flows and not self.skipped

    def events(self, source: Iterable[Event]) -> Iterator[Event]:
        """Go through events; capture errors and drops are reported on standard error as well."""
        try:
            for event in source:
                if type(event) is not PacketEvent:
                    self.note(event)
                yield event
        finally:
            if self._progress is not None:
                self._progress.clear()

    def again(self) -> None:
        """Begin from the beginning, by another process: what was told so far is not told twice."""
        self.known = max(self.known, self.noted)
        self.noted = self.errors = self.dropped = 0
        self.skipped.clear()

    def note(self, event: Event) -> None:
        """Report a capture error or drops; other events are nothing to report."""
        if not isinstance(event, CaptureRemark):
            return
        self.noted += 1
        told = self._told or self.noted <= self.known
        if isinstance(event, CaptureError):
            self.errors += 1
            if not told:
                warn(describe(event))
        elif isinstance(event, ClockStep):
            if not told:
                warn(f"{utf8(event.capture)}: {event.message}")
        else:
            self.dropped += event.dropped
            if not told:
                dropped = counted(event.dropped, "frame")
                warn(f"{event.capture}: interface {event.interface} dropped {dropped} while capturing")


def describe(error: CaptureError) -> str:
    """A capture error as one line: file, place, what is wrong, what was saved."""
    return f"{utf8(error.capture)}: {describe_fault(error)}"


def describe_fault(error: CaptureError) -> str:
    """The same without the file."""
    where = f" at offset {error.offset:,}" if error.offset else ""
    kept = (
        f" ({error.frames:,} {'frame before it was' if error.frames == 1 else 'frames before it were'} read)"
        if error.frames
        else ""
    )
    return f"{error.message}{where}{kept}"


STDIN = "-"
CAPTURE = "capture"
REPORT = "report"
CAPTURE_NAMES = (".pcap", ".pcapng", ".cap", ".dmp")
"""How files that hold a capture are called."""
REPORT_NAMES = (
    ".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".txt", ".log", ".md", ".html", ".htm", ".xml", ".sarif", ".yaml",
    ".yml",
)  # fmt: skip
"""How files that hold a report are called."""
COMPRESSED_NAMES = (".gz", ".zst", ".lz4", ".xz", ".bz2")


def refuse_name(target: str, option: str, what: str) -> None:
    """A usage error where a file is named like the other thing: a `CAPTURE` as a `REPORT`, or the other way round."""
    if target == "-":
        instead = "" if what == CAPTURE else f"; without {option} the report goes to standard output"
        raise click.UsageError(f"{option} needs the name of a file{instead}")
    stem, suffix = os.path.splitext(target.lower())
    if what == CAPTURE:
        if suffix in REPORT_NAMES:
            # Where --output takes the capture, there is no file for the report.
            instead = "" if option == "--output" else ", or use --output for the report"
            raise click.UsageError(
                f"{option} writes a capture, and {target} is named like a report; call it .pcapng{instead}"
            )
        if suffix == ".pcap":
            # Readers that go by the name do not read pcapng.
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
"""How files that hold a page are called."""

NO_PAGE_NAMES = (*(one for one in REPORT_NAMES if one not in PAGE_NAMES), ".sh", ".py")
"""How files that hold something else are called."""


def is_page(output: str | None) -> bool:
    """Whether the name of an output is that of a page, so that it is one unless the user says otherwise."""
    return output is not None and output.lower().endswith(PAGE_NAMES)


def refuse_form(form: str, output: str | None) -> None:
    """A usage error where ``--format`` and the name of the output say different things: a page, and what is none."""
    suffix = os.path.splitext((output or "").lower())[1]
    if output is None or (form == HTML) is is_page(output) or (form == HTML and suffix not in NO_PAGE_NAMES):
        return
    instead = "call it .html" if form == HTML else f"use --format {HTML}, or another name"
    raise click.UsageError(f"--format {form} does not go with --output {output}: {instead}")


def refuse_terminal(form: str, output: str | None) -> None:
    """A usage error where a page would be written to a terminal."""
    if form == HTML and output is None and is_terminal():
        raise click.UsageError("--format html is a page for a browser; write it to a file: --output FILE.html")


def refuse_report(form: str, output: str | None, captures: Sequence[str]) -> None:
    """Usage errors where a report of captures cannot go where ``--output`` sends it."""
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
    """A usage error when ``--output`` names a file that is read, under whatever name; nothing is opened for that.

    ``others`` are further files by what they are (``the baseline``).
    """
    for what, path in (others or {}).items():
        if path is not None and same_file(target, path):
            raise click.UsageError(f"{option}: {target} is {what}")
    if os.path.isfile(target) and (is_source(target, captures) or (STDIN in captures and _is_stdin(target))):
        raise click.UsageError(f"{option}: {target} is a capture that is read")


def same_file(one: str | Path, other: str | Path) -> bool:
    """Whether two paths lead to one file, also through links, or will do so once it exists."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def _is_stdin(target: str) -> bool:
    """Whether standard input comes from this file."""
    try:
        given = os.fstat(sys.stdin.fileno())
    except (AttributeError, OSError, ValueError):
        return False
    return stat.S_ISREG(given.st_mode) and os.path.samestat(given, os.stat(target))


class FileSink:
    """A file as a binary sink, opened at once so that a wrong path is reported before the work.

    What was in it stays until something is written; a new one goes again when the command fails before that.

    A new file that a pattern of ``captures`` finds as soon as it exists is refused, and removed again.

    ``private``: a new file is for its owner alone. Reports that hide all secrets are not: another user than the one in
    a container reads them, and other programs of continuous integration write theirs with the umask too.
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
            raise click.UsageError(f"--output: {path} is among the captures that are read")
        context = click.get_current_context(silent=True)
        if context is not None:
            context.call_on_close(self.close)

    def write(self, data: bytes, /) -> object:
        """Write bytes; a pipe without a reader takes them all."""
        try:
            self._begin()
            return self.file.write(data)
        except BrokenPipeError:
            return len(data)
        except OSError as error:
            raise self._failed(error) from None

    def flush(self) -> None:
        """Hand what was written to the system."""
        try:
            self._begin()
            self.file.flush()
        except BrokenPipeError:
            pass
        except OSError as error:
            raise self._failed(error) from None

    def leave(self) -> None:
        """Leave everything as it was, where nothing has been written, and say so."""
        if not self._begun and not self.file.closed:
            self._take_back()
            warn(f"{self.path} is not written: nothing could be read")

    def close(self) -> None:
        """Write what is left.  A command that fails before it writes leaves everything as it was."""
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
        """What was in the file before goes only when something takes its place."""
        if not self._begun:
            self._begun = True
            if stat.S_ISREG(os.fstat(self.file.fileno()).st_mode):
                os.ftruncate(self.file.fileno(), 0)

    def _take_back(self) -> None:
        """Remove a file that this made, if it is still the same."""
        made = os.fstat(self.file.fileno())
        self.file.close()
        target = os.path.realpath(self.path)
        with suppress(OSError):
            if self._fresh and os.path.samestat(made, os.stat(target)):
                os.unlink(target)

    def _failed(self, error: Exception) -> CannotWriteError:
        return CannotWriteError(f"cannot write {self.path}: {getattr(error, 'strerror', None) or error}")

"""Files that a command writes: none of them may be one that it reads, and two of them may not be the same."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import click

from mqttscope.capture.files import is_source
from mqttscope.capture.write import opener
from mqttscope.cli.output import CannotWrite

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
    stem, suffix = os.path.splitext(target.lower())
    if what == CAPTURE:
        if suffix in REPORT_NAMES:
            raise click.UsageError(
                f"{option} writes a capture, and {target} is named like a report; call it .pcapng, or use --output for"
                " the report"
            )
        if suffix in COMPRESSED_NAMES:
            raise click.UsageError(f"{option}: {target} would not be compressed; call it .pcapng")
        return
    packed = os.path.splitext(stem)[1] if suffix in COMPRESSED_NAMES else suffix
    if packed in CAPTURE_NAMES:
        raise click.UsageError(
            f"{option} writes the report, and {target} is named like a capture; use --write for the frames"
        )


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


def _as_it_is(path: str, flags: int) -> int:
    return opener(path, flags & ~os.O_TRUNC)


class FileSink:
    """A file as a binary sink, opened at once so that a wrong path is told before the work.

    What was in it stays until something is written; a new one goes again when the command fails before that.

    A new file that a pattern of ``captures`` finds as soon as it exists is refused, and removed again.
    """

    def __init__(self, path: str, captures: Sequence[str] = ()) -> None:
        self.path = path
        self._fresh = not os.path.exists(path)
        self._begun = False
        try:
            self.file = open(path, "wb", opener=_as_it_is)  # noqa: SIM115 - open as long as the run
        except (OSError, ValueError) as error:
            raise self._failed(error) from None
        if self._fresh and is_source(path, captures):
            self._take_back()
            raise click.UsageError(f"--output: {path} is among the captures that are read")
        context = click.get_current_context(silent=True)
        if context is not None:
            context.call_on_close(self.close)

    def write(self, data: bytes, /) -> object:
        """Write bytes; a pipe that nobody reads any more takes them all."""
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

    def _failed(self, error: Exception) -> CannotWrite:
        return CannotWrite(f"cannot write {self.path}: {getattr(error, 'strerror', None) or error}")

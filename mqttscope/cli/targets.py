"""Files that a command writes: none of them may be one that it reads, and two of them may not be the same."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from mqttscope.capture.files import is_source
from mqttscope.capture.own_file import opener
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


class FileSink:
    """A file as a binary sink, opened at once so that a wrong path is told before the work.

    A new file that a pattern of ``captures`` finds as soon as it exists is refused, and removed again.
    """

    def __init__(self, path: str, captures: Sequence[str] = ()) -> None:
        self.path = path
        fresh = not os.path.lexists(path)
        try:
            self.file = open(path, "wb", opener=opener)  # noqa: SIM115 - open as long as the run
        except (OSError, ValueError) as error:
            raise self._failed(error) from None
        if fresh and is_source(path, captures):
            self.file.close()
            os.unlink(path)
            raise click.UsageError(f"--output: {path} is among the captures that are read")

    def write(self, data: bytes, /) -> object:
        """Write bytes; a pipe that nobody reads any more takes them all."""
        try:
            return self.file.write(data)
        except BrokenPipeError:
            return len(data)
        except OSError as error:
            raise self._failed(error) from None

    def flush(self) -> None:
        """Hand what was written to the system."""
        try:
            self.file.flush()
        except BrokenPipeError:
            pass
        except OSError as error:
            raise self._failed(error) from None

    def close(self) -> None:
        """Write what is left."""
        try:
            self.file.close()
        except BrokenPipeError:
            pass
        except OSError as error:
            raise self._failed(error) from None

    def _failed(self, error: Exception) -> CannotWrite:
        return CannotWrite(f"cannot write {self.path}: {getattr(error, 'strerror', None) or error}")

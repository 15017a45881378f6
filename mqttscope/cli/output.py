"""Where output goes: files and standard output, terminal or not; warnings and progress on standard error."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import click

from mqttscope.events import CaptureDrops, CaptureError, Event
from mqttscope.mqtt.view import text
from mqttscope.report.base import View

BUFFER_BYTES = 1 << 16
PROGRESS_AFTER_S = 1.0
PROGRESS_EVERY_S = 0.2
PROGRESS_EVENTS = 2_000
"""The clock is looked at once in so many events."""


class Output:
    """Standard output as a binary sink.

    Lines are gathered unless somebody waits for each of them (a terminal, or input that is still being produced).
    """

    def __init__(self, *, immediate: bool = False) -> None:
        self.stream: BinaryIO = sys.stdout.buffer
        self.immediate = immediate
        self._parts: list[bytes] = []
        self._held = 0

    def write(self, data: bytes) -> None:
        """Write bytes; BrokenPipeError when the reader has gone."""
        if self.immediate:
            self.stream.write(data)
            self.stream.flush()
            return
        self._parts.append(data)
        self._held += len(data)
        if self._held >= BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what was gathered."""
        if self._parts:
            self.stream.write(b"".join(self._parts))
            self._parts, self._held = [], 0
        self.stream.flush()


def wants_colour(colour: bool | None) -> bool:
    """Whether standard output gets colour: the option, else NO_COLOR, FORCE_COLOR, else whether it is a terminal."""
    if colour is not None:
        return colour
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def make_view(*, colour: bool | None, time_format: str, payload: str, payload_limit: int, show_secrets: bool) -> View:
    """The view for standard output."""
    width = 0
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit():
        width = shutil.get_terminal_size().columns
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
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
    plain = "".join(char if char.isprintable() else repr(char)[1:-1] for char in message)
    click.echo(f"mqttscope: {plain}", err=True)


class Watch:
    """Passes events on, notes what went wrong with the captures, and shows progress."""

    def __init__(self, *, progress: bool) -> None:
        self.errors = 0
        self.dropped = 0
        self.skipped: Counter[str] = Counter()
        self._progress = progress and sys.stderr.isatty() and not sys.stdout.isatty()

    def events(self, source: Iterable[Event]) -> Iterator[Event]:
        """Go through events; capture errors and drops are told on standard error as well."""
        started = shown = time.monotonic()
        count = 0
        for event in source:
            count += 1
            if isinstance(event, CaptureError):
                self.errors += 1
                warn(describe(event))
            elif isinstance(event, CaptureDrops):
                self.dropped += event.dropped
                warn(f"{event.capture}: interface {event.interface} dropped {event.dropped} frames while capturing")
            if self._progress and count % PROGRESS_EVENTS == 0:
                now = time.monotonic()
                if now - started > PROGRESS_AFTER_S and now - shown > PROGRESS_EVERY_S:
                    shown = now
                    frame = getattr(event, "frame", None)
                    sys.stderr.write(f"\r{count:,} events, frame {frame:,}\x1b[K" if frame else "")
                    sys.stderr.flush()
            yield event
        if shown != started:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def describe(error: CaptureError) -> str:
    """A capture error as one line: file, place, what is wrong, what was saved."""
    name = text(error.capture)
    shown = name if isinstance(name, str) else error.capture.encode("utf-8", "backslashreplace").decode()
    where = f" at offset {error.offset:,}" if error.offset is not None else ""
    kept = f" ({error.frames:,} frames before it were read)" if error.frames else ""
    return f"{shown}: {error.message}{where}{kept}"

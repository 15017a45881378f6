"""Interface, view settings and time formatting of all reporters."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from mqttscope.events import Event
from mqttscope.mqtt.view import PAYLOAD_LIMIT
from mqttscope.secrets.findings import HidingOptions
from mqttscope.session.capture_time import captured

if TYPE_CHECKING:
    from mqttscope.payloads.decoders import Decoders


class Reporter(Protocol):
    """Turns events into output."""

    def feed(self, event: Event) -> None:
        """Write an event."""

    def close(self) -> None:
        """Write the rest of the output."""


class Sink(Protocol):
    """A binary stream."""

    def write(self, data: bytes, /) -> object:
        """Write bytes."""


class CommentSink(Protocol):
    """A copy of the captures with comments on their frames."""

    def comment(self, capture: str, frame: int, text: str) -> None:
        """Keep a comment on a frame."""

    def finish(self, about: str) -> None:
        """Write the copy; ``about``: comment of the section."""


class LineCollector:
    """A sink that collects lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, data: bytes, /) -> object:
        self.lines += data.decode("utf-8", "replace").split("\n")[:-1]
        return len(data)


@dataclass(slots=True)
class View:
    """Display settings of the user, common to all human-readable formats."""

    width: int = 100
    """Columns of the terminal; 0 for no limit (output that is not a terminal)."""
    colour: bool = False
    time: str = "iso"
    """``iso`` (UTC, nanoseconds as captured), ``local`` (ISO in the zone of this machine), ``epoch`` (seconds
    since 1970), ``relative`` (seconds since the first event), ``delta`` (since the event before), or ``none`` for bytes
    without a capture: no time, frame or connection number."""
    payload: str = "auto"
    """Payload view, one of `report.payload.KINDS`."""
    payload_limit: int = PAYLOAD_LIMIT
    payloads: Decoders | None = None
    """The decoders that the configuration names."""
    show_secrets: bool = False
    secret_length: int = 40
    """Minimum length of random text in a finding that is hidden as a secret."""
    spreadsheet: bool = False
    """CSV: put an apostrophe before text that a spreadsheet would take as a formula."""
    acknowledged: bool = False
    """JSON Lines: packets have ``tcp_acknowledged``."""
    held: str = "captured"
    """Description of the available bytes of an incomplete payload; a lake stores fewer than were captured."""
    unicode: bool = True
    """Whether the output can show arrows and box characters."""

    def decoders(self, *, detailed: bool = False) -> Decoders | None:
        """The decoders for the payload view; ``None``, as nearly always, if it needs no decoder.

        ``detailed``: for a view of single packets, with the metrics of Sparkplug B unless the user chose otherwise.
        """
        if not detailed and self.payloads is None and self.payload in ("auto", "none"):
            return None
        from mqttscope.payloads.decoders import decoders_for, with_sparkplug

        decoders = decoders_for(self.payload, self.payloads)
        return with_sparkplug(decoders) if detailed and self.payload == "auto" else decoders

    def hiding(self) -> HidingOptions:
        """The settings that decide what is hidden in findings."""
        return HidingOptions(self.secret_length, self.payload_limit, self.show_secrets)


@lru_cache(256)
def _iso_second(second: int) -> str:
    """``2026-01-02T03:04:05``; empty outside years 1 to 9999."""
    try:
        return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return ""


class Clock:
    """ISO times with nanoseconds; caches the last second, since events that follow each other share it."""

    def __init__(self) -> None:
        self._second: int | None = None
        self._text = ""

    def iso(self, timestamp_ns: int) -> str:
        """``2026-01-02T03:04:05.123456789Z``; seconds since 1970 outside years 1 to 9999."""
        second, nanosecond = divmod(captured(timestamp_ns), 1_000_000_000)
        if second != self._second:
            text = _iso_second(second)
            if not text:
                return f"{second}.{nanosecond:09d}"
            self._second, self._text = second, text
        return f"{self._text}.{nanosecond:09d}Z"

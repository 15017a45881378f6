"""What all reporters share: the interface, times, and where the text goes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from mqttscope.events import Event, MalformedEvent, UnparsedEvent
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.view import PAYLOAD_LIMIT


class Reporter(Protocol):
    """Turns events into output."""

    def feed(self, event: Event) -> None:
        """Write what one event has to say."""

    def close(self) -> None:
        """Write what is left at the end."""


class Sink(Protocol):
    """A binary stream."""

    def write(self, data: bytes, /) -> object:
        """Write bytes."""


@dataclass(slots=True)
class View:
    """How the user wants to see things; the same for all human formats."""

    width: int = 100
    """Columns of the terminal; 0 for no limit (output that is not a terminal)."""
    colour: bool = False
    time: str = "iso"
    """``iso`` (UTC, nanoseconds as captured), ``local`` (the same in the zone of this machine), ``epoch`` (seconds
    since 1970), ``relative`` (seconds since the first event), ``delta`` (since the event before), or ``none`` for bytes
    that no capture tells anything of: neither time, frame nor connection number."""
    payload: str = "auto"
    """Payload view: ``auto``, ``text``, ``hex``, ``json``, ``cbor``, ``msgpack`` or ``none``."""
    payload_limit: int = PAYLOAD_LIMIT
    show_secrets: bool = False
    secret_length: int = 40
    """Characters from which on random text in a finding counts as a secret."""
    spreadsheet: bool = False
    """CSV: put an apostrophe before text that a spreadsheet would take as a formula."""
    unicode: bool = True
    """Whether the output can show arrows and box characters."""


class Clock:
    """ISO times with nanoseconds; remembers the second it formatted last, since neighbours share it."""

    def __init__(self) -> None:
        self._second: int | None = None
        self._text = ""

    def iso(self, timestamp_ns: int) -> str:
        """``2026-01-02T03:04:05.123456789Z``; times outside years 1 to 9999 as plain seconds."""
        second, nanosecond = divmod(timestamp_ns, 1_000_000_000)
        if second != self._second:
            try:
                self._text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            except (OverflowError, ValueError, OSError):
                return f"{second}.{nanosecond:09d}"
            self._second = second
        return f"{self._text}.{nanosecond:09d}Z"


REDACTED = "***"


def without_query_values(path: str) -> str:
    """The path of a request with asterisks for what its query says: brokers take tokens and passwords there."""
    before, mark, query = path.partition("?")
    if not query:
        return path
    parts = []
    for part in query.split("&"):
        name, equals, _ = part.partition("=")
        parts.append(f"{name}={REDACTED}" if equals else REDACTED)
    return f"{before}{mark}{'&'.join(parts)}"


MIN_PASSWORD_BYTES = 6
"""Fewer bytes than these cannot hold the end of a CONNECT with a password worth hiding."""


def may_hold_password(event: MalformedEvent | UnparsedEvent) -> bool:
    """Whether bytes that are no packet may be those of a CONNECT.

    They come from the client, no CONNECT was read yet, and the beginning of the connection was captured or they name
    the protocol.
    """
    connection = event.connection
    if event.direction is not Direction.CLIENT_TO_SERVER or connection.connect_packet is not None:
        return False
    if isinstance(event, UnparsedEvent):
        raw = event.unparsed.raw
    elif event.malformed.packet is None:
        raw = event.malformed.raw
    else:
        return False
    return len(raw) >= MIN_PASSWORD_BYTES and (connection.handshake_seen or b"MQ" in raw)

"""Captures for programs: packets, events, connections and tables in a few lines.

    with mqttscope.open("a.pcapng", filter="type == publish and qos > 0") as captures:
        for packet in captures:
            print(packet.time, packet.topic, packet.payload)
        for error in captures.errors:
            print(error.capture, error.message)

Results are plain values that describe the moment when a packet passed: they can be stored, sorted and compared.
"""

from __future__ import annotations

import os
import weakref
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import TYPE_CHECKING, Any, Self, TypeVar

import orjson

from mqttscope import arguments
from mqttscope import filter as filters
from mqttscope.api.errors import optional_package
from mqttscope.api.reading import (
    MAX_NAMED,
    CaptureNotFoundError,
    CaptureReadError,
    CaptureReading,
    ReadingError,
    read_limit,
    read_path,
    read_ports,
    read_version,
    select,
)
from mqttscope.capture.files import NOTHING_THERE, STDIN, find_captures
from mqttscope.dissect import Dissector, FastPath, Options, dissect_segments
from mqttscope.errors import ArgumentError
from mqttscope.events import ClockStep, ConnectionClosed, MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.events import Event as Dissected
from mqttscope.filter.fields import EVENTS
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.view import PAYLOAD_LIMIT, utf8
from mqttscope.mqtt.wire import counted
from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.net.segment import NoteSkipped
from mqttscope.report.base import View
from mqttscope.report.jsonl import EventJsonLines
from mqttscope.report.public import public_event, with_decoded, with_public_names
from mqttscope.session.capture_time import captured

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    from mqttscope.api.payloads import Payloads
    from mqttscope.lake.tables import Collector
    from mqttscope.payloads.decoders import Decoders, PayloadTable
    from mqttscope.report.jsonl_decoded import DecodedLines

Path = str | os.PathLike[str]
Ports = Mapping[int, str] | Iterable[int | str]
Shown = TypeVar("Shown", bound="Event")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Event:
    """An event in a capture, with the state of its connection at that time."""

    kind: str
    """``packet``, ``malformed``, ``gap``, ``unparsed``, ``discarded``, ``connection_opened``, ``connection_ending``,
    ``connection_closed`` or ``capture_error``: the key ``event`` of the JSON form."""
    capture: str
    """Name of the capture."""
    frame: int | None
    """Number of the frame that completed the event, from 1; ``None`` for a capture error."""
    timestamp_ns: int | None
    """Capture time in nanoseconds since 1970, UTC; ``None`` for a capture error."""
    connection: int | None
    """Number of the connection, from 0, in order of appearance; ``None`` for a capture error."""
    client: str
    """Endpoint of the client: ``10.0.0.4:51234``."""
    server: str
    """Endpoint of the server."""
    client_identifier: str | None
    """Client Identifier, if it is known at this time."""
    version: str
    """MQTT version: ``5.0``, ``3.1.1`` or ``3.1``; empty for a capture error."""
    direction: str | None
    """``client_to_server`` or ``server_to_client``; ``None`` for events without a direction."""
    _line: str = field(repr=False, compare=False)

    @property
    def time(self) -> datetime | None:
        """Capture time, with a time zone (UTC), to the microsecond."""
        if self.timestamp_ns is None:
            return None
        return EPOCH + timedelta(microseconds=self.timestamp_ns // 1000)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: a line of ``mqttscope inspect --format jsonl`` (docs/jsonl.md)."""
        document: dict[str, Any] = orjson.loads(self._line)
        return document


@dataclass(slots=True)
class Packet(Event):
    """One MQTT Control Packet.

    `decode` also returns bytes that are not a packet: ``kind`` is then ``unparsed``, ``number`` -1 and ``type``
    ``None``.
    """

    number: int
    """Number of the packet from 0 over all captures, including malformed packets."""
    type: str | None
    """Name of the packet type: ``publish``; ``None`` if it is unreadable."""
    topic: str | None
    """Topic of a PUBLISH, with its Topic Alias resolved (5.0 3.3.2.3.4); ``None`` if it is unknown."""
    packet: ControlPacket | None
    """The decoded fields (`mqtt.packets`); for a malformed packet the fields before the fault, or ``None``."""
    malformed: Malformed | None
    """Reason, offset and bytes of a malformed packet; ``None`` for a well-formed one."""
    raw: bytes = field(repr=False)
    """Bytes of the packet, with asterisks instead of secrets."""
    _is_decoded: bool = field(default=False, repr=False, compare=False)

    @property
    def payload(self) -> bytes | None:
        """Payload of a PUBLISH, with asterisks instead of secrets; ``None`` for other packets."""
        return self.packet.payload if isinstance(self.packet, Publish) else None

    @property
    def decoded(self) -> dict[str, Any] | None:
        """Result of a payload decoder: ``format``, and ``value`` or ``error`` (docs/payloads.md).

        ``None`` without a decoder for the topic.  Secrets are replaced by asterisks.
        """
        result: dict[str, Any] | None = self.to_dict().get("payload") if self._is_decoded else None
        return result

    @property
    def value(self) -> Any:
        """Decoded payload: dictionaries, lists, text, numbers, booleans and ``None``; binary values as in JSON Lines.

        Also ``None`` without a decoded value; `decoded` contains the reason.
        """
        result = self.decoded
        return None if result is None else result.get("value")


class Views:
    """Makes the public views of events, each before the event changes the state of its connection."""

    def __init__(
        self, *, payload_limit: int = PAYLOAD_LIMIT, show_secrets: bool = False, decoders: Decoders | None = None
    ) -> None:
        self._show_secrets = show_secrets
        self._decoders = decoders
        self._lines: EventJsonLines | DecodedLines
        if decoders is None:
            self._lines = EventJsonLines(BytesIO(), payload_limit=payload_limit, show_secrets=show_secrets)
        else:
            from mqttscope.report.jsonl_decoded import DecodedLines

            view = View(payload_limit=payload_limit, show_secrets=show_secrets, payloads=decoders)
            self._lines = DecodedLines(BytesIO(), view)

    def of(self, event: Dissected) -> Event | None:
        """View of an event; ``None`` for an event without a JSON form."""
        if isinstance(event, PacketEvent | MalformedEvent):
            return self.packet(event)
        line = self._lines.line(event)
        return None if line is None else self._other(event, line)

    def packet(self, event: PacketEvent | MalformedEvent | UnparsedEvent) -> Packet:
        """View of a packet, or of bytes that are not a packet."""
        line = self._lines.line(event)
        assert line is not None
        shown: Any = event if self._show_secrets else with_public_names(public_event(event))
        decoded = None if self._decoders is None else self._decoders.decode(event)
        if decoded is not None:
            shown = with_decoded(shown, decoded, show_secrets=self._show_secrets)
        connection = shown.connection
        malformed: Malformed | None = shown.malformed if isinstance(shown, MalformedEvent) else None
        packet: ControlPacket | None
        if isinstance(shown, PacketEvent):
            kind, packet, raw = "packet", shown.packet, shown.packet.raw
        elif malformed is not None:
            kind, packet, raw = "malformed", malformed.packet, malformed.raw
        else:
            kind, packet, raw = "unparsed", None, shown.unparsed.raw
        return Packet(
            kind, shown.capture, shown.frame, captured(shown.timestamp_ns), connection.number, connection.client,
            connection.server, connection.client_identifier, connection.version.text, str(shown.direction), line,
            getattr(shown, "number", -1), getattr(shown, "type", None), getattr(shown, "topic", None), packet,
            malformed, raw, decoded is not None,
        )  # fmt: skip

    def _other(self, event: Dissected, line: str) -> Event:
        if isinstance(event, CaptureError):
            return Event("capture_error", event.capture, None, None, None, "", "", None, "", None, line)
        shown: Any = event if self._show_secrets else with_public_names(event)
        connection = shown.connection
        direction = getattr(shown, "direction", None)
        return Event(
            EVENTS[type(event)], shown.capture, shown.frame, captured(shown.timestamp_ns), connection.number,
            connection.client, connection.server, connection.client_identifier, connection.version.text,
            None if direction is None else str(direction), line,
        )  # fmt: skip


@dataclass(slots=True, frozen=True)
class ConnectionSummary:
    """One connection after its end."""

    number: int
    """Number of the connection from 0, in order of appearance."""
    client: str
    server: str
    client_identifier: str | None
    version: str
    transport: str
    """``tcp``, ``websocket`` or ``tls``."""
    opened_ns: int
    """Capture time of the first frame, in nanoseconds since 1970."""
    closed_ns: int
    """Capture time of the first FIN or RST, otherwise of the last frame."""
    how: str | None
    """How the connection ended: ``how`` of the JSON form."""
    by: str | None
    """Which side ended it: ``client`` or ``server``."""
    packets: int
    """Number of MQTT packets in both directions."""
    bytes: int
    """Number of bytes in both directions."""
    server_name: str | None
    """Host name of the server from TLS, or from DNS in the capture; ``None`` if neither is known."""
    _line: str = field(repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: the line ``connection_closed`` (docs/jsonl.md)."""
        document: dict[str, Any] = orjson.loads(self._line)
        return document


def capture_names(captures: Iterable[Path]) -> list[str]:
    """Names of captures as text; :class:`TypeError` for other types."""
    names = []
    for capture in captures:
        name = os.fspath(capture) if isinstance(capture, str | os.PathLike) else capture
        if not isinstance(name, str):
            raise TypeError(f"captures are named by str or PathLike, not by {type(name).__name__}")
        names.append(name)
    return names


class CaptureSelection:
    """Named captures, and how to read them; each reading starts at their first frame."""

    def __init__(
        self,
        captures: Iterable[Path],
        *,
        filter: str | None = None,  # noqa: A002 - name of the option
        keys: Path | None = None,
        ports: Ports = (),
        version: str | None = None,
        raise_errors: bool = False,
        payloads: Payloads = (),
        deduplicate: bool = False,
        verify_checksums: bool = True,
    ) -> None:
        self.names = capture_names(captures)
        if not self.names:
            raise TypeError("name at least one capture, as open('a.pcapng')")
        for path in find_captures([name for name in self.names if name != STDIN]):
            if isinstance(path, CaptureError) and path.message in NOTHING_THERE:
                raise CaptureNotFoundError(f"{path.capture} {path.message}")
            if isinstance(path, str) and not os.path.lexists(path):
                raise CaptureNotFoundError(f"{path or repr(path)} does not exist")
        if filter is not None and not isinstance(filter, str):
            raise ArgumentError(f'filter takes an expression as str, such as "type == publish", not {filter!r}')
        self._filter = filter
        self._payloads: tuple[PayloadTable, ...] = ()
        if payloads is not None and payloads != ():
            from mqttscope.api.payloads import read_payloads

            self._payloads = read_payloads(payloads)
        self.filter()
        self._keys = read_path(keys, "keys")
        self._ports, self._version = read_ports(ports), read_version(version)
        self._was_read = False
        self.deduplicate = arguments.flag("deduplicate", deduplicate)
        self.verify_checksums = arguments.flag("verify_checksums", verify_checksums)
        self.raise_errors = arguments.flag("raise_errors", raise_errors)
        self.errors: list[CaptureError] = []
        """Errors of the latest reading."""
        self.notes: list[str] = []
        """Other remarks on the latest reading, as sentences."""

    def decoders(self) -> Decoders | None:
        """Payload decoders for one reading, or ``None``."""
        if not self._payloads:
            return None
        from mqttscope.api.payloads import decoders_of

        return decoders_of(self._payloads)

    def filter(self, decoders: Decoders | None = None) -> filters.Filter | None:
        """Compile the filter for one reading: relative times count from its first event."""
        if self._filter is None:
            return None
        return filters.compile(self._filter, self.decoders() if decoders is None else decoders)

    def dissector(self, reading: CaptureReading, *, count_by_connection: bool = False) -> Dissector:
        """Make a dissector for one reading."""
        return reading.dissector(
            Options(
                ports=dict(self._ports),
                version=self._version,
                verify_checksums=self.verify_checksums,
                count_by_connection=count_by_connection,
            )
        )

    def reading(self) -> CaptureReading:
        """Start a reading; `ReadingError` for unusable keys, and for a second reading of standard input."""
        if STDIN in self.names and self._was_read:
            raise ReadingError("standard input can be read only once")
        self._was_read = True
        self.errors, self.notes = [], []
        return CaptureReading(self.names, keylog=self._keys, deduplicate=self.deduplicate)

    def events(
        self,
        reading: CaptureReading,
        dissector: Dissector,
        feed: Callable[[Dissected], object] | None = None,
        note_skipped: NoteSkipped | None = None,
    ) -> Iterator[Dissected]:
        """All events, except packets that a fast path passes to ``feed``; errors are noted, or raised."""
        errors, notes = self.errors, self.notes
        fast_path = None if feed is None else FastPath(dissector, feed, order=reading.order)
        segments = reading.segments(Counter(), fast_path=fast_path, note_skipped=note_skipped)
        for event in dissect_segments(segments, dissector=dissector):
            if isinstance(event, CaptureError):
                errors.append(event)
                if self.raise_errors:
                    raise CaptureReadError(event)
            elif isinstance(event, CaptureDrops):
                dropped = counted(event.dropped, "frame")
                notes.append(f"{event.capture}: interface {event.interface} dropped {dropped} while capturing")
            elif isinstance(event, ClockStep):
                notes.append(f"{event.capture}: {event.message}")
            yield event
        notes += [*reading.notes, *reading.advice()]


class Captures:
    """Captures to iterate over: each iteration reads them from the start and yields their packets.

    Also a context manager, which closes the files of unfinished iterations; reading afterwards raises
    `ReadingError`.  Standard input (``-``) can be read only once.
    """

    def __init__(
        self, source: CaptureSelection, *, payload_limit: int = PAYLOAD_LIMIT, show_secrets: bool = False
    ) -> None:
        self._source = source
        self._payload_limit = read_limit(payload_limit)
        self._show_secrets = arguments.flag("show_secrets", show_secrets)
        self._running: weakref.WeakSet[_Iteration[Any]] = weakref.WeakSet()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files of unfinished iterations; reading afterwards raises `ReadingError`."""
        self._closed = True
        for iteration in list(self._running):
            iteration.cut_off()

    def __iter__(self) -> Iterator[Packet]:
        self._check_open()
        packets = _Iteration((event for event in self._views() if isinstance(event, Packet)), self._unusable)
        self._running.add(packets)
        return packets

    def events(self) -> Iterator[Event]:
        """Packets and all other events: connections, gaps, capture errors."""
        self._check_open()
        events = _Iteration(self._views(), self._unusable)
        self._running.add(events)
        return events

    def connections(self) -> list[ConnectionSummary]:
        """Connections in order of appearance; with a filter, only connections with a matching event."""
        self._check_open()
        reading = self._source.reading()
        dissector = self._source.dissector(reading)
        lines = EventJsonLines(BytesIO(), show_secrets=self._show_secrets)
        wanted = self._source.filter()
        matching: set[int] = set()
        summaries: list[ConnectionSummary] = []

        def take(event: Dissected) -> None:
            if wanted is not None and not isinstance(event, CaptureError) and wanted.matches(event):
                matching.add(getattr(getattr(event, "connection", None), "number", -1))
            if isinstance(event, ConnectionClosed) and (wanted is None or event.connection.number in matching):
                summaries.append(_summary(event, lines.line(event) or "", show_secrets=self._show_secrets))

        for event in self._source.events(reading, dissector, take):
            take(event)
        return sorted(summaries, key=lambda summary: summary.number)

    def to_arrow(self, *, payload_limit: int = 0) -> pyarrow.Table:
        """The packets as a `pyarrow.Table` with the columns of the table ``packets`` of a lake (docs/lake.md).

        ``payload_limit``: bytes of each payload to keep in ``payload``; length and digest (SHA-256) are always kept.
        Tables contain no secrets, even with ``show_secrets``.  `MissingPackageError` without pyarrow.
        """
        self._check_open()
        read_limit(payload_limit)
        package = optional_package("pyarrow", extra="lake")
        optional_package("msgspec", extra="lake")
        from mqttscope.lake.options import LakeOptions
        from mqttscope.lake.schemas import TABLES
        from mqttscope.lake.tables import Collector

        reading = self._source.reading()
        dissector = self._source.dissector(reading, count_by_connection=True)
        collector = Collector(LakeOptions(dissect=dissector.options, payload_limit=payload_limit))
        rows = _PacketRows(collector, self._source.filter())
        batches = [batch for event in self._source.events(reading, dissector, rows.feed) for batch in rows.take(event)]
        batches += rows.rest()
        table: pyarrow.Table = package.Table.from_batches(batches, schema=TABLES["packets"].arrow())
        return table

    def to_pandas(self, *, payload_limit: int = 0) -> pandas.DataFrame:
        """`to_arrow` as a `pandas.DataFrame`; `MissingPackageError` without pandas."""
        optional_package("pandas")
        return self.to_arrow(payload_limit=payload_limit).to_pandas()

    def to_polars(self, *, payload_limit: int = 0) -> polars.DataFrame:
        """`to_arrow` as a `polars.DataFrame`; `MissingPackageError` without polars."""
        package = optional_package("polars")
        frame: polars.DataFrame = package.from_arrow(self.to_arrow(payload_limit=payload_limit))
        return frame

    @property
    def errors(self) -> list[CaptureError]:
        """Errors of the latest iteration up to now, as values, not exceptions."""
        return self._source.errors

    @property
    def notes(self) -> list[str]:
        """Other remarks on the latest reading, as sentences: drops, captures that overlap in time."""
        return self._source.notes

    def _check_open(self) -> None:
        if self._closed:
            raise self._unusable()

    def _unusable(self) -> ReadingError:
        """Error for use after `close`."""
        return ReadingError(f"{utf8(', '.join(self._source.names[:MAX_NAMED]))}: closed; open it again")

    def _views(self) -> Generator[Event, None, None]:
        source = self._source
        reading = source.reading()
        decoders = source.decoders()
        views = Views(payload_limit=self._payload_limit, show_secrets=self._show_secrets, decoders=decoders)
        events = source.events(reading, source.dissector(reading))
        if decoders is not None:
            # Packets outside the filter may define metrics of Sparkplug B.
            events = decoders.observed(events)
        for event in select(events, source.filter(decoders), (), None):
            shown = views.of(event)
            if shown is not None:
                yield shown


class _Iteration(Iterator[Shown]):
    """One reading, which raises an error if its captures are closed before its end."""

    def __init__(self, generator: Generator[Shown, None, None], unusable: Callable[[], ReadingError]) -> None:
        self._events = generator
        self._unusable = unusable
        self._has_ended = self._was_cut_off = False

    def __next__(self) -> Shown:
        if self._was_cut_off:
            raise self._unusable()
        try:
            return next(self._events)
        except Exception:  # including StopIteration
            self._has_ended = True
            raise

    def close(self) -> None:
        """Close the files and end."""
        self._has_ended = True
        self._events.close()

    def cut_off(self) -> None:
        """Close the files; further events of an unfinished reading raise an error."""
        self._was_cut_off = not self._has_ended
        self._events.close()


class _PacketRows:
    """Rows of matching packets, as record batches."""

    def __init__(self, collector: Collector, wanted: filters.Filter | None) -> None:
        from mqttscope.lake.tables import LOOK  # imported late: needs pyarrow

        self._look = LOOK
        self._collector = collector
        self._wanted = wanted
        self._since = 0

    def feed(self, event: Dissected) -> None:
        collector = self._collector
        rows = collector.rows["packets"]
        count = len(rows)
        is_wanted = self._wanted is None or self._wanted.matches(event)
        collector.feed(event)
        if not is_wanted:
            del rows[count:]
        for name, others in collector.rows.items():
            if name != "packets":
                others.clear()

    def take(self, event: Dissected) -> Iterator[pyarrow.RecordBatch]:
        """Feed an event; yields full batches."""
        self.feed(event)
        if self._collector.waiting >= self._look:
            yield from self._of_packets(everything=False)

    def rest(self) -> Iterator[pyarrow.RecordBatch]:
        return self._of_packets(everything=True)

    def _of_packets(self, *, everything: bool) -> Iterator[pyarrow.RecordBatch]:
        return (batch for name, batch in self._collector.batches(everything=everything) if name == "packets")


def _summary(event: ConnectionClosed, line: str, *, show_secrets: bool) -> ConnectionSummary:
    shown: Any = event if show_secrets else with_public_names(event)
    connection = shown.connection
    sides = connection.client_side, connection.server_side
    return ConnectionSummary(
        connection.number, connection.client, connection.server, connection.client_identifier,
        connection.version.text, connection.transport, captured(connection.opened_ns), captured(event.timestamp_ns),
        connection.closed_how, connection.closed_by, sum(side.packets for side in sides),
        sum(side.bytes for side in sides), connection.server_name, line,
    )  # fmt: skip


def open(  # noqa: A001 - mqttscope.open, like gzip.open
    *captures: Path,
    filter: str | None = None,  # noqa: A002 - name of the option
    keys: Path | None = None,
    ports: Ports = (),
    version: str | None = None,
    payload_limit: int = PAYLOAD_LIMIT,
    payloads: Payloads = (),
    deduplicate: bool = False,
    verify_checksums: bool = True,
    show_secrets: bool = False,
    raise_errors: bool = False,
) -> Captures:
    """Open captures to iterate over; see docs/library.md.

    ``captures``: files (pcap or pcapng, also compressed), glob patterns, directories, or ``-`` for standard input, like
    the arguments of ``mqttscope inspect``.  ``filter``: an expression (docs/filters.md).  ``keys``: a key log for
    decrypting TLS with tshark.  ``ports``: ports with MQTT: ``[1884, "8080:ws"]`` or ``{8080: "ws"}``.  ``version``:
    MQTT version of connections captured without their CONNECT.  ``payload_limit``: bytes of each payload in
    `Event.to_dict`.  ``payloads``: decoders by topic, a configuration file or tables (docs/payloads.md), for
    `Packet.value` and filters.  ``deduplicate``: the captures come from several taps: read each frame once
    (docs/taps.md).  ``verify_checksums``: discard segments with a wrong TCP checksum (docs/connections.md).
    ``show_secrets``: show passwords and tokens.  ``raise_errors``: raise `CaptureReadError` for a capture that cannot
    be read to its end, after its readable packets, instead of adding it to ``errors``.

    `CaptureNotFoundError` for a name without a file, `FilterError` for an invalid expression, `ArgumentError` for
    other invalid arguments such as ports and versions, `PayloadConfigError` for decoders; while reading,
    `ReadingError` for unusable keys, and after `Captures.close`.
    """
    source = CaptureSelection(
        captures, filter=filter, keys=keys, ports=ports, version=version, raise_errors=raise_errors, payloads=payloads,
        deduplicate=deduplicate, verify_checksums=verify_checksums,
    )  # fmt: skip
    return Captures(source, payload_limit=payload_limit, show_secrets=show_secrets)

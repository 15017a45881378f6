"""Captures as a program reads them: packets, events, connections and tables, with few lines of use.

    with mqttscope.open("a.pcapng", filter="type == publish and qos > 0") as captures:
        for packet in captures:
            print(packet.time, packet.topic, packet.payload)
        for error in captures.errors:
            print(error.capture, error.message)

What comes out is plain values of the moment at which a packet passed: they can be kept, sorted and compared.
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
    Reading,
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
from mqttscope.report.jsonl import JsonLines
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
    """Something that a capture holds, as it was when it passed."""

    kind: str
    """``packet``, ``malformed``, ``gap``, ``unparsed``, ``discarded``, ``connection_opened``, ``connection_ending``,
    ``connection_closed`` or ``capture_error``: the ``event`` of its JSON form."""
    capture: str
    """Name of the capture, as it was given or found."""
    frame: int | None
    """Number of the frame, from 1, that completed it or at which it was noticed; ``None`` for a capture error."""
    timestamp_ns: int | None
    """Capture time in nanoseconds since 1970, UTC; ``None`` for a capture error."""
    connection: int | None
    """Number of the connection, from 0, in order of appearance; ``None`` for a capture error."""
    client: str
    """Endpoint of the client: ``10.0.0.4:51234``."""
    server: str
    """Endpoint of the server."""
    client_identifier: str | None
    """As far as it is known when this passes."""
    version: str
    """Version of MQTT: ``5.0``, ``3.1.1`` or ``3.1``; empty for a capture error."""
    direction: str | None
    """``client_to_server`` or ``server_to_client``; ``None`` for what belongs to no direction."""
    _line: str = field(repr=False, compare=False)

    @property
    def time(self) -> datetime | None:
        """Capture time, with a time zone (UTC), to the microsecond."""
        if self.timestamp_ns is None:
            return None
        return EPOCH + timedelta(microseconds=self.timestamp_ns // 1000)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: what a line of ``mqttscope inspect --format jsonl`` holds (docs/jsonl.md)."""
        made: dict[str, Any] = orjson.loads(self._line)
        return made


@dataclass(slots=True)
class Packet(Event):
    """One MQTT Control Packet.

    Of bytes that are no packet, which only `decode` gives, ``kind`` is ``unparsed``, ``number`` -1 and ``type``
    ``None``.
    """

    number: int
    """Counted from 0 over everything that is read, malformed packets included."""
    type: str | None
    """Name of the packet type: ``publish``; ``None`` where not even that can be read."""
    topic: str | None
    """Resolved topic of a PUBLISH: a Topic Alias is looked up (5.0 3.3.2.3.4).  ``None`` where it cannot be known."""
    packet: ControlPacket | None
    """The decoded fields (`mqtt.packets`); of a malformed packet those before the fault, ``None`` where none is."""
    malformed: Malformed | None
    """The reason, place and bytes of a malformed packet; ``None`` for good ones."""
    raw: bytes = field(repr=False)
    """Its bytes, with asterisks in the place of secrets."""
    _is_decoded: bool = field(default=False, repr=False, compare=False)

    @property
    def payload(self) -> bytes | None:
        """The payload of a PUBLISH, with asterisks in the place of secrets; ``None`` for other packets."""
        return self.packet.payload if isinstance(self.packet, Publish) else None

    @property
    def decoded(self) -> dict[str, Any] | None:
        """What a decoder made of the payload: ``format``, and ``value`` or ``error`` (docs/payloads.md).

        ``None`` where no table is for its topic.  It has asterisks in the place of secrets.
        """
        made: dict[str, Any] | None = self.to_dict().get("payload") if self._is_decoded else None
        return made

    @property
    def value(self) -> Any:
        """The decoded payload: dictionaries, lists, text, numbers, flags and ``None``; binary values as in JSON Lines.

        ``None``, too, where there is none; `decoded` says why.
        """
        made = self.decoded
        return None if made is None else made.get("value")


class Views:
    """Makes the views of events; each while its connection is in the state before it."""

    def __init__(
        self, *, payload_limit: int = PAYLOAD_LIMIT, show_secrets: bool = False, decoders: Decoders | None = None
    ) -> None:
        self._show_secrets = show_secrets
        self._decoders = decoders
        self._lines: JsonLines | DecodedLines
        if decoders is None:
            self._lines = JsonLines(BytesIO(), payload_limit=payload_limit, show_secrets=show_secrets)
        else:
            from mqttscope.report.jsonl_decoded import DecodedLines

            view = View(payload_limit=payload_limit, show_secrets=show_secrets, payloads=decoders)
            self._lines = DecodedLines(BytesIO(), view)

    def of(self, event: Dissected) -> Event | None:
        """The view of an event, ``None`` for one that has no JSON form."""
        if isinstance(event, PacketEvent | MalformedEvent):
            return self.packet(event)
        line = self._lines.line(event)
        return None if line is None else self._other(event, line)

    def packet(self, event: PacketEvent | MalformedEvent | UnparsedEvent) -> Packet:
        """The view of a packet, or of bytes that are none."""
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
    """From 0, in order of appearance."""
    client: str
    server: str
    client_identifier: str | None
    version: str
    transport: str
    """``tcp``, ``websocket`` or ``tls``."""
    opened_ns: int
    """Capture time of its first frame, in nanoseconds since 1970."""
    closed_ns: int
    """Capture time of the first FIN or RST, or of its last frame."""
    how: str | None
    """How it ended: as ``how`` in the JSON form."""
    by: str | None
    """Who ended it: ``client`` or ``server``."""
    packets: int
    """MQTT packets of both directions."""
    bytes: int
    """Bytes of both directions."""
    server_name: str | None
    """Host name that TLS asked for, or that DNS in the capture has for the server; ``None`` if neither is known."""
    _line: str = field(repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: the line ``connection_closed`` (docs/jsonl.md)."""
        made: dict[str, Any] = orjson.loads(self._line)
        return made


def capture_names(captures: Iterable[Path]) -> list[str]:
    """The names of captures as text; :class:`TypeError` for what does not name a capture."""
    names = []
    for capture in captures:
        name = os.fspath(capture) if isinstance(capture, str | os.PathLike) else capture
        if not isinstance(name, str):
            raise TypeError(f"captures are named by str or PathLike, not by {type(name).__name__}")
        names.append(name)
    return names


class Source:
    """Captures that were named, and how to read them; each reading begins at their first frame."""

    def __init__(
        self,
        captures: Iterable[Path],
        *,
        filter: str | None = None,  # noqa: A002 - the word of the option
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
        for one in find_captures([name for name in self.names if name != STDIN]):
            if isinstance(one, CaptureError) and one.message in NOTHING_THERE:
                raise CaptureNotFoundError(f"{one.capture} {one.message}")
            if isinstance(one, str) and not os.path.lexists(one):
                raise CaptureNotFoundError(f"{one or repr(one)} does not exist")
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
        """What could not be read, of the reading that began last."""
        self.notes: list[str] = []
        """What else is to be said of that reading, as sentences."""

    def decoders(self) -> Decoders | None:
        """The decoders of payloads for one reading; ``None`` where there are none."""
        if not self._payloads:
            return None
        from mqttscope.api.payloads import decoders_of

        return decoders_of(self._payloads)

    def filter(self, decoders: Decoders | None = None) -> filters.Filter | None:
        """The compiled expression, from scratch: relative times count from the first event of a reading."""
        if self._filter is None:
            return None
        return filters.compile(self._filter, self.decoders() if decoders is None else decoders)

    def dissector(self, reading: Reading, *, count_by_connection: bool = False) -> Dissector:
        """A dissector for one reading."""
        return reading.dissector(
            Options(
                ports=dict(self._ports),
                version=self._version,
                verify_checksums=self.verify_checksums,
                count_by_connection=count_by_connection,
            )
        )

    def reading(self) -> Reading:
        """One reading; `ReadingError` where the keys cannot be used, and for standard input a second time."""
        if STDIN in self.names and self._was_read:
            raise ReadingError("standard input can be read once")
        self._was_read = True
        self.errors, self.notes = [], []
        return Reading(self.names, keylog=self._keys, deduplicate=self.deduplicate)

    def events(
        self,
        reading: Reading,
        dissector: Dissector,
        feed: Callable[[Dissected], object] | None = None,
        note_skipped: NoteSkipped | None = None,
    ) -> Iterator[Dissected]:
        """All events, but those that ``feed`` gets from a fast path; errors are noted, or raised."""
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
    """Captures to iterate over: each iteration reads them from the beginning and yields their packets.

    A context manager, too: it closes files of iterations that were left in the middle, and what is read afterwards
    raises `ReadingError`.  Standard input (``-``) can be read once.
    """

    def __init__(self, source: Source, *, payload_limit: int = PAYLOAD_LIMIT, show_secrets: bool = False) -> None:
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
        """Close the files of iterations that were left in the middle; what reads afterwards raises `ReadingError`."""
        self._closed = True
        for one in list(self._running):
            one.cut_off()

    def __iter__(self) -> Iterator[Packet]:
        self._check_open()
        packets = _Iteration((one for one in self._views() if isinstance(one, Packet)), self._unusable)
        self._running.add(packets)
        return packets

    def events(self) -> Iterator[Event]:
        """Packets, and everything else that happened: connections, gaps, capture errors."""
        self._check_open()
        events = _Iteration(self._views(), self._unusable)
        self._running.add(events)
        return events

    def connections(self) -> list[ConnectionSummary]:
        """The connections, in order of appearance; with a filter those that have an event which matches."""
        self._check_open()
        reading = self._source.reading()
        dissector = self._source.dissector(reading)
        lines = JsonLines(BytesIO(), show_secrets=self._show_secrets)
        wanted = self._source.filter()
        matching: set[int] = set()
        found: list[ConnectionSummary] = []

        def take(event: Dissected) -> None:
            if wanted is not None and not isinstance(event, CaptureError) and wanted.matches(event):
                matching.add(getattr(getattr(event, "connection", None), "number", -1))
            if isinstance(event, ConnectionClosed) and (wanted is None or event.connection.number in matching):
                found.append(_summary(event, lines.line(event) or "", show_secrets=self._show_secrets))

        for event in self._source.events(reading, dissector, take):
            take(event)
        return sorted(found, key=lambda one: one.number)

    def to_arrow(self, *, payload_limit: int = 0) -> pyarrow.Table:
        """The packets as a `pyarrow.Table` with the columns of the table ``packets`` of a lake (docs/lake.md).

        ``payload_limit``: bytes of each payload that are kept in ``payload``; length and SHA-256 always are.  Tables
        hold no secrets, whatever ``show_secrets`` says.  `MissingPackageError` without pyarrow.
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
        batches = [one for event in self._source.events(reading, dissector, rows.feed) for one in rows.take(event)]
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
        made: polars.DataFrame = package.from_arrow(self.to_arrow(payload_limit=payload_limit))
        return made

    @property
    def errors(self) -> list[CaptureError]:
        """What could not be read, as far as the reading that began last has come: values, not exceptions."""
        return self._source.errors

    @property
    def notes(self) -> list[str]:
        """What else is to be said of that reading at its end, as sentences: drops, captures that overlap in time."""
        return self._source.notes

    def _check_open(self) -> None:
        if self._closed:
            raise self._unusable()

    def _unusable(self) -> ReadingError:
        """The error for use after `close`."""
        return ReadingError(f"{utf8(', '.join(self._source.names[:MAX_NAMED]))}: closed, so it has to be opened again")

    def _views(self) -> Generator[Event, None, None]:
        source = self._source
        reading = source.reading()
        decoders = source.decoders()
        views = Views(payload_limit=self._payload_limit, show_secrets=self._show_secrets, decoders=decoders)
        events = source.events(reading, source.dissector(reading))
        if decoders is not None:
            # What a filter leaves out may name metrics of Sparkplug B.
            events = decoders.observed(events)
        for event in select(events, source.filter(decoders), (), None):
            shown = views.of(event)
            if shown is not None:
                yield shown


class _Iteration(Iterator[Shown]):
    """One reading: it says so when it ends because its captures were closed."""

    def __init__(self, made: Generator[Shown, None, None], unusable: Callable[[], ReadingError]) -> None:
        self._made = made
        self._unusable = unusable
        self._has_ended = self._was_cut_off = False

    def __next__(self) -> Shown:
        if self._was_cut_off:
            raise self._unusable()
        try:
            return next(self._made)
        except Exception:  # StopIteration, too
            self._has_ended = True
            raise

    def close(self) -> None:
        """Close its files and end."""
        self._has_ended = True
        self._made.close()

    def cut_off(self) -> None:
        """Close its files; where it has not ended, whoever asks for more gets an error."""
        self._was_cut_off = not self._has_ended
        self._made.close()


class _PacketRows:
    """Rows of packets that match, as record batches."""

    def __init__(self, collector: Collector, wanted: filters.Filter | None) -> None:
        from mqttscope.lake.tables import LOOK  # needs pyarrow, as whoever made the collector does

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
        """Take an event; gives what is enough for a batch."""
        self.feed(event)
        if self._collector.waiting >= self._look:
            yield from self._of_packets(everything=False)

    def rest(self) -> Iterator[pyarrow.RecordBatch]:
        return self._of_packets(everything=True)

    def _of_packets(self, *, everything: bool) -> Iterator[pyarrow.RecordBatch]:
        return (one for name, one in self._collector.batches(everything=everything) if name == "packets")


def _summary(event: ConnectionClosed, line: str, *, show_secrets: bool) -> ConnectionSummary:
    shown: Any = event if show_secrets else with_public_names(event)
    connection = shown.connection
    sides = connection.client_side, connection.server_side
    return ConnectionSummary(
        connection.number, connection.client, connection.server, connection.client_identifier,
        connection.version.text, connection.transport, captured(connection.opened_ns), captured(event.timestamp_ns),
        connection.closed_how, connection.closed_by, sum(one.packets for one in sides),
        sum(one.bytes for one in sides), connection.server_name, line,
    )  # fmt: skip


def open(  # noqa: A001 - mqttscope.open reads as gzip.open does
    *captures: Path,
    filter: str | None = None,  # noqa: A002 - the word of the option
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
    """Captures to iterate over; see docs/library.md.

    ``captures``: files (pcap or pcapng, also compressed), glob patterns, directories, or ``-`` for standard input, as
    ``mqttscope inspect`` takes them.  ``filter``: an expression (docs/filters.md).  ``keys``: a key log that decrypts
    TLS, by tshark.  ``ports``: where MQTT is spoken: ``[1884, "8080:ws"]`` or ``{8080: "ws"}``.  ``version``: that of
    connections whose CONNECT is not in the capture.  ``payload_limit``: bytes of each payload in `Event.to_dict`.
    ``payloads``: decoders by topic, a configuration file or tables (docs/payloads.md), for `Packet.value` and filters.
    ``deduplicate``: the captures are those of several taps, whose frames are read once (docs/taps.md).
    ``verify_checksums``: discard segments that were damaged, by their TCP checksum (docs/connections.md).
    ``show_secrets``: show passwords and tokens.  ``raise_errors``: raise `CaptureReadError` for a capture that cannot
    be read to its end, after the packets that could be read, instead of noting it in ``errors``.

    `CaptureNotFoundError` for a name that stands for no file, `FilterError` for an expression that cannot be
    understood, `ArgumentError` for other arguments such as ports and versions that do not exist, `PayloadConfigError`
    for decoders; `ReadingError`, when it is read, for keys that cannot be used, and after `Captures.close`.
    """
    source = Source(
        captures, filter=filter, keys=keys, ports=ports, version=version, raise_errors=raise_errors, payloads=payloads,
        deduplicate=deduplicate, verify_checksums=verify_checksums,
    )  # fmt: skip
    return Captures(source, payload_limit=payload_limit, show_secrets=show_secrets)

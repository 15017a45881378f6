"""The decoders of a run: one is chosen for each payload by its topic.

`Decoders.decode` takes the event of a PUBLISH and returns a `DecodedPayload`: a value, or a reason for its absence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import orjson

from mqttscope.compressed import decompress, unpack
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.topics import compile_filter
from mqttscope.mqtt.wire import counted
from mqttscope.payloads import sparkplug, values
from mqttscope.payloads.protobuf import DescriptorError, MessageType, from_wire
from mqttscope.payloads.sparkplug_topics import NAMESPACE
from mqttscope.secrets.forms import without_tokens

FORMATS: Final = ("text", "json", "cbor", "msgpack", "protobuf", "sparkplug-b")
"""Formats that a table can name."""
DECODED_KINDS: Final = ("protobuf", "sparkplug-b")
"""Views of payloads that need a decoder, even without any configuration."""
TEXTUAL: Final = ("text", "json")
MAX_UNPACKED_BYTES: Final = 1 << 20
"""Maximum number of bytes unpacked from a compressed payload; longer ones are not decoded."""
MAX_TOPICS: Final = 10_000
"""Maximum number of topics with a cached decoder."""
MAX_REASON: Final = 300
"""Maximum number of characters in a decoder's error message."""

Event = TypeVar("Event")
Function = Callable[[str, bytes], object]
"""A decoder of a package: takes a topic and a payload, and returns a value or raises."""


@dataclass(frozen=True, slots=True)
class PayloadTable:
    """One ``[[payload]]`` table, checked."""

    topic: str
    """A Topic Filter; empty for every payload."""
    format: str = ""
    """One of `FORMATS`; empty if ``decoder`` is set."""
    compression: tuple[str, ...] = ()
    """Names of `compressed.FORMATS`, from the outside in."""
    message: str = ""
    """For ``protobuf``: the full name of the message; empty to decode the wire format alone."""
    descriptors: bytes = b""
    """For ``protobuf``: the content of the descriptor file."""
    descriptor: str = ""
    """Name of that file, for error messages."""
    decoder: str = ""
    """The name of an entry point."""

    @property
    def label(self) -> str:
        """Name of the encoding: ``gzip, protobuf fleet.Report``."""
        name = self.format or self.decoder
        return ", ".join([*self.compression, f"{name} {self.message}" if self.message else name])


METRICS: Final = PayloadTable(f"{NAMESPACE}/+/+/+/#", "sparkplug-b")
"""The table for messages of edge nodes and devices of Sparkplug B."""


@dataclass(slots=True)
class DecodedPayload:
    """The result of decoding one payload."""

    label: str
    """Name of the encoding, see `PayloadTable.label`."""
    kind: str = ""
    """One of `FORMATS`, or ``decoder``."""
    value: Any = None
    """The value with its secrets, not limited for output (`values.simplified`)."""
    problem: str = ""
    """Reason for a missing value."""
    note: str = ""
    """Remark on the value."""
    data: bytes = b""
    """For text and JSON: the unpacked bytes."""
    covers: bool = False
    """Whether the bytes of the payload must be hidden if any part of the value is: they are not readable text, so
    asterisks inside would corrupt them."""
    _shown: values.SimplifiedValue | None = field(default=None, repr=False)

    def shown(self, *, show_secrets: bool) -> values.SimplifiedValue:
        """The value for output."""
        if self._shown is None:
            value, hidden = self.value, False
            if self.kind in TEXTUAL and not show_secrets and not self.problem:
                data = without_tokens(self.data)
                hidden = data is not self.data
                if hidden:
                    value = _textual(data, self.kind)
                # The secrets in the text have just been hidden in its bytes.
                show_secrets = True
            self._shown = values.simplified(value, show_secrets=show_secrets)
            self._shown.hidden = self._shown.hidden or hidden
        return self._shown

    def text(self, *, show_secrets: bool) -> str:
        """Text and JSON as sent, for output."""
        data = self.data if show_secrets else without_tokens(self.data)
        return data.decode("utf-8", "surrogateescape")


def _textual(data: bytes, kind: str) -> Any:
    if kind == "text":
        return data.decode("utf-8", "surrogateescape")
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(data)
    return None


class Decoders:
    """The decoders of a run.

    Entry points and descriptor files are loaded for the first payload that needs them.  If one cannot be loaded, its
    payloads are not decoded, with that as the reason.
    """

    def __init__(
        self, tables: tuple[PayloadTable, ...], *, functions: Callable[[str], Function] | None = None,
        births: sparkplug.Births | None = None,
    ) -> None:  # fmt: skip
        """``functions`` returns the function of an entry point by its name; `UndecodableError` if it does not exist.

        ``births``: aliases of Sparkplug B from other sources.
        """
        self.tables = tables
        self.births = sparkplug.Births() if births is None else births
        self.remembers = any(table.format == "sparkplug-b" for table in tables)
        """Whether decoding depends on earlier payloads: then all events of a run must be observed in order."""
        self._functions = functions
        self._matchers = [compile_filter(table.topic) if table.topic else None for table in tables]
        self._topics: dict[str, PayloadTable | None] = {}
        self._loaded: dict[PayloadTable, Callable[[str | None, bytes], tuple[Any, str]]] = {}
        self._last: tuple[Any, DecodedPayload | None] = (None, None)

    def __reduce__(self) -> tuple[Any, ...]:
        # Loaded functions cannot be pickled; they are loaded again.
        return _rebuild, (self.tables, self._functions)

    def with_births(self, births: sparkplug.Births) -> Decoders:
        """The same decoders with other aliases of Sparkplug B."""
        decoders = Decoders(self.tables, functions=self._functions, births=births)
        decoders._loaded = {
            table: function for table, function in self._loaded.items() if table.format != "sparkplug-b"
        }
        return decoders

    def table(self, topic: str | None) -> PayloadTable | None:
        """The first table with a matching Topic Filter."""
        if topic is None:
            return next((table for table in self.tables if not table.topic), None)
        if topic in self._topics:
            return self._topics[topic]
        match = None
        for table, matches in zip(self.tables, self._matchers, strict=True):
            if matches is None or matches(topic):
                match = table
                break
        if len(self._topics) >= MAX_TOPICS:
            self._topics.clear()
        self._topics[topic] = match
        return match

    def observe(self, event: Any) -> None:
        """Learn from an event that is not decoded what later payloads need."""
        packet = getattr(event, "packet", None)
        if self.remembers and type(packet) is Publish and event.topic and event.topic.startswith(NAMESPACE):
            self.births.observe(event.topic, packet.payload)

    def observed(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events, each observed before a filter can drop it."""
        for event in events:
            self.observe(event)
            yield event

    def decode(self, event: Any) -> DecodedPayload | None:
        """The decoded payload of an event.

        ``None`` for an event without a PUBLISH, an empty payload, or a payload without a table.
        """
        packet = getattr(event, "packet", None)
        if type(packet) is not Publish or not packet.payload:
            return None
        if self._last[0] is packet:
            return self._last[1]
        table = self.table(event.topic)
        decoded = None if table is None else self._decoded(table, event.topic, packet)
        self._last = packet, decoded
        return decoded

    def value(self, event: Any) -> DecodedPayload | None:
        """The decoded payload for field tests: JSON, and content types with a known format, need no table."""
        return self.decode(event) or _by_content(getattr(event, "packet", None))

    def _decoded(self, table: PayloadTable, topic: str | None, packet: Publish) -> DecodedPayload:
        decoded = DecodedPayload(table.label, table.format or "decoder")
        if packet.missing:
            decoded.problem = f"{counted(packet.missing, 'byte')} of it were not captured"
            return decoded
        try:
            data = _unpacked(table, packet.payload)
            if decoded.kind in TEXTUAL:
                decoded.data = data
            decoded.covers = bool(table.compression) or decoded.kind not in TEXTUAL
            decoded.value, decoded.note = self._decoder(table)(topic, data)
        except values.UndecodableError as error:
            decoded.problem = _shortened(str(error))
        except Exception as error:  # of a library, or of a user's decoder
            decoded.problem = _shortened(f"{type(error).__name__}: {error}")
        return decoded

    def _decoder(self, table: PayloadTable) -> Callable[[str | None, bytes], tuple[Any, str]]:
        function = self._loaded.get(table)
        if function is None:
            function = self._loaded[table] = self._load(table)
        return function

    def _load(self, table: PayloadTable) -> Callable[[str | None, bytes], tuple[Any, str]]:
        """The function for a table; if it cannot be loaded, one that raises the reason."""
        try:
            if table.decoder:
                if self._functions is None:
                    raise values.UndecodableError(f"decoder {table.decoder} does not exist")
                function = self._functions(table.decoder)
                return lambda topic, data: (function(topic or "", data), "")
            if table.message:
                try:
                    return _of_type(MessageType(table.descriptors, table.message))
                except DescriptorError as error:
                    raise values.UndecodableError(f"{table.descriptor}: {error}") from None
        except values.UndecodableError as error:
            return _failing(str(error))
        if table.format == "sparkplug-b":
            return lambda topic, data: sparkplug.decode(topic, data, self.births)
        read = _READERS[table.format]
        return lambda topic, data: (read(data), "")


_READERS: Final[dict[str, Callable[[bytes], Any]]] = {
    "text": values.from_text, "json": values.from_json, "cbor": values.from_cbor, "msgpack": values.from_msgpack,
    "protobuf": from_wire,
}  # fmt: skip


def _shortened(reason: str) -> str:
    return reason if len(reason) <= MAX_REASON else reason[:MAX_REASON] + "..."


def _rebuild(tables: tuple[PayloadTable, ...], functions: Callable[[str], Function] | None) -> Decoders:
    return Decoders(tables, functions=functions)


def _of_type(kind: MessageType) -> Callable[[str | None, bytes], tuple[Any, str]]:
    return lambda topic, data: kind.decode(data)


def _failing(reason: str) -> Callable[[str | None, bytes], tuple[Any, str]]:
    def fail(topic: str | None, data: bytes) -> tuple[Any, str]:
        raise values.UndecodableError(reason)

    return fail


def _unpacked(table: PayloadTable, data: bytes) -> bytes:
    for name in table.compression:
        unpacked, more, problem = decompress(data, MAX_UNPACKED_BYTES, name)
        if problem:
            raise values.UndecodableError(f"{name}: {problem}")
        if more:
            raise values.UndecodableError(f"more than {counted(MAX_UNPACKED_BYTES, 'byte')} come out of the {name}")
        data = unpacked
    return data


def _by_content(packet: Any) -> DecodedPayload | None:
    """A payload without a table, decoded as JSON or by its content type."""
    if type(packet) is not Publish or packet.missing or not packet.payload:
        return None
    data, block = packet.payload, packet.properties
    inner = unpack(data, MAX_UNPACKED_BYTES)
    if inner is not None:
        if inner.cut or inner.note:
            return None
        data = inner.data
    kind = by_content_type(None if block is None else block.content_type)
    read = _READERS[kind] if kind != "auto" else values.from_json if data.lstrip()[:1] in (b"{", b"[") else None
    if read is None:
        return None
    with suppress(values.UndecodableError):
        return DecodedPayload(kind, kind, read(data))
    return None


def by_content_type(content_type: str | None) -> str:
    """The format for a content type (5.0 3.3.2.3.9): ``json``, ``cbor``, ``msgpack``, else ``auto``."""
    if content_type is None:
        return "auto"
    kind = content_type[:256].partition(";")[0].strip().lower()
    if kind.endswith(("/json", "+json")) or kind == "json":
        return "json"
    if kind.endswith(("/cbor", "+cbor")) or kind == "cbor":
        return "cbor"
    if kind.endswith(("/msgpack", "/x-msgpack", "/vnd.msgpack", "+msgpack")) or kind == "msgpack":
        return "msgpack"
    return "auto"


def with_sparkplug(decoders: Decoders | None) -> Decoders:
    """The decoders, also for messages of edge nodes and devices of Sparkplug B."""
    if decoders is None:
        return Decoders((METRICS,))
    if METRICS in decoders.tables:
        return decoders
    return Decoders((*decoders.tables, METRICS), functions=decoders._functions, births=decoders.births)


def decoders_for(view: str, configured: Decoders | None) -> Decoders | None:
    """The decoders for a view of payloads (``--payload``): the configured ones, or the format's alone."""
    if view == "auto":
        return configured
    if view not in DECODED_KINDS:
        return None
    # Tables of this format add the message and the compression.
    tables = () if configured is None else tuple(table for table in configured.tables if table.format == view)
    every = PayloadTable("", view)
    if configured is None:
        return Decoders((every,))
    return Decoders((*tables, every), functions=configured._functions, births=configured.births)

"""The decoders of a run: which one a payload gets by its topic, and what it makes of it.

`Decoders.decode` takes the event of a PUBLISH and returns a `Decoded`: a value, or why there is none.
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
from mqttscope.secrets.forms import without_tokens

FORMATS: Final = ("text", "json", "cbor", "msgpack", "protobuf", "sparkplug-b")
"""Formats that a table can name."""
DECODED_KINDS: Final = ("protobuf", "sparkplug-b")
"""Views of payloads that need a decoder, whatever is configured."""
TEXTUAL: Final = ("text", "json")
MAX_UNPACKED_BYTES: Final = 1 << 20
"""How much of a compressed payload is unpacked; one that is longer is not decoded."""
MAX_TOPICS: Final = 10_000
"""Topics whose decoder is remembered."""
MAX_REASON: Final = 300
"""Maximum number of characters of the reason for which a decoder fails."""

Event = TypeVar("Event")
Function = Callable[[str, bytes], object]
"""A decoder of a package: takes a topic and a payload, returns a value, raises where there is none."""


@dataclass(frozen=True, slots=True)
class PayloadTable:
    """One ``[[payload]]`` table, checked."""

    topic: str
    """A Topic Filter; empty for every payload, whatever its topic is."""
    format: str = ""
    """One of `FORMATS`; empty where ``decoder`` is given."""
    compression: tuple[str, ...] = ()
    """From the outside in, of `compressed.FORMATS`."""
    message: str = ""
    """Of ``protobuf``: the full name of the message; empty for a look at the wire format."""
    descriptors: bytes = b""
    """Of ``protobuf``: what the descriptor file holds."""
    descriptor: str = ""
    """The name of that file, for messages."""
    decoder: str = ""
    """The name of an entry point."""

    @property
    def label(self) -> str:
        """What payloads are decoded as: ``gzip, protobuf fleet.Report``."""
        name = self.format or self.decoder
        return ", ".join([*self.compression, f"{name} {self.message}" if self.message else name])


@dataclass(slots=True)
class Decoded:
    """What a decoder made of one payload."""

    label: str
    """What it was decoded as."""
    kind: str = ""
    """One of `FORMATS`, or ``decoder``."""
    value: Any = None
    """As it was decoded: with its secrets, and not bounded for output (`values.simplified`)."""
    problem: str = ""
    """Why there is no value."""
    note: str = ""
    """What has to be said of it."""
    data: bytes = b""
    """Of text and JSON: its bytes, unpacked."""
    covers: bool = False
    """Whether the bytes of the payload have to be hidden where something of the value is: they do not show it as text,
    so that asterisks in its place would break them."""
    _shown: values.Simplified | None = field(default=None, repr=False)

    def shown(self, *, show_secrets: bool) -> values.Simplified:
        """The value as it may be shown."""
        if self._shown is None:
            value, hidden = self.value, False
            if self.kind in TEXTUAL and not show_secrets and not self.problem:
                data = without_tokens(self.data)
                hidden = data is not self.data
                if hidden:
                    value = _textual(data, self.kind)
                # What was hidden in the text is the same as in the bytes beside it.
                show_secrets = True
            self._shown = values.simplified(value, show_secrets=show_secrets)
            self._shown.hidden = self._shown.hidden or hidden
        return self._shown

    def text(self, *, show_secrets: bool) -> str:
        """Text and JSON as it was sent, and may be shown."""
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

    Entry points and descriptor files are loaded when the first payload needs them; what is wrong with them is the
    reason that such payloads are not decoded.
    """

    def __init__(
        self, tables: tuple[PayloadTable, ...], *, functions: Callable[[str], Function] | None = None,
        births: sparkplug.Births | None = None,
    ) -> None:  # fmt: skip
        """``functions``: gives the function of an entry point by its name; `UndecodableError` where there is none.

        ``births``: aliases of Sparkplug B, where others have seen some.
        """
        self.tables = tables
        self.births = sparkplug.Births() if births is None else births
        self.remembers = any(one.format == "sparkplug-b" for one in tables)
        """Whether payloads are decoded by what others said before: all of a run have to be observed in their order."""
        self._functions = functions
        self._matchers = [compile_filter(one.topic) if one.topic else None for one in tables]
        self._topics: dict[str, PayloadTable | None] = {}
        self._loaded: dict[PayloadTable, Callable[[str | None, bytes], tuple[Any, str]]] = {}
        self._last: tuple[Any, Decoded | None] = (None, None)

    def __reduce__(self) -> tuple[Any, ...]:
        # What was loaded cannot be pickled, and is loaded again.
        return _rebuild, (self.tables, self._functions)

    def after(self, births: sparkplug.Births) -> Decoders:
        """The same decoders where other aliases of Sparkplug B were seen."""
        made = Decoders(self.tables, functions=self._functions, births=births)
        made._loaded = {table: found for table, found in self._loaded.items() if table.format != "sparkplug-b"}
        return made

    def table(self, topic: str | None) -> PayloadTable | None:
        """The first table whose Topic Filter matches."""
        if topic is None:
            return next((one for one in self.tables if not one.topic), None)
        if topic in self._topics:
            return self._topics[topic]
        found = None
        for table, matches in zip(self.tables, self._matchers, strict=True):
            if matches is None or matches(topic):
                found = table
                break
        if len(self._topics) >= MAX_TOPICS:
            self._topics.clear()
        self._topics[topic] = found
        return found

    def observe(self, event: Any) -> None:
        """Take what an event says about payloads to come; for events that are not decoded."""
        packet = getattr(event, "packet", None)
        if self.remembers and type(packet) is Publish and event.topic and event.topic.startswith(sparkplug.NAMESPACE):
            self.births.observe(event.topic, packet.payload)

    def observed(self, events: Iterable[Event]) -> Iterator[Event]:
        """The same events, observed before a filter takes some of them."""
        for event in events:
            self.observe(event)
            yield event

    def decode(self, event: Any) -> Decoded | None:
        """What the payload of an event holds.

        ``None`` where it is none of a PUBLISH, or empty, or no table is for it.
        """
        packet = getattr(event, "packet", None)
        if type(packet) is not Publish or not packet.payload:
            return None
        if self._last[0] is packet:
            return self._last[1]
        table = self.table(event.topic)
        made = None if table is None else self._made(table, event.topic, packet)
        self._last = packet, made
        return made

    def value(self, event: Any) -> Decoded | None:
        """The same for what asks for fields of payloads: JSON needs no table, nor what the content type names."""
        return self.decode(event) or _by_content(getattr(event, "packet", None))

    def _made(self, table: PayloadTable, topic: str | None, packet: Publish) -> Decoded:
        made = Decoded(table.label, table.format or "decoder")
        if packet.missing:
            made.problem = f"{counted(packet.missing, 'byte')} of it were not captured"
            return made
        try:
            data = _unpacked(table, packet.payload)
            if made.kind in TEXTUAL:
                made.data = data
            made.covers = bool(table.compression) or made.kind not in TEXTUAL
            made.value, made.note = self._decoder(table)(topic, data)
        except values.UndecodableError as error:
            made.problem = _shortened(str(error))
        except Exception as error:  # of a library, or of a decoder of one's own
            made.problem = _shortened(f"{type(error).__name__}: {error}")
        return made

    def _decoder(self, table: PayloadTable) -> Callable[[str | None, bytes], tuple[Any, str]]:
        found = self._loaded.get(table)
        if found is None:
            found = self._loaded[table] = self._load(table)
        return found

    def _load(self, table: PayloadTable) -> Callable[[str | None, bytes], tuple[Any, str]]:
        """The function for a table; where it cannot be loaded, one that says why."""
        try:
            if table.decoder:
                if self._functions is None:
                    raise values.UndecodableError(f"there is no decoder {table.decoder}")
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
        made, more, problem = decompress(data, MAX_UNPACKED_BYTES, name)
        if problem:
            raise values.UndecodableError(f"{name}: {problem}")
        if more:
            raise values.UndecodableError(f"more than {counted(MAX_UNPACKED_BYTES, 'byte')} come out of the {name}")
        data = made
    return data


def _by_content(packet: Any) -> Decoded | None:
    """JSON, and what the content type names, where no table is for a payload."""
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
        return Decoded(kind, kind, read(data))
    return None


def by_content_type(content_type: str | None) -> str:
    """The format that a content type (5.0 3.3.2.3.9) names: ``json``, ``cbor``, ``msgpack``, else ``auto``."""
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


def decoders_for(view: str, configured: Decoders | None) -> Decoders | None:
    """The decoders for a view of payloads (``--payload``): those of the configuration, or of the format alone."""
    if view == "auto":
        return configured
    if view not in DECODED_KINDS:
        return None
    # Tables of this format say which message, and how it is compressed.
    tables = () if configured is None else tuple(one for one in configured.tables if one.format == view)
    every = PayloadTable("", view)
    if configured is None:
        return Decoders((every,))
    return Decoders((*tables, every), functions=configured._functions, births=configured.births)

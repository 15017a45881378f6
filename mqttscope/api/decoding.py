r"""Bytes of a log, a bug report or a test as packets.

    (packet,) = mqttscope.decode(b"\x30\x07\x00\x03a/bhi", version="3.1.1")
    print(packet.type, packet.topic, packet.payload)

One sequence of bytes is a stream of its own, with a connection state of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from mqttscope import arguments
from mqttscope.events import MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.mqtt.codec import packet_end
from mqttscope.mqtt.constants import Direction, PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Connect, Publish
from mqttscope.mqtt.stream import PacketStream, StreamItem, Unparsed
from mqttscope.mqtt.view import PAYLOAD_LIMIT
from mqttscope.secrets.given import hidden_in_given
from mqttscope.secrets.packets import BROKEN, CLEAR, Ranges, ends_framing
from mqttscope.session.connection import Connection

if TYPE_CHECKING:
    from mqttscope.api.captures import Packet
    from mqttscope.report.public import Found

FROM_SERVER = (PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGRESP)
"""Packet types that only servers send."""
CLIENT, SERVER = "client", "server"
OF_CAPTURES = ("capture", "frame", "timestamp", "timestamp_ns", "connection", "client", "server")
"""Keys that only captures have a value for."""


class Sequence:
    """One sequence of bytes."""

    def __init__(self, version: ProtocolVersion | None, sender: str | None, line: int | None = None) -> None:
        """``version``: that of packets without a CONNECT before them, ``None`` to find it out.

        ``sender``: ``client``, ``server`` or ``None``, as the packets suggest.  ``line``: the line that it is of.
        """
        self.line = line
        self.sender = sender
        self.malformed = 0
        self.stream = PacketStream()
        self.connection = Connection(0, CLIENT, SERVER, "-", 1, 0, roles_known=sender is not None)
        self.stream.version_source = ""
        self.places: Ranges | None = None
        """Where the secrets of damaged bytes are, if that is known."""
        if version is not None:
            self.stream.version, self.stream.version_source = version, "given"
            self.connection.assume_version(version, "given", known=True)

    def direction(self, kind: int | None) -> Direction:
        """The direction of a packet of this type: the user's choice, else what its type demands, else to the server."""
        from_server = self.sender == SERVER or (self.sender is None and kind in FROM_SERVER)
        return Direction.SERVER_TO_CLIENT if from_server else Direction.CLIENT_TO_SERVER

    def items(self, raw: bytes) -> list[StreamItem]:
        """What the bytes hold."""
        connection = self.connection
        items = self.stream.feed(raw)
        items += self.stream.close()
        if self.places is not None or packet_end(raw, 0, len(raw))[1] == len(raw):
            # One packet is given mostly, and it says itself what it is.
            connection.client_side.doubt = connection.server_side.doubt = CLEAR
        elif any(map(ends_framing, items)):
            # Who knows whether what comes first is a packet, when something after it is none.
            connection.client_side.doubt = connection.server_side.doubt = BROKEN
            connection.doubtful = True
        if not self.connection.version_known:
            source = self.stream.version_source
            self.connection.assume_version(self.stream.version, source or "none", known=source == "CONNECT")
        return items

    def events(
        self, raw: bytes, *, show_secrets: bool = False
    ) -> Iterator[PacketEvent | MalformedEvent | UnparsedEvent]:
        """Events as a capture would give them, at time zero; of damaged bytes without what is secret in them."""
        from mqttscope.report.public import public_given

        before = self.malformed
        self.places = None if show_secrets else hidden_in_given(raw)
        if self.places is None:
            yield from self._events(raw)
            return
        found = list(self._events(raw))
        at = 0
        for event in found:
            start, at = at, at + len(_bytes_of(event))
            own = [
                (max(start, first) - start, min(at, end) - start)
                for first, end in self.places
                if first < at and end > start
            ]
            yield event if self.malformed == before else public_given(event, own)

    def _events(self, raw: bytes) -> Iterator[Found]:
        connection = self.connection
        number = 0
        for item in self.items(raw):
            direction = self.direction(item.packet_type)
            if isinstance(item, ControlPacket):
                connection.identify(item)
                topic = connection.resolve_topic(item, direction) if isinstance(item, Publish) else None
                yield PacketEvent(connection, direction, number, 1, 0, "-", item, topic)
                connection.side(direction).stream_offset += len(item.raw)
                connection.apply(item, direction, number, 1, 0)
                number += 1
            elif isinstance(item, Malformed):
                self.malformed += 1
                made, side = item.packet, connection.side(direction)
                doubt = side.doubt
                if made is not None and (item.complete or isinstance(made, Connect)):
                    connection.identify(made, item.raw)
                topic = connection.resolve_topic(made, direction) if isinstance(made, Publish) else None
                yield MalformedEvent(connection, direction, number, 1, 0, "-", item, topic)
                side.stream_offset += len(item.raw)
                if made is not None and item.complete:
                    connection.apply(made, direction, number, 1, 0)
                self._distrust(item, direction, doubt)
                number += 1
            else:
                self.malformed += 1
                yield UnparsedEvent(connection, direction, 1, 0, "-", item)
                self._distrust(item, direction, connection.side(direction).doubt)

    def _distrust(self, item: Malformed | Unparsed, direction: Direction, doubt: int) -> None:
        """Trust what follows something damaged less, unless it is known where the secrets are."""
        self.connection.side(direction).doubt = doubt
        if self.places is None:
            self.connection.distrust(item, direction)

    def json(self, raw: bytes, limit: int, *, show_secrets: bool) -> Iterable[bytes]:
        """JSON Lines of the events, without what only a capture has."""
        import orjson

        from mqttscope.report.jsonl import JsonLines, dumps, harmless

        lines: list[bytes] = []
        sink = SimpleNamespace(write=lines.append)
        reporter = JsonLines(sink, payload_limit=limit, show_secrets=show_secrets)
        for event in self.events(raw, show_secrets=show_secrets):
            reporter.feed(event)
            for line in lines:
                yield harmless(dumps(self.without_capture(orjson.loads(line)))) + b"\n"
            lines.clear()

    def without_capture(self, shown: dict[str, Any]) -> dict[str, Any]:
        """The JSON form of an event without what only captures have."""
        for name in OF_CAPTURES:
            shown.pop(name, None)
        if self.sender is None:
            shown["direction"] = None
        if self.line is not None:
            shown = {"schema": shown.pop("schema"), "event": shown.pop("event"), "line": self.line, **shown}
        return shown


def _bytes_of(event: Found) -> bytes:
    if isinstance(event, PacketEvent):
        return event.packet.raw
    return event.malformed.raw if isinstance(event, MalformedEvent) else event.unparsed.raw


def decode(
    data: bytes | bytearray | memoryview,
    *,
    version: str | None = None,
    sender: str | None = None,
    payload_limit: int = PAYLOAD_LIMIT,
    show_secrets: bool = False,
) -> list[Packet]:
    """The packets that bytes hold, in their order.

    ``version``: that of packets without a CONNECT before them (``3.1``, ``3.1.1`` or ``5.0``); by default it is found
    out.  ``sender``: ``client`` or ``server``; by default as the packets suggest, and `Packet.direction` is ``None``.
    ``payload_limit`` and ``show_secrets`` are as for `open`.

    What breaks the layout comes as a packet with ``malformed``, an incomplete one at the end too (reason
    ``truncated``), and bytes that are none with the kind ``unparsed``: no bytes raise anything.  `ArgumentError` for a
    version or sender that does not exist, :class:`TypeError` for what is not bytes: ``bytes.fromhex`` reads
    hexadecimal digits.
    """
    import orjson

    from mqttscope.api.captures import Views
    from mqttscope.api.reading import read_limit, read_version
    from mqttscope.errors import ArgumentError

    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"decode takes bytes, not {type(data).__name__}; bytes.fromhex reads hexadecimal digits")
    if sender not in (None, CLIENT, SERVER):
        raise ArgumentError(f"{sender!r} is neither client nor server")
    arguments.flag("show_secrets", show_secrets)
    sequence = Sequence(read_version(version), sender)
    views = Views(payload_limit=read_limit(payload_limit), show_secrets=show_secrets)
    found: list[Packet] = []
    for event in sequence.events(bytes(data), show_secrets=show_secrets):
        packet = views.packet(event)
        line = orjson.dumps(sequence.without_capture(packet.to_dict())).decode()
        shown = replace(packet, capture="", frame=None, timestamp_ns=None, connection=None, client="", server="")
        found.append(replace(shown, direction=None if sender is None else packet.direction, _line=line))
    return found

r"""Decodes bytes from a log, a bug report or a test into packets.

    (packet,) = mqttscope.decode(b"\x30\x07\x00\x03a/bhi", version="3.1.1")
    print(packet.type, packet.topic, packet.payload)

Each sequence of bytes is a separate stream with a separate connection state.
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
from mqttscope.secrets.packets import BROKEN, CLEAR, Ranges, ends_framing
from mqttscope.secrets.user_input import hidden_in_user_input
from mqttscope.session.connection import Connection

if TYPE_CHECKING:
    from mqttscope.api.captures import Packet
    from mqttscope.report.public import ByteEvent

FROM_SERVER = (PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGRESP)
"""Packet types that only servers send."""
CLIENT, SERVER = "client", "server"
OF_CAPTURES = ("capture", "frame", "timestamp", "timestamp_ns", "connection", "client", "server")
"""Keys of the JSON form that only apply to captures."""


class Sequence:
    """One sequence of bytes."""

    def __init__(self, version: ProtocolVersion | None, sender: str | None, line: int | None = None) -> None:
        """``version``: MQTT version of packets that follow no CONNECT, ``None`` to detect it.

        ``sender``: ``client``, ``server`` or ``None`` to infer it.  ``line``: number of its input line.
        """
        self.line = line
        self.sender = sender
        self.malformed = 0
        self.stream = PacketStream()
        self.connection = Connection(0, CLIENT, SERVER, "-", 1, 0, roles_known=sender is not None)
        self.stream.version_source = ""
        self.places: Ranges | None = None
        """Ranges of secrets in damaged bytes, if known."""
        if version is not None:
            self.stream.version, self.stream.version_source = version, "given"
            self.connection.assume_version(version, "given", known=True)

    def direction(self, kind: int | None) -> Direction:
        """Direction of a packet type: from the user, else implied by the type, else to the server."""
        from_server = self.sender == SERVER or (self.sender is None and kind in FROM_SERVER)
        return Direction.SERVER_TO_CLIENT if from_server else Direction.CLIENT_TO_SERVER

    def items(self, raw: bytes) -> list[StreamItem]:
        """Packets and other items in the bytes."""
        connection = self.connection
        items = self.stream.feed(raw)
        items += self.stream.close()
        if self.places is not None or packet_end(raw, 0, len(raw))[1] == len(raw):
            # Usually there is a single packet with a consistent length.
            connection.client_side.doubt = connection.server_side.doubt = CLEAR
        elif any(map(ends_framing, items)):
            # If later bytes are not a packet, the first bytes may not be one either.
            connection.client_side.doubt = connection.server_side.doubt = BROKEN
            connection.doubtful = True
        if not self.connection.version_known:
            source = self.stream.version_source
            self.connection.assume_version(self.stream.version, source or "none", known=source == "CONNECT")
        return items

    def events(
        self, raw: bytes, *, show_secrets: bool = False
    ) -> Iterator[PacketEvent | MalformedEvent | UnparsedEvent]:
        """Events as of a capture, at time zero; secrets in damaged bytes are hidden."""
        from mqttscope.report.public import public_input

        before = self.malformed
        self.places = None if show_secrets else hidden_in_user_input(raw)
        if self.places is None:
            yield from self._events(raw)
            return
        events = list(self._events(raw))
        at = 0
        for event in events:
            start, at = at, at + len(_bytes_of(event))
            own = [
                (max(start, first) - start, min(at, end) - start)
                for first, end in self.places
                if first < at and end > start
            ]
            yield event if self.malformed == before else public_input(event, own)

    def _events(self, raw: bytes) -> Iterator[ByteEvent]:
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
                packet, side = item.packet, connection.side(direction)
                doubt = side.doubt
                if packet is not None and (item.complete or isinstance(packet, Connect)):
                    connection.identify(packet, item.raw)
                topic = connection.resolve_topic(packet, direction) if isinstance(packet, Publish) else None
                yield MalformedEvent(connection, direction, number, 1, 0, "-", item, topic)
                side.stream_offset += len(item.raw)
                if packet is not None and item.complete:
                    connection.apply(packet, direction, number, 1, 0)
                self._distrust(item, direction, doubt)
                number += 1
            else:
                self.malformed += 1
                yield UnparsedEvent(connection, direction, 1, 0, "-", item)
                self._distrust(item, direction, connection.side(direction).doubt)

    def _distrust(self, item: Malformed | Unparsed, direction: Direction, doubt: int) -> None:
        """Lower the trust in bytes after damage, unless the ranges of secrets are known."""
        self.connection.side(direction).doubt = doubt
        if self.places is None:
            self.connection.distrust(item, direction)

    def json(self, raw: bytes, limit: int, *, show_secrets: bool) -> Iterable[bytes]:
        """JSON Lines of the events, without the keys of captures."""
        import orjson

        from mqttscope.report.jsonl import EventJsonLines, dumps, harmless

        lines: list[bytes] = []
        sink = SimpleNamespace(write=lines.append)
        reporter = EventJsonLines(sink, payload_limit=limit, show_secrets=show_secrets)
        for event in self.events(raw, show_secrets=show_secrets):
            reporter.feed(event)
            for line in lines:
                yield harmless(dumps(self.without_capture(orjson.loads(line)))) + b"\n"
            lines.clear()

    def without_capture(self, shown: dict[str, Any]) -> dict[str, Any]:
        """The JSON form of an event without the keys of captures."""
        for name in OF_CAPTURES:
            shown.pop(name, None)
        if self.sender is None:
            shown["direction"] = None
        if self.line is not None:
            shown = {"schema": shown.pop("schema"), "event": shown.pop("event"), "line": self.line, **shown}
        return shown


def _bytes_of(event: ByteEvent) -> bytes:
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
    """Decode bytes into packets, in order.

    ``version``: MQTT version of packets that follow no CONNECT (``3.1``, ``3.1.1`` or ``5.0``); detected by default.
    ``sender``: ``client`` or ``server``; inferred from the packets by default, and `Packet.direction` is ``None``.
    ``payload_limit`` and ``show_secrets`` are as for `open`.

    A malformed packet has ``malformed`` set, also an incomplete one at the end (reason ``truncated``), and bytes that
    are not a packet have the kind ``unparsed``: no bytes raise an error.  `ArgumentError` for an unknown version or
    sender, :class:`TypeError` for other types than bytes: ``bytes.fromhex`` reads hexadecimal digits.
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
    packets: list[Packet] = []
    for event in sequence.events(bytes(data), show_secrets=show_secrets):
        packet = views.packet(event)
        line = orjson.dumps(sequence.without_capture(packet.to_dict())).decode()
        shown = replace(packet, capture="", frame=None, timestamp_ns=None, connection=None, client="", server="")
        packets.append(replace(shown, direction=None if sender is None else packet.direction, _line=line))
    return packets

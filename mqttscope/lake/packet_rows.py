"""Rows of packets that are as their bytes say, which nearly all events are: a layout of their own, quick to read.

What it means is what `lake.scopes` says of a row.  As in `lake.state`, reading runs no code, and other versions and
damage are a `StateError`.

    b"MQTP", version (1 byte), CRC-32 of the rest (4 bytes, big endian), then the head (`_HEAD`), for each side of which
    TCP has told anything new its numbers (`_SIDE`), and the capture, the topic and the bytes of the packet, whose
    lengths are in the head; what is left is a value of `lake.state`: what else has changed of the connection
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, NamedTuple

from mqttscope.events import PacketEvent
from mqttscope.lake.state import StateError, dump, load
from mqttscope.lake.tracker import Beside
from mqttscope.mqtt.constants import Direction

MAGIC = b"MQTP"
VERSION = 1

_SEAL = struct.Struct(">4sBI")
_HEAD = struct.Struct(">HqqqqqqIII")
"""What there is, frame, time, number, offset in the stream, how far the sides are read, and the three lengths."""
_SIDE = struct.Struct(">qq?qqqqqqq")
"""What there is of `Party`: ``begun`` is whether there is one and its two numbers, in the place of one."""
_TO_SERVER, _DROPPED, _CLIENT_GAPPED, _SERVER_GAPPED = 1, 2, 4, 8
_TOPIC, _OWN_TOPIC = 16, 32
"""There is a topic here; it is the Topic Name of the packet."""
_TCP, _DISORDERED, _CLIENT, _SERVER = 64, 128, 256, 512


class PacketRow(NamedTuple):
    """What a row says."""

    to_server: bool
    number: int
    place: tuple[int, int, str]
    """Frame, time and capture."""
    raw: bytes
    topic: str | None
    own_topic: bool
    """The topic is the Topic Name of the packet."""
    stream_offset: int
    dropped: bool
    """Whether the capture is known to lack frames."""
    told: Beside
    """What is new beside the packet."""


def write(event: PacketEvent, raw: bytes, told: Beside, *, dropped: bool) -> bytes | None:
    """The row of a packet that its bytes give again; ``None`` where numbers are too large for this layout.

    ``told`` is what is new beside it, ``dropped`` whether its capture is known to lack frames.
    """
    fields, ((client_gapped, client_offset), (server_gapped, server_offset)), details, tcp = told
    flags = (
        (event.direction is Direction.CLIENT_TO_SERVER) * _TO_SERVER
        | dropped * _DROPPED
        | client_gapped * _CLIENT_GAPPED
        | server_gapped * _SERVER_GAPPED
    )
    capture, topic = event.capture.encode("utf-8", "surrogatepass"), b""
    if event.topic is not None:
        if event.topic == getattr(event.packet, "topic_name", None):
            flags |= _OWN_TOPIC
        else:
            flags |= _TOPIC
            topic = event.topic.encode("utf-8", "surrogatepass")
    try:
        sides = b""
        if tcp is not None:
            disordered, client, server = tcp
            flags |= _TCP | disordered * _DISORDERED
            if client is not None:
                flags |= _CLIENT
                sides = _side(client)
            if server is not None:
                flags |= _SERVER
                sides += _side(server)
        head = _HEAD.pack(
            flags, event.frame, event.timestamp_ns, event.number, event.stream_offset, client_offset, server_offset,
            len(capture), len(topic), len(raw),
        )  # fmt: skip
    except struct.error:
        return None
    more = b"" if fields is None and details is None else dump((fields, details), compress=False)
    body = b"".join((head, sides, capture, topic, raw, more))
    return _SEAL.pack(MAGIC, VERSION, zlib.crc32(body)) + body


def _side(values: tuple[Any, ...]) -> bytes:
    position, acknowledged, segment_ns, begun, *others = values
    before, before_ns = begun or (0, 0)
    return _SIDE.pack(position, acknowledged, begun is not None, before, before_ns, segment_ns, *others)


def read(data: bytes) -> PacketRow:
    """What `write` was given; `StateError` where these are not such bytes."""
    try:
        _, version, crc = _SEAL.unpack_from(data)
        if version != VERSION:
            raise StateError(f"the row has version {version}, this program reads {VERSION}")
        if zlib.crc32(memoryview(data)[_SEAL.size :]) != crc:
            raise StateError("the row is damaged")
        (
            flags, frame, timestamp_ns, number, offset, client_offset, server_offset, capture_bytes, topic_bytes,
            raw_bytes,
        ) = _HEAD.unpack_from(data, _SEAL.size)  # fmt: skip
        at = _SEAL.size + _HEAD.size
        tcp: Any = None
        if flags & _TCP:
            client = server = None
            if flags & _CLIENT:
                client = _read_side(data, at)
                at += _SIDE.size
            if flags & _SERVER:
                server = _read_side(data, at)
                at += _SIDE.size
            tcp = (flags & _DISORDERED != 0, client, server)
        capture = data[at : (at := at + capture_bytes)].decode("utf-8", "surrogatepass")
        topic = data[at : (at := at + topic_bytes)].decode("utf-8", "surrogatepass") if flags & _TOPIC else None
        raw = data[at : (at := at + raw_bytes)]
        fields, details = load(data[at:]) if at < len(data) else (None, None)
    except (struct.error, UnicodeDecodeError, TypeError) as error:
        raise StateError(f"the row is damaged: {error}") from None
    sides = (flags & _CLIENT_GAPPED != 0, client_offset), (flags & _SERVER_GAPPED != 0, server_offset)
    return PacketRow(
        flags & _TO_SERVER != 0, number, (frame, timestamp_ns, capture), raw, topic, flags & _OWN_TOPIC != 0, offset,
        flags & _DROPPED != 0, (fields, sides, details, tcp),
    )  # fmt: skip


def _read_side(data: bytes, at: int) -> tuple[Any, ...]:
    position, acknowledged, is_begun, before, before_ns, segment_ns, *others = _SIDE.unpack_from(data, at)
    return (position, acknowledged, segment_ns, (before, before_ns) if is_begun else None, *others)

"""Reads a packet again whose Remaining Length is wrong, with the lengths that common mistakes leave in its place.

Two libraries in three that write the length themselves got it wrong in one of these ways: one plain byte for more than
127, a byte of it missing, its bytes swapped, a plain two-byte number, or a count that differs from the fields.  A
reading with another length that fits all bytes is a proof: nothing else makes them fit by chance.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mqttscope.mqtt.codec import decode, decode_framed, packet_end, reserved
from mqttscope.mqtt.constants import MalformedReason, PacketType, ProtocolVersion
from mqttscope.mqtt.declare import PACKETS, Malformed
from mqttscope.mqtt.wire import MAX_VARIABLE_BYTE_INTEGER, write_variable_byte_integer

_PUBLISH: Final = PacketType.PUBLISH
_LENGTH_BYTES: Final = 4
_SHORT: Final = re.compile(rb"[\x40\x50\x70]\x02..|\x62\x02..|[\xc0\xd0]\x00", re.DOTALL)
"""Acknowledgements without a reason code, and pings."""
_LEFT_OVER: Final = (MalformedReason.TRAILING_BYTES, MalformedReason.CONNECT_PAYLOAD_MISMATCH)


@dataclass(slots=True, frozen=True)
class Repair:
    """Another length of a packet, with which its bytes fit."""

    end: int
    """Bytes of the whole packet."""
    length: int
    """Remaining Length."""
    what: str
    """What is wrong with the length as written."""
    is_proven: bool
    """Whether the bytes at hand show it: the packet is read to its end, and nothing or whole packets follow."""


@dataclass(slots=True, frozen=True)
class Intruder:
    """A packet that begins inside another one."""

    at: int
    """Place of its first byte in the other packet."""
    size: int
    """Bytes of the other packet by its own length."""
    raw: bytes
    is_inserted: bool
    """Whether the other packet continues after it; else the rest of the other packet is missing."""


def intruder(packet: bytes, rest: bytes, version: ProtocolVersion) -> Intruder | None:
    """A packet that begins inside a PUBLISH, as its bytes and those after it prove: with it, whole packets fill them.

    ``rest``: what follows the PUBLISH by its own length, and cannot be read.
    """
    data, own = packet + rest, len(packet)
    if not packet or packet[0] >> 4 != _PUBLISH:
        return None
    for found in _SHORT.finditer(packet, 2):
        left = data[: found.start()] + data[found.end() :]
        if packet_end(left, 0, len(left))[1] > found.start() and _is_whole(left, 0, version):
            return Intruder(found.start(), own, found[0], is_inserted=True)
    for at in range(2, own):
        body, end = packet_end(data, at, len(data))
        if body > 0 and own < end <= len(data) and _may_begin(data[at], version) and _is_whole(data, at, version):
            return Intruder(at, own, data[at:end], is_inserted=False)
    return None


def _is_whole(data: bytes, at: int, version: ProtocolVersion) -> bool:
    """Whether a whole packet begins at a place, and others after it (`_ends_well`)."""
    end = packet_end(data, at, len(data))[1]
    if not at < end <= len(data) or isinstance(decode(data[at:end], version), Malformed):
        return False
    return _ends_well(data, end, version)


def repairs(data: bytes, version: ProtocolVersion) -> Iterator[Repair]:
    """Readings of a packet with other lengths; ``data`` begins with it, and has what follows it in its stream."""
    for body in range(2, 2 + _LENGTH_BYTES):
        written = data[1:body]
        if len(written) + 1 < body:
            return
        for length, what in _lengths(data, body, written, version):
            end = body + length
            if what and _fits(data, body, length, version):
                yield Repair(end, length, what, end <= len(data) and _ends_well(data, end, version))


def _lengths(data: bytes, body: int, written: bytes, version: ProtocolVersion) -> Iterator[tuple[int, str]]:
    """Lengths that may be meant where the body begins at a byte, each with what is wrong then."""
    shown = written.hex(" ").upper()
    if data[0] >> 4 != _PUBLISH:
        length = _fields_end(data, body, version)
        if length is not None:
            yield length, _mistake(length, written)
        return
    plain = int.from_bytes(written, "big")
    if len(written) <= 2 and (len(written) == 2 or plain >= 0x80):
        yield plain, _mistake(plain, written)
    if len(written) > 1 and written[0] < 0x80 <= min(written[1:]):
        yield (length := _value(written[::-1])), _mistake(length, written)
    if min(written) >= 0x80 and len(written) < _LENGTH_BYTES:
        low = _value(written)
        for high in range(1, 0x80):
            length = low + (high << 7 * len(written))
            yield length, f"its last byte is missing: {shown} is the beginning of {_encoded(length)} ({length:,})"


def _mistake(length: int, written: bytes) -> str:
    """What is wrong with a length that is written in this way; empty where nothing is."""
    shown, right = written.hex(" ").upper(), write_variable_byte_integer(length)
    meant = f"{_encoded(length)} ({length:,})"
    if right == written:
        return ""
    if int.from_bytes(written, "big") == length:
        return f"it is written as a plain number: {shown} in the place of {meant}"
    if right[: len(written)] == written:
        return f"its last byte is missing: {shown} is the beginning of {meant}"
    if right == written[::-1]:
        return f"its bytes are swapped: {shown} in the place of {meant}"
    if len(right) == len(written) and packet_end(b"\0" + written, 0, len(written) + 1)[0] > 0:
        return f"it is {shown} ({_value(written):,}), and the fields need {meant}"
    return ""


def _value(written: bytes) -> int:
    return sum((byte & 0x7F) << 7 * at for at, byte in enumerate(written))


def _encoded(length: int) -> str:
    return write_variable_byte_integer(length).hex(" ").upper()


def _fields_end(data: bytes, body: int, version: ProtocolVersion) -> int | None:
    """Bytes that the fields of a packet take which says itself where it ends."""
    rest = data[body:]
    found = _framed(data[0], rest, version)
    if not isinstance(found, Malformed):
        return len(rest)
    only = len(found.faults) == 1 and found.reason in _LEFT_OVER
    return found.offset - 1 - len(write_variable_byte_integer(len(rest))) if only else None


def _fits(data: bytes, body: int, length: int, version: ProtocolVersion) -> bool:
    """Whether the bytes at hand are those of a well-formed packet of this length, or its beginning."""
    if length > MAX_VARIABLE_BYTE_INTEGER:
        return False
    rest = data[body : body + length]
    if len(rest) == length or data[0] >> 4 != _PUBLISH:
        return len(rest) == length and not isinstance(_framed(data[0], rest, version), Malformed)
    # The beginning of a PUBLISH: its topic and what follows are there, and the payload continues.
    return not isinstance(_framed(data[0], rest, version), Malformed)


def _framed(first: int, body: bytes, version: ProtocolVersion) -> object:
    length = write_variable_byte_integer(len(body))
    return decode_framed(bytes((first,)) + length + body, 1 + len(length), version)


def _may_begin(first: int, version: ProtocolVersion) -> bool:
    """Whether a packet may have this first byte."""
    kind = first >> 4
    if reserved(kind, version):
        return False
    return first & 6 != 6 if kind == _PUBLISH else first & 15 == PACKETS[kind].fixed_flags


def _ends_well(data: bytes, at: int, version: ProtocolVersion) -> bool:
    """Whether nothing follows, or whole packets do, of which the last may be unfinished."""
    while at < len(data):
        body, end = packet_end(data, at, len(data))
        if body < 0:
            return False
        if body == 0 or end > len(data):
            return _may_begin(data[at], version)
        if isinstance(decode(data[at:end], version), Malformed):
            return False
        at = end
    return True

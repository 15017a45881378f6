"""Reads the bytes of a side in another way if its packets are malformed, and so proves the fault before them.

A Remaining Length may be wrong.  `repairs` tries the lengths that common mistakes leave in its place.

Two libraries in three that write the length themselves got it wrong in one of these ways: one plain byte for more than
127, a byte of it missing, its bytes swapped, a plain two-byte number, or a count that differs from the fields.  A
reading with another length that fits all bytes is a proof: nothing else makes them fit by chance.

A length that counts the characters of a text, and not its bytes, is as many bytes too small as UTF-8 has continuation
bytes there.

Bytes of a PUBLISH may be missing, or another packet may be written into its middle.  `intruder` looks for a packet that
begins inside a PUBLISH and lets whole packets fill all bytes at hand.

`misreading` tries both on a malformed packet and on the PUBLISH before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from mqttscope.mqtt.codec import decode, decode_framed, packet_end, reserved
from mqttscope.mqtt.constants import MalformedReason, PacketType, ProtocolVersion
from mqttscope.mqtt.declare import PACKETS, Malformed
from mqttscope.mqtt.wire import MAX_VARIABLE_BYTE_INTEGER, counted, write_variable_byte_integer

_PUBLISH: Final = PacketType.PUBLISH
_LENGTH_BYTES: Final = 4
_SHORT: Final = re.compile(rb"[\x40\x50\x70]\x02..|\x62\x02..|[\xc0\xd0]\x00", re.DOTALL)
"""Acknowledgements without a reason code, and pings."""
MAX_LEFT_OUT: Final = 256
"""Maximum number of bytes that a Remaining Length leaves out, as a count of characters does."""
_LEAST_AFTER: Final = 4
"""Minimum number of bytes of whole packets that prove where a PUBLISH ends."""
_LEFT_OVER: Final = (MalformedReason.TRAILING_BYTES, MalformedReason.CONNECT_PAYLOAD_MISMATCH)


@dataclass(slots=True, frozen=True)
class Repair:
    """Another length of a packet that fits its bytes."""

    end: int
    """Bytes of the whole packet."""
    length: int
    """Remaining Length."""
    what: str
    """The mistake in the written length."""
    is_proven: bool
    """Whether the bytes at hand show it: the packet is read to its end, and nothing or whole packets follow."""
    left_out: int = 0
    """Bytes of the payload of a PUBLISH that its length does not count."""


@dataclass(slots=True, frozen=True)
class Intruder:
    """A packet that begins inside another one."""

    at: int
    """Offset of its first byte in the other packet."""
    size: int
    """Size of the other packet according to its own length."""
    raw: bytes
    is_inserted: bool
    """Whether the other packet continues after it; else the rest of the other packet is missing."""


@dataclass(slots=True, frozen=True)
class Misreading:
    """Another reading of a side, which proves a fault in one of its packets."""

    packet: bytes
    """The packet with the fault, up to the end by its own length."""
    is_before: bool
    """Whether that is the PUBLISH before the malformed packet."""
    intruder: Intruder | None
    repair: Repair | None
    """Another length, if no packet begins inside."""


def misreading(data: bytes, before: bytes, version: ProtocolVersion, *, sent: int = -1) -> Misreading | None:
    """The fault that explains a malformed packet and the bytes after it; ``None`` without a proof.

    ``data``: the malformed packet and what follows it (`Malformed.after`); ``before``: as `Malformed.before`; ``sent``:
    number of bytes that its sender sent from its first one on until the end, if known.
    """
    size = packet_end(data, 0, len(data))[1]
    own = data[:size] if 0 < size <= len(data) else data
    inner = intruder(own, data[len(own) :], version) if size > 0 else None
    if inner is not None:
        return Misreading(own, False, inner, None)
    inner = intruder(before, data, version)
    if inner is not None:
        return Misreading(before, True, inner, None)
    repair = next((repair for repair in repairs(data, version) if repair.is_proven or repair.end == sent), None)
    if repair is not None:
        return Misreading(own, False, None, repair)
    repair = _longer(before, data, version)
    return None if repair is None else Misreading(before, True, None, repair)


def _longer(packet: bytes, rest: bytes, version: ProtocolVersion) -> Repair | None:
    """A length of a PUBLISH that is some bytes longer: whole packets then fill all bytes after it.

    Nothing is proven if whole packets follow the malformed packet after the PUBLISH by its own length.
    """
    body = packet_end(packet, 0, len(packet))[0]
    end = packet_end(rest, 0, len(rest))[1]
    if body <= 0 or (0 < end <= len(rest) and _ends_well(rest, end, version)):
        return None
    at = _uncounted(packet, body, rest, version)
    if at:
        length = len(packet) - body + at
        what = f"it counts the characters of a text and not its bytes: it is {packet[1:body].hex(' ').upper()}"
        return Repair(len(packet) + at, length, f"{what} ({length - at:,}) in the place of {length:,}", True, at)
    for at in range(1, min(MAX_LEFT_OUT, len(rest) - _LEAST_AFTER) + 1):
        if _may_begin(rest[at], version) and _is_whole(rest, at, version, may_be_unfinished=False):
            length = len(packet) - body + at
            what = f"it is {packet[1:body].hex(' ').upper()} ({length - at:,}), and the next packet begins"
            what += f" {counted(at, 'byte')} after its end"
            return Repair(len(packet) + at, length, what, True, at)
    return None


def _uncounted(packet: bytes, body: int, rest: bytes, version: ProtocolVersion) -> int:
    """Number of bytes that the length of a PUBLISH leaves out because it counts characters; 0 if it does not.

    The text, whole with these bytes, has as many continuation bytes of UTF-8, and nothing or another packet follows.
    """
    publish = _framed(packet[0], packet[body:], version)
    begun = getattr(publish, "payload", b"") if packet[0] >> 4 == _PUBLISH else b""
    for at in range(1, min(MAX_LEFT_OUT, len(rest)) + 1):
        payload = begun + rest[:at]
        if sum(byte & 0xC0 == 0x80 for byte in payload) != at or (rest[at:] and not _may_begin(rest[at], version)):
            continue
        with suppress(UnicodeDecodeError):
            payload.decode()
            return at
    return 0


def intruder(packet: bytes, rest: bytes, version: ProtocolVersion) -> Intruder | None:
    """A packet that begins inside a PUBLISH, as its bytes and those after it prove: with it, whole packets fill them.

    ``rest``: bytes after the PUBLISH by its own length, which cannot be read.  A reading with an unfinished last packet
    comes after all others.
    """
    if not packet or packet[0] >> 4 != _PUBLISH:
        return None
    data = packet + rest
    readings = (_intruder(data, len(packet), version, may_be_unfinished=last) for last in (False, True))
    return next(filter(None, readings), None)


def _intruder(data: bytes, own: int, version: ProtocolVersion, *, may_be_unfinished: bool) -> Intruder | None:
    """As `intruder`; ``own``: bytes of the PUBLISH by its own length."""

    def is_whole(data: bytes, at: int) -> bool:
        return _is_whole(data, at, version, may_be_unfinished=may_be_unfinished)

    for short in _SHORT.finditer(data, 2, own):
        left = data[: short.start()] + data[short.end() :]
        if packet_end(left, 0, len(left))[1] > short.start() and is_whole(left, 0):
            return Intruder(short.start(), own, short[0], is_inserted=True)
    for at in range(2, own):
        body, end = packet_end(data, at, len(data))
        if body > 0 and own < end <= len(data) and _may_begin(data[at], version) and is_whole(data, at):
            return Intruder(at, own, data[at:end], is_inserted=False)
    for at in range(2, own):
        if data[at] >> 4 != _PUBLISH or not _may_begin(data[at], version):
            continue
        end = packet_end(data, at, len(data))[1]
        if not at < end < len(data) or isinstance(decode(data[at:end], version), Malformed):
            continue
        left = data[:at] + data[end:]
        if packet_end(left, 0, len(left))[1] > at and is_whole(left, 0):
            return Intruder(at, own, data[at:end], is_inserted=True)
    return None


def _is_whole(data: bytes, at: int, version: ProtocolVersion, *, may_be_unfinished: bool) -> bool:
    """Whether a whole packet begins at a place, and others after it (`_ends_well`)."""
    end = packet_end(data, at, len(data))[1]
    if not at < end <= len(data) or isinstance(decode(data[at:end], version), Malformed):
        return False
    return _ends_well(data, end, version, may_be_unfinished=may_be_unfinished)


def repairs(data: bytes, version: ProtocolVersion) -> Iterator[Repair]:
    """Readings of a packet with other lengths; ``data`` is the packet and the bytes of its stream after it."""
    for body in range(2, 2 + _LENGTH_BYTES):
        written = data[1:body]
        if len(written) + 1 < body:
            return
        for length, what in _lengths(data, body, written, version):
            end = body + length
            if what and _fits(data, body, length, version):
                yield Repair(end, length, what, end <= len(data) and _ends_well(data, end, version))


def _lengths(data: bytes, body: int, written: bytes, version: ProtocolVersion) -> Iterator[tuple[int, str]]:
    """Possible true lengths if the body begins at ``body``, each with the mistake that it implies."""
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
    """The mistake that leads from a length to its written form; empty if the form is right."""
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
    """Length of the fields of a packet that is complete without its Remaining Length."""
    rest = data[body:]
    packet = _framed(data[0], rest, version)
    if not isinstance(packet, Malformed):
        return len(rest)
    only = len(packet.faults) == 1 and packet.reason in _LEFT_OVER
    return packet.offset - 1 - len(write_variable_byte_integer(len(rest))) if only else None


def _fits(data: bytes, body: int, length: int, version: ProtocolVersion) -> bool:
    """Whether the bytes are a well-formed packet of this length, or its beginning."""
    if length > MAX_VARIABLE_BYTE_INTEGER:
        return False
    rest = data[body : body + length]
    if len(rest) == length or data[0] >> 4 != _PUBLISH:
        return len(rest) == length and not isinstance(_framed(data[0], rest, version), Malformed)
    # The beginning of a PUBLISH: complete up to its payload, which continues.
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


def _ends_well(data: bytes, at: int, version: ProtocolVersion, *, may_be_unfinished: bool = True) -> bool:
    """Whether nothing follows, or whole packets do."""
    while at < len(data):
        body, end = packet_end(data, at, len(data))
        if body < 0:
            return False
        if body == 0 or end > len(data):
            return may_be_unfinished and _may_begin(data[at], version)
        if isinstance(decode(data[at:end], version), Malformed):
            return False
        at = end
    return True

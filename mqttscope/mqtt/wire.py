"""The data types of MQTT (5.0 section 1.5, 3.1.1 section 1.5): reading and writing.

A reader takes ``(buffer, position, end)`` and returns ``(value, next position)``; ``end`` is the end of the packet or
of the property block.  It raises `LayoutFault` when the bytes do not fit.  If the start of the next field is still
known, the fault carries the value and that position, so that an examination of the packet can continue.  The
exception does not leave this package: ``codec.decode`` turns it into a value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from mqttscope.errors import MqttscopeError
from mqttscope.mqtt.constants import MalformedReason

T = TypeVar("T")

MAX_VARIABLE_BYTE_INTEGER: Final = 268_435_455
"""Largest value of a Variable Byte Integer (5.0 1.5.5), and so the largest Remaining Length."""


class LayoutFault(MqttscopeError):  # noqa: N818 - it never leaves the package as an error
    """Internal: bytes that break the layout.  Not an error for the caller: the decoder turns it into a value."""

    def __init__(
        self,
        reason: MalformedReason,
        offset: int,
        detail: str,
        *,
        value: Any = None,
        resume: int | None = None,
        field: str = "",
    ) -> None:
        super().__init__(detail)
        self.reason = reason
        self.offset = offset
        self.detail = detail
        self.value = value
        self.resume = resume
        self.field = field


class WireType(Generic[T]):
    """One data type: how to read it, how to write it, and its name in the reference."""

    __slots__ = ("composite", "name", "read", "write")

    name: str
    read: Callable[..., tuple[T, int]]
    """Takes the bytes, a position and the end; for a composite type also an `Examination`, which records faults."""
    write: Callable[[T], bytes]
    composite: bool
    """Whether it has parts: its reader takes an `Examination` and records the spans of the parts itself."""

    def __init__(
        self, name: str, read: Callable[..., tuple[T, int]], write: Callable[[T], bytes], *, composite: bool = False
    ) -> None:
        self.name, self.read, self.write, self.composite = name, read, write, composite


def counted(number: int, word: str) -> str:
    """A number with its word: ``1 byte``, ``2 bytes``."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def overrun(position: int, need: int, end: int) -> LayoutFault:
    """The fault of a field at ``position`` that needs ``need`` bytes and crosses ``end``."""
    left = max(0, end - position)
    return LayoutFault(MalformedReason.FIELD_OVERRUN, position, f"needs {counted(need, 'byte')}, {left} left")


def read_u8(buffer: bytes, position: int, end: int) -> tuple[int, int]:
    if position >= end:
        raise overrun(position, 1, end)
    return buffer[position], position + 1


def write_u8(value: int) -> bytes:
    """One byte; only the low eight bits are written."""
    return bytes((value & 0xFF,))


def read_u16(buffer: bytes, position: int, end: int) -> tuple[int, int]:
    """Two Byte Integer, big endian (5.0 1.5.2)."""
    after = position + 2
    if after > end:
        raise overrun(position, 2, end)
    return buffer[position] << 8 | buffer[position + 1], after


def write_u16(value: int) -> bytes:
    """Two Byte Integer; the low 16 bits are written."""
    return (value & 0xFFFF).to_bytes(2, "big")


def read_u32(buffer: bytes, position: int, end: int) -> tuple[int, int]:
    """Four Byte Integer, big endian (5.0 1.5.3)."""
    after = position + 4
    if after > end:
        raise overrun(position, 4, end)
    return int.from_bytes(buffer[position:after], "big"), after


def write_u32(value: int) -> bytes:
    """Four Byte Integer; the low 32 bits are written."""
    return (value & 0xFFFFFFFF).to_bytes(4, "big")


def read_variable_byte_integer(buffer: bytes, position: int, end: int) -> tuple[int, int]:
    """Variable Byte Integer (5.0 1.5.5): one to four bytes, the shortest form."""
    value = shift = 0
    at = position
    while True:
        if at >= end:
            raise overrun(position, at - position + 1, end)
        byte = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift == 28:
            raise LayoutFault(
                MalformedReason.VARIABLE_BYTE_INTEGER_TOO_LONG, position, "Variable Byte Integer runs past four bytes"
            )
    if byte == 0 and at - position > 1:
        raise LayoutFault(
            MalformedReason.VARIABLE_BYTE_INTEGER_NOT_MINIMAL,
            position,
            f"{value} is encoded in {at - position} bytes, {len(write_variable_byte_integer(value))} would do",
            value=value,
            resume=at,
        )
    return value, at


def write_variable_byte_integer(value: int, *, length: int = 0) -> bytes:
    """Variable Byte Integer in the shortest form, or padded to ``length`` bytes with continuation bits.

    A value above the maximum is written in as many bytes as it needs: encoding does not check.
    """
    out = bytearray()
    while True:
        byte = value & 0x7F
        value >>= 7
        if value or len(out) + 1 < length:
            out.append(byte | 0x80)
        else:
            out.append(byte)
            return bytes(out)


def read_utf8(buffer: bytes, position: int, end: int) -> tuple[str, int]:
    """UTF-8 Encoded String (5.0 1.5.4): two bytes of length, then well-formed UTF-8 without U+0000."""
    start = position + 2
    if start > end:
        raise overrun(position, 2, end)
    after = start + (buffer[position] << 8 | buffer[position + 1])
    if after > end:
        raise overrun(position, after - position, end)
    try:
        text = buffer[start:after].decode()
    except UnicodeDecodeError as error:
        raise LayoutFault(
            MalformedReason.UTF8_ILL_FORMED,
            start + error.start,
            f"not well-formed UTF-8: {buffer[start + error.start : start + error.end].hex(' ')}",
            value=buffer[start:after].decode("utf-8", "surrogateescape"),
            resume=after,
        ) from None
    if "\0" in text:
        raise LayoutFault(
            MalformedReason.UTF8_NULL_CHARACTER,
            start + buffer[start:after].index(0),
            "contains U+0000",
            value=text,
            resume=after,
        )
    return text, after


def write_utf8(value: str) -> bytes:
    """UTF-8 Encoded String; text that came from ill-formed bytes is written as those bytes."""
    try:
        raw = value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that no decoder made: a caller wants exactly these three bytes
        raw = value.encode("utf-8", "surrogatepass")
    return write_u16(len(raw)) + raw


def read_binary(buffer: bytes, position: int, end: int) -> tuple[bytes, int]:
    """Binary Data (5.0 1.5.6): two bytes of length, then that many bytes."""
    start = position + 2
    if start > end:
        raise overrun(position, 2, end)
    after = start + (buffer[position] << 8 | buffer[position + 1])
    if after > end:
        raise overrun(position, after - position, end)
    return buffer[start:after], after


def write_binary(value: bytes) -> bytes:
    return write_u16(len(value)) + value


def read_utf8_pair(buffer: bytes, position: int, end: int) -> tuple[tuple[str, str], int]:
    """UTF-8 String Pair (5.0 1.5.7): name, then value."""
    fault = None
    try:
        name, at = read_utf8(buffer, position, end)
    except LayoutFault as error:
        if error.resume is None:
            raise
        fault, name, at = error, error.value, error.resume
    try:
        value, at = read_utf8(buffer, at, end)
    except LayoutFault as error:
        if error.resume is None:
            raise
        fault, value, at = fault or error, error.value, error.resume
    if fault is not None:
        fault.value, fault.resume = (name, value), at
        raise fault
    return (name, value), at


def write_utf8_pair(value: tuple[str, str]) -> bytes:
    return write_utf8(value[0]) + write_utf8(value[1])


def read_rest(buffer: bytes, position: int, end: int) -> tuple[bytes, int]:
    """All bytes up to the end of the packet: the Application Message of a PUBLISH."""
    return buffer[position:end], end


U8: Final[WireType[int]] = WireType("Byte", read_u8, write_u8)
U16: Final[WireType[int]] = WireType("Two Byte Integer", read_u16, write_u16)
U32: Final[WireType[int]] = WireType("Four Byte Integer", read_u32, write_u32)
VARIABLE_BYTE_INTEGER: Final[WireType[int]] = WireType(
    "Variable Byte Integer", read_variable_byte_integer, write_variable_byte_integer
)
UTF8: Final[WireType[str]] = WireType("UTF-8 Encoded String", read_utf8, write_utf8)
BINARY: Final[WireType[bytes]] = WireType("Binary Data", read_binary, write_binary)
UTF8_PAIR: Final[WireType[tuple[str, str]]] = WireType("UTF-8 String Pair", read_utf8_pair, write_utf8_pair)
REST: Final[WireType[bytes]] = WireType("rest of the packet", read_rest, bytes)

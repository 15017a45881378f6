"""A packet taken apart into the bytes of its fields, and put together again with those of one field changed.

Lengths are put right when the packet is joined, or left as they were, whichever a mutation wants: a string that lies
about its length in a packet that does not is another thing than a Remaining Length that lies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mqttscope.mqtt.codec import packet_end, trace
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.wire import write_variable_byte_integer
from mqttscope.mutate.fields import Field
from mqttscope.mutate.mutation import Target, refuse
from mqttscope.mutate.samples import ensure

LENGTH = "property_length"
LONGEST = 65_535
"""Most bytes that a string or binary field can have (5.0 1.5.4, 1.5.6)."""


@dataclass(slots=True)
class Piece:
    """The bytes of one field."""

    field: str
    data: bytes


class Layout:
    """A packet as the pieces that its `trace` names."""

    def __init__(self, raw: bytes, version: ProtocolVersion) -> None:
        body, end = packet_end(raw, 0, len(raw))
        if body <= 0 or end != len(raw):
            raise ValueError("not exactly one packet")
        self.first = raw[0]
        """Byte 1: packet type and flags."""
        self.remaining_length = raw[1:body]
        """As it stood in the packet."""
        spans = [one for one in trace(raw, version) if one.start >= body and one.end > one.start]
        self.pieces = [Piece(one.field, raw[one.start : one.end]) for one in spans]

    def index(self, path: str, *, last: bool = False) -> int:
        """Place of the first piece of a field, or of the last one with its name; -1 where there is none."""
        found = [index for index, one in enumerate(self.pieces) if one.field == path]
        return (found[-1] if last else found[0]) if found else -1

    def piece(self, path: str, *, last: bool = False) -> Piece:
        """The piece of a field; `KeyError` where the packet has none."""
        index = self.index(path, last=last)
        if index < 0:
            raise KeyError(path)
        return self.pieces[index]

    def block(self, index: int) -> str:
        """The property block that a piece is in, by the path of its length; empty for one outside."""
        name = self.pieces[index].field
        for block in ("will.properties.", "properties."):
            if name.startswith(block) and name != block + LENGTH:
                return block + LENGTH
        return ""

    def right_property_lengths(self) -> None:
        """Write the true length in front of each property block."""
        sizes: dict[str, int] = {}
        for index, one in enumerate(self.pieces):
            block = self.block(index)
            if block:
                sizes[block] = sizes.get(block, 0) + len(one.data)
        for one in self.pieces:
            if one.field.endswith(LENGTH):
                one.data = write_variable_byte_integer(sizes.get(one.field, 0))

    def body(self) -> bytes:
        return b"".join(one.data for one in self.pieces)

    def join(self, *, blocks: bool = True, remaining_length: bytes | None = None) -> bytes:
        """The packet.

        ``blocks`` puts the lengths of property blocks right.  The Remaining Length is right unless its bytes are given.
        """
        if blocks:
            self.right_property_lengths()
        body = self.body()
        length = write_variable_byte_integer(len(body)) if remaining_length is None else remaining_length
        return bytes((self.first,)) + length + body


def layout_of(target: Target) -> Layout:
    """The pieces of the packet to be mutated as it is now."""
    return Layout(target.encoded(), target.version)


def prepared(target: Target, field: Field) -> tuple[Layout, int]:
    """The packet with the field in it, taken apart, and the place of the field's first piece."""
    ensure(target.packet, field.path, target.version)
    layout = layout_of(target)
    index = layout.index(field.path)
    refuse(index < 0, f"the packet has no {field.name}")
    return layout, index


def head_of(field: Field) -> int:
    """Bytes of a piece that are not its value: the identifier of a property."""
    return 0 if field.row is None else 1


def with_value(target: Target, field: Field, make: Callable[[bytes], bytes]) -> bytes:
    """The packet with other bytes as the field's value, all other lengths right."""
    layout, index = prepared(target, field)
    piece = layout.pieces[index]
    head = head_of(field)
    piece.data = piece.data[:head] + make(piece.data[head:])
    return layout.join()


def with_length(target: Target, field: Field, make: Callable[[int], int], part: int = 0) -> bytes:
    """The packet where the two length bytes of a string or binary field lie, and nothing else does."""

    def lie(value: bytes) -> bytes:
        start = 2 + int.from_bytes(value[:2], "big") if part else 0
        true = int.from_bytes(value[start : start + 2], "big")
        told = make(true)
        refuse(not 0 <= told <= LONGEST or told == true, f"{field.name} cannot lie like that")
        return value[:start] + told.to_bytes(2, "big") + value[start + 2 :]

    return with_value(target, field, lie)


def cut_at(target: Target, field: Field, *, inside: bool) -> bytes:
    """The packet that ends before the field, or in it; the Remaining Length is that of what is left.

    Inside a property block its length too is that of what is left of it.
    """
    layout, index = prepared(target, field)
    data = layout.pieces[index].data
    refuse(inside and len(data) < 2, f"one cannot cut inside of {field.name}")
    if layout.block(index) and inside:
        # The block ends in the field, and what follows the block stays.
        block = layout.block(index).removesuffix("property_length")
        behind = [one for one in layout.pieces[index + 1 :] if not one.field.startswith(block)]
        layout.pieces[index].data = data[: max(1, len(data) - 1)]
        layout.pieces[index + 1 :] = behind
        return layout.join()
    if inside:
        layout.pieces[index].data = data[: max(1, len(data) - 1)]
        index += 1
    del layout.pieces[index:]
    return layout.join(blocks=False)


def break_off(target: Target, field: Field, *, inside: bool) -> bytes:
    """The packet whose bytes end before the field, or in it, and whose lengths are all still those of the whole."""
    layout, index = prepared(target, field)
    data = layout.pieces[index].data
    refuse(inside and len(data) < 2, f"one cannot break off inside of {field.name}")
    del layout.pieces[index + 1 :]
    layout.pieces[index].data = data[:-1] if inside else b""
    return layout.join(blocks=False, remaining_length=layout.remaining_length)

"""Packets split into the bytes of their fields, and joined again with the bytes of one field changed.

A mutation chooses which lengths are corrected when the packet is joined: a wrong string length in a packet with a
correct Remaining Length is a different fault from a wrong Remaining Length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mqttscope.mqtt.codec import packet_end, trace
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.wire import write_variable_byte_integer
from mqttscope.mutate.fields import MutationField
from mqttscope.mutate.mutation import PacketTarget, refuse
from mqttscope.mutate.samples import ensure

LENGTH = "property_length"
LONGEST = 65_535
"""Maximum number of bytes in a string or binary field (5.0 1.5.4, 1.5.6)."""


@dataclass(slots=True)
class FieldBytes:
    """The bytes of one field."""

    field: str
    data: bytes


class PacketLayout:
    """A packet split into the fields that its `trace` names."""

    def __init__(self, raw: bytes, version: ProtocolVersion) -> None:
        body, end = packet_end(raw, 0, len(raw))
        if body <= 0 or end != len(raw):
            raise ValueError("the bytes are not exactly one packet")
        self.first = raw[0]
        """Byte 1: packet type and flags."""
        self.remaining_length = raw[1:body]
        """The original bytes of the Remaining Length."""
        spans = [span for span in trace(raw, version) if span.start >= body and span.end > span.start]
        self.pieces = [FieldBytes(span.field, raw[span.start : span.end]) for span in spans]

    def index(self, path: str, *, last: bool = False) -> int:
        """Index of the first or last piece with the name of a field, or -1."""
        indexes = [index for index, piece in enumerate(self.pieces) if piece.field == path]
        return (indexes[-1] if last else indexes[0]) if indexes else -1

    def piece(self, path: str, *, last: bool = False) -> FieldBytes:
        """The piece of a field; raises `KeyError` if the packet lacks the field."""
        index = self.index(path, last=last)
        if index < 0:
            raise KeyError(path)
        return self.pieces[index]

    def block(self, index: int) -> str:
        """Path of the Property Length of the block that contains a piece; empty outside property blocks."""
        name = self.pieces[index].field
        for block in ("will.properties.", "properties."):
            if name.startswith(block) and name != block + LENGTH:
                return block + LENGTH
        return ""

    def right_property_lengths(self) -> None:
        """Correct the length in front of each property block."""
        sizes: dict[str, int] = {}
        for index, piece in enumerate(self.pieces):
            block = self.block(index)
            if block:
                sizes[block] = sizes.get(block, 0) + len(piece.data)
        for piece in self.pieces:
            if piece.field.endswith(LENGTH):
                piece.data = write_variable_byte_integer(sizes.get(piece.field, 0))

    def body(self) -> bytes:
        return b"".join(piece.data for piece in self.pieces)

    def join(self, *, blocks: bool = True, remaining_length: bytes | None = None) -> bytes:
        """The bytes of the packet.

        ``blocks`` corrects the Property Lengths.  The Remaining Length is correct unless its bytes are given.
        """
        if blocks:
            self.right_property_lengths()
        body = self.body()
        length = write_variable_byte_integer(len(body)) if remaining_length is None else remaining_length
        return bytes((self.first,)) + length + body


def layout_of(target: PacketTarget) -> PacketLayout:
    """The packet to be mutated in its current form, split into fields."""
    return PacketLayout(target.encoded(), target.version)


def prepared(target: PacketTarget, field: MutationField) -> tuple[PacketLayout, int]:
    """The packet, given the field if it lacks it and split, and the index of the field's first piece."""
    ensure(target.packet, field.path, target.version)
    layout = layout_of(target)
    index = layout.index(field.path)
    refuse(index < 0, f"the packet does not have {field.name}")
    return layout, index


def head_of(field: MutationField) -> int:
    """Number of bytes before the value: a property starts with its identifier."""
    return 0 if field.row is None else 1


def with_value(target: PacketTarget, field: MutationField, make: Callable[[bytes], bytes]) -> bytes:
    """The packet with a field's value replaced, and all lengths around it correct."""
    layout, index = prepared(target, field)
    piece = layout.pieces[index]
    head = head_of(field)
    piece.data = piece.data[:head] + make(piece.data[head:])
    return layout.join()


def with_length(target: PacketTarget, field: MutationField, make: Callable[[int], int], part: int = 0) -> bytes:
    """The packet with a wrong length in front of a string or binary field; all other lengths are correct."""

    def replace_length(value: bytes) -> bytes:
        start = 2 + int.from_bytes(value[:2], "big") if part else 0
        true = int.from_bytes(value[start : start + 2], "big")
        wrong = make(true)
        refuse(not 0 <= wrong <= LONGEST or wrong == true, f"{field.name} cannot have that wrong length")
        return value[:start] + wrong.to_bytes(2, "big") + value[start + 2 :]

    return with_value(target, field, replace_length)


def cut_at(target: PacketTarget, field: MutationField, *, inside: bool) -> bytes:
    """The packet cut off before the field, or inside it, with a Remaining Length that matches the cut.

    A cut inside a property block shortens the Property Length as well.
    """
    layout, index = prepared(target, field)
    data = layout.pieces[index].data
    refuse(inside and len(data) < 2, f"{field.name} is too short to be cut inside")
    if layout.block(index) and inside:
        # The block ends in the field; the fields after the block stay.
        block = layout.block(index).removesuffix("property_length")
        behind = [piece for piece in layout.pieces[index + 1 :] if not piece.field.startswith(block)]
        layout.pieces[index].data = data[: max(1, len(data) - 1)]
        layout.pieces[index + 1 :] = behind
        return layout.join()
    if inside:
        layout.pieces[index].data = data[: max(1, len(data) - 1)]
        index += 1
    del layout.pieces[index:]
    return layout.join(blocks=False)


def break_off(target: PacketTarget, field: MutationField, *, inside: bool) -> bytes:
    """The packet cut off before the field, or inside it, with all lengths unchanged."""
    layout, index = prepared(target, field)
    data = layout.pieces[index].data
    refuse(inside and len(data) < 2, f"{field.name} is too short to be cut inside")
    del layout.pieces[index + 1 :]
    layout.pieces[index].data = data[:-1] if inside else b""
    return layout.join(blocks=False, remaining_length=layout.remaining_length)

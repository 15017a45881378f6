"""A packet taken apart into the bytes of its fields, to be put together again with one of them changed.

Lengths are put right when the packet is joined, or left as they were, whichever a mutation wants: a string that lies
about its length in a packet that does not is another thing than a Remaining Length that lies.
"""

from __future__ import annotations

from dataclasses import dataclass

from mqttscope.mqtt.codec import packet_end, trace
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.wire import write_variable_byte_integer

LENGTH = "property_length"


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
        """What follows the fixed header."""
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

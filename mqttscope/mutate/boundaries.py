"""Legal packets whose lengths are where a Variable Byte Integer gets one byte more (5.0 1.5.5, 3.1.1 2.2.3)."""

from __future__ import annotations

from collections.abc import Iterator

from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.properties import BY_NAME, Properties
from mqttscope.mutate.fields import blocks
from mqttscope.mutate.layout import LENGTH
from mqttscope.mutate.mutation import (
    ACCEPT,
    ALL_VERSIONS,
    Kind,
    Mutation,
    NotApplicable,
    PacketChange,
    Target,
    senders_of,
)
from mqttscope.mutate.numbers import VARIABLE_BYTE_INTEGER_BOUNDARIES
from mqttscope.mutate.samples import ensure_block, set_block

V5 = ProtocolVersion.V5
_USER_PROPERTY = BY_NAME["user_property"].identifier
_EMPTY_PAIR = 5
"""Bytes of a User Property with neither name nor value: its identifier and two lengths."""
_LONGEST_VALUE = 65_535
_INDICATOR = BY_NAME["payload_format_indicator"].identifier


def boundary_mutations() -> Iterator[Mutation]:
    """PUBLISH with a Remaining Length at each boundary, and property blocks up to that of three bytes."""
    for length in VARIABLE_BYTE_INTEGER_BOUNDARIES:
        yield Mutation(
            f"publish.remaining_length:boundary-{length}",
            Kind.WIRE,
            f"The payload fills PUBLISH up to a Remaining Length of {length:,}.",
            change_packet=_filled(length),
            packet_type=PacketType.PUBLISH,
            field="remaining_length",
            senders=senders_of(PacketType.PUBLISH),
            legal_in=ALL_VERSIONS,
            reaction=ACCEPT,
        )
    for kind, _, prefix in blocks():
        where = f"{'Will ' if prefix else ''}properties of {kind.name}"
        for length in VARIABLE_BYTE_INTEGER_BOUNDARIES[:4]:
            yield Mutation(
                f"{kind.name.lower()}.{prefix}properties.{LENGTH}:boundary-{length}",
                Kind.WIRE,
                f"A User Property fills the {where} up to {length:,} bytes.",
                change_packet=_padded(prefix, length),
                packet_type=kind,
                field=f"{prefix}properties.{LENGTH}",
                versions=(V5,),
                senders=senders_of(kind),
                legal_in=(V5,) if kind != PacketType.AUTH else (),
                reaction=ACCEPT,
            )


def _filled(length: int) -> PacketChange:
    def change(target: Target) -> bytes:
        packet = target.packet
        if packet.properties is not None:
            # The payload is no UTF-8 text any more, or may not be (5.0 3.3.2.3.2).
            kept = [item for item in packet.properties.items if item[0] != _INDICATOR]
            packet.properties = Properties.of(kept)
        packet.payload = b""
        room = length - len(target.layout().body())
        if room < 0:
            raise NotApplicable(f"the packet is longer than {length:,} bytes without its payload")
        packet.payload = bytes(room)
        return target.encoded()

    return change


def _padded(prefix: str, length: int) -> PacketChange:
    def change(target: Target) -> bytes:
        block = ensure_block(target.packet, prefix)
        room = length - _size(target, prefix) - _EMPTY_PAIR
        if not 0 <= room <= _LONGEST_VALUE:
            raise NotApplicable(f"no User Property fills the properties up to {length:,} bytes")
        set_block(target.packet, prefix, Properties.of([*block.items, (_USER_PROPERTY, ("", "x" * room))]))
        return target.encoded()

    return change


def _size(target: Target, prefix: str) -> int:
    """Bytes of a property block without its length."""
    layout = target.layout()
    name = f"{prefix}properties.{LENGTH}"
    return sum(len(one.data) for index, one in enumerate(layout.pieces) if layout.block(index) == name)


__all__ = ["boundary_mutations"]

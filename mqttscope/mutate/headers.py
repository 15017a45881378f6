"""Mutations of the fixed header's first byte (5.0 2.1, 3.1.1 2.2)."""

from __future__ import annotations

from collections.abc import Iterator

from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.declare import PACKETS
from mqttscope.mutate.mutation import (
    ALL_VERSIONS,
    MALFORMED,
    Kind,
    Mutation,
    PacketChange,
    Target,
    senders_of,
)

V3_1, V3_1_1, V5 = ProtocolVersion
_MAY_HAVE_DUP = (PacketType.PUBREL, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE)
"""Packets that 3.1 sends with QoS 1 in the header, and with DUP when they come again."""
_OWN_5 = {
    PacketType.PUBREL: "MQTT-3.6.1-1",
    PacketType.SUBSCRIBE: "MQTT-3.8.1-1",
    PacketType.UNSUBSCRIBE: "MQTT-3.10.1-1",
    PacketType.DISCONNECT: "MQTT-3.14.1-1",
    PacketType.AUTH: "MQTT-3.15.1-1",
}
_BITS = ("retain", "qos-low", "qos-high", "dup")
"""What the bits 0 to 3 are in a PUBLISH."""


def _flags(value: int, mask: int = 15) -> PacketChange:
    """Set the flag bits under the mask."""

    def change(target: Target) -> bytes:
        data = target.encoded()
        return bytes((data[0] & ~mask | value,)) + data[1:]

    return change


def _flip(bit: int) -> PacketChange:
    def change(target: Target) -> bytes:
        data = target.encoded()
        return bytes((data[0] ^ 1 << bit,)) + data[1:]

    return change


def _statements(kind: PacketType, bit: int) -> tuple[str, ...]:
    own = _OWN_5.get(kind)
    five = ("5.0 MQTT-2.1.3-1", *((f"5.0 {own}",) if own else ()))
    if kind == PacketType.AUTH:
        return five
    three = ("3.1.1 MQTT-2.2.2-1", *((f"3.1.1 {own}",) if own else ()))
    if kind in _MAY_HAVE_DUP:
        # DUP may be set in 3.1; the QoS bits have to say 1; RETAIN is not used.
        old = {0: ("3.1 V31-HEADER-unused-flags",), 3: ()}.get(bit, ("3.1 V31-HEADER-qos-of-requests",))
    else:
        old = ("3.1 V31-HEADER-unused-flags",)
    return (*old, *three, *five)


def header_mutations() -> Iterator[Mutation]:
    """Each reserved flag bit of each packet type, on its own, and all of them turned over."""
    for kind in PacketType:
        if kind == PacketType.PUBLISH:
            continue
        name = kind.name.lower()
        versions = (V5,) if kind == PacketType.AUTH else ALL_VERSIONS
        for bit in range(4):
            yield Mutation(
                f"{name}:reserved-flag-{bit}",
                Kind.PACKET,
                f"Bit {bit} of the fixed header of {kind.name} ({_BITS[bit]} in a PUBLISH) is turned over.",
                change_packet=_flip(bit),
                packet_type=kind,
                field="header_flags",
                versions=versions,
                senders=senders_of(kind),
                statements=_statements(kind, bit),
                # 3.1 has receivers take no notice of flags that are not used.
                legal_in=(V3_1,) if bit == 3 and kind in _MAY_HAVE_DUP else (),
                reaction=MALFORMED,
            )
        yield Mutation(
            f"{name}:reserved-flags-inverted",
            Kind.PACKET,
            f"All four flag bits of the fixed header of {kind.name} are turned over.",
            change_packet=_flags(~PACKETS[kind].fixed_flags & 15),
            packet_type=kind,
            field="header_flags",
            versions=versions,
            senders=senders_of(kind),
            statements=_statements(kind, 1),
            reaction=MALFORMED,
        )

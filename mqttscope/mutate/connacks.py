"""Mutations of what CONNACK says, for devices that have to notice (5.0 3.2, 3.1.1 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mutate.flow import SERVER
from mqttscope.mutate.mutation import (
    ACCEPT,
    ANY,
    MALFORMED,
    PROTOCOL_ERROR,
    Demand,
    Kind,
    Mutation,
    NotApplicable,
    Reaction,
    Target,
    by_attributes,
)
from mqttscope.mutate.samples import with_property

V3_1, V3_1_1, V5 = ProtocolVersion


def connack_mutations() -> Iterator[Mutation]:
    """CONNACK: what a server must not say, for devices that have to notice (5.0 3.2.2)."""
    for bit in range(1, 8):

        def reserved(packet: Any, target: Target, bit: int = bit) -> None:
            packet.acknowledge_flags = int(bool(packet.session_present)) | 1 << bit

        yield _connack(
            f"acknowledge-flag-{bit}",
            f"Bit {bit} of the acknowledge flags is set.",
            reserved,
            "acknowledge_flags",
            statements=(
                "3.1 V31-CONNACK-reserved-byte",
                "3.1.1 V311-CONNACK-reserved-bits",
                "5.0 MQTT-3.2.2-1",
            ),
            reaction=MALFORMED,
        )

    def refused(packet: Any, target: Target) -> None:
        packet.session_present, packet.reason_code = True, 0x88 if target.version == V5 else 3

    yield _connack(
        "session-present-on-refusal",
        "CONNACK refuses and has Session Present 1.",
        refused,
        "session_present",
        versions=(V3_1_1, V5),
        statements=("3.1.1 MQTT-3.2.2-4", "5.0 MQTT-3.2.2-6"),
        reaction=PROTOCOL_ERROR,
    )

    def reference(packet: Any, target: Target) -> None:
        if packet.reason_code in (0x9C, 0x9D):
            raise NotApplicable("the server has moved")
        packet.properties = with_property(packet.properties, "server_reference", "other.example")

    yield _connack(
        "server-reference-on-success",
        "CONNACK has a Server Reference and a reason code that does not go with it.",
        reference,
        "properties.server_reference",
        versions=(V5,),
        statements=("5.0 V5-SERVER-REFERENCE-codes",),
        reaction=ANY,
    )

    def present(packet: Any, target: Target) -> None:
        if target.connect is None or not target.connect.clean_start or packet.reason_code:
            raise NotApplicable("the client did not ask for a new session")
        packet.session_present = True

    yield _connack(
        "session-present-with-clean-start",
        "CONNACK has Session Present 1 although the client asked for a new session.",
        present,
        "session_present",
        versions=(V3_1_1, V5),
        statements=("3.1.1 MQTT-3.2.2-1", "5.0 MQTT-3.2.2-2"),
        reaction=Reaction(Demand.CLOSE, (0x82,)),
    )


def _connack(slug: str, description: str, make: Callable[[Any, Target], None], field: str, **more: Any) -> Mutation:
    more.setdefault("reaction", ACCEPT)
    return Mutation(
        f"connack:{slug}",
        Kind.PACKET,
        description,
        change_packet=by_attributes(make),
        packet_type=PacketType.CONNACK,
        field=field,
        senders=(SERVER,),
        **more,
    )

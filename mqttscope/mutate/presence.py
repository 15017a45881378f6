"""Fields that are not there, and fields that are there twice; the Remaining Length is right, and what follows moves.

What such a packet breaks depends on the bytes that are read in the field's place, but where a packet has one length
only.  Properties and lists have mutations of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from mqttscope.mqtt import wire
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mutate.fields import Field, all_fields
from mqttscope.mutate.lengths import FIXED_BEFORE_5
from mqttscope.mutate.mutation import ANY, MALFORMED, Kind, Mutation, PacketChange, Target, senders_of
from mqttscope.mutate.surgery import prepared

V3_1_1 = ProtocolVersion.V3_1_1


def presence_mutations() -> Iterator[Mutation]:
    """Every field of every packet left out, and written twice."""
    for field in all_fields():
        if field.row is not None or "[0]" in field.path or field.wire == wire.REST.name:
            continue
        for slug, words, times in (("missing", "is left out", 0), ("repeated", "comes twice", 2)):
            if field.optional and not times:
                # Nothing is missing where a packet may end before its reason code.
                continue
            fixed = field.packet_type in FIXED_BEFORE_5 and V3_1_1 in field.versions
            yield Mutation(
                f"{field.name}:{slug}",
                Kind.PACKET,
                f"{field.name} {words}, and the Remaining Length is right.",
                change_packet=_with(field, times),
                packet_type=field.packet_type,
                field=field.name.partition(".")[2],
                versions=field.versions,
                senders=senders_of(field.packet_type),
                statements=("3.1.1 V311-LENGTH-fixed",) if fixed else (),
                reaction=MALFORMED if fixed else ANY,
            )


def _with(field: Field, times: int) -> PacketChange:
    """The packet with the bytes of a field so many times."""

    def change(target: Target) -> bytes:
        layout, index = prepared(target, field)
        layout.pieces[index].data *= times
        # Property Lengths are right as they are: no property is touched.
        return layout.join(blocks=False)

    return change


__all__ = ["presence_mutations"]

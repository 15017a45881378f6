"""Mutations of packet structure: flags of the first byte, lengths, fields that are missing or repeated.

A length that is off by one shifts all bytes after it, so the broken statement depends on those bytes.  Only a length
that reaches past the end of the packet breaks a statement for certain.  A missing or repeated field breaks one for
certain only in packets of a fixed length.  Properties and lists have their own mutations.

The random mutations are the baseline: comparing with them shows what knowledge of MQTT adds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from mqttscope.mqtt import wire
from mqttscope.mqtt.constants import PacketType
from mqttscope.mqtt.declare import PACKETS
from mqttscope.mqtt.properties import Properties
from mqttscope.mqtt.wire import write_variable_byte_integer
from mqttscope.mutate.fields import BITS, FIXED_BEFORE_5, MutationField, all_fields, field_row, overrun
from mqttscope.mutate.flow import SIDES
from mqttscope.mutate.layout import LONGEST, break_off, cut_at, layout_of, prepared, with_length
from mqttscope.mutate.mutation import (
    ALL_VERSIONS,
    ANY,
    MALFORMED,
    ONLY_5,
    V3_1,
    V3_1_1,
    V5,
    Mutation,
    MutationKind,
    PacketChange,
    PacketTarget,
    refuse,
    row,
)

EXTREMES = (0x00, 0x01, 0x7E, 0x7F, 0x80, 0x81, 0xC0, 0xFE, 0xFF)
"""Bytes at or next to a change of meaning."""
_MAY_HAVE_DUP = (PacketType.PUBREL, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE)
"""Packets that in 3.1 have QoS 1 in the header, and DUP when they are sent again."""
_OWN_5 = {
    PacketType.PUBREL: "MQTT-3.6.1-1",
    PacketType.SUBSCRIBE: "MQTT-3.8.1-1",
    PacketType.UNSUBSCRIBE: "MQTT-3.10.1-1",
    PacketType.DISCONNECT: "MQTT-3.14.1-1",
    PacketType.AUTH: "MQTT-3.15.1-1",
}
_BITS = ("retain", "qos-low", "qos-high", "dup")
"""Names of the bits 0 to 3 in a PUBLISH."""


def _flip(bits: int, target: PacketTarget) -> bytes:
    data = target.encoded()
    return bytes((data[0] ^ bits,)) + data[1:]


def _invert(target: PacketTarget) -> bytes:
    data = target.encoded()
    return bytes((data[0] & 0xF0 | ~PACKETS[target.packet.packet_type].fixed_flags & 15,)) + data[1:]


def _statements(kind: PacketType, bit: int) -> str:
    # In 3.1, DUP may be set, the QoS must be 1, and RETAIN is unused.
    unused = "3.1 V31-HEADER-unused-flags, "
    if kind in _MAY_HAVE_DUP and bit:
        unused = "" if bit == 3 else "3.1 V31-HEADER-qos-of-requests, "
    own = f", 3.1.1 {_OWN_5[kind]}, 5.0 {_OWN_5[kind]}" if kind in _OWN_5 else ""
    return f"{unused}3.1.1 MQTT-2.2.2-1, 5.0 MQTT-2.1.3-1{own}"


def header_mutations() -> Iterator[Mutation]:
    """Each reserved flag bit of each packet type flipped alone, and all of them inverted."""
    for kind in PacketType:
        if kind == PacketType.PUBLISH:
            continue
        name = kind.name.lower()
        versions = ONLY_5 if kind == PacketType.AUTH else ALL_VERSIONS
        yield from (
            # Receivers of 3.1 ignore unused flags.
            *(row(f"{name}:reserved-flag-{bit}",
                  f"Bit {bit} of the fixed header of {kind.name} ({_BITS[bit]} in a PUBLISH) is flipped.",
                  partial(_flip, 1 << bit), _statements(kind, bit), MALFORMED, versions, field="header_flags",
                  legal=(V3_1,) if bit == 3 and kind in _MAY_HAVE_DUP else ()) for bit in range(4)),
            row(f"{name}:reserved-flags-inverted",
                f"All four flag bits of the fixed header of {kind.name} are inverted.", _invert,
                _statements(kind, 1), MALFORMED, versions, field="header_flags"),
        )  # fmt: skip


_WITH_LENGTH = (wire.UTF8.name, wire.UTF8_PAIR.name, wire.BINARY.name)
_LIES: dict[str, tuple[Callable[[int], int], str]] = {
    "length-plus-one": (lambda true: true + 1, "has a length one greater than its size"),
    "length-minus-one": (lambda true: true - 1, "has a length one less than its size"),
    "length-zero": (lambda _: 0, "has a length of 0 but is not empty"),
}


def field_length_mutations() -> Iterator[Mutation]:
    """Wrong lengths in front of strings and binary data, in packets that are correct otherwise."""
    for field in all_fields():
        if field.wire not in _WITH_LENGTH or field.path == "protocol_name":
            continue
        parts = ((0, ".name"), (1, ".value")) if field.wire == wire.UTF8_PAIR.name else ((0, ""),)
        for part, suffix in parts:
            for slug, (length_of, words) in _LIES.items():
                yield field_row(field, slug, words, partial(_lie, field, part, length_of), part=suffix)
            words = "has a length of 65,535, past the end of the packet"
            change = partial(_overrun, field, part)
            yield field_row(field, "length-overrun", words, change, overrun(field), MALFORMED, part=suffix)


def _lie(field: MutationField, part: int, length_of: Callable[[int], int], target: PacketTarget) -> bytes:
    return with_length(target, field, length_of, part)


def _overrun(field: MutationField, part: int, target: PacketTarget) -> bytes:
    data = with_length(target, field, lambda _: LONGEST, part)
    refuse(len(data) > LONGEST, "the packet is longer than any string length")
    return data


_ABSENT = {
    "connect.client_identifier": "3.1.1 MQTT-3.1.3-3, 5.0 MQTT-3.1.3-3",
    "connect.user_name": "3.1.1 MQTT-3.1.2-19, 5.0 MQTT-3.1.2-17",
    "connect.password": "3.1.1 MQTT-3.1.2-21, 5.0 MQTT-3.1.2-19",
    "connect.will.will_topic": "3.1.1 MQTT-3.1.2-9, 5.0 V5-LENGTH-overrun",
}
"""Statements broken by a packet that ends before a field."""


def cut_mutations() -> Iterator[Mutation]:
    """Packets cut off before or inside each of their fields, with adjusted lengths and with unchanged ones."""
    for field in all_fields():
        if field.wire == wire.REST.name or ("[0]" in field.path and field.wire != wire.UTF8.name):
            continue
        required = field.row is None and "[0]" not in field.path and not field.optional
        if required or field.path in ("user_name", "password"):
            yield from _cuts(field, is_inside=False)
        one_byte = field.wire in (wire.U8.name, BITS) or field.wire.startswith("reason")
        if field.row is not None or not one_byte:
            yield from _cuts(field, is_inside=True)


def _cuts(field: MutationField, *, is_inside: bool) -> Iterator[Mutation]:
    """Two cuts: with adjusted lengths, and with unchanged ones, so that the receiver waits for the missing bytes."""
    if field.packet_type in FIXED_BEFORE_5 and field.row is None:
        statements = "3.1.1 V311-LENGTH-fixed, 5.0 V5-LENGTH-overrun"
    else:
        statements = overrun(field) if is_inside else _ABSENT.get(field.name, overrun(field))
    # 3.1 lets a CONNECT end before fields that its flags announce.
    legal = (V3_1,) if not is_inside and field.path in ("user_name", "password") else ()
    slug, where = ("cut-inside", "inside") if is_inside else ("cut-before", "before")
    whole = "block" if field.row else "packet"
    yield row(f"{field.name}:{slug}", f"The {whole} ends {where} {field.name}, and its length matches.",
              lambda target: cut_at(target, field, inside=is_inside), statements, MALFORMED, field.versions,
              kind=MutationKind.WIRE, legal=legal)  # fmt: skip
    yield row(f"{field.name}:{slug}-lying",
              f"The packet is cut off {where} {field.name}, and its lengths are unchanged.",
              lambda target: break_off(target, field, inside=is_inside), versions=field.versions,
              kind=MutationKind.WIRE)  # fmt: skip


def _lying(length_of: Callable[[int], int], target: PacketTarget) -> bytes:
    layout = layout_of(target)
    true = len(layout.body())
    length = length_of(true)
    refuse(length < 0 or length == true, "the Remaining Length cannot have that wrong value")
    return layout.join(remaining_length=write_variable_byte_integer(length))


def _encoded(form: Callable[[bytes], bytes], target: PacketTarget) -> bytes:
    layout = layout_of(target)
    return layout.join(remaining_length=form(write_variable_byte_integer(len(layout.body()))))


def _not_minimal(length: bytes) -> bytes:
    refuse(len(length) == 4, "a longer form would have five bytes")
    return length[:-1] + bytes((length[-1] | 0x80, 0))


_FIVE = "3.1 V31-HEADER-remaining-length, 3.1.1 V311-VBI-four-bytes, 5.0 V5-VBI-four-bytes"
_REMAINING: tuple[tuple[str, str, PacketChange, str], ...] = (
    ("plus-one", "is one more than the number of bytes", partial(_lying, lambda true: true + 1), ""),
    ("minus-one", "is one less than the number of bytes", partial(_lying, lambda true: true - 1), ""),
    ("zero", "is 0 although bytes follow", partial(_lying, lambda _: 0), ""),
    ("doubled", "is twice the number of bytes", partial(_lying, lambda true: 2 * true), ""),
    ("maximum", "is 268,435,455, the maximum", partial(_lying, lambda _: wire.MAX_VARIABLE_BYTE_INTEGER), ""),
    ("not-minimal", "is encoded in one byte more than needed", partial(_encoded, _not_minimal), "5.0 MQTT-1.5.5-1"),
    ("five-bytes", "is encoded in five bytes", partial(_encoded, lambda _: b"\x80\x80\x80\x80\x01"), _FIVE),
    ("all-ones", "is five bytes with continuation bits", partial(_encoded, lambda _: b"\xff\xff\xff\xff\xff"), _FIVE),
)


def remaining_length_mutations() -> Iterator[Mutation]:
    """For every packet type, wrong or wrongly encoded Remaining Lengths (5.0 2.1.4), and an extra byte."""
    for kind in PacketType:
        versions = ONLY_5 if kind == PacketType.AUTH else ALL_VERSIONS
        wire_row = partial(row, versions=versions, kind=MutationKind.WIRE)
        for slug, words, change, statements in _REMAINING:
            name = f"{kind.name.lower()}.remaining_length:{slug}"
            sentence = f"The Remaining Length of {kind.name} {words}."
            yield wire_row(name, sentence, change, statements, MALFORMED if statements else ANY)
        if kind not in _NO_END:
            sentence = f"{kind.name} has an extra byte after its last field, and the Remaining Length includes it."
            statements = _EXTRA.get(kind, "3.1.1 V311-LENGTH-fixed, 5.0 V5-LENGTH-trailing")
            yield wire_row(f"{kind.name.lower()}:extra-byte", sentence, _add_byte, statements, MALFORMED)


_PINGS = (PacketType.PINGREQ, PacketType.PINGRESP)
_NO_END = (PacketType.PUBLISH, PacketType.SUBACK)
"""Packets with a last field that extends to the end, so that an extra byte belongs to it."""
_EXTRA = {
    PacketType.CONNECT: "3.1.1 MQTT-3.1.2-18, 3.1.1 MQTT-3.1.2-20, 5.0 MQTT-3.1.2-16, 5.0 MQTT-3.1.2-18",
    PacketType.SUBSCRIBE: "3.1.1 V311-LENGTH-overrun, 5.0 V5-LENGTH-overrun",
    PacketType.UNSUBSCRIBE: "3.1.1 V311-LENGTH-overrun, 5.0 V5-LENGTH-overrun",
    PacketType.UNSUBACK: "3.1.1 V311-LENGTH-fixed, 5.0 MQTT-3.11.3-2",
    **dict.fromkeys(_PINGS, "3.1.1 V311-LENGTH-fixed, 5.0 V5-LENGTH-empty-packets"),
}
"""Statements broken by an extra byte after the last field."""


def _add_byte(target: PacketTarget) -> bytes:
    packet = target.packet
    kind = packet.packet_type
    if kind == PacketType.CONNECT:
        # With neither user name nor password announced, the extra byte belongs to no field.
        packet.user_name = packet.password = None
    if target.version == V5 and kind not in _PINGS:
        # All optional fields are written: else the extra byte would be read as one of them.
        if hasattr(packet, "reason_code") and packet.reason_code is None:
            packet.reason_code = 0
        if getattr(packet, "properties", 0) is None:
            packet.properties = Properties()
    layout = layout_of(target)
    body = layout.body() + b"\x7e"
    return bytes((layout.first,)) + write_variable_byte_integer(len(body)) + body


def presence_mutations() -> Iterator[Mutation]:
    """Every field of every packet omitted, and written twice."""
    for field in all_fields():
        if field.row is not None or "[0]" in field.path or field.wire == wire.REST.name:
            continue
        # In a packet of fixed length, both are certainly faults.
        is_fixed = field.packet_type in FIXED_BEFORE_5 and V3_1_1 in field.versions
        statements, reaction = ("3.1.1 V311-LENGTH-fixed", MALFORMED) if is_fixed else ("", ANY)
        for slug, words, times in (("missing", "is missing", 0), ("repeated", "is repeated", 2)):
            # An optional reason code is never missing.
            if times or not field.optional:
                words += ", and the Remaining Length is correct"
                change = partial(_repeat_field, field, times)
                yield field_row(field, slug, words, change, statements, reaction, kind=MutationKind.PACKET)


def _repeat_field(field: MutationField, times: int, target: PacketTarget) -> bytes:
    layout, index = prepared(target, field)
    layout.pieces[index].data *= times
    # Property Lengths stay correct, because no property changes.
    return layout.join(blocks=False)


def _bytes(target: PacketTarget) -> bytes:
    return target.chance.octets(1 + target.chance.below(64))


def _bits(target: PacketTarget) -> bytes:
    data = bytearray(target.raw)
    for _ in range(1 + target.chance.below(8)):
        bit = target.chance.below(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


def _insert(target: PacketTarget) -> bytes:
    at = target.chance.below(len(target.raw) + 1)
    return target.raw[:at] + target.chance.octets(1 + target.chance.below(8)) + target.raw[at:]


def _delete(target: PacketTarget) -> bytes:
    at = target.chance.below(len(target.raw))
    return target.raw[:at] + target.raw[at + 1 + target.chance.below(8) :]


def _repeat(target: PacketTarget) -> bytes:
    start = target.chance.below(len(target.raw))
    end = start + 1 + target.chance.below(len(target.raw) - start)
    return target.raw[:end] + target.raw[start:end] + target.raw[end:]


def _byte(target: PacketTarget) -> bytes:
    at = target.chance.below(len(target.raw))
    value = target.chance.pick(EXTREMES)
    return target.raw[:at] + bytes((value,)) + target.raw[at + 1 :]


RANDOM = (
    row("random:bytes", "A packet is replaced by 1 to 64 random bytes.", _bytes, senders=SIDES),
    row("random:bits", "One to eight random bits of a packet are flipped.", _bits, senders=SIDES),
    row("random:insert", "One to eight random bytes are inserted into a packet.", _insert, senders=SIDES),
    row("random:delete", "One to eight bytes of a packet are deleted.", _delete, senders=SIDES),
    row("random:repeat", "A random part of a packet is repeated.", _repeat, senders=SIDES),
    row("random:byte", "One byte of a packet is set to an extreme value.", _byte, senders=SIDES),
)
"""Random bytes instead of a packet, and random damage to packets."""

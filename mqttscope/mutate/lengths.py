"""Mutations of what holds a packet together: flags of its first byte, lengths, fields that are missing or come twice.

A length that is one off moves all that follows it, so what it breaks depends on the bytes after it; only those that
reach past the end say for certain what is wrong.  The same holds for fields that are not there or are there twice, but
where a packet has one length only; properties and lists have mutations of their own.

The baseline is damage by one who knows nothing of MQTT: what structure is worth shows only against bytes that were
changed without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mqttscope.mqtt import wire
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.declare import PACKETS
from mqttscope.mqtt.properties import Properties
from mqttscope.mqtt.wire import write_variable_byte_integer
from mqttscope.mutate.fields import BITS, Field, all_fields, overrun
from mqttscope.mutate.flow import CLIENT, SERVER
from mqttscope.mutate.layout import LONGEST, break_off, cut_at, layout_of, prepared, with_length
from mqttscope.mutate.mutation import (
    ALL_VERSIONS,
    ANY,
    MALFORMED,
    Mutation,
    MutationKind,
    NotApplicableError,
    PacketChange,
    Target,
    senders_of,
)

V3_1, V3_1_1, V5 = ProtocolVersion
_BOTH = (CLIENT, SERVER)
EXTREMES = (0x00, 0x01, 0x7E, 0x7F, 0x80, 0x81, 0xC0, 0xFE, 0xFF)
"""Bytes next to which something changes its meaning."""
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
                MutationKind.PACKET,
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
            MutationKind.PACKET,
            f"All four flag bits of the fixed header of {kind.name} are turned over.",
            change_packet=_flags(~PACKETS[kind].fixed_flags & 15),
            packet_type=kind,
            field="header_flags",
            versions=versions,
            senders=senders_of(kind),
            statements=_statements(kind, 1),
            reaction=MALFORMED,
        )


_WITH_LENGTH = (wire.UTF8.name, wire.UTF8_PAIR.name, wire.BINARY.name)
_LIES: dict[str, tuple[Callable[[int], int], str]] = {
    "length-plus-one": (lambda true: true + 1, "announces one byte more than it has"),
    "length-minus-one": (lambda true: true - 1, "announces one byte less than it has"),
    "length-zero": (lambda _: 0, "announces no bytes and has some"),
    "length-overrun": (lambda _: LONGEST, "announces 65,535 bytes, more than the packet has"),
}


def field_length_mutations() -> Iterator[Mutation]:
    """Lies of the two length bytes in front of strings and binary data; everything else is right."""
    for field in all_fields():
        if field.wire not in _WITH_LENGTH or field.path == "protocol_name":
            continue
        parts = ((0, ".name"), (1, ".value")) if field.wire == wire.UTF8_PAIR.name else ((0, ""),)
        for part, suffix in parts:
            for slug, (make, words) in _LIES.items():
                is_overrun = slug == "length-overrun"

                def change(
                    target: Target,
                    field: Field = field,
                    make: Callable[[int], int] = make,
                    part: int = part,
                    is_overrun: bool = is_overrun,
                ) -> bytes:
                    made = with_length(target, field, make, part)
                    if is_overrun and len(made) > LONGEST:
                        raise NotApplicableError("the packet is long enough for any length")
                    return made

                yield Mutation(
                    f"{field.name}{suffix}:{slug}",
                    MutationKind.WIRE,
                    f"{field.name}{suffix} {words}.",
                    change_packet=change,
                    packet_type=field.packet_type,
                    field=field.name.partition(".")[2] + suffix,
                    versions=field.versions,
                    senders=senders_of(field.packet_type),
                    statements=overrun(field) if is_overrun else (),
                    reaction=MALFORMED if is_overrun else ANY,
                )


_ABSENT = {
    "connect.client_identifier": ("3.1.1 MQTT-3.1.3-3", "5.0 MQTT-3.1.3-3"),
    "connect.user_name": ("3.1.1 MQTT-3.1.2-19", "5.0 MQTT-3.1.2-17"),
    "connect.password": ("3.1.1 MQTT-3.1.2-21", "5.0 MQTT-3.1.2-19"),
}
FIXED_BEFORE_5 = {
    PacketType.CONNACK,
    PacketType.PUBACK,
    PacketType.PUBREC,
    PacketType.PUBREL,
    PacketType.PUBCOMP,
    PacketType.UNSUBACK,
}
"""Packets of a fixed length in 3.1.1, where a shorter one breaks another statement."""


def cut_mutations() -> Iterator[Mutation]:
    """Packets that end before or in each of their fields: with lengths that fit what is left, and with old ones."""
    for field in all_fields():
        if field.wire == wire.REST.name or ("[0]" in field.path and field.wire != wire.UTF8.name):
            continue
        required = field.row is None and "[0]" not in field.path and not field.optional
        if required or field.path in ("user_name", "password"):
            yield _cut(field, inside=False)
            yield _broken_off(field, inside=False)
        one_byte = field.wire in (wire.U8.name, BITS) or field.wire.startswith("reason")
        if field.row is not None or not one_byte:
            yield _cut(field, inside=True)
            yield _broken_off(field, inside=True)


def _cut(field: Field, *, inside: bool) -> Mutation:
    fixed = field.packet_type in FIXED_BEFORE_5 and field.row is None
    if fixed:
        statements: tuple[str, ...] = ("3.1.1 V311-LENGTH-fixed", "5.0 V5-LENGTH-overrun")
    elif not inside and field.name in _ABSENT:
        statements = _ABSENT[field.name]
    elif field.in_will and not inside and field.path == "will.will_topic":
        statements = ("3.1.1 MQTT-3.1.2-9", "5.0 V5-LENGTH-overrun")
    else:
        statements = overrun(field)
    if fixed and field.packet_type == PacketType.CONNACK and not inside and field.path == "reason_code":
        statements = ("3.1.1 V311-LENGTH-fixed", "5.0 V5-LENGTH-overrun")
    legal = (V3_1,) if not inside and field.path in ("user_name", "password") else ()

    def change(target: Target) -> bytes:
        return cut_at(target, field, inside=inside)

    where = "in" if inside else "before"
    return Mutation(
        f"{field.name}:cut-{'inside' if inside else 'before'}",
        MutationKind.WIRE,
        f"The {'block' if field.row else 'packet'} ends {where} {field.name}, with a length that says so.",
        change_packet=change,
        packet_type=field.packet_type,
        field=field.name.partition(".")[2],
        versions=field.versions,
        senders=senders_of(field.packet_type),
        statements=statements,
        legal_in=legal,
        reaction=MALFORMED,
    )


def _broken_off(field: Field, *, inside: bool) -> Mutation:
    """The lying twin of a cut: the receiver waits for more, and takes what follows for the rest of the packet."""

    def change(target: Target) -> bytes:
        return break_off(target, field, inside=inside)

    where = "in" if inside else "before"
    return Mutation(
        f"{field.name}:cut-{'inside' if inside else 'before'}-lying",
        MutationKind.WIRE,
        f"The packet breaks off {where} {field.name}, and its lengths are those of the whole packet.",
        change_packet=change,
        packet_type=field.packet_type,
        field=field.name.partition(".")[2],
        versions=field.versions,
        senders=senders_of(field.packet_type),
    )


def _lying(make: Callable[[int], int]) -> Callable[[Target], bytes]:
    def change(target: Target) -> bytes:
        layout = layout_of(target)
        true = len(layout.body())
        told = make(true)
        if told < 0 or told == true:
            raise NotApplicableError("the Remaining Length cannot lie like that")
        return layout.join(remaining_length=write_variable_byte_integer(told))

    return change


def _encoded(make: Callable[[bytes], bytes]) -> Callable[[Target], bytes]:
    def change(target: Target) -> bytes:
        layout = layout_of(target)
        length = write_variable_byte_integer(len(layout.body()))
        return layout.join(remaining_length=make(length))

    return change


def _not_minimal(length: bytes) -> bytes:
    if len(length) == 4:
        raise NotApplicableError("a longer form would have five bytes")
    return length[:-1] + bytes((length[-1] | 0x80, 0))


_FIVE = ("3.1 V31-HEADER-remaining-length", "3.1.1 V311-VBI-four-bytes", "5.0 V5-VBI-four-bytes")
_REMAINING: tuple[tuple[str, str, Callable[[Target], bytes], tuple[str, ...]], ...] = (
    ("plus-one", "is one more than there are bytes", _lying(lambda true: true + 1), ()),
    ("minus-one", "is one less than there are bytes", _lying(lambda true: true - 1), ()),
    ("zero", "is 0 and there are bytes", _lying(lambda _: 0), ()),
    ("doubled", "is twice what there are bytes", _lying(lambda true: 2 * true), ()),
    ("maximum", "is 268,435,455, the most there can be", _lying(lambda _: wire.MAX_VARIABLE_BYTE_INTEGER), ()),
    ("not-minimal", "takes one byte more than it needs", _encoded(_not_minimal), ("5.0 MQTT-1.5.5-1",)),
    ("five-bytes", "runs past four bytes", _encoded(lambda _: b"\x80\x80\x80\x80\x01"), _FIVE),
    ("all-ones", "has the continuation bit in every byte", _encoded(lambda _: b"\xff\xff\xff\xff\xff"), _FIVE),
)


def remaining_length_mutations() -> Iterator[Mutation]:
    """A Remaining Length that lies or is written wrongly (5.0 2.1.4), for every packet type."""
    for kind in PacketType:
        name = kind.name.lower()
        versions = (V5,) if kind == PacketType.AUTH else ALL_VERSIONS
        for slug, words, change, statements in _REMAINING:
            yield Mutation(
                f"{name}.remaining_length:{slug}",
                MutationKind.WIRE,
                f"The Remaining Length of {kind.name} {words}.",
                change_packet=change,
                packet_type=kind,
                field="remaining_length",
                versions=versions,
                senders=senders_of(kind),
                statements=tuple(one for one in statements if _fits(one, versions)),
                reaction=MALFORMED if statements else ANY,
            )
        yield from _extra(kind, versions)


def _fits(statement: str, versions: tuple[ProtocolVersion, ...]) -> bool:
    return statement.split(" ")[0] in {one.text for one in versions}


_BEHIND_A_LIST = (PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE)
_NO_END = (PacketType.PUBLISH, PacketType.SUBACK)
"""Packets whose last field takes all that there is."""


def _extra(kind: PacketType, versions: tuple[ProtocolVersion, ...]) -> Iterator[Mutation]:
    """Bytes after the last field, with a Remaining Length that counts them."""
    if kind in _NO_END:
        return
    statements: tuple[str, ...]
    if kind in _BEHIND_A_LIST:
        statements = ("3.1.1 V311-LENGTH-overrun", "5.0 V5-LENGTH-overrun")
    elif kind == PacketType.CONNECT:
        statements = ("3.1.1 MQTT-3.1.2-18", "3.1.1 MQTT-3.1.2-20", "5.0 MQTT-3.1.2-16", "5.0 MQTT-3.1.2-18")
    elif kind in (PacketType.PINGREQ, PacketType.PINGRESP):
        statements = ("3.1.1 V311-LENGTH-fixed", "5.0 V5-LENGTH-empty-packets")
    elif kind == PacketType.UNSUBACK:
        statements = ("3.1.1 V311-LENGTH-fixed", "5.0 MQTT-3.11.3-2")
    else:
        statements = ("3.1.1 V311-LENGTH-fixed", "5.0 V5-LENGTH-trailing")

    def change(target: Target) -> bytes:
        if kind == PacketType.CONNECT:
            # Without the two last fields it is they that the byte would have to be a part of.
            target.packet.user_name = target.packet.password = None
        if target.version == V5 and kind not in (PacketType.PINGREQ, PacketType.PINGRESP):
            # Every field that may be left out is written, or else the extra byte would be one of them.
            packet = target.packet
            if hasattr(packet, "reason_code") and packet.reason_code is None:
                packet.reason_code = 0
            if getattr(packet, "properties", 0) is None:
                packet.properties = Properties()
        layout = layout_of(target)
        body = layout.body() + b"\x7e"
        return bytes((layout.first,)) + write_variable_byte_integer(len(body)) + body

    yield Mutation(
        f"{kind.name.lower()}:extra-byte",
        MutationKind.WIRE,
        f"{kind.name} has a byte after its last field, and a Remaining Length that counts it.",
        change_packet=change,
        packet_type=kind,
        versions=versions,
        senders=senders_of(kind),
        statements=tuple(one for one in statements if _fits(one, versions)),
        reaction=MALFORMED,
    )


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
                MutationKind.PACKET,
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


def random_mutations() -> Iterator[Mutation]:
    """Random bytes in the place of a packet, and packets with random damage."""
    rows: tuple[tuple[str, str, Callable[[Target], bytes]], ...] = (
        ("bytes", "A packet is replaced by 1 to 64 random bytes.", _bytes),
        ("bits", "One to eight bits of a packet are turned over.", _bits),
        ("insert", "One to eight random bytes come into a packet.", _insert),
        ("delete", "One to eight bytes of a packet are left out.", _delete),
        ("repeat", "A piece of a packet comes twice.", _repeat),
        ("byte", "One byte of a packet is an extreme value.", _byte),
    )
    for slug, description, change in rows:
        yield Mutation(f"random:{slug}", MutationKind.RANDOM, description, change_packet=change, senders=_BOTH)


def _bytes(target: Target) -> bytes:
    return target.chance.octets(1 + target.chance.below(64))


def _bits(target: Target) -> bytes:
    data = bytearray(target.raw)
    for _ in range(1 + target.chance.below(8)):
        bit = target.chance.below(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


def _insert(target: Target) -> bytes:
    at = target.chance.below(len(target.raw) + 1)
    return target.raw[:at] + target.chance.octets(1 + target.chance.below(8)) + target.raw[at:]


def _delete(target: Target) -> bytes:
    at = target.chance.below(len(target.raw))
    return target.raw[:at] + target.raw[at + 1 + target.chance.below(8) :]


def _repeat(target: Target) -> bytes:
    start = target.chance.below(len(target.raw))
    end = start + 1 + target.chance.below(len(target.raw) - start)
    return target.raw[:end] + target.raw[start:end] + target.raw[end:]


def _byte(target: Target) -> bytes:
    at = target.chance.below(len(target.raw))
    value = target.chance.pick(EXTREMES)
    return target.raw[:at] + bytes((value,)) + target.raw[at + 1 :]

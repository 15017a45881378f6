"""Mutations of property blocks (5.0 2.2.2): unknown, misplaced and repeated properties, and lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from mqttscope.mqtt.constants import PacketType
from mqttscope.mqtt.properties import LISTS, PROPERTIES, USER_PROPERTY, Properties, Property
from mqttscope.mqtt.wire import MAX_VARIABLE_BYTE_INTEGER, write_variable_byte_integer
from mqttscope.mutate.fields import blocks, repeated_property
from mqttscope.mutate.layout import LENGTH, FieldBytes, PacketLayout, layout_of
from mqttscope.mutate.mutation import (
    ACCEPT,
    ANY,
    MALFORMED,
    ONLY_5,
    PROTOCOL_ERROR,
    Mutation,
    MutationKind,
    NotApplicableError,
    PacketTarget,
    Reaction,
    row,
)
from mqttscope.mutate.samples import PROPERTY_VALUES, ensure_block, set_block, with_property

_ONLY_BINDS_THE_WILL = ("payload_format_indicator", "message_expiry_interval")
"""Properties that must not be repeated in a Will; in PUBLISH the standard does not forbid it."""
_OPTIONAL = (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP, PacketType.DISCONNECT)
"""Packets that may end before their properties, so that a missing block is legal."""


def property_mutations() -> Iterator[Mutation]:
    """Every mutation of every property block."""
    for kind, owner, prefix in blocks():
        for declared in PROPERTIES:
            if owner not in declared.packets:
                yield _not_allowed(kind, prefix, declared)
            elif declared.name != "user_property":
                yield _repeated(kind, prefix, declared)
        yield from _of_block(kind, prefix)


def _of_block(kind: PacketType, prefix: str) -> Iterator[Mutation]:
    block = f"{kind.name.lower()}.{prefix}properties"
    owner = f"{kind.name}'s Will" if prefix else kind.name
    for slug, words, length_of, statements in _LENGTHS:
        sentence = f"The Property Length of {owner} {words}."
        reaction = MALFORMED if statements else ANY
        change = partial(_lie, prefix, length_of)
        name = f"{block}.{LENGTH}:{slug}"
        yield row(name, sentence, change, statements, reaction, ONLY_5, kind=MutationKind.WIRE)
    is_last = kind == PacketType.CONNACK
    is_optional = kind in _OPTIONAL
    yield from (
        *(row(f"{block}:{slug}", f"{kind.name} has a property with the unknown identifier 0x{identifier:02x}.",
              partial(_add, prefix, identifier, b"\x01"), "5.0 V5-PROP-unknown", MALFORMED, ONLY_5)
          for slug, identifier in (("unknown-00", 0), ("unknown-7f", 0x7F), ("unknown-two-bytes", 0x80))),
        row(f"{block}:missing", f"{owner} has no Property Length.", partial(_remove_length, prefix),
            "5.0 MQTT-2.2.2-1" if is_last else "", MALFORMED if is_last or is_optional else ANY, ONLY_5,
            legal=ONLY_5 if is_optional else ()),
        # The number of User Properties is not limited (5.0 2.2.2.2).
        row(f"{block}.user_property:thousand", f"{owner} has 1,000 more User Properties.", partial(_thousand, prefix),
            "", ACCEPT, ONLY_5, legal=ONLY_5 if kind != PacketType.AUTH else ()),
        # A property identifier is a Variable Byte Integer, so its encoding must be the shortest one (5.0 2.2.2.2).
        row(f"{block}:identifier-not-minimal", f"A property identifier of {owner} is encoded in two bytes.",
            partial(_lengthen_identifier, prefix), "5.0 MQTT-1.5.5-1", MALFORMED, ONLY_5, kind=MutationKind.WIRE),
    )  # fmt: skip


def _append(target: PacketTarget, prefix: str, *added: tuple[int, object]) -> None:
    set_block(target.packet, prefix, Properties.of((*ensure_block(target.packet, prefix).items, *added)))


def _add(prefix: str, identifier: int, value: object, target: PacketTarget) -> None:
    _append(target, prefix, (identifier, value))


def _thousand(prefix: str, target: PacketTarget) -> None:
    _append(target, prefix, *((USER_PROPERTY, (f"name{number}", "value")) for number in range(1000)))


def _not_allowed(kind: PacketType, prefix: str, declared: Property) -> Mutation:
    return row(
        f"{kind.name.lower()}.{prefix}properties:with-{declared.name.replace('_', '-')}",
        f"{kind.name} has the property {declared.name}, which {'its Will' if prefix else 'it'} must not have.",
        partial(_add, prefix, declared.identifier, PROPERTY_VALUES[declared.name]),
        "5.0 V5-PROP-not-allowed",
        Reaction(MALFORMED.demand, (0x81, 0x82)),
        ONLY_5,
    )


def _repeated(kind: PacketType, prefix: str, declared: Property) -> Mutation:
    statements = repeated_property(kind, bool(prefix))
    if declared.name in LISTS and kind == PacketType.PUBLISH:
        # A server sends one per matching subscription; a client must not send any.
        statements = "client 5.0 MQTT-3.3.4-6"
    if kind == PacketType.DISCONNECT and declared.name == "session_expiry_interval":
        statements += ", server 5.0 MQTT-3.14.2-2"
    return row(
        f"{kind.name.lower()}.{prefix}properties.{declared.name}:repeated",
        f"{kind.name} has the property {declared.name} twice{' in its Will' if prefix else ''}.",
        partial(_repeat, prefix, declared),
        statements,
        PROTOCOL_ERROR,
        ONLY_5,
        discouraged=kind == PacketType.PUBLISH and not prefix and declared.name in _ONLY_BINDS_THE_WILL,
    )


def _repeat(prefix: str, declared: Property, target: PacketTarget) -> None:
    block = ensure_block(target.packet, prefix)
    value = block.first(declared.identifier)
    if value is None:
        value = PROPERTY_VALUES[declared.name]
        if declared.name == "topic_alias" and not target.limit("topic_alias_maximum", 0):
            raise NotApplicableError("the receiver accepts no Topic Alias")
        block = with_property(block, declared.name, value)
        if declared.name == "authentication_data" and block.authentication_method is None:
            block = with_property(block, "authentication_method", PROPERTY_VALUES["authentication_method"])
        set_block(target.packet, prefix, block)
    _append(target, prefix, (declared.identifier, value))


def _taken_apart(target: PacketTarget, prefix: str) -> tuple[PacketLayout, FieldBytes, int]:
    """The split packet with at least one property in the block, the piece of the Property Length, and its value."""
    block = ensure_block(target.packet, prefix)
    if not block:
        set_block(target.packet, prefix, with_property(block, "user_property", PROPERTY_VALUES["user_property"]))
    layout = layout_of(target)
    layout.right_property_lengths()
    name = f"{prefix}properties.{LENGTH}"
    size = sum(len(piece.data) for index, piece in enumerate(layout.pieces) if layout.block(index) == name)
    return layout, layout.piece(name), size


def _lie(prefix: str, length_of: Callable[[int], bytes], target: PacketTarget) -> bytes:
    layout, piece, size = _taken_apart(target, prefix)
    if prefix and layout.index("properties.property_length") >= 0:
        layout.right_property_lengths()
    piece.data = length_of(size)
    return layout.join(blocks=False)


def _longer(size: int) -> bytes:
    data = write_variable_byte_integer(size)
    return data[:-1] + bytes((data[-1] | 0x80, 0))


_WRONG_TYPE = "5.0 V5-PROP-wrong-type"
_LENGTHS: tuple[tuple[str, str, Callable[[int], bytes], str], ...] = (
    ("plus-one", "is one more than the size of the block", lambda size: write_variable_byte_integer(size + 1), ""),
    ("minus-one", "is one less than the size of the block",
     lambda size: write_variable_byte_integer(size - 1), _WRONG_TYPE),
    ("zero", "is 0 although properties follow", lambda _: b"\0", ""),
    ("overrun", "reaches past the end of the packet",
     lambda _: write_variable_byte_integer(MAX_VARIABLE_BYTE_INTEGER), _WRONG_TYPE),
    ("not-minimal", "is encoded in one byte more than needed", _longer, "5.0 MQTT-1.5.5-1"),
    ("five-bytes", "is encoded in five bytes", lambda _: b"\x80\x80\x80\x80\x01", "5.0 V5-VBI-four-bytes"),
)  # fmt: skip
"""Property Lengths with wrong values or encodings (5.0 2.2.2.1)."""


def _remove_length(prefix: str, target: PacketTarget) -> bytes:
    owner = target.packet.will if prefix else target.packet
    if owner is not None and owner.properties is not None:
        set_block(target.packet, prefix, Properties())
    else:
        ensure_block(target.packet, prefix)
    layout = layout_of(target)
    del layout.pieces[layout.index(f"{prefix}properties.{LENGTH}")]
    return layout.join(blocks=False)


def _lengthen_identifier(prefix: str, target: PacketTarget) -> bytes:
    layout, length, _ = _taken_apart(target, prefix)
    piece = next(piece for index, piece in enumerate(layout.pieces) if layout.block(index) == length.field)
    piece.data = bytes((piece.data[0] | 0x80, 0)) + piece.data[1:]
    return layout.join()

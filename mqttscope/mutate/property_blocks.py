"""Mutations of property blocks (5.0 2.2.2): what is in them, where, how often, and how long they say to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.properties import LISTS, PROPERTIES, USER_PROPERTY, Properties, Property
from mqttscope.mqtt.wire import MAX_VARIABLE_BYTE_INTEGER, write_variable_byte_integer
from mqttscope.mutate.fields import blocks, repeated_property
from mqttscope.mutate.flow import CLIENT, SERVER
from mqttscope.mutate.layout import LENGTH, Layout, Piece, layout_of
from mqttscope.mutate.mutation import (
    ACCEPT,
    ANY,
    MALFORMED,
    PROTOCOL_ERROR,
    Mutation,
    MutationKind,
    NotApplicableError,
    Reaction,
    Target,
    senders_of,
)
from mqttscope.mutate.samples import PROPERTY_VALUES, ensure_block, set_block, with_property

V5 = ProtocolVersion.V5
_TOLD_FOR_THE_WILL_ONLY = ("payload_format_indicator", "message_expiry_interval")
"""In PUBLISH no sentence of the standard says that these must not repeat."""


def _name(kind: PacketType, prefix: str) -> str:
    return f"{kind.name.lower()}.{prefix}properties"


def property_mutations() -> Iterator[Mutation]:
    """Every mutation of every property block."""
    for kind, owner, prefix in blocks():
        for row in PROPERTIES:
            if owner not in row.packets:
                yield _not_allowed(kind, prefix, row)
            elif row.name != "user_property":
                yield _repeated(kind, prefix, row)
        yield from _unknown(kind, prefix)
        yield from _lengths(kind, prefix)
        yield _many(kind, prefix)
        yield _identifier(kind, prefix)


def _with_items(target: Target, prefix: str, *added: tuple[int, object], where: int | None = None) -> bytes:
    items = list(ensure_block(target.packet, prefix).items)
    at = len(items) if where is None else where
    items[at:at] = added
    set_block(target.packet, prefix, Properties.of(items))
    return target.encoded()


def _not_allowed(kind: PacketType, prefix: str, row: Property) -> Mutation:
    def change(target: Target) -> bytes:
        return _with_items(target, prefix, (row.identifier, PROPERTY_VALUES[row.name]))

    place = "its Will" if prefix else "it"
    return Mutation(
        f"{_name(kind, prefix)}:with-{row.name.replace('_', '-')}",
        MutationKind.PACKET,
        f"{kind.name} has the property {row.name}, which {place} must not have.",
        change_packet=change,
        packet_type=kind,
        field=f"{prefix}properties",
        versions=(V5,),
        senders=senders_of(kind),
        statements=("5.0 V5-PROP-not-allowed",),
        reaction=Reaction(MALFORMED.demand, (0x81, 0x82)),
    )


def _repeated(kind: PacketType, prefix: str, row: Property) -> Mutation:
    def change(target: Target) -> bytes:
        block = ensure_block(target.packet, prefix)
        value = block.first(row.identifier)
        if value is None:
            value = PROPERTY_VALUES[row.name]
            if row.name == "topic_alias" and not target.limit("topic_alias_maximum", 0):
                raise NotApplicableError("the receiver takes no Topic Alias")
            block = with_property(block, row.name, value)
            if row.name == "authentication_data" and block.authentication_method is None:
                block = with_property(block, "authentication_method", PROPERTY_VALUES["authentication_method"])
            set_block(target.packet, prefix, block)
        return _with_items(target, prefix, (row.identifier, value))

    statement = repeated_property(kind, bool(prefix))
    by_sender: dict[str, tuple[str, ...]] = {}
    statements: tuple[str, ...] = (statement,)
    if row.name in LISTS and kind == PacketType.PUBLISH:
        # Several are what a server sends for several subscriptions; a client sends none (5.0 MQTT-3.3.4-6).
        statements, by_sender = (), {CLIENT: ("5.0 MQTT-3.3.4-6",)}
    if kind == PacketType.DISCONNECT and row.name == "session_expiry_interval":
        by_sender = {SERVER: ("5.0 MQTT-3.14.2-2",)}
    return Mutation(
        f"{_name(kind, prefix)}.{row.name}:repeated",
        MutationKind.PACKET,
        f"{kind.name} has the property {row.name} twice{' in its Will' if prefix else ''}.",
        change_packet=change,
        packet_type=kind,
        field=f"{prefix}properties.{row.name}",
        versions=(V5,),
        senders=senders_of(kind),
        statements=statements,
        sender_statements=by_sender,
        discouraged=kind == PacketType.PUBLISH and not prefix and row.name in _TOLD_FOR_THE_WILL_ONLY,
        reaction=PROTOCOL_ERROR,
    )


def _unknown(kind: PacketType, prefix: str) -> Iterator[Mutation]:
    for slug, identifier in (("unknown-00", 0), ("unknown-7f", 0x7F), ("unknown-two-bytes", 0x80)):

        def change(target: Target, identifier: int = identifier) -> bytes:
            return _with_items(target, prefix, (identifier, b"\x01"))

        yield Mutation(
            f"{_name(kind, prefix)}:{slug}",
            MutationKind.PACKET,
            f"{kind.name} has a property with the identifier 0x{identifier:02x}, which no property has.",
            change_packet=change,
            packet_type=kind,
            field=f"{prefix}properties",
            versions=(V5,),
            senders=senders_of(kind),
            statements=("5.0 V5-PROP-unknown",),
            reaction=MALFORMED,
        )


def _taken_apart(target: Target, prefix: str) -> tuple[Layout, Piece, int]:
    """The packet with a property in its block, the length of the block, and that length."""
    block = ensure_block(target.packet, prefix)
    if not block:
        set_block(target.packet, prefix, with_property(block, "user_property", PROPERTY_VALUES["user_property"]))
    layout = layout_of(target)
    layout.right_property_lengths()
    name = f"{prefix}properties.{LENGTH}"
    size = sum(len(one.data) for index, one in enumerate(layout.pieces) if layout.block(index) == name)
    return layout, layout.piece(name), size


def _lie(prefix: str, make: Callable[[int], bytes]) -> Callable[[Target], bytes]:
    def change(target: Target) -> bytes:
        layout, piece, size = _taken_apart(target, prefix)
        if prefix and layout.index("properties.property_length") >= 0:
            layout.right_property_lengths()
        piece.data = make(size)
        return layout.join(blocks=False)

    return change


def _longer(size: int) -> bytes:
    data = write_variable_byte_integer(size)
    return data[:-1] + bytes((data[-1] | 0x80, 0))


def _lengths(kind: PacketType, prefix: str) -> Iterator[Mutation]:
    """A Property Length that lies or is written wrongly, and none at all (5.0 2.2.2.1)."""
    wrong_type = ("5.0 V5-PROP-wrong-type",)
    rows: tuple[tuple[str, str, Callable[[int], bytes], tuple[str, ...]], ...] = (
        ("plus-one", "is one more than it has bytes", lambda size: write_variable_byte_integer(size + 1), ()),
        ("minus-one", "ends inside its last property", lambda size: write_variable_byte_integer(size - 1), wrong_type),
        ("zero", "is 0 and there are properties", lambda _: b"\0", ()),
        (
            "overrun",
            "is more than the packet has bytes",
            lambda _: write_variable_byte_integer(MAX_VARIABLE_BYTE_INTEGER),
            wrong_type,
        ),
        ("not-minimal", "takes one byte more than it needs", _longer, ("5.0 MQTT-1.5.5-1",)),
        ("five-bytes", "runs past four bytes", lambda _: b"\x80\x80\x80\x80\x01", ("5.0 V5-VBI-four-bytes",)),
    )
    for slug, words, make, statements in rows:
        yield Mutation(
            f"{_name(kind, prefix)}.{LENGTH}:{slug}",
            MutationKind.WIRE,
            f"The Property Length of {kind.name}{chr(39) + 's Will' if prefix else ''} {words}.",
            change_packet=_lie(prefix, make),
            packet_type=kind,
            field=f"{prefix}properties.{LENGTH}",
            versions=(V5,),
            senders=senders_of(kind),
            statements=statements,
            reaction=MALFORMED if statements else ANY,
        )

    def remove(target: Target) -> bytes:
        set_block(target.packet, prefix, Properties()) if _has(target, prefix) else ensure_block(target.packet, prefix)
        layout = layout_of(target)
        del layout.pieces[layout.index(f"{prefix}properties.{LENGTH}")]
        return layout.join(blocks=False)

    # An acknowledgement may end before its properties, so there nothing is missing.
    optional = kind in _OPTIONAL
    bare_end = kind in (PacketType.CONNACK,)
    yield Mutation(
        f"{_name(kind, prefix)}:missing",
        MutationKind.PACKET,
        f"{kind.name}{chr(39) + 's Will' if prefix else ''} has no Property Length.",
        change_packet=remove,
        packet_type=kind,
        field=f"{prefix}properties",
        versions=(V5,),
        senders=senders_of(kind),
        statements=("5.0 MQTT-2.2.2-1",) if bare_end else (),
        legal_in=(V5,) if optional else (),
        reaction=MALFORMED if bare_end or optional else ANY,
    )


_OPTIONAL = (
    PacketType.PUBACK,
    PacketType.PUBREC,
    PacketType.PUBREL,
    PacketType.PUBCOMP,
    PacketType.DISCONNECT,
)


def _has(target: Target, prefix: str) -> bool:
    owner = target.packet.will if prefix else target.packet
    return owner is not None and owner.properties is not None


def _many(kind: PacketType, prefix: str) -> Mutation:
    """User Properties may come as often as there is room (5.0 2.2.2.2)."""

    def change(target: Target) -> bytes:
        return _with_items(target, prefix, *((USER_PROPERTY, (f"name{number}", "value")) for number in range(1000)))

    return Mutation(
        f"{_name(kind, prefix)}.user_property:thousand",
        MutationKind.PACKET,
        f"{kind.name}{chr(39) + 's Will' if prefix else ''} has 1,000 User Properties more.",
        change_packet=change,
        packet_type=kind,
        field=f"{prefix}properties.user_property",
        versions=(V5,),
        senders=senders_of(kind),
        legal_in=(V5,) if kind != PacketType.AUTH else (),
        reaction=ACCEPT,
    )


def _identifier(kind: PacketType, prefix: str) -> Mutation:
    """A property identifier is a Variable Byte Integer, so it too has a shortest form (5.0 2.2.2.2)."""

    def change(target: Target) -> bytes:
        layout, _, _ = _taken_apart(target, prefix)
        name = f"{prefix}properties.{LENGTH}"
        index = next(at for at in range(len(layout.pieces)) if layout.block(at) == name)
        piece = layout.pieces[index]
        piece.data = bytes((piece.data[0] | 0x80, 0)) + piece.data[1:]
        return layout.join()

    return Mutation(
        f"{_name(kind, prefix)}:identifier-not-minimal",
        MutationKind.WIRE,
        f"The identifier of a property of {kind.name}{chr(39) + 's Will' if prefix else ''} takes two bytes.",
        change_packet=change,
        packet_type=kind,
        field=f"{prefix}properties",
        versions=(V5,),
        senders=senders_of(kind),
        statements=("5.0 MQTT-1.5.5-1",),
        reaction=MALFORMED,
    )

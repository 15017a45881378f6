"""Mutations of numbers and of Binary Data (5.0 1.5.1 to 1.5.3, 1.5.5, 1.5.6).

Legal packets whose lengths are where a Variable Byte Integer gets one byte more (5.0 1.5.5, 3.1.1 2.2.3).
"""

from __future__ import annotations

from collections.abc import Iterator

from mqttscope.mqtt import wire
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.properties import BY_NAME, USER_PROPERTY, Properties
from mqttscope.mutate import broken
from mqttscope.mutate.fields import Field, all_fields, blocks
from mqttscope.mutate.flow import CLIENT, SERVER
from mqttscope.mutate.layout import LENGTH
from mqttscope.mutate.mutation import (
    ACCEPT,
    ALL_VERSIONS,
    ANY,
    MALFORMED,
    PROTOCOL_ERROR,
    Demand,
    Mutation,
    MutationKind,
    NotApplicableError,
    PacketChange,
    Reaction,
    Target,
    senders_of,
)
from mqttscope.mutate.samples import ensure_block, set_block
from mqttscope.mutate.surgery import LONGEST, with_value

V3_1, V3_1_1, V5 = ProtocolVersion

_WIDTHS = {wire.U8.name: 1, wire.U16.name: 2, wire.U32.name: 4, wire.VARIABLE_BYTE_INTEGER.name: 0}
VARIABLE_BYTE_INTEGER_BOUNDARIES = (127, 128, 16_383, 16_384, 2_097_151, 2_097_152)
"""The greatest values of one to three bytes, and the least of two to four (5.0 table 1-1)."""
_CONTEXT = (
    "topic_alias",
    "authentication_data",
    "session_expiry_interval",
    "server_keep_alive",
    "maximum_packet_size",
)
"""Numbers whose other values are legal only with other packets that fit them."""
_ASKS = (PacketType.PUBLISH, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE)
_IN_SUBACK = (PacketType.SUBACK, PacketType.UNSUBACK)


def _number(field: Field, value: int) -> PacketChange:
    width = _WIDTHS[field.wire]
    data = value.to_bytes(width, "big") if width else wire.write_variable_byte_integer(value)

    def change(target: Target) -> bytes:
        return with_value(target, field, lambda _: data)

    return change


def _contextual(field: Field) -> bool:
    if field.path.endswith("payload_format_indicator"):
        return True  # 1 wants a payload that is UTF-8
    if field.path.endswith("subscription_identifier"):
        return field.packet_type == PacketType.PUBLISH
    return field.path.endswith(_CONTEXT) or (
        field.packet_type == PacketType.CONNACK and not field.path.endswith("_available")
    )


def number_mutations() -> Iterator[Mutation]:
    """Least, greatest and forbidden values of every number; identifiers are a matter of their own."""
    for field in all_fields():
        if field.wire not in _WIDTHS or field.path == "protocol_level":
            continue
        if field.path == "packet_identifier":
            yield from _identifiers(field)
            continue
        name = field.path.rpartition(".")[2]
        forbidden, statement = broken.FORBIDDEN_VALUES.get(name, (-1, ""))
        width = _WIDTHS[field.wire]
        maximum = (1 << 8 * width) - 1 if width else wire.MAX_VARIABLE_BYTE_INTEGER
        values = {"zero": 0, "one": 1, "maximum": maximum}
        if forbidden > 0:
            values["two"] = 2
        if width > 1:
            # The first value that is negative where a receiver reads it as signed.
            values["sign-bit"] = 1 << 8 * width - 1
        if not width:
            values |= {f"boundary-{value}": value for value in VARIABLE_BYTE_INTEGER_BOUNDARIES}
        for slug, value in values.items():
            wrong = value == forbidden if forbidden == 0 else 0 < forbidden <= value
            yield Mutation(
                f"{field.name}:{slug}",
                MutationKind.WIRE,
                f"{field.name} is {value:,}{', which is forbidden' if wrong else ''}.",
                change_packet=_number(field, value),
                packet_type=field.packet_type,
                field=field.name.partition(".")[2],
                versions=field.versions,
                senders=senders_of(field.packet_type),
                statements=(statement,) if wrong else (),
                legal_in=field.versions if not wrong and not _contextual(field) else (),
                reaction=_forbidden_reaction(name) if wrong else ACCEPT,
            )
        if not width:
            yield from _variable_byte_integers(field)


def _forbidden_reaction(name: str) -> Reaction:
    return Reaction(Demand.CLOSE, (0x94, 0x82)) if name == "topic_alias" else PROTOCOL_ERROR


def _variable_byte_integers(field: Field) -> Iterator[Mutation]:
    rows = (
        ("not-minimal", b"\x81\x00", "is written in one byte more than it needs", "5.0 MQTT-1.5.5-1"),
        ("five-bytes", b"\x80\x80\x80\x80\x01", "is written in five bytes", "5.0 V5-VBI-four-bytes"),
    )
    for slug, data, words, statement in rows:

        def change(target: Target, data: bytes = data) -> bytes:
            return with_value(target, field, lambda _: data)

        yield Mutation(
            f"{field.name}:{slug}",
            MutationKind.WIRE,
            f"{field.name} {words}.",
            change_packet=change,
            packet_type=field.packet_type,
            field=field.name.partition(".")[2],
            versions=field.versions,
            senders=senders_of(field.packet_type),
            statements=(statement,),
            reaction=MALFORMED,
        )


def _identifiers(field: Field) -> Iterator[Mutation]:
    """Packet Identifier 0 (5.0 2.2.1), and the greatest."""
    kind = field.packet_type
    asks = kind in _ASKS
    by_sender: dict[str, tuple[str, ...]] = {}
    statements: tuple[str, ...]
    if asks:
        statements = ("3.1 V31-MSGID-nonzero", "3.1.1 MQTT-2.3.1-1")
        by_sender = {CLIENT: ("5.0 MQTT-2.2.1-3",), SERVER: ("5.0 MQTT-2.2.1-4",)}
        if kind == PacketType.PUBLISH:
            statements = (*statements, "3.1 V31-PUBLISH-msgid-nonzero")
    elif kind in _IN_SUBACK:
        statements = ("3.1.1 MQTT-2.3.1-7", "5.0 MQTT-2.2.1-6")
    elif kind == PacketType.PUBCOMP:
        statements = ("5.0 MQTT-2.2.1-5",)
    else:
        statements = ("3.1.1 MQTT-2.3.1-6", "5.0 MQTT-2.2.1-5")
    refused = Reaction(Demand.CLOSE, (0x82, 0x81))
    yield Mutation(
        f"{field.name}:zero",
        MutationKind.WIRE,
        f"{field.name} is 0, which is no identifier.",
        change_packet=_number(field, 0),
        packet_type=kind,
        field="packet_identifier",
        senders=senders_of(kind),
        statements=statements,
        sender_statements=by_sender,
        reaction=refused if asks else ANY,
    )
    yield Mutation(
        f"{field.name}:maximum",
        MutationKind.WIRE,
        f"{field.name} is 65,535"
        + (", the greatest." if asks else ", which belongs to nothing that waits for an answer."),
        change_packet=_greatest(field),
        packet_type=kind,
        field="packet_identifier",
        senders=senders_of(kind),
        statements=() if asks else statements,
        legal_in=(V3_1, V3_1_1, V5) if asks else (),
        reaction=ACCEPT if asks else ANY,
    )


def _greatest(field: Field) -> PacketChange:
    change = _number(field, 65_535)

    def checked(target: Target) -> bytes:
        if target.sender == SERVER and getattr(target.packet, "qos", 1) == 0:
            raise NotApplicableError("with QoS 1 it might be above what the client was granted")
        return change(target)

    return checked


def binary_mutations() -> Iterator[Mutation]:
    """Binary Data and the payload: anything is allowed in them."""
    for field in all_fields():
        if field.wire not in (wire.BINARY.name, wire.REST.name):
            continue
        rest = field.wire == wire.REST.name
        longest = 262_144 if rest else LONGEST
        rows = {
            "empty": (b"", "is empty"),
            "any-bytes": (bytes(range(256)), "has every byte there is"),
            "maximum-length": (b"\0" * longest, f"has {longest:,} bytes"),
        }
        for slug, (data, words) in rows.items():
            whole = data if rest else len(data).to_bytes(2, "big") + data
            legal = not field.path.endswith(("authentication_data",))
            yield Mutation(
                f"{field.name}:{'large' if rest and slug == 'maximum-length' else slug}",
                MutationKind.WIRE,
                f"{field.name} {words}.",
                change_packet=_payload(data) if rest else _binary(field, whole),
                packet_type=field.packet_type,
                field=field.name.partition(".")[2],
                versions=field.versions,
                senders=senders_of(field.packet_type),
                legal_in=field.versions if legal else (),
                reaction=ANY if field.path == "password" else ACCEPT,
            )


def _binary(field: Field, whole: bytes) -> PacketChange:
    def change(target: Target) -> bytes:
        if field.in_will and target.packet.will is not None and target.version == V5:
            _unmark(target.packet.will)
        return with_value(target, field, lambda _: whole)

    return change


def _payload(data: bytes) -> PacketChange:
    def change(target: Target) -> bytes:
        _unmark(target.packet)
        target.packet.payload = data
        return target.encoded()

    return change


def _unmark(owner: object) -> None:
    """Take back the promise that the payload is UTF-8 (5.0 3.3.2.3.2)."""
    block = owner.properties  # type: ignore[attr-defined]
    if block is not None:
        kept = [(number, value) for number, value in block.items if number != _FORMAT_INDICATOR]
        owner.properties = type(block).of(kept)  # type: ignore[attr-defined]


_FORMAT_INDICATOR = BY_NAME["payload_format_indicator"].identifier
_EMPTY_PAIR = 5
"""Bytes of a User Property with neither name nor value: its identifier and two lengths."""
_LONGEST_VALUE = 65_535
_INDICATOR = BY_NAME["payload_format_indicator"].identifier


def boundary_mutations() -> Iterator[Mutation]:
    """PUBLISH with a Remaining Length at each boundary, and property blocks up to that of three bytes."""
    for length in VARIABLE_BYTE_INTEGER_BOUNDARIES:
        yield Mutation(
            f"publish.remaining_length:boundary-{length}",
            MutationKind.WIRE,
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
                MutationKind.WIRE,
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
            raise NotApplicableError(f"the packet is longer than {length:,} bytes without its payload")
        packet.payload = bytes(room)
        return target.encoded()

    return change


def _padded(prefix: str, length: int) -> PacketChange:
    def change(target: Target) -> bytes:
        block = ensure_block(target.packet, prefix)
        room = length - _size(target, prefix) - _EMPTY_PAIR
        if not 0 <= room <= _LONGEST_VALUE:
            raise NotApplicableError(f"no User Property fills the properties up to {length:,} bytes")
        set_block(target.packet, prefix, Properties.of([*block.items, (USER_PROPERTY, ("", "x" * room))]))
        return target.encoded()

    return change


def _size(target: Target, prefix: str) -> int:
    """Bytes of a property block without its length."""
    layout = target.layout()
    name = f"{prefix}properties.{LENGTH}"
    return sum(len(one.data) for index, one in enumerate(layout.pieces) if layout.block(index) == name)


__all__ = ["boundary_mutations"]

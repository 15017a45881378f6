"""Mutations of values by their data type: strings, numbers, Binary Data (5.0 1.5, 3.1.1 1.5).

Some are legal: packets whose lengths are where a Variable Byte Integer gets one byte more (5.0 1.5.5, 3.1.1 2.2.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mqttscope.mqtt import wire
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.properties import BY_NAME, USER_PROPERTY, Properties
from mqttscope.mutate.fields import (
    FORBIDDEN_VALUES,
    TOPICS,
    Field,
    all_fields,
    blocks,
    control_character,
    ill_formed,
    non_character,
    null_character,
)
from mqttscope.mutate.flow import CLIENT, SERVER
from mqttscope.mutate.layout import LENGTH, LONGEST, layout_of, with_value
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
from mqttscope.mutate.samples import TOPIC, ensure, ensure_block, set_block

V3_1, V3_1_1, V5 = ProtocolVersion

ILL_FORMED = {
    "utf8-overlong": (b"\xc0\xaf", "an overlong form (C0 AF for a slash)"),
    "utf8-overlong-three-bytes": (b"\xe0\x80\xaf", "an overlong form of three bytes (E0 80 AF for a slash)"),
    "utf8-overlong-four-bytes": (b"\xf0\x80\x80\xaf", "an overlong form of four bytes (F0 80 80 AF for a slash)"),
    "utf8-overlong-null": (b"\xc0\x80", "U+0000 in modified UTF-8 (C0 80)"),
    "utf8-surrogate": (b"\xed\xa0\x80", "an encoded surrogate (U+D800)"),
    "utf8-surrogate-low": (b"\xed\xb0\x80", "an encoded low surrogate (U+DC00)"),
    "utf8-surrogate-pair": (b"\xed\xa0\xbd\xed\xb8\x80", "a supplementary character as an encoded surrogate pair"),
    "utf8-above-10ffff": (b"\xf4\x90\x80\x80", "a code point above U+10FFFF"),
    "utf8-five-bytes": (b"\xf8\x88\x80\x80\x80", "a sequence of five bytes, which UTF-8 had once"),
    "utf8-continuation": (b"\x80", "a continuation byte without a beginning"),
    "utf8-never-valid": (b"\xff", "the byte FF, which UTF-8 never has"),
    "utf8-truncated": (b"\xe2\x82", "a sequence that the end of the string cuts off"),
    "utf8-interrupted": (b"\xe2\x82a", "a sequence that another character cuts off"),
}
"""What is put at the end of a string to make it no UTF-8 (RFC 3629)."""
CONTROL = {
    "control-character": ("\x01", "the control character U+0001"),
    "line-end": ("\n", "a line end (U+000A)"),
    "c1-control-character": ("\x85", "the control character U+0085"),
}
NON_CHARACTERS = {
    "non-character": ("\uffff", "the code point U+FFFF, which is no character"),
    "non-character-fdd0": ("\ufdd0", "the code point U+FDD0, which is no character"),
}
_CONTEXT_STRINGS = ("authentication_method", "response_information")
"""Strings that mean something only with other packets around them: other values of them are never simply legal."""
_MAY_REFUSE = ("client_identifier", "user_name", "authentication_method")
"""Strings that a server may not like for reasons of its own."""
_REFUSE_TOPIC = Reaction(Demand.REFUSE, (0x81, 0x90, 0x8F))
_WIDTHS = {wire.U8.name: 1, wire.U16.name: 2, wire.U32.name: 4, wire.VARIABLE_BYTE_INTEGER.name: 0}
VARIABLE_BYTE_INTEGER_BOUNDARIES = (127, 128, 16_383, 16_384, 2_097_151, 2_097_152)
"""The greatest values of one to three bytes, and the least of two to four (5.0 table 1-1)."""
_CONTEXT_NUMBERS = (
    "topic_alias",
    "authentication_data",
    "session_expiry_interval",
    "server_keep_alive",
    "maximum_packet_size",
)
"""Numbers whose other values are legal only with other packets that fit them."""
_ASKS = (PacketType.PUBLISH, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE)
_IN_SUBACK = (PacketType.SUBACK, PacketType.UNSUBACK)
_FORMAT_INDICATOR = BY_NAME["payload_format_indicator"].identifier
_EMPTY_PAIR = 5
"""Bytes of a User Property with neither name nor value: its identifier and two lengths."""


def _strings() -> Iterator[tuple[Field, int, str]]:
    """Every string field; of a pair both parts: field, part, name."""
    for field in all_fields():
        if field.wire == wire.UTF8_PAIR.name:
            yield field, 0, f"{field.name}.name"
            yield field, 1, f"{field.name}.value"
        elif field.wire == wire.UTF8.name and field.path != "protocol_name":
            yield field, 0, field.name


def _change(field: Field, part: int, make: Callable[[bytes], bytes]) -> PacketChange:
    """Change the bytes of the string, its own length right."""

    def change(target: Target) -> bytes:
        def instead(value: bytes) -> bytes:
            first = int.from_bytes(value[:2], "big")
            start = 2 + first if part else 0
            length = int.from_bytes(value[start : start + 2], "big")
            text = make(value[start + 2 : start + 2 + length])
            return value[:start] + len(text).to_bytes(2, "big") + text + value[start + 2 + length :]

        return with_value(target, field, instead)

    return change


def _ending(field: Field, part: int, end: bytes) -> PacketChange:
    def make(text: bytes) -> bytes:
        return text[: LONGEST - len(end)] + end

    change = _change(field, part, make)
    if field.name == "publish.topic_name":

        def with_topic(target: Target) -> bytes:
            # With a Topic Alias alone there would be nothing but the end.
            target.packet.topic_name = target.packet.topic_name or TOPIC
            return change(target)

        return with_topic
    return _plain_filter(field, change)


def _plain_filter(field: Field, change: PacketChange) -> PacketChange:
    """The change of a filter without wildcards, after which nothing may stand."""
    if "filter" not in field.path:
        return change

    def with_filter(target: Target) -> bytes:
        ensure(target.packet, field.path, target.version)
        if field.path.startswith("topic_filters"):
            target.packet.topic_filters[0] = TOPIC
        else:
            target.packet.subscriptions[0].topic_filter = TOPIC
        return change(target)

    return with_filter


def _legal(field: Field) -> bool:
    return not field.path.endswith(_CONTEXT_STRINGS)


def string_mutations() -> Iterator[Mutation]:
    """Every mutation of every string field."""
    for field, part, name in _strings():
        senders, versions = senders_of(field.packet_type), field.versions
        common = {
            "kind": MutationKind.WIRE,
            "packet_type": field.packet_type,
            "field": field.name.partition(".")[2],
            "versions": versions,
            "senders": senders,
        }
        for slug, (octets, words) in ILL_FORMED.items():
            yield Mutation(
                f"{name}:{slug}",
                description=f"{name} ends with {words}.",
                change_packet=_ending(field, part, octets),
                statements=ill_formed(field),
                reaction=MALFORMED,
                **common,  # type: ignore[arg-type]
            )
        yield Mutation(
            f"{name}:null-character",
            description=f"{name} ends with U+0000.",
            change_packet=_ending(field, part, b"\0"),
            statements=null_character(field),
            reaction=MALFORMED,
            **common,  # type: ignore[arg-type]
        )
        for rows, statements in ((CONTROL, control_character), (NON_CHARACTERS, non_character)):
            for slug, (text, words) in rows.items():
                yield Mutation(
                    f"{name}:{slug}",
                    description=f"{name} ends with {words}.",
                    change_packet=_ending(field, part, text.encode()),
                    statements=statements(field),
                    discouraged=True,
                    **common,  # type: ignore[arg-type]
                )
        may_refuse = field.path.endswith(_MAY_REFUSE)
        legal = versions if _legal(field) else ()
        yield Mutation(
            f"{name}:byte-order-mark",
            description=f"{name} ends with U+FEFF, a character that receivers have to keep.",
            change_packet=_ending(field, part, b"\xef\xbb\xbf"),
            legal_in=legal if name != "connect.client_identifier" else (V3_1_1, V5),
            reaction=ANY if may_refuse else ACCEPT,
            **common,  # type: ignore[arg-type]
        )
        yield _longest(field, part, name, common)
        yield _empty(field, part, name, common)


def _longest(field: Field, part: int, name: str, common: dict[str, object]) -> Mutation:
    """The longest string; in 3.1 topics end at 32,767 characters and Client Identifiers at 23."""
    short_topic = name in ("publish.topic_name", "connect.will.will_topic")

    def change(target: Target) -> bytes:
        longest = 32_767 if short_topic and target.version == V3_1 else LONGEST
        longer = _change(field, part, lambda text: text + b"x" * (longest - len(text)))
        return _plain_filter(field, longer)(target)

    legal = field.versions if _legal(field) else ()
    statements: tuple[str, ...] = ()
    if name == "connect.client_identifier":
        legal, statements = (V3_1_1, V5), ("3.1 V31-CONNECT-client-id-length",)
    return Mutation(
        f"{name}:maximum-length",
        description=f"{name} has 65,535 bytes, the most there can be"
        + (" (32,767 in MQTT 3.1)." if short_topic else "."),
        change_packet=change,
        legal_in=legal,
        statements=statements,
        reaction=ANY if field.path.endswith(_MAY_REFUSE) else ACCEPT,
        **common,  # type: ignore[arg-type]
    )


def _empty(field: Field, part: int, name: str, common: dict[str, object]) -> Mutation:
    """The empty string: nothing special, but for topics and Client Identifiers."""
    plain = _change(field, part, lambda text: b"")
    statements: tuple[str, ...] = ()
    legal = field.versions if _legal(field) else ()
    reaction = ACCEPT
    change: PacketChange = plain
    if name == "publish.topic_name":

        def change(target: Target) -> bytes:
            if target.version == V5 and target.packet.properties and target.packet.properties.topic_alias is not None:
                raise NotApplicableError("a PUBLISH with a Topic Alias may have an empty Topic Name")
            return plain(target)

        legal, reaction = (), Reaction(Demand.CLOSE, (0x82, 0x90, 0x81))
        statements = (
            "3.1 V31-PUBLISH-topic-length",
            "3.1.1 MQTT-4.7.3-1",
            "5.0 MQTT-4.7.3-1",
            "5.0 V5-PUBLISH-empty-topic",
        )
    elif name in TOPICS:
        legal, reaction = (), _REFUSE_TOPIC
        statements = ("3.1.1 MQTT-4.7.3-1", "5.0 MQTT-4.7.3-1")
        statements = tuple(one for one in statements if ProtocolVersion.from_text(one.split()[0]) in field.versions)
    elif name == "connect.client_identifier":

        def change(target: Target) -> bytes:
            # Without its own identifier a client of 3.1.1 must not ask to keep its session (MQTT-3.1.3-7).
            target.packet.clean_start = True
            return plain(target)

        legal, reaction = (V3_1_1, V5), ANY
        statements = ("3.1 V31-CONNECT-client-id-length",)
    elif field.path.endswith(_MAY_REFUSE):
        reaction = ANY
    return Mutation(
        f"{name}:empty",
        description=f"{name} is empty.",
        change_packet=change,
        legal_in=legal,
        statements=statements,
        reaction=reaction,
        **common,  # type: ignore[arg-type]
    )


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
    return field.path.endswith(_CONTEXT_NUMBERS) or (
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
        forbidden, statement = FORBIDDEN_VALUES.get(name, (-1, ""))
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
        _unmark(packet)
        packet.payload = b""
        room = length - len(layout_of(target).body())
        if room < 0:
            raise NotApplicableError(f"the packet is longer than {length:,} bytes without its payload")
        packet.payload = bytes(room)
        return target.encoded()

    return change


def _padded(prefix: str, length: int) -> PacketChange:
    def change(target: Target) -> bytes:
        block = ensure_block(target.packet, prefix)
        room = length - _size(target, prefix) - _EMPTY_PAIR
        if not 0 <= room <= LONGEST:
            raise NotApplicableError(f"no User Property fills the properties up to {length:,} bytes")
        set_block(target.packet, prefix, Properties.of([*block.items, (USER_PROPERTY, ("", "x" * room))]))
        return target.encoded()

    return change


def _size(target: Target, prefix: str) -> int:
    """Bytes of a property block without its length."""
    layout = layout_of(target)
    name = f"{prefix}properties.{LENGTH}"
    return sum(len(one.data) for index, one in enumerate(layout.pieces) if layout.block(index) == name)

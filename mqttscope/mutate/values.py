"""Mutations of values by data type: strings, numbers, Binary Data (5.0 1.5, 3.1.1 1.5).

Some are legal: lengths that need one more byte in the encoding of a Variable Byte Integer (5.0 1.5.5, 3.1.1 2.2.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from mqttscope.mqtt import wire
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.properties import USER_PROPERTY, Properties
from mqttscope.mutate import fields
from mqttscope.mutate.flow import SERVER
from mqttscope.mutate.layout import LENGTH, LONGEST, layout_of, with_value
from mqttscope.mutate.mutation import (
    ACCEPT,
    ALL_VERSIONS,
    ANY,
    LATER,
    MALFORMED,
    ONLY_5,
    PROTOCOL_ERROR,
    V3_1,
    V5,
    Demand,
    Mutation,
    MutationKind,
    NotApplicableError,
    PacketChange,
    PacketTarget,
    Reaction,
    refuse,
    row,
)
from mqttscope.mutate.samples import TOPIC, ensure, ensure_block, set_block, without_properties

ILL_FORMED = {
    "utf8-overlong": (b"\xc0\xaf", "an overlong form (C0 AF for a slash)"),
    "utf8-overlong-three-bytes": (b"\xe0\x80\xaf", "an overlong form of three bytes (E0 80 AF for a slash)"),
    "utf8-overlong-four-bytes": (b"\xf0\x80\x80\xaf", "an overlong form of four bytes (F0 80 80 AF for a slash)"),
    "utf8-overlong-null": (b"\xc0\x80", "U+0000 in modified UTF-8 (C0 80)"),
    "utf8-surrogate": (b"\xed\xa0\x80", "an encoded surrogate (U+D800)"),
    "utf8-surrogate-low": (b"\xed\xb0\x80", "an encoded low surrogate (U+DC00)"),
    "utf8-surrogate-pair": (b"\xed\xa0\xbd\xed\xb8\x80", "a supplementary character as an encoded surrogate pair"),
    "utf8-above-10ffff": (b"\xf4\x90\x80\x80", "a code point above U+10FFFF"),
    "utf8-five-bytes": (b"\xf8\x88\x80\x80\x80", "a five-byte sequence, which only old UTF-8 allowed"),
    "utf8-continuation": (b"\x80", "a continuation byte without a lead byte"),
    "utf8-never-valid": (b"\xff", "the byte FF, which never occurs in UTF-8"),
    "utf8-truncated": (b"\xe2\x82", "a sequence cut off by the end of the string"),
    "utf8-interrupted": (b"\xe2\x82a", "a sequence cut off by another character"),
}
"""Endings of a string that are not valid UTF-8 (RFC 3629), and their descriptions."""
CONTROL = {
    "control-character": ("\x01", "the control character U+0001"),
    "line-end": ("\n", "a line end (U+000A)"),
    "c1-control-character": ("\x85", "the control character U+0085"),
}
NON_CHARACTERS = {
    "non-character": ("\uffff", "the code point U+FFFF, which is not a character"),
    "non-character-fdd0": ("\ufdd0", "the code point U+FDD0, which is not a character"),
}
_CONTEXT_STRINGS = ("authentication_method", "response_information")
"""Strings that depend on other packets, so that another value is not always legal."""
_MAY_REFUSE = ("client_identifier", "user_name", "authentication_method")
"""Strings that a server may refuse for its own reasons."""
_REFUSE_TOPIC = Reaction(Demand.REFUSE, (0x81, 0x90, 0x8F))
_WIDTHS = {wire.U8.name: 1, wire.U16.name: 2, wire.U32.name: 4, wire.VARIABLE_BYTE_INTEGER.name: 0}
VARIABLE_BYTE_INTEGER_BOUNDARIES = (127, 128, 16_383, 16_384, 2_097_151, 2_097_152)
"""The greatest values of one to three bytes, and the smallest values of two to four (5.0 table 1-1)."""
_CONTEXT_NUMBERS = (
    "topic_alias",
    "authentication_data",
    "session_expiry_interval",
    "server_keep_alive",
    "maximum_packet_size",
)
"""Numbers that depend on other packets, so that another value is not always legal."""
_ASKS = (PacketType.PUBLISH, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE)
_EMPTY_PAIR = 5
"""Size of a User Property with empty name and value: the identifier and two lengths."""


def _strings() -> Iterator[tuple[fields.MutationField, int, str]]:
    """Every string field, or both parts of a pair: field, part, and name suffix of the part."""
    for field in fields.all_fields():
        if field.wire == wire.UTF8_PAIR.name:
            yield field, 0, ".name"
            yield field, 1, ".value"
        elif field.wire == wire.UTF8.name and field.path != "protocol_name":
            yield field, 0, ""


def _edit(field: fields.MutationField, part: int, edit: Callable[[bytes], bytes], target: PacketTarget) -> bytes:
    """Change the bytes of a string, and correct its length."""

    def instead(value: bytes) -> bytes:
        start = 2 + int.from_bytes(value[:2], "big") if part else 0
        length = int.from_bytes(value[start : start + 2], "big")
        text = edit(value[start + 2 : start + 2 + length])
        return value[:start] + len(text).to_bytes(2, "big") + text + value[start + 2 + length :]

    return with_value(target, field, instead)


def _end_with(field: fields.MutationField, part: int, end: bytes, target: PacketTarget) -> bytes:
    if field.name == "publish.topic_name":
        # A PUBLISH that relies on a Topic Alias has an empty Topic Name.
        target.packet.topic_name = target.packet.topic_name or TOPIC
    _without_wildcards(field, target)
    return _edit(field, part, lambda text: text[: LONGEST - len(end)] + end, target)


def _without_wildcards(field: fields.MutationField, target: PacketTarget) -> None:
    """Give a SUBSCRIBE or UNSUBSCRIBE a Topic Filter that stays valid when text is appended."""
    if "filter" in field.path:
        ensure(target.packet, field.path, target.version)
        if field.path.startswith("topic_filters"):
            target.packet.topic_filters[0] = TOPIC
        else:
            target.packet.subscriptions[0].topic_filter = TOPIC


def string_mutations() -> Iterator[Mutation]:
    """Every mutation of every string field."""
    for field, part, suffix in _strings():
        name = field.name + suffix
        string_row = partial(fields.field_row, field, part=suffix, field=field.name.partition(".")[2])
        end_with = partial(_end_with, field, part)
        for slug, (octets, words) in ILL_FORMED.items():
            yield string_row(slug, f"ends with {words}", partial(end_with, octets), fields.ill_formed(field), MALFORMED)
        yield string_row(
            "null-character", "ends with U+0000", partial(end_with, b"\0"), fields.null_character(field), MALFORMED
        )
        for rows, statements in ((CONTROL, fields.CONTROL_CHARACTER), (NON_CHARACTERS, fields.NON_CHARACTER)):
            for slug, (text, words) in rows.items():
                yield string_row(
                    slug, f"ends with {words}", partial(end_with, text.encode()), statements, discouraged=True
                )
        legal: tuple[ProtocolVersion, ...] = () if field.path.endswith(_CONTEXT_STRINGS) else ALL_VERSIONS
        statements = ""
        if name == "connect.client_identifier":
            legal, statements = LATER, "3.1 V31-CONNECT-client-id-length"
        reaction = ANY if field.path.endswith(_MAY_REFUSE) else ACCEPT
        words = "ends with U+FEFF, which receivers must keep"
        yield string_row("byte-order-mark", words, partial(end_with, b"\xef\xbb\xbf"), "", reaction, legal=legal)
        words = f"has 65,535 bytes, the maximum{' (32,767 in MQTT 3.1)' if name in _SHORT_TOPICS else ''}"
        change = partial(_longest, field, part)
        yield string_row("maximum-length", words, change, statements, reaction, legal=legal)
        if name in fields.TOPICS:
            legal, reaction, statements = (), _REFUSE_TOPIC, "3.1.1 MQTT-4.7.3-1, 5.0 MQTT-4.7.3-1"
        if name == "publish.topic_name":
            reaction = Reaction(Demand.CLOSE, (0x82, 0x90, 0x81))
            statements = f"3.1 V31-PUBLISH-topic-length, {statements}, 5.0 V5-PUBLISH-empty-topic"
        yield string_row("empty", "is empty", partial(_empty, field, part), statements, reaction, legal=legal)


_SHORT_TOPICS = ("publish.topic_name", "connect.will.will_topic")
"""Topics limited to 32,767 characters in 3.1."""


def _longest(field: fields.MutationField, part: int, target: PacketTarget) -> bytes:
    longest = 32_767 if field.name in _SHORT_TOPICS and target.version == V3_1 else LONGEST
    _without_wildcards(field, target)
    return _edit(field, part, lambda text: text + b"x" * (longest - len(text)), target)


def _empty(field: fields.MutationField, part: int, target: PacketTarget) -> bytes:
    packet = target.packet
    if field.name == "publish.topic_name":
        if target.version == V5 and packet.properties and packet.properties.topic_alias is not None:
            raise NotApplicableError("a PUBLISH with a Topic Alias may have an empty Topic Name")
    elif field.name == "connect.client_identifier":
        # In 3.1.1 a client without a Client Identifier must request a clean session (MQTT-3.1.3-7).
        packet.clean_start = True
    return _edit(field, part, lambda _: b"", target)


def _value(field: fields.MutationField, data: bytes) -> PacketChange:
    return lambda target: with_value(target, field, lambda _: data)


def _number(field: fields.MutationField, value: int) -> PacketChange:
    width = _WIDTHS[field.wire]
    return _value(field, value.to_bytes(width, "big") if width else wire.write_variable_byte_integer(value))


def _contextual(field: fields.MutationField) -> bool:
    if field.path.endswith("payload_format_indicator"):
        return True  # the value 1 demands a UTF-8 payload
    if field.path.endswith("subscription_identifier"):
        return field.packet_type == PacketType.PUBLISH
    return field.path.endswith(_CONTEXT_NUMBERS) or (
        field.packet_type == PacketType.CONNACK and not field.path.endswith("_available")
    )


def number_mutations() -> Iterator[Mutation]:
    """Smallest, greatest and forbidden values of every number; Packet Identifiers have other rules."""
    for field in fields.all_fields():
        if field.wire not in _WIDTHS or field.path == "protocol_level":
            continue
        if field.path == "packet_identifier":
            yield from _identifiers(field)
            continue
        name = field.path.rpartition(".")[2]
        forbidden, statement = fields.FORBIDDEN_VALUES.get(name, (-1, ""))
        width = _WIDTHS[field.wire]
        maximum = (1 << 8 * width) - 1 if width else wire.MAX_VARIABLE_BYTE_INTEGER
        values = {"zero": 0, "one": 1, "maximum": maximum}
        if forbidden > 0:
            values["two"] = 2
        if width > 1:
            # The smallest value that a receiver with signed integers would read as negative.
            values["sign-bit"] = 1 << 8 * width - 1
        if not width:
            values |= {f"boundary-{value}": value for value in VARIABLE_BYTE_INTEGER_BOUNDARIES}
        invalid = Reaction(Demand.CLOSE, (0x94, 0x82)) if name == "topic_alias" else PROTOCOL_ERROR
        for slug, value in values.items():
            change = _number(field, value)
            if value == forbidden or 0 < forbidden < value:
                yield fields.field_row(field, slug, f"is {value:,}, which is forbidden", change, statement, invalid)
            else:
                legal = () if _contextual(field) else ALL_VERSIONS
                yield fields.field_row(field, slug, f"is {value:,}", change, "", ACCEPT, legal=legal)
        if not width:
            for slug, data, words, statement in _LONG_FORMS:
                yield fields.field_row(field, slug, words, _value(field, data), statement, MALFORMED)


_LONG_FORMS = (
    ("not-minimal", b"\x81\x00", "is encoded in one byte more than needed", "5.0 MQTT-1.5.5-1"),
    ("five-bytes", b"\x80\x80\x80\x80\x01", "is encoded in five bytes", "5.0 V5-VBI-four-bytes"),
)
"""Encodings of a Variable Byte Integer that are too long."""
_IDENTIFIERS = {
    PacketType.PUBLISH: "3.1 V31-MSGID-nonzero, 3.1.1 MQTT-2.3.1-1, 3.1 V31-PUBLISH-msgid-nonzero",
    PacketType.SUBSCRIBE: "3.1 V31-MSGID-nonzero, 3.1.1 MQTT-2.3.1-1",
    PacketType.UNSUBSCRIBE: "3.1 V31-MSGID-nonzero, 3.1.1 MQTT-2.3.1-1",
    PacketType.SUBACK: "3.1.1 MQTT-2.3.1-7, 5.0 MQTT-2.2.1-6",
    PacketType.UNSUBACK: "3.1.1 MQTT-2.3.1-7, 5.0 MQTT-2.2.1-6",
    PacketType.PUBCOMP: "5.0 MQTT-2.2.1-5",
}
"""Statements about wrong identifiers; other packet types use the statements about PUBACK, PUBREC and PUBREL."""


def _identifiers(field: fields.MutationField) -> Iterator[Mutation]:
    """Packet Identifiers 0 (5.0 2.2.1) and 65,535."""
    statements = _IDENTIFIERS.get(field.packet_type, "3.1.1 MQTT-2.3.1-6, 5.0 MQTT-2.2.1-5")
    zero, greatest = _number(field, 0), partial(_greatest, field)
    if field.packet_type in _ASKS:
        statements += ", client 5.0 MQTT-2.2.1-3, server 5.0 MQTT-2.2.1-4"
        yield fields.field_row(field, "zero", "is 0, which is not a valid identifier", zero, statements, PROTOCOL_ERROR)
        yield fields.field_row(field, "maximum", "is 65,535, the greatest", greatest, "", ACCEPT, legal=ALL_VERSIONS)
    else:
        yield fields.field_row(field, "zero", "is 0, which is not a valid identifier", zero, statements)
        words = "is 65,535, which no packet waiting for an answer uses"
        yield fields.field_row(field, "maximum", words, greatest, statements)


def _greatest(field: fields.MutationField, target: PacketTarget) -> bytes:
    if target.sender == SERVER and getattr(target.packet, "qos", 1) == 0:
        raise NotApplicableError("with QoS 1 it might exceed the QoS that was granted to the client")
    return with_value(target, field, lambda _: b"\xff\xff")


def binary_mutations() -> Iterator[Mutation]:
    """Values of Binary Data and of the payload, which may contain any bytes."""
    for field in fields.all_fields():
        if field.wire not in (wire.BINARY.name, wire.REST.name):
            continue
        rest = field.wire == wire.REST.name
        longest = 262_144 if rest else LONGEST
        rows = {
            "empty": (b"", "is empty"),
            "any-bytes": (bytes(range(256)), "contains all 256 byte values"),
            "large" if rest else "maximum-length": (b"\0" * longest, f"has {longest:,} bytes"),
        }
        legal = () if field.path.endswith("authentication_data") else ALL_VERSIONS
        reaction = ANY if field.path == "password" else ACCEPT
        for slug, (data, words) in rows.items():
            change: PacketChange = partial(_payload, data)
            if not rest:
                change = partial(_binary, field, len(data).to_bytes(2, "big") + data)
            yield fields.field_row(field, slug, words, change, "", reaction, legal=legal)


def _binary(field: fields.MutationField, value: bytes, target: PacketTarget) -> bytes:
    if field.in_will and target.packet.will is not None and target.version == V5:
        _unmark(target.packet.will)
    return with_value(target, field, lambda _: value)


def _payload(payload: bytes, target: PacketTarget) -> None:
    _unmark(target.packet)
    target.packet.payload = payload


def _unmark(owner: Any) -> None:
    """Remove the Payload Format Indicator, which may declare the payload as UTF-8 (5.0 3.3.2.3.2)."""
    owner.properties = without_properties(owner.properties, "payload_format_indicator")


def boundary_mutations() -> Iterator[Mutation]:
    """PUBLISH with a Remaining Length at each boundary, and property blocks at the boundaries up to three bytes."""
    wire_row = partial(row, kind=MutationKind.WIRE)
    for length in VARIABLE_BYTE_INTEGER_BOUNDARIES:
        name = f"publish.remaining_length:boundary-{length}"
        words = f"The payload extends PUBLISH to a Remaining Length of {length:,}."
        yield wire_row(name, words, partial(_fill, length), "", ACCEPT, legal=ALL_VERSIONS)
    for kind, _, prefix in fields.blocks():
        where = f"{'Will ' if prefix else ''}properties of {kind.name}"
        legal = ONLY_5 if kind != PacketType.AUTH else ()
        for length in VARIABLE_BYTE_INTEGER_BOUNDARIES[:4]:
            name = f"{kind.name.lower()}.{prefix}properties.{LENGTH}:boundary-{length}"
            words = f"A User Property extends the {where} to {length:,} bytes."
            yield wire_row(name, words, partial(_pad, prefix, length), "", ACCEPT, ONLY_5, legal=legal)


def _fill(length: int, target: PacketTarget) -> None:
    packet = target.packet
    _unmark(packet)
    packet.payload = b""
    room = length - len(layout_of(target).body())
    refuse(room < 0, f"the packet without its payload is longer than {length:,} bytes")
    packet.payload = bytes(room)


def _pad(prefix: str, length: int, target: PacketTarget) -> None:
    block = ensure_block(target.packet, prefix)
    room = length - _size(target, prefix) - _EMPTY_PAIR
    refuse(not 0 <= room <= LONGEST, f"one User Property cannot extend the properties to {length:,} bytes")
    set_block(target.packet, prefix, Properties.of([*block.items, (USER_PROPERTY, ("", "x" * room))]))


def _size(target: PacketTarget, prefix: str) -> int:
    layout = layout_of(target)
    name = f"{prefix}properties.{LENGTH}"
    return sum(len(piece.data) for index, piece in enumerate(layout.pieces) if layout.block(index) == name)

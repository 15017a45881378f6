"""Mutations of UTF-8 Encoded Strings (5.0 1.5.4, 1.5.7; 3.1.1 1.5.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mqttscope.mqtt import wire
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mutate import broken
from mqttscope.mutate.fields import Field, all_fields
from mqttscope.mutate.mutation import (
    ACCEPT,
    ANY,
    MALFORMED,
    Demand,
    Mutation,
    MutationKind,
    NotApplicableError,
    PacketChange,
    Reaction,
    Target,
    senders_of,
)
from mqttscope.mutate.samples import TOPIC, ensure
from mqttscope.mutate.surgery import LONGEST, with_value

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
_CONTEXT = ("authentication_method", "response_information")
"""Strings that mean something only with other packets around them: other values of them are never simply legal."""
_MAY_REFUSE = ("client_identifier", "user_name", "authentication_method")
"""Strings that a server may not like for reasons of its own."""
_REFUSE_TOPIC = Reaction(Demand.REFUSE, (0x81, 0x90, 0x8F))


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
    return not field.path.endswith(_CONTEXT)


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
                statements=broken.ill_formed(field),
                reaction=MALFORMED,
                **common,  # type: ignore[arg-type]
            )
        yield Mutation(
            f"{name}:null-character",
            description=f"{name} ends with U+0000.",
            change_packet=_ending(field, part, b"\0"),
            statements=broken.null_character(field),
            reaction=MALFORMED,
            **common,  # type: ignore[arg-type]
        )
        for rows, statements in ((CONTROL, broken.control_character), (NON_CHARACTERS, broken.non_character)):
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
    elif name in broken.TOPICS:
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

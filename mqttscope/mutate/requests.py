"""Mutations of what PUBLISH, SUBSCRIBE and UNSUBSCRIBE say (3.3, 3.8, 3.10, 4.7; of 5.0 also 4.8.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import BY_NAME, Properties
from mqttscope.mutate.flow import CLIENT, SERVER
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
    Reaction,
    Target,
    by_attributes,
)
from mqttscope.mutate.samples import TOPIC, ensure, with_property

V3_1, V3_1_1, V5 = ProtocolVersion
_TOPIC_INVALID = Reaction(Demand.CLOSE, (0x90, 0x82, 0x81))
_REFUSED = Reaction(Demand.REFUSE, (0x8F, 0x81, 0x82))
"""A filter that is wrong: a close, or 0x8F in the acknowledgement (5.0 3.9.3)."""
_HASH = ("3.1 V31-FILTER-wildcards", "3.1.1 MQTT-4.7.1-2", "5.0 MQTT-4.7.1-1")
_PLUS = ("3.1 V31-FILTER-wildcards", "3.1.1 MQTT-4.7.1-3", "5.0 MQTT-4.7.1-2")
BAD_FILTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "hash-not-last": ("a/#/b", _HASH),
    "hash-not-alone": ("a/b#", _HASH),
    "hash-twice": ("#/#", _HASH),
    "hash-doubled": ("##", _HASH),
    "plus-not-alone": ("a+/b", _PLUS),
    "plus-at-end-of-level": ("a/b+", _PLUS),
    "plus-doubled": ("a/++/b", _PLUS),
}
BAD_SHARES: dict[str, tuple[str, tuple[str, ...]]] = {
    "share-alone": ("$share", ("5.0 MQTT-4.8.2-1",)),
    "share-without-filter": ("$share/group", ("5.0 MQTT-4.8.2-2",)),
    "share-name-empty": ("$share//a", ("5.0 MQTT-4.8.2-1",)),
    "share-filter-empty": ("$share/group/", ("5.0 MQTT-4.8.2-2",)),
    "share-name-with-plus": ("$share/gr+oup/a", ("5.0 MQTT-4.8.2-2",)),
    "share-name-with-hash": ("$share/#/a", ("5.0 MQTT-4.8.2-2",)),
}
GOOD_FILTERS: dict[str, str] = {
    "everything": "#",
    "one-level": "+",
    "levels-of-wildcards": "+/+/+/+/#",
    "leading-slash": "/+",
    "only-slashes": "////",
    "hundred-levels": "/".join(["+"] * 100) + "/#",
    "dollar": "$SYS/#",
}


def _publish(name: str, description: str, make: Callable[[Any, Target], None], field: str, **more: Any) -> Mutation:
    return Mutation(
        name,
        MutationKind.PACKET,
        description,
        change_packet=more.pop("change_packet", None) or by_attributes(make),
        packet_type=PacketType.PUBLISH,
        field=field,
        senders=more.pop("senders", (CLIENT, SERVER)),
        **more,
    )


def _property(name: str, value: Any) -> Callable[[Any, Target], None]:
    def make(packet: Any, target: Target) -> None:
        packet.properties = with_property(packet.properties, name, value)

    return make


def publish_mutations() -> Iterator[Mutation]:
    """PUBLISH: flags, topic, identifier, properties."""

    def qos_3(target: Target) -> bytes:
        # The layout stays that of the packet: a receiver that reads the bits one by one looks for an identifier.
        data = target.encoded()
        return bytes((data[0] | 6,)) + data[1:]

    yield _publish(
        "publish:qos-3",
        "Both QoS bits of PUBLISH are set.",
        _nothing,
        "qos",
        change_packet=qos_3,
        statements=("3.1 V31-HEADER-qos3", "3.1.1 MQTT-3.3.1-4", "5.0 MQTT-3.3.1-4"),
        reaction=MALFORMED,
    )

    def dup(packet: Any, target: Target) -> None:
        packet.dup, packet.qos, packet.packet_identifier = True, 0, None

    yield _publish(
        "publish:dup-with-qos-0",
        "DUP is set in a PUBLISH with QoS 0.",
        dup,
        "dup",
        statements=("3.1.1 MQTT-3.3.1-2", "3.1.1 MQTT-4.3.1-1", "5.0 MQTT-3.3.1-2", "5.0 MQTT-4.3.1-1"),
        legal_in=(V3_1,),
        reaction=MALFORMED,
    )
    for level in (1, 2):

        def first(packet: Any, target: Target, level: int = level) -> None:
            if packet.qos != level or packet.dup:
                raise NotApplicableError(f"the packet is no first PUBLISH with QoS {level}")
            packet.dup = True

        yield _publish(
            f"publish:dup-on-first-transmission-qos-{level}",
            f"DUP is set in a PUBLISH with QoS {level} that is sent for the first time.",
            first,
            "dup",
            statements=(
                "3.1 V31-PUBLISH-dup-on-resend",
                f"3.1.1 MQTT-4.3.{level + 1}-1",
                f"5.0 MQTT-4.3.{level + 1}-2",
            ),
            # DUP says nothing that a receiver could rely on, so it takes the message.
            reaction=ANY,
        )
    yield from _topics()
    yield from _identifiers()
    yield from _properties()
    yield from _limits()


def _nothing(packet: Any, target: Target) -> None:
    """For mutations that change bytes."""


def _topics() -> Iterator[Mutation]:
    wildcard = (
        "3.1 V31-PUBLISH-no-wildcards",
        "3.1.1 MQTT-3.3.2-2",
        "3.1.1 MQTT-4.7.1-1",
        "5.0 MQTT-3.3.2-2",
        "5.0 MQTT-4.7.0-1",
    )
    for slug, text in (("hash", "a/#"), ("plus", "a/+/b"), ("hash-alone", "#"), ("plus-inside-level", "a/b+c")):

        def topic(packet: Any, target: Target, text: str = text) -> None:
            packet.topic_name = text

        yield _publish(
            f"publish.topic_name:wildcard-{slug}",
            f"The Topic Name is {text}, with a wildcard.",
            topic,
            "topic_name",
            statements=wildcard,
            reaction=_TOPIC_INVALID,
        )
    for slug, text, words in (
        ("one-character", "a", "is a single character"),
        ("slash", "/", "is a single slash"),
        ("many-levels", "/" * 10_000, "has 10,001 empty levels"),
        ("spaces", "a b/c d", "has spaces"),
        ("supplementary-characters", "\U0001f600/\U0010fffd", "has characters above U+FFFF"),
        ("shared-prefix", "$share/group/a", "looks like the filter of a Shared Subscription"),
    ):

        def legal(packet: Any, target: Target, text: str = text) -> None:
            packet.topic_name = text

        dollar = text.startswith("$")
        yield _publish(
            f"publish.topic_name:{slug}",
            f"The Topic Name {words}.",
            legal,
            "topic_name",
            senders=(CLIENT,),
            legal_in=ALL_VERSIONS,
            # Servers keep $ topics to themselves (5.0 4.7.2).
            reaction=ANY if dollar else ACCEPT,
        )


def _identifiers() -> Iterator[Mutation]:
    def missing(target: Target) -> bytes:
        target.packet.qos, target.packet.packet_identifier = 1, None
        return encode(target.packet, target.version)

    yield _publish(
        "publish:identifier-missing",
        "PUBLISH has QoS 1 and no Packet Identifier: what follows is read as one.",
        _nothing,
        "packet_identifier",
        change_packet=missing,
    )

    def unwanted(target: Target) -> bytes:
        packet = target.packet
        packet.qos, packet.dup, packet.packet_identifier = 1, False, 0x0102
        data = encode(packet, target.version)
        return bytes((data[0] & ~6,)) + data[1:]

    yield _publish(
        "publish:identifier-with-qos-0",
        "PUBLISH has QoS 0 and a Packet Identifier: it is read as properties or payload.",
        _nothing,
        "packet_identifier",
        change_packet=unwanted,
    )


def _properties() -> Iterator[Mutation]:
    yield _publish(
        "publish:subscription-identifier-from-client",
        "A client's PUBLISH has a Subscription Identifier.",
        _property("subscription_identifier", 7),
        "properties.subscription_identifier",
        versions=(V5,),
        senders=(CLIENT,),
        statements=("5.0 MQTT-3.3.4-6",),
        reaction=PROTOCOL_ERROR,
    )
    for slug, text in (("hash", "a/#"), ("plus", "a/+")):
        yield _publish(
            f"publish.properties.response_topic:wildcard-{slug}",
            f"The Response Topic is {text}, with a wildcard.",
            _property("response_topic", text),
            "properties.response_topic",
            versions=(V5,),
            statements=("5.0 MQTT-3.3.2-14",),
            reaction=_TOPIC_INVALID,
        )

    def lying(packet: Any, target: Target) -> None:
        packet.properties = with_property(packet.properties, "payload_format_indicator", 1)
        packet.payload = b"\xff\xfe\x80"

    yield _publish(
        "publish:payload-not-utf8",
        "The Payload Format Indicator promises UTF-8 and the payload is none.",
        lying,
        "payload",
        versions=(V5,),
        statements=("5.0 V5-PUBLISH-payload-utf8",),
        # 3.3.2.3.2: a receiver may check the payload; one that does says 0x99.
        reaction=ANY,
    )

    def every(packet: Any, target: Target) -> None:
        for name in ("message_expiry_interval", "content_type", "response_topic", "correlation_data", "user_property"):
            ensure(packet, f"properties.{name}", V5)
        if packet.properties.payload_format_indicator is None:
            packet.properties = with_property(packet.properties, "payload_format_indicator", 0)

    yield _publish(
        "publish:every-property",
        "PUBLISH has every property that asks nothing of other packets.",
        every,
        "properties",
        versions=(V5,),
        legal_in=(V5,),
        reaction=ACCEPT,
    )


def _limits() -> Iterator[Mutation]:
    """What the other side announced not to take (5.0 3.2.2.3, 3.1.2.11)."""

    def alias(value: Callable[[int], int]) -> Callable[[Any, Target], None]:
        def make(packet: Any, target: Target) -> None:
            told = value(target.limit("topic_alias_maximum", 0))
            if not 0 < told <= 0xFFFF:
                raise NotApplicableError("the limit leaves no such Topic Alias")
            packet.topic_name = packet.topic_name or TOPIC
            packet.properties = with_property(packet.properties, "topic_alias", told)

        return make

    above = ("5.0 V5-PUBLISH-alias-range",)
    by_sender = {
        CLIENT: ("5.0 MQTT-3.2.2-17", "5.0 MQTT-3.3.2-9"),
        SERVER: ("5.0 MQTT-3.1.2-26", "5.0 MQTT-3.3.2-11"),
    }
    invalid = Reaction(Demand.CLOSE, (0x94, 0x82))
    for slug, value, words in (
        ("above-maximum", lambda limit: limit + 1, "one above the Topic Alias Maximum"),
        ("far-above-maximum", lambda limit: 0xFFFF if limit < 0xFFFF else 0, "65,535, above the Topic Alias Maximum"),
    ):
        yield _publish(
            f"publish.topic_alias:{slug}",
            f"The Topic Alias is {words}.",
            alias(value),
            "properties.topic_alias",
            versions=(V5,),
            statements=above,
            sender_statements=by_sender,
            reaction=invalid,
        )
    yield _publish(
        "publish.topic_alias:at-maximum",
        "The Topic Alias is the greatest allowed, and the PUBLISH has a Topic Name.",
        alias(lambda limit: limit),
        "properties.topic_alias",
        versions=(V5,),
        legal_in=(V5,),
        reaction=ACCEPT,
    )

    def qos(packet: Any, target: Target) -> None:
        limit = target.limit("maximum_qos", 2)
        if limit >= 2 or target.sender == SERVER:
            raise NotApplicableError("the receiver takes every QoS")
        packet.qos = limit + 1
        packet.packet_identifier = packet.packet_identifier or 0xFFFE

    yield _publish(
        "publish.qos:above-maximum",
        "The QoS is above the Maximum QoS of CONNACK.",
        qos,
        "qos",
        versions=(V5,),
        senders=(CLIENT,),
        statements=("5.0 MQTT-3.2.2-11",),
        reaction=Reaction(Demand.CLOSE, (0x9B,)),
    )

    def retain(packet: Any, target: Target) -> None:
        if target.limit("retain_available", 1):
            raise NotApplicableError("the server takes retained messages")
        packet.retain = True

    yield _publish(
        "publish.retain:not-available",
        "RETAIN is set although CONNACK said that retained messages are not available.",
        retain,
        "retain",
        versions=(V5,),
        senders=(CLIENT,),
        statements=("5.0 MQTT-3.2.2-14",),
        reaction=Reaction(Demand.CLOSE, (0x9A,)),
    )

    def large(packet: Any, target: Target) -> None:
        limit = target.limit("maximum_packet_size", 0)
        if not 0 < limit <= 4_000_000:
            raise NotApplicableError("the receiver announced no Maximum Packet Size within reach")
        packet.payload = bytes(limit)
        if packet.properties is not None:
            packet.properties = type(packet.properties).of(one for one in packet.properties.items if one[0] != 1)

    yield _publish(
        "publish:maximum-packet-size-exceeded",
        "PUBLISH is larger than the receiver's Maximum Packet Size.",
        large,
        "payload",
        versions=(V5,),
        sender_statements={CLIENT: ("5.0 MQTT-3.2.2-15",), SERVER: ("5.0 MQTT-3.1.2-24",)},
        reaction=Reaction(Demand.CLOSE, (0x95,)),
    )


def _set_filter(packet: Any, target: Target, text: str) -> None:
    if target.packet.packet_type == PacketType.SUBSCRIBE:
        ensure(packet, "subscriptions[0]", target.version)
        packet.subscriptions[0].topic_filter = text
        packet.subscriptions[0].no_local = False
    else:
        ensure(packet, "topic_filters[0]", target.version)
        packet.topic_filters[0] = text


def _filter(kind: PacketType, slug: str, text: str, words: str, **more: Any) -> Mutation:
    def make(packet: Any, target: Target) -> None:
        _set_filter(packet, target, text)

    path = "subscriptions.topic_filter" if kind == PacketType.SUBSCRIBE else "topic_filters"
    return Mutation(
        f"{kind.name.lower()}.{path}:{slug}",
        MutationKind.PACKET,
        f"A Topic Filter of {kind.name} {words}.",
        change_packet=by_attributes(make),
        packet_type=kind,
        field=path,
        **more,
    )


def filter_mutations() -> Iterator[Mutation]:
    """Topic Filters, good and bad."""
    for kind in (PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE):
        for slug, (text, statements) in BAD_FILTERS.items():
            yield _filter(kind, slug, text, f"is {text}", statements=statements, reaction=_REFUSED)
        for slug, text in GOOD_FILTERS.items():
            words = "has a hundred levels" if len(text) > 50 else f"is {text}"
            yield _filter(kind, slug, text, words, legal_in=ALL_VERSIONS, reaction=ACCEPT)
    for slug, (text, statements) in BAD_SHARES.items():
        yield _filter(
            PacketType.SUBSCRIBE, slug, text, f"is {text}", versions=(V5,), statements=statements, reaction=_REFUSED
        )


def _subscribe(slug: str, description: str, make: Callable[[Any, Target], None], **more: Any) -> Mutation:
    return Mutation(
        f"subscribe{slug}",
        MutationKind.PACKET,
        description,
        change_packet=by_attributes(make),
        packet_type=PacketType.SUBSCRIBE,
        **more,
    )


def subscribe_mutations() -> Iterator[Mutation]:
    """SUBSCRIBE and UNSUBSCRIBE: lists, options, what the server does not have."""

    def no_rows(packet: Any, target: Target) -> None:
        packet.subscriptions = []

    def no_filters(packet: Any, target: Target) -> None:
        packet.topic_filters = []

    yield _subscribe(
        ":empty",
        "SUBSCRIBE has no Topic Filter.",
        no_rows,
        field="subscriptions",
        statements=("3.1 V31-SUBSCRIBE-at-least-one", "3.1.1 MQTT-3.8.3-3", "5.0 MQTT-3.8.3-2"),
        reaction=PROTOCOL_ERROR,
    )
    yield Mutation(
        "unsubscribe:empty",
        MutationKind.PACKET,
        "UNSUBSCRIBE has no Topic Filter.",
        change_packet=by_attributes(no_filters),
        packet_type=PacketType.UNSUBSCRIBE,
        field="topic_filters",
        statements=("3.1.1 MQTT-3.10.3-2", "5.0 MQTT-3.10.3-2"),
        reaction=PROTOCOL_ERROR,
    )
    yield from _options()
    yield from _counts()
    yield from _unavailable()


def _option(slug: str, words: str, change: Callable[[Subscription], None], **more: Any) -> Mutation:
    def make(packet: Any, target: Target) -> None:
        ensure(packet, "subscriptions[0]", target.version)
        change(packet.subscriptions[0])

    return _subscribe(f".subscriptions.{slug}", f"{words}.", make, **more)


def _set(**values: Any) -> Callable[[Subscription], None]:
    def change(row: Subscription) -> None:
        for name, value in values.items():
            setattr(row, name, value)

    return change


def _options() -> Iterator[Mutation]:
    """The options byte (5.0 3.8.3.1, 3.1.1 3.8.3)."""
    yield _option(
        "maximum_qos:3",
        "A subscription asks for QoS 3",
        _set(maximum_qos=3),
        field="subscriptions.maximum_qos",
        statements=("3.1 V31-SUBSCRIBE-qos", "3.1.1 MQTT-3.8.3-4", "5.0 V5-SUBSCRIBE-qos-3"),
        reaction=PROTOCOL_ERROR,
    )
    for bit in range(2, 8):
        five = bit > 5
        yield _option(
            f"reserved:bit-{bit}",
            f"Bit {bit} of the options of a subscription is set",
            _set(reserved=1 << bit),
            field="subscriptions.reserved",
            versions=ALL_VERSIONS if five else (V3_1, V3_1_1),
            statements=("3.1.1 MQTT-3.8.3-4", *(("5.0 MQTT-3.8.3-5",) if five else ())),
            # 3.1 has them reserved for later and says no more: neither that they must be 0 nor that they are taken.
            reaction=MALFORMED,
        )
    yield _option(
        "retain_handling:3",
        "The Retain Handling of a subscription is 3",
        _set(retain_handling=3),
        field="subscriptions.retain_handling",
        versions=(V5,),
        statements=("5.0 V5-SUBSCRIBE-retain-handling-3",),
        reaction=PROTOCOL_ERROR,
    )
    yield _option(
        "no_local:on-shared",
        "No Local is set on a Shared Subscription",
        _set(no_local=True, topic_filter="$share/group/mqttscope/mutate"),
        field="subscriptions.no_local",
        versions=(V5,),
        statements=("5.0 MQTT-3.8.3-4",),
        reaction=PROTOCOL_ERROR,
    )
    for handling in (0, 1, 2):
        yield _option(
            f"retain_handling:{handling}",
            f"The Retain Handling of a subscription is {handling}, and Retain As Published is set",
            _set(retain_handling=handling, retain_as_published=True),
            field="subscriptions.retain_handling",
            versions=(V5,),
            legal_in=(V5,),
            reaction=ACCEPT,
        )


def _counts() -> Iterator[Mutation]:
    """Many filters, and the same one twice."""

    def forest(packet: Any, target: Target) -> None:
        letters = "abcdefgh"
        packet.subscriptions = [
            Subscription(f"{'/'.join('+' if row >> bit & 1 else letters[bit] for bit in range(8))}/#", 0)
            for row in range(256)
        ]

    def same(packet: Any, target: Target) -> None:
        ensure(packet, "subscriptions[0]", target.version)
        first = packet.subscriptions[0]
        packet.subscriptions = [first, Subscription(first.topic_filter, first.maximum_qos, first.no_local)]

    def thousand(packet: Any, target: Target) -> None:
        packet.subscriptions = [Subscription(f"mqttscope/{number}", number % 3) for number in range(1000)]

    for slug, make, words in (
        ("wildcard-forest", forest, "256 Topic Filters of eight levels with every choice of wildcards"),
        ("same-twice", same, "the same Topic Filter twice"),
        ("thousand", thousand, "1,000 Topic Filters"),
    ):
        yield _subscribe(
            f".subscriptions:{slug}",
            f"SUBSCRIBE has {words}.",
            make,
            field="subscriptions",
            legal_in=ALL_VERSIONS,
            reaction=ACCEPT,
        )

    def unknown(packet: Any, target: Target) -> None:
        packet.topic_filters = ["mqttscope/never/subscribed"]

    yield Mutation(
        "unsubscribe.topic_filters:never-subscribed",
        MutationKind.PACKET,
        "UNSUBSCRIBE names a Topic Filter that was never subscribed to; it is acknowledged all the same.",
        change_packet=by_attributes(unknown),
        packet_type=PacketType.UNSUBSCRIBE,
        field="topic_filters",
        legal_in=ALL_VERSIONS,
        reaction=ACCEPT,
    )


def _unavailable() -> Iterator[Mutation]:
    """What CONNACK said the server does not have (5.0 3.2.2.3.11 to 13)."""
    rows = (
        ("wildcard-unavailable", "wildcard_subscription_available", "a/#", 0xA2, "V5-SUBSCRIBE-wildcard-unavailable"),
        ("shared-unavailable", "shared_subscription_available", "$share/g/a", 0x9E, "V5-SUBSCRIBE-shared-unavailable"),
        ("identifier-unavailable", "subscription_identifier_available", "", 0xA1, "V5-SUBSCRIBE-id-unavailable"),
    )
    for slug, name, text, code, statement in rows:

        def make(packet: Any, target: Target, name: str = name, text: str = text) -> None:
            if target.limit(name, 1):
                raise NotApplicableError("the server has it")
            if text:
                _set_filter(packet, target, text)
            else:
                packet.properties = with_property(packet.properties, "subscription_identifier", 7)

        yield _subscribe(
            f":{slug}",
            f"SUBSCRIBE uses what CONNACK announced with {name} 0.",
            make,
            field="subscriptions",
            versions=(V5,),
            statements=(f"5.0 {statement}",),
            reaction=Reaction(Demand.REFUSE, (code, 0x82)),
        )

    def shared(packet: Any, target: Target) -> None:
        if not target.limit("shared_subscription_available", 1):
            raise NotApplicableError("the server has no Shared Subscriptions")
        _set_filter(packet, target, "$share/group/mqttscope/mutate")
        block = packet.properties or Properties()
        number = BY_NAME["subscription_identifier"].identifier
        packet.properties = Properties.of(one for one in block.items if one[0] != number)

    yield _subscribe(
        ":shared",
        "SUBSCRIBE asks for a Shared Subscription.",
        shared,
        field="subscriptions",
        versions=(V5,),
        legal_in=(V5,),
        reaction=ACCEPT,
    )

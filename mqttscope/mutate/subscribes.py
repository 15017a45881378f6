"""Mutations of what SUBSCRIBE and UNSUBSCRIBE say (5.0 3.8, 3.10, 4.7, 4.8.2; 3.1.1 3.8, 3.10, 4.7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import BY_NAME, Properties
from mqttscope.mutate.mutation import (
    ACCEPT,
    ALL_VERSIONS,
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
from mqttscope.mutate.samples import ensure, with_property

V3_1, V3_1_1, V5 = ProtocolVersion
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

"""Mutations of PUBLISH, SUBSCRIBE and UNSUBSCRIBE (3.3, 3.8, 3.10, 4.7; of 5.0 also 4.8.2)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import PacketType
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties
from mqttscope.mutate.flow import CLIENT, SERVER
from mqttscope.mutate.mutation import (
    ACCEPT,
    ALL_VERSIONS,
    ANY,
    BEFORE_5,
    MALFORMED,
    ONLY_5,
    PROTOCOL_ERROR,
    V3_1,
    V5,
    Demand,
    Mutation,
    PacketChange,
    PacketTarget,
    Reaction,
    attributes,
    refuse,
    row,
)
from mqttscope.mutate.samples import TOPIC, ensure, with_property, without_properties

_TOPIC_INVALID = Reaction(Demand.CLOSE, (0x90, 0x82, 0x81))
_REFUSED = Reaction(Demand.REFUSE, (0x8F, 0x81, 0x82))
"""Reaction to an invalid Topic Filter: a close, or 0x8F in the acknowledgement (5.0 3.9.3)."""
_HASH = "3.1 V31-FILTER-wildcards, 3.1.1 MQTT-4.7.1-2, 5.0 MQTT-4.7.1-1"
_PLUS = "3.1 V31-FILTER-wildcards, 3.1.1 MQTT-4.7.1-3, 5.0 MQTT-4.7.1-2"
BAD_FILTERS: dict[str, tuple[str, str]] = {
    "hash-not-last": ("a/#/b", _HASH),
    "hash-not-alone": ("a/b#", _HASH),
    "hash-twice": ("#/#", _HASH),
    "hash-doubled": ("##", _HASH),
    "plus-not-alone": ("a+/b", _PLUS),
    "plus-at-end-of-level": ("a/b+", _PLUS),
    "plus-doubled": ("a/++/b", _PLUS),
}
BAD_SHARES: dict[str, tuple[str, str]] = {
    "share-alone": ("$share", "5.0 MQTT-4.8.2-1"),
    "share-without-filter": ("$share/group", "5.0 MQTT-4.8.2-2"),
    "share-name-empty": ("$share//a", "5.0 MQTT-4.8.2-1"),
    "share-filter-empty": ("$share/group/", "5.0 MQTT-4.8.2-2"),
    "share-name-with-plus": ("$share/gr+oup/a", "5.0 MQTT-4.8.2-2"),
    "share-name-with-hash": ("$share/#/a", "5.0 MQTT-4.8.2-2"),
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


def _qos_3(target: PacketTarget) -> bytes:
    # The layout of the packet is unchanged: a receiver that tests single QoS bits expects a Packet Identifier.
    data = target.encoded()
    return bytes((data[0] | 6,)) + data[1:]


def _dup_on_first(qos: int, target: PacketTarget) -> None:
    packet = target.packet
    refuse(packet.qos != qos or packet.dup, f"the packet is not the first transmission of a PUBLISH with QoS {qos}")
    packet.dup = True


def _without_identifier(target: PacketTarget) -> bytes:
    target.packet.qos, target.packet.packet_identifier = 1, None
    return encode(target.packet, target.version)


def _identifier_at_qos_0(target: PacketTarget) -> bytes:
    packet = target.packet
    packet.qos, packet.dup, packet.packet_identifier = 1, False, 0x0102
    data = encode(packet, target.version)
    return bytes((data[0] & ~6,)) + data[1:]


def _property(name: str, value: Any, target: PacketTarget) -> None:
    target.packet.properties = with_property(target.packet.properties, name, value)


def _payload_not_utf8(target: PacketTarget) -> None:
    _property("payload_format_indicator", 1, target)
    target.packet.payload = b"\xff\xfe\x80"


def _every_property(target: PacketTarget) -> None:
    packet = target.packet
    for name in ("message_expiry_interval", "content_type", "response_topic", "correlation_data", "user_property"):
        ensure(packet, f"properties.{name}", V5)
    if packet.properties.payload_format_indicator is None:
        _property("payload_format_indicator", 0, target)


def _topic_alias(alias_of: Callable[[int], int], target: PacketTarget) -> None:
    alias = alias_of(target.limit("topic_alias_maximum", 0))
    refuse(not 0 < alias <= 0xFFFF, "the Topic Alias Maximum allows no such Topic Alias")
    target.packet.topic_name = target.packet.topic_name or TOPIC
    _property("topic_alias", alias, target)


def _qos_above_maximum(target: PacketTarget) -> None:
    limit = target.limit("maximum_qos", 2)
    refuse(limit >= 2 or target.sender == SERVER, "the receiver accepts every QoS")
    target.packet.qos = limit + 1
    target.packet.packet_identifier = target.packet.packet_identifier or 0xFFFE


def _retain_not_available(target: PacketTarget) -> None:
    refuse(target.limit("retain_available", 1), "the server accepts retained messages")
    target.packet.retain = True


def _larger_than_maximum(target: PacketTarget) -> None:
    limit = target.limit("maximum_packet_size", 0)
    refuse(not 0 < limit <= 4_000_000, "the receiver announced no Maximum Packet Size of at most 4,000,000 bytes")
    target.packet.payload = bytes(limit)
    target.packet.properties = without_properties(target.packet.properties, "payload_format_indicator")


_ABOVE_MAXIMUM = (
    "5.0 V5-PUBLISH-alias-range, client 5.0 MQTT-3.2.2-17, client 5.0 MQTT-3.3.2-9, server 5.0 MQTT-3.1.2-26, "
    "server 5.0 MQTT-3.3.2-11"
)
_ALIAS_INVALID = Reaction(Demand.CLOSE, (0x94, 0x82))
PUBLISH = (
    row("publish:qos-3", "Both QoS bits of PUBLISH are set.", _qos_3,
        "3.1 V31-HEADER-qos3, 3.1.1 MQTT-3.3.1-4, 5.0 MQTT-3.3.1-4", MALFORMED, field="qos"),
    row("publish:dup-with-qos-0", "DUP is set in a PUBLISH with QoS 0.",
        attributes(dup=True, qos=0, packet_identifier=None),
        "3.1.1 MQTT-3.3.1-2, 3.1.1 MQTT-4.3.1-1, 5.0 MQTT-3.3.1-2, 5.0 MQTT-4.3.1-1", MALFORMED,
        field="dup", legal=(V3_1,)),
    # A receiver cannot rely on DUP, so it may accept the message.
    *(row(f"publish:dup-on-first-transmission-qos-{qos}",
          f"DUP is set in the first transmission of a PUBLISH with QoS {qos}.", partial(_dup_on_first, qos),
          f"3.1 V31-PUBLISH-dup-on-resend, 3.1.1 MQTT-4.3.{qos + 1}-1, 5.0 MQTT-4.3.{qos + 1}-2", ANY, field="dup")
      for qos in (1, 2)),
    *(row(f"publish.topic_name:wildcard-{slug}", f"The Topic Name is {text}, with a wildcard.",
          attributes(topic_name=text), "3.1 V31-PUBLISH-no-wildcards, 3.1.1 MQTT-3.3.2-2, 3.1.1 MQTT-4.7.1-1, "
          "5.0 MQTT-3.3.2-2, 5.0 MQTT-4.7.0-1", _TOPIC_INVALID)
      for slug, text in (
          ("hash", "a/#"), ("plus", "a/+/b"), ("hash-alone", "#"), ("plus-inside-level", "a/b+c"),
      )),
    *(row(f"publish.topic_name:{slug}", f"The Topic Name {words}.", attributes(topic_name=text), "", reaction,
          senders=(CLIENT,), legal=ALL_VERSIONS)
      for slug, text, words, reaction in (
          ("one-character", "a", "is a single character", ACCEPT),
          ("slash", "/", "is a single slash", ACCEPT),
          ("many-levels", "/" * 10_000, "has 10,001 empty levels", ACCEPT),
          ("spaces", "a b/c d", "has spaces", ACCEPT),
          ("supplementary-characters", "\U0001f600/\U0010fffd", "has characters above U+FFFF", ACCEPT),
          # Servers may reserve topics that begin with $ (5.0 4.7.2).
          ("shared-prefix", "$share/group/a", "has the form of a Shared Subscription's Topic Filter", ANY),
      )),
    row("publish:identifier-missing", "PUBLISH has QoS 1 and no Packet Identifier, so the next bytes are read as one.",
        _without_identifier, field="packet_identifier"),
    row("publish:identifier-with-qos-0",
        "PUBLISH has QoS 0 and a Packet Identifier, which is read as properties or payload.", _identifier_at_qos_0,
        field="packet_identifier"),
    row("publish:subscription-identifier-from-client", "A client's PUBLISH has a Subscription Identifier.",
        partial(_property, "subscription_identifier", 7), "5.0 MQTT-3.3.4-6", PROTOCOL_ERROR, ONLY_5, (CLIENT,),
        field="properties.subscription_identifier"),
    *(row(f"publish.properties.response_topic:wildcard-{slug}", f"The Response Topic is {text}, with a wildcard.",
          partial(_property, "response_topic", text), "5.0 MQTT-3.3.2-14", _TOPIC_INVALID, ONLY_5)
      for slug, text in (("hash", "a/#"), ("plus", "a/+"))),
    # 3.3.2.3.2: a receiver may check the payload, and then answers with 0x99.
    row("publish:payload-not-utf8", "The Payload Format Indicator declares UTF-8, but the payload is not UTF-8.",
        _payload_not_utf8, "5.0 V5-PUBLISH-payload-utf8", ANY, ONLY_5, field="payload"),
    row("publish:every-property", "PUBLISH has all properties that do not depend on other packets.", _every_property,
        "", ACCEPT, ONLY_5, field="properties", legal=ONLY_5),
    *(row(f"publish.topic_alias:{slug}", f"The Topic Alias is {words}.", partial(_topic_alias, alias_of),
          _ABOVE_MAXIMUM, _ALIAS_INVALID, ONLY_5, field="properties.topic_alias")
      for slug, alias_of, words in (
          ("above-maximum", lambda limit: limit + 1, "one above the Topic Alias Maximum"),
          ("far-above-maximum", lambda limit: 0xFFFF if limit < 0xFFFF else 0,
           "65,535, above the Topic Alias Maximum"),
      )),
    row("publish.topic_alias:at-maximum",
        "The Topic Alias is the greatest allowed, and the PUBLISH has a Topic Name.",
        partial(_topic_alias, lambda limit: limit), "", ACCEPT, ONLY_5, field="properties.topic_alias", legal=ONLY_5),
    row("publish.qos:above-maximum", "The QoS is above the Maximum QoS of CONNACK.", _qos_above_maximum,
        "5.0 MQTT-3.2.2-11", Reaction(Demand.CLOSE, (0x9B,)), ONLY_5, (CLIENT,)),
    row("publish.retain:not-available",
        "RETAIN is set although CONNACK announced that retained messages are not available.", _retain_not_available,
        "5.0 MQTT-3.2.2-14", Reaction(Demand.CLOSE, (0x9A,)), ONLY_5, (CLIENT,)),
    row("publish:maximum-packet-size-exceeded", "PUBLISH is larger than the receiver's Maximum Packet Size.",
        _larger_than_maximum, "client 5.0 MQTT-3.2.2-15, server 5.0 MQTT-3.1.2-24", Reaction(Demand.CLOSE, (0x95,)),
        ONLY_5, field="payload"),
)  # fmt: skip
"""Mutations of the flags, topic, identifier, properties and limits of PUBLISH (5.0 3.3, 3.2.2.3, 3.1.2.11)."""


def _set_filter(text: str, target: PacketTarget) -> None:
    packet = target.packet
    if packet.packet_type == PacketType.SUBSCRIBE:
        ensure(packet, "subscriptions[0]", target.version)
        packet.subscriptions[0].topic_filter = text
        packet.subscriptions[0].no_local = False
    else:
        ensure(packet, "topic_filters[0]", target.version)
        packet.topic_filters[0] = text


def _filter(path: str, slug: str, text: str, statements: str = "", **more: Any) -> Mutation:
    words = "has a hundred levels" if len(text) > 50 else f"is {text}"
    sentence = f"A Topic Filter of {path.partition('.')[0].upper()} {words}."
    reaction = _REFUSED if statements else ACCEPT
    return row(f"{path}:{slug}", sentence, partial(_set_filter, text), statements, reaction, **more)


_SUBSCRIBED = "subscribe.subscriptions.topic_filter"
FILTERS = (
    *(_filter(path, slug, *bad) for path in (_SUBSCRIBED, "unsubscribe.topic_filters")
      for slug, bad in BAD_FILTERS.items()),
    *(_filter(path, slug, text, legal=ALL_VERSIONS) for path in (_SUBSCRIBED, "unsubscribe.topic_filters")
      for slug, text in GOOD_FILTERS.items()),
    *(_filter(_SUBSCRIBED, slug, *bad, versions=ONLY_5) for slug, bad in BAD_SHARES.items()),
)  # fmt: skip
"""Mutations with valid and invalid Topic Filters."""


def _options(**values: Any) -> PacketChange:
    def change(target: PacketTarget) -> None:
        ensure(target.packet, "subscriptions[0]", target.version)
        for name, value in values.items():
            setattr(target.packet.subscriptions[0], name, value)

    return change


def _wildcard_forest(target: PacketTarget) -> None:
    letters = "abcdefgh"
    target.packet.subscriptions = [
        Subscription(f"{'/'.join('+' if number >> bit & 1 else letters[bit] for bit in range(8))}/#", 0)
        for number in range(256)
    ]


def _same_twice(target: PacketTarget) -> None:
    ensure(target.packet, "subscriptions[0]", target.version)
    first = target.packet.subscriptions[0]
    target.packet.subscriptions = [first, Subscription(first.topic_filter, first.maximum_qos, first.no_local)]


def _thousand(target: PacketTarget) -> None:
    target.packet.subscriptions = [Subscription(f"mqttscope/{number}", number % 3) for number in range(1000)]


def _unavailable(name: str, text: str, target: PacketTarget) -> None:
    refuse(target.limit(name, 1), "the server does not announce it as unavailable")
    if text:
        _set_filter(text, target)
    else:
        _property("subscription_identifier", 7, target)


def _share(target: PacketTarget) -> None:
    refuse(not target.limit("shared_subscription_available", 1), "the server does not support Shared Subscriptions")
    _set_filter("$share/group/mqttscope/mutate", target)
    target.packet.properties = without_properties(target.packet.properties or Properties(), "subscription_identifier")


SUBSCRIBE = (
    row("subscribe:empty", "SUBSCRIBE has no Topic Filter.", attributes(subscriptions=[]),
        "3.1 V31-SUBSCRIBE-at-least-one, 3.1.1 MQTT-3.8.3-3, 5.0 MQTT-3.8.3-2", PROTOCOL_ERROR,
        field="subscriptions"),
    row("unsubscribe:empty", "UNSUBSCRIBE has no Topic Filter.", attributes(topic_filters=[]),
        "3.1.1 MQTT-3.10.3-2, 5.0 MQTT-3.10.3-2", PROTOCOL_ERROR, field="topic_filters"),
    row("subscribe.subscriptions.maximum_qos:3", "A subscription requests QoS 3.", _options(maximum_qos=3),
        "3.1 V31-SUBSCRIBE-qos, 3.1.1 MQTT-3.8.3-4, 5.0 V5-SUBSCRIBE-qos-3", PROTOCOL_ERROR),
    # 3.1 only calls these bits reserved: it neither demands 0 nor has a receiver accept other values.
    *(row(f"subscribe.subscriptions.reserved:bit-{bit}", f"The reserved bit {bit} of the subscription options is set.",
          _options(reserved=1 << bit), "3.1.1 MQTT-3.8.3-4, 5.0 MQTT-3.8.3-5", MALFORMED,
          ALL_VERSIONS if bit > 5 else BEFORE_5) for bit in range(2, 8)),
    row("subscribe.subscriptions.retain_handling:3", "The Retain Handling of a subscription is 3.",
        _options(retain_handling=3), "5.0 V5-SUBSCRIBE-retain-handling-3", PROTOCOL_ERROR, ONLY_5),
    row("subscribe.subscriptions.no_local:on-shared", "No Local is set on a Shared Subscription.",
        _options(no_local=True, topic_filter="$share/group/mqttscope/mutate"), "5.0 MQTT-3.8.3-4", PROTOCOL_ERROR,
        ONLY_5),
    *(row(f"subscribe.subscriptions.retain_handling:{handling}",
          f"The Retain Handling of a subscription is {handling}, and Retain As Published is set.",
          _options(retain_handling=handling, retain_as_published=True), "", ACCEPT, ONLY_5, legal=ONLY_5)
      for handling in (0, 1, 2)),
    *(row(f"subscribe.subscriptions:{slug}", f"SUBSCRIBE has {words}.", change, "", ACCEPT, legal=ALL_VERSIONS)
      for slug, change, words in (
          ("wildcard-forest", _wildcard_forest,
           "256 Topic Filters of eight levels with every combination of wildcards"),
          ("same-twice", _same_twice, "the same Topic Filter twice"),
          ("thousand", _thousand, "1,000 Topic Filters"),
      )),
    row("unsubscribe.topic_filters:never-subscribed",
        "UNSUBSCRIBE has a Topic Filter without a subscription, and must still be acknowledged.",
        attributes(topic_filters=["mqttscope/never/subscribed"]), "", ACCEPT, legal=ALL_VERSIONS),
    # Features that CONNACK announced as not available (5.0 3.2.2.3.11 to 13).
    *(row(f"subscribe:{slug}-unavailable", f"SUBSCRIBE uses a feature that CONNACK declared unavailable ({name} 0).",
          partial(_unavailable, name, text), f"5.0 V5-SUBSCRIBE-{statement}-unavailable",
          Reaction(Demand.REFUSE, (code, 0x82)), ONLY_5, field="subscriptions")
      for slug, name, text, code, statement in (
          ("wildcard", "wildcard_subscription_available", "a/#", 0xA2, "wildcard"),
          ("shared", "shared_subscription_available", "$share/g/a", 0x9E, "shared"),
          ("identifier", "subscription_identifier_available", "", 0xA1, "id"),
      )),
    row("subscribe:shared", "SUBSCRIBE requests a Shared Subscription.", _share, "", ACCEPT, ONLY_5,
        field="subscriptions", legal=ONLY_5),
)  # fmt: skip
"""Mutations of lists and options of SUBSCRIBE and UNSUBSCRIBE, and unavailable features (5.0 3.8.3, 3.10.3)."""

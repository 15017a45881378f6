"""Two packets of a broker compared field by field, by what they mean.

Packet Identifiers, DUP and Topic Aliases have to differ and are ignored, and so are Reason Strings, which are for
people.  Of an Assigned Client Identifier, Response Information and Authentication Data only the presence is compared:
their values are made for one connection.  An absent property has its default value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from mqttscope.mqtt import properties
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Connack, Connect, Publish, Suback, Unsuback
from mqttscope.replay.script import UNSAID
from mqttscope.replay.verify.difference import DeviceKind, DifferenceKind, reason_text, short

FAILURE = 0x80
"""Lowest Reason Code of a failure."""

Signature = tuple[int, bool, bool, tuple[tuple[int, Any], ...]]


def numbers_of(*names: str) -> frozenset[int]:
    return frozenset(properties.BY_NAME[name].identifier for name in names)


NOTHING: dict[int, Any] = {}


@dataclass(slots=True, frozen=True)
class PropertyRules:
    """How the properties of one side are compared."""

    kind: DifferenceKind | DeviceKind
    ignored: frozenset[int]
    presence: frozenset[int]
    """Secret, or made for one connection or exchange: only their presence is compared."""
    sets: frozenset[int] = frozenset()
    """Their order and their number do not count."""
    shows_text: bool = False
    """Whether messages contain texts and lengths."""


BROKER_PROPERTIES = PropertyRules(
    DifferenceKind.PROPERTY,
    # The Message Expiry Interval is compared with the time that passed (`deliveries`).
    numbers_of("topic_alias", "reason_string", "message_expiry_interval"),
    numbers_of("assigned_client_identifier", "response_information", "authentication_data"),
    frozenset({properties.SUBSCRIPTION_IDENTIFIER}),
    shows_text=True,
)
DEVICE_PROPERTIES = PropertyRules(
    DeviceKind.FIELD,
    numbers_of("topic_alias", "reason_string"),
    numbers_of("authentication_data", "correlation_data"),
)


@dataclass(slots=True)
class FieldDifference:
    """One field that differs."""

    kind: DifferenceKind | DeviceKind
    field: str
    expected: Any
    actual: Any
    phrase: str
    """Clause for a message: ``has Reason Code 0x87 Not authorized instead of 0x00 Success``."""

    @property
    def change(self) -> tuple[str, Any, Any]:
        return self.field, self.expected, self.actual


def failed(packet: ControlPacket, version: ProtocolVersion) -> bool:
    code: int = getattr(packet, "reason_code", None) or 0
    return code > 0 if version < ProtocolVersion.V5 and isinstance(packet, Connack) else code >= FAILURE


def field_differences(
    recorded: ControlPacket,
    live: ControlPacket,
    version: ProtocolVersion,
    connects: tuple[Connect | None, Connect | None] = (None, None),
) -> list[FieldDifference]:
    """Differences between two packets of one type; ``connects``: the CONNECT packets that two CONNACKs answer."""
    differences = list(_reasons(recorded, live, version))
    if differences and failed(recorded, version) != failed(live, version):
        return differences  # everything else follows from that
    if isinstance(recorded, Connack) and isinstance(live, Connack):
        differences += _session_present(recorded, live)
    elif isinstance(recorded, Publish) and isinstance(live, Publish):
        differences += _publish(recorded, live)
    elif isinstance(recorded, Suback | Unsuback) and isinstance(live, Suback | Unsuback):
        differences += _codes(recorded, live, version)
    if getattr(recorded, "properties", None) is UNSAID:
        return differences
    blocks = block_of(recorded), block_of(live)
    implied = _implied(connects[0]), _implied(connects[1])
    differences += property_differences(BROKER_PROPERTIES, recorded.packet_type, "properties", *blocks, *implied)
    return differences


def block_of(packet: ControlPacket | Malformed) -> properties.Properties:
    return getattr(packet, "properties", None) or properties.EMPTY


def _implied(connect: Connect | None) -> dict[int, Any]:
    """Values of absent CONNACK properties, which follow from the CONNECT (5.0 3.2.2.3.2, 3.2.2.3.14)."""
    if connect is None:
        return {}
    requested = connect.properties or properties.EMPTY
    return {
        properties.BY_NAME["session_expiry_interval"].identifier: requested.session_expiry_interval or 0,
        properties.BY_NAME["server_keep_alive"].identifier: connect.keep_alive,
    }


def _reasons(recorded: ControlPacket, live: ControlPacket, version: ProtocolVersion) -> Iterator[FieldDifference]:
    if not hasattr(recorded, "reason_code"):
        return
    expected, actual = recorded.reason_code or 0, getattr(live, "reason_code", None) or 0
    if getattr(recorded, "properties", None) is UNSAID and max(expected, actual) < FAILURE:
        # Before 5.0 there is only one kind of success.
        return
    if expected != actual:
        kind = recorded.packet_type
        texts = reason_text(kind, actual, version), reason_text(kind, expected, version)
        phrase = f"has Reason Code {texts[0]} instead of {texts[1]}"
        yield FieldDifference(DifferenceKind.REASON_CODE, "reason_code", expected, actual, phrase)


def _session_present(recorded: Connack, live: Connack) -> Iterator[FieldDifference]:
    expected, actual = recorded.session_present, live.session_present
    if None not in (expected, actual) and expected != actual:  # 3.1 has no such flag
        phrase = f"has Session Present {int(bool(actual))} instead of {int(bool(expected))}"
        yield FieldDifference(DifferenceKind.SESSION_PRESENT, "session_present", expected, actual, phrase)


def _publish(recorded: Publish, live: Publish) -> Iterator[FieldDifference]:
    if recorded.qos != live.qos:
        phrase = f"was delivered with QoS {live.qos} instead of {recorded.qos}"
        yield FieldDifference(DifferenceKind.DELIVERY_QOS, "qos", recorded.qos, live.qos, phrase)
    if recorded.retain != live.retain:
        phrase = f"was delivered with RETAIN {int(live.retain)} instead of {int(recorded.retain)}"
        yield FieldDifference(DifferenceKind.RETAIN, "retain", recorded.retain, live.retain, phrase)


def _codes(recorded: Suback | Unsuback, live: Suback | Unsuback, version: ProtocolVersion) -> Iterator[FieldDifference]:
    expected, actual = recorded.reason_codes, live.reason_codes
    if expected is None or actual is None:  # UNSUBACK has no Reason Codes before 5.0
        return
    if len(expected) != len(actual):
        phrase = f"has {len(actual)} Reason Codes instead of {len(expected)}"
        yield FieldDifference(DifferenceKind.REASON_CODE, "reason_codes", list(expected), list(actual), phrase)
        return
    packet_type = recorded.packet_type
    for index, (before, now) in enumerate(zip(expected, actual, strict=True)):
        if before != now:
            grants = packet_type == PacketType.SUBACK and before < FAILURE and now < FAILURE
            phrase = (
                f"has {reason_text(packet_type, now, version)} instead of {reason_text(packet_type, before, version)}"
                f" for Topic Filter {index + 1}"
            )
            kind = DifferenceKind.GRANTED_QOS if grants else DifferenceKind.REASON_CODE
            yield FieldDifference(kind, f"reason_codes[{index}]", before, now, phrase)


def _values(block: properties.Properties, rules: PropertyRules) -> dict[int, Any]:
    """The properties that are compared, in a comparable form."""
    by_number: dict[int, list[Any]] = {}
    for number, value in block.items:
        if number not in rules.ignored:
            by_number.setdefault(number, []).append(value)
    values: dict[int, Any] = {}
    for number, several in by_number.items():
        if number in rules.sets:
            values[number] = tuple(sorted(set(several)))
        elif number == properties.USER_PROPERTY or len(several) > 1:
            values[number] = tuple(several)
        else:
            values[number] = several[0]
    return values


def property_differences(
    rules: PropertyRules,
    packet_type: PacketType,
    path: str,
    recorded: properties.Properties,
    live: properties.Properties,
    implied: dict[int, Any] = NOTHING,
    implied_live: dict[int, Any] = NOTHING,
) -> Iterator[FieldDifference]:
    """Properties that differ; ``implied``: values of absent ones, if they are not the defaults of the packet type."""
    if recorded.items == live.items and implied == implied_live:
        return
    before, now = _values(recorded, rules), _values(live, rules)
    for number in dict.fromkeys((*before, *now)):
        expected, actual = before.get(number), now.get(number)
        if number in rules.presence:
            is_equal = (expected is None) == (actual is None)
        else:
            default = properties.property_default(number, packet_type)
            meant = implied.get(number, default) if expected is None else expected
            is_equal = meant == (implied_live.get(number, default) if actual is None else actual)
        if not is_equal:
            name = properties.property_name(number)
            phrase = _property_phrase(name, expected, actual, shows_text=rules.shows_text)
            yield FieldDifference(rules.kind, f"{path}.{name}", expected, actual, phrase)


def _property_phrase(name: str, expected: Any, actual: Any, *, shows_text: bool) -> str:
    words = "user properties" if name == "user_property" else name.replace("_", " ")
    if actual is None:
        return f"lacks its {words}"
    if expected is None:
        return f"has {words}, which the recorded one does not have"
    if isinstance(actual, int) and isinstance(expected, int):
        return f"has {words} {actual} instead of {expected}"
    if not shows_text:
        return f"has other {words}"
    # Values of User Properties and binary data may be secrets; reports show them only if that is allowed.
    if isinstance(actual, str) and isinstance(expected, str):
        return f"has {words} {short(actual)} instead of {short(expected)}"
    if isinstance(actual, bytes) and isinstance(expected, bytes) and len(actual) != len(expected):
        return f"has {words} of {len(actual)} bytes instead of {len(expected)}"
    return f"has {'other' if words.endswith('s') else 'another'} {words}"


def signature(packet: Publish) -> Signature:
    """Values that are equal in two deliveries of one message with the same meaning."""
    block = packet.properties or properties.EMPTY
    values = _values(block, BROKER_PROPERTIES)
    compared = [item for item in values.items() if item[1] != properties.property_default(item[0], packet.packet_type)]
    expires = block.message_expiry_interval is not None
    return packet.qos, packet.retain, expires, tuple(sorted(compared, key=itemgetter(0)))

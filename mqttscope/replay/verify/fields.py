"""Two packets of a broker compared field by field, by what they mean.

Packet Identifiers, DUP and Topic Aliases must differ and are ignored, Reason Strings are for people.  Of an Assigned
Client Identifier, Response Information and Authentication Data only counts whether they are there: their values are
made for one connection.  A property that is left out has the value that the specification gives it then.
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
"""Reason Codes from here on are failures."""

Signature = tuple[int, bool, bool, tuple[tuple[int, Any], ...]]


def numbers_of(*names: str) -> frozenset[int]:
    return frozenset(properties.BY_NAME[name].identifier for name in names)


IGNORED = numbers_of("topic_alias", "reason_string", "message_expiry_interval")
"""The Message Expiry Interval is judged by the time that passed (`deliveries`)."""
PRESENCE = numbers_of("assigned_client_identifier", "response_information", "authentication_data")


@dataclass(slots=True)
class FieldDifference:
    """One field that differs."""

    kind: DifferenceKind | DeviceKind
    field: str
    expected: Any
    found: Any
    told: str
    """``has Reason Code 0x87 Not authorized instead of 0x00 Success``."""

    @property
    def change(self) -> tuple[str, Any, Any]:
        return self.field, self.expected, self.found


def failed(packet: ControlPacket, version: ProtocolVersion) -> bool:
    code: int = getattr(packet, "reason_code", None) or 0
    return code > 0 if version < ProtocolVersion.V5 and isinstance(packet, Connack) else code >= FAILURE


def field_differences(
    recorded: ControlPacket,
    live: ControlPacket,
    version: ProtocolVersion,
    connects: tuple[Connect | None, Connect | None] = (None, None),
) -> list[FieldDifference]:
    """What differs between two packets of one type; ``connects`` are those that two CONNACKs answer."""
    found = list(_reasons(recorded, live, version))
    if found and failed(recorded, version) != failed(live, version):
        return found  # everything else follows from that
    if isinstance(recorded, Connack) and isinstance(live, Connack):
        found += _session_present(recorded, live)
    elif isinstance(recorded, Publish) and isinstance(live, Publish):
        found += _publish(recorded, live)
    elif isinstance(recorded, Suback | Unsuback) and isinstance(live, Suback | Unsuback):
        found += _codes(recorded, live, version)
    if getattr(recorded, "properties", None) is UNSAID:
        return found
    found += _properties(recorded, live, _implied(connects[0]), _implied(connects[1]))
    return found


def block_of(packet: ControlPacket | Malformed) -> properties.Properties:
    return getattr(packet, "properties", None) or properties.EMPTY


def _implied(connect: Connect | None) -> dict[int, Any]:
    """What a CONNACK means by leaving out what the CONNECT asked for (5.0 3.2.2.3.2, 3.2.2.3.14)."""
    if connect is None:
        return {}
    asked = connect.properties or properties.EMPTY
    return {
        properties.BY_NAME["session_expiry_interval"].identifier: asked.session_expiry_interval or 0,
        properties.BY_NAME["server_keep_alive"].identifier: connect.keep_alive,
    }


def _reasons(recorded: ControlPacket, live: ControlPacket, version: ProtocolVersion) -> Iterator[FieldDifference]:
    if not hasattr(recorded, "reason_code"):
        return
    expected, found = recorded.reason_code or 0, getattr(live, "reason_code", None) or 0
    if getattr(recorded, "properties", None) is UNSAID and max(expected, found) < FAILURE:
        # Before 5.0 there is one kind of success.
        return
    if expected != found:
        kind = recorded.packet_type
        told = f"has Reason Code {reason_text(kind, found, version)} instead of {reason_text(kind, expected, version)}"
        yield FieldDifference(DifferenceKind.REASON_CODE, "reason_code", expected, found, told)


def _session_present(recorded: Connack, live: Connack) -> Iterator[FieldDifference]:
    expected, found = recorded.session_present, live.session_present
    if None not in (expected, found) and expected != found:  # 3.1 has no such flag
        told = f"has Session Present {int(bool(found))} instead of {int(bool(expected))}"
        yield FieldDifference(DifferenceKind.SESSION_PRESENT, "session_present", expected, found, told)


def _publish(recorded: Publish, live: Publish) -> Iterator[FieldDifference]:
    if recorded.qos != live.qos:
        told = f"was delivered with QoS {live.qos} instead of {recorded.qos}"
        yield FieldDifference(DifferenceKind.DELIVERY_QOS, "qos", recorded.qos, live.qos, told)
    if recorded.retain != live.retain:
        told = f"was delivered with RETAIN {int(live.retain)} instead of {int(recorded.retain)}"
        yield FieldDifference(DifferenceKind.RETAIN, "retain", recorded.retain, live.retain, told)


def _codes(recorded: Suback | Unsuback, live: Suback | Unsuback, version: ProtocolVersion) -> Iterator[FieldDifference]:
    expected, found = recorded.reason_codes, live.reason_codes
    if expected is None or found is None:  # UNSUBACK before 5.0 has none
        return
    if len(expected) != len(found):
        told = f"has {len(found)} Reason Codes instead of {len(expected)}"
        yield FieldDifference(DifferenceKind.REASON_CODE, "reason_codes", list(expected), list(found), told)
        return
    packet_type = recorded.packet_type
    for index, (before, now) in enumerate(zip(expected, found, strict=True)):
        if before != now:
            grants = packet_type == PacketType.SUBACK and before < FAILURE and now < FAILURE
            told = (
                f"has {reason_text(packet_type, now, version)} instead of {reason_text(packet_type, before, version)}"
                f" for Topic Filter {index + 1}"
            )
            kind = DifferenceKind.GRANTED_QOS if grants else DifferenceKind.REASON_CODE
            yield FieldDifference(kind, f"reason_codes[{index}]", before, now, told)


def _values(block: properties.Properties) -> dict[int, Any]:
    """The properties that are compared, in a form that equal ones share."""
    found: dict[int, list[Any]] = {}
    for number, value in block.items:
        if number not in IGNORED:
            found.setdefault(number, []).append(value)
    values: dict[int, Any] = {}
    for number, several in found.items():
        if number == properties.SUBSCRIPTION_IDENTIFIER:
            values[number] = tuple(sorted(set(several)))
        elif number == properties.USER_PROPERTY or len(several) > 1:
            values[number] = tuple(several)
        else:
            values[number] = several[0]
    return values


def _properties(
    recorded: ControlPacket, live: ControlPacket, implied: dict[int, Any], implied_live: dict[int, Any]
) -> Iterator[FieldDifference]:
    one, other = block_of(recorded), block_of(live)
    if one.items == other.items and implied == implied_live:
        return
    before, now = _values(one), _values(other)
    for number in dict.fromkeys((*before, *now)):
        expected, found = before.get(number), now.get(number)
        if number in PRESENCE:
            same = (expected is None) == (found is None)
        else:
            default = properties.property_default(number, recorded.packet_type)
            meant = implied.get(number, default) if expected is None else expected
            same = meant == (implied_live.get(number, default) if found is None else found)
        if not same:
            name = properties.property_name(number)
            yield FieldDifference(
                DifferenceKind.PROPERTY, f"properties.{name}", expected, found, _told(name, expected, found)
            )


def _told(name: str, expected: Any, found: Any) -> str:
    words = "user properties" if name == "user_property" else name.replace("_", " ")
    if found is None:
        return f"lacks its {words}"
    if expected is None:
        return f"has {words}, which the recorded one has not"
    if isinstance(found, int) and isinstance(expected, int):
        return f"has {words} {found} instead of {expected}"
    # Values of User Properties and binary data may be secrets; reports show them where they may.
    if isinstance(found, str) and isinstance(expected, str):
        return f"has {words} {short(found)} instead of {short(expected)}"
    if isinstance(found, bytes) and isinstance(expected, bytes) and len(found) != len(expected):
        return f"has {words} of {len(found)} bytes instead of {len(expected)}"
    return f"has {'other' if words.endswith('s') else 'another'} {words}"


def signature(packet: Publish) -> Signature:
    """What two deliveries of one message have in common when they mean the same."""
    block = packet.properties or properties.EMPTY
    values = _values(block)
    said = [one for one in values.items() if one[1] != properties.property_default(one[0], packet.packet_type)]
    expires = block.message_expiry_interval is not None
    return packet.qos, packet.retain, expires, tuple(sorted(said, key=itemgetter(0)))

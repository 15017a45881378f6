"""Two packets of a client compared field by field: what was recorded, and what a device sent in its place.

Packet Identifiers, DUP and Topic Aliases are ignored, and so are Reason Strings.  Of passwords, user names and
Authentication Data only counts whether they are there; of Client Identifiers nothing where they were not matched by.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Auth, Connect, Disconnect, Publish, Subscribe, Unsubscribe
from mqttscope.mqtt.properties import BY_NAME, EMPTY, Properties, property_name
from mqttscope.replay.script import Entry
from mqttscope.replay.verify.difference import short

_IGNORED = {BY_NAME[name].identifier for name in ("topic_alias", "reason_string")}
_PRESENCE = {BY_NAME[name].identifier for name in ("authentication_data",)}
_EPHEMERAL = {BY_NAME[name].identifier for name in ("correlation_data",)}
"""Made for one exchange: only whether it is there."""
_DEFAULTS: dict[int, Any] = {
    BY_NAME[name].identifier: value
    for name, value in {
        "session_expiry_interval": 0,
        "receive_maximum": 65_535,
        "topic_alias_maximum": 0,
        "request_response_information": 0,
        "request_problem_information": 1,
        "will_delay_interval": 0,
        "payload_format_indicator": 0,
    }.items()
}
"""What it means when a property is left out (5.0 3.1.2.11, 3.1.3.2, 3.3.2.3)."""
_OPTIONS = ("maximum_qos", "no_local", "retain_as_published", "retain_handling")


@dataclass(slots=True)
class Changed:
    """One field that differs."""

    field: str
    expected: Any
    found: Any
    told: str
    """``has QoS 0 instead of 1``."""


def changed_fields(recorded: Entry, live: Entry, *, identified: bool) -> Iterator[Changed]:
    """What differs between two packets of one type.

    ``identified``: the Client Identifier counts as well.
    """
    before, now = recorded.packet, live.packet
    if isinstance(before, Connect) and isinstance(now, Connect):
        yield from _connect(before, now, identified=identified)
    elif isinstance(before, Publish) and isinstance(now, Publish):
        yield from _publish(recorded, before, live, now)
    elif isinstance(before, Subscribe) and isinstance(now, Subscribe):
        yield from _subscribe(before, now)
    elif isinstance(before, Unsubscribe) and isinstance(now, Unsubscribe):
        yield from _plain("topic_filters", before.topic_filters, now.topic_filters, "other Topic Filters")
    elif isinstance(before, Auth | Disconnect) and isinstance(now, Auth | Disconnect):
        yield from _value("reason_code", before.reason_code or 0, now.reason_code or 0, "Reason Code")
    if isinstance(before, ControlPacket) and isinstance(now, ControlPacket):
        yield from _properties("properties", _block(before), _block(now))


def _connect(before: Connect, now: Connect, *, identified: bool) -> Iterator[Changed]:
    yield from _value("protocol_level", before.protocol_level, now.protocol_level, "protocol level")
    if identified:
        yield from _value("client_identifier", before.client_identifier, now.client_identifier, "Client Identifier")
    yield from _value("clean_start", before.clean_start, now.clean_start, "Clean Start")
    yield from _value("keep_alive", before.keep_alive, now.keep_alive, "Keep Alive")
    for name, words in (("user_name", "user name"), ("password", "password")):
        yield from _presence(name, getattr(before, name), getattr(now, name), words)
    if before.will is None or now.will is None:
        yield from _presence("will", before.will, now.will, "Will")
        return
    yield from _value("will.will_topic", before.will.will_topic, now.will.will_topic, "Will Topic")
    yield from _payload("will.will_payload", before.will.will_payload, now.will.will_payload, "Will Payload")
    yield from _value("will.will_qos", before.will.will_qos, now.will.will_qos, "Will QoS")
    yield from _value("will.will_retain", before.will.will_retain, now.will.will_retain, "Will Retain")
    yield from _properties("will.properties", before.will.properties or EMPTY, now.will.properties or EMPTY)


def _publish(recorded: Entry, before: Publish, live: Entry, now: Publish) -> Iterator[Changed]:
    if recorded.topic is not None and live.topic is not None:
        yield from _value("topic", recorded.topic, live.topic, "topic")
    yield from _value("qos", before.qos, now.qos, "QoS")
    yield from _value("retain", before.retain, now.retain, "RETAIN")
    if not before.missing:
        yield from _payload("payload", before.payload, now.payload, "payload")


def _subscribe(before: Subscribe, now: Subscribe) -> Iterator[Changed]:
    names = [one.topic_filter for one in before.subscriptions], [one.topic_filter for one in now.subscriptions]
    if len(names[0]) != len(names[1]):
        yield Changed(
            "subscriptions", names[0], names[1], f"has {len(names[1])} Topic Filters instead of {len(names[0])}"
        )
        return
    for index, (one, other) in enumerate(zip(before.subscriptions, now.subscriptions, strict=True)):
        at = f"subscriptions[{index}]"
        yield from _value(f"{at}.topic_filter", one.topic_filter, other.topic_filter, "Topic Filter")
        for name in _OPTIONS:
            words = "QoS" if name == "maximum_qos" else name.replace("_", " ")
            yield from _value(
                f"{at}.{name}", getattr(one, name), getattr(other, name), f"{words} for {short(one.topic_filter)}"
            )


def _value(field: str, expected: Any, found: Any, words: str) -> Iterator[Changed]:
    if expected != found:
        yield Changed(field, expected, found, f"has {words} {_said(found)} instead of {_said(expected)}")


def _plain(field: str, expected: Any, found: Any, told: str) -> Iterator[Changed]:
    if expected != found:
        yield Changed(field, expected, found, f"has {told}")


def _payload(field: str, expected: bytes, found: bytes, words: str) -> Iterator[Changed]:
    """Payloads may be secrets: their lengths are told."""
    if expected != found:
        same = len(expected) == len(found)
        yield Changed(
            field,
            expected,
            found,
            f"has another {words}{'' if same else f' of {len(found)} bytes, not {len(expected)}'}",
        )


def _presence(field: str, expected: Any, found: Any, words: str) -> Iterator[Changed]:
    """The values are nobody's business."""
    if (expected is None) != (found is None):
        told = f"lacks its {words}" if found is None else f"has a {words}, which the recorded one has not"
        yield Changed(field, expected is not None, found is not None, told)


def _said(value: Any) -> str:
    return short(value) if isinstance(value, str) else str(int(value)) if isinstance(value, bool | int) else str(value)


def _block(packet: ControlPacket) -> Properties:
    return getattr(packet, "properties", None) or EMPTY


def _values(block: Properties) -> dict[int, Any]:
    found: dict[int, list[Any]] = {}
    for number, value in block.items:
        if number not in _IGNORED:
            found.setdefault(number, []).append(value)
    return {number: values[0] if len(values) == 1 else tuple(values) for number, values in found.items()}


def _properties(path: str, before: Properties, now: Properties) -> Iterator[Changed]:
    if before.items == now.items:
        return
    one, other = _values(before), _values(now)
    for number in dict.fromkeys((*one, *other)):
        expected, found = one.get(number), other.get(number)
        if number in _PRESENCE or number in _EPHEMERAL:
            same = (expected is None) == (found is None)
        else:
            default = _DEFAULTS.get(number)
            same = (default if expected is None else expected) == (default if found is None else found)
        if same:
            continue
        name = property_name(number)
        words = "user properties" if name == "user_property" else name.replace("_", " ")
        if found is None:
            told = f"lacks its {words}"
        elif expected is None:
            told = f"has {words}, which the recorded one has not"
        elif isinstance(found, int) and isinstance(expected, int):
            told = f"has {words} {found} instead of {expected}"
        else:
            told = f"has other {words}"
        yield Changed(f"{path}.{name}", expected, found, told)

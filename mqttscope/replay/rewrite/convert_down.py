"""Packets of 5.0 as packets of 3.1.1, where they say no more than 3.1.1 can.

Without loss are:

* Topic Aliases: the topic is written out.  Topic Alias Maximum and what a server announces of itself in CONNACK is
  left out, since nothing of it is used then.
* Properties that have the value they have where they are absent.
* Session Expiry Interval of CONNECT: Clean Start 1 without one is CleanSession 1, Clean Start 0 with 0xFFFFFFFF is
  CleanSession 0; every other combination has no form in 3.1.1.
* Reason codes of success in acknowledgements of servers (``No matching subscribers`` too, and all of UNSUBACK's), and
  those of CONNACK that have a Connect Return code.

Everything else is a `Loss`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties, property_name
from mqttscope.mqtt.topics import parse_shared
from mqttscope.replay.rewrite.changes import Changes
from mqttscope.replay.script import Entry

NEVER_EXPIRES = 0xFFFFFFFF
"""Session Expiry Interval of a session that does not expire (5.0 3.1.2.11.2)."""
RETURN_CODE_TO_REASON_CODE = {0: 0x00, 1: 0x84, 2: 0x85, 3: 0x88, 4: 0x86, 5: 0x87}
"""Connect Return codes (3.1.1 table 3.1) and the Connect Reason Codes of 5.0 that say the same (5.0 table 3-1)."""
_REASON_CODE_TO_RETURN_CODE = {reason: code for code, reason in RETURN_CODE_TO_REASON_CODE.items()}
_ANY = object()
_CONNECT: Mapping[str, object] = {
    "session_expiry_interval": _ANY,  # judged together with Clean Start
    "receive_maximum": 65_535,
    "topic_alias_maximum": _ANY,
    "request_response_information": 0,
    "request_problem_information": _ANY,
}
_CONNACK: Mapping[str, object] = {
    "assigned_client_identifier": _ANY,
    "receive_maximum": _ANY,
    "topic_alias_maximum": _ANY,
    "maximum_packet_size": _ANY,
    "maximum_qos": _ANY,
    "retain_available": _ANY,
    "wildcard_subscription_available": _ANY,
    "subscription_identifier_available": _ANY,
    "shared_subscription_available": _ANY,
}
_PUBLISH: Mapping[str, object] = {"topic_alias": _ANY, "payload_format_indicator": 0}
_WILL: Mapping[str, object] = {"will_delay_interval": 0, "payload_format_indicator": 0}

_NONE: Mapping[str, object] = {}


class Loss(Exception):  # noqa: N818 - `convert` makes the error of it, with the packet
    """A field that 3.1.1 has no form for."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field
        self.why = why


def to_3_1_1(packet: ControlPacket, entry: Entry, changes: Changes) -> ControlPacket:
    """A new packet that says the same in 3.1.1; raises `Loss`."""
    if isinstance(packet, Auth):
        raise Loss("", "MQTT 3.1.1 has no AUTH")
    if isinstance(packet, Connect):
        return _connect(packet, changes)
    if isinstance(packet, Connack):
        return _connack(packet, changes)
    if isinstance(packet, Publish):
        return _publish(packet, entry, changes)
    if isinstance(packet, Subscribe):
        _without(packet.properties, _NONE, "properties", changes)
        for index, row in enumerate(packet.subscriptions):
            _subscription(row, f"subscriptions[{index}]")
        return replace(packet, properties=None)
    if isinstance(packet, Unsubscribe):
        for index, topic_filter in enumerate(packet.topic_filters):
            _not_shared(topic_filter, f"topic_filters[{index}]")
    elif isinstance(packet, Suback):
        for index, code in enumerate(packet.reason_codes):
            if code not in (0, 1, 2, 0x80):
                raise Loss(f"reason_codes[{index}]", f"0x{code:02x} is no Return Code of MQTT 3.1.1")
    elif isinstance(packet, Unsuback):
        return _unsuback(packet, changes)
    elif isinstance(packet, Disconnect):
        return _disconnect(packet, entry, changes)
    elif isinstance(packet, Puback | Pubrec | Pubrel | Pubcomp):
        _success(packet.reason_code, entry, changes)
        _without(packet.properties, _NONE, "properties", changes)
        return replace(packet, reason_code=None, properties=None)
    else:
        return replace(packet)
    _without(packet.properties, _NONE, "properties", changes)
    return replace(packet, properties=None)


def _without(block: Properties | None, fine: Mapping[str, object], path: str, changes: Changes) -> None:
    """Raise unless the properties can be left out without loss."""
    for number, value in block.items if block is not None else ():
        name = property_name(number)
        if name not in fine or fine[name] not in (_ANY, value):
            shown = value if isinstance(value, int) else ""
            raise Loss(f"{path}.{name}", f"MQTT 3.1.1 has no form for {f'the value {shown}' if shown != '' else 'it'}")
        if name != "topic_alias":
            changes.count("property", f"left out as MQTT 3.1.1 needs none: {name}")


def _connect(packet: Connect, changes: Changes) -> Connect:
    if packet.connect_flags is not None:
        raise Loss("connect_flags", f"0x{packet.connect_flags:02x} does not fit the fields")
    if packet.password is not None and packet.user_name is None:
        raise Loss("password", "MQTT 3.1.1 has none without a User Name (3.1.2-22)")
    if not packet.client_identifier and not packet.clean_start:
        raise Loss("client_identifier", "MQTT 3.1.1 accepts an empty one with CleanSession 1 only (3.1.3-8)")
    _without(packet.properties, _CONNECT, "properties", changes)
    expiry: Any = 0 if packet.properties is None else packet.properties.session_expiry_interval or 0
    if expiry != (0 if packet.clean_start else NEVER_EXPIRES):
        told = f"{expiry} with Clean Start {int(packet.clean_start)} has no form in MQTT 3.1.1"
        raise Loss("properties.session_expiry_interval", told)
    will = packet.will
    if will is not None:
        _without(will.properties, _WILL, "will.properties", changes)
        will = replace(will, properties=None)
    return replace(packet, protocol_level=4, properties=None, will=will)


def _connack(packet: Connack, changes: Changes) -> Connack:
    code = _REASON_CODE_TO_RETURN_CODE.get(packet.reason_code)
    if code is None:
        raise Loss("reason_code", f"0x{packet.reason_code:02x} is no Connect Return code of MQTT 3.1.1")
    _without(packet.properties, _CONNACK, "properties", changes)
    return replace(packet, reason_code=code, properties=None)


def _publish(packet: Publish, entry: Entry, changes: Changes) -> Publish:
    _without(packet.properties, _PUBLISH, "properties", changes)
    topic = packet.topic_name
    if not topic:
        if entry.topic is None:
            raise Loss("topic_name", "the topic of its Topic Alias is not known")
        topic = entry.topic
        changes.count("Topic Alias", "written out as a topic")
    return replace(packet, topic_name=topic, properties=None)


def _subscription(row: Subscription, path: str) -> None:
    _not_shared(row.topic_filter, f"{path}.topic_filter")
    for name in ("no_local", "retain_as_published", "retain_handling", "reserved"):
        value = getattr(row, name)
        if value:
            raise Loss(f"{path}.{name}", f"MQTT 3.1.1 has no form for {name} {int(value)}")


def _not_shared(topic_filter: str, path: str) -> None:
    if parse_shared(topic_filter) is not None:
        raise Loss(path, "MQTT 3.1.1 has no Shared Subscriptions")


def _success(code: int | None, entry: Entry, changes: Changes) -> None:
    if not code:
        return
    if code >= 0x80 or entry.from_client:
        raise Loss("reason_code", f"0x{code:02x} has no form in MQTT 3.1.1")
    changes.count("reason code", f"of success left out: 0x{code:02x}")


def _unsuback(packet: Unsuback, changes: Changes) -> Unsuback:
    for index, code in enumerate(packet.reason_codes or ()):
        if code >= 0x80:
            raise Loss(f"reason_codes[{index}]", f"0x{code:02x} has no form in MQTT 3.1.1")
    changes.count("reason code", "of UNSUBACK left out", len(packet.reason_codes or ()))
    _without(packet.properties, _NONE, "properties", changes)
    return replace(packet, reason_codes=None, properties=None)


def _disconnect(packet: Disconnect, entry: Entry, changes: Changes) -> Disconnect:
    if not entry.from_client:
        raise Loss("", "servers send no DISCONNECT in MQTT 3.1.1")
    if packet.reason_code:
        raise Loss("reason_code", f"0x{packet.reason_code:02x} has no form in MQTT 3.1.1")
    _without(packet.properties, _NONE, "properties", changes)
    return replace(packet, reason_code=None, properties=None)

"""Packets of 5.0 as packets of 3.1.1, where they say no more than 3.1.1 can.

Without loss are:

* Topic Aliases: the topic is written out.  Topic Alias Maximum and what a server announces of itself in CONNACK is
  left out, since nothing of it is used then.
* Properties that have the value they have where they are absent.
* Session Expiry Interval of CONNECT: Clean Start 1 without one is CleanSession 1, Clean Start 0 with 0xFFFFFFFF is
  CleanSession 0; every other combination has no form in 3.1.1.
* Reason codes of success in acknowledgements of servers (``No matching subscribers`` too, and all of UNSUBACK's), and
  those of CONNACK that have a Connect Return code.

Everything else is a `Loss`: all of them are gathered, each with what is said in its place where losses do not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
_FAILURE = 0x80
_UNAVAILABLE, _NOT_AUTHORIZED = 3, 5
_FOR_NOW = frozenset({0x80, 0x83, 0x88, 0x89, 0x97, 0x9C, 0x9D, 0x9F})
"""Reason codes that say less of the client than of the server: it cannot, or not now."""
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
    """A field that the other version has no form for."""

    def __init__(self, field: str, why: str, instead: str = "left out") -> None:
        super().__init__(f"{field}: {why}")
        self.field = field
        """Path of the field in the packet; empty for the packet itself."""
        self.why = why
        self.instead = instead
        """What becomes of it where losses do not matter."""


@dataclass(slots=True)
class Losses:
    """What of one packet cannot be said."""

    found: list[Loss] = field(default_factory=list)

    def add(self, path: str, why: str, instead: str = "left out") -> None:
        """Note one."""
        self.found.append(Loss(path, why, instead))


def to_3_1_1(packet: ControlPacket, entry: Entry, changes: Changes, losses: Losses) -> ControlPacket | None:
    """A new packet that says the same in 3.1.1, as far as it can; ``None`` for one that has no form there at all."""
    if isinstance(packet, Auth):
        losses.add("", "MQTT 3.1.1 has no AUTH")
        return None
    if isinstance(packet, Connect):
        return _connect(packet, changes, losses)
    if isinstance(packet, Connack):
        return _connack(packet, changes, losses)
    if isinstance(packet, Publish):
        return _publish(packet, entry, changes, losses)
    if isinstance(packet, Disconnect):
        return _disconnect(packet, entry, changes, losses)
    if isinstance(packet, Unsuback):
        return _unsuback(packet, changes, losses)
    if isinstance(packet, Subscribe):
        rows = [_subscription(row, f"subscriptions[{at}]", losses) for at, row in enumerate(packet.subscriptions)]
        packet = replace(packet, subscriptions=rows)
    elif isinstance(packet, Unsubscribe):
        for index, topic_filter in enumerate(packet.topic_filters):
            _not_shared(topic_filter, f"topic_filters[{index}]", losses)
    elif isinstance(packet, Suback):
        packet = replace(packet, reason_codes=_granted(packet, losses))
    elif isinstance(packet, Puback | Pubrec | Pubrel | Pubcomp):
        if not _success(packet, entry, changes, losses):
            return None
        packet = replace(packet, reason_code=None)
    else:
        return replace(packet)
    _without(packet.properties, _NONE, "properties", changes, losses)
    return replace(packet, properties=None)


def _without(block: Properties | None, fine: Mapping[str, object], path: str, changes: Changes, losses: Losses) -> None:
    """Leave the properties out; a loss for each that says something."""
    for number, value in block.items if block is not None else ():
        name = property_name(number)
        if name not in fine or fine[name] not in (_ANY, value):
            shown = value if isinstance(value, int) else ""
            told = f"the value {shown}" if shown != "" else "it"
            losses.add(f"{path}.{name}", f"MQTT 3.1.1 has no form for {told}")
        elif name != "topic_alias":
            changes.count("property", f"left out as MQTT 3.1.1 needs none: {name}")


def _connect(packet: Connect, changes: Changes, losses: Losses) -> Connect:
    if packet.connect_flags is not None:
        losses.add("connect_flags", f"0x{packet.connect_flags:02x} does not fit the fields", "made to fit them")
    if packet.password is not None and packet.user_name is None:
        losses.add("password", "MQTT 3.1.1 has none without a User Name (3.1.2-22)")
        packet = replace(packet, password=None)
    clean = packet.clean_start
    if not packet.client_identifier and not clean:
        why = "MQTT 3.1.1 accepts an empty one with CleanSession 1 only (3.1.3-8)"
        losses.add("client_identifier", why, "sent with CleanSession 1")
        clean = True
    _without(packet.properties, _CONNECT, "properties", changes, losses)
    expiry: Any = 0 if packet.properties is None else packet.properties.session_expiry_interval or 0
    if clean == packet.clean_start and expiry != (0 if clean else NEVER_EXPIRES):
        told = f"{expiry} with Clean Start {int(packet.clean_start)} has no form in MQTT 3.1.1"
        losses.add("properties.session_expiry_interval", told, f"CleanSession {int(clean)} instead")
    will = packet.will
    if will is not None:
        _without(will.properties, _WILL, "will.properties", changes, losses)
        will = replace(will, properties=None)
    return replace(packet, protocol_level=4, properties=None, will=will, clean_start=clean, connect_flags=None)


def _connack(packet: Connack, changes: Changes, losses: Losses) -> Connack:
    code = _REASON_CODE_TO_RETURN_CODE.get(packet.reason_code)
    if code is None:
        code = _UNAVAILABLE if packet.reason_code in _FOR_NOW else _NOT_AUTHORIZED
        why = f"0x{packet.reason_code:02x} is no Connect Return code of MQTT 3.1.1"
        losses.add("reason_code", why, f"{code} instead")
    _without(packet.properties, _CONNACK, "properties", changes, losses)
    return replace(packet, reason_code=code, properties=None)


def _publish(packet: Publish, entry: Entry, changes: Changes, losses: Losses) -> Publish | None:
    _without(packet.properties, _PUBLISH, "properties", changes, losses)
    topic = packet.topic_name
    if not topic:
        if entry.topic is None:
            losses.add("topic_name", "the topic of its Topic Alias is not known", "the packet left out")
            return None
        topic = entry.topic
        changes.count("Topic Alias", "written out as a topic")
    return replace(packet, topic_name=topic, properties=None)


def _subscription(row: Subscription, path: str, losses: Losses) -> Subscription:
    _not_shared(row.topic_filter, f"{path}.topic_filter", losses)
    for name in ("no_local", "retain_as_published", "retain_handling", "reserved"):
        value = getattr(row, name)
        if value:
            losses.add(f"{path}.{name}", f"MQTT 3.1.1 has no form for {name} {int(value)}")
    return replace(row, no_local=False, retain_as_published=False, retain_handling=0, reserved=0)


def _not_shared(topic_filter: str, path: str, losses: Losses) -> None:
    if parse_shared(topic_filter) is not None:
        # Brokers that know Shared Subscriptions mostly know them in 3.1.1 as well.
        losses.add(path, "MQTT 3.1.1 has no Shared Subscriptions", "sent as it is")


def _granted(packet: Suback, losses: Losses) -> list[int]:
    codes = []
    for index, code in enumerate(packet.reason_codes):
        if code not in (0, 1, 2, _FAILURE):
            why = f"0x{code:02x} is no Return Code of MQTT 3.1.1"
            losses.add(f"reason_codes[{index}]", why, f"0x{_FAILURE:02x} instead")
            code = _FAILURE
        codes.append(code)
    return codes


def _success(packet: Puback | Pubrec | Pubrel | Pubcomp, entry: Entry, changes: Changes, losses: Losses) -> bool:
    """Whether the acknowledgement is one in 3.1.1 as well."""
    code = packet.reason_code
    if not code:
        return True
    if code < _FAILURE and not entry.from_client:
        changes.count("reason code", f"of success left out: 0x{code:02x}")
        return True
    # A PUBREC that refuses is the end of its exchange; without a code it would be its middle.
    dropped = isinstance(packet, Pubrec) and code >= _FAILURE
    why = f"0x{code:02x} has no form in MQTT 3.1.1"
    losses.add("reason_code", why, "the packet left out" if dropped else "left out")
    return not dropped


def _unsuback(packet: Unsuback, changes: Changes, losses: Losses) -> Unsuback:
    for index, code in enumerate(packet.reason_codes or ()):
        if code >= _FAILURE:
            losses.add(f"reason_codes[{index}]", f"0x{code:02x} has no form in MQTT 3.1.1")
        else:
            changes.count("reason code", "of UNSUBACK left out")
    _without(packet.properties, _NONE, "properties", changes, losses)
    return replace(packet, reason_codes=None, properties=None)


def _disconnect(packet: Disconnect, entry: Entry, changes: Changes, losses: Losses) -> Disconnect | None:
    if not entry.from_client:
        losses.add("", "servers send no DISCONNECT in MQTT 3.1.1")
        return None
    _without(packet.properties, _NONE, "properties", changes, losses)
    if packet.reason_code:
        # The Will is published behind any other code (5.0 3.14.4); in 3.1.1 that takes an end without DISCONNECT.
        why = f"0x{packet.reason_code:02x} has no form in MQTT 3.1.1"
        losses.add("reason_code", why, "the packet left out, so that the Will is published")
        return None
    return replace(packet, reason_code=None, properties=None)

"""Converts recordings to another version of MQTT: 3.1 to 3.1.1 to 5.0, and 5.0 to 3.1.1 if nothing is lost.

Both directions of a connection are converted: a recorded packet of the server becomes the packet that a server of the
other version should send.  Further fields of such a server are unknown: server packets converted to 5.0 have
`UNSAID` properties, and ``None`` stands for the ``reason_codes`` of UNSUBACK and, from 3.1, for Session Present.
Comparisons ignore both.  The bytes of such an UNSUBACK are not well-formed.

`to_3_1_1` converts from 5.0.  Nothing is lost with:

* Topic Aliases: the topic is written out.  Topic Alias Maximum, and the limits that a server announces in CONNACK, are
  left out, since nothing depends on them then.
* Properties with their default value.
* Session Expiry Interval of CONNECT: Clean Start 1 without it becomes CleanSession 1, Clean Start 0 with 0xFFFFFFFF
  becomes CleanSession 0; all other combinations have no form in 3.1.1.
* Reason Codes of success in acknowledgements of servers (``No matching subscribers`` and the codes of UNSUBACK
  included), and Reason Codes of CONNACK that have a Connect Return code.

Everything else is a `ConversionLossError` with its substitute in 3.1.1.  All of them are collected, and
`ConversionError` names the packets and fields; a caller that accepts losses takes the substitutes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mqttscope.errors import MqttscopeError
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import (
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Publish,
    Pubrec,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import EMPTY, Properties, property_name
from mqttscope.mqtt.topics import parse_shared
from mqttscope.replay.rewrite.links import Changes, RewriteError, copy_scripts, drop, set_packet
from mqttscope.replay.script import UNSAID, Script, ScriptEntry

V3_1, V3_1_1, V5 = ProtocolVersion
MAX_KINDS = 40
"""Maximum number of fields that an error names; further ones are counted."""


@dataclass(slots=True, frozen=True)
class LostField:
    """One field that has no form in another version, with its packet."""

    script: Script
    entry: ScriptEntry
    """The recorded packet."""
    loss: ConversionLossError

    @property
    def path(self) -> str:
        """Path with the packet type: ``subscribe.subscriptions[0].no_local``."""
        return f"{self.entry.type}.{self.loss.field}" if self.loss.field else self.entry.type

    @property
    def kind(self) -> str:
        return re.sub(r"\[\d+\]", "[]", self.path)

    @property
    def place(self) -> str:
        """Location for people: ``sensor-1, frame 16``."""
        return f"{self.script.name}, frame {self.entry.frame}" if self.entry.frame else self.script.name


class ConversionError(RewriteError):
    """A recording that cannot be converted to another version; contains all fields that cannot."""

    def __init__(self, lost: Sequence[LostField], version: ProtocolVersion) -> None:
        first = lost[0]
        kinds: dict[str, list[LostField]] = {}
        for loss in lost:
            kinds.setdefault(loss.kind, []).append(loss)
        if len(lost) == 1:
            message = f"{first.place}: {first.path} cannot be converted to MQTT {version.text}: {first.loss.why}"
        else:
            rows = [_loss_summary(those) for those in list(kinds.values())[:MAX_KINDS]]
            if len(kinds) > MAX_KINDS:
                rows.append(f"and other fields: {len(kinds) - MAX_KINDS:,}")
            message = "\n  ".join([f"{len(lost):,} fields cannot be converted to MQTT {version.text}:", *rows])
        super().__init__(message)
        self.lost = list(lost)
        """All fields that cannot be converted, in the order of the recording."""
        self.entry = first.entry
        """The recorded packet of the first one."""
        self.field = first.loss.field
        """Path of the field in the packet; empty for the packet itself."""


def _loss_summary(those: Sequence[LostField]) -> str:
    first = those[0]
    if len(those) == 1:
        return f"{first.path}: {first.loss.why} ({first.place})"
    return f"{first.kind}, {len(those):,} times: {first.loss.why} (first: {first.place})"


def convert(
    scripts: Sequence[Script], version: ProtocolVersion, *, lossy: bool = False
) -> tuple[list[Script], Changes]:
    """Copies of scripts in another version, and the changes made; scripts already in that version are unchanged.

    Raises `ConversionError` for everything without a form in the other version.  ``lossy`` leaves it out instead, when
    5.0 is converted to 3.1.1.
    """
    changes = Changes()
    copies = copy_scripts(scripts)
    lost: list[LostField] = []
    dropped: list[ScriptEntry] = []
    for script, recorded in zip(copies, scripts, strict=True):
        before = script.version
        if before == version:
            continue
        for entry, original in zip(script.entries, recorded.entries, strict=True):
            losses = Losses()
            try:
                if not _entry(script, entry, version, changes, losses):
                    dropped.append(entry)
            except ConversionLossError as error:
                losses.errors.append(error)
                dropped.append(entry)
            lost += (LostField(recorded, original, loss) for loss in losses.errors)
        evidence = f"converted from MQTT {before.text}"
        script.connection = replace(script.connection, version=version, version_evidence=evidence)
        changes.count("connection", f"converted from MQTT {before.text} to {version.text}")
    if lost and not (lossy and version == V3_1_1):
        raise ConversionError(lost, version)
    drop(copies, dropped)
    for loss in lost:
        noun = "field" if loss.loss.field else "packet"
        changes.count(noun, f"without a form in MQTT {version.text}, {loss.loss.instead}: {loss.kind}")
    return copies, changes


def _entry(script: Script, entry: ScriptEntry, version: ProtocolVersion, changes: Changes, losses: Losses) -> bool:
    """Convert an entry; returns whether it has any form in the other version.

    Raises `ConversionLossError` if it cannot be converted.
    """
    packet, before = entry.packet, script.version
    if isinstance(packet, Malformed):
        raise ConversionLossError("", f"it is malformed ({packet.reason})")
    if version == V3_1:
        raise ConversionLossError("", "nothing is converted to MQTT 3.1")
    if before == V5:
        converted = to_3_1_1(packet, entry, changes, losses)
        if converted is not None:
            set_packet(entry, converted, version)
        return converted is not None
    converted = packet
    if before == V3_1:
        converted = _from_3_1(converted, changes)
    if version == V5:
        converted = _to_5_0(converted, entry, changes)
        if entry.resends is not None and entry.resends in script.entries:
            changes.count("PUBLISH packet", "sent again on one connection, which MQTT 5.0 does not allow (4.4.0-1)")
    set_packet(entry, replace(converted), version)
    return True


def _from_3_1(packet: ControlPacket, changes: Changes) -> ControlPacket:
    """Convert from 3.1 to 3.1.1: another protocol name, and the DUP flag only in PUBLISH."""
    if packet.header_flags is not None and not isinstance(packet, Publish):
        # 3.1 lets SUBSCRIBE, UNSUBSCRIBE and PUBREL be sent again with DUP (3.1 section 2.1).
        packet = replace(packet, header_flags=None)
        changes.count(f"{packet.packet_type.name} packet", "without its header flags, which MQTT 3.1.1 reserves")
    if isinstance(packet, Connect):
        if packet.bridge:
            raise ConversionLossError("protocol_level", "it marks a bridge between servers")
        if packet.connect_flags is not None:
            why = f"0x{packet.connect_flags:02x} has bits that MQTT 3.1.1 reserves"
            raise ConversionLossError("connect_flags", why)
        return replace(packet, protocol_name="MQTT", protocol_level=4)
    if isinstance(packet, Connack) and packet.acknowledge_flags is not None:
        return replace(packet, acknowledge_flags=None)
    if isinstance(packet, Subscribe) and any(row.reserved for row in packet.subscriptions):
        return replace(packet, subscriptions=[replace(row, reserved=0) for row in packet.subscriptions])
    return packet


def _to_5_0(packet: ControlPacket, entry: ScriptEntry, changes: Changes) -> ControlPacket:
    if isinstance(packet, Connect):
        return _connect(packet, changes)
    if isinstance(packet, Connack):
        code = RETURN_CODE_TO_REASON_CODE.get(packet.reason_code)
        if code is None:
            raise ConversionLossError("reason_code", f"{packet.reason_code} is not a Connect Return code")
        if code:
            changes.count("Connect Return code", "converted to a Connect Reason Code")
        return replace(packet, reason_code=code, properties=UNSAID)
    if entry.from_client:
        # Acknowledgements and DISCONNECT without a reason code mean success in 5.0.
        return replace(packet, properties=EMPTY) if isinstance(packet, Publish | Subscribe | Unsubscribe) else packet
    if isinstance(packet, Acknowledgement):
        return replace(packet, reason_code=0, properties=UNSAID)
    # SUBACK has the same codes.
    return replace(packet, properties=UNSAID) if isinstance(packet, Publish | Suback | Unsuback) else packet


def _connect(packet: Connect, changes: Changes) -> Connect:
    """Convert CONNECT: CleanSession 0 becomes a resumed session that never expires (5.0 3.1.2.4, 3.1.2.11.2)."""
    if packet.bridge or packet.protocol_level != V3_1_1:
        raise ConversionLossError("protocol_level", f"{packet.protocol_level} is not the level of MQTT 3.1.1")
    if packet.connect_flags is not None:
        raise ConversionLossError("connect_flags", f"0x{packet.connect_flags:02x} does not fit the fields")
    if not packet.client_identifier and not packet.clean_start:
        why = "an empty one with CleanSession 0 is refused before MQTT 5.0 but accepted in 5.0"
        raise ConversionLossError("client_identifier", why)
    block = EMPTY
    if not packet.clean_start:
        block = Properties(session_expiry_interval=NEVER_EXPIRES)
        changes.count("CONNECT packet", "with CleanSession 0: its session is resumed and never expires")
    will = None if packet.will is None else replace(packet.will, properties=EMPTY)
    return replace(packet, protocol_name="MQTT", protocol_level=5, properties=block, will=will)


NEVER_EXPIRES = 0xFFFFFFFF
"""Session Expiry Interval of a session that does not expire (5.0 3.1.2.11.2)."""
RETURN_CODE_TO_REASON_CODE = {0: 0x00, 1: 0x84, 2: 0x85, 3: 0x88, 4: 0x86, 5: 0x87}
"""Connect Return codes (3.1.1 table 3.1) and the equivalent Connect Reason Codes of 5.0 (5.0 table 3-1)."""
_REASON_CODE_TO_RETURN_CODE = {reason: code for code, reason in RETURN_CODE_TO_REASON_CODE.items()}
_FAILURE = 0x80
_UNAVAILABLE, _NOT_AUTHORIZED = 3, 5
_FOR_NOW = frozenset({0x80, 0x83, 0x88, 0x89, 0x97, 0x9C, 0x9D, 0x9F})
"""Reason Codes that blame the server rather than the client: it cannot, or not now."""
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


class ConversionLossError(MqttscopeError):
    """A field without a form in the other version."""

    def __init__(self, field: str, why: str, instead: str = "left out") -> None:
        super().__init__(f"{field}: {why}")
        self.field = field
        """Path of the field in the packet; empty for the packet itself."""
        self.why = why
        self.instead = instead
        """Substitute for callers that accept losses."""


@dataclass(slots=True)
class Losses:
    """Fields of one packet that cannot be converted."""

    errors: list[ConversionLossError] = field(default_factory=list)

    def add(self, path: str, why: str, instead: str = "left out") -> None:
        self.errors.append(ConversionLossError(path, why, instead))


def to_3_1_1(packet: ControlPacket, entry: ScriptEntry, changes: Changes, losses: Losses) -> ControlPacket | None:
    """A new packet with the same meaning in 3.1.1, as far as possible; ``None`` for one without any form there."""
    if isinstance(packet, Auth):
        losses.add("", "MQTT 3.1.1 has no AUTH")
        return None
    if isinstance(packet, Connect):
        return _connect_down(packet, changes, losses)
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
        packet = replace(packet, reason_codes=_granted_codes(packet, losses))
    elif isinstance(packet, Acknowledgement):
        if not _has_form(packet, entry, changes, losses):
            return None
        packet = replace(packet, reason_code=None)
    else:
        return replace(packet)
    _drop_properties(packet.properties, _NONE, "properties", changes, losses)
    return replace(packet, properties=None)


def _drop_properties(
    block: Properties | None, fine: Mapping[str, object], path: str, changes: Changes, losses: Losses
) -> None:
    """Leave the properties out; adds a loss for each property that 3.1.1 cannot express."""
    for number, value in block.items if block is not None else ():
        name = property_name(number)
        if name not in fine or fine[name] not in (_ANY, value):
            subject = f"the value {value}" if isinstance(value, int) else "it"
            losses.add(f"{path}.{name}", f"MQTT 3.1.1 has no form for {subject}")
        elif name != "topic_alias":
            changes.count("property", f"left out, since MQTT 3.1.1 does not need it: {name}")


def _connect_down(packet: Connect, changes: Changes, losses: Losses) -> Connect:
    if packet.connect_flags is not None:
        losses.add("connect_flags", f"0x{packet.connect_flags:02x} does not fit the fields", "made to fit them")
    if packet.password is not None and packet.user_name is None:
        losses.add("password", "MQTT 3.1.1 allows it only with a User Name (3.1.2-22)")
        packet = replace(packet, password=None)
    clean = packet.clean_start
    if not packet.client_identifier and not clean:
        why = "MQTT 3.1.1 accepts an empty one with CleanSession 1 only (3.1.3-8)"
        losses.add("client_identifier", why, "sent with CleanSession 1")
        clean = True
    _drop_properties(packet.properties, _CONNECT, "properties", changes, losses)
    expiry: Any = 0 if packet.properties is None else packet.properties.session_expiry_interval or 0
    if clean == packet.clean_start and expiry != (0 if clean else NEVER_EXPIRES):
        problem = f"{expiry} with Clean Start {int(packet.clean_start)} has no form in MQTT 3.1.1"
        losses.add("properties.session_expiry_interval", problem, f"CleanSession {int(clean)} instead")
    will = packet.will
    if will is not None:
        _drop_properties(will.properties, _WILL, "will.properties", changes, losses)
        will = replace(will, properties=None)
    return replace(packet, protocol_level=4, properties=None, will=will, clean_start=clean, connect_flags=None)


def _connack(packet: Connack, changes: Changes, losses: Losses) -> Connack:
    code = _REASON_CODE_TO_RETURN_CODE.get(packet.reason_code)
    if code is None:
        code = _UNAVAILABLE if packet.reason_code in _FOR_NOW else _NOT_AUTHORIZED
        why = f"0x{packet.reason_code:02x} is not a Connect Return code of MQTT 3.1.1"
        losses.add("reason_code", why, f"{code} instead")
    _drop_properties(packet.properties, _CONNACK, "properties", changes, losses)
    return replace(packet, reason_code=code, properties=None)


def _publish(packet: Publish, entry: ScriptEntry, changes: Changes, losses: Losses) -> Publish | None:
    _drop_properties(packet.properties, _PUBLISH, "properties", changes, losses)
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
        # Brokers that support Shared Subscriptions mostly support them in 3.1.1 as well.
        losses.add(path, "MQTT 3.1.1 has no Shared Subscriptions", "sent as it is")


def _granted_codes(packet: Suback, losses: Losses) -> list[int]:
    codes = []
    for index, code in enumerate(packet.reason_codes):
        if code not in (0, 1, 2, _FAILURE):
            why = f"0x{code:02x} is not a Return Code of MQTT 3.1.1"
            losses.add(f"reason_codes[{index}]", why, f"0x{_FAILURE:02x} instead")
            code = _FAILURE
        codes.append(code)
    return codes


def _has_form(packet: Acknowledgement, entry: ScriptEntry, changes: Changes, losses: Losses) -> bool:
    """Whether the acknowledgement has a form in 3.1.1."""
    code = packet.reason_code
    if not code:
        return True
    if code < _FAILURE and not entry.from_client:
        changes.count("reason code", f"of success left out: 0x{code:02x}")
        return True
    # A PUBREC that refuses is the end of its exchange; without its code the exchange would continue.
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
    _drop_properties(packet.properties, _NONE, "properties", changes, losses)
    return replace(packet, reason_codes=None, properties=None)


def _disconnect(packet: Disconnect, entry: ScriptEntry, changes: Changes, losses: Losses) -> Disconnect | None:
    if not entry.from_client:
        losses.add("", "servers send no DISCONNECT in MQTT 3.1.1")
        return None
    _drop_properties(packet.properties, _NONE, "properties", changes, losses)
    if packet.reason_code:
        # 5.0 publishes the Will after any other code (5.0 3.14.4); in 3.1.1 that takes an end without DISCONNECT.
        why = f"0x{packet.reason_code:02x} has no form in MQTT 3.1.1"
        losses.add("reason_code", why, "the packet left out, so that the Will is published")
        return None
    return replace(packet, reason_code=None, properties=None)

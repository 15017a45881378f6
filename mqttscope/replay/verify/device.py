"""Compares a device at a stand-in with the recorded client that it replaces.

    verification = verify_device([(recorded, live), ...], unplayed=[...])

Packet identifiers, resent messages, times and the number of PINGREQs are ignored.  Packets that could not come because
the server had ended the connection are not judged.

`changed_fields` compares two packets field by field.  It ignores Packet Identifiers, DUP, Topic Aliases and Reason
Strings.  Of passwords, user names and Authentication Data it compares only the presence.  It ignores Client Identifiers
if connections were not matched by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any

from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import PacketType
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.properties import EMPTY
from mqttscope.replay.align import DEVICE_KEYS, MESSAGE_ORDER, Pair, align, displaced
from mqttscope.replay.script import Script, ScriptEntry
from mqttscope.replay.verify.difference import (
    DeviceKind,
    Difference,
    DifferenceKind,
    Tally,
    Verification,
    described,
    reason_text,
    short,
)
from mqttscope.replay.verify.fields import DEVICE_PROPERTIES, FieldDifference, block_of, property_differences

_APART = (packets.Acknowledgement, packets.Pingreq, packets.Disconnect)
"""Packets that are compared separately, or not at all."""
_ENDED = "the server had ended the connection"
_LOST = "the capture lacks some bytes of the client"


@dataclass(slots=True)
class DevicePair:
    """A recorded connection and a live one."""

    recorded: Script
    live: Script
    connect: ScriptEntry | None = None
    """The recorded CONNECT, if the recording was converted to another version for the device."""


def verify_device(
    pairs: Iterable[DevicePair],
    *,
    unplayed: Iterable[Script] = (),
    extra: Iterable[Script] = (),
) -> Verification:
    """Compare devices with recorded clients.

    ``unplayed``: recorded connections that no device made; ``extra``: live ones that the recording does not have.
    """
    verification = Verification()
    for pair in pairs:
        comparison = _DeviceComparison(pair, Tally(pair.recorded))
        comparison.compare()
        verification.differences += sorted(comparison.differences, key=attrgetter("place"))
        verification.tallies.append(comparison.tally)
    single = []
    for script in unplayed:
        message = "No device made this connection."
        single.append(Difference(DeviceKind.NEVER_CONNECTED, script, script.connect, message=message))
    for script in extra:
        message = "A device made a connection that the recording does not have."
        first = next((entry for entry in script.entries if entry.from_client), None)
        single.append(Difference(DeviceKind.EXTRA_CONNECTION, script, None, first, message=message, live_script=script))
    for difference in single:
        verification.differences.append(difference)
        verification.tallies.append(Tally(difference.script))
        verification.tallies[-1].otherwise()
    return verification


@dataclass(slots=True)
class _DeviceComparison:
    """The comparison of one connection."""

    pair: DevicePair
    tally: Tally
    differences: list[Difference] = field(default_factory=list)

    def compare(self) -> None:
        recorded, live = self._client_packets(self.pair.recorded), self._client_packets(self.pair.live)
        matched, missing, extra = match(recorded, live)
        for before, now in matched:
            self._fields(before, now)
        for entry in missing:
            self._missing(entry)
        for entry in extra:
            self._extra(entry)
        self._order(matched)
        self._acknowledgements(matched)
        self._ending()

    def _client_packets(self, script: Script) -> list[ScriptEntry]:
        sent = (entry for entry in script.entries if entry.from_client and entry.resends is None)
        return [entry for entry in sent if not isinstance(entry.packet, _APART)]

    def _add(
        self,
        kind: DifferenceKind | DeviceKind,
        recorded: ScriptEntry | None,
        live: ScriptEntry | None,
        message: str,
        change: tuple[str, Any, Any] = ("", None, None),
    ) -> None:
        """Add a difference; ``change`` is the path of a field with its recorded and its live value."""
        pair = self.pair
        self.differences.append(Difference(kind, pair.recorded, recorded, live, *change, message, pair.live))
        entry = recorded or live
        if entry is None:
            self.tally.otherwise()
        else:
            self.tally.different(entry)

    def _fields(self, before: ScriptEntry, now: ScriptEntry) -> None:
        self.tally.equal(before)
        shown = before
        if self.pair.connect is not None and isinstance(before.packet, packets.Connect):
            shown = self.pair.connect
        for change in changed_fields(shown, now, identified=False):
            self._add(change.kind, shown, now, f"The {described(shown)} {change.phrase}.", change.change)

    def _missing(self, entry: ScriptEntry) -> None:
        """A packet that did not come: a difference, unless the connection had ended."""
        live = self.pair.live
        if self._is_cut(live):
            self.tally.not_judged(entry, _ENDED)
        elif isinstance(entry.packet, Malformed):
            message = "The recorded client sent a malformed packet, the device did not."
            self._add(DeviceKind.MISSING_PACKET, entry, None, message)
        else:
            self._add(DeviceKind.MISSING_PACKET, entry, None, f"The {described(entry)} did not come.")

    def _extra(self, entry: ScriptEntry) -> None:
        recorded = self.pair.recorded
        if isinstance(entry.packet, Malformed):
            message = f"The device sent a malformed packet: {entry.packet.reason.replace('_', ' ')}."
            self._add(DeviceKind.MALFORMED, None, entry, message)
        elif recorded.lost_from_client:
            self.tally.not_judged(entry, _LOST)
        else:
            self._add(DeviceKind.EXTRA_PACKET, None, entry, f"The {described(entry)} is not in the recording.")

    def _order(self, matched: list[Pair]) -> None:
        for moved, _ in displaced(matched, lambda *_: True):
            for before, now in moved:
                self._add(DeviceKind.ORDER, before, now, f"The {described(before)} came at another place in the order.")

    def _acknowledgements(self, matched: list[Pair]) -> None:
        """Compare the device's acknowledgements of deliveries, and its answers to PUBREC."""
        recorded, live = _answers(self.pair.recorded), _answers(self.pair.live)
        live_messages = {id(before): now for before, now in matched}
        deliveries = (entry for entry in self.pair.live.entries if not entry.from_client)
        live_messages |= {id(entry.source): entry for entry in deliveries if entry.source is not None}
        for message, before in recorded.items():
            now = live_messages.get(id(message))
            if now is None or not _have_same_qos(message, now):
                for entry in before.values():
                    self.tally.not_judged(entry, "the answered message is missing at the device, or has another QoS")
                continue
            self._acknowledged(message, before, now, live.pop(now, {}))
        last = max((entry.place for entry in self.pair.recorded.entries if entry.from_client), default=-1)
        for now, answers in live.items():
            source = now.source
            if source is None or now.from_client or source.resends is not None or not _have_same_qos(source, now):
                continue
            for entry in answers.values():
                if last < source.place or self.pair.recorded.lost_from_client:
                    self.tally.not_judged(entry, "the recorded client had ended the connection before")
                else:
                    self._extra_answer(entry, now)

    def _acknowledged(
        self, delivery: ScriptEntry, before: dict[str, ScriptEntry], now: ScriptEntry, answers: dict[str, ScriptEntry]
    ) -> None:
        version = self.pair.recorded.version
        for kind, entry in before.items():
            answer = answers.get(kind)
            if answer is None:
                if kind == "pubrel" and not self._got_pubrec(now):
                    self.tally.not_judged(entry, "the device was not sent the PUBREC that it answers")
                elif self._is_cut(self.pair.live):
                    self.tally.not_judged(entry, _ENDED)
                else:
                    codes = f"The {described(delivery)} was not answered with {kind.upper()}."
                    self._add(DeviceKind.MISSING_ACKNOWLEDGEMENT, entry, None, codes)
                continue
            self.tally.equal(entry)
            expected, got = (getattr(ack.packet, "reason_code", None) or 0 for ack in (entry, answer))
            if expected != got and isinstance(entry.packet, ControlPacket):
                kinds: PacketType = entry.packet.packet_type
                codes = f"{reason_text(kinds, got, version)} instead of {reason_text(kinds, expected, version)}"
                message = f"The {described(delivery)} was answered with {codes}."
                self._add(DeviceKind.REASON_CODE, entry, answer, message, ("reason_code", expected, got))
        for kind, answer in answers.items():
            if kind not in before and kind != "pubrel":
                self._extra_answer(answer, now)

    def _got_pubrec(self, message: ScriptEntry) -> bool:
        """Whether a message of the device was answered with PUBREC while the device could still answer it."""
        disconnect = self.pair.live.first(packets.Disconnect, from_client=True)
        return any(
            entry.answers is message
            and isinstance(entry.packet, packets.Pubrec)
            and (disconnect is None or entry.place < disconnect.place)
            for entry in self.pair.live.entries
        )

    def _extra_answer(self, answer: ScriptEntry, delivery: ScriptEntry) -> None:
        phrase = f"was answered with {answer.type.upper()}, which the recorded client did not send"
        self._add(DeviceKind.EXTRA_ACKNOWLEDGEMENT, None, answer, f"The {described(delivery)} {phrase}.")

    def _is_cut(self, live: Script) -> bool:
        """Whether the server ended the connection of a device that had not left."""
        return live.ending.by == "server" and live.first(packets.Disconnect, from_client=True) is None

    def _ending(self) -> None:
        """Compare the DISCONNECT, and which side ended the connection."""
        recorded, live = self.pair.recorded, self.pair.live
        before, now = (script.first(packets.Disconnect, from_client=True) for script in (recorded, live))
        if before is not None and now is not None:
            self.tally.equal(before)
            for change in changed_fields(before, now, identified=False):
                kind = DeviceKind.REASON_CODE if change.field == "reason_code" else change.kind
                self._add(kind, before, now, f"The DISCONNECT {change.phrase}.", change.change)
        elif before is not None:
            if live.ending.by == "server":
                self.tally.not_judged(before, _ENDED)
                return
            is_open = live.ending.how == "open"
            behaviour = "still holds the connection" if is_open else "ended the connection without a DISCONNECT"
            self._add(DeviceKind.CLOSE, before, None, f"The device {behaviour}, the recorded client sent a DISCONNECT.")
        elif recorded.ending.by == "client" and live.ending.by != "server":
            damaged = any(entry.from_client and isinstance(entry.packet, Malformed) for entry in recorded.entries)
            if now is not None and not damaged:
                message = "sent a DISCONNECT, the recorded client ended the connection without one"
                self._add(DeviceKind.CLOSE, None, now, f"The device {message}.")
            elif now is None and live.ending.how == "open":
                message = "The device still holds the connection, the recorded client ended it."
                self._add(DeviceKind.CLOSE, None, None, message)
        elif recorded.ending.by == "server" and live.ending.by == "client" and now is None:
            self._add(DeviceKind.CLOSE, None, None, "The device ended the connection, the recorded client did not.")


def match(
    recorded: Sequence[ScriptEntry], live: Sequence[ScriptEntry]
) -> tuple[list[Pair], list[ScriptEntry], list[ScriptEntry]]:
    """Pairs of corresponding packets, and the packets of both sides without a counterpart.

    Equal packets are paired first; then messages with one topic, messages with one payload, and requests of one type.
    The remaining messages are paired in their order, if both sides have the same number.
    """
    pairs, left, right = align(recorded, live, DEVICE_KEYS)
    counts = [sum(isinstance(entry.packet, packets.Publish) for entry in side) for side in (left, right)]
    if counts[0] == counts[1]:
        # As many messages came as are missing: topic and payload have changed.
        more, left, right = align(left, right, MESSAGE_ORDER)
        pairs += more
    return pairs, left, right


def _answers(script: Script) -> dict[ScriptEntry, dict[str, ScriptEntry]]:
    """Acknowledgements by the client, by message of this connection: of deliveries, and PUBREL; each once."""
    own_entries = {id(entry) for entry in script.entries}
    by_message: dict[ScriptEntry, dict[str, ScriptEntry]] = {}
    for entry in script.entries:
        message = entry.answers
        if message is not None and message.resends is not None and id(message.resends) in own_entries:
            message = message.resends
        answers = entry.from_client and isinstance(entry.packet, packets.Acknowledgement)
        if message is not None and id(message) in own_entries and answers:
            by_message.setdefault(message, {}).setdefault(entry.type, entry)
    return by_message


def _have_same_qos(recorded: ScriptEntry, live: ScriptEntry) -> bool:
    before, now = recorded.packet, live.packet
    return isinstance(before, packets.Publish) and isinstance(now, packets.Publish) and before.qos == now.qos


_OPTIONS = ("maximum_qos", "no_local", "retain_as_published", "retain_handling")

_changed = partial(FieldDifference, DeviceKind.FIELD)
# Also for DISCONNECT: without the property the value of CONNECT applies, which is mostly the default.
_properties = partial(property_differences, DEVICE_PROPERTIES, PacketType.CONNECT)


def changed_fields(recorded: ScriptEntry, live: ScriptEntry, *, identified: bool) -> Iterator[FieldDifference]:
    """Differences between two packets of one type.

    ``identified``: whether the Client Identifier is compared as well.
    """
    before, now = recorded.packet, live.packet
    if isinstance(before, packets.Connect) and isinstance(now, packets.Connect):
        yield from _connect(before, now, identified=identified)
    elif isinstance(before, packets.Publish) and isinstance(now, packets.Publish):
        yield from _publish(recorded, before, live, now)
    elif isinstance(before, packets.Subscribe) and isinstance(now, packets.Subscribe):
        yield from _subscribe(before, now)
    elif isinstance(before, packets.Unsubscribe) and isinstance(now, packets.Unsubscribe):
        if before.topic_filters != now.topic_filters:
            yield _changed("topic_filters", before.topic_filters, now.topic_filters, "has other Topic Filters")
    elif isinstance(before, packets.Auth | packets.Disconnect) and isinstance(now, packets.Auth | packets.Disconnect):
        yield from _value("reason_code", before.reason_code or 0, now.reason_code or 0, "Reason Code")
    if isinstance(before, ControlPacket) and isinstance(now, ControlPacket):
        yield from _properties("properties", block_of(before), block_of(now))


def _connect(before: packets.Connect, now: packets.Connect, *, identified: bool) -> Iterator[FieldDifference]:
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


def _publish(
    recorded: ScriptEntry, before: packets.Publish, live: ScriptEntry, now: packets.Publish
) -> Iterator[FieldDifference]:
    if recorded.topic is not None and live.topic is not None:
        yield from _value("topic", recorded.topic, live.topic, "topic")
    yield from _value("qos", before.qos, now.qos, "QoS")
    yield from _value("retain", before.retain, now.retain, "RETAIN")
    if not before.missing:
        yield from _payload("payload", before.payload, now.payload, "payload")


def _subscribe(before: packets.Subscribe, now: packets.Subscribe) -> Iterator[FieldDifference]:
    names = [row.topic_filter for row in before.subscriptions], [row.topic_filter for row in now.subscriptions]
    if len(names[0]) != len(names[1]):
        yield _changed(
            "subscriptions", names[0], names[1], f"has {len(names[1])} Topic Filters instead of {len(names[0])}"
        )
        return
    for index, (subscription, other) in enumerate(zip(before.subscriptions, now.subscriptions, strict=True)):
        at = f"subscriptions[{index}]"
        yield from _value(f"{at}.topic_filter", subscription.topic_filter, other.topic_filter, "Topic Filter")
        for name in _OPTIONS:
            words = "QoS" if name == "maximum_qos" else name.replace("_", " ")
            values = getattr(subscription, name), getattr(other, name)
            yield from _value(f"{at}.{name}", *values, f"{words} for {short(subscription.topic_filter)}")


def _value(field: str, expected: Any, actual: Any, words: str) -> Iterator[FieldDifference]:
    if expected != actual:
        yield _changed(field, expected, actual, f"has {words} {_value_text(actual)} instead of {_value_text(expected)}")


def _payload(field: str, expected: bytes, actual: bytes, words: str) -> Iterator[FieldDifference]:
    """Compare payloads, which may be secret: only their lengths are reported."""
    if expected != actual:
        sizes = "" if len(expected) == len(actual) else f" of {len(actual)} bytes, not {len(expected)}"
        yield _changed(field, expected, actual, f"has another {words}{sizes}")


def _presence(field: str, expected: Any, actual: Any, words: str) -> Iterator[FieldDifference]:
    if (expected is None) != (actual is None):
        phrase = f"lacks its {words}" if actual is None else f"has a {words}, which the recorded one does not have"
        yield _changed(field, expected is not None, actual is not None, phrase)


def _value_text(value: Any) -> str:
    return short(value) if isinstance(value, str) else str(int(value)) if isinstance(value, bool | int) else str(value)

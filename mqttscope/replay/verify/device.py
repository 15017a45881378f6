"""Compares a device at a stand-in with the recorded client whose place it took.

    found = verify_device([(recorded, live), ...], unplayed=[...])

Packet identifiers, messages sent again, times and the number of PINGREQs do not count.  What could not happen because
the server had ended the connection is not judged.

`changed_fields` compares two packets field by field.  It ignores Packet Identifiers, DUP, Topic Aliases and Reason
Strings.  Passwords, user names and Authentication Data only have to be present or absent alike; Client Identifiers do
not count where connections were not matched by them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any

from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import PacketType
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.properties import EMPTY, USER_PROPERTY, Properties, property_default, property_name
from mqttscope.replay.script import Entry, Script
from mqttscope.replay.verify.deliveries import align, longest_rise
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
from mqttscope.replay.verify.fields import FieldDifference, block_of, numbers_of

_APART = (packets.Acknowledgement, packets.Pingreq, packets.Disconnect)
"""Compared by themselves, or not at all."""
_ENDED = "the server had ended the connection"
_LOST = "the capture lacks a part of what the client said"


@dataclass(slots=True)
class DevicePair:
    """A recorded connection and a live one."""

    recorded: Script
    live: Script
    connect: Entry | None = None
    """The recorded CONNECT where the recording was converted to another version for the device."""


def verify_device(
    pairs: Iterable[DevicePair],
    *,
    unplayed: Iterable[Script] = (),
    extra: Iterable[Script] = (),
) -> Verification:
    """Compare devices with recorded clients.

    ``unplayed``: recorded connections that no device made; ``extra``: live ones that the recording does not have.
    """
    found = Verification()
    for pair in pairs:
        one = _Comparison(pair, Tally(pair.recorded))
        one.compare()
        found.differences += sorted(one.differences, key=attrgetter("place"))
        found.tallies.append(one.tally)
    single = []
    for script in unplayed:
        message = "No device made this connection."
        single.append(Difference(DeviceKind.NEVER_CONNECTED, script, script.connect, message=message))
    for script in extra:
        message = "A device made a connection that the recording does not have."
        first = next((one for one in script.entries if one.from_client), None)
        made = Difference(DeviceKind.EXTRA_CONNECTION, script, None, first, message=message, live_script=script)
        single.append(made)
    for difference in single:
        found.differences.append(difference)
        found.tallies.append(Tally(difference.script))
        found.tallies[-1].otherwise()
    return found


@dataclass(slots=True)
class _Comparison:
    """One connection."""

    pair: DevicePair
    tally: Tally
    differences: list[Difference] = field(default_factory=list)

    def compare(self) -> None:
        """Everything."""
        recorded, live = self._said(self.pair.recorded), self._said(self.pair.live)
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

    def _said(self, script: Script) -> list[Entry]:
        """Packets of the client that are compared, each message once."""
        sent = (one for one in script.entries if one.from_client and one.resends is None)
        return [one for one in sent if not isinstance(one.packet, _APART)]

    def _add(
        self,
        kind: DifferenceKind | DeviceKind,
        recorded: Entry | None,
        live: Entry | None,
        message: str,
        change: tuple[str, Any, Any] = ("", None, None),
    ) -> None:
        """Take a difference; ``change`` has the path of a field and its values, recorded and live."""
        pair = self.pair
        self.differences.append(Difference(kind, pair.recorded, recorded, live, *change, message, pair.live))
        entry = recorded or live
        if entry is None:
            self.tally.otherwise()
        else:
            self.tally.different(entry)

    def _fields(self, before: Entry, now: Entry) -> None:
        self.tally.equal(before)
        shown = before
        if self.pair.connect is not None and isinstance(before.packet, packets.Connect):
            shown = self.pair.connect
        for one in changed_fields(shown, now, identified=False):
            self._add(one.kind, shown, now, f"The {described(shown)} {one.told}.", one.change)

    def _missing(self, entry: Entry) -> None:
        """A packet that did not come: a difference, unless it could not."""
        live = self.pair.live
        if self._is_cut(live):
            self.tally.not_judged(entry, _ENDED)
        elif isinstance(entry.packet, Malformed):
            told = "The recorded client sent a malformed packet, the device did not."
            self._add(DeviceKind.MISSING_PACKET, entry, None, told)
        else:
            self._add(DeviceKind.MISSING_PACKET, entry, None, f"The {described(entry)} did not come.")

    def _extra(self, entry: Entry) -> None:
        recorded = self.pair.recorded
        if isinstance(entry.packet, Malformed):
            told = f"The device sent a malformed packet: {entry.packet.reason.replace('_', ' ')}."
            self._add(DeviceKind.MALFORMED, None, entry, told)
        elif recorded.lost_from_client:
            self.tally.not_judged(entry, _LOST)
        else:
            self._add(DeviceKind.EXTRA_PACKET, None, entry, f"The {described(entry)} is not in the recording.")

    def _order(self, matched: list[tuple[Entry, Entry]]) -> None:
        matched = sorted(matched, key=lambda one: one[0].place)
        kept = longest_rise([live.place for _, live in matched])
        for index, (before, now) in enumerate(matched):
            if index not in kept:
                self._add(DeviceKind.ORDER, before, now, f"The {described(before)} came at another place in the order.")

    def _acknowledgements(self, matched: list[tuple[Entry, Entry]]) -> None:
        """What the device said to deliveries that it got, and to PUBREC."""
        recorded, live = _answers(self.pair.recorded), _answers(self.pair.live)
        asked = {id(before): now for before, now in matched}
        asked |= {
            id(one.source): one for one in self.pair.live.entries if one.source is not None and not one.from_client
        }
        for message, before in recorded.items():
            now = asked.get(id(message))
            if now is None or not _alike(message, now):
                for entry in before.values():
                    self.tally.not_judged(entry, "the device did not have, or not with this QoS, what it answers")
                continue
            self._acknowledged(message, before, now, live.pop(now, {}))
        last = max((one.place for one in self.pair.recorded.entries if one.from_client), default=-1)
        for now, found in live.items():
            source = now.source
            if source is None or now.from_client or source.resends is not None or not _alike(source, now):
                continue
            for entry in found.values():
                if last < source.place or self.pair.recorded.lost_from_client:
                    self.tally.not_judged(entry, "the recorded client had ended the connection before")
                else:
                    self._extra_answer(entry, now)

    def _acknowledged(self, delivery: Entry, before: dict[str, Entry], now: Entry, found: dict[str, Entry]) -> None:
        version = self.pair.recorded.version
        for kind, entry in before.items():
            answer = found.get(kind)
            if answer is None:
                if kind == "pubrel" and not self._received(now):
                    self.tally.not_judged(entry, "the device was not sent the PUBREC that it answers")
                elif self._is_cut(self.pair.live):
                    self.tally.not_judged(entry, _ENDED)
                else:
                    told = f"The {described(delivery)} was not answered with {kind.upper()}."
                    self._add(DeviceKind.MISSING_ACKNOWLEDGEMENT, entry, None, told)
                continue
            self.tally.equal(entry)
            expected, got = (getattr(one.packet, "reason_code", None) or 0 for one in (entry, answer))
            if expected != got and isinstance(entry.packet, ControlPacket):
                kinds: PacketType = entry.packet.packet_type
                told = f"{reason_text(kinds, got, version)} instead of {reason_text(kinds, expected, version)}"
                message = f"The {described(delivery)} was answered with {told}."
                self._add(DeviceKind.REASON_CODE, entry, answer, message, ("reason_code", expected, got))
        for kind, answer in found.items():
            if kind not in before and kind != "pubrel":
                self._extra_answer(answer, now)

    def _received(self, message: Entry) -> bool:
        """Whether a message of the device was answered with PUBREC while the device could still answer that."""
        left = self.pair.live.first(packets.Disconnect, from_client=True)
        return any(
            one.answers is message
            and isinstance(one.packet, packets.Pubrec)
            and (left is None or one.place < left.place)
            for one in self.pair.live.entries
        )

    def _extra_answer(self, answer: Entry, delivery: Entry) -> None:
        told = f"was answered with {answer.type.upper()}, which the recorded client did not send"
        self._add(DeviceKind.EXTRA_ACKNOWLEDGEMENT, None, answer, f"The {described(delivery)} {told}.")

    def _is_cut(self, live: Script) -> bool:
        """Whether the server ended the connection of a device that had not left."""
        return live.ending.by == "server" and live.first(packets.Disconnect, from_client=True) is None

    def _ending(self) -> None:
        """DISCONNECT or not, and who ended the connection."""
        recorded, live = self.pair.recorded, self.pair.live
        before, now = (script.first(packets.Disconnect, from_client=True) for script in (recorded, live))
        if before is not None and now is not None:
            self.tally.equal(before)
            for one in changed_fields(before, now, identified=False):
                kind = DeviceKind.REASON_CODE if one.field == "reason_code" else one.kind
                self._add(kind, before, now, f"The DISCONNECT {one.told}.", one.change)
        elif before is not None:
            if live.ending.by == "server":
                self.tally.not_judged(before, _ENDED)
                return
            is_open = live.ending.how == "open"
            how = "still holds the connection" if is_open else "ended the connection without a DISCONNECT"
            self._add(DeviceKind.CLOSE, before, None, f"The device {how}, the recorded client sent a DISCONNECT.")
        elif recorded.ending.by == "client" and live.ending.by != "server":
            damaged = any(one.from_client and isinstance(one.packet, Malformed) for one in recorded.entries)
            if now is not None and not damaged:
                told = "sent a DISCONNECT, the recorded client ended the connection without one"
                self._add(DeviceKind.CLOSE, None, now, f"The device {told}.")
            elif now is None and live.ending.how == "open":
                told = "The device still holds the connection, the recorded client ended it."
                self._add(DeviceKind.CLOSE, None, None, told)
        elif recorded.ending.by == "server" and live.ending.by == "client" and now is None:
            self._add(DeviceKind.CLOSE, None, None, "The device ended the connection, the recorded client did not.")


def match(
    recorded: Sequence[Entry], live: Sequence[Entry]
) -> tuple[list[tuple[Entry, Entry]], list[Entry], list[Entry]]:
    """Pairs of packets that stand for each other, and those of both sides that nothing stands for.

    The same come first; then messages with one topic, then those with one payload, then requests of one type; messages
    that are left at last stand for each other in their order, if they are equally many.
    """
    pairs, left, right = align(recorded, live, [partial(_key, level=level) for level in range(4)])
    messages = [[one for one in side if isinstance(one.packet, packets.Publish)] for side in (left, right)]
    if messages[0] and len(messages[0]) == len(messages[1]):
        # As many as are missing came otherwise: topic and payload have changed.
        pairs += zip(*messages, strict=True)
        left, right = ([one for one in side if not isinstance(one.packet, packets.Publish)] for side in (left, right))
    return pairs, left, right


def _key(entry: Entry, level: int) -> Hashable | None:
    packet = entry.packet
    kind = entry.type
    if isinstance(packet, packets.Publish):
        return (
            (kind, entry.topic, packet.payload, packet.qos),
            (kind, entry.topic, packet.payload),
            (kind, entry.topic),
            ((kind, packet.payload) if packet.payload else None),
        )[level]
    if isinstance(packet, Malformed):
        return (kind, packet.raw) if level < 3 else None
    said = repr(packet) if level == 0 else _filters(packet) if level < 3 else None
    return kind, said


def _filters(packet: ControlPacket) -> Hashable:
    if hasattr(packet, "subscriptions"):
        return frozenset(one.topic_filter for one in packet.subscriptions)
    return frozenset(getattr(packet, "topic_filters", ()))


def _answers(script: Script) -> dict[Entry, dict[str, Entry]]:
    """What the client answered to messages of this connection: to deliveries, and PUBREL to its own; once each."""
    mine = {id(one) for one in script.entries}
    found: dict[Entry, dict[str, Entry]] = {}
    for entry in script.entries:
        about = entry.answers
        if about is not None and about.resends is not None and id(about.resends) in mine:
            about = about.resends
        answers = entry.from_client and isinstance(entry.packet, packets.Acknowledgement)
        if about is not None and id(about) in mine and answers:
            found.setdefault(about, {}).setdefault(entry.type, entry)
    return found


def _alike(recorded: Entry, live: Entry) -> bool:
    before, now = recorded.packet, live.packet
    return isinstance(before, packets.Publish) and isinstance(now, packets.Publish) and before.qos == now.qos


_IGNORED = numbers_of("topic_alias", "reason_string")
_PRESENCE = numbers_of("authentication_data", "correlation_data")
"""Secret, or made for one exchange: only whether it is there."""
_OPTIONS = ("maximum_qos", "no_local", "retain_as_published", "retain_handling")

_changed = partial(FieldDifference, DeviceKind.FIELD)


def changed_fields(recorded: Entry, live: Entry, *, identified: bool) -> Iterator[FieldDifference]:
    """What differs between two packets of one type.

    ``identified``: the Client Identifier counts as well.
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


def _publish(recorded: Entry, before: packets.Publish, live: Entry, now: packets.Publish) -> Iterator[FieldDifference]:
    if recorded.topic is not None and live.topic is not None:
        yield from _value("topic", recorded.topic, live.topic, "topic")
    yield from _value("qos", before.qos, now.qos, "QoS")
    yield from _value("retain", before.retain, now.retain, "RETAIN")
    if not before.missing:
        yield from _payload("payload", before.payload, now.payload, "payload")


def _subscribe(before: packets.Subscribe, now: packets.Subscribe) -> Iterator[FieldDifference]:
    names = [one.topic_filter for one in before.subscriptions], [one.topic_filter for one in now.subscriptions]
    if len(names[0]) != len(names[1]):
        yield _changed(
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


def _value(field: str, expected: Any, found: Any, words: str) -> Iterator[FieldDifference]:
    if expected != found:
        yield _changed(field, expected, found, f"has {words} {_said(found)} instead of {_said(expected)}")


def _payload(field: str, expected: bytes, found: bytes, words: str) -> Iterator[FieldDifference]:
    """Payloads may be secrets: their lengths are told."""
    if expected != found:
        sizes = "" if len(expected) == len(found) else f" of {len(found)} bytes, not {len(expected)}"
        yield _changed(field, expected, found, f"has another {words}{sizes}")


def _presence(field: str, expected: Any, found: Any, words: str) -> Iterator[FieldDifference]:
    if (expected is None) != (found is None):
        told = f"lacks its {words}" if found is None else f"has a {words}, which the recorded one has not"
        yield _changed(field, expected is not None, found is not None, told)


def _said(value: Any) -> str:
    return short(value) if isinstance(value, str) else str(int(value)) if isinstance(value, bool | int) else str(value)


def _values(block: Properties) -> dict[int, Any]:
    found: dict[int, list[Any]] = {}
    for number, value in block.items:
        if number not in _IGNORED:
            found.setdefault(number, []).append(value)
    return {
        number: values[0] if len(values) == 1 and number != USER_PROPERTY else tuple(values)
        for number, values in found.items()
    }


def _properties(path: str, before: Properties, now: Properties) -> Iterator[FieldDifference]:
    if before.items == now.items:
        return
    one, other = _values(before), _values(now)
    for number in dict.fromkeys((*one, *other)):
        expected, found = one.get(number), other.get(number)
        if number in _PRESENCE:
            same = (expected is None) == (found is None)
        else:
            # Of DISCONNECT too, where leaving it out means what CONNECT said: mostly the same.
            default = property_default(number, PacketType.CONNECT)
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
        yield _changed(f"{path}.{name}", expected, found, told)

"""Summarises each packet in one line: the main fields of its type, for text and ladder.

`PacketSummary` adds fields until the line is full.  `TopicNames` shortens topics if there is little room: levels that
all topics share are dropped first, the last level is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mqttscope.events import PacketEvent
from mqttscope.mqtt import ControlPacket, PacketType, Properties, ProtocolVersion, packets
from mqttscope.mqtt.constants import reason_name
from mqttscope.mqtt.properties import BY_NAME, LISTS, USER_PROPERTY, property_name
from mqttscope.mqtt.wire import counted
from mqttscope.report.base import View
from mqttscope.report.escape import cells
from mqttscope.report.payload import PayloadView
from mqttscope.report.public import PublicPacket, decoded_of
from mqttscope.report.style import Line, Painter
from mqttscope.report.when import duration, seconds
from mqttscope.secrets.credentials import starred_name
from mqttscope.secrets.packets import hides_payload

MAX_LEVELS = 32
"""Maximum number of topic levels compared; deeper levels are treated as one."""
SHORTEST_LEVEL = 5
"""Minimum columns of a shortened level that differs between topics."""
_TOPIC_ALIAS = BY_NAME["topic_alias"].identifier
_FORMAT_INDICATOR = BY_NAME["payload_format_indicator"].identifier
_LEVELS = frozenset(map(int, ProtocolVersion))


class TopicNames:
    """Remembers level by level whether the topics seen differ."""

    def __init__(self, painter: Painter) -> None:
        self.painter = painter
        self._common: list[str | None] = []
        """The level shared by all topics seen; ``None`` if they differ."""

    def learn(self, topic: str) -> None:
        """Compare a topic with the topics seen before."""
        common = self._common
        for at, level in enumerate(topic.split("/", MAX_LEVELS)):
            if at == len(common):
                common.append(level[:256])
            elif common[at] is not None and common[at] != level[:256]:
                common[at] = None

    def short(self, topic: str, room: int) -> str:
        """A topic as escaped text in at most ``room`` columns.

        Levels shared by all topics are dropped first, longest first; then the other levels are shortened.  The last
        level is kept as long as it fits, unless all topics share it too.
        """
        painter = self.painter
        if len(topic) > 16 * room:
            return painter.name(topic, room)
        levels = topic.split("/", MAX_LEVELS)
        shown = [painter.safe(level) for level in levels]
        if len(shown) > 1:
            same = [
                at for at, level in enumerate(levels[:-1]) if at < len(self._common) and self._common[at] == level[:256]
            ]
            for at in sorted(same, key=lambda at: -cells(shown[at])):
                shown[at] = painter.ellipsis
                if cells(text := self._joined(shown)) <= room:
                    return text
            for at in range(len(shown) - 1):
                if at not in same:
                    shown[at] = painter.name(levels[at], SHORTEST_LEVEL)
                    if cells(text := self._joined(shown)) <= room:
                        return text
            at = len(levels) - 1
            last, before = f"{painter.ellipsis}/{shown[-1]}", f"{self._joined(shown[:-1])}/"
            differs = at >= len(self._common) or self._common[at] is None
            if differs and cells(last) <= room:
                return last
            left = room - cells(before)
            if left >= SHORTEST_LEVEL - 1:
                return before + painter.name(levels[-1], left)
            if cells(last) <= room:
                return last
        return painter.name(topic, room)

    def _joined(self, shown: list[str]) -> str:
        """Levels as one text; neighbouring dropped levels become one ellipsis."""
        ellipsis = self.painter.ellipsis
        parts = [level for at, level in enumerate(shown) if level != ellipsis or not at or shown[at - 1] != ellipsis]
        return "/".join(parts)


MAX_TOPICS = 10_000
"""Maximum number of escaped topics cached; topics recur."""
MAX_KEPT_TOPIC = 256
"""Maximum characters of a cached topic."""
MAX_LISTED = 20
"""Maximum number of Topic Filters and reason codes per line; further ones are counted."""
MIN_PAYLOAD = 16
"""Minimum columns reserved for the payload after a topic."""
NARROW_PAYLOAD = 7
"""Minimum columns reserved for the payload in lines below `NARROW_LINE` columns, to keep more of the topic."""
NARROW_LINE = 100
_AFTER_CELLS = 12
"""Columns reserved for the time after a topic."""
NAME_CELLS = 60
"""Maximum columns of a name in a list."""

_FLAGS = tuple(
    f"q{bits >> 1 & 3}" + (" dup" if bits & 8 else "") + (" retain" if bits & 1 else "") for bits in range(16)
)


class PacketSummary:
    """Describes packets: `describe` adds the main fields of a packet until the line is full.

    A packet shown ``alone`` has no connection state, so the request that it answers is not shown.
    """

    def __init__(self, view: View, painter: Painter, *, alone: bool = False) -> None:
        self.painter = painter
        self.alone = alone
        self.payload = PayloadView.from_view(view)
        self.show_secrets = view.show_secrets
        self.names = TopicNames(painter)
        self._keep = NARROW_PAYLOAD if 0 < view.width < NARROW_LINE else MIN_PAYLOAD
        self._topics: dict[str, tuple[str, int]] = {}
        self._by_type: dict[int, Callable[[Line, PacketEvent, Any], None]] = {
            PacketType.CONNECT: self._connect,
            PacketType.CONNACK: self._connack,
            PacketType.PUBLISH: self._publish,
            PacketType.PUBACK: self._acknowledgement,
            PacketType.PUBREC: self._acknowledgement,
            PacketType.PUBREL: self._acknowledgement,
            PacketType.PUBCOMP: self._acknowledgement,
            PacketType.SUBSCRIBE: self._subscribe,
            PacketType.SUBACK: self._answers,
            PacketType.UNSUBSCRIBE: self._unsubscribe,
            PacketType.UNSUBACK: self._answers,
            PacketType.PINGREQ: self._ping,
            PacketType.PINGRESP: self._ping,
            PacketType.DISCONNECT: self._reason_only,
            PacketType.AUTH: self._reason_only,
        }

    def describe(self, line: Line, event: PacketEvent) -> None:
        """Add the main fields of a packet."""
        packet = event.packet
        self._by_type[packet.packet_type](line, event, packet)
        if packet.header_flags is not None:
            line.add(f" flags=0x{packet.header_flags:x}", "note")

    def _publish(self, line: Line, event: PacketEvent, packet: packets.Publish) -> None:
        head = _FLAGS[packet.raw[0] & 15] if packet.raw else f"q{packet.qos}"
        identifier = packet.packet_identifier
        line.add(f"{head} " if identifier is None else f"{head} id={identifier} ")
        keep = min(self._keep, len(packet.payload) + 4) if packet.payload else len("  (empty)")
        block = packet.properties
        has_properties = block is not None and block.items
        alias = block.topic_alias if has_properties else None  # type: ignore[union-attr]
        self._topic(line, packet.topic_name, event.topic, alias, keep)
        content_type = indicator = None
        if has_properties:
            content_type, indicator = block.content_type, block.payload_format_indicator  # type: ignore[union-attr]
            self._properties(line, block, keep)
        line.add("  ")
        if line.left < 0:
            return
        if isinstance(event, PublicPacket) and hides_payload(packet, event.connection.side(event.direction).doubt):
            line.add(f"({counted(len(packet.payload), 'byte')}, hidden)", "dim")
            return
        shown = self.payload.preview(
            packet.payload, line.left + 1, content_type=content_type, indicator=indicator, missing=packet.missing,
            decoded=decoded_of(event),
        )  # fmt: skip
        line.add(shown, "payload" if packet.payload else "dim")

    def _topic(self, line: Line, name: str, resolved: str | None, alias: int | None, keep: int) -> None:
        """Add the topic of a PUBLISH, with its alias."""
        topic = name or resolved
        if topic is None:
            line.add("topic ?" if alias is not None else "(no topic)", "error")
        else:
            known = self._topics.get(topic)
            if known is None:
                known = self._escaped(topic)
            shown, width = known
            room = max(8, line.left - keep - (0 if alias is None else 10))
            if width > room:
                shown = self.names.short(topic, room)
            line.add(shown, "topic")
        if alias is not None:
            line.add(f" (alias {alias})", "dim" if topic is not None else "error")

    def _escaped(self, topic: str) -> tuple[str, int]:
        self.names.learn(topic)
        if len(topic) > MAX_KEPT_TOPIC:
            shown = self.painter.safe(topic)
            return shown, cells(shown)
        if len(self._topics) >= MAX_TOPICS:
            self._topics.clear()
        shown = self.painter.safe(topic)
        known = self._topics[topic] = shown, cells(shown)
        return known

    def _connect(self, line: Line, event: PacketEvent, packet: packets.Connect) -> None:
        known = packet.protocol_level in _LEVELS or packet.bridge
        version = packet.version.text if known else f"level {packet.protocol_level}"
        parts = [version + (" bridge" if packet.bridge else "")]
        if packet.clean_start:
            parts.append("clean start" if packet.version == ProtocolVersion.V5 else "clean session")
        parts.append(f"keep alive {packet.keep_alive} s" if packet.keep_alive else "no keep alive")
        line.add(", ".join(parts))
        will = packet.will
        if will is not None:
            line.add(", will ")
            line.add(self._name(line, will.will_topic), "topic")
            retain = " retain" if will.will_retain else ""
            line.add(f" (q{will.will_qos}{retain}, {counted(len(will.will_payload), 'byte')})")
        if packet.user_name is not None:
            line.add(", user ")
            line.add(self._name(line, packet.user_name))
        if packet.password is not None:
            line.add(", ")
            if self.show_secrets:
                line.add("password " + self.payload.preview(packet.password, max(8, min(line.left - 9, NAME_CELLS))))
            else:
                line.add(f"password ({counted(len(packet.password), 'byte')})")
        if not packet.client_identifier:
            line.add(", no client identifier", "note")
        self._properties(line, packet.properties)

    def _connack(self, line: Line, event: PacketEvent, packet: packets.Connack) -> None:
        self._reason(line, event, packet, packet.reason_code, always=True)
        if packet.session_present:
            line.add(", session present")
        self._after(line, event, event.connection.connect_timestamp_ns)
        self._properties(line, packet.properties)

    def _acknowledgement(self, line: Line, event: PacketEvent, packet: packets.Puback) -> None:
        line.add(f"id={packet.packet_identifier}")
        code = packet.reason_code
        if code:
            line.add(" ")
            self._reason(line, event, packet, code)
        exchange = event.connection.answered_by(packet, event.direction)
        if exchange is not None:
            topic, room = exchange.topic, line.left - _AFTER_CELLS
            if topic is not None and not self.show_secrets:
                topic = starred_name(topic)
            if topic is not None and room >= 8:
                shown, width = self._topics.get(topic) or self._escaped(topic)
                line.add("  ")
                line.add(shown if width <= room else self.names.short(topic, room), "dim")
            if packet.packet_type != PacketType.PUBREL:
                self._after(line, event, exchange.timestamp_ns)
        elif packet.packet_type != PacketType.PUBREL and not self.alone:
            line.add("  (no request captured)", "note")
        if packet.properties is not None:
            self._properties(line, packet.properties)

    def _subscribe(self, line: Line, event: PacketEvent, packet: packets.Subscribe) -> None:
        line.add(f"id={packet.packet_identifier} ")
        rows = packet.subscriptions or ()
        for index, row in enumerate(rows[:MAX_LISTED]):
            if index:
                line.add(", ")
            line.add(self._name(line, row.topic_filter), "topic")
            options = [f"q{row.maximum_qos}"]
            options += ["no local"] if row.no_local else []
            options += ["as published"] if row.retain_as_published else []
            options += [f"retain handling {row.retain_handling}"] if row.retain_handling else []
            line.add(f" ({', '.join(options)})")
        self._more(line, len(rows))
        self._properties(line, packet.properties)

    def _unsubscribe(self, line: Line, event: PacketEvent, packet: packets.Unsubscribe) -> None:
        line.add(f"id={packet.packet_identifier} ")
        rows = packet.topic_filters or ()
        for index, row in enumerate(rows[:MAX_LISTED]):
            if index:
                line.add(", ")
            line.add(self._name(line, row), "topic")
        self._more(line, len(rows))
        self._properties(line, packet.properties)

    def _answers(self, line: Line, event: PacketEvent, packet: packets.Suback) -> None:
        """SUBACK and UNSUBACK: a reason code per Topic Filter; equal neighbours are counted."""
        line.add(f"id={packet.packet_identifier}")
        version, kind = event.connection.version, packet.packet_type
        runs = _runs(packet.reason_codes or ())
        for index, (code, count) in enumerate(runs[:MAX_LISTED]):
            line.add(", " if index else " ")
            name = _reason_text(kind, code, version)
            line.add(f"{count} x {name}" if count > 1 else name, "error" if code >= 0x80 else "")
        self._more(line, len(runs))
        exchange = event.connection.answered_by(packet, event.direction)
        if exchange is not None:
            self._after(line, event, exchange.timestamp_ns)
        elif not self.alone:
            line.add("  (no request captured)", "note")
        self._properties(line, packet.properties)

    def _ping(self, line: Line, event: PacketEvent, packet: ControlPacket) -> None:
        if packet.packet_type == PacketType.PINGRESP:
            side = event.connection.receiver(event.direction)
            took_ns = event.timestamp_ns - side.ping_timestamp_ns
            # The time is negative between overlapping captures, or if the clock was set.
            if side.ping_packet is not None and took_ns >= 0:
                line.add(duration(took_ns, unicode=self.painter.unicode), "dim")

    def _reason_only(self, line: Line, event: PacketEvent, packet: packets.Disconnect) -> None:
        if event.connection.version == ProtocolVersion.V5:
            self._reason(line, event, packet, packet.reason_code or 0, always=True)
        self._properties(line, packet.properties)

    def _reason(
        self, line: Line, event: PacketEvent, packet: ControlPacket, code: int | None, *, always: bool = False
    ) -> None:
        if code is None or (not code and not always):
            return
        refused = code >= 0x80 or (code and event.connection.version < ProtocolVersion.V5)
        line.add(_reason_text(packet.packet_type, code, event.connection.version), "error" if refused else "")

    def _after(self, line: Line, event: PacketEvent, began_ns: int | None) -> None:
        if began_ns is not None and event.timestamp_ns >= began_ns:
            line.add("  " + duration(event.timestamp_ns - began_ns, unicode=self.painter.unicode), "dim")

    def _name(self, line: Line, text: str) -> str:
        return self.painter.name(text, max(8, min(line.left, NAME_CELLS))) if text else '""'

    def _more(self, line: Line, count: int) -> None:
        if count > MAX_LISTED:
            line.add(f", {count - MAX_LISTED} more", "note")

    def _properties(self, line: Line, block: Properties | None, keep: int = 0) -> None:
        """Properties in brackets, as many as fit while leaving ``keep`` columns of the line."""
        if block is None or not block.items:
            return
        before = "  ["
        for shown in self.properties(block):
            text = before + self.painter.name(shown, NAME_CELLS)
            if cells(text) + 4 > line.left - keep:
                if before == "  [":
                    return
                line.add(f", {self.painter.ellipsis}", "dim")
                break
            line.add(text, "dim")
            before = ", "
        if before == ", ":
            line.add("]", "dim")

    def properties(self, block: Properties) -> Iterable[str]:
        """Short forms of properties, in the order of the wire; user properties are counted."""
        users = 0
        for number, value in block.items:
            if number == USER_PROPERTY:
                users += 1
            elif number != _TOPIC_ALIAS and number != _FORMAT_INDICATOR:
                yield _property(number, value)
        if users:
            yield f"{users} user properties" if users > 1 else "1 user property"


def _property(number: int, value: Any) -> str:
    name = property_name(number)
    words = name.replace("_", " ") if name not in LISTS else "subscription"
    if name.endswith("_interval"):
        return f"{words.removesuffix(' interval')} {seconds(value)}" if isinstance(value, int) else words
    if name in YES_OR_NO and value in (0, 1):
        return words if value else f"no {words.removesuffix(' available')}"
    if isinstance(value, bytes):
        return f"{words} ({counted(len(value), 'byte')})"
    if name == "server_keep_alive":
        return f"{words} {value} s"
    # The whole line is escaped afterwards; a short part of the text is enough here.
    return f"{words} {value[:200] if isinstance(value, str) else value}"


YES_OR_NO = {
    "retain_available",
    "wildcard_subscription_available",
    "subscription_identifier_available",
    "shared_subscription_available",
    "request_problem_information",
    "request_response_information",
}
"""Properties with the values yes (1) and no (0)."""


def _reason_text(kind: int, code: int, version: ProtocolVersion) -> str:
    name = reason_name(kind, code, version)
    if name == "Unknown":
        return f"unknown reason 0x{code:02x}"
    return name.removeprefix("Connection Refused, ")


def _runs(codes: Iterable[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for code in codes:
        if runs and runs[-1][0] == code:
            runs[-1] = code, runs[-1][1] + 1
        else:
            runs.append((code, 1))
    return runs

"""Differences between two captures: by client as text, or as JSON.

    sensor-1 (3 connections, 2 in B)
      ~ client CONNECT: keep_alive 60 in A, 30 in B
      - client PUBLISH to plant/line1/temperature: 6 only in A (frames 14, 18, 22, ...)
      + broker SUBACK: only in B (frame 31)

In the text, equal differences of one client about one topic are one line with their number.  Secrets are hidden as in
every report (`report.replay.text`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from mqttscope.mqtt import Malformed, PacketType, ProtocolVersion, Publish, Subscribe, Unsubscribe
from mqttscope.mqtt.constants import type_name
from mqttscope.mqtt.view import text, without_topic
from mqttscope.replay.verify.captures import (
    A,
    B,
    CaptureComparison,
    CaptureDifference,
    CaptureDifferenceKind,
    ComparisonCounts,
)
from mqttscope.replay.verify.difference import reason_text
from mqttscope.report import documents as doc
from mqttscope.report.base import Sink, View
from mqttscope.report.jsonl import SCHEMA, dumps, harmless
from mqttscope.report.numbers import plural
from mqttscope.report.page import Page
from mqttscope.report.replay.json import ReplayJson
from mqttscope.report.replay.text import concealed, plain
from mqttscope.report.when import duration
from mqttscope.secrets.packets import covered, hidden_in_damaged

MAX_LINES = 200
"""Default maximum number of difference lines in the text."""
MAX_GROUPS = 20_000
"""Maximum number of groups remembered until the end; differences of further groups are counted."""
MAX_FRAMES = 3
"""Maximum number of frames named per line."""
MAX_VALUE = 60
"""Maximum characters of a value or a topic in a line."""
SIDES = ("A", "B")
_MARKS = {"a": "-", "b": "+", "": "~"}


@dataclass(slots=True)
class _DifferenceLine:
    """Differences shown as one line.  Its connections are not kept, since they are large."""

    kind: CaptureDifferenceKind
    only: str
    place: tuple[bool, int, int]
    """Sort key in the order of the connection; whole connections come first."""
    subject: str
    detail: str
    count: int = 0
    frames: list[str] = field(default_factory=list)


class CompareText:
    """Collects differences, and writes them by client at the end."""

    def __init__(self, sink: Sink, view: View, *, most: int | None = None) -> None:
        """``most``: maximum number of difference lines, default `MAX_LINES`."""
        self.sink, self.view, self.most = sink, view, MAX_LINES if most is None else most
        self.beyond = 0
        """Number of differences beyond `MAX_GROUPS`."""
        self._page = Page(view)
        self._clients: dict[str, dict[tuple[Any, ...], _DifferenceLine]] = {}
        self._groups = 0

    def feed(self, difference: CaptureDifference) -> None:
        """Add a difference to its group."""
        entry = difference.entry
        key = (
            difference.kind, difference.only, difference.field,
            None if entry is None else (entry.from_client, entry.type, _about(difference)),
        )  # fmt: skip
        groups = self._clients.setdefault(difference.client, {})
        group = groups.get(key)
        if group is None:
            if self._groups >= MAX_GROUPS:
                self.beyond += 1
                return
            self._groups += 1
            group = groups[key] = self._group(difference)
        group.count += 1
        if len(group.frames) < MAX_FRAMES:
            group.frames.append(_frames(difference))

    def close(self, comparison: CaptureComparison, names: tuple[str, str], *, complete: bool = True) -> None:
        """Write the report; ``names``: names of the captures; ``complete``: both were compared to their ends."""
        page, total = self._page, comparison.counts
        for side in (A, B):
            what = [
                plural(getattr(total, name)[side], word)
                for name, word in (
                    ("connections", "connection"), ("packets", "packet"), ("bytes", "byte"),
                    ("segments", "TCP segment"),
                )
            ]  # fmt: skip
            page.paragraph(f"{SIDES[side]}  {page.safe(names[side])}: {', '.join(what)}", indent=3)
        lines = 0
        left = 0
        for client, groups in sorted(self._clients.items()):
            if lines >= self.most:
                left += sum(group.count for group in groups.values())
                continue
            page.line([""])
            page.paragraph(self._heading(client, comparison.clients[client], page), "bold", indent=4)
            for group in sorted(groups.values(), key=lambda group: group.place):
                if lines >= self.most:
                    left += group.count
                    continue
                lines += 1
                page.paragraph(f"  {self._line(group)}", indent=6)
        page.line([""])
        if left:
            page.paragraph(f"and {plural(left, 'more difference')} not shown (--limit); --format jsonl shows all")
        if self.beyond:
            beyond = plural(self.beyond, "more difference")
            page.paragraph(f"and {beyond} not shown (limit: {MAX_GROUPS:,} lines); --format jsonl shows all")
        conclusion = _summary(total, comparison)
        page.paragraph(conclusion if complete else f"not compared to the end: {conclusion}", "bold")
        self.sink.write(page.encoded())

    def _heading(self, client: str, counts: ComparisonCounts, page: Page) -> str:
        name = page.safe(concealed(client, self.view)) if client else "connections without a Client Identifier"
        in_a, in_b = counts.connections
        connections = plural(in_a, "connection") + ("" if in_a == in_b else f" in A, {in_b:,} in B")
        lost = [f"{SIDES[side]} lacks {plural(counts.lost[side], 'byte')}" for side in (A, B) if counts.lost[side]]
        return f"{name} ({', '.join([connections, *lost])})"

    def _group(self, first: CaptureDifference) -> _DifferenceLine:
        """Group for a difference and for others like it."""
        page, kind = self._page, first.kind
        entry = first.entry
        frame, place = (0, 0) if entry is None else (entry.frame, entry.place)
        subject = "" if entry is None else self._subject(first, page)
        if kind is CaptureDifferenceKind.CONNECTION:
            script = first.scripts[A] or first.scripts[B]
            detail = f", with {plural(len(script.entries), 'packet')}" if script is not None else ""
        elif kind is CaptureDifferenceKind.CLOSE:
            ended = (f"{_WHO[first.values[side]]} in {SIDES[side]}" for side in (A, B))
            detail = f"connection ended by the {', by the '.join(ended)}"
        elif kind is CaptureDifferenceKind.ORDER:
            detail = "in a different order"
        elif kind is CaptureDifferenceKind.TIME:
            unicode = self.view.unicode
            after = (f"{duration(first.values[side], unicode=unicode)} in {SIDES[side]}" for side in (A, B))
            detail = f"comes after {', '.join(after)}"
        elif kind is CaptureDifferenceKind.FIELD:
            value, other = (self._value(first, side, page) for side in (A, B))
            values = "differs" if value == other else f"{value} in A, {other} in B"
            detail = f"{page.safe(first.field.replace('properties.', ''))} {values}"
        else:
            detail = f"only in {first.only.upper()}"
        return _DifferenceLine(
            kind, first.only, (kind is not CaptureDifferenceKind.CONNECTION, frame, place), subject, detail
        )

    def _line(self, group: _DifferenceLine) -> str:
        count, mark = group.count, _MARKS[group.only]
        named = [frame for frame in group.frames if frame]
        more = ", ..." if count > len(group.frames) else ""
        frames = f" (frame{'s' if count > 1 else ''} {', '.join(named)}{more})" if named else ""
        if group.kind is CaptureDifferenceKind.CONNECTION:
            only = f"only in {group.only.upper()}"
            return f"{mark} {plural(count, 'connection')} {only}{group.detail if count == 1 else ''}"
        times = f", {count:,} times" if count > 1 else ""
        if group.kind is CaptureDifferenceKind.CLOSE:
            return f"{mark} {group.detail}{times}"
        if group.kind is CaptureDifferenceKind.PACKET:
            return f"{mark} {group.subject}: {f'{count:,} ' if count > 1 else ''}{group.detail}{frames}"
        return f"{mark} {group.subject}: {group.detail}{times}{frames}"

    def _subject(self, difference: CaptureDifference, page: Page) -> str:
        entry = difference.entry
        assert entry is not None
        kind = (
            "malformed packet" if isinstance(entry.packet, Malformed) else type_name(entry.packet.packet_type).upper()
        )
        about = _about(difference)
        of = (
            ""
            if about is None
            else f" {'to' if entry.type == 'publish' else 'of'} {page.safe(_cut(concealed(about, self.view)))}"
        )
        return f"{'client' if entry.from_client else 'broker'} {kind}{of}"

    def _value(self, difference: CaptureDifference, side: int, page: Page) -> str:
        value = difference.values[side]
        entry, script = difference.entries[side], difference.scripts[side]
        if difference.field.startswith("reason_code") and isinstance(value, int) and entry and script:
            return reason_text(PacketType(entry.packet.packet_type or 0), value, script.version)
        if difference.field in ("user_name", "password", "will") and isinstance(value, bool):
            return "present" if value else "absent"
        if difference.field == "protocol_level" and value in list(ProtocolVersion):
            return ProtocolVersion(value).text
        return page.safe(_cut(_value_text(_plain(difference, side, self.view))))


_WHO = {"client": "client", "server": "broker", None: "network"}


def _about(difference: CaptureDifference) -> str | None:
    """Topic of the message, or Topic Filters of the subscription, that a difference is about."""
    entry = difference.entry
    while entry is not None and entry.answers is not None:
        entry = entry.answers
    if entry is None:
        return None
    packet = entry.packet
    if isinstance(packet, Publish):
        return entry.topic or f"an {without_topic(packet)} topic"
    if isinstance(packet, Subscribe):
        return ", ".join(subscription.topic_filter for subscription in packet.subscriptions)
    return ", ".join(packet.topic_filters) if isinstance(packet, Unsubscribe) else None


def _frames(difference: CaptureDifference) -> str:
    frames = [str(entry.frame) for entry in difference.entries if entry is not None and entry.frame]
    return " / ".join(frames)


def _plain(difference: CaptureDifference, side: int, shown: View) -> Any:
    """A value as JSON; bytes of a damaged packet only if other reports show them too."""
    value, entry, script = difference.values[side], difference.entries[side], difference.scripts[side]
    if difference.field == "raw" and entry is not None and script is not None and not shown.show_secrets:
        value = covered(value, hidden_in_damaged(value, script.version, entry.doubt))
    return plain(difference.field, value, shown)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 3]}..."


def _value_text(value: Any) -> str:
    if value is None:
        return "absent"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        if "length" not in value:
            return ", ".join(f"{key} {_value_text(member)}" for key, member in value.items())
        if value.get("redacted"):
            return f"{value['length']} bytes, hidden"
        return str(value["text"]) if value.get("text") else f"hex:{value['hex']}" if value.get("hex") else "empty"
    if isinstance(value, list):
        return ", ".join(
            f"{_value_text(row['name'])}: {_value_text(row['value'])}"
            if isinstance(row, dict) and "name" in row
            else _value_text(row)
            for row in value
        )
    return str(value) or "empty"


def _summary(total: ComparisonCounts, comparison: CaptureComparison) -> str:
    clients = len(comparison.clients)
    if not total.differences:
        return f"no differences: {plural(total.equal, 'packet')} of {plural(clients, 'client')} mean the same"
    differing = sum(counts.differences > 0 for counts in comparison.clients.values())
    equal = f"{plural(total.equal, 'packet')} mean{'s' if total.equal == 1 else ''} the same"
    return f"{plural(total.differences, 'difference')} in {differing:,} of {plural(clients, 'client')}; {equal}"


_SIDES = doc.ValueType(doc.record({"a": doc.COUNT, "b": doc.COUNT}), lambda pair: {"a": pair[A], "b": pair[B]})
COUNTS = doc.record({
    **dict.fromkeys(("connections", "packets", "bytes", "segments", "lost"), _SIDES), "equal": doc.COUNT,
    "differences": doc.COUNT,
})  # fmt: skip
_SIDE = doc.maybe(doc.record({"connection": doc.COUNT, "value": doc.ANY, "packet": doc.maybe(doc.PACKET)}))
_DIFFERENCE = {
    "kind": doc.word(CaptureDifferenceKind), "only": doc.maybe(doc.word("a", "b")),
    "client_identifier": doc.maybe(doc.NAME), "direction": doc.maybe(doc.DIRECTION), "type": doc.maybe(doc.TEXT),
    "topic": doc.maybe(doc.NAME), "field": doc.maybe(doc.TEXT), "a": _SIDE, "b": _SIDE,
}  # fmt: skip
_CLIENT = {"client_identifier": doc.maybe(doc.NAME), **COUNTS["properties"]}
_COMPARISON = {
    "captures": doc.record({"a": doc.NAME, "b": doc.NAME}), **COUNTS["properties"], "kinds": doc.mapping(doc.COUNT),
    "complete": doc.BOOL, "left_out": doc.COUNT,
}  # fmt: skip
DOCUMENT = doc.record({
    "schema": doc.VERSION_1, "differences": doc.each(doc.record(_DIFFERENCE)),
    "clients": doc.each(doc.record(_CLIENT)), "comparison": doc.record(_COMPARISON),
})  # fmt: skip
_LINES = {"capture_difference": _DIFFERENCE, "compared_client": _CLIENT, "comparison": _COMPARISON}
LINE = {
    "oneOf": [doc.record({"schema": doc.VERSION_1, "event": {"const": name}, **keys}) for name, keys in _LINES.items()]
}


class CompareJson:
    """Writes each difference as a line, or all as one document, and the counts at the end."""

    def __init__(self, sink: Sink, view: View, *, document: bool = False, most: int | None = None) -> None:
        """``document``: one JSON document instead of lines.

        ``most``: maximum number of differences written; the counts include all.
        """
        self.sink, self.view, self.document, self.most = sink, view, document, most
        self.packets = ReplayJson(sink, view)
        self.kinds: Counter[str] = Counter()
        self._written = 0

    def feed(self, difference: CaptureDifference) -> None:
        """Write a difference."""
        self.kinds[str(difference.kind)] += 1
        if self.most is not None and self._written >= self.most:
            return
        value = self._object(difference)
        if self.document:
            start = b'{"schema":%d,"differences":[\n' % SCHEMA if not self._written else b",\n"
            self.sink.write(start + harmless(dumps(value)))
        else:
            self.sink.write(harmless(dumps({"schema": SCHEMA, "event": "capture_difference", **value}) + b"\n"))
        self._written += 1

    def close(self, comparison: CaptureComparison, names: tuple[str, str], *, complete: bool = True) -> None:
        """Write the counts; ``names``: names of the captures; ``complete``: both were compared to their ends."""
        clients = [
            {"client_identifier": concealed(text(name), self.view) or None, **COUNTS.view(counts)}
            for name, counts in sorted(comparison.clients.items())
        ]
        total = {
            "captures": {"a": text(names[A]), "b": text(names[B])},
            **COUNTS.view(comparison.counts),
            "kinds": dict(self.kinds),
            "complete": complete,
            "left_out": sum(self.kinds.values()) - self._written,
        }
        if self.document:
            start = b'{"schema":%d,"differences":[' % SCHEMA if not self._written else b"\n"
            rest = dumps({"clients": clients, "comparison": total})
            self.sink.write(start + b"]," + harmless(rest)[1:] + b"\n")
            return
        for client in clients:
            self.sink.write(harmless(dumps({"schema": SCHEMA, "event": "compared_client", **client}) + b"\n"))
        self.sink.write(harmless(dumps({"schema": SCHEMA, "event": "comparison", **total}) + b"\n"))

    def _object(self, difference: CaptureDifference) -> dict[str, Any]:
        entry, view = difference.entry, self.view
        sides: dict[str, Any] = {}
        for side, key in ((A, "a"), (B, "b")):
            script, packet = difference.scripts[side], difference.entries[side]
            sides[key] = None if script is None else {
                "connection": script.connection.number,
                "value": _plain(difference, side, view),
                "packet": None if packet is None else self.packets.packet(packet, script),
            }  # fmt: skip
        about = _about(difference)
        is_message = entry is not None and isinstance(entry.packet, Publish)
        return {
            "kind": str(difference.kind),
            "only": difference.only or None,
            "client_identifier": concealed(text(difference.client), view) or None,
            "direction": None if entry is None else "client_to_server" if entry.from_client else "server_to_client",
            "type": None if entry is None else entry.type,
            "topic": concealed(text(about), view) if about is not None and is_message else None,
            "field": difference.field or None,
            **sides,
        }

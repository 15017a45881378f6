"""Differences between two captures: by client as text, or as JSON.

    sensor-1 (3 connections, 2 in B)
      ~ client CONNECT: keep_alive 60 in A, 30 in B
      - client PUBLISH to plant/line1/temperature: 6 only in A (frames 14, 18, 22, ...)
      + broker SUBACK: only in B (frame 31)

As text, differences of one client that say the same of one topic are one line with their number.  Secrets are hidden as
in every report (`report.replay.text`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from mqttscope.mqtt import Malformed, PacketType, ProtocolVersion, Publish, Subscribe, Unsubscribe
from mqttscope.mqtt.constants import type_name
from mqttscope.mqtt.view import text, without_topic
from mqttscope.replay.verify.captures import A, B, CaptureDifference, CaptureDifferenceKind, Comparison, Counts
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
"""Lines about differences that text shows where nothing else is asked for."""
MAX_GROUPS = 20_000
"""Lines that are remembered until the end; the differences of further ones are counted."""
MAX_FRAMES = 3
"""Frames that a line names."""
MAX_VALUE = 60
"""Characters of a value, and of a topic, in a line."""
SIDES = ("A", "B")
_MARKS = {"a": "-", "b": "+", "": "~"}


@dataclass(slots=True)
class _Group:
    """Differences that one line tells, without the connections that they are of: these are long."""

    kind: CaptureDifferenceKind
    only: str
    place: tuple[bool, int, int]
    """In the order of the connection; whole connections first."""
    subject: str
    detail: str
    count: int = 0
    frames: list[str] = field(default_factory=list)


class CompareText:
    """Gathers differences, and writes them by client at the end."""

    def __init__(self, sink: Sink, view: View, *, most: int | None = None) -> None:
        """``most``: lines about differences, `MAX_LINES` unless given."""
        self.sink, self.view, self.most = sink, view, MAX_LINES if most is None else most
        self.beyond = 0
        """Differences beyond `MAX_GROUPS`."""
        self._page = Page(view)
        self._clients: dict[str, dict[tuple[Any, ...], _Group]] = {}
        self._groups = 0

    def feed(self, difference: CaptureDifference) -> None:
        """Take one difference."""
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

    def close(self, found: Comparison, names: tuple[str, str], *, complete: bool = True) -> None:
        """Write everything; ``names`` are those of the captures.  ``complete``: they were compared to their ends."""
        page, total = self._page, found.counts
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
            page.paragraph(self._heading(client, found.clients[client], page), "bold", indent=4)
            for group in sorted(groups.values(), key=lambda group: group.place):
                if lines >= self.most:
                    left += group.count
                    continue
                lines += 1
                page.paragraph(f"  {self._line(group)}", indent=6)
        page.line([""])
        if left:
            page.paragraph(
                f"and {plural(left, 'more difference')}, left out by --limit; --format jsonl has all of them"
            )
        if self.beyond:
            beyond = plural(self.beyond, "more difference")
            page.paragraph(f"and {beyond}, for which there was no room; --format jsonl has all of them")
        told = _summary(total, found)
        page.paragraph(told if complete else f"not compared to the end: {told}", "bold")
        self.sink.write(page.encoded())

    def _heading(self, client: str, counts: Counts, page: Page) -> str:
        name = page.safe(concealed(client, self.view)) if client else "connections without a Client Identifier"
        one, other = counts.connections
        told = plural(one, "connection") if one == other else f"{plural(one, 'connection')} in A, {other:,} in B"
        lost = [f"{SIDES[side]} lacks {plural(counts.lost[side], 'byte')}" for side in (A, B) if counts.lost[side]]
        return f"{name} ({', '.join([told, *lost])})"

    def _group(self, first: CaptureDifference) -> _Group:
        """What the line of a difference, and of others like it, says."""
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
            detail = "at another place in the order"
        elif kind is CaptureDifferenceKind.TIME:
            unicode = self.view.unicode
            after = (f"{duration(first.values[side], unicode=unicode)} in {SIDES[side]}" for side in (A, B))
            detail = f"comes after {', '.join(after)}"
        elif kind is CaptureDifferenceKind.FIELD:
            one, other = (self._value(first, side, page) for side in (A, B))
            values = "differs" if one == other else f"{one} in A, {other} in B"
            detail = f"{page.safe(first.field.replace('properties.', ''))} {values}"
        else:
            detail = f"only in {first.only.upper()}"
        return _Group(kind, first.only, (kind is not CaptureDifferenceKind.CONNECTION, frame, place), subject, detail)

    def _line(self, group: _Group) -> str:
        count, mark = group.count, _MARKS[group.only]
        told = [one for one in group.frames if one]
        more = ", ..." if count > len(group.frames) else ""
        frames = f" (frame{'s' if count > 1 else ''} {', '.join(told)}{more})" if told else ""
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
        """One value, as short as it can be told."""
        value = difference.values[side]
        entry, script = difference.entries[side], difference.scripts[side]
        if difference.field.startswith("reason_code") and isinstance(value, int) and entry and script:
            return reason_text(PacketType(entry.packet.packet_type or 0), value, script.version)
        if difference.field in ("user_name", "password", "will") and isinstance(value, bool):
            return "present" if value else "absent"
        if difference.field == "protocol_level" and value in list(ProtocolVersion):
            return ProtocolVersion(value).text
        return page.safe(_cut(_told(_plain(difference, side, self.view))))


_WHO = {"client": "client", "server": "broker", None: "network"}


def _about(difference: CaptureDifference) -> str | None:
    """The topic of a message, or the Topic Filters of a subscription, that a difference is about."""
    entry = difference.entry
    while entry is not None and entry.answers is not None:
        entry = entry.answers
    if entry is None:
        return None
    packet = entry.packet
    if isinstance(packet, Publish):
        return entry.topic or f"an {without_topic(packet)} topic"
    if isinstance(packet, Subscribe):
        return ", ".join(one.topic_filter for one in packet.subscriptions)
    return ", ".join(packet.topic_filters) if isinstance(packet, Unsubscribe) else None


def _frames(difference: CaptureDifference) -> str:
    frames = [str(one.frame) for one in difference.entries if one is not None and one.frame]
    return " / ".join(frames)


def _plain(difference: CaptureDifference, side: int, shown: View) -> Any:
    """One value as JSON has it; of the bytes of a damaged packet, those that are shown elsewhere."""
    value, entry, script = difference.values[side], difference.entries[side], difference.scripts[side]
    if difference.field == "raw" and entry is not None and script is not None and not shown.show_secrets:
        value = covered(value, hidden_in_damaged(value, script.version, entry.doubt))
    return plain(difference.field, value, shown)


def _cut(told: str) -> str:
    return told if len(told) <= MAX_VALUE else f"{told[: MAX_VALUE - 3]}..."


def _told(value: Any) -> str:
    """A plain value in a line."""
    if value is None:
        return "absent"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        if "length" not in value:
            return ", ".join(f"{key} {_told(one)}" for key, one in value.items())
        if value.get("redacted"):
            return f"{value['length']} bytes, hidden"
        return str(value["text"]) if value.get("text") else f"hex:{value['hex']}" if value.get("hex") else "empty"
    if isinstance(value, list):
        return ", ".join(
            f"{_told(one['name'])}: {_told(one['value'])}" if isinstance(one, dict) and "name" in one else _told(one)
            for one in value
        )
    return str(value) or "empty"


def _summary(total: Counts, found: Comparison) -> str:
    clients = len(found.clients)
    if not total.differences:
        return f"no differences: {plural(total.equal, 'packet')} of {plural(clients, 'client')} mean the same"
    differing = sum(one.differences > 0 for one in found.clients.values())
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
    """Writes each difference as a line, or all of them as one document; and the counts."""

    def __init__(self, sink: Sink, view: View, *, document: bool = False, most: int | None = None) -> None:
        """``document``: one JSON document instead of lines.

        ``most``: differences that are written; the counts have all.
        """
        self.sink, self.view, self.document, self.most = sink, view, document, most
        self.packets = ReplayJson(sink, view)
        self.kinds: Counter[str] = Counter()
        self._written = 0

    def feed(self, difference: CaptureDifference) -> None:
        """Write one difference."""
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

    def close(self, found: Comparison, names: tuple[str, str], *, complete: bool = True) -> None:
        """Write the counts; ``names`` are those of the captures.  ``complete``: they were compared to their ends."""
        clients = [
            {"client_identifier": concealed(text(name), self.view) or None, **COUNTS.view(one)}
            for name, one in sorted(found.clients.items())
        ]
        total = {
            "captures": {"a": text(names[A]), "b": text(names[B])},
            **COUNTS.view(found.counts),
            "kinds": dict(self.kinds),
            "complete": complete,
            "left_out": sum(self.kinds.values()) - self._written,
        }
        if self.document:
            start = b'{"schema":%d,"differences":[' % SCHEMA if not self._written else b"\n"
            rest = dumps({"clients": clients, "comparison": total})
            self.sink.write(start + b"]," + harmless(rest)[1:] + b"\n")
            return
        for one in clients:
            self.sink.write(harmless(dumps({"schema": SCHEMA, "event": "compared_client", **one}) + b"\n"))
        self.sink.write(harmless(dumps({"schema": SCHEMA, "event": "comparison", **total}) + b"\n"))

    def _object(self, one: CaptureDifference) -> dict[str, Any]:
        entry, view = one.entry, self.view
        sides: dict[str, Any] = {}
        for side, key in ((A, "a"), (B, "b")):
            script, packet = one.scripts[side], one.entries[side]
            sides[key] = None if script is None else {
                "connection": script.connection.number,
                "value": _plain(one, side, view),
                "packet": None if packet is None else self.packets.packet(packet, script),
            }  # fmt: skip
        about = _about(one)
        is_message = entry is not None and isinstance(entry.packet, Publish)
        return {
            "kind": str(one.kind),
            "only": one.only or None,
            "client_identifier": concealed(text(one.client), view) or None,
            "direction": None if entry is None else "client_to_server" if entry.from_client else "server_to_client",
            "type": None if entry is None else entry.type,
            "topic": concealed(text(about), view) if about is not None and is_message else None,
            "field": one.field or None,
            **sides,
        }

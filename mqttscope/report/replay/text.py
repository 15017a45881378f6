"""Reports differences between a recording and its replay: both packets side by side, and a summary.

    missing-answer: PUBLISH to 'a/b' was not answered with PUBACK.
      sensor (connection 2)
      recorded: PUBACK, frame 118                  │ live: nothing
    ! packet_identifier 7                          │

`ReplayText` marks fields that differ with ``!``; in terminals of fewer than `SIDE_BY_SIDE` columns the live packet
stands below.  `Limited` cuts off any report of findings after a number of them, and counts the rest.

`event_of`, `plain` and `fields_of` prepare the packets of both sides for all formats.  Passwords and Authentication
Data appear only when secrets are asked for, and what looks like a secret is hidden wherever it stands, since these
reports end up in logs of build servers.
"""

from __future__ import annotations

from collections import Counter
from copy import copy
from typing import Any

from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.lint.finding import Finding
from mqttscope.lint.gate import Suppression
from mqttscope.mqtt import Connect, Direction, Malformed, Properties, Publish, encode
from mqttscope.mqtt.constants import type_name
from mqttscope.mqtt.properties import BY_NAME
from mqttscope.mqtt.view import binary, malformed_view, properties_view, text, view
from mqttscope.replay.script import Entry, Script
from mqttscope.replay.verify.difference import DeviceKind, Difference, DifferenceKind, Verification, reason_text
from mqttscope.report.base import Sink, View
from mqttscope.report.escape import cells
from mqttscope.report.findings.base import FindingReporter, Summary
from mqttscope.report.numbers import number, plural
from mqttscope.report.page import Column, Page
from mqttscope.report.style import Painter, Wrapped, encoded
from mqttscope.report.when import TimeColumn
from mqttscope.secrets.addresses import REDACTED
from mqttscope.secrets.findings import masked
from mqttscope.secrets.forms import without_tokens
from mqttscope.secrets.names import is_secret_value
from mqttscope.secrets.packets import BROKEN, hides_payload
from mqttscope.secrets.values import without_tokens_of
from mqttscope.session.connection import Connection


class Limited:
    """Passes the first `MAX_BLOCKS` findings that count on, and counts the others."""

    def __init__(self, report: FindingReporter, sink: Sink) -> None:
        self.report, self.sink = report, sink
        self.seen = 0

    def feed(self, finding: Finding, suppressed: Suppression | None = None) -> None:
        """Write one finding, unless there were too many."""
        is_new = suppressed is None and self.report.is_new(finding)
        self.seen += is_new
        if not is_new or self.seen <= MAX_BLOCKS:
            self.report.feed(finding, suppressed)

    def close(self, summary: Summary) -> None:
        """Say how many were left out, and write the end."""
        if self.seen > MAX_BLOCKS:
            self.sink.write(encoded([left_out(self.seen - MAX_BLOCKS, "finding"), ""]))
        self.report.close(summary)


def left_out(count: int, what: str) -> str:
    return f"and {plural(count, f'more {what}')}, left out; --format jsonl has all of them"


IDLE = ("packet_identifier", "dup", "topic_name", "properties.topic_alias", "properties.reason_string")
"""Fields that do not count."""


def event_of(entry: Entry, script: Script) -> PacketEvent | MalformedEvent:
    """The event of a packet, as if it had come from a capture; its number is its place."""
    direction = Direction.CLIENT_TO_SERVER if entry.from_client else Direction.SERVER_TO_CLIENT
    place = _as_it_was(entry, script), direction, entry.place, entry.frame, entry.timestamp_ns, entry.capture
    packet = entry.packet
    if isinstance(packet, Malformed):
        return MalformedEvent(*place, packet, entry.topic)
    if not packet.raw:
        packet = copy(packet)
        packet.raw = entry.raw or encode(packet, script.version)
    return PacketEvent(*place, packet, entry.topic)


def _as_it_was(entry: Entry, script: Script) -> Connection:
    """The connection with what was in doubt when the packet came."""
    connection = copy(script.connection)
    side = copy(connection.client_side if entry.from_client else connection.server_side)
    side.doubt, connection.doubtful = entry.doubt, entry.doubt >= BROKEN
    if entry.from_client:
        connection.client_side = side
    else:
        connection.server_side = side
    return connection


def concealed(value: Any, shown: View) -> Any:
    """A plain value without what looks like a secret."""
    if shown.show_secrets:
        return value
    if isinstance(value, str):
        return masked(value, shown.secret_length)
    if isinstance(value, list):
        return [concealed(one, shown) for one in value]
    if not isinstance(value, dict):
        return value
    name = value.get("name")
    if set(value) == {"name", "value"} and isinstance(name, str) and is_secret_value(name, str(value["value"])):
        return {"name": name, "value": REDACTED}
    # Digits of bytes look like keys, all of them.
    return {key: one if key in ("hex", "raw") else concealed(one, shown) for key, one in value.items()}


def plain(field: str, value: Any, shown: View) -> Any:
    """One value of a difference as JSON has it."""
    name = field.rpartition(".")[2]
    if "properties." in field and value is not None and name in BY_NAME:
        number = BY_NAME[name].identifier
        several = value if isinstance(value, tuple) else (value,)
        block = properties_view(
            Properties.of((number, one) for one in several), shown.payload_limit, show_secrets=shown.show_secrets
        )
        value = block[name]
    elif isinstance(value, bytes):
        value = binary(value if shown.show_secrets else without_tokens(value, shown.payload_limit), shown.payload_limit)
    elif isinstance(value, str):
        value = text(value)
    elif isinstance(value, tuple):
        value = [plain("", one, shown) for one in value]
    return concealed(value, shown)


def fields_of(entry: Entry, script: Script, shown: View) -> dict[str, str]:
    """The fields of a packet by their paths, as text that is not escaped yet; absent ones are left out."""
    packet = entry.packet
    version = packet.version if isinstance(packet, Connect) else script.version
    if isinstance(packet, Malformed):
        values = malformed_view(packet, limit=shown.payload_limit)
        # Bytes may hold anything; that there are further faults is for JSON.
        del values["raw"]
        values.pop("faults", None)
    else:
        values = view(
            packet if shown.show_secrets else without_tokens_of(packet, shown.payload_limit),
            version,
            limit=shown.payload_limit,
            show_secrets=shown.show_secrets,
            hide_payload=not shown.show_secrets and isinstance(packet, Publish) and hides_payload(packet, entry.doubt),
        )
        kind = packet.packet_type
        values.pop("reason", None)
        values.pop("reasons", None)
        if values.get("reason_code") is not None:
            values["reason_code"] = reason_text(kind, values["reason_code"], version)
        if values.get("reason_codes") is not None:
            values["reason_codes"] = [reason_text(kind, code, version) for code in values["reason_codes"]]
    if isinstance(packet, Publish) and entry.topic is not None:
        values = {"topic": text(entry.topic)} | values
        if packet.topic_name == entry.topic:
            del values["topic_name"]
    found: dict[str, str] = {}
    _flatten("", concealed(values, shown), found)
    return found


def _flatten(path: str, value: Any, found: dict[str, str]) -> None:
    if value is None:
        return
    if isinstance(value, dict):
        if "length" in value:
            found[path] = _binary(value)
        elif set(value) == {"name", "value"}:
            found[path] = f"{_text(value['name'])}: {_text(value['value'])}"
        else:
            for key, one in value.items():
                _flatten(f"{path}.{key}" if path else key, one, found)
    elif isinstance(value, list):
        for index, one in enumerate(value):
            _flatten(f"{path}[{index}]", one, found)
    elif isinstance(value, bool):
        found[path] = "true" if value else "false"
    else:
        found[path] = str(value)


def _text(value: Any) -> str:
    return _binary(value) if isinstance(value, dict) else str(value)


def _binary(value: dict[str, Any]) -> str:
    if value.get("redacted"):
        return f"{value['length']} bytes, hidden"
    more = f"... ({value['length']} bytes)" if value.get("truncated") else ""
    return f"{value['text']}{more}" if "text" in value else f"hex:{value.get('hex', '')}{more}"


def type_of(entry: Entry) -> str:
    """``PUBACK``; ``MALFORMED PUBACK`` for what cannot be read."""
    packet = entry.packet
    if not isinstance(packet, Malformed):
        return entry.type.upper()
    kind = packet.packet_type
    return "MALFORMED packet" if kind is None else f"MALFORMED {type_name(kind).upper()}"


SIDE_BY_SIDE = 80
"""Columns from which on both packets stand beside each other."""
PIPED = 120
"""Columns of output that has no limit."""
MAX_BLOCKS = 200
"""Pairs of packets that are shown where nothing else is asked for; further differences are counted."""
MAX_FIELDS = 40
"""Fields of a packet that are shown; further ones are counted."""
MAX_VALUE = 2_000
"""Characters of a value that are shown, from a little before the first difference on; an ellipsis is for the others."""
MAX_NAMES = 5
"""Connections that are named for one cause; further ones are counted."""
_MARK = "! "
_LEAD = 12
"""Columns in front of the first character that differs, where a value is too long."""
_PAYLOAD = ("payload",)

Cell = tuple[str, str]
"""Text and style."""


class ReplayText:
    """Writes differences as blocks, and at the end a summary."""

    def __init__(self, sink: Sink, view: View, *, recorded_ns: int | None = None, live_ns: int | None = None) -> None:
        """Relative times count from ``recorded_ns`` and ``live_ns``, else from the first packet that is shown."""
        self.sink = sink
        self.view = view
        self.painter = Painter(view)
        self.width = view.width if view.width > 0 else PIPED
        self.times = {"recorded": TimeColumn(view), "live": TimeColumn(view)}
        for side, beginning in (("recorded", recorded_ns), ("live", live_ns)):
            if beginning is not None:
                self.times[side].text(beginning)
        self._group: list[Difference] = []
        self._blocks = self._left = 0

    def feed(self, difference: Difference) -> None:
        """Write one difference, together with those that follow about the same two packets."""
        if self._group and not _same_packets(self._group[0], difference):
            self._flush()
        if self._blocks >= MAX_BLOCKS:
            self._left += 1
            return
        self._group.append(difference)

    def feed_all(self, found: Verification) -> None:
        """Write all differences: their causes first, and those with one cause as one."""
        groups = found.by_cause
        if any(groups):
            page = Page(self.view)
            page.paragraph(headline(found, page), "bold", indent=2)
            self.sink.write(page.encoded() + b"\n")
        for cause, differences in groups.items():
            if cause:
                self._because(cause, differences)
            else:
                for one in differences:
                    self.feed(one)

    def close(self, found: Verification, *, stopped: bool = False) -> None:
        """Write the summary; ``stopped`` where the replay did not come to its end."""
        self._flush()
        if self._left:
            self.sink.write(encoded([left_out(self._left, "difference"), ""]))
        self.sink.write(summary(found, self.view, stopped=stopped).lstrip(b"\n"))

    def _because(self, cause: str, differences: list[Difference]) -> None:
        """Write the first of those that have one cause, and where the others are."""
        page = Page(self.view)
        page.paragraph(f"Because {page.safe(cause)}:", indent=2)
        self.sink.write(page.encoded())
        first = differences[0]
        alike = [one for one in differences if _same_packets(first, one)]
        for one in alike:
            self.feed(one)
        self._flush()
        left = len(differences) - len(alike)
        if left:
            names = list(dict.fromkeys(f"{concealed(one.name, self.view)} ({one.number})" for one in differences))
            more = f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else ""
            page = Page(self.view)
            told = f"and {plural(left, 'more difference')} for this reason, in {plural(len(names), 'connection')}"
            page.paragraph(f"  {told}: {page.safe(', '.join(names[:MAX_NAMES]))}{more}", "yellow", indent=4)
            self.sink.write(page.encoded() + b"\n")

    def _flush(self) -> None:
        if self._group:
            self._blocks += 1
            self.sink.write(encoded([*self._block(self._group), ""]))
        self._group = []

    def _block(self, group: list[Difference]) -> list[str]:
        """The lines of differences about the same packets."""
        painter, difference = self.painter, group[0]
        out: list[str] = []
        for one in group:
            text = Wrapped(painter.line(self.width), most=8)
            text.add(str(one.kind), "error")
            text.add(f": {painter.safe(concealed(one.message, self.view))}")
            out += text.texts()
        line = painter.line(self.width)
        line.add("  ")
        line.add(painter.name(concealed(difference.name, self.view), self.width // 2), "client")
        line.add(f" (connection {difference.number})", "dim")
        if difference.field and len(group) == 1:
            line.add(f", {painter.safe(difference.field)}", "dim")
        if difference.option:
            told = f"because of {difference.option}, which does not count"
            line.add(f", {told if difference.certain else f'perhaps because of {difference.option}'}", "note")
        follows = sum(one.follows for one in group)
        if follows:
            line.add(f"; {plural(follows, 'packet')} missing or new because of it", "note")
        out.append(str(line))
        if difference.recorded is None and difference.live is None:
            return out
        return out + (self._beside(group) if self.width >= SIDE_BY_SIDE else self._below(group))

    def _heading(self, side: str, entry: Entry | None, room: int) -> str:
        """What stands above a packet, with the time where there is room for it."""
        if entry is None:
            return f"{side}: nothing"
        frame = f", frame {entry.frame}" if entry.frame else ""
        when = "" if self.view.time == "none" else f", {self.times[side].text(entry.timestamp_ns).strip()}"
        told = f"{side}: {type_of(entry)}{frame}"
        return told + when if cells(told + when) <= room else told

    def _fields(self, difference: Difference) -> list[tuple[str, str | None, str | None]]:
        """Paths with both values."""
        sides = []
        script, live_script = difference.script, difference.live_script or difference.script
        for entry, whose in ((difference.recorded, script), (difference.live, live_script)):
            found = {} if entry is None else fields_of(entry, whose, self.view)
            for name in _PAYLOAD if self.view.payload == "none" else ():
                found.pop(name, None)
            sides.append(found)
        paths = sorted({**sides[0], **sides[1]}, key=_rank)
        return [(path, *self._shortened(sides[0].get(path), sides[1].get(path))) for path in paths]

    def _shortened(self, before: str | None, now: str | None) -> tuple[str | None, str | None]:
        """Both values as safe text, from a little before the first character that differs where they are long."""
        begin = 0
        if before and now and before != now and max(len(before), len(now)) > MAX_VALUE:
            begin = max(0, _common(before, now) - _LEAD)
        return self._part(before, begin), self._part(now, begin)

    def _part(self, value: str | None, begin: int) -> str | None:
        if value is None:
            return None
        end, ellipsis = begin + MAX_VALUE, self.painter.ellipsis
        shown = self.painter.safe(value[begin:end])
        return f"{ellipsis if begin else ''}{shown}{ellipsis if len(value) > end else ''}"

    def _styles(self, group: list[Difference], path: str) -> Cell:
        """Mark and style of a field."""
        fields = [one.field for one in group if one.field]
        if any(path == field or path.startswith((f"{field}.", f"{field}[")) for field in fields):
            return _MARK, "error"
        if "type" in fields or group[0].kind in (DifferenceKind.ORDER, DeviceKind.ORDER):
            return "  ", ""
        return "  ", "dim" if path in IDLE else ""

    def _beside(self, group: list[Difference]) -> list[str]:
        painter, difference = self.painter, group[0]
        rule = "│" if painter.unicode else "|"
        column = (self.width - 5) // 2
        rows: list[tuple[str, Cell, Cell]] = [
            (
                "  ",
                (self._heading("recorded", difference.recorded, column - 1), "type"),
                (self._heading("live", difference.live, column - 1), "type"),
            )
        ]
        fields = self._fields(difference)
        for path, before, now in fields[:MAX_FIELDS]:
            mark, style = self._styles(group, path)
            room = column - cells(painter.safe(path)) - 1
            if mark == _MARK and before is not None and now is not None:
                before, now = _around(before, now, room, painter.ellipsis)
            rows.append((mark, (_told(path, before, painter), style), (_told(path, now, painter), style)))
        out = []
        for mark, (left, left_style), (right, right_style) in rows:
            line = painter.line(column)
            line.add(left, left_style)
            whole = painter.line(self.width)
            whole.add(mark, "error")
            whole.put(str(line) + " " * (column - line.used), column)
            whole.add(f" {rule} ", "rule")
            whole.add(right, right_style)
            out.append(str(whole).rstrip(" "))
        return out + self._more(fields)

    def _below(self, group: list[Difference]) -> list[str]:
        painter, difference = self.painter, group[0]
        fields = self._fields(difference)
        out = []
        for index, (side, entry) in enumerate((("recorded", difference.recorded), ("live", difference.live))):
            line = painter.line(self.width)
            line.add("  ")
            line.add(self._heading(side, entry, self.width - 4), "type")
            out.append(str(line).rstrip(" "))
            for path, *values in fields[:MAX_FIELDS]:
                value = values[index]
                if value is None:
                    continue
                mark, style = self._styles(group, path)
                line = painter.line(self.width)
                line.add(f"  {mark}", "error")
                line.add(_told(path, value, painter), style)
                out.append(str(line))
        return out + self._more(fields)

    def _more(self, fields: list[tuple[str, str | None, str | None]]) -> list[str]:
        left = len(fields) - MAX_FIELDS
        return [f"  {self.painter.ellipsis} {plural(left, 'more field')}"] if left > 0 else []


def _same_packets(one: Difference, other: Difference) -> bool:
    if one.script is not other.script or (one.recorded is None and one.live is None):
        return False
    return one.recorded is other.recorded and one.live is other.live


def _rank(path: str) -> int:
    """Short fields first, in the order of the packet; what does not count and payloads last."""
    return 2 if path.startswith("payload") else 1 if path in IDLE else 0


def _told(path: str, value: str | None, painter: Painter) -> str:
    return "" if value is None else f"{painter.safe(path)} {value}"


def _around(before: str, now: str, room: int, ellipsis: str) -> tuple[str, str]:
    """Two values that are too long, from a little before the first character that differs."""
    if max(cells(before), cells(now)) <= room:
        return before, now
    at = _common(before, now) - _LEAD
    if at <= len(ellipsis):
        return before, now
    return ellipsis + before[at:], ellipsis + now[at:]


def _common(before: str, now: str) -> int:
    """Number of characters that two values have in common at their beginning."""
    pairs = enumerate(zip(before, now, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(before), len(now)))


def headline(found: Verification, page: Page) -> str:
    """How many differences there are, and their causes."""
    parts = [
        f"{len(differences):,} because {page.safe(cause)}" for cause, differences in found.by_cause.items() if cause
    ]
    return f"{plural(len(found.differences), 'difference')}, of which {'; '.join(parts)}"


def summary(found: Verification, view: View, *, stopped: bool = False) -> bytes:
    """Counts of each connection, and of all."""
    page = Page(view)
    tallies = found.tallies
    if tallies:
        page.title("Connections")
        page.table(
            Column(
                "client",
                [one.script.name if view.show_secrets else masked(one.script.name) for one in tallies],
                style="green",
            ),
            [
                Column("no.", [str(one.script.connection.number) for one in tallies]),
                Column("compared", [number(one.compared) for one in tallies]),
                Column("equal", [number(one.equals) for one in tallies]),
                Column("different", [number(one.differing) for one in tallies]),
                Column("follow", [number(one.following) for one in tallies]),
                Column("not judged", [number(one.unjudged) for one in tallies]),
            ],
        )
        page.line([""])
    reasons: dict[str, int] = {}
    for tally in tallies:
        for reason, count in tally.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + count
    for reason, count in reasons.items():
        page.line([f"{plural(count, 'packet')} not judged: {reason}"], style="yellow")
    kinds: dict[DifferenceKind | DeviceKind, int] = {}
    for difference in found.differences:
        kinds[difference.kind] = kinds.get(difference.kind, 0) + 1
    judged = f"in {found.judged:,} of {plural(len(tallies), 'connection')}"
    told = plural(len(found.differences), "difference") if kinds else found.nothing or f"no differences {judged}"
    page.line(
        [told, *(f"{kind} {count:,}" for kind, count in kinds.items())],
        style="yellow" if stopped or not (kinds or found.judged) else "bold",
    )
    for cause, differences in found.by_cause.items():
        if cause:
            page.paragraph(f"{plural(len(differences), 'difference')} because {page.safe(cause)}", indent=2)
    for (option, certain), count in Counter((one.option, one.certain) for one in found.differences).items():
        if option and certain:
            verb = "does" if count == 1 else "do"
            page.line([f"{plural(count, 'difference')} because of {option}, which {verb} not count"])
        elif option:
            page.line([f"{plural(count, 'difference')} perhaps because of {option}"])
    return page.encoded()

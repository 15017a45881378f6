"""Reports differences between a recording and its replay: both packets side by side, and a summary.

    missing-answer: PUBLISH to 'a/b' was not answered with PUBACK.
      sensor (connection 2)
      recorded: PUBACK, frame 118                  │ live: nothing
    ! packet_identifier 7                          │

`ReplayText` marks fields that differ with ``!``; in terminals of fewer than `SIDE_BY_SIDE` columns the live packet
is below the recorded one.  `LimitedFindings` cuts a report of findings off after a maximum number.

`event_of`, `plain` and `fields_of` prepare the packets of both sides for all formats.  Passwords and Authentication
Data appear only with --show-secrets, and text that looks like a secret is hidden everywhere, since these reports end
up in logs of build servers.
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
from mqttscope.replay.script import Script, ScriptEntry
from mqttscope.replay.verify.difference import DeviceKind, Difference, DifferenceKind, Verification, reason_text
from mqttscope.replay.verify.metrics import NamedValue
from mqttscope.report.base import Sink, View
from mqttscope.report.escape import cells
from mqttscope.report.findings.base import FindingReporter, RunSummary
from mqttscope.report.numbers import number, plural
from mqttscope.report.page import Page, PageColumn
from mqttscope.report.style import Painter, Wrapped, encoded
from mqttscope.report.when import TimeColumn
from mqttscope.secrets.addresses import REDACTED
from mqttscope.secrets.findings import masked
from mqttscope.secrets.forms import without_tokens
from mqttscope.secrets.names import is_secret_value
from mqttscope.secrets.packets import BROKEN, hides_payload
from mqttscope.secrets.values import without_tokens_of
from mqttscope.session.connection import Connection


class LimitedFindings:
    """Passes on the first `MAX_BLOCKS` findings that are not suppressed, and counts the rest."""

    def __init__(self, report: FindingReporter, sink: Sink) -> None:
        self.report, self.sink = report, sink
        self.seen = 0

    def feed(self, finding: Finding, suppressed: Suppression | None = None) -> None:
        """Write a finding, unless the maximum is reached."""
        is_new = suppressed is None and self.report.is_new(finding)
        self.seen += is_new
        if not is_new or self.seen <= MAX_BLOCKS:
            self.report.feed(finding, suppressed)

    def close(self, summary: RunSummary) -> None:
        """Write the number of findings left out, and the summary."""
        if self.seen > MAX_BLOCKS:
            self.sink.write(encoded([left_out(self.seen - MAX_BLOCKS, "finding"), ""]))
        self.report.close(summary)


def left_out(count: int, what: str) -> str:
    return f"and {plural(count, f'more {what}')} not shown; --format jsonl shows all"


IDLE = ("packet_identifier", "dup", "topic_name", "properties.topic_alias", "properties.reason_string")
"""Fields that are not compared."""


def event_of(entry: ScriptEntry, script: Script) -> PacketEvent | MalformedEvent:
    """The event of a packet, as if it came from a capture; its number is its position in the recording."""
    direction = Direction.CLIENT_TO_SERVER if entry.from_client else Direction.SERVER_TO_CLIENT
    place = _connection_at(entry, script), direction, entry.place, entry.frame, entry.timestamp_ns, entry.capture
    packet = entry.packet
    if isinstance(packet, Malformed):
        return MalformedEvent(*place, packet, entry.topic)
    if not packet.raw:
        packet = copy(packet)
        packet.raw = entry.raw or encode(packet, script.version)
    return PacketEvent(*place, packet, entry.topic)


def _connection_at(entry: ScriptEntry, script: Script) -> Connection:
    """The connection with the doubts that existed when the packet came."""
    connection = copy(script.connection)
    side = copy(connection.client_side if entry.from_client else connection.server_side)
    side.doubt, connection.doubtful = entry.doubt, entry.doubt >= BROKEN
    if entry.from_client:
        connection.client_side = side
    else:
        connection.server_side = side
    return connection


def concealed(value: Any, shown: View) -> Any:
    """A plain value without text that looks like a secret."""
    if shown.show_secrets:
        return value
    if isinstance(value, str):
        return masked(value, shown.secret_length)
    if isinstance(value, list):
        return [concealed(part, shown) for part in value]
    if not isinstance(value, dict):
        return value
    name = value.get("name")
    if set(value) == {"name", "value"} and isinstance(name, str) and is_secret_value(name, str(value["value"])):
        return {"name": name, "value": REDACTED}
    # Hexadecimal digits of bytes always look like keys.
    return {key: part if key in ("hex", "raw") else concealed(part, shown) for key, part in value.items()}


def plain(field: str, value: Any, shown: View) -> Any:
    """A value of a difference in the form of JSON."""
    name = field.rpartition(".")[2]
    if "properties." in field and value is not None and name in BY_NAME:
        number = BY_NAME[name].identifier
        several = value if isinstance(value, tuple) else (value,)
        block = properties_view(
            Properties.of((number, part) for part in several), shown.payload_limit, show_secrets=shown.show_secrets
        )
        value = block[name]
    elif isinstance(value, NamedValue):
        value = text(value.shown(show_secrets=shown.show_secrets))
    elif isinstance(value, bytes):
        value = binary(value if shown.show_secrets else without_tokens(value, shown.payload_limit), shown.payload_limit)
    elif isinstance(value, str):
        value = text(value)
    elif isinstance(value, tuple):
        value = [plain("", part, shown) for part in value]
    return concealed(value, shown)


def fields_of(entry: ScriptEntry, script: Script, shown: View) -> dict[str, str]:
    """The fields of a packet by path, as unescaped text; absent fields are left out."""
    packet = entry.packet
    version = packet.version if isinstance(packet, Connect) else script.version
    if isinstance(packet, Malformed):
        values = malformed_view(packet, limit=shown.payload_limit)
        # Raw bytes may contain anything; further faults appear in JSON only.
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
    fields: dict[str, str] = {}
    _flatten("", concealed(values, shown), fields)
    return fields


def _flatten(path: str, value: Any, fields: dict[str, str]) -> None:
    if value is None:
        return
    if isinstance(value, dict):
        if "length" in value:
            fields[path] = _binary(value)
        elif set(value) == {"name", "value"}:
            fields[path] = f"{_text(value['name'])}: {_text(value['value'])}"
        else:
            for key, part in value.items():
                _flatten(f"{path}.{key}" if path else key, part, fields)
    elif isinstance(value, list):
        for index, part in enumerate(value):
            _flatten(f"{path}[{index}]", part, fields)
    elif isinstance(value, bool):
        fields[path] = "true" if value else "false"
    else:
        fields[path] = str(value)


def _text(value: Any) -> str:
    return _binary(value) if isinstance(value, dict) else str(value)


def _binary(value: dict[str, Any]) -> str:
    if value.get("redacted"):
        return f"{value['length']} bytes, hidden"
    more = f"... ({value['length']} bytes)" if value.get("truncated") else ""
    return f"{value['text']}{more}" if "text" in value else f"hex:{value.get('hex', '')}{more}"


def type_of(entry: ScriptEntry) -> str:
    """``PUBACK``; ``MALFORMED PUBACK`` if it cannot be decoded."""
    packet = entry.packet
    if not isinstance(packet, Malformed):
        return entry.type.upper()
    kind = packet.packet_type
    return "MALFORMED packet" if kind is None else f"MALFORMED {type_name(kind).upper()}"


SIDE_BY_SIDE = 80
"""Minimum columns for showing both packets side by side."""
PIPED = 120
"""Width of output without a limit."""
MAX_BLOCKS = 200
"""Default maximum number of packet pairs shown; further differences are counted."""
MAX_FIELDS = 40
"""Maximum number of fields shown per packet; further ones are counted."""
MAX_VALUE = 2_000
"""Maximum characters shown of a value, starting a little before the first difference."""
MAX_NAMES = 5
"""Maximum number of connections named for one cause; further ones are counted."""
_MARK = "! "
_LEAD = 12
"""Columns shown before the first character that differs, in long values."""
_PAYLOAD = ("payload",)

Cell = tuple[str, str]
"""Text and style."""


class ReplayText:
    """Writes differences as blocks, and a summary at the end."""

    def __init__(self, sink: Sink, view: View, *, recorded_ns: int | None = None, live_ns: int | None = None) -> None:
        """Relative times count from ``recorded_ns`` and ``live_ns``, else from the first packet shown."""
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
        """Write a difference, together with the following ones about the same two packets."""
        if self._group and not _same_packets(self._group[0], difference):
            self._flush()
        if self._blocks >= MAX_BLOCKS:
            self._left += 1
            return
        self._group.append(difference)

    def feed_all(self, verification: Verification) -> None:
        """Write all differences: grouped by cause first, then the others."""
        groups = verification.by_cause
        if any(groups):
            page = Page(self.view)
            page.paragraph(headline(verification, page), "bold", indent=2)
            self.sink.write(page.encoded() + b"\n")
        for cause, differences in groups.items():
            if cause:
                self._write_cause(cause, differences)
            else:
                for difference in differences:
                    self.feed(difference)

    def close(self, verification: Verification, *, stopped: bool = False) -> None:
        """Write the summary; ``stopped``: the replay ended early."""
        self._flush()
        if self._left:
            self.sink.write(encoded([left_out(self._left, "difference"), ""]))
        self.sink.write(summary(verification, self.view, stopped=stopped).lstrip(b"\n"))

    def _write_cause(self, cause: str, differences: list[Difference]) -> None:
        """Write the first difference of a cause in full, and name the connections of the others."""
        page = Page(self.view)
        page.paragraph(f"Because {page.safe(cause)}:", indent=2)
        self.sink.write(page.encoded())
        first = differences[0]
        alike = [difference for difference in differences if _same_packets(first, difference)]
        for difference in alike:
            self.feed(difference)
        self._flush()
        left = len(differences) - len(alike)
        if left:
            names = list(dict.fromkeys(f"{concealed(row.name, self.view)} ({row.number})" for row in differences))
            more = f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else ""
            page = Page(self.view)
            rest = f"and {plural(left, 'more difference')} for this reason, in {plural(len(names), 'connection')}"
            page.paragraph(f"  {rest}: {page.safe(', '.join(names[:MAX_NAMES]))}{more}", "yellow", indent=4)
            self.sink.write(page.encoded() + b"\n")

    def _flush(self) -> None:
        if self._group:
            self._blocks += 1
            self.sink.write(encoded([*self._block(self._group), ""]))
        self._group = []

    def _block(self, group: list[Difference]) -> list[str]:
        """The lines of differences about the same two packets."""
        painter, difference = self.painter, group[0]
        out: list[str] = []
        for member in group:
            text = Wrapped(painter.line(self.width), most=8)
            text.add(str(member.kind), "error")
            text.add(f": {painter.safe(concealed(member.message, self.view))}")
            out += text.texts()
        line = painter.line(self.width)
        line.add("  ")
        line.add(painter.name(concealed(difference.name, self.view), self.width // 2), "client")
        line.add(f" (connection {difference.number})", "dim")
        if difference.field and len(group) == 1:
            line.add(f", {painter.safe(difference.field)}", "dim")
        if difference.option:
            reason = f"because of {difference.option}, which cannot fail the run"
            line.add(f", {reason if difference.certain else f'perhaps because of {difference.option}'}", "note")
        follows = sum(member.follows for member in group)
        if follows:
            line.add(f"; {plural(follows, 'packet')} missing or new because of it", "note")
        out.append(str(line))
        if difference.recorded is None and difference.live is None:
            return out
        return out + (self._beside(group) if self.width >= SIDE_BY_SIDE else self._below(group))

    def _heading(self, side: str, entry: ScriptEntry | None, room: int) -> str:
        """Heading of a packet, with the time if there is room."""
        if entry is None:
            return f"{side}: nothing"
        frame = f", frame {entry.frame}" if entry.frame else ""
        when = "" if self.view.time == "none" else f", {self.times[side].text(entry.timestamp_ns).strip()}"
        heading = f"{side}: {type_of(entry)}{frame}"
        return heading + when if cells(heading + when) <= room else heading

    def _fields(self, difference: Difference) -> list[tuple[str, str | None, str | None]]:
        sides = []
        script, live_script = difference.script, difference.live_script or difference.script
        for entry, owner in ((difference.recorded, script), (difference.live, live_script)):
            values = {} if entry is None else fields_of(entry, owner, self.view)
            for name in _PAYLOAD if self.view.payload == "none" else ():
                values.pop(name, None)
            sides.append(values)
        paths = sorted({**sides[0], **sides[1]}, key=_rank)
        return [(path, *self._shortened(sides[0].get(path), sides[1].get(path))) for path in paths]

    def _shortened(self, before: str | None, now: str | None) -> tuple[str | None, str | None]:
        """Both values as safe text; long ones start a little before the first character that differs."""
        begin = 0
        if before and now and before != now and max(len(before), len(now)) > MAX_VALUE:
            begin = max(0, _common(before, now) - _LEAD)
        return self._excerpt(before, begin), self._excerpt(now, begin)

    def _excerpt(self, value: str | None, begin: int) -> str | None:
        if value is None:
            return None
        end, ellipsis = begin + MAX_VALUE, self.painter.ellipsis
        shown = self.painter.safe(value[begin:end])
        return f"{ellipsis if begin else ''}{shown}{ellipsis if len(value) > end else ''}"

    def _styles(self, group: list[Difference], path: str) -> Cell:
        fields = [difference.field for difference in group if difference.field]
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
            rows.append((mark, (_field_text(path, before, painter), style), (_field_text(path, now, painter), style)))
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
                line.add(_field_text(path, value, painter), style)
                out.append(str(line))
        return out + self._more(fields)

    def _more(self, fields: list[tuple[str, str | None, str | None]]) -> list[str]:
        left = len(fields) - MAX_FIELDS
        return [f"  {self.painter.ellipsis} {plural(left, 'more field')}"] if left > 0 else []


def _same_packets(first: Difference, other: Difference) -> bool:
    if first.script is not other.script or (first.recorded is None and first.live is None):
        return False
    return first.recorded is other.recorded and first.live is other.live


def _rank(path: str) -> int:
    """Sort rank: compared fields in packet order, then fields that are not compared, then payloads."""
    return 2 if path.startswith("payload") else 1 if path in IDLE else 0


def _field_text(path: str, value: str | None, painter: Painter) -> str:
    return "" if value is None else f"{painter.safe(path)} {value}"


def _around(before: str, now: str, room: int, ellipsis: str) -> tuple[str, str]:
    """Both values shortened to start a little before the first character that differs, if they are too long."""
    if max(cells(before), cells(now)) <= room:
        return before, now
    at = _common(before, now) - _LEAD
    if at <= len(ellipsis):
        return before, now
    return ellipsis + before[at:], ellipsis + now[at:]


def _common(before: str, now: str) -> int:
    """Length of the common prefix of two values."""
    pairs = enumerate(zip(before, now, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(before), len(now)))


def headline(verification: Verification, page: Page) -> str:
    """Number of differences, with their causes."""
    causes = verification.by_cause.items()
    parts = [f"{len(differences):,} of them because {page.safe(cause)}" for cause, differences in causes if cause]
    return f"{plural(len(verification.differences), 'difference')}, {'; '.join(parts)}"


def summary(verification: Verification, view: View, *, stopped: bool = False) -> bytes:
    """Counts of each connection, and totals."""
    page = Page(view)
    tallies = verification.tallies
    if tallies:
        page.title("Connections")
        page.table(
            PageColumn(
                "client",
                [tally.script.name if view.show_secrets else masked(tally.script.name) for tally in tallies],
                style="green",
            ),
            [
                PageColumn("no.", [str(tally.script.connection.number) for tally in tallies]),
                PageColumn("compared", [number(tally.compared) for tally in tallies]),
                PageColumn("equal", [number(tally.equals) for tally in tallies]),
                PageColumn("different", [number(tally.differing) for tally in tallies]),
                PageColumn("follow", [number(tally.following) for tally in tallies]),
                PageColumn("not judged", [number(tally.unjudged) for tally in tallies]),
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
    for difference in verification.differences:
        kinds[difference.kind] = kinds.get(difference.kind, 0) + 1
    judged = f"in {verification.judged:,} of {plural(len(tallies), 'connection')}"
    number_of = plural(len(verification.differences), "difference")
    conclusion = number_of if kinds else verification.nothing or f"no differences {judged}"
    page.line(
        [conclusion, *(f"{kind} {count:,}" for kind, count in kinds.items())],
        style="yellow" if stopped or not (kinds or verification.judged) else "bold",
    )
    for cause, differences in verification.by_cause.items():
        if cause:
            page.paragraph(f"{plural(len(differences), 'difference')} because {page.safe(cause)}", indent=2)
    for (option, certain), count in Counter((row.option, row.certain) for row in verification.differences).items():
        if option and certain:
            page.line([f"{plural(count, 'difference')} because of {option}, which cannot fail the run"])
        elif option:
            page.line([f"{plural(count, 'difference')} perhaps because of {option}"])
    return page.encoded()

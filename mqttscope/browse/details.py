"""What is shown of one row: its fields with their bytes, its payload, its place in the ladder, what was found about it.

Each view is a list of `TreeLine`, whose lines say which bytes of the packet they are about.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from mqttscope.browse.decoding import as_decoded
from mqttscope.browse.index import Index
from mqttscope.browse.rows import RowKind
from mqttscope.events import Event, MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.finding import Finding
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.wire import counted
from mqttscope.report.base import Collected, View
from mqttscope.report.findings.shown import make_reporter
from mqttscope.report.ladder import Ladder
from mqttscope.report.payload import KINDS, PayloadView
from mqttscope.report.public import decoded_of, hidden_of
from mqttscope.report.style import Painter
from mqttscope.report.text import TextLines
from mqttscope.report.tree import Tree, TreeLine
from mqttscope.secrets.packets import hides_payload
from mqttscope.session.inflight import Side

PAYLOADS: Final = tuple(kind for kind in KINDS if kind != "none")
"""Views of payloads, in the order in which a key goes through them."""
MAX_PAYLOAD_LINES: Final = 5_000
MAX_RUNGS: Final = 600
"""Maximum number of rows of a connection that its ladder shows, around the chosen one."""
BEFORE: Final = 200
"""So many of them before it."""


@dataclass(slots=True)
class Detail:
    """A packet as it may be shown."""

    event: Event
    raw: bytes
    """Its bytes, with an asterisk for each that is hidden; empty for events that have none."""
    hidden: list[tuple[int, int]]
    lines: list[TreeLine]


def detail(index: Index, number: int, view: View) -> Detail:
    """The fields and bytes of a row."""
    event = as_decoded(index, number, view)
    if isinstance(event, PacketEvent | MalformedEvent):
        raw = event.packet.raw if isinstance(event, PacketEvent) else event.malformed.raw
        if view.time in ("relative", "delta"):
            # Of one packet alone they say nothing.
            view = replace(view, time="iso")
        lines = Tree(Collected(), view, bare=True).described(event)
        return Detail(event, raw, hidden_of(event), lines)
    text = TextLines(Collected(), view)
    sink = Collected()
    text.sink = sink
    text.show(event)
    raw = event.unparsed.raw if isinstance(event, UnparsedEvent) else b""
    hidden = hidden_of(event) if isinstance(event, UnparsedEvent) else []
    return Detail(event, raw, hidden, [TreeLine(one) for one in sink.lines])


def said_lines(told: str, view: View, style: str = "dim", place: tuple[int, int] = (-1, -1)) -> list[TreeLine]:
    """A sentence in as many lines as it needs; ``place``: the bytes that it is about."""
    painter = Painter(view)
    return [TreeLine(painter.paint(one, style), *place) for one in folded(painter.safe(told), painter.width - 1)]


def payload_lines(event: Event, view: View, lacks: str = "") -> list[TreeLine]:
    """The payload of an event as it may be shown, in the view that ``view.payload`` names.

    ``lacks``: why no payloads are there at all, where that is so.
    """
    painter = Painter(view)
    if not isinstance(event, PacketEvent) or not isinstance(event.packet, Publish):
        return said_lines("no payload: this is no PUBLISH", view)
    packet = event.packet
    start, end = len(packet.raw) - len(packet.payload), len(packet.raw)
    if hidden_of(event) and hides_payload(packet, event.connection.side(event.direction).doubt):
        return said_lines("hidden: it may hold a password (--show-secrets)", view, place=(start, end))
    whole = counted(len(packet.payload) + packet.missing, "byte")
    if packet.missing and not packet.payload:
        return said_lines(f"{whole}, none {view.held}" + (f": {lacks}" if lacks else ""), view)
    block = packet.properties
    shown = PayloadView.of(view).show(
        packet.payload,
        content_type=None if block is None else block.content_type,
        indicator=None if block is None else block.payload_format_indicator,
        missing=packet.missing,
        decoded=decoded_of(event),
    )
    told = f"{len(packet.payload):,} of {whole} {view.held}" if packet.missing else whole
    out = said_lines(f"{told} as {shown.label}", view, place=(start, end))
    if shown.note:
        out += said_lines(shown.note, view, "note", (start, end))
    at = start
    for text in islice(shown.body, MAX_PAYLOAD_LINES):
        size = 0
        if shown.label == "hex":
            size = len(text.replace(" ", "")) // 2
        width = max(8, painter.width)
        safe = painter.safe(text)
        place = (at, at + size) if size else (start, end)
        pieces = (safe[piece : piece + width] for piece in range(0, max(1, len(safe)), width))
        out += (TreeLine(painter.paint(piece, "payload"), *place) for piece in pieces)
        at += size
    if next(shown.body, None) is not None:
        out.append(TreeLine(painter.paint(f"the first {MAX_PAYLOAD_LINES:,} lines", "dim")))
    return out


@dataclass(slots=True)
class Rung:
    """One line of a ladder; without a row (-1) it says how many rows are left out."""

    text: str
    row: int


def ladder_lines(index: Index, connection: int, around: int, view: View) -> list[Rung]:
    """The ladder of a connection around a row: what of it is played again, and its lines."""
    sink = Collected()
    ladder = Ladder(sink, view)
    ladder.named = False
    out: list[Rung] = []
    playing = index.connections[connection]
    playing.client_side, playing.server_side = Side(), Side()
    shown = 0
    for number in _around(index, connection, around):
        shown += 1
        event = index.event(number, whole=False)
        before = len(sink.lines)
        if isinstance(event, PacketEvent):
            side, known = playing.side(event.direction), event.connection
            side.doubt, playing.doubtful = known.side(event.direction).doubt, known.doubtful
            playing.version, playing.version_known = known.version, known.version_known
            event.connection = playing
        ladder.feed(event)
        out += (Rung(text, number) for text in sink.lines[before:])
        if isinstance(event, PacketEvent):
            playing.apply(event.packet, event.direction, event.number, event.frame, event.timestamp_ns)
    left = index.connections.rows[connection] - shown
    if left > 0:
        out.append(Rung(ladder.painter.paint(f"{counted(left, 'more row')} of this connection not shown", "dim"), -1))
    return out


def _around(index: Index, connection: int, around: int) -> Iterator[int]:
    """Rows of a connection, those around a row where there are too many."""
    first, last = int(index.connections.first_rows[connection]), int(index.connections.last_rows[connection])
    before: list[int] = []
    at = min(around, last + 1)
    step = 4_096
    while at > first and len(before) < BEFORE:
        start = max(first, at - step)
        rows = enumerate(index.rows.run(start, at), start)
        before = [number for number, row in rows if row.connection == connection and row.kind < RowKind.ERROR] + before
        at = start
        if around - at > 50 * step:
            break
    yield from before[-BEFORE:]
    left = MAX_RUNGS - min(len(before), BEFORE)
    for number, row in enumerate(index.rows.run(around, min(last + 1, around + 50 * step)), around):
        if row.connection == connection and row.kind < RowKind.ERROR:
            yield number
            left -= 1
            if not left:
                return


def finding_lines(findings: list[Finding], view: View) -> list[TreeLine]:
    """Findings in full, and why the rule is there."""
    sink = Collected()
    reporter = make_reporter("full", sink, view, every=True)
    painter = Painter(view)
    out: list[TreeLine] = []
    for finding in findings:
        before = len(sink.lines)
        reporter.feed(finding)
        place = (-1, -1)
        if finding.offset is not None and finding.length:
            place = finding.offset, finding.offset + finding.length
        out += (TreeLine(one, *place) for one in sink.lines[before:])
        rule = all_rules().get(finding.rule)
        for paragraph in () if rule is None else rule.paragraphs()[:-1]:
            out += (TreeLine(painter.paint(one, "dim")) for one in folded(painter.safe(paragraph), painter.width - 1))
            out.append(TreeLine(""))
    return out


def folded(text: str, width: int) -> list[str]:
    """Text in lines of at most ``width`` columns."""
    import textwrap

    return textwrap.wrap(text, max(20, min(width, 120))) or [""]

"""Views of one row: fields with their bytes, payload, ladder of the connection, findings.

Each view is a list of `TreeLine` with the range of bytes for each line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Final

from mqttscope.browse.decoding import as_decoded
from mqttscope.browse.index import Index
from mqttscope.browse.rows import RowKind
from mqttscope.events import Event, MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.finding import Finding
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.wire import counted
from mqttscope.report.base import LineCollector, View
from mqttscope.report.explanations.text import ExplanationText
from mqttscope.report.findings.shown import make_reporter
from mqttscope.report.ladder import Ladder
from mqttscope.report.payload import KINDS, PayloadView
from mqttscope.report.public import decoded_of, hidden_of
from mqttscope.report.style import Painter
from mqttscope.report.text import TextLines
from mqttscope.report.tree import Tree, TreeLine
from mqttscope.secrets.packets import hides_payload
from mqttscope.session.inflight import ConnectionSide

PAYLOADS: Final = tuple(kind for kind in KINDS if kind != "none")
"""Payload views, in the order of the key that switches them."""
MAX_PAYLOAD_LINES: Final = 5_000
MAX_RUNGS: Final = 600
"""Maximum number of rows in a ladder, around the current row."""
NO_EXPLANATION: Final = (
    "this connection is open, or its end is not explained yet; not possible with --no-lint or in lakes"
)
BEFORE: Final = 200
"""Maximum number of rows in a ladder before the current row."""


@dataclass(slots=True)
class PacketDetails:
    """A packet with secrets hidden, and the lines of its fields."""

    event: Event
    raw: bytes
    """Bytes of the packet, with asterisks for hidden bytes; empty for other events."""
    hidden: list[tuple[int, int]]
    lines: list[TreeLine]


def detail(index: Index, number: int, view: View) -> PacketDetails:
    """Fields and bytes of a row."""
    event = as_decoded(index, number, view)
    if isinstance(event, PacketEvent | MalformedEvent):
        raw = event.packet.raw if isinstance(event, PacketEvent) else event.malformed.raw
        if view.time in ("relative", "delta"):
            # Relative times are meaningless for a single packet.
            view = replace(view, time="iso")
        lines = Tree(LineCollector(), view, bare=True).described(event)
        return PacketDetails(event, raw, hidden_of(event), lines)
    text = TextLines(LineCollector(), view)
    sink = LineCollector()
    text.sink = sink
    text.show(event)
    raw = event.unparsed.raw if isinstance(event, UnparsedEvent) else b""
    hidden = hidden_of(event) if isinstance(event, UnparsedEvent) else []
    return PacketDetails(event, raw, hidden, [TreeLine(line) for line in sink.lines])


def sentence_lines(sentence: str, view: View, style: str = "dim", place: tuple[int, int] = (-1, -1)) -> list[TreeLine]:
    """A sentence as wrapped lines; ``place``: range of bytes."""
    painter = Painter(view)
    return [
        TreeLine(painter.paint(line, style), *place)
        for line in wrapped_lines(painter.safe(sentence), painter.width - 1)
    ]


def payload_lines(event: Event, view: View, lacks: str = "") -> list[TreeLine]:
    """The payload of an event with secrets hidden, in the view ``view.payload``.

    ``lacks``: reason if all payloads are missing.
    """
    painter = Painter(view)
    if not isinstance(event, PacketEvent) or not isinstance(event.packet, Publish):
        return sentence_lines("no payload: not a PUBLISH", view)
    packet = event.packet
    start, end = len(packet.raw) - len(packet.payload), len(packet.raw)
    if hidden_of(event) and hides_payload(packet, event.connection.side(event.direction).doubt):
        return sentence_lines("hidden: it may hold a password (--show-secrets)", view, place=(start, end))
    whole = counted(len(packet.payload) + packet.missing, "byte")
    if packet.missing and not packet.payload:
        return sentence_lines(f"{whole}, none {view.held}" + (f": {lacks}" if lacks else ""), view)
    block = packet.properties
    shown = PayloadView.from_view(view).show(
        packet.payload,
        content_type=None if block is None else block.content_type,
        indicator=None if block is None else block.payload_format_indicator,
        missing=packet.missing,
        decoded=decoded_of(event),
    )
    size_text = f"{len(packet.payload):,} of {whole} {view.held}" if packet.missing else whole
    out = sentence_lines(f"{size_text} as {shown.label}", view, place=(start, end))
    if shown.note:
        out += sentence_lines(shown.note, view, "note", (start, end))
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
class LadderLine:
    """One line of a ladder; row -1 is the line with the number of omitted rows."""

    text: str
    row: int


def ladder_lines(index: Index, connection: int, around: int, view: View) -> list[LadderLine]:
    """Lines of the ladder of a connection around a row, made by replaying its events."""
    sink = LineCollector()
    ladder = Ladder(sink, view)
    ladder.named = False
    out: list[LadderLine] = []
    playing = index.connections[connection]
    playing.client_side, playing.server_side = ConnectionSide(), ConnectionSide()
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
        out += (LadderLine(text, number) for text in sink.lines[before:])
        if isinstance(event, PacketEvent):
            playing.apply(event.packet, event.direction, event.number, event.frame, event.timestamp_ns)
    left = index.connections.rows[connection] - shown
    if left > 0:
        out.append(
            LadderLine(ladder.painter.paint(f"{counted(left, 'more row')} of this connection not shown", "dim"), -1)
        )
    return out


def end_lines(index: Index, connection: int, view: View) -> list[LadderLine]:
    """Why a connection ended, and the answers about its edge nodes, with the rows of the evidence."""
    explanation = index.explanations.get(connection)
    out = [LadderLine(line.text, -1) for line in sentence_lines(NO_EXPLANATION, view)] if explanation is None else []
    if view.time == "delta":
        view = replace(view, time="relative")
    writer = ExplanationText(LineCollector(), view)
    groups = [] if explanation is None else [writer.framed(explanation)]
    for answer in index.explanations.nodes:
        if connection in answer.connections:
            groups += [iter([([""], None)]), writer.framed_node(answer)]
    for lines, frame in chain.from_iterable(groups):
        row = -1 if frame is None else index.row_of_frame(connection, frame)
        out += (LadderLine(text, row) for text in lines)
    return out


def _around(index: Index, connection: int, around: int) -> Iterator[int]:
    """Rows of a connection, limited to rows around a given one."""
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
    """Findings in full, with the rationale of their rules."""
    sink = LineCollector()
    reporter = make_reporter("full", sink, view, every=True)
    painter = Painter(view)
    out: list[TreeLine] = []
    for finding in findings:
        before = len(sink.lines)
        reporter.feed(finding)
        place = (-1, -1)
        if finding.offset is not None and finding.length:
            place = finding.offset, finding.offset + finding.length
        out += (TreeLine(line, *place) for line in sink.lines[before:])
        rule = all_rules().get(finding.rule)
        for paragraph in () if rule is None else rule.paragraphs()[:-1]:
            out += (
                TreeLine(painter.paint(line, "dim"))
                for line in wrapped_lines(painter.safe(paragraph), painter.width - 1)
            )
            out.append(TreeLine(""))
    return out


def wrapped_lines(text: str, width: int) -> list[str]:
    """Text in lines of at most ``width`` columns."""
    import textwrap

    return textwrap.wrap(text, max(20, min(width, 120))) or [""]

"""The page of packets: each event as its line of JSON Lines, with the summary that the text report shows.

The page writes only output of `report.jsonl` and of a `PublicReport`, so secrets are hidden here as well.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from io import BytesIO
from typing import TYPE_CHECKING, Any

import orjson

from mqttscope.events import ConnectionEnding, ConnectionOpened, Damage, Event, MalformedEvent, PacketEvent
from mqttscope.report import notices
from mqttscope.report.base import Sink, View
from mqttscope.report.html.page import PageWriter
from mqttscope.report.html.pieces import between, captures_text, header, paragraph, safe, short
from mqttscope.report.jsonl import EventJsonLines
from mqttscope.report.ladder import Ladder
from mqttscope.report.numbers import plural
from mqttscope.report.style import Wrapped
from mqttscope.report.text import LineHeads

if TYPE_CHECKING:
    from mqttscope.report.jsonl_decoded import DecodedLines

FIRST_BYTES = 4_000_000
"""Size of the list, unless the user sets a limit; further rows are ends, damage, and packets before them."""
MAX_BYTES = 7_000_000
"""Maximum size of the list, unless the user sets a limit: the page can still be sent by mail."""
MAX_BEFORE = 8
"""Maximum number of packets of a connection listed before its end or before damage."""
MAX_RECENT = 2_000
"""Maximum number of connections with remembered packets; the ones silent for longest are forgotten."""
ROWS_A_PACKET = 4
"""Maximum number of other events on a page for each packet of the limit."""
CIRCLED = 10
"""Highest tag of an exchange that most fonts have in a circle."""
SUMMARY_CELLS = 300
"""Maximum columns of the summary of a packet."""
_TITLES = ("time (UTC)", "frame", "", "client", "", "type", "what")
_SPANS = "".join(f'<span class="{"number" if title == "frame" else ""}">{title}</span>' for title in _TITLES)
_HEAD = f'<div class="row head"><div class="line">{_SPANS}</div></div>'
_ARROWS = {"client_to_server": "→", "server_to_client": "←"}


class PacketPage:
    """Writes a row for each event, below charts and tables."""

    def __init__(self, sink: Sink, view: View) -> None:
        self.page = PageWriter(sink, "events", 100, options="data-ladder")
        self.limit: int | None = None
        """The packet limit of the user that ended the reading, if there is one."""
        self.overview: Callable[[], Iterable[str]] = list
        """Returns the first parts of the page."""
        self.packets = 0
        self.first = 0
        """Number of packets in the first part of the list; 0 while it is not full."""
        self.left_out = 0
        """Number of unlisted packets."""
        self.is_cut = False
        """Whether the list is full, and events are missing from it."""
        self._lines: EventJsonLines | DecodedLines
        if view.decoders() is None:
            self._lines = EventJsonLines(sink, payload_limit=view.payload_limit, show_secrets=view.show_secrets)
        else:
            from mqttscope.report.jsonl_decoded import DecodedLines

            self._lines = DecodedLines(sink, view)
        self._summaries = _Summaries(BytesIO(), replace(view, width=0, colour=False, unicode=True, time="none"))
        self._recent: OrderedDict[int, deque[Event]] = OrderedDict()
        """Last unlisted packets of connections, by number; empty until the first part of the list is full."""
        self._captures: dict[str, None] = {}
        self._first_ns: int | None = None
        self._last_ns: int | None = None

    def feed(self, event: Event) -> None:
        """Write an event."""
        capture = getattr(event, "capture", "")
        if capture and capture not in self._captures:
            self._captures[capture] = None
        time_ns = getattr(event, "timestamp_ns", None)
        if time_ns is not None:
            self._first_ns = time_ns if self._first_ns is None else min(self._first_ns, time_ns)
            self._last_ns = max(self._last_ns or time_ns, time_ns)
        if type(event) is ConnectionEnding:  # its ConnectionClosed has all of it
            return
        is_packet = isinstance(event, PacketEvent | MalformedEvent)
        self.packets += is_packet
        if self.limit is None:
            is_full = self.page.size >= MAX_BYTES
        else:
            is_full = self.packets > self.limit or self.page.rows >= ROWS_A_PACKET * self.limit
        if is_full or self.is_cut:
            self.left_out += is_packet
            self.is_cut = True
        elif self.limit is None and self.page.size >= FIRST_BYTES:
            self.first = self.first or self.packets - is_packet
            self._list_around(event)
        else:
            self._list(event)

    def _list_around(self, event: Event) -> None:
        """Remember a sound packet; list any other event after the last packets of its connection."""
        number = getattr(getattr(event, "connection", None), "number", None)
        if type(event) is PacketEvent:
            recent = self._recent.pop(event.connection.number, None) or deque(maxlen=MAX_BEFORE)
            recent.append(event)
            self._recent[event.connection.number] = recent
            self.left_out += 1
            if len(self._recent) > MAX_RECENT:
                self._recent.popitem(last=False)
        elif type(event) is not ConnectionOpened:
            for packet in self._recent.pop(number, ()) if number is not None else ():
                self._list(packet)
                self.left_out -= 1
            self._list(event)

    def _list(self, event: Event) -> None:
        line = self._lines.line(event)
        if line is not None:
            document = line.rstrip("\n").encode()
            row = orjson.loads(document)
            self._summaries.feed(event)
            text = self._summaries.text or " by the ".join(filter(None, (row.get("how"), row.get("by"))))
            markup = _row(row, text, self._summaries.tag), "</details>"
            self.page.row(markup, document, connection=row.get("connection"))

    def cut(self) -> str:
        """Sentence about what the page leaves out; empty if it lists everything."""
        if self.left_out:
            listed = self.packets - self.left_out
            first = self.first or listed
            others = f", and {listed - first:,} of the others, before ends and damage" if listed > first else ""
            return (
                f"the page lists the first {first:,} of {plural(self.packets, 'packet')}{others}; "
                "its charts and tables count all; --limit N lists N"
            )
        if self.is_cut:
            return f"the page lists the first {self.page.rows:,} events; its charts and tables count all"
        if self.limit is not None and self.packets >= self.limit:
            return f"the page ends after {plural(self.packets, 'packet')} (--limit); the capture may contain more"
        return ""

    def close(self) -> None:
        """Write the page."""
        named = captures_text(self._captures)
        notice = self.cut()
        parts = [
            header("Packets", named, between(self._first_ns, self._last_ns)),
            *self.overview(),
            paragraph(notice and f"{notice[0].upper()}{notice[1:]}.", "doubt"),
        ]
        self.page.close(f"packets of {named}", parts, "Each packet", _HEAD)


def _row(row: dict[str, Any], text: str, tag: tuple[str, str]) -> str:
    """The line of an event, from its JSON document."""
    event, direction = row["event"], row.get("direction")
    kind = event if event in ("malformed", "gap", "unparsed", "discarded", "capture_error") else ""
    sender = direction or ("event" if event.startswith("connection") else "")
    number, name = row.get("connection"), row.get("client_identifier") or row.get("client") or ""
    if isinstance(name, dict):
        name = name.get("text") or f"hex {name.get('hex', '')}"
    tagged = f'<em class="{tag[1]}">{tag[0]}</em> ' if tag[0] else ""
    cells = (
        f'<span class="time">{safe((row.get("timestamp") or "")[11:26])}</span>',
        f'<span class="number">{row.get("frame") or ""}</span>',
        f'<span class="number">{"" if number is None else f"#{number}"}</span>',
        f'<b class="name">{short(str(name))}</b><span class="way">{_ARROWS.get(direction or "", "")}</span>',
        f'<span class="label"><b class="type">{safe(_type(row))}</b> ',
        f'<span class="what">{tagged}{safe(text)}</span></span>',
    )
    return f'<details class="row {sender}{" bad" if kind else ""}"><summary class="line">{"".join(cells)}</summary>'


def _type(row: dict[str, Any]) -> str:
    return str(row.get("type") or row["event"].removeprefix("connection_").replace("_", " ")).upper()


class _Heads(LineHeads):
    def rule(self, timestamp_ns: int | None) -> Wrapped:
        """A line without its time."""
        return Wrapped(self.painter.line())


class _Summaries(Ladder):
    """Summary of an event in the text report, and the tag of its exchange in the ladder."""

    def __init__(self, sink: Sink, view: View) -> None:
        super().__init__(sink, view)
        self.heads = _Heads(view, self.painter)
        self.text = ""
        self.tag = ("", "")

    def show(self, event: Event) -> None:
        """Keep the summary of an event."""
        self.tag = ("", "")
        if isinstance(event, PacketEvent):
            line = self.painter.line(SUMMARY_CELLS)
            self.summary.describe(line, event)
            self.text = str(line).strip()
            if (tag := self._tag(event)) is not None:
                self.tag = (self._circled(tag[0]) if tag[0] <= CIRCLED else f"({tag[0]})"), tag[1]
        else:
            self.text = " ".join(self.other(event)).strip().removeprefix(f"{self.painter.rule} ")

    def damaged(self, event: Damage) -> Wrapped:
        """Description of damaged bytes."""
        text = Wrapped(self.painter.line())
        if isinstance(event, MalformedEvent):
            text.add("MALFORMED ")
        notices.damage(text, event, self.painter)
        return text

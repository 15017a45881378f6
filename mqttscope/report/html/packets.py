"""The page of packets: each event as its line of JSON Lines, for a table, the fields of each and ladders.

The page writes of events what `report.jsonl` makes of them, and nothing else, so that what is secret there is here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from mqttscope.events import Event, MalformedEvent, PacketEvent
from mqttscope.mqtt.view import utf8
from mqttscope.report.base import Sink, View
from mqttscope.report.html.page import PageWriter
from mqttscope.report.html.pieces import doubt, short
from mqttscope.report.jsonl import JsonLines
from mqttscope.report.numbers import plural
from mqttscope.secrets.addresses import public_name

if TYPE_CHECKING:
    from mqttscope.report.jsonl_decoded import DecodedLines

MAX_PACKETS = 50_000
"""Packets that a page lists unless it is asked for another number: a browser takes more, but slowly."""
ROWS_A_PACKET = 4
"""A page lists at most this many other events for each packet that it may list."""
MAX_CAPTURES = 5
"""Captures that are named; further ones are counted."""


class Packets:
    """Writes a row for each event, then what is seen at a glance."""

    def __init__(self, sink: Sink, view: View) -> None:
        self.page = PageWriter(sink, "events")
        self.limit: int | None = None
        """Packets after which the reading ended by request, if it did."""
        self.overview: Callable[[], Iterable[str]] = list
        """Makes what the page begins with."""
        self.packets = 0
        self.left_out = 0
        """Packets that came after the last one of the list."""
        self.is_cut = False
        """Whether an event is missing from the list that is not a packet."""
        self._lines: JsonLines | DecodedLines
        if view.decoders() is None:
            self._lines = JsonLines(sink, payload_limit=view.payload_limit, show_secrets=view.show_secrets)
        else:
            from mqttscope.report.jsonl_decoded import DecodedLines

            self._lines = DecodedLines(sink, view)
        self._captures: dict[str, None] = {}

    def feed(self, event: Event) -> None:
        """Write one event."""
        capture = getattr(event, "capture", "")
        if capture and capture not in self._captures:
            self._captures[capture] = None
        is_packet = isinstance(event, PacketEvent | MalformedEvent)
        self.packets += is_packet
        most = self.limit or MAX_PACKETS
        if self.packets > most or self.page.rows >= ROWS_A_PACKET * most:
            self.left_out += is_packet
            self.is_cut = self.is_cut or not is_packet
            return
        line = self._lines.line(event)
        if line is not None:
            self.page.begin(f"packets of {self._named()}")
            self.page.row(line.rstrip("\n").encode())

    def cut(self) -> str:
        """That the page does not list everything, in a sentence; empty where it does."""
        if self.left_out:
            return (
                f"the page lists the first {self.packets - self.left_out:,} of {plural(self.packets, 'packet')}; its "
                "charts and tables count all; --limit N lists N"
            )
        if self.is_cut:
            return f"the page lists the first {self.page.rows:,} events; its charts and tables count all"
        if self.limit is not None and self.packets >= self.limit:
            return f"the page ends after {plural(self.packets, 'packet')}, as --limit asks; the capture may hold more"
        return ""

    def close(self) -> None:
        """Write the rest."""
        self.page.begin(f"packets of {self._named()}")
        told = self.cut()
        head = f'<header><h1>Packets</h1><p class="where">{short(self._named())}</p></header>'
        shown = doubt(f"{told[0].upper()}{told[1:]}.") if told else ""
        self.page.close([head, shown, *self.overview()], title="Each packet")

    def _named(self) -> str:
        names = [utf8(public_name(one)) for one in list(self._captures)[:MAX_CAPTURES]]
        left = len(self._captures) - len(names)
        return ", ".join(names) + (f" and {left:,} more" if left else "")

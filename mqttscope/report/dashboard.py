"""Shows a live capture on one screen: rates, clients, topics, findings and losses.

`Traffic` counts: totals since the beginning, and the rates of the last seconds.  It takes the time from its caller and
knows no terminal.  Every table has a limit; the row that was idle longest is dropped first, and counted.  `lines` makes
the text of the screen from these numbers, and `Dashboard` shows it with rich, four times a second.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from itertools import zip_longest
from typing import TYPE_CHECKING

from mqttscope.events import ConnectionClosed, ConnectionOpened, Event, GapEvent, MalformedEvent, PacketEvent
from mqttscope.lint.finding import Finding, Severity
from mqttscope.mqtt.packets import Connack, Connect, Puback, Publish, Pubrec
from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.report.base import View
from mqttscope.report.findings.base import STYLES
from mqttscope.report.style import Painter
from mqttscope.secrets.findings import conceal
from mqttscope.session.connection import DISCONNECTED, REFUSED, Connection
from mqttscope.session.inflight import SENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.live import Live
    from rich.text import Text

MAX_CLIENTS = 1_000
MAX_TOPICS = 2_000
MAX_NAME = 256
"""Characters of a name that are kept, its beginning and its end: topics may be 64 KiB long."""
MAX_FINDINGS = 20
"""Latest findings that are kept."""
SECOND_NS = 1_000_000_000
MAX_LATENCIES = 200
"""Latest answers to PUBLISH whose latency is kept."""
STEADY = 0.4
"""How much the last second weighs in a rate."""


@dataclass(slots=True)
class Row:
    """A client or a topic, or everything."""

    packets: int = 0
    octets: int = 0
    packet_rate: float = 0.0
    octet_rate: float = 0.0
    connects: int = 0
    """CONNECT packets of a client."""
    _packets_before: int = 0
    _octets_before: int = 0

    def add(self, octets: int) -> None:
        self.packets += 1
        self.octets += octets

    def settle(self, seconds: float) -> None:
        """So many seconds are over since the last time."""
        self.packet_rate += STEADY * ((self.packets - self._packets_before) / seconds - self.packet_rate)
        self.octet_rate += STEADY * ((self.octets - self._octets_before) / seconds - self.octet_rate)
        self._packets_before, self._octets_before = self.packets, self.octets


@dataclass(slots=True)
class Traffic:
    """Feed it events, and let time pass."""

    started_ns: int = 0
    total: Row = field(default_factory=Row)
    clients: dict[str, Row] = field(default_factory=dict)
    """By Client Identifier, or by endpoint where none is known."""
    topics: dict[str, Row] = field(default_factory=dict)
    qos: Counter[int] = field(default_factory=Counter)
    """PUBLISH packets by QoS."""
    open: int = 0
    opened: int = 0
    connecting: Row = field(default_factory=Row)
    """CONNECT packets."""
    reconnects: Row = field(default_factory=Row)
    """Those of clients that had connected before."""
    refused: Row = field(default_factory=Row)
    """CONNACK packets that accept nobody."""
    closed: Row = field(default_factory=Row)
    """Connections that ended, in whatever way."""
    broken: Row = field(default_factory=Row)
    """Those of them that ended without DISCONNECT and had not been refused."""
    latencies: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_LATENCIES))
    """Nanoseconds from PUBLISH to PUBACK or PUBREC, of the latest."""
    malformed: int = 0
    lost_bytes: int = 0
    dropped: int = 0
    """Frames that were dropped while capturing, as far as it is known."""
    errors: list[str] = field(default_factory=list)
    severities: Counter[Severity] = field(default_factory=Counter)
    findings: deque[Finding] = field(default_factory=lambda: deque(maxlen=MAX_FINDINGS))
    forgotten: int = 0
    """Clients and topics that were forgotten to make room."""
    now_ns: int = 0
    _settled_ns: int = 0

    def feed(self, event: Event) -> None:
        """Count one event."""
        if isinstance(event, PacketEvent):
            self._packet(event)
        elif isinstance(event, MalformedEvent):
            self.malformed += 1
            octets = len(event.malformed.raw)
            self.total.add(octets)
            self._row(self.clients, _name(event.connection), MAX_CLIENTS).add(octets)
        elif isinstance(event, ConnectionOpened):
            self.open += 1
            self.opened += 1
        elif isinstance(event, ConnectionClosed):
            self._closed(event)
        elif isinstance(event, GapEvent):
            self.lost_bytes += event.length
        elif isinstance(event, CaptureDrops):
            self.dropped += event.dropped
        elif isinstance(event, CaptureError):
            self.errors[:] = [event.message]

    def finding(self, finding: Finding) -> None:
        self.severities[finding.severity] += 1
        self.findings.append(finding)

    def pass_time(self, now_ns: int) -> None:
        """It is this time now; rates follow once a second."""
        self.started_ns = self.started_ns or now_ns
        self._settled_ns = self._settled_ns or now_ns
        self.now_ns = now_ns
        seconds = (now_ns - self._settled_ns) / SECOND_NS
        if seconds < 1:
            return
        self._settled_ns = now_ns
        for row in self._rows():
            row.settle(seconds)

    def snapshot(self) -> Traffic:
        """The numbers as they are now, which stay when more is counted."""
        made = copy(self)
        for name in (*_SINGLE_ROWS, "qos", "latencies", "errors", "severities", "findings"):
            setattr(made, name, copy(getattr(self, name)))
        made.clients, made.topics = (
            {name: copy(row) for name, row in one.items()} for one in (self.clients, self.topics)
        )
        return made

    def _rows(self) -> Iterable[Row]:
        yield from (getattr(self, name) for name in _SINGLE_ROWS)
        yield from self.clients.values()
        yield from self.topics.values()

    def _packet(self, event: PacketEvent) -> None:
        packet = event.packet
        octets = len(packet.raw)
        self.total.add(octets)
        row = self._row(self.clients, _name(event.connection), MAX_CLIENTS)
        row.add(octets)
        if isinstance(packet, Connect):
            if row.connects:
                self.reconnects.add(octets)
            row.connects += 1
            self.connecting.add(octets)
        elif isinstance(packet, Connack):
            if packet.reason_code:
                self.refused.add(octets)
        elif isinstance(packet, Puback | Pubrec):
            asked = event.connection.answered_by(packet, event.direction)
            if asked is not None and asked.phase is SENT and event.timestamp_ns >= asked.timestamp_ns:
                self.latencies.append(event.timestamp_ns - asked.timestamp_ns)
        if isinstance(packet, Publish):
            self.qos[packet.qos] += 1
            if event.topic:
                self._row(self.topics, _short_name(event.topic), MAX_TOPICS).add(octets)

    def _closed(self, event: ConnectionClosed) -> None:
        self.open -= 1
        self.closed.add(0)
        connection = event.connection
        # TLS says nothing of DISCONNECT, and the end of a capture is no end of a connection.
        ended = connection.closed_how in ("fin", "reset") and connection.client_side.packets > 0
        if ended and connection.phase not in (DISCONNECTED, REFUSED):
            self.broken.add(0)

    @property
    def latency_ns(self) -> int | None:
        return sorted(self.latencies)[len(self.latencies) // 2] if self.latencies else None

    def _row(self, table: dict[str, Row], name: str, limit: int) -> Row:
        row = table.get(name)
        if row is None:
            if len(table) >= limit:
                least = nsmallest(limit // 8, table.items(), key=lambda one: (one[1].packet_rate, one[1].packets))
                for forgotten, _ in least:
                    del table[forgotten]
                self.forgotten += len(least)
            row = table[name] = Row()
        return row


_SINGLE_ROWS = ("total", "connecting", "reconnects", "refused", "closed", "broken")

ORDERS: dict[str, Callable[[Row], float]] = {
    "packets/s": lambda row: round(row.packet_rate, 1),
    "bytes/s": lambda row: round(row.octet_rate),
    "packets": lambda row: row.packets,
    "connects": lambda row: row.connects,
    "name": lambda _: 0,
}
"""What tables can be sorted by, the highest first."""


def busiest(table: dict[str, Row], count: int, order: str = "packets/s") -> list[tuple[str, Row]]:
    """The first rows of a table; equal ones by packets, then by name."""
    of_row = ORDERS[order]
    if order == "name":
        return sorted(table.items())[:count]
    return sorted(table.items(), key=lambda one: (-of_row(one[1]), -one[1].packets, one[0]))[:count]


def _name(connection: Connection) -> str:
    return _short_name(connection.client_identifier or connection.client)


def _short_name(name: str) -> str:
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME // 2]}…{name[-(MAX_NAME // 2) :]}"


REFRESH_SECONDS = 0.25
MIN_WIDTH = 40
MIN_HEIGHT = 12
_NUMBERS = 31
"""Columns that the numbers of a row take."""
_CONNECTS = 10
"""Columns for how often a client connected, where there is room."""
_WIDE = 132
"""From so many columns on clients and topics stand beside each other."""
_FRAME_LINES = 6
"""Lines that are no rows: the titles and the blanks."""
_NARROW = 72
"""With fewer columns losses have a line of their own: they are what must not be cut."""
_GAP = 3
"""Columns between two tables."""
_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
MAX_WANTED = 64
"""Characters of the text that names must contain."""
_ESCAPE, _ENTERS, _ERASES = "\x1b", "\r\n", "\x7f\b"


@dataclass(slots=True)
class Look:
    """What the keys have chosen."""

    order: str = "packets/s"
    wanted: str = ""
    """Only clients and topics whose names contain this."""
    typing: bool = False
    """Keys are characters of ``wanted``."""
    paused: bool = False
    over: bool = False
    """The capture is to end."""

    def press(self, key: str) -> None:
        """Do what a key stands for; others do nothing."""
        if self.typing:
            self._type(key)
        elif key in "pP ":
            self.paused = not self.paused
        elif key in "sS":
            orders = list(ORDERS)
            self.order = orders[(orders.index(self.order) + 1) % len(orders)]
        elif key == "/":
            self.typing = True
        elif key == _ESCAPE:
            self.wanted = ""
        elif key in "qQ":
            self.over = True

    def _type(self, key: str) -> None:
        if key in _ENTERS:
            self.typing = False
        elif key == _ESCAPE:
            self.typing, self.wanted = False, ""
        elif key in _ERASES:
            self.wanted = self.wanted[:-1]
        elif key.isprintable():
            self.wanted = (self.wanted + key)[:MAX_WANTED]

    def selected(self, table: dict[str, Row]) -> dict[str, Row]:
        wanted = self.wanted.casefold()
        return {name: row for name, row in table.items() if wanted in name.casefold()} if wanted else table


class Dashboard:
    """A reporter that shows numbers instead of events."""

    def __init__(self, capture: str, view: View, look: Look | None = None) -> None:
        self.capture = capture
        self.view = view
        self.traffic = Traffic()
        self.look = look
        """None where no keys can be pressed."""
        self._kept: Traffic | None = None
        """The numbers of a picture that is paused."""
        self._live: Live | None = None
        self._last: Text | None = None
        self._refresh_at = 0.0

    def feed(self, event: Event) -> None:
        self.traffic.feed(event)

    def finding(self, finding: Finding) -> None:
        self.traffic.finding(conceal(finding, self.view.hiding()))

    def press(self, keys: Sequence[str]) -> None:
        """Do what keys stand for, and show it with the next refresh."""
        if self.look is None or not keys:
            return
        for key in keys:
            self.look.press(key)
        self._refresh_at = 0.0

    def refresh(self, now_ns: int, *, last: bool = False) -> None:
        """Show the numbers of now, unless they were shown just before or the picture is paused."""
        now = time.monotonic()
        if now < self._refresh_at and not last:
            return
        self._refresh_at = now + REFRESH_SECONDS
        self.traffic.pass_time(now_ns)
        columns, rows = shutil.get_terminal_size()
        view = replace(self.view, width=max(MIN_WIDTH, columns))
        from rich.text import Text

        # The last picture stays where no key can be pressed any more.
        look = None if last else self.look
        text = "\n".join(lines(self._pictured(look), self.capture, view, max(MIN_HEIGHT, rows), look))
        self._last = Text.from_ansi(text, no_wrap=True, overflow="crop")
        self._screen().update(self._last, refresh=True)

    def close(self) -> None:
        """Leave the last numbers on the screen that was there before."""
        if self._live is not None:
            self._live.stop()
            self._live.console.print(self._last)
            self._live = None

    def _pictured(self, look: Look | None) -> Traffic:
        if look is None or not look.paused:
            self._kept = None
            return self.traffic
        if self._kept is None:
            self._kept = self.traffic.snapshot()
        return self._kept

    def _screen(self) -> Live:
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            console = Console(highlight=False, no_color=not self.view.colour)
            # The other screen is written over in place: nothing is erased first, so that nothing flickers.
            self._live = Live(console=console, auto_refresh=False, screen=True)
            self._live.start()
        return self._live


def lines(traffic: Traffic, capture: str, view: View, height: int = 24, look: Look | None = None) -> list[str]:
    """The screen: at most ``height`` lines as wide as the view; with a look, the last line has the keys."""
    if look is not None:
        last = _keys(look, Painter(view))
        made = _picture(traffic, capture, view, height - 1, look)
        return [*made, *[""] * (max(1, height - 1) - 1 - len(made)), last]
    return _picture(traffic, capture, view, height, Look())


def _picture(traffic: Traffic, capture: str, view: View, height: int, look: Look) -> list[str]:
    painter = Painter(view)
    clients, topics = look.selected(traffic.clients), look.selected(traffic.topics)
    told = len(traffic.findings)
    made = _head(traffic, capture, painter)
    beside = painter.width >= _WIDE
    # The cursor rests on a line of its own.
    room = max(3, height - 1 - len(made) - (_FRAME_LINES - 2 if beside else _FRAME_LINES))
    sizes = len(clients), len(topics)
    spare = room - (max(sizes) if beside else sum(sizes))
    shown = min(told, max(1, room // 4, spare)) if told else 0
    if beside:
        half = Painter(replace(view, width=(painter.width - _GAP) // 2))
        left = _table("clients", traffic.clients, clients, max(1, room - shown), half, look)
        right = _table("topics", traffic.topics, topics, max(1, room - shown), half, look)
        blank = " " * half.width
        made.append("")
        for client, topic in zip_longest(left, right):
            made.append(f"{client or blank}{' ' * _GAP}{topic or ''}".rstrip())
    else:
        rows = min(sizes[0], max(1, (room - shown) // 2, room - shown - sizes[1]))
        made += ["", *_table("clients", traffic.clients, clients, rows, painter, look)]
        made += ["", *_table("topics", traffic.topics, topics, max(1, room - shown - rows), painter, look)]
    if shown:
        made += ["", _line(painter, (("findings", "type"), (_severities(traffic), "dim")))]
        made += [_finding(one, painter) for one in list(traffic.findings)[-shown:][::-1]]
    return made[: max(1, height - 1)]


def _keys(look: Look, painter: Painter) -> str:
    """What the keys do, and what they have done."""
    if look.typing:
        asked = painter.name(look.wanted, max(1, painter.width - 30))
        return _line(painter, ((f"filter: {asked}_", "type"), ("Enter keeps it, Esc clears it", "dim")))
    wanted = f": {painter.name(look.wanted, 20)}" if look.wanted else ""
    narrow = painter.width < _NARROW
    keys = (
        f"p {'resume' if look.paused else 'pause'}",
        f"s {'' if narrow else 'sort: '}{look.order}",
        f"/ filter{wanted}",
        "q quit",
    )
    shown = ("  " if narrow else painter.dot).join(keys)
    return _line(painter, (("paused", "note"), (shown, "dim")) if look.paused and not narrow else ((shown, "dim"),))


def _table(
    noun: str, table: dict[str, Row], selected: dict[str, Row], rows: int, painter: Painter, look: Look
) -> list[str]:
    """A title, and the first rows."""
    style = noun.removesuffix("s")
    connects = noun == "clients" and painter.width >= _NARROW
    count = f"{len(selected):,} of {len(table):,}" if look.wanted else f"{len(table):,}"
    return [
        _title(noun, count, painter, connects=connects),
        *(_row(name, row, painter, style, connects=connects) for name, row in busiest(selected, rows, look.order)),
    ]


def _head(traffic: Traffic, capture: str, painter: Painter) -> list[str]:
    total, dot = traffic.total, painter.dot
    published = sum(traffic.qos.values())
    mix = " ".join(f"q{level} {traffic.qos[level] / published:.0%}" for level in range(3)) if published else "none"
    lost = f"{dot}{traffic.lost_bytes:,} bytes lost" if traffic.lost_bytes else ""
    dropped = f"{dot}{traffic.dropped:,} frames dropped" if traffic.dropped else f"{dot}no drops reported"
    malformed = f"{dot}{traffic.malformed:,} malformed" if traffic.malformed else ""
    connections = f"{traffic.open:,} of {traffic.opened:,} connections open{dot}PUBLISH {mix}"
    losses = f"{lost}{dropped}{malformed}"
    style = "note" if lost or traffic.dropped or malformed else "dim"
    made = [
        _line(
            painter,
            (
                (painter.name(capture, 30), "type"),
                (f"{_clock(traffic)}{dot}{total.packet_rate:,.0f} packets/s{dot}{_octets(total.octet_rate)}/s", ""),
                (f"{dot.strip()} {total.packets:,} packets", "dim"),
            ),
        ),
    ]
    if painter.width < _NARROW:
        made += [_line(painter, ((connections, ""),)), _line(painter, ((losses.removeprefix(dot), style),))]
    else:
        made.append(_line(painter, ((connections, ""), (losses.strip(), style))))
    made.append(_line(painter, _comings(traffic, painter)))
    return made + [_line(painter, ((painter.safe(error), "error"),)) for error in traffic.errors]


def _comings(traffic: Traffic, painter: Painter) -> tuple[tuple[str, str], ...]:
    """How clients come and go, trouble first; how often lately where there is room for it."""
    parts = _parts(traffic, painter, rates=True)
    fits = sum(len(text) + 1 for text, _ in parts) - 1 <= painter.width
    return parts if fits else _parts(traffic, painter, rates=False)


def _parts(traffic: Traffic, painter: Painter, *, rates: bool) -> tuple[tuple[str, str], ...]:
    trouble = [
        f"{row.packets:,} {what}{f' ({row.packet_rate:,.1f}/s)' if rates else ''}"
        for row, what in (
            (traffic.refused, "refused"),
            (traffic.reconnects, "reconnects"),
            (traffic.broken, "ended without DISCONNECT"),
        )
        if row.packets
    ]
    calm = [f"{traffic.connecting.packet_rate:,.1f} connects/s"]
    if rates:
        calm.append(f"{traffic.closed.packet_rate:,.1f} disconnects/s")
    latency = traffic.latency_ns
    if latency is not None:
        calm.append(f"PUBLISH answered in {latency / 1e6:,.1f} ms")
    parts = [(painter.dot.join(trouble), "note")] if trouble else []
    return (*parts, ((painter.dot.lstrip() if trouble else "") + painter.dot.join(calm), "dim"))


def _line(painter: Painter, parts: tuple[tuple[str, str], ...]) -> str:
    line = painter.line()
    for number, (text, style) in enumerate(parts):
        line.add(f" {text}" if number else text, style)
    return str(line)


def _title(noun: str, count: str, painter: Painter, *, connects: bool) -> str:
    line = painter.line()
    room = painter.width - _NUMBERS - (_CONNECTS if connects else 0)
    line.add(f"{noun} "[:room], "type")
    line.add(f"{count:<{max(1, room - len(noun) - 1)}}", "dim")
    line.add(f"{'packets/s':>10}{'bytes/s':>10}{'packets':>10}", "dim")
    if connects:
        line.add(f"{'connects':>{_CONNECTS}}", "dim")
    return str(line)


def _row(name: str, row: Row, painter: Painter, style: str, *, connects: bool) -> str:
    from mqttscope.report.escape import cells

    room = max(4, painter.width - _NUMBERS - (_CONNECTS if connects else 0))
    shown = painter.name(name, room - 1)
    line = painter.line()
    line.add(shown, style)
    line.add(" " * (room - cells(shown)))
    line.add(f"{row.packet_rate:>10,.1f}{_octets(row.octet_rate):>10}{_short(row.packets):>10}")
    if connects:
        line.add(f"{_short(row.connects):>{_CONNECTS}}", "note" if row.connects > 1 else "")
    return str(line)


def _finding(finding: Finding, painter: Painter) -> str:
    line = painter.line()
    line.add(finding.rule, STYLES[finding.severity])
    who = painter.name(finding.client_identifier or finding.client, 20)
    line.add(f" {who}", "client")
    line.add(f" {painter.name(finding.message, 200)}")
    return str(line)


def _severities(traffic: Traffic) -> str:
    return ", ".join(f"{traffic.severities[one]:,} {one}" for one in reversed(Severity) if traffic.severities[one])


def _clock(traffic: Traffic) -> str:
    seconds = max(0, traffic.now_ns - traffic.started_ns) // 1_000_000_000
    days, seconds = divmod(seconds, 86_400)
    time_of_day = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{days} d {time_of_day}" if days else time_of_day


def _octets(number: float) -> str:
    for unit, size in _UNITS:
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f} B"


def _short(number: int) -> str:
    return f"{number:,}" if number < 100_000_000 else f"{number / 1e6:,.0f} M"

"""The overview of a capture on one screen.

`lines` renders the text from the facts: rates and their history, clients in trouble, findings, clients and topics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import ClassVar, Final

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Static

from mqttscope.browse.dialogs import HelpScreen, Prompt
from mqttscope.browse.settings import BrowserSettings
from mqttscope.lint.finding import Severity
from mqttscope.metrics.facts import ORDERS, Interval, LiveFacts, RateRow, RuleFindings, Trouble, busiest
from mqttscope.report.base import View
from mqttscope.report.escape import cells
from mqttscope.report.explanations.base import TITLES
from mqttscope.report.findings.base import STYLES
from mqttscope.report.style import Painter
from mqttscope.secrets.credentials import starred_name

REFRESH_SECONDS: Final = 0.25
MIN_WIDTH: Final = 40
NO_FACTS: Final = "a lake has no overview; mqttscope pipeline report shows what is in it"
_NUMBERS: Final = 31
"""Columns for the numbers of a row."""
_CONNECTS: Final = 10
"""Columns for the number of CONNECT packets, if there is room."""
_WIDE: Final = 132
"""Minimum columns for showing clients and topics side by side."""
_NARROW: Final = 72
"""With fewer columns, losses have their own line, since they must not be cut."""
_GAP: Final = 3
"""Columns between two tables."""
_CAUSE: Final = 26
"""Columns for the cause of an end."""
_LABEL: Final = 24
"""Columns for the name and the highest value of a history."""
_UNITS: Final = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_BARS: Final = "▁▂▃▄▅▆▇█", ".:-=+*#@"
"""Characters for parts of the highest value, with and without Unicode."""


@dataclass(slots=True)
class OverviewState:
    """Settings that the user chose with keys."""

    order: str = "packets/s"
    name_filter: str = ""
    """Text that the names of shown clients and topics contain."""
    paused: bool = False

    def selected(self, table: dict[str, RateRow]) -> dict[str, RateRow]:
        """The rows with the filter in their name."""
        name_filter = self.name_filter.casefold()
        return {name: row for name, row in table.items() if name_filter in name.casefold()} if name_filter else table


class OverviewScreen(ModalScreen[None]):
    """Shows the facts four times a second while it is on top."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("0", "leave", "packets"),
        Binding("escape", "everything", "all names, or packets"),
        Binding("question_mark,f1", "help", "help"),
        Binding("s", "sort", "sort"),
        Binding("f,slash", "ask_name", "filter"),
        Binding("P,p,pause,space", "pause", "pause"),
        Binding("q,ctrl+q,ctrl+c", "app.quit", "quit"),
    ]

    def __init__(self, opened: BrowserSettings, view: View) -> None:
        super().__init__()
        self.opened = opened
        self.view = view
        # A file has no current rates.
        self.state = OverviewState("packets/s" if opened.live else "packets")
        self.prompt = Prompt()
        self._picture, self._keys = (Static("", id=name, markup=False) for name in ("overview", "overview-keys"))
        self._is_shown = False

    def compose(self) -> ComposeResult:
        """The facts, the prompt, and the keys."""
        yield self._picture
        yield self.prompt
        yield self._keys

    def on_mount(self) -> None:
        """Begin to refresh."""
        self.set_interval(REFRESH_SECONDS, self._refresh_picture)
        self.call_after_refresh(self._refresh_picture)

    def on_resize(self, event: events.Resize) -> None:
        """Fit the facts to the new size."""
        self._is_shown = False
        self.call_after_refresh(self._refresh_picture)

    def _refresh_picture(self) -> None:
        """Show the current numbers, unless the display is paused or another screen is on top."""
        if not self.is_current or (self.state.paused and self._is_shown):
            return
        self._is_shown = True
        view = replace(self.view, width=max(MIN_WIDTH, self._picture.size.width))
        shown = self.opened.builder.read_facts(
            lambda facts: lines(
                facts, self.opened.title, view, self._picture.size.height, self.state, is_live=self.opened.live
            )
        )
        self._picture.update(Text.from_ansi("\n".join(shown or ()), no_wrap=True, overflow="crop"), layout=False)
        self._show_keys()

    def _show_keys(self) -> None:
        painter, state = Painter(self.view), self.state
        keys = [
            "0 packets", f"s {state.order}",
            f"/ filter{f': {painter.name(state.name_filter, 20)}' if state.name_filter else ''}",
            *([f"P {'resume' if state.paused else 'pause'}"] if self.opened.live else []), "? help", "q quit",
        ]  # fmt: skip
        self._keys.update(f"{'paused  ' if state.paused else ''}{'  '.join(keys)}", layout=False)

    def on_prompt_left(self, event: Prompt.Left) -> None:
        event.stop()
        self.set_focus(None)

    def on_prompt_answered(self, event: Prompt.Answered) -> None:
        """Show only names with the text that was entered."""
        event.stop()
        self.set_focus(None)
        self._select(event.text.strip())

    def _select(self, name_filter: str) -> None:
        self.state.name_filter = name_filter
        self._is_shown = False
        self._refresh_picture()

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_everything(self) -> None:
        """Show all names again, or the packets if all are shown."""
        if self.state.name_filter:
            self._select("")
        else:
            self.dismiss(None)

    def action_help(self) -> None:
        self.app.push_screen(HelpScreen())

    def action_sort(self) -> None:
        """Sort clients and topics in the next order."""
        orders = list(ORDERS)
        self.state.order = orders[(orders.index(self.state.order) + 1) % len(orders)]
        self._select(self.state.name_filter)

    def action_ask_name(self) -> None:
        self.prompt.ask("name", self.state.name_filter)

    def action_pause(self) -> None:
        """Pause or resume the display of a live capture."""
        self.state.paused = self.opened.live and not self.state.paused
        self._refresh_picture()
        self._show_keys()


def lines(
    facts: LiveFacts, capture: str, view: View, height: int, state: OverviewState, *, is_live: bool = True
) -> list[str]:
    """The overview: at most ``height`` lines as wide as the view.

    ``is_live``: shows current rates, otherwise averages.
    """
    painter = Painter(view)
    seconds = None if is_live else max(1.0, (facts.now_ns - facts.started_ns) / 1e9)
    out = [*_head(facts, capture, painter, seconds), "", *_history(facts, painter)]
    clients, topics = state.selected(facts.clients), state.selected(facts.topics)
    beside = painter.width >= _WIDE
    room = max(3, height - len(out) - (2 if beside else 4))
    troubles = list(reversed(facts.troubles.values()))[: max(1, room // 4)]
    latest = list(reversed(facts.findings.values()))
    findings = sorted(latest, key=lambda row: -row.severity.rank)[: max(1, room // 5)]
    if troubles:
        title = f"{len(facts.troubles):,}"
        out += ["", _line(painter, (("clients in trouble", "type"), (title, "dim")))]
        out += [_trouble(trouble, painter) for trouble in troubles]
    if findings:
        out += ["", _line(painter, (("findings", "type"), (_severities(facts), "dim")))]
        out += [_finding(finding, painter) for finding in findings]
    room = max(2, height - len(out) - (2 if beside else 4))
    if beside:
        half = Painter(replace(view, width=(painter.width - _GAP) // 2))
        left = _table("clients", facts.clients, clients, room, half, state, seconds)
        right = _table("topics", facts.topics, topics, room, half, state, seconds)
        blank = " " * half.width
        out.append("")
        for client, topic in zip_longest(left, right):
            out.append(f"{client or blank}{' ' * _GAP}{topic or ''}".rstrip())
    else:
        rows = min(len(clients), max(1, room // 2, room - len(topics)))
        out += ["", *_table("clients", facts.clients, clients, rows, painter, state, seconds)]
        out += ["", *_table("topics", facts.topics, topics, max(1, room - rows), painter, state, seconds)]
    return out[: max(1, height)]


def _history(facts: LiveFacts, painter: Painter) -> list[str]:
    """Sparklines since the start, each with its highest value."""
    history = facts.history
    seconds = history.interval_ns / 1e9
    rows: tuple[tuple[str, str, Callable[[Interval], float], Callable[[float], str]], ...] = (
        ("packets/s", "", lambda interval: interval.packets / seconds, lambda value: f"{value:,.0f}"),
        ("open connections", "client", lambda interval: interval.open, lambda value: f"{value:,.0f}"),
        ("CONNECT", "client", lambda interval: interval.connects, lambda value: f"{value:,.0f}"),
        ("refused", "note", lambda interval: interval.refused, lambda value: f"{value:,.0f}"),
        ("no DISCONNECT", "note", lambda interval: interval.ends, lambda value: f"{value:,.0f}"),
        ("PUBLISH ack p99", "", lambda interval: interval.latency_p99_ns / 1e6, lambda value: f"{value:,.1f} ms"),
    )
    out = []
    for name, style, value_of, text_of in rows:
        values = [value_of(interval) for interval in history.intervals]
        highest = max(values)
        if not highest:
            continue
        line = painter.line()
        line.add(f"{name:<{_LABEL - 9}}{text_of(highest):>8} ", "dim")
        line.add(sparkline(values, max(8, painter.width - _LABEL), highest, is_unicode=painter.unicode), style)
        out.append(str(line))
    return out


def sparkline(values: Sequence[float], width: int, highest: float, *, is_unicode: bool = True) -> str:
    """Values as characters of eight heights; 0 is a space.

    More values than columns are joined, each column with the highest of its values.
    """
    bars = _BARS[0 if is_unicode else 1]
    count = min(len(values), width)
    out = []
    for column in range(count):
        start, stop = column * len(values) // count, (column + 1) * len(values) // count
        value = max(values[start:stop])
        out.append(bars[min(7, int(8 * value / highest))] if value else " ")
    return "".join(out)


def _table(
    noun: str,
    table: dict[str, RateRow],
    selected: dict[str, RateRow],
    rows: int,
    painter: Painter,
    state: OverviewState,
    seconds: float | None,
) -> list[str]:
    style = noun.removesuffix("s")
    connects = noun == "clients" and painter.width >= _NARROW
    count = f"{len(selected):,} of {len(table):,}" if state.name_filter else f"{len(table):,}"
    return [
        _title(noun, count, painter, connects=connects),
        *(
            _row(name, row, painter, style, connects=connects, seconds=seconds)
            for name, row in busiest(selected, rows, state.order)
        ),
    ]


def _rates(row: RateRow, seconds: float | None) -> tuple[float, float]:
    """Packets and bytes per second, now or on average over ``seconds``."""
    return (row.packet_rate, row.octet_rate) if seconds is None else (row.packets / seconds, row.octets / seconds)


def _head(facts: LiveFacts, capture: str, painter: Painter, seconds: float | None) -> list[str]:
    total, dot, is_live = facts.total, painter.dot, seconds is None
    published = sum(facts.qos.values())
    mix = " ".join(f"q{level} {facts.qos[level] / published:.0%}" for level in range(3)) if published else "0"
    lost = f"{dot}{facts.lost_bytes:,} bytes lost" if facts.lost_bytes else ""
    no_drops = f"{dot}no drops reported" if is_live else ""
    dropped = f"{dot}{facts.dropped:,} frames dropped" if facts.dropped else no_drops
    malformed = f"{dot}{facts.malformed:,} malformed" if facts.malformed else ""
    connections = f"{facts.open:,} of {facts.opened:,} connections open{dot}PUBLISH {mix}"
    losses = f"{lost}{dropped}{malformed}"
    style = "note" if lost or facts.dropped or malformed else "dim"
    rates = _rates(total, seconds)
    out = [
        _line(
            painter,
            (
                (painter.name(capture, 30), "type"),
                (f"{_clock(facts)}{dot}{rates[0]:,.0f} packets/s{dot}{_octets(rates[1])}/s", ""),
                (f"{dot.strip()} {total.packets:,} packets", "dim"),
            ),
        ),
    ]
    if painter.width < _NARROW:
        out += [_line(painter, ((connections, ""),)), _line(painter, ((losses.removeprefix(dot), style),))]
    else:
        out.append(_line(painter, ((connections, ""), (losses.strip(), style))))
    out.append(_line(painter, _connects(facts, painter, is_live=is_live)))
    return out + [_line(painter, ((painter.safe(error), "error"),)) for error in facts.errors]


def _connects(facts: LiveFacts, painter: Painter, *, is_live: bool) -> tuple[tuple[str, str], ...]:
    """Phrases about clients that connect and disconnect, problems first; with rates if there is room."""
    parts = _parts(facts, painter, rates=is_live, is_live=is_live)
    fits = sum(len(text) + 1 for text, _ in parts) - 1 <= painter.width
    return parts if fits else _parts(facts, painter, rates=False, is_live=is_live)


def _parts(facts: LiveFacts, painter: Painter, *, rates: bool, is_live: bool) -> tuple[tuple[str, str], ...]:
    trouble = [
        f"{row.packets:,} {phrase}{f' ({row.packet_rate:,.1f}/s)' if rates else ''}"
        for row, phrase in (
            (facts.refused, "refused"),
            (facts.reconnects, "reconnects"),
            (facts.broken, "ended without DISCONNECT"),
        )
        if row.packets
    ]
    calm = [f"{facts.connecting.packet_rate:,.1f} connects/s" if is_live else f"{facts.connecting.packets:,} connects"]
    if rates:
        calm.append(f"{facts.closed.packet_rate:,.1f} disconnects/s")
    if facts.latency.count:
        calm.append(f"PUBLISH answered in {facts.latency.percentile(50) / 1e6:,.1f} ms")
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


def _row(name: str, row: RateRow, painter: Painter, style: str, *, connects: bool, seconds: float | None) -> str:
    room = max(4, painter.width - _NUMBERS - (_CONNECTS if connects else 0))
    shown = painter.name(starred_name(name), room - 1)
    line = painter.line()
    line.add(shown, style)
    line.add(" " * (room - cells(shown)))
    packet_rate, octet_rate = _rates(row, seconds)
    line.add(f"{packet_rate:>10,.1f}{_octets(octet_rate):>10}{_short(row.packets):>10}")
    if connects:
        line.add(f"{_short(row.connects):>{_CONNECTS}}", "note" if row.connects > 1 else "")
    return str(line)


def _trouble(row: Trouble, painter: Painter) -> str:
    line = painter.line()
    title = TITLES[row.cause]
    line.add(f"{row.count:>5,} ", "note")
    line.add(f"{title:<{_CAUSE}} " if painter.width >= _NARROW else f"{title} ")
    line.add(painter.name(starred_name(row.client), 24), "client")
    # Explanations have no secrets.
    line.add(f" {painter.safe(row.text)}", "dim")
    return str(line)


def _finding(row: RuleFindings, painter: Painter) -> str:
    line = painter.line()
    line.add(f"{row.count:>5,} ")
    line.add(row.rule, STYLES[row.severity])
    line.add(f" {painter.name(row.client, 20)}", "client")
    line.add(f" {painter.name(row.message, 200)}")
    return str(line)


def _severities(facts: LiveFacts) -> str:
    counts: Counter[Severity] = Counter()
    for row in facts.findings.values():
        counts[row.severity] += row.count
    return ", ".join(f"{counts[severity]:,} {severity}" for severity in Severity if counts[severity])


def _clock(facts: LiveFacts) -> str:
    seconds = max(0, facts.now_ns - facts.started_ns) // 1_000_000_000
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

"""The overview screen of a capture: contents, faults, and suggested commands.

    Capture  site.pcapng, 31 frames, 3.2 kB
    Time     2026-11-20 20:48:29.049 to 20:48:33.958 UTC, 4.91 s
    Broker   127.0.0.1:1883
    ...
    What broke
      frame 30  asleep: likely: The Keep Alive ran out: ...
    What to type next
      mqttscope explain site.pcapng --client asleep

A fault is one row of one line; with few rows, a row may have more lines, so that the section has at most `MAX_FAULTS`
lines.  The certainty precedes the description, because the end of a line may be cut.

Commands are never cut.  In a terminal they continue on the next line after a backslash, as shells accept it.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from mqttscope.explain import describe
from mqttscope.mqtt.constants import PacketType
from mqttscope.mqtt.topics import topic_filter_problem
from mqttscope.report.base import Clock, View
from mqttscope.report.escape import cells
from mqttscope.report.explanations.base import verdict
from mqttscope.report.numbers import plural, size
from mqttscope.report.page import WIDTH
from mqttscope.report.style import Painter, Wrapped, encoded
from mqttscope.report.when import duration
from mqttscope.secrets.addresses import public_name
from mqttscope.session.connection import port_of
from mqttscope.stats.rows import BYTES, ClientRow, order
from mqttscope.triage.collect import EXTENDED, BrokerSummary, FaultKind, Rank, Triage, TriageFault

MAX_FAULTS = 7
"""Maximum number of faults shown, and of lines for them."""
LINES = 23
"""Lines of the screen: with the next prompt, it fits a terminal of 24 lines; long names may exceed this."""
MIN_COMMANDS = 2
MAX_COMMANDS = 4
MAX_NAMED = 3
"""Maximum number of captures, brokers, clients and server names listed; further ones are counted."""
MAX_TYPES = 6
"""Maximum number of packet types listed."""
MAX_NAME = 24
"""Maximum width of a Client Identifier in columns."""
MAX_TEXT = 400
"""Maximum width of a description in columns, if the screen has no limit."""
MAX_REMARK_LINES = 3
NARROW = 60
"""Threshold for the width of the screen in columns; below it, labels and positions are short."""
FRAMES_BEFORE = 20
"""Number of frames before a fault that a suggested command shows."""
STDIN = "-"
_LABEL = 9
_STYLES = {
    Rank.NAMED_END: "error", Rank.CERTAIN_ERROR: "error", Rank.LOSS: "error", Rank.LIKELY_ERROR: "note",
    Rank.NODE: "note", Rank.BARE_END: "note", Rank.GAP: "note", Rank.HEURISTIC_ERROR: "note", Rank.WARNING: "dim",
}  # fmt: skip
_TRANSPORTS = {"websocket": "over WebSocket", "tls": "over TLS"}


class Screen:
    """Formats the results of `Triage`."""

    def __init__(self, triage: Triage, view: View, captures: Sequence[str], options: Sequence[str] = ()) -> None:
        """``captures``, ``options``: from the command line, for suggested commands."""
        self.triage = triage
        self.captures = captures
        self.options = options
        self.is_terminal = view.width > 0
        self.painter = Painter(view)
        if not self.is_terminal:
            self.painter.width = WIDTH
        self.unicode = view.unicode
        self.narrow = self.painter.width < NARROW
        self.remarks: list[str] = []
        """Data that could not be read, in sentences without a full stop."""
        self.errors: list[tuple[str, str]] = []
        """Names of captures with errors, and the errors."""
        self.is_read_once = STDIN in captures
        """Whether a capture is a pipe, which a second command cannot read."""
        self.no_mqtt = ""
        """Reason why no MQTT was found, or empty."""
        self.decrypting = False
        """Whether TLS keys are available."""
        self.other_tls: Counter[str] = Counter()
        """Number of TLS connections that may not carry MQTT, by server."""

    def rendered(self) -> bytes:
        """The screen as text."""
        lines = [*self._contents(), "", *self._broke(), ""]
        return encoded([*lines, *self._next(LINES - len(lines))])

    # Contents of the captures

    def _contents(self) -> Iterator[str]:
        totals = self.triage.statistics.totals
        names = [_named(name) for name in self.triage.statistics.capture_names()] or [*map(_named, self.captures)]
        amount = f"{plural(totals.frames, 'frame')}, {size(totals.frame_bytes)}"
        room = max(MAX_NAME, self.painter.width - _LABEL - len(amount) - 3) if len(names) == 1 else MAX_NAME
        shown = self._some([self._path(name, room) for name in names[:MAX_NAMED]], len(names))
        count = "" if len(names) == 1 else f"{len(names):,}: "
        label = "Capture" if len(names) == 1 else "Captures"
        yield from self._row(label, f"{count}{shown}, {amount}", most=2)
        if totals.first_ns is not None and totals.last_ns is not None:
            yield from self._row(
                "Time", self._time(totals.first_ns, totals.last_ns, totals.duration_ns if totals.clock_steps else None)
            )
        for name, text in self.errors[:MAX_NAMED]:
            where = f"{self._path(_named(name), MAX_NAME)}: " if name and len(names) > 1 else ""
            yield from self._row("Error", f"{where}{self.painter.safe(text)}", "error", most=2)
        if len(self.errors) > MAX_NAMED:
            yield from self._row("", f"and {len(self.errors) - MAX_NAMED:,} more", "error")
        brokers = self.triage.brokers
        if brokers:
            named = sorted(brokers.items(), key=lambda item: -item[1].connections)[:MAX_NAMED]
            shown = self._some([self._broker(*item) for item in named], len(brokers))
            yield from self._row("Broker" if len(brokers) == 1 else "Brokers", shown, "server", most=2)
        yield from self._clients()
        yield from self._packets()
        yield from self._tls()
        if self.remarks:
            text = self.painter.safe("; ".join(self.remarks))
            yield from self._row("Not read", text, "note", most=MAX_REMARK_LINES)

    def _time(self, first_ns: int, last_ns: int, duration_ns: int | None) -> str:
        """``duration_ns``: if it differs from the time between them, because a clock was set."""
        clock = Clock()
        first, last = (clock.iso(at).replace("T", " ").rstrip("Z") for at in (first_ns, last_ns))
        first, last = (text if len(text) < 26 else text[: 19 if self.narrow else 23] for text in (first, last))
        if last[:11] == first[:11]:
            last = last[11:]
        lasted_ns = last_ns - first_ns if duration_ns is None else duration_ns
        return f"{first} to {last} UTC, {duration(lasted_ns, unicode=self.unicode)}"

    def _broker(self, server: str, broker: BrokerSummary) -> str:
        words = [_TRANSPORTS[name] for name in sorted(broker.transports) if name in _TRANSPORTS]
        if "tcp" in broker.transports and words:
            words.insert(0, "over TCP")
        named = [self._name(name, 40) for name, _ in broker.names.most_common(MAX_NAMED)]
        endpoint = self.painter.safe(server) + (f" ({self._some(named, len(broker.names))})" if named else "")
        text = " ".join([endpoint, " and ".join(words)]).rstrip()
        if broker.product:
            text += f" (reports {self._name(broker.product, 40)})"
        return text

    def _clients(self) -> Iterator[str]:
        statistics = self.triage.statistics
        total = len(statistics.clients)
        connections = statistics.totals.outcomes.connections
        if not total:
            return
        rows: list[ClientRow] = list(islice(order(statistics.clients.values(), "trouble", MAX_NAMED), MAX_NAMED))
        names = self._some([self._client(row) for row in rows], total)
        lasted = plural(connections, "connection")
        text = f"{names}, {lasted}" if total == 1 else f"{total:,} in {lasted}: {names}"
        yield from self._row("Client" if total == 1 else "Clients", text, most=2)

    def _client(self, row: ClientRow) -> str:
        if row.client_identifier:
            return self._name(describe.name(row.client_identifier), MAX_NAME)
        return f"({next(iter(row.addresses), 'no name')})"

    def _packets(self) -> Iterator[str]:
        totals = self.triage.statistics.totals
        counts = totals.traffic.counts
        kinds = {kind.name: counts[kind] + counts[16 + kind] for kind in PacketType if kind < 16}
        types = [f"{count:,} {name}" for name, count in Counter(kinds).most_common() if count]
        malformed = self.triage.packets - sum(counts[:BYTES])
        if malformed:
            types.append(f"{malformed:,} malformed")
        if not types:
            return
        versions = totals.outcomes.versions
        known = [name for name, _ in versions.most_common() if name != "unknown"]
        listed = [", ".join(known[:-1]), *known[-1:]]
        spoken = f" of MQTT {' and '.join(filter(None, listed))}" if known else ""
        if any(row == "joined" for row in totals.outcomes.outcomes):
            spoken = spoken or " (version assumed)"
        rest = len(types) - MAX_TYPES
        shown = ", ".join(types[:MAX_TYPES]) + (f" and {plural(rest, 'other type')}" if rest > 0 else "")
        yield from self._row("Packets", f"{self.triage.packets:,}{spoken}: {shown}", most=2)

    def _tls(self) -> Iterator[str]:
        """Rows about encrypted connections, and the options that decrypt them."""
        phrases = []
        closed = {server: broker for server, broker in self.triage.brokers.items() if broker.encrypted}
        count = sum(broker.encrypted for broker in closed.values())
        if count:
            names = list(dict.fromkeys(name for broker in closed.values() for name in broker.names))
            shown = [self._name(name, 40) for name in names[:MAX_NAMED]]
            has_more = self.triage.has_more_names
            named = f" to {self._some(shown, len(names), has_more=has_more)}" if names else ""
            verb = "is" if count == 1 else "are"
            # If a key log does not help, a remark gives the reason.
            decryptable = 0 if self.decrypting else sum(broker.decryptable for broker in closed.values())
            which = f"{decryptable:,} of them" if decryptable < count else "them" if count > 1 else "it"
            advice = f"; --keylog FILE decrypts {which}" if decryptable else ""
            phrases.append(f"{plural(count, 'connection')}{named} {verb} encrypted and not read{advice}")
        others = self.other_tls.total()
        if others:
            server, most = self.other_tls.most_common(1)[0]
            port = port_of(server)
            where = f"to {self.painter.safe(server)}" if most == others else f"{most:,} to {self.painter.safe(server)}"
            phrases.append(
                f"{plural(others, 'other TLS connection')}{' ' if most == others else ', '}{where}"
                f" (--port {port}:tls takes {'it' if most == 1 else 'them'} for MQTT)"
            )
        if phrases:
            yield from self._row("TLS", "; ".join(phrases), "note", most=3)

    # Faults

    def _broke(self) -> Iterator[str]:
        triage = self.triage
        faults = triage.faults[:MAX_FAULTS]
        if not triage.is_judged and not faults:
            yield self.painter.paint("Nothing was judged", "type")
            why = self.no_mqtt or "no MQTT packet could be read"
            yield from self._row("", self.painter.safe(f"{why[:1].upper()}{why[1:]}."), most=3, indent=2)
            return
        if faults:
            yield self.painter.paint("What broke, the worst first", "type")
            most = max(1, MAX_FAULTS // len(faults))
            places = [self._place(fault) for fault in faults]
            width = 0 if self.narrow else max(map(cells, places))
            for fault, place in zip(faults, places, strict=True):
                yield from self._fault(fault, f"{place}{' ' * (width - cells(place))}", min(most, 3))
            rest = triage.faults[MAX_FAULTS:]
            if rest:
                yield from self._row("", f"and {_kinds(rest)} more", "dim", indent=2)
        if triage.packets and all(fault.kind is FaultKind.GAP for fault in triage.faults):
            # Data missing in the capture is not a fault of client or broker.
            title = "Nothing else broke" if faults else "Nothing broke"
            yield self.painter.paint(f"{title} in what was captured", "type")
            rules = plural(triage.rules, "rule")
            text = f"No error or warning by {rules}, and no lost message is known."
            yield from self._row("", text, "topic", most=2, indent=2)
            for sentence in verdict(triage.explainer.totals, Counter(), "")[:1]:
                yield from self._row("", sentence, "topic", most=4, indent=2)
        totals = triage.explainer.totals
        for sentence in [row.sentence for row in totals.unresolved[:1]] if faults else totals.remarks:
            yield from self._row("", sentence, "topic", most=2 if faults else 4, indent=2)
        limits = triage.limits()
        if limits:
            yield from self._row("Limits", self.painter.safe("; ".join(limits)), "note", most=2)

    def _place(self, fault: TriageFault) -> str:
        place = f"{'f' if self.narrow else 'frame '}{fault.frame}" if fault.frame else ""
        if len(self.triage.statistics.captures) > 1:
            name = self._path(_named(fault.capture), MAX_NAME // 2 if self.narrow else MAX_NAME)
            place = f"{place} of {name}" if place else name
        return place

    def _fault(self, fault: TriageFault, place: str, most: int) -> list[str]:
        painter = self.painter
        line = painter.line()
        line.put("  ", 2)
        text = Wrapped(line, indent=4, most=most)
        if place:
            text.add(f"{place}{' ' if self.narrow else '  '}", "dim")
        text.add(painter.name(fault.who, MAX_NAME // 2 if self.narrow else MAX_NAME), "client")
        sure = ["warning"] if fault.rank is Rank.WARNING else []
        sure += [fault.certainty] if fault.certainty != "certain" else []
        if sure:
            text.add(f", {', '.join(sure)}", _STYLES[fault.rank])
        text.add(": ")
        if fault.rule:
            text.add(f"{fault.rule} ", "type")
        style = "" if sure else _STYLES[fault.rank]
        if fault.count > 1 and fault.title:
            unit = "answers" if fault.kind is FaultKind.NODE else "connections"
            text.add(f"{fault.title}, {fault.count:,} {unit}; first: ", style)
        elif fault.count > 1:
            text.add(f"{fault.count:,} times, first: ")
        elif most == 1 and fault.title and fault.title.lower() not in fault.text.lower():
            # The sentence may be cut before it names the cause.
            text.add(f"{fault.title}: ", style)
        text.add(painter.name(fault.text, MAX_TEXT), style)
        return text.texts()

    # Suggested commands

    def _next(self, room: int) -> list[str]:
        """Suggested commands, at least two, and more if there is room."""
        again = ", with the same input" if self.is_read_once else ""
        lines = [self.painter.paint(f"What to type next{again}", "type")]
        for count, words in enumerate(commands(self.triage, self.captures, self.options, self.other_tls)):
            more = command_lines(words, self.painter.width if self.is_terminal else 0, unicode=self.unicode)
            if count >= MIN_COMMANDS and len(lines) + len(more) > room:
                break
            lines += more
        return lines

    # Format of rows

    def _row(self, label: str, text: str, style: str = "", *, most: int = 1, indent: int = _LABEL) -> list[str]:
        line = self.painter.line()
        if indent == _LABEL:
            line.add(f"{label:{_LABEL}}", "dim")
        else:
            line.put(" " * indent, indent)
        wrapped = Wrapped(line, indent=indent, most=most if not self.narrow else most + 1)
        wrapped.add(text, style)
        return wrapped.texts()

    def _name(self, text: str, width: int) -> str:
        return self.painter.name(text, width)

    def _path(self, text: str, width: int) -> str:
        """The end of the name of a capture, which distinguishes it from others in the folder."""
        shown = self.painter.safe(text)
        if cells(shown) <= width:
            return shown
        shown = shown[-width:]
        while cells(shown) > width - len(self.painter.ellipsis):
            shown = shown[1:]
        return self.painter.ellipsis + shown

    def _some(self, names: Sequence[str], total: int, *, has_more: bool = False) -> str:
        """The first names, and the number of others; ``has_more``: there are others that were not counted."""
        left = total - len(names[:MAX_NAMED])
        more = f" and {'at least ' if has_more else ''}{left:,} more" if left > 0 else " and others" if has_more else ""
        return ", ".join(names[:MAX_NAMED]) + more


def _named(capture: str) -> str:
    return "standard input" if capture == STDIN else public_name(capture)


def _kinds(faults: Iterable[TriageFault]) -> str:
    words = dict(zip(FaultKind, ("end", "loss", "finding", "gap", "answer"), strict=True))
    counts = Counter(fault.kind for fault in faults)
    return ", ".join(
        f"{count:,} {words[kind]}" + ("" if count == 1 else "es" if kind is FaultKind.LOSS else "s")
        for kind, count in sorted(counts.items())
    )


def commands(
    triage: Triage, captures: Sequence[str], options: Sequence[str], other_tls: Counter[str]
) -> list[list[str]]:
    """Command lines, as words, for details of these captures: two to `MAX_COMMANDS`, the most useful first."""
    lines: list[list[str]] = []

    def add(command: str, *words: str) -> None:
        line = ["mqttscope", command, *captures, *options, *words]
        if line not in lines and len(lines) < MAX_COMMANDS:
            lines.append(line)

    by_kind = {kind: [fault for fault in triage.faults if fault.kind is kind] for kind in FaultKind}
    ends = by_kind[FaultKind.END]
    if ends:
        add("explain", *(_selection(ends[0]) if len(ends) == 1 and ends[0].client else ()))
    if by_kind[FaultKind.NODE]:
        add("explain")
    loss = next((fault for fault in by_kind[FaultKind.LOSS] if _is_topic(fault.topic)), None)
    if loss is not None and loss.topic is not None:
        add("explain", "--message", loss.topic)
    if by_kind[FaultKind.FINDING]:
        further = sorted({fault.rule for fault in by_kind[FaultKind.FINDING]} & set(EXTENDED))
        add("lint", *(("--extend-select", ",".join(further)) if further else ()))
    place = next((fault for fault in triage.faults if fault.frame and fault.connection is not None), None)
    if place is not None:
        frames = f"frame in {max(1, place.frame - FRAMES_BEFORE)}..{place.frame}"
        if len(triage.statistics.captures) > 1:
            frames += f" and capture == {json.dumps(place.capture, ensure_ascii=False)}"
        # A lost message is in the connection of its sender, so the command selects by frame only.
        selection = () if place.kind is FaultKind.LOSS else ("--connection", str(place.connection))
        add("inspect", *selection, "--filter", frames)
    if other_tls:
        port = port_of(other_tls.most_common(1)[0][0])
        add("inspect", "--port", f"{port}:tls")
    if triage.packets and all(fault.kind is FaultKind.GAP for fault in triage.faults):
        add("inspect", "--limit", "20")
        if triage.statistics.topics:
            add("explain", "--message", "#")
        add("lint", "--extend-select", "OPS,SEC")
    if len(lines) < MAX_COMMANDS - 1:
        add("stats")
    if len(lines) < MIN_COMMANDS:
        add("inspect")
    return lines


def _selection(fault: TriageFault) -> tuple[str, str]:
    """Options that select the client of a fault, or its connection if the name cannot be typed."""
    name = fault.client or ""
    if _is_typed(name) and not any(mark in name for mark in "*?["):
        return "--client", name
    return "--connection", str(fault.connection)


def _is_typed(text: str | None) -> bool:
    """Whether a name can be typed in a shell; hidden or cut names and unprintable characters cannot."""
    if not text or not text.isprintable() or text[0] == "-":
        return False
    return text == describe.name(text) and "…" not in text and text != describe.name("")


def _is_topic(text: str | None) -> bool:
    return _is_typed(text) and topic_filter_problem(text or "") is None


def command_lines(words: Sequence[str], width: int, *, unicode: bool = True) -> list[str]:
    """A command in shell syntax, in lines of at most ``width`` columns; 0 for no limit.

    ``unicode``: whether the lines may contain characters outside ASCII.
    """
    whole = "  " + " ".join(quote(word, unicode=unicode) for word in words)
    if not width or cells(whole) <= width:
        return [whole]
    lines, line = [], " "
    for group in _groups(words):
        text = " ".join(quote(word, unicode=unicode) for word in group)
        if cells(text) > width - 6:
            parts = [_pieces(word, width - 6, unicode=unicode) for word in group]
        else:
            parts = [[text]]
        for *pieces, last in parts:
            if not pieces and cells(line) + cells(last) + 3 <= width:
                line += f" {last}"
                continue
            if line.strip():
                lines.append(f"{line} \\")
            # A shell joins pieces if the next one begins in the first column.
            lines += [f"{'' if place else '    '}{piece}\\" for place, piece in enumerate(pieces)]
            line = last if pieces else f"    {last}"
    return [*lines, line]


def _groups(words: Sequence[str]) -> list[list[str]]:
    """Groups of words to keep on one line: options with their values."""
    groups: list[list[str]] = []
    for word in words:
        if groups and groups[-1][0].startswith("--") and len(groups[-1]) == 1 and not word.startswith("--"):
            groups[-1].append(word)
        else:
            groups.append([word])
    return groups


def _pieces(word: str, width: int, *, unicode: bool) -> list[str]:
    """A word in pieces of at most ``width`` columns, each quoted; at least one character in each."""
    pieces, begin = [], 0
    for end in range(1, len(word) + 1):
        if end - begin > 1 and cells(quote(word[begin:end], unicode=unicode)) > width:
            pieces.append(quote(word[begin : end - 1], unicode=unicode))
            begin = end - 1
    return [*pieces, quote(word[begin:], unicode=unicode)]


def quote(word: str, *, unicode: bool = True) -> str:
    """A word quoted for a POSIX shell; unprintable characters are quoted for bash and zsh."""
    if word.isprintable() and (unicode or word.isascii()):
        return shlex.quote(word)
    raw = word.encode("utf-8", "surrogateescape")
    shown = (
        f"\\{chr(byte)}" if byte in b"'\\" else chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}" for byte in raw
    )
    return f"$'{''.join(shown)}'"

"""Lines of events from several processes: JSON Lines, and text without a limit of columns.

Each process makes the lines of its flows.  What only the order of all flows tells is left open in them, and filled in
where they are put in order (`Writer`): the numbers of connections and packets, and how wide the column of names is.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from types import SimpleNamespace
from typing import Any, Final

from mqttscope.capture.pcap import FrameSink
from mqttscope.dissect import Dissector
from mqttscope.events import ConnectionClosed, ConnectionOpened, DiscardedEvent, Event, MalformedEvent, PacketEvent
from mqttscope.mqtt.constants import Direction
from mqttscope.net.frame import CaptureDrops, CaptureError, CaptureNotice, Frame
from mqttscope.parallel.counts import Counts
from mqttscope.parallel.crew import Outlet
from mqttscope.parallel.merge import BATCH_BYTES, ENTRY_BYTES, EVERYTHING, Columns, Entries, Sender
from mqttscope.parallel.walk import MARK, Share, ShareSink, Walk
from mqttscope.report.base import Sink, View
from mqttscope.report.escape import cells
from mqttscope.report.jsonl import JsonLines, harmless
from mqttscope.report.notices import MAX_ENDINGS
from mqttscope.report.text import MAX_CONNECTIONS, MAX_NAME, MIN_NAME, Heads, TextLines
from mqttscope.session.connection import C2S, Connection

HIDDEN_PACKET: Final = -1
"""A packet that is counted and not shown."""
OPENED: Final = -2
"""A connection begins, and gets its number; the line has pieces."""
PIECES: Final = -3
"""A line of pieces: texts, and what is open between them."""
PLAIN: Final = -4
"""A line in which nothing is open."""
NOTICE: Final = -5
"""A notice of a capture, pickled."""
FORGOTTEN: Final = -6
"""A connection is over: what names it is not used any more."""

NAME: Final = -7
"""What the lines of a connection have of it, and its number."""
UNNAMED: Final = -8
"""The same will be sent again before it is used."""

_CONNECTION: Final = ',"connection":'
_FIRST: Final = '"connection":'
AFTER_NAME: Final = len(',"packet":')
"""After what names the connection, comes the number of the packet in its line."""
NAME_MARK: Final = "\0"
"""Stands for what names a connection; no text has it."""

Select = Callable[[Iterable[Event]], Iterator[Event]]
Frames = Callable[[FrameSink | None], Iterable[Frame | CaptureNotice]]
"""Reads the captures; a sink takes what it wants of their frames."""


class JsonSender(Sender):
    """Gathers JSON Lines as they are, and cuts all lines of a batch at once into what is sent of them."""

    def add(self, text: str, code: int, more: Any, size: int = 0) -> None:
        """Add an entry at the place of the event at hand."""
        self.rare[len(self.places)] = more
        super().add(f"{text}{NAME_MARK}{code}{NAME_MARK}", code, more, size)

    def _renew(self) -> None:
        super()._renew()
        self.rare: dict[int, Any] = {}
        """What entries have that are no lines of packets."""

    def columns(self) -> Columns:
        """What was gathered: of each line what stands before its connection, the number of that, and the rest."""
        if not self.places:
            return [], [], [], []
        flat = NAME_MARK.join(self.texts).split(NAME_MARK)
        # Without the number of the packet, which is one of this process.
        more: list[Any] = [tail[tail.find(",", AFTER_NAME) :] for tail in flat[2::3]]
        for at, one in self.rare.items():
            more[at] = one
        return self.places, flat[::3], list(map(int, flat[1::3])), more


class JsonShare:
    """JSON Lines of one process.

    What a line has of its connection, in a direction, is sent once and named by a number of its own from then on: it is
    the longest part of a line, and repeats.
    """

    limited = 0

    def __init__(self, share: Share, view: View, sender: Sender) -> None:
        self._share = share
        self._sender = sender
        self._report = JsonLines(
            BytesIO(), payload_limit=view.payload_limit, show_secrets=view.show_secrets, names=self._name
        )
        self._codes: dict[int, list[int]] = {}
        """By connection, the numbers of what lines have of it."""
        self._next = share.number

    def show(self, event: Event, sender: Sender, *, known: bool = False) -> None:
        """Send the line of an event."""
        line = self._report.line(event)
        if line is None:
            return
        connection = getattr(event, "connection", None)
        if connection is None:
            sender.add(line, PLAIN, None)
            return
        number = connection.number
        if NAME_MARK in line:
            head, code, tail = line.split(NAME_MARK)
            if isinstance(event, PacketEvent | MalformedEvent):
                sender.add(head, int(code), tail[tail.index(",", AFTER_NAME) :], len(line))
                return
            pieces: tuple[str | int, ...] = (head, -1 - int(code), tail)
        else:
            head, _, rest = line.partition(_CONNECTION)
            pieces = (head + _CONNECTION, number, rest[len(str(number)) :])
        opens = isinstance(event, ConnectionOpened) and not known
        sender.add("", OPENED if opens else PIECES, (self._share.number, pieces), len(line))
        if isinstance(event, ConnectionClosed | DiscardedEvent):
            # The report has forgotten it too.
            self._forget(number, sender)

    def run(self, frames: Frames, sender: Sender, *, timed: bool) -> int:
        """Send the lines of all events; returns how many events there were."""
        walk, line_of, packets, others = sender.walk, self._report.packet_line, 0, 0

        def packet(event: Any) -> None:
            nonlocal packets, others
            if type(event) is not PacketEvent:
                # A malformed packet among the others of a segment comes this way too.
                others += self._all((event,), sender)
                return
            # What `show` does, in place: there is one for each packet.
            packets += 1
            line = line_of(event)
            sender.places.append(walk.place)
            sender.texts.append(line)
            sender.size += ENTRY_BYTES + len(line)
            if sender.size >= BATCH_BYTES:
                sender.send(walk.place)

        for event in walk.stream(frames(ShareSink(walk, packet, timed=timed)), timed=timed):
            if type(event) is PacketEvent:
                packet(event)
            else:
                others += self._all(walk.unfold(event), sender)
        return packets + others + self._all(walk.endings(), sender)

    def _all(self, events: Iterable[Event], sender: Sender) -> int:
        count = 0
        for event in events:
            if not noted(event, sender, self.limited):
                self.show(event, sender)
                count += 1
        return count

    def hide(self, event: Event, sender: Sender) -> None:
        """Send what counts of an event that has no line."""
        _hide(event, self._share.number, sender)

    def _name(self, connection: Connection, direction: Direction) -> str:
        """A number for what a line has of its connection, sent with what it stands for."""
        code, number = self._next, connection.number
        self._next += self._share.count
        self._codes.setdefault(number, []).append(code)
        named = self._report.names(connection, direction)[len(f"{_FIRST}{number}") :]
        self._sender.add("", NAME, (self._share.number, number, code, named), len(named))
        return f"{NAME_MARK}{code}{NAME_MARK}"

    def _forget(self, connection: int, sender: Sender) -> None:
        codes = self._codes.pop(connection, None)
        if codes:
            sender.add("", FORGOTTEN, codes)


class TextShare:
    """Text of one process."""

    def __init__(self, share: Share, view: View, sender: Sender) -> None:
        self._share = share
        self._parts: list[bytes] = []
        self._report = TextLines(SimpleNamespace(write=self._parts.append), view)
        self._heads = self._report.heads = _OpenHeads(view, self._report.painter)
        self._sent: dict[int, int] = {}
        """By connection and direction, the revision of the connection that its name was sent for."""

    @property
    def limited(self) -> int:
        """How many things the report remembers whose number is limited."""
        return max(self._report.preambles.told, self._report.endings.open)

    def show(self, event: Event, sender: Sender, *, known: bool = False) -> None:
        """Send the lines of an event."""
        self._report.feed(event)
        found = b"".join(self._parts).decode()
        self._parts.clear()
        connection = getattr(event, "connection", None)
        if connection is None:
            if found:
                sender.add(found, PLAIN, None)
            return
        place = -1
        if NAME_MARK in found:
            place = self._named(connection, event.direction, sender)  # type: ignore[union-attr]
        if type(event) is PacketEvent:
            head, _, tail = found.partition(NAME_MARK)
            if "\n" not in head:
                sender.add(head, place, tail, len(tail))
                return
        kind = OPENED if isinstance(event, ConnectionOpened) and not known else PIECES
        sender.add("", kind, (self._share.number, tuple(_pieces(found, connection.number, place))), len(found))
        if self._heads.forgotten:
            self._heads.forgotten = False
            self._drop(connection.number, sender, FORGOTTEN)

    def hide(self, event: Event, sender: Sender) -> None:
        """Send what counts of an event that has no line."""
        if isinstance(event, ConnectionOpened):
            _hide(event, self._share.number, sender)
        elif isinstance(event, ConnectionClosed):
            self._drop(event.connection.number, sender, UNNAMED)

    def _named(self, connection: Connection, direction: Direction, sender: Sender) -> int:
        """The number of what the lines of a connection have of it in a direction; what that is has been sent."""
        share = self._share
        place = (2 * connection.number + (direction is C2S)) * share.count + share.number
        if self._sent.get(place) != connection.revision:
            self._sent[place] = connection.revision
            heads, painter = self._heads, self._report.painter
            name = heads.name(connection)
            more = (
                place, connection.revision, share.number, connection.number, painter.paint(name, "client"),
                cells(name), heads.arrow(direction)[0],
            )  # fmt: skip
            sender.add("", NAME, more, len(name))
        return place

    def _drop(self, connection: int, sender: Sender, kind: int) -> None:
        share = self._share
        places = [(2 * connection + direction) * share.count + share.number for direction in (0, 1)]
        if sum(self._sent.pop(place, None) is not None for place in places):
            sender.add("", kind, places)


def _pieces(found: str, number: int, place: int) -> Iterator[str | int]:
    """The lines of an event as texts, the number of the connection, and, negative, what names it."""
    for line in map("{}\n".format, found.split("\n")[:-1]):
        # Where nothing names a connection its number does, after a time and a rule.
        named = NAME_MARK in line
        head, _, tail = line.partition(NAME_MARK if named else "#")
        if named:
            yield head
            yield -1 - place
            yield tail
        elif tail:
            yield f"{head}#"
            yield number
            yield tail[len(str(number)) :]
        else:
            yield line


def _hide(event: Event, share: int, sender: Sender) -> None:
    if isinstance(event, PacketEvent | MalformedEvent):
        sender.add("", HIDDEN_PACKET, None)
    elif isinstance(event, ConnectionOpened):
        sender.add("", OPENED, (share, ()))


class _OpenHeads(Heads):
    """Names that are left open."""

    forgotten = False
    """A connection is over, and what is kept of it is to go."""

    def who(self, connection: Connection, direction: Direction) -> tuple[str, int]:
        return NAME_MARK, 1

    def forget(self, connection: Connection) -> None:
        super().forget(connection)
        self.forgotten = True


MAX_LIMITED: Final = min(MAX_CONNECTIONS, MAX_ENDINGS)
"""From so many on of what shares remember in a limited number, only one process knows what is forgotten."""
SHARES: Final[dict[str, type[JsonShare | TextShare]]] = {"jsonl": JsonShare, "text": TextShare}
"""Formats that can be shared out."""


def make_lines(
    share: Share, outlet: Outlet, frames: Frames, dissector: Dissector, form: str, view: View, select: Select | None,
    *, timed: bool,
) -> Counts:  # fmt: skip
    """Be one process: say what the flows of a share have to say; returns what was counted.

    ``select``: passes on the events that are shown, one for one or later; ``None`` for all.
    """
    walk = Walk(share, dissector)
    sender = (JsonSender if form == "jsonl" else Sender)(outlet, walk)
    lines = SHARES[form](share, view, sender)
    show, hide = lines.show, lines.hide
    pending: list[Event] = []

    def counted() -> Iterator[Event]:
        """Pass events to the selection; those that do not come back before the next one have no line of their own."""
        for event in walk.events(frames(None), timed=timed):
            if type(event) is not PacketEvent and noted(event, sender, lines.limited):
                continue
            pending.append(event)
            yield event
            if pending:
                hide(pending.pop(), sender)

    shown = 0
    if select is None and isinstance(lines, JsonShare):
        shown = lines.run(frames, sender, timed=timed)
    else:
        for event in counted() if select is None else select(counted()):
            now = bool(pending) and event is pending[0]
            if now:
                pending.clear()
            show(event, sender, known=not now)
            shown += 1
    sender.send(EVERYTHING)
    return Counts.of(walk, shown)


def noted(event: Event, sender: Sender, limited: int) -> bool:
    """Send what a run wants to know of an event beside its line; whether it is a mark and has none."""
    if event is MARK:
        sender.limited = limited
        sender.send(sender.walk.place & ~1)
        return True
    if isinstance(event, CaptureError | CaptureDrops):
        sender.add("", NOTICE, pickle.dumps(event))
    return False


class Writer(ABC):
    """Writes the lines of all processes, and fills in what they leave open."""

    def __init__(self, sink: Sink, count: int, note: Callable[[CaptureNotice], None]) -> None:
        """``note``: told of notices of captures."""
        self._sink = sink
        self._note = note
        self.numbers = [array("q") for _ in range(count)]
        """Of the connections of each process, by their numbers there."""
        self.connections = 0
        self.bytes = 0
        """So much was written."""

    def write(self, entries: Entries) -> None:
        """Write lines in their order."""
        out: list[str] = []
        self.fill(entries, out)
        data = self.encoded(out)
        if data:
            self._sink.write(data)
            self.bytes += len(data)

    @abstractmethod
    def fill(self, entries: Entries, out: list[str]) -> None:
        """Make whole lines."""

    @abstractmethod
    def named(self, place: int) -> str:
        """What stands for a connection in a line of pieces."""

    def encoded(self, out: list[str]) -> bytes:
        """The bytes of lines."""
        return "".join(out).encode()

    def other(self, text: str, code: int, more: Any, out: list[str]) -> None:
        """Take an entry that is no line of a packet."""
        if code == PLAIN:
            out.append(text)
        elif code == NOTICE:
            self._note(pickle.loads(more))
        else:
            share, pieces = more
            if code == OPENED:
                self.numbers[share].append(self.connections)
                self.connections += 1
            out.append("".join([self._filled(piece, share) for piece in pieces]))

    def _filled(self, piece: str | int, share: int) -> str:
        if isinstance(piece, str):
            return piece
        return str(self.numbers[share][piece]) if piece >= 0 else self.named(-1 - piece)


class JsonWriter(Writer):
    """Writes JSON Lines."""

    def __init__(self, sink: Sink, count: int, note: Callable[[CaptureNotice], None]) -> None:
        super().__init__(sink, count, note)
        self._names: dict[int, str] = {}
        self._packets = 0

    def fill(self, entries: Entries, out: list[str]) -> None:
        """Make whole lines."""
        names, packets = self._names, self._packets
        order, _, texts, codes, more = entries
        add = out.append
        for at in order:
            code = codes[at]
            if code >= 0:
                add(f'{texts[at]}{names[code]},"packet":{packets}{more[at]}')
                packets += 1
            elif code == HIDDEN_PACKET:
                packets += 1
            elif code == NAME:
                share, connection, known, named = more[at]
                names[known] = f"{_FIRST}{self.numbers[share][connection]}{named}"
            elif code == FORGOTTEN:
                for known in more[at]:
                    del names[known]
            else:
                self.other(texts[at], code, more[at], out)
        self._packets = packets

    def named(self, place: int) -> str:
        """What stands for a connection in a line of pieces."""
        return self._names[place]

    def encoded(self, out: list[str]) -> bytes:
        """The bytes of lines, without what a terminal or a reader of lines may obey."""
        whole = "".join(out)
        if whole.isascii() and "\x7f" not in whole:
            return whole.encode()
        return b"".join([harmless(line.encode()) for line in out if line])


class TextWriter(Writer):
    """Writes text: keeps what names connections as `report.text.Heads` does, and as long."""

    def __init__(self, sink: Sink, count: int, note: Callable[[CaptureNotice], None]) -> None:
        super().__init__(sink, count, note)
        self._parts: dict[int, tuple[Any, ...]] = {}
        self._kept: dict[int, tuple[int, int, str]] = {}
        """By connection and direction: revision, width of the column, text."""
        self._width = MIN_NAME
        self._number_width = 1

    def fill(self, entries: Entries, out: list[str]) -> None:
        """Make whole lines."""
        kept, width = self._kept, self._width
        order, _, texts, codes, more = entries
        add = out.append
        for at in order:
            text, code, tail = texts[at], codes[at], more[at]
            if code >= 0:
                known = kept.get(code)
                if known is not None and known[1] == width:
                    add(f"{text}{known[2]}{tail}")
                else:
                    add(f"{text}{self.named(code)}{tail}")
                    width = self._width
            elif code == NAME:
                place, revision = tail[:2]
                self._parts[place] = tail
                if place in kept and kept[place][0] != revision:
                    kept[place] = (revision, -1, "")
            elif code in (UNNAMED, FORGOTTEN):
                for place in tail:
                    self._parts.pop(place, None)
                    if code == FORGOTTEN:
                        kept.pop(place, None)
            else:
                self.other(text, code, tail, out)
                width = self._width

    def named(self, place: int) -> str:
        """What stands for a connection in a line of pieces."""
        known = self._kept.get(place)
        if known is not None and known[1] == self._width:
            return known[2]
        _, revision, share, connection, name, cells_of_name, arrow = self._parts[place]
        self._width = max(self._width, min(cells_of_name, MAX_NAME))
        number = f"#{self.numbers[share][connection]}"
        self._number_width = max(self._number_width, len(number))
        pad = " " * (1 + max(0, self._width - cells_of_name))
        made = f"{number:<{self._number_width}} {name}{pad}{arrow}"
        if len(self._kept) >= MAX_CONNECTIONS:
            self._kept.clear()
        self._kept[place] = (revision, self._width, made)
        return made


WRITERS: Final[dict[str, type[JsonWriter | TextWriter]]] = {"jsonl": JsonWriter, "text": TextWriter}
"""Who writes what `SHARES` make."""

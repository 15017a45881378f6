"""Parts of a recording: some clients, a span of time, packets that a filter kept.

What is left is a recording that can be played by itself: connections keep the packets that the protocol needs, links
are right, Topic Aliases are set again where the packet that set them is gone, places are counted again.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from mqttscope.filter import literals
from mqttscope.filter.parser import FilterError, Token
from mqttscope.mqtt import packets
from mqttscope.mqtt.topics import matches
from mqttscope.replay.rewrite.links import Changes, RewriteError, copy_scripts, drop, renumber, restore_aliases
from mqttscope.replay.script import Ending, Entry, Script


@dataclass(slots=True, frozen=True)
class Moment:
    """A point in time."""

    ns: int
    relative: bool = False
    """Whether it counts from the beginning of the recording."""

    @classmethod
    def parse(cls, text: str) -> Moment:
        """``2026-01-02T03:04:05Z``, or from the beginning of the recording: ``90s``, ``1h30m``, ``+2.5s``, ``12.5``."""
        seconds = text.removeprefix("+")
        lasting = literals.duration(f"{seconds}s" if seconds.replace(".", "", 1).isdecimal() else seconds)
        if lasting is not None:
            return cls(int(lasting), relative=True)
        try:
            ns, relative = literals.moment(Token("word", text, 0), _fail)
        except FilterError as error:
            raise RewriteError(f"{error.message}{f'; {error.hint}' if error.hint else ''}") from None
        return cls(int(ns), relative)


def _fail(message: str, position: int, length: int, hint: str = "") -> FilterError:
    return FilterError(message, position, length, hint=hint)


def select(
    scripts: Sequence[Script],
    *,
    clients: Collection[str] = (),
    start: Moment | None = None,
    end: Moment | None = None,
    places: Container[int] | None = None,
) -> tuple[list[Script], Changes]:
    """Copies of the parts of scripts that are asked for, and what was dropped.

    * ``clients``: globs; only connections whose Client Identifier (else the client's endpoint) one of them matches.
    * ``start``, ``end``: what was sent from the start on and before the end.  A connection that was open at the start
      keeps its CONNECT and what it was still subscribed to, moved to the start; answers to packets before the end are
      kept where they came later.
    * ``places``: places of packets that a filter kept, found while the capture was read.  Of the connections that have
      one, CONNECT, AUTH, PINGREQ and DISCONNECT are kept too, the whole handshake of PUBLISH packets, answers, and
      the subscriptions that kept deliveries come from.
    """
    changes = Changes()
    copies = _of_clients(scripts, clients, changes) if clients else copy_scripts(scripts)
    if places is not None:
        copies = _filtered(copies, places, changes)
    if start is not None or end is not None:
        copies = _cut(copies, *span(scripts, start, end), changes)
    restored = sum(map(restore_aliases, copies)) if changes else 0
    changes.count("PUBLISH packet", "with its topic written out: what set the Topic Alias is left out", restored)
    if changes:
        renumber(copies)
        _sessions(scripts, copies, changes)
    return copies, changes


def _sessions(scripts: Iterable[Script], kept: Iterable[Script], changes: Changes) -> None:
    """Say where a session is to be present and the connection that it comes from is left out (5.0 3.2.2.1.1)."""
    numbers = {script.connection.number for script in kept}
    last: dict[tuple[str, str], int] = {}
    for script in scripts:
        connection = script.connection
        session = connection.server, script.name
        before = last.get(session)
        last[session] = connection.number
        if connection.session_present and connection.number in numbers and before not in (None, *numbers):
            changes.count("connection", "expected to find a session whose earlier connection is left out")


def _times(script: Script) -> Iterator[int]:
    if script.opened_ns:
        yield script.opened_ns
    if script.entries:
        yield script.entries[0].timestamp_ns


def span(scripts: Sequence[Script], start: Moment | None, end: Moment | None) -> tuple[int | None, int | None]:
    """Start and end in nanoseconds since 1970, ``None`` for what is not cut."""
    beginning = min((one for script in scripts for one in _times(script)), default=0)
    first, last = (None if one is None else one.ns + one.relative * beginning for one in (start, end))
    return first, last


def _of_clients(scripts: Iterable[Script], clients: Collection[str], changes: Changes) -> list[Script]:
    kept, unused = [], set(clients)
    for script in scripts:
        hits = {one for one in clients if fnmatchcase(script.name, one)}
        unused -= hits
        if hits:
            kept.append(script)
        else:
            changes.count("connection", "of other clients left out")
    for one in sorted(unused):
        changes.note(f"no client is called {one!r}")
    return copy_scripts(kept)


# Filters


def _filtered(scripts: list[Script], places: Container[int], changes: Changes) -> list[Script]:
    kept: set[Entry] = set()
    for script in scripts:
        wanted = {entry for entry in script.entries if entry.place in places}
        # An answer says nothing without what it answers.
        wanted |= {entry.answers for entry in wanted if entry.answers is not None}
        if not wanted:
            continue
        kept |= wanted
        kept.update(_protocol(script, wanted))
        kept.update(entry for entry in script.entries if entry.answers in kept or entry.resends in kept)
    gone = [entry for script in scripts for entry in script.entries if entry not in kept]
    return _without(scripts, gone, "the filter", changes)


def _protocol(script: Script, wanted: set[Entry]) -> Iterator[Entry]:
    """What a connection needs besides the packets that were asked for."""
    topics = {entry.topic for entry in wanted if not entry.from_client and entry.topic is not None}
    filters: set[str] = set()
    for entry in script.entries:
        packet = entry.packet
        if isinstance(packet, packets.Connect | packets.Auth | packets.Disconnect | packets.Pingreq):
            yield entry
        elif isinstance(packet, packets.Subscribe):
            asked = {row.topic_filter for row in packet.subscriptions}
            if entry in wanted or any(matches(one, topic) for one in asked for topic in topics):
                filters |= asked
                yield entry
        elif isinstance(packet, packets.Unsubscribe) and filters.intersection(packet.topic_filters):
            yield entry


# Times


def _cut(scripts: list[Script], start: int | None, end: int | None, changes: Changes) -> list[Script]:
    inside = []
    for script in scripts:
        begin = min(_times(script), default=script.opened_ns)
        if (end is not None and begin >= end) or (start is not None and _end(script) < start):
            changes.count("connection", "left out: not open in the span of time")
        else:
            inside.append(script)
    # Anew, so that no link leads to a connection that was left out.
    scripts = copy_scripts(inside)
    gone: list[Entry] = []
    for script in scripts:
        if start is not None:
            gone += _before(script, start, changes)
        if end is not None:
            gone += _after(script, end, changes)
    return _without(scripts, gone, "the span of time", changes)


def _end(script: Script) -> int:
    last = max((entry.timestamp_ns for entry in script.entries), default=script.opened_ns)
    return max(last, script.ending.timestamp_ns)


def _before(script: Script, start: int, changes: Changes) -> list[Entry]:
    """Take what is before the start out of a connection that is open there, but for what it is."""
    early = [entry for entry in script.entries if entry.timestamp_ns < start]
    subscribed = _subscribed(early)
    gone = []
    moved = 0
    for entry in early:
        needed = isinstance(entry.packet, packets.Connect | packets.Connack | packets.Auth) or entry in subscribed
        granted = isinstance(entry.packet, packets.Suback | packets.Unsuback) and entry.answers in subscribed
        if not needed and not granted:
            gone.append(entry)
        else:
            entry.timestamp_ns = start
            moved += 1
    if early:
        changes.count("packet", "from before the start kept and moved to it, of connections open then", moved)
    script.opened_ns = max(script.opened_ns, start)
    return gone


def _subscribed(entries: Iterable[Entry]) -> set[Entry]:
    """The SUBSCRIBE packets that the subscriptions at the end come from, and UNSUBSCRIBE where it takes part of one."""
    standing: dict[str, Entry] = {}
    for entry in entries:
        packet = entry.packet
        if isinstance(packet, packets.Subscribe):
            standing.update((row.topic_filter, entry) for row in packet.subscriptions)
        elif isinstance(packet, packets.Unsubscribe):
            for one in packet.topic_filters:
                standing.pop(one, None)
    needed = set(standing.values())
    asked: set[str] = set()
    for entry in entries:
        packet = entry.packet
        if entry in needed and isinstance(packet, packets.Subscribe):
            asked |= {row.topic_filter for row in packet.subscriptions}
        elif isinstance(packet, packets.Unsubscribe) and asked.intersection(packet.topic_filters):
            needed.add(entry)
    return needed


def _after(script: Script, end: int, changes: Changes) -> list[Entry]:
    """Take out what comes at the end or later, but for answers to what came before."""
    late = {entry for entry in script.entries if entry.timestamp_ns >= end}
    gone = [entry for entry in late if entry.answers is None or entry.answers in late]
    if script.ending.timestamp_ns >= end or gone:
        script.ending = Ending("open", None, end)
        changes.count("connection", "open at the end of the span of time")
    return gone


def _without(scripts: list[Script], gone: list[Entry], why: str, changes: Changes) -> list[Script]:
    """Take entries out, and connections in which nothing is left."""
    out = set(drop(scripts, gone))
    by_client = sum(entry.from_client for entry in out)
    changes.count("client packet", f"left out by {why}", by_client)
    changes.count("server packet", f"no longer expected, left out by {why}", len(out) - by_client)
    kept = [script for script in scripts if script.entries]
    changes.count("connection", f"left out by {why}", len(scripts) - len(kept))
    return kept

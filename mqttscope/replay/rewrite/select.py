"""Selects parts of a recording: some clients, a span of time, packets that a filter kept.

The selected part can be played by itself: connections keep the packets that the protocol needs, links are kept, Topic
Aliases are set again if the packet that set them is gone, and places are numbered again.
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
from mqttscope.replay.script import Ending, Script, ScriptEntry


@dataclass(slots=True, frozen=True)
class RecordingTime:
    """A point in time, absolute or relative to the recording."""

    ns: int
    relative: bool = False
    """Whether it is relative to the beginning of the recording."""

    @classmethod
    def parse(cls, text: str) -> RecordingTime:
        """``2026-01-02T03:04:05Z``, or relative to the beginning: ``90s``, ``1h30m``, ``+2.5s``, ``12.5``."""
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
    start: RecordingTime | None = None,
    end: RecordingTime | None = None,
    places: Container[int] | None = None,
) -> tuple[list[Script], Changes]:
    """Copies of the selected parts of scripts, and what was dropped.

    * ``clients``: globs; selects connections with a matching Client Identifier (else the client's endpoint).
    * ``start``, ``end``: packets sent from the start on and before the end.  A connection open at the start keeps its
      CONNECT and its current subscriptions, moved to the start; answers to packets before the end are kept even if they
      came later.
    * ``places``: places of packets that a filter kept, found while the capture was read.  Connections with such a
      packet also keep CONNECT, AUTH, PINGREQ and DISCONNECT, complete handshakes of PUBLISH packets, answers, and the
      subscriptions that kept deliveries come from.
    """
    changes = Changes()
    copies = _of_clients(scripts, clients, changes) if clients else copy_scripts(scripts)
    if places is not None:
        copies = _filtered(copies, places, changes)
    if start is not None or end is not None:
        copies = _cut(copies, *span(scripts, start, end), changes)
    restored = sum(map(restore_aliases, copies)) if changes else 0
    change = "with its topic written out: the packet that set the Topic Alias is left out"
    changes.count("PUBLISH packet", change, restored)
    if changes:
        renumber(copies)
        _note_sessions(scripts, copies, changes)
    return copies, changes


def _note_sessions(scripts: Iterable[Script], selected: Iterable[Script], changes: Changes) -> None:
    """Note sessions to be resumed from a connection that is left out (5.0 3.2.2.1.1)."""
    numbers = {script.connection.number for script in selected}
    last: dict[tuple[str, str], int] = {}
    for script in scripts:
        connection = script.connection
        session = connection.server, script.name
        before = last.get(session)
        last[session] = connection.number
        if connection.session_present and connection.number in numbers and before not in (None, *numbers):
            changes.count("connection", "expected to find a session from a connection that is left out")


def _times(script: Script) -> Iterator[int]:
    if script.opened_ns:
        yield script.opened_ns
    if script.entries:
        yield script.entries[0].timestamp_ns


def span(
    scripts: Sequence[Script], start: RecordingTime | None, end: RecordingTime | None
) -> tuple[int | None, int | None]:
    """Start and end in nanoseconds since 1970, ``None`` if not limited."""
    beginning = min((time_ns for script in scripts for time_ns in _times(script)), default=0)
    first, last = (None if bound is None else bound.ns + bound.relative * beginning for bound in (start, end))
    return first, last


def _of_clients(scripts: Iterable[Script], clients: Collection[str], changes: Changes) -> list[Script]:
    selected, unused = [], set(clients)
    for script in scripts:
        hits = {pattern for pattern in clients if fnmatchcase(script.name, pattern)}
        unused -= hits
        if hits:
            selected.append(script)
        else:
            changes.count("connection", "of other clients left out")
    for pattern in sorted(unused):
        changes.note(f"no client is called {pattern!r}")
    return copy_scripts(selected)


# Filters


def _filtered(scripts: list[Script], places: Container[int], changes: Changes) -> list[Script]:
    selected: set[ScriptEntry] = set()
    for script in scripts:
        chosen = {entry for entry in script.entries if entry.place in places}
        # An answer is useless without its request.
        chosen |= {entry.answers for entry in chosen if entry.answers is not None}
        if not chosen:
            continue
        selected |= chosen
        selected.update(_protocol(script, chosen))
        selected.update(entry for entry in script.entries if entry.answers in selected or entry.resends in selected)
    dropped = [entry for script in scripts for entry in script.entries if entry not in selected]
    return _leave_out(scripts, dropped, "the filter", changes)


def _protocol(script: Script, chosen: set[ScriptEntry]) -> Iterator[ScriptEntry]:
    """Packets that a connection needs in addition to the selected ones."""
    topics = {entry.topic for entry in chosen if not entry.from_client and entry.topic is not None}
    filters: set[str] = set()
    for entry in script.entries:
        packet = entry.packet
        if isinstance(packet, packets.Connect | packets.Auth | packets.Disconnect | packets.Pingreq):
            yield entry
        elif isinstance(packet, packets.Subscribe):
            requested = {row.topic_filter for row in packet.subscriptions}
            if entry in chosen or any(matches(topic_filter, topic) for topic_filter in requested for topic in topics):
                filters |= requested
                yield entry
        elif isinstance(packet, packets.Unsubscribe) and filters.intersection(packet.topic_filters):
            yield entry


# Times


def _cut(scripts: list[Script], start: int | None, end: int | None, changes: Changes) -> list[Script]:
    inside = []
    for script in scripts:
        begin = min(_times(script), default=script.opened_ns)
        if (end is not None and begin >= end) or (start is not None and _last_ns(script) < start):
            changes.count("connection", "left out: not open in the span of time")
        else:
            inside.append(script)
    # Copied again, so that no link leads to a connection that was left out.
    scripts = copy_scripts(inside)
    dropped: list[ScriptEntry] = []
    for script in scripts:
        if start is not None:
            dropped += _entries_before(script, start, changes)
        if end is not None:
            dropped += _entries_after(script, end, changes)
    return _leave_out(scripts, dropped, "the span of time", changes)


def _last_ns(script: Script) -> int:
    last = max((entry.timestamp_ns for entry in script.entries), default=script.opened_ns)
    return max(last, script.ending.timestamp_ns)


def _entries_before(script: Script, start: int, changes: Changes) -> list[ScriptEntry]:
    """Drop packets before ``start`` that do not establish the connection; returns the dropped ones."""
    early = [entry for entry in script.entries if entry.timestamp_ns < start]
    subscribed = _subscribed(early)
    dropped = []
    moved = 0
    for entry in early:
        needed = isinstance(entry.packet, packets.Connect | packets.Connack | packets.Auth) or entry in subscribed
        granted = isinstance(entry.packet, packets.Suback | packets.Unsuback) and entry.answers in subscribed
        if not needed and not granted:
            dropped.append(entry)
        else:
            entry.timestamp_ns = start
            moved += 1
    if early:
        changes.count("packet", "from before the start kept and moved to it, of connections open then", moved)
    script.opened_ns = max(script.opened_ns, start)
    return dropped


def _subscribed(entries: Iterable[ScriptEntry]) -> set[ScriptEntry]:
    """SUBSCRIBE packets of the subscriptions in force at the end, and UNSUBSCRIBE packets that remove part of one."""
    subscriptions: dict[str, ScriptEntry] = {}
    for entry in entries:
        packet = entry.packet
        if isinstance(packet, packets.Subscribe):
            subscriptions.update((row.topic_filter, entry) for row in packet.subscriptions)
        elif isinstance(packet, packets.Unsubscribe):
            for topic_filter in packet.topic_filters:
                subscriptions.pop(topic_filter, None)
    needed = set(subscriptions.values())
    requested: set[str] = set()
    for entry in entries:
        packet = entry.packet
        if entry in needed and isinstance(packet, packets.Subscribe):
            requested |= {row.topic_filter for row in packet.subscriptions}
        elif isinstance(packet, packets.Unsubscribe) and requested.intersection(packet.topic_filters):
            needed.add(entry)
    return needed


def _entries_after(script: Script, end: int, changes: Changes) -> list[ScriptEntry]:
    """Packets at or after the end, except answers to earlier packets."""
    late = {entry for entry in script.entries if entry.timestamp_ns >= end}
    dropped = [entry for entry in late if entry.answers is None or entry.answers in late]
    if script.ending.timestamp_ns >= end or dropped:
        script.ending = Ending("open", None, end)
        changes.count("connection", "open at the end of the span of time")
    return dropped


def _leave_out(scripts: list[Script], dropped: list[ScriptEntry], why: str, changes: Changes) -> list[Script]:
    """Take entries out, and connections that have no entries left."""
    out = set(drop(scripts, dropped))
    by_client = sum(entry.from_client for entry in out)
    changes.count("client packet", f"left out by {why}", by_client)
    changes.count("server packet", f"no longer expected, left out by {why}", len(out) - by_client)
    nonempty = [script for script in scripts if script.entries]
    changes.count("connection", f"left out by {why}", len(scripts) - len(nonempty))
    return nonempty

"""Recorded connections as a replay or a stand-in plays them: read, selected, changed, and what that leaves out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from mqttscope import arguments
from mqttscope.api.captures import Source
from mqttscope.errors import ArgumentError, MqttscopeError
from mqttscope.events import Event, MalformedEvent, PacketEvent
from mqttscope.filter import Filter
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.wire import counted
from mqttscope.replay import rewrite as rewriting
from mqttscope.replay.alterations import Alterations, Options
from mqttscope.replay.drivers.run import Pace
from mqttscope.replay.script import Entry, Script, ScriptReader


class NothingRecordedError(MqttscopeError):
    """The captures hold no connection that could be played; the text says why."""


@dataclass(slots=True)
class Wanted:
    """Which part of a recording is played, and what is changed in it."""

    clients: tuple[str, ...] = ()
    """Globs of Client Identifiers."""
    start: rewriting.Moment | None = None
    end: rewriting.Moment | None = None
    rewrites: rewriting.Rewrites = field(default_factory=rewriting.Rewrites)
    convert: ProtocolVersion | None = None
    lossy: bool = False
    """Whether a conversion may lose what the other version has no form for."""
    copies: int = 1
    topic_template: str | None = None
    credentials: bool = False
    """Others than the recorded ones are sent."""

    @property
    def is_everything(self) -> bool:
        """Whether it is played as it was captured."""
        return not self.rewrites and replace(self, rewrites=rewriting.Rewrites()) == Wanted()


@dataclass(slots=True)
class Recorded:
    """What is to be played."""

    scripts: list[Script]
    changes: list[str] = field(default_factory=list)
    """What differs from the captures, as sentences."""
    left_out: list[tuple[Script, str]] = field(default_factory=list)
    """Connections that cannot be played, and why."""
    truncated: bool = False
    """A capture could not be read to its end."""
    alterations: Alterations | None = None
    """What the options made of it; ``None`` where it is played as it was captured."""
    unreachable: set[Entry] = field(default_factory=set)
    """Recorded deliveries that cannot come because of that."""
    hides_password: str = ""
    """A script that has asterisks in the place of a password."""


class Matching:
    """Reads scripts from events, and notes the places of packets that a filter keeps."""

    def __init__(self, wanted: Filter | None) -> None:
        self._wanted = wanted
        self._reader = ScriptReader()
        self.places: set[int] | None = None if wanted is None else set()
        """Places of packets that match; ``None`` without a filter."""

    def feed(self, event: Event) -> None:
        """Take one event."""
        reader, wanted = self._reader, self._wanted
        place = reader.places
        is_wanted = wanted is not None and isinstance(event, PacketEvent | MalformedEvent) and wanted.matches(event)
        reader.feed(event)
        if is_wanted and reader.places > place and self.places is not None:
            self.places.add(place)

    def finish(self) -> list[Script]:
        """The recorded connections."""
        return self._reader.finish()


def arrange(
    matching: Matching, wanted: Wanted, *, truncated: bool = False, note: Callable[[str], None] = lambda _: None
) -> Recorded:
    """Select and change what was read.

    `RewriteError` where something cannot be changed as asked, `NothingRecordedError` where no connection is left.
    ``note`` gets what is lost of connections that are played all the same.
    """
    found = Recorded(matching.finish(), truncated=truncated)
    found.left_out = list(_unplayable(found.scripts, note))
    gone = {id(script) for script, _ in found.left_out}
    found.scripts = captured = [script for script in found.scripts if id(script) not in gone]
    late = sum(script.late for script in captured)
    if late:
        found.changes.append(
            f"{counted(late, 'packet')} of clients left out: the broker had already ended the connection"
        )
    for changes in _changed(found, wanted, matching.places):
        found.changes += changes.sentences
    if not found.scripts:
        reasons = sorted({why for _, why in found.left_out}) + found.changes
        more = f": {'; '.join(reasons)}" if reasons else ""
        raise NothingRecordedError(f"no connection can be replayed{more}")
    if matching.places is not None or not wanted.is_everything:
        begin, finish = rewriting.span(captured, wanted.start, wanted.end)
        options = Options(
            clients=wanted.clients,
            filtered=matching.places is not None,
            start_ns=begin,
            end_ns=finish,
            topics=bool(wanted.rewrites.topics or wanted.topic_template),
            names=bool(wanted.rewrites.clients),
            settings=[one.target.path for one in wanted.rewrites.settings],
            copies=wanted.copies,
            credentials=wanted.credentials,
        )
        found.alterations = Alterations(captured, found.scripts, options)
        found.unreachable = found.alterations.unreachable(found.scripts)
    return found


def _changed(found: Recorded, wanted: Wanted, places: set[int] | None) -> Iterator[rewriting.Changes]:
    """Select, convert, rewrite and copy scripts; gives what each step changed."""
    found.scripts, changes = rewriting.select(
        found.scripts, clients=wanted.clients, start=wanted.start, end=wanted.end, places=places
    )
    yield changes
    if wanted.convert is not None:
        found.scripts, changes = _converted(found.scripts, wanted.convert, lossy=wanted.lossy)
        yield changes
    if wanted.rewrites:
        found.scripts, changes = rewriting.rewrite(found.scripts, wanted.rewrites)
        yield changes
    if wanted.copies > 1 or wanted.topic_template:
        found.scripts, changes = rewriting.multiply(
            found.scripts, wanted.copies, wanted.topic_template or rewriting.TOPIC_TEMPLATE
        )
        yield changes


def _converted(
    scripts: list[Script], version: ProtocolVersion, *, lossy: bool
) -> tuple[list[Script], rewriting.Changes]:
    try:
        return rewriting.convert(scripts, version, lossy=lossy)
    except rewriting.ConversionError as error:
        if version != ProtocolVersion.V3_1_1 or lossy:
            raise
        raise rewriting.RewriteError(
            f"{error}\n--lossy converts the rest, and says in the report what is lost"
        ) from None


def _unplayable(scripts: Sequence[Script], note: Callable[[str], None]) -> Iterator[tuple[Script, str]]:
    for script in scripts:
        if not script.begins:
            yield script, "the capture does not have its CONNECT"
        elif script.lost_from_client:
            lost = counted(script.lost_from_client, "byte")
            note(f"{script.name}: {lost} of the client are not in the capture; what is there is played")


RECORDED, ASAP, CAUSAL = "recorded", "asap", "causal"
MAX_UNREAD = 5
"""Captures that an error names because they could not be read; it counts the others."""


def read_pace(pace: str | float) -> Pace:
    """``recorded``, ``asap``, ``causal``, or a factor, as a number or as ``2x``; `ArgumentError` for others."""
    if pace in (ASAP, CAUSAL):
        return Pace(None, causal=pace == CAUSAL, text=str(pace))
    if pace == RECORDED:
        return Pace()
    try:
        if isinstance(pace, bool) or not isinstance(pace, str | int | float):
            raise ValueError
        speed = float(pace.removesuffix("x") if isinstance(pace, str) else pace)
    except ValueError:
        raise ArgumentError(f"{pace!r} is not recorded, asap, causal, or a factor such as 2.0") from None
    if not 0 < speed < math.inf:
        raise ArgumentError(f"a pace of {pace} is not above 0 and finite")
    return Pace(speed, text=pace if isinstance(pace, str) else f"{pace:g}x")


def read_moment(name: str, value: str | None) -> rewriting.Moment | None:
    """A point in time, as `Moment.parse` reads it; ``None`` for none.

    `RewriteError` for a text that is none, `ArgumentError` for what is no text.
    """
    if value is None:
        return None
    return rewriting.Moment.parse(arguments.text(name, value, "a time, such as 2026-01-02T03:04:05Z or 90s"))


def read_recorded(source: Source, wanted: Wanted) -> Recorded:
    """The recorded connections of captures; errors as of `arrange`."""
    reading = source.reading()
    matching = Matching(source.filter())
    for event in source.events(reading, source.dissector(reading)):
        matching.feed(event)
    try:
        return arrange(matching, wanted, truncated=bool(source.errors), note=source.notes.append)
    except NothingRecordedError as error:
        unread = [f"{problem.capture}: {problem.message}" for problem in source.errors[:MAX_UNREAD]]
        more = len(source.errors) - len(unread)
        unread += [f"and {counted(more, 'other capture')} that cannot be read"] if more else []
        raise NothingRecordedError("; ".join([str(error), *unread])) from None

"""Recorded connections for a replay or a stand-in: reading, selecting and changing them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from mqttscope import arguments
from mqttscope.api.captures import CaptureSelection
from mqttscope.errors import ArgumentError, MqttscopeError
from mqttscope.events import Event, MalformedEvent, PacketEvent
from mqttscope.filter import Filter
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.wire import counted
from mqttscope.replay import rewrite as rewriting
from mqttscope.replay.alterations import AlterationOptions, Alterations
from mqttscope.replay.drivers.run import Pace
from mqttscope.replay.script import Script, ScriptEntry, ScriptReader


class NothingRecordedError(MqttscopeError):
    """The captures contain no connection that can be played; the message gives the reasons."""


@dataclass(slots=True)
class RecordedSelection:
    """Part of a recording to play, and changes to it."""

    clients: tuple[str, ...] = ()
    """Globs of Client Identifiers."""
    start: rewriting.RecordingTime | None = None
    end: rewriting.RecordingTime | None = None
    rewrites: rewriting.Rewrites = field(default_factory=rewriting.Rewrites)
    convert: ProtocolVersion | None = None
    lossy: bool = False
    """Whether a conversion may drop fields that the other version cannot express."""
    copies: int = 1
    topic_template: str | None = None
    credentials: bool = False
    """Whether credentials other than the recorded ones are sent."""

    @property
    def is_everything(self) -> bool:
        """Whether the recording is played unchanged."""
        return not self.rewrites and replace(self, rewrites=rewriting.Rewrites()) == RecordedSelection()


@dataclass(slots=True)
class Recorded:
    """Recorded connections to play."""

    scripts: list[Script]
    changes: list[str] = field(default_factory=list)
    """Changes from the captures, as sentences."""
    left_out: list[tuple[Script, str]] = field(default_factory=list)
    """Connections that cannot be played, with reasons."""
    truncated: bool = False
    """Whether a capture could not be read to its end."""
    alterations: Alterations | None = None
    """Effects of the options on the recording; ``None`` if it is played unchanged."""
    unreachable: set[ScriptEntry] = field(default_factory=set)
    """Recorded deliveries that cannot occur because of the alterations."""
    hides_password: str = ""
    """Path of a script with asterisks instead of a password."""


class MatchingScripts:
    """Reads scripts from events, and notes the places of packets that match a filter."""

    def __init__(self, wanted: Filter | None) -> None:
        self._wanted = wanted
        self._reader = ScriptReader()
        self.places: set[int] | None = None if wanted is None else set()
        """Places of packets that match; ``None`` without a filter."""

    def feed(self, event: Event) -> None:
        """Feed one event."""
        reader, wanted = self._reader, self._wanted
        place = reader.places
        is_wanted = wanted is not None and isinstance(event, PacketEvent | MalformedEvent) and wanted.matches(event)
        reader.feed(event)
        if is_wanted and reader.places > place and self.places is not None:
            self.places.add(place)

    def finish(self) -> list[Script]:
        """Scripts of the recorded connections."""
        return self._reader.finish()


def arrange(
    matching: MatchingScripts, wanted: RecordedSelection, *, truncated: bool = False,
    note: Callable[[str], None] = lambda _: None
) -> Recorded:  # fmt: skip
    """Select and change the recorded connections.

    `RewriteError` for an impossible change, `NothingRecordedError` if no connection is left.  ``note`` receives
    messages about losses in connections that are still played.
    """
    recorded = Recorded(matching.finish(), truncated=truncated)
    recorded.left_out = list(_unplayable(recorded.scripts, note))
    gone = {id(script) for script, _ in recorded.left_out}
    recorded.scripts = captured = [script for script in recorded.scripts if id(script) not in gone]
    late = sum(script.late for script in captured)
    if late:
        recorded.changes.append(
            f"{counted(late, 'packet')} of clients omitted: the broker had already ended the connection"
        )
    for changes in _changed(recorded, wanted, matching.places):
        recorded.changes += changes.sentences
    if not recorded.scripts:
        reasons = sorted({why for _, why in recorded.left_out}) + recorded.changes
        more = f": {'; '.join(reasons)}" if reasons else ""
        raise NothingRecordedError(f"no connection can be replayed{more}")
    if matching.places is not None or not wanted.is_everything:
        begin, finish = rewriting.span(captured, wanted.start, wanted.end)
        options = AlterationOptions(
            clients=wanted.clients,
            filtered=matching.places is not None,
            start_ns=begin,
            end_ns=finish,
            topics=bool(wanted.rewrites.topics or wanted.topic_template),
            names=bool(wanted.rewrites.clients),
            settings=[setting.target.path for setting in wanted.rewrites.settings],
            copies=wanted.copies,
            credentials=wanted.credentials,
        )
        recorded.alterations = Alterations(captured, recorded.scripts, options)
        recorded.unreachable = recorded.alterations.unreachable(recorded.scripts)
    return recorded


def _changed(recorded: Recorded, wanted: RecordedSelection, places: set[int] | None) -> Iterator[rewriting.Changes]:
    """Select, convert, rewrite and copy scripts; yields the changes of each step."""
    recorded.scripts, changes = rewriting.select(
        recorded.scripts, clients=wanted.clients, start=wanted.start, end=wanted.end, places=places
    )
    yield changes
    if wanted.convert is not None:
        recorded.scripts, changes = _converted(recorded.scripts, wanted.convert, lossy=wanted.lossy)
        yield changes
    if wanted.rewrites:
        recorded.scripts, changes = rewriting.rewrite(recorded.scripts, wanted.rewrites)
        yield changes
    if wanted.copies > 1 or wanted.topic_template:
        recorded.scripts, changes = rewriting.multiply(
            recorded.scripts, wanted.copies, wanted.topic_template or rewriting.TOPIC_TEMPLATE
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
        raise rewriting.RewriteError(f"{error}\n--lossy converts the rest, and reports the losses") from None


def _unplayable(scripts: Sequence[Script], note: Callable[[str], None]) -> Iterator[tuple[Script, str]]:
    for script in scripts:
        if not script.begins:
            yield script, "its CONNECT was not captured"
        elif script.lost_from_client:
            lost = counted(script.lost_from_client, "byte")
            note(f"{script.name}: {lost} of the client are missing in the capture; the rest is played")


RECORDED, ASAP, CAUSAL = "recorded", "asap", "causal"
MAX_UNREAD = 5
"""Maximum number of unreadable captures named in an error; the rest is counted."""


def read_pace(pace: str | float) -> Pace:
    """Parse ``recorded``, ``asap``, ``causal``, or a factor: a number or ``2x``; `ArgumentError` for other values."""
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


def read_moment(name: str, value: str | None) -> rewriting.RecordingTime | None:
    """Parse a point in time (`Moment.parse`), or ``None``.

    `RewriteError` for an invalid text, `ArgumentError` for another type.
    """
    if value is None:
        return None
    return rewriting.RecordingTime.parse(arguments.text(name, value, "a time, such as 2026-01-02T03:04:05Z or 90s"))


def read_recorded(source: CaptureSelection, wanted: RecordedSelection) -> Recorded:
    """Read the recorded connections of captures; errors like `arrange`."""
    reading = source.reading()
    matching = MatchingScripts(source.filter())
    for event in source.events(reading, source.dissector(reading)):
        matching.feed(event)
    try:
        return arrange(matching, wanted, truncated=bool(source.errors), note=source.notes.append)
    except NothingRecordedError as error:
        unread = [f"{problem.capture}: {problem.message}" for problem in source.errors[:MAX_UNREAD]]
        more = len(source.errors) - len(unread)
        unread += [f"and {counted(more, 'other capture')} that cannot be read"] if more else []
        raise NothingRecordedError("; ".join([str(error), *unread])) from None

"""The start of a live run: scripts from captures, selected by its options, and what records and lints the traffic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, count
from pathlib import Path

import click

from mqttscope.cli import advice
from mqttscope.cli.linting import LintRun
from mqttscope.cli.live_options import ChangeOptions, RecordedOptions, RunOptions
from mqttscope.cli.main import EXIT_UNREADABLE
from mqttscope.cli.options import FileOptions, ProtocolOptions, compile_filter
from mqttscope.cli.output import CannotWriteError, Watch, refuse_inputs, warn
from mqttscope.cli.reading import Reading
from mqttscope.dissect import Dissector, dissect_segments
from mqttscope.dissect import Options as DissectOptions
from mqttscope.dissect.options import MQTT
from mqttscope.errors import MqttscopeError
from mqttscope.events import Event, MalformedEvent, PacketEvent
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.view import utf8
from mqttscope.mqtt.wire import counted
from mqttscope.net.frame import CaptureNotice, Plaintext
from mqttscope.net.segment import Segment
from mqttscope.replay.alterations import Alterations, Options
from mqttscope.replay.rewrite import (
    CLIENT_TEMPLATE,
    TOPIC_TEMPLATE,
    Changes,
    ConversionError,
    Moment,
    RewriteError,
    Rewrites,
    convert,
    multiply,
    rewrite,
    select,
    span,
)
from mqttscope.replay.script import Entry, Script, ScriptReader
from mqttscope.replay.script_file import PASSWORD, ScriptFileError, is_script, read_script, segments_of
from mqttscope.report.base import Sink
from mqttscope.report.replay.text import Limited
from mqttscope.transport.recording import Recording


class NothingToReplayError(MqttscopeError, click.ClickException):
    """The captures hold no connection that could be played."""

    exit_code = EXIT_UNREADABLE


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


def read(
    captures: Sequence[str],
    files: FileOptions,
    protocol: ProtocolOptions,
    chosen: RecordedOptions,
    changing: ChangeOptions,
    *,
    credentials: bool = False,
) -> Recorded:
    """Read captures, select and rewrite; usage errors where that cannot be done.

    ``credentials``: others than the recorded ones are sent.
    """
    wanted = compile_filter(chosen.expression)
    try:
        rewrites = Rewrites.parse(chosen.topics, chosen.names, changing.settings, changing.unset, read_file=_file)
        start = None if chosen.start is None else Moment.parse(chosen.start)
        end = None if chosen.end is None else Moment.parse(chosen.end)
    except RewriteError as error:
        raise click.UsageError(str(error)) from None
    written = [one for one in captures if _is_script(one)]
    reading = Reading([one for one in captures if one not in written], files)
    dissection = protocol.dissection(decrypting=reading.decrypting)
    segments: Iterator[Segment | CaptureNotice | Plaintext]
    segments, hidden = _written(written, dissection)
    dissector = Dissector(dissection)
    watch = Watch(progress=True)
    reader = ScriptReader()
    places: set[int] | None = None if wanted is None else set()
    if reading.captures:
        segments = chain(reading.segments(watch.skipped), segments)
    for event in watch.events(dissect_segments(segments, dissector=dissector)):
        place = reader.places
        is_wanted = places is not None and _is_packet(event) and wanted.matches(event)
        reader.feed(event)
        if is_wanted and reader.places > place:
            places.add(place)  # type: ignore[union-attr]
    nothing = advice.nothing_found(dissector) if not dissector.connections else None
    for told in filter(None, (nothing, *reading.advice(), advice.not_read(dissector, watch.skipped, via=reading.via))):
        warn(told)
    found = Recorded(reader.finish(), truncated=bool(watch.errors), hides_password=hidden)
    found.left_out = list(_unplayable(found.scripts))
    gone = {id(script) for script, _ in found.left_out}
    found.scripts = [script for script in found.scripts if id(script) not in gone]
    captured = found.scripts
    late = sum(script.late for script in captured)
    if late:
        found.changes.append(
            f"{counted(late, 'packet')} of clients left out: the broker had already ended the connection"
        )
    try:
        found.scripts, changes = select(found.scripts, clients=chosen.clients, start=start, end=end, places=places)
        found.changes += changes.sentences
        if changing.convert is not None:
            found.scripts, changes = _converted(found.scripts, changing.convert, lossy=changing.lossy)
            found.changes += changes.sentences
        if rewrites:
            found.scripts, changes = rewrite(found.scripts, rewrites)
            found.changes += changes.sentences
        if changing.copies > 1 or changing.client_template or changing.topic_template:
            found.scripts, changes = multiply(
                found.scripts,
                changing.copies,
                changing.client_template or CLIENT_TEMPLATE,
                changing.topic_template or TOPIC_TEMPLATE,
            )
            found.changes += changes.sentences
    except RewriteError as error:
        raise click.UsageError(str(error)) from None
    if not found.scripts:
        reasons = sorted({why for _, why in found.left_out}) + found.changes
        more = f": {'; '.join(reasons)}" if reasons else ""
        raise NothingToReplayError(f"no connection can be replayed{more}")
    if chosen != RecordedOptions() or changing != ChangeOptions() or credentials:
        begin, finish = span(captured, start, end)
        options = Options(
            clients=chosen.clients,
            filtered=wanted is not None,
            start_ns=begin,
            end_ns=finish,
            topics=bool(chosen.topics or changing.topic_template),
            names=bool(chosen.names),
            settings=[one.target.path for one in rewrites.settings],
            copies=changing.copies,
            credentials=credentials,
        )
        found.alterations = Alterations(captured, found.scripts, options)
        found.unreachable = found.alterations.unreachable(found.scripts)
    return found


class BadScriptError(MqttscopeError, click.ClickException):
    """A script of a connection cannot be read."""

    exit_code = EXIT_UNREADABLE


def _is_script(path: str) -> bool:
    """Whether a file holds the script of a connection, and no capture; one that cannot be read is told later."""
    try:
        with open(path, "rb") as file:
            return file.seekable() and is_script(file.read(64))
    except (OSError, ValueError):
        return False


def _written(paths: Sequence[str], options: DissectOptions) -> tuple[Iterator[Segment], str]:
    """The segments of scripts in the order of their times, and the first script that hides a password."""
    numbers = count(1).__next__
    found: list[Iterator[Segment]] = []
    hidden = ""
    for path in paths:
        try:
            made = read_script(Path(path).read_bytes())
            # All at once: what is wrong is said before anything is sent.
            found.append(iter(list(segments_of(made, path, numbers))))
        except (ScriptFileError, OSError) as error:
            raise BadScriptError(f"{utf8(path)}: {getattr(error, 'strerror', None) or error}") from None
        options.ports.setdefault(int(made.server.rpartition(":")[2]), MQTT)
        others = [(made.steps[at], [one for one in names if one != PASSWORD]) for at, names in made.hidden]
        fields = sum(len(names) for step, names in others if step.from_client)
        if fields:
            are = "is" if fields == 1 else "are"
            warn(f"{utf8(path)}: {counted(fields, 'hidden field')} of the client {are} asterisks")
        if made.hides_password:
            hidden = hidden or path
    return merge(*found, key=lambda segment: segment.timestamp_ns), hidden


def _converted(scripts: list[Script], version: ProtocolVersion, *, lossy: bool) -> tuple[list[Script], Changes]:
    try:
        return convert(scripts, version, lossy=lossy)
    except ConversionError as error:
        if version != ProtocolVersion.V3_1_1 or lossy:
            raise
        raise RewriteError(f"{error}\n--lossy converts the rest, and says in the report what is lost") from None


def limit_findings(lint: LintRun, given: RunOptions, sink: Sink) -> None:
    """Let the findings of a live run end after ``--limit``, where they are for people."""
    if given.form == "text":
        lint.reporters = [Limited(one, sink, given.limit) for one in lint.reporters]


def _is_packet(event: Event) -> bool:
    return isinstance(event, PacketEvent | MalformedEvent)


def _unplayable(scripts: list[Script]) -> Iterator[tuple[Script, str]]:
    for script in scripts:
        if not script.begins:
            yield script, "the capture does not have its CONNECT"
        elif script.lost_from_client:
            lost = counted(script.lost_from_client, "byte")
            warn(f"{script.name}: {lost} of the client are not in the capture; what is there is played")


def _file(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except (OSError, ValueError) as error:
        raise RewriteError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from None


def prepare_record(
    given: RunOptions,
    captures: Sequence[str],
    where: str,
    options: DissectOptions,
    sink: Callable[[], Sink],
    activity: str,
) -> tuple[LintRun | None, Recording | None, DissectOptions]:
    """The linter of ``--lint``, the recording of ``--write`` or for the linter, and the options that hold.

    ``where`` names the capture where there is no file; ``sink`` gives the place of findings.  `CannotWriteError` where
    the file cannot be made, a usage error where it is a capture that is read.
    """
    name = given.write or where
    lint: LintRun | None = None
    listener: Callable[[Event], None] | None = None
    dissector = Dissector(options)
    if given.lint:
        from mqttscope.cli.linting_settings import resolve

        settings = resolve(given.judging, form="full" if given.form == "text" else "jsonl")
        lint = LintRun(settings, Reading((name,)), colour=given.colour, sink=sink())
        dissector, listener, options = lint.dissector, lint.feed, settings.options
    if given.write is None and listener is None:
        return lint, None, options
    if given.write is not None:
        refuse_inputs(given.write, captures, option="--write")
    try:
        recording = Recording(
            name, path=given.write, dissector=dissector, listener=listener, note=warn, activity=activity
        )
    except OSError as error:
        raise CannotWriteError(f"cannot write {given.write}: {error.strerror or error}") from None
    return lint, recording, options

"""Scripts from the captures that a command names, with the parts and the changes that its options ask for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from mqttscope.cli import advice
from mqttscope.cli.inspect import compile_filter
from mqttscope.cli.linting import Run
from mqttscope.cli.main import EXIT_UNREADABLE
from mqttscope.cli.options import make_options
from mqttscope.cli.output import Watch, warn
from mqttscope.cli.reading import Reading
from mqttscope.dissect import Dissector, dissect_segments
from mqttscope.errors import MqttscopeError
from mqttscope.events import Event, MalformedEvent, PacketEvent
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.wire import counted
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
from mqttscope.report.base import Sink
from mqttscope.report.replay.text import Limited

_ALTERING = (
    "clients", "expression", "start", "end", "topics", "names", "settings", "unset", "convert", "client_template",
    "topic_template", "user", "password_file",
)  # fmt: skip
"""Options that make something else of a recording."""


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
    hopeless: set[Entry] = field(default_factory=set)
    """Recorded deliveries that cannot come because of that."""


def read(given: dict[str, Any]) -> Recorded:
    """Read captures, select and rewrite; usage errors where that cannot be done."""
    wanted = compile_filter(given["expression"])
    try:
        rewrites = Rewrites.parse(given["topics"], given["names"], given["settings"], given["unset"], read_file=_file)
        start = None if given["start"] is None else Moment.parse(given["start"])
        end = None if given["end"] is None else Moment.parse(given["end"])
    except RewriteError as error:
        raise click.UsageError(str(error)) from None
    reading = Reading(given["captures"], given["keylog"], via=given["via"])
    dissector = Dissector(make_options(given["ports"], None, decrypting=reading.decrypting))
    watch = Watch(progress=True)
    reader = ScriptReader()
    places: set[int] | None = None if wanted is None else set()
    for event in watch.events(dissect_segments(reading.segments(watch.skipped), dissector=dissector)):
        place = reader.places
        is_wanted = places is not None and _is_packet(event) and wanted.matches(event)  # type: ignore[attr-defined]
        reader.feed(event)
        if is_wanted and reader.places > place:
            places.add(place)  # type: ignore[union-attr]
    nothing = advice.nothing_found(dissector) if not dissector.connections else None
    for told in filter(None, (nothing, *reading.advice(), advice.not_read(dissector, watch.skipped, via=reading.via))):
        warn(told)
    found = Recorded(reader.finish(), truncated=bool(watch.errors))
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
        found.scripts, changes = select(found.scripts, clients=given["clients"], start=start, end=end, places=places)
        found.changes += changes.sentences
        if given["convert"] is not None:
            found.scripts, changes = _converted(found.scripts, given["convert"], lossy=bool(given.get("lossy")))
            found.changes += changes.sentences
        if rewrites:
            found.scripts, changes = rewrite(found.scripts, rewrites)
            found.changes += changes.sentences
        if given["copies"] > 1 or given["client_template"] or given["topic_template"]:
            found.scripts, changes = multiply(
                found.scripts,
                given["copies"],
                given["client_template"] or CLIENT_TEMPLATE,
                given["topic_template"] or TOPIC_TEMPLATE,
            )
            found.changes += changes.sentences
    except RewriteError as error:
        raise click.UsageError(str(error)) from None
    if not found.scripts:
        reasons = sorted({why for _, why in found.left_out}) + found.changes
        more = f": {'; '.join(reasons)}" if reasons else ""
        raise NothingToReplayError(f"no connection can be replayed{more}")
    if any(given.get(one) for one in _ALTERING) or given["copies"] > 1:
        begin, finish = span(captured, start, end)
        options = Options(
            clients=given["clients"],
            filtered=wanted is not None,
            start_ns=begin,
            end_ns=finish,
            topics=bool(given["topics"] or given["topic_template"]),
            names=bool(given["names"]),
            settings=[one.target.path for one in rewrites.settings],
            copies=given["copies"],
            credentials=bool(given.get("user") or given.get("password_file")),
        )
        found.alterations = Alterations(captured, found.scripts, options)
        found.hopeless = found.alterations.hopeless(found.scripts)
    return found


def _converted(scripts: list[Script], version: ProtocolVersion, *, lossy: bool) -> tuple[list[Script], Changes]:
    try:
        return convert(scripts, version, lossy=lossy)
    except ConversionError as error:
        if version != ProtocolVersion.V3_1_1 or lossy:
            raise
        raise RewriteError(f"{error}\n--lossy converts the rest, and says in the report what is lost") from None


def limit_findings(lint: Run, given: dict[str, Any], sink: Sink) -> None:
    """Let the findings of a live run end after ``--limit``, where they are for people."""
    if given["format_"] == "text":
        lint.reporters = [Limited(one, sink, given["limit"]) for one in lint.reporters]


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

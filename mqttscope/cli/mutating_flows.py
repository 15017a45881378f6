"""Flows to mutate, from the captures that a command names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import click

from mqttscope.cli import advice
from mqttscope.cli.inspect import compile_filter
from mqttscope.cli.options import make_options
from mqttscope.cli.output import Watch, warn
from mqttscope.cli.reading import Reading
from mqttscope.cli.recorded import NothingToReplay
from mqttscope.dissect import Dissector, dissect_segments
from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.mutate import Flow, NotApplicable
from mqttscope.mutate.catalogue import matches
from mqttscope.replay.script import Script, ScriptReader
from mqttscope.trial.fit import Numbered, Numbering, capture_hash, flow_of

TURNS = 1_000_000
"""With --duration the catalogue is gone through again and again."""


@dataclass(slots=True)
class Flows:
    """What the captures hold."""

    scripts: list[Script]
    """Connections from their CONNECT on."""
    capture_hash: str
    chosen: list[int] = field(default_factory=list)
    """Indexes of those that the filter wants."""
    truncated: bool = False
    """A capture could not be read to its end."""

    def flows(self, scripts: list[Script] | None = None) -> list[Flow]:
        """The connections, or fitted copies of them, in the form that is mutated."""
        return [
            flow_of(one, self.capture_hash, one.connection.number)
            for one in (self.scripts if scripts is None else scripts)
        ]


def read_flows(given: dict[str, Any]) -> Flows:
    """Read the captures; `NothingToReplay` where they hold no connection from its beginning."""
    wanted: Any = compile_filter(given["expression"])
    reading = Reading(given["captures"], given["keylog"], via=given["via"])
    dissector = Dissector(make_options(given["ports"], None, decrypting=reading.decrypting))
    watch = Watch(progress=True)
    reader = ScriptReader()
    matching: set[int] = set()
    for event in watch.events(dissect_segments(reading.segments(watch.skipped), dissector=dissector)):
        if wanted is not None and isinstance(event, PacketEvent | MalformedEvent) and wanted.matches(event):
            matching.add(event.connection.number)
        reader.feed(event)
    for told in filter(
        None, (*_advice(dissector, reading), advice.not_read(dissector, watch.skipped, via=reading.via))
    ):
        warn(told)
    scripts = [one for one in reader.finish() if one.begins and one.connect is not None and not one.lost_from_client]
    if not scripts:
        raise NothingToReplay("no connection can be mutated: none is captured from its CONNECT on")
    chosen = [place for place, one in enumerate(scripts) if wanted is None or one.connection.number in matching]
    if not chosen:
        raise NothingToReplay("no connection has a packet that matches the filter")
    return Flows(scripts, capture_hash(scripts), chosen, bool(watch.errors))


def _advice(dissector: Dissector, reading: Reading) -> Iterator[str]:
    nothing = advice.nothing_found(dissector) if not dissector.connections else None
    yield from (told for told in (nothing, *reading.advice()) if told is not None)


def numbered(
    given: dict[str, Any],
    numbering: Numbering,
    flows: Flows,
    played: list[int],
    plays: Callable[[Numbered], bool] = lambda one: True,
) -> Iterator[Numbered]:
    """The cases that are asked for, of the connections that are ``played``; what ``plays`` refuses is not counted."""
    if given["number"] is not None:
        yield from filter(plays, [_single(given, numbering, flows)])
        return
    turns = TURNS if given["seconds"] is not None or given["limit"] is not None else 1
    made = 0
    for turn in range(turns):
        before = made
        for one in numbering.cases(given["pattern"], played, begin=turn):
            if made == given["limit"]:
                return
            if plays(one):
                made += 1
                yield one
        if made == before:
            # Another turn has nothing either.
            return


def _single(given: dict[str, Any], numbering: Numbering, flows: Flows) -> Numbered:
    """The case of ``--case``; a usage error where there is none, or where other options leave it out."""
    number, pattern = given["number"], given["pattern"]
    try:
        found = numbering.of(number)
    except NotApplicable as error:
        raise click.UsageError(f"--case {number}: {error}") from None
    name = found.case.mutation.name
    if not matches(name, pattern):
        raise click.UsageError(f"--case {number} is {name}, which --mutation {pattern!r} leaves out")
    if found.index not in flows.chosen:
        raise click.UsageError(f"--case {number} is of a connection that --filter leaves out")
    return found

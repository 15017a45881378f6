"""Flows to mutate, from the captures that a command names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mqttscope.cli import advice
from mqttscope.cli.inspect import compile_filter
from mqttscope.cli.options import make_options
from mqttscope.cli.output import Watch, warn
from mqttscope.cli.reading import Reading
from mqttscope.cli.recorded import NothingToReplay
from mqttscope.dissect import Dissector, dissect_segments
from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.mutate import Flow
from mqttscope.replay.script import Script, ScriptReader
from mqttscope.trial.fit import flow_of
from mqttscope.trial.numbering import capture_hash


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
    reading = Reading(given["captures"], given["keylog"])
    dissector = Dissector(make_options(given["ports"], None, decrypting=reading.decrypting))
    watch = Watch(progress=True)
    reader = ScriptReader()
    matching: set[int] = set()
    for event in watch.events(dissect_segments(reading.segments(watch.skipped), dissector=dissector)):
        if wanted is not None and isinstance(event, PacketEvent | MalformedEvent) and wanted.matches(event):
            matching.add(event.connection.number)
        reader.feed(event)
    for told in _advice(dissector, reading):
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
    yield from (told for told in (nothing, reading.advice()) if told is not None)

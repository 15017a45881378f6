"""Flows to mutate, from the captures that a command names.

``mutate --write``: mutated flows as a capture that says of each connection which mutation it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import click

from mqttscope.broker_test.export import case_frames
from mqttscope.broker_test.fit import Numbered, Numbering, capture_hash, flow_of
from mqttscope.capture.write import PcapngWriter, open_alone
from mqttscope.cli import advice
from mqttscope.cli.live_options import MutateOptions
from mqttscope.cli.main import EXIT_CLEAN, EXIT_UNREADABLE
from mqttscope.cli.options import ProtocolOptions, compile_filter
from mqttscope.cli.output import CannotWriteError, Watch, warn
from mqttscope.cli.reading import Reading
from mqttscope.cli.recorded import NothingToReplayError
from mqttscope.dissect import Dissector, dissect_segments
from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.mqtt.view import utf8
from mqttscope.mqtt.wire import counted
from mqttscope.mutate import NotApplicableError, RecordedFlow
from mqttscope.mutate.catalogue import matches
from mqttscope.mutate.flow import CLIENT
from mqttscope.redact.addresses import public_name
from mqttscope.replay.script import Script, ScriptReader
from mqttscope.report.broker_test.listing import WrittenCase, comment, document, summary, written_line

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

    def flows(self, scripts: list[Script] | None = None) -> list[RecordedFlow]:
        """The connections, or fitted copies of them, in the form that is mutated."""
        return [
            flow_of(one, self.capture_hash, one.connection.number)
            for one in (self.scripts if scripts is None else scripts)
        ]


def read_flows(given: MutateOptions) -> Flows:
    """Read the captures; `NothingToReplayError` where they hold no connection from its beginning."""
    wanted = compile_filter(given.expression)
    reading = Reading(given.captures, given.files)
    dissector = Dissector(ProtocolOptions(ports=given.ports).dissection(decrypting=reading.decrypting))
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
        raise NothingToReplayError("no connection can be mutated: none is captured from its CONNECT on")
    chosen = [place for place, one in enumerate(scripts) if wanted is None or one.connection.number in matching]
    if not chosen:
        raise NothingToReplayError("no connection has a packet that matches the filter")
    return Flows(scripts, capture_hash(scripts), chosen, bool(watch.errors))


def _advice(dissector: Dissector, reading: Reading) -> Iterator[str]:
    nothing = advice.nothing_found(dissector) if not dissector.connections else None
    yield from (told for told in (nothing, *reading.advice()) if told is not None)


def numbered(
    given: MutateOptions,
    numbering: Numbering,
    flows: Flows,
    played: list[int],
    plays: Callable[[Numbered], bool] = lambda one: True,
) -> Iterator[Numbered]:
    """The cases that are asked for, of the connections that are ``played``; what ``plays`` refuses is not counted."""
    if given.number is not None:
        yield from filter(plays, [_single(given, numbering, flows)])
        return
    turns = TURNS if given.seconds is not None or given.limit is not None else 1
    made = 0
    for turn in range(turns):
        before = made
        for one in numbering.cases(given.pattern, played, begin=turn):
            if made == given.limit:
                return
            if plays(one):
                made += 1
                yield one
        if made == before:
            # Another turn has nothing either.
            return


def _single(given: MutateOptions, numbering: Numbering, flows: Flows) -> Numbered:
    """The case of ``--case``; a usage error where there is none, or where other options leave it out."""
    number, pattern = given.number, given.pattern
    assert number is not None
    try:
        found = numbering.of(number)
    except NotApplicableError as error:
        raise click.UsageError(f"--case {number}: {error}") from None
    name = found.case.mutation.name
    if not matches(name, pattern):
        raise click.UsageError(f"--case {number} is {name}, which --mutation {pattern!r} leaves out")
    if found.index not in flows.chosen:
        raise click.UsageError(f"--case {number} is of a connection that --filter leaves out")
    return found


START_NS = 1_767_323_045_000_000_000
"""2026-01-02T03:04:05Z: written flows do not depend on when they are written."""
BETWEEN_NS = 1_000_000_000


def write(given: MutateOptions, target: str, flows: Flows, sink: Any) -> int:
    """Write the file, and what is where in it to ``sink``, unless that is ``None``; returns the exit code."""
    side = given.side or CLIENT
    numbering = Numbering(flows.flows(), given.seed, side)
    cases = numbered(given, numbering, flows, flows.chosen)
    # What is wrong with --case is reported before the file is emptied.
    first = list(islice(cases, 1))
    rows: list[WrittenCase] = []
    try:
        about = f"mqttscope mutate: flows of capture {flows.capture_hash} with mutated {side}s, seed {given.seed}"
        with open(open_alone(target), "wb") as file, PcapngWriter(file, comment=about) as writer:
            rows += _flows(_in_time(given, chain(first, cases)), writer)
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise CannotWriteError(f"cannot write {target}: {why}") from None
    click.echo(f"{counted(len(rows), 'mutated flow')} written to {utf8(target)}", err=True)
    if sink is not None:
        whole = summary(target, ", ".join(map(public_name, given.captures)), flows.capture_hash, given.seed, len(rows))
        if given.form == "json":
            sink.write(document(whole, rows))
        else:
            sink.write(b"".join(map(written_line, [*(row.as_json() for row in rows), whole])))
        sink.flush()
    return EXIT_UNREADABLE if flows.truncated else EXIT_CLEAN


def _in_time(given: MutateOptions, cases: Iterator[Numbered]) -> Iterator[Numbered]:
    """Cases until the time of ``--duration`` is over."""
    deadline = time.monotonic() + (given.seconds or float("inf"))
    for one in cases:
        if time.monotonic() > deadline:
            return
        yield one


def _flows(cases: Iterator[Numbered], writer: PcapngWriter) -> Iterator[WrittenCase]:
    """Write the cases one after the other, each as a connection."""
    frame, start_ns = 0, START_NS

    def next_number() -> int:
        nonlocal frame
        frame += 1
        return frame

    for index, one in enumerate(cases):
        row = WrittenCase(index, frame + 1, one)
        told, last_ns = comment(row), start_ns
        for made in case_frames(one.case, index, start_ns, next_number):
            writer.write(made.frame, told)
            told, last_ns = "", made.frame.timestamp_ns
        start_ns = last_ns + BETWEEN_NS
        yield row

"""``mqttscope inspect``: show the MQTT packets of captures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from mqttscope.cli.main import EXIT_UNREADABLE
from mqttscope.cli.options import CAPTURES, colour_option, dissection, make_options, viewing

if TYPE_CHECKING:
    from mqttscope.events import Event
    from mqttscope.mqtt.constants import ProtocolVersion
    from mqttscope.report.base import Reporter, Sink, View

HUMAN_FORMATS = ("text", "tree", "ladder")
FORMATS = (*HUMAN_FORMATS, "jsonl", "csv")


@click.command(
    epilog="""\b
Examples:
  mqttscope inspect site.pcapng --filter 'type == publish and topic matches "plant/#" and qos > 0'
  mqttscope inspect site.pcapng --filter 'client_identifier == "pump-1"' --write pump-1.pcapng
  tcpdump -i eth0 -U -w - port 1883 | mqttscope inspect - --format ladder
"""
)
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...", type=CAPTURES)
@click.option(
    "--format", "format_", type=click.Choice(FORMATS), default="text", show_default=True, help="Output format."
)
@dissection
@click.option("--limit", type=click.IntRange(1), help="Stop after this many packets.")
@viewing
@click.option("--output", "-o", metavar="FILE", help="Write the report to this file. [default: standard output]")
@click.option("--write", "-w", metavar="FILE", help="Write the frames of what is shown to this pcapng file.")
@click.option("--spreadsheet", is_flag=True, help="With csv: put ' before text that a spreadsheet takes for a formula.")
@colour_option
def command(
    captures: tuple[str, ...],
    format_: str,
    expression: str | None,
    connection: tuple[int, ...],
    ports: tuple[tuple[int, str], ...],
    mqtt_version: ProtocolVersion | None,
    keylog: str | None,
    via: tuple[str, ...] | None,
    limit: int | None,
    payload: str,
    payload_limit: int,
    time_format: str,
    show_secrets: bool,
    output: str | None,
    write: str | None,
    spreadsheet: bool,
    colour: bool | None,
) -> int:
    """Show the MQTT packets of captures: files, globs, directories, or - for standard input.

    pcap and pcapng, also compressed with gzip, zstd or lz4; MQTT over TCP and WebSocket on any port.
    """
    from mqttscope.cli import advice
    from mqttscope.cli.output import (
        REPORT,
        FileSink,
        Output,
        Watch,
        awaited,
        is_terminal,
        make_view,
        refuse_inputs,
        refuse_name,
        same_file,
        warn,
    )
    from mqttscope.cli.reading import Reading
    from mqttscope.dissect import Dissector, dissect_segments

    wanted = compile_filter(expression)
    if spreadsheet and format_ != "csv":
        raise click.UsageError("--spreadsheet goes with --format csv")
    export = file = None
    if output is not None:
        refuse_inputs(output, captures)
        refuse_name(output, "--output", REPORT)
        if write is not None and same_file(output, write):
            raise click.UsageError("--output and --write name the same file")
    if write is not None:
        from mqttscope.cli.export import Export

        export = Export(captures, write)
    view = make_view(
        colour=colour,
        time_format=time_format,
        payload=payload,
        payload_limit=payload_limit,
        show_secrets=show_secrets,
    )
    view.spreadsheet = spreadsheet
    if output is not None:
        file = FileSink(output, captures)
        view.width, view.colour, view.unicode = 0, bool(colour), True
    sink = Output(immediate=awaited(captures)) if file is None else file
    reporter = make_reporter(format_, sink, view)
    watch = Watch(progress=not (file is None and is_terminal()), shown=file is None and format_ in HUMAN_FORMATS)
    stdin, fragments = (None, None) if export is None else (export.stdin, export.fragments)
    reading = Reading(captures, keylog, stdin, via, fragments)
    dissector = Dissector(make_options(ports, mqtt_version, decrypting=reading.decrypting))
    source = reading.segments(watch.skipped)
    if export is None:
        events = dissect_segments(source, dissector=dissector)
    else:
        events = export.events(source, dissector)
    shown = 0
    try:
        for event in select(watch.events(events), wanted, connection, limit):
            if export is not None:
                export.note(event)
            reporter.feed(event)
            shown += 1
        reporter.close()
        sink.flush()
    except KeyboardInterrupt:
        # What was found so far is worth more than nothing: a second Ctrl-C ends it.
        reporter.close()
        sink.flush()
        raise
    finally:
        if file is not None:
            file.close()
        if export is not None:
            export.write()
    told = [*advice.of_connections(dissector), advice.snap_length(dissector, watch.skipped), *reading.advice()]
    told.append(advice.not_read(dissector, watch.skipped, via=via))
    if export is not None:
        told.append(export.advice())
    if dissector.connections:
        if format_ in HUMAN_FORMATS:
            told.append(
                advice.selected_nothing(
                    dissector,
                    connection,
                    filtered=wanted is not None,
                    matched=shown > watch.errors,
                    whole=limit is None,
                )
            )
    elif not watch.errors:
        told.insert(0, advice.nothing_found(dissector))
    for one in filter(None, told):
        warn(one)
    return EXIT_UNREADABLE if watch.errors else 0


def compile_filter(expression: str | None, option: str = "--filter") -> object | None:
    """The filter of the command line; a usage error that points at the character when it is wrong."""
    if expression is None:
        return None
    from mqttscope import filter as filters

    try:
        return filters.compile(expression)
    except filters.FilterError as error:
        raise click.UsageError(f"{option}: {error.render()}") from None


def select(
    events: Iterable[Event], wanted: object | None, connections: tuple[int, ...], limit: int | None
) -> Iterator[Event]:
    """Events that the user asked for; capture errors always, and no more packets than the limit.

    What identifies a connection is known when its CONNECT has come: a line "opened" that the filter does not let
    through waits for that, and is asked for again.
    """
    from mqttscope.events import ConnectionClosed, ConnectionOpened, MalformedEvent, PacketEvent
    from mqttscope.net.frame import CaptureError

    if wanted is None and not connections and limit is None:
        yield from events
        return
    matches = getattr(wanted, "matches", None)
    left = limit
    waiting: dict[int, ConnectionOpened] = {}
    for event in events:
        if not isinstance(event, CaptureError):
            owner = getattr(event, "connection", None)
            if connections and (owner is None or owner.number not in connections):
                continue
            if matches is not None:
                opened = None if owner is None or not waiting else waiting.get(owner.number)
                if owner is not None and opened is not None:
                    if owner.client_identifier is not None and matches(opened):
                        del waiting[owner.number]
                        yield opened
                    elif owner.connack_packet is not None or isinstance(event, ConnectionClosed):
                        # Nothing that comes later says more of who it is.
                        del waiting[owner.number]
                if not matches(event):
                    if isinstance(event, ConnectionOpened):
                        waiting[event.connection.number] = event
                    continue
        yield event
        if left is not None and isinstance(event, PacketEvent | MalformedEvent):
            left -= 1
            if not left:
                return


def make_reporter(name: str, sink: Sink, view: View) -> Reporter:
    """The reporter of a format."""
    if name == "jsonl":
        from mqttscope.report.jsonl import JsonLines

        return JsonLines(sink, payload_limit=view.payload_limit, show_secrets=view.show_secrets)
    if name == "tree":
        from mqttscope.report.tree import Tree

        return Tree(sink, view)
    if name == "ladder":
        from mqttscope.report.ladder import Ladder

        return Ladder(sink, view)
    if name == "csv":
        from mqttscope.report.table import Table

        return Table(sink, view)
    from mqttscope.report.text import TextLines

    return TextLines(sink, view)

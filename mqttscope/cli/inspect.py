"""``mqttscope inspect``: show the MQTT packets of captures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from mqttscope.cli.main import EXIT_UNREADABLE
from mqttscope.cli.options import CAPTURES, colour_option, dissection, make_options, viewing

if TYPE_CHECKING:
    from mqttscope.cli.output import Output
    from mqttscope.events import Event
    from mqttscope.mqtt.constants import ProtocolVersion
    from mqttscope.report.base import Reporter, View

HUMAN_FORMATS = ("text", "tree", "ladder")
FORMATS = (*HUMAN_FORMATS, "jsonl", "csv")


@click.command(
    epilog="""\b
Examples:
  mqttscope inspect site.pcapng --filter 'type == publish and topic matches "plant/#" and qos > 0'
  tcpdump -i eth0 -U -w - port 1883 | mqttscope inspect - --format ladder
"""
)
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...", type=CAPTURES)
@click.option("--format", "format_", type=click.Choice(FORMATS), default="text", show_default=True, help="Form.")
@dissection
@click.option("--limit", type=click.IntRange(1), help="Stop after this many packets.")
@viewing
@click.option("--output", "-o", metavar="FILE", help="Write the frames of the packets shown to a pcapng file.")
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
    colour: bool | None,
) -> int:
    """Show the MQTT packets of captures: files, globs, directories, or - for standard input.

    pcap and pcapng, also compressed with gzip, zstd or lz4; MQTT over TCP and WebSocket on any port.
    """
    from mqttscope.cli import advice
    from mqttscope.cli.output import Output, Watch, awaited, make_view, warn
    from mqttscope.cli.reading import Reading
    from mqttscope.dissect import Dissector, dissect_segments

    wanted = compile_filter(expression)
    sink = Output(immediate=awaited(captures))
    view = make_view(
        colour=colour,
        time_format=time_format,
        payload=payload,
        payload_limit=payload_limit,
        show_secrets=show_secrets,
    )
    reporter = make_reporter(format_, sink, view)
    watch = Watch(progress=True, shown=format_ in HUMAN_FORMATS)
    export = None
    if output is not None:
        from mqttscope.cli.export import Export

        export = Export(captures, output)
    reading = Reading(captures, keylog, None if export is None else export.stdin, via)
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
        if export is not None:
            export.write()
    told = [*advice.named_otherwise(dissector), advice.snap_length(dissector, watch.skipped), reading.advice()]
    told.append(advice.not_read(dissector, watch.skipped, via=via))
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
    """Events that the user asked for; capture errors always, and no more packets than the limit."""
    from mqttscope.events import MalformedEvent, PacketEvent
    from mqttscope.net.frame import CaptureError

    if wanted is None and not connections and limit is None:
        yield from events
        return
    matches = getattr(wanted, "matches", None)
    left = limit
    for event in events:
        if not isinstance(event, CaptureError):
            if connections:
                owner = getattr(event, "connection", None)
                if owner is None or owner.number not in connections:
                    continue
            if matches is not None and not matches(event):
                continue
        yield event
        if left is not None and isinstance(event, PacketEvent | MalformedEvent):
            left -= 1
            if not left:
                return


def make_reporter(name: str, sink: Output, view: View) -> Reporter:
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

"""``mqttscope stats``: count and measure the traffic of captures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from mqttscope.cli import options as shared
from mqttscope.cli.command import OUTPUT, group, make_command, on_command_line, option, options
from mqttscope.events import CaptureRemark

if TYPE_CHECKING:
    from mqttscope.events import Event

TABLES = ("capture", "connection", "client", "topic")
SORTS = (
    "packets", "bytes", "rate", "latency", "trouble", "reconnects", "refused", "disconnects", "silence", "name",
)  # fmt: skip


def read_tables(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    """Split comma-separated table names; returns each table once, in fixed order."""
    asked = {name.strip() for name in value.split(",")}
    for name in sorted(asked.difference(TABLES)):
        raise click.BadParameter(f"{name!r} is not one of {', '.join(TABLES)}")
    return tuple(name for name in TABLES if name in asked)


@options
class StatsOptions:
    """The options of ``stats``."""

    captures: tuple[str, ...] = shared.captures_argument()
    protocol: shared.ProtocolOptions = group(shared.ProtocolOptions)
    files: shared.FileOptions = group(shared.FileOptions)
    selection: shared.SelectionOptions = group(shared.SelectionOptions)
    form: str = option(
        OUTPUT, "--format", type=click.Choice(("text", "json", "html")), default="text", show_default=True,
        help="Format of the report.",
    )  # fmt: skip
    tables: tuple[str, ...] = option(
        OUTPUT, "--by", callback=read_tables, listed=TABLES, default=",".join(TABLES), value=TABLES, show_default=True,
        metavar="TABLE,...", help="Tables to show.",
    )  # fmt: skip
    top: int | None = option(
        OUTPUT, "--top", type=click.IntRange(1), metavar="N",
        help="Show at most this many rows of each table. [default: 10 in text, 100 in html, all in json]",
    )  # fmt: skip
    sort: str | None = option(
        OUTPUT, "--sort", type=click.Choice(SORTS),
        help="Row order: highest first, names A to Z. [default: trouble for clients, packets for other tables]",
    )  # fmt: skip
    output: str | None = option(
        OUTPUT, "--output", "-o", metavar="FILE",
        help="Write the report to this file, FILE.html as a page. [default: standard output]",
    )  # fmt: skip
    colour: bool | None = shared.colour_option()

    def __post_init__(self) -> None:
        from mqttscope.cli.output import HTML, is_page, refuse_report

        if is_page(self.output) and "form" not in dict(on_command_line()):
            object.__setattr__(self, "form", HTML)
        refuse_report(self.form, self.output, self.captures)


@make_command(
    StatsOptions,
    epilog="""\b
Examples:
  mqttscope stats site.pcapng --by client,topic --top 20
  mqttscope stats site.pcapng --by client --sort disconnects
  mqttscope stats day/*.pcap.zst --filter 'topic matches "plant/#"' --sort latency
  mqttscope stats site.pcapng --output site.html
  mqttscope stats site.pcapng --format json | jq '.totals.latencies.publish_puback'
""",
)
def command(args: StatsOptions) -> int:
    """Count and measure the traffic of captures: packets, bytes, rates, QoS, latencies, aliases, losses.

    Tables by capture, connection, client and topic. CAPTURE is a file, a glob, a directory, or - for standard input.
    Exit code 3 when a capture could not be read to its end.
    """
    from mqttscope.cli.capture_run import CaptureRun
    from mqttscope.cli.configuration import warn_of_configuration
    from mqttscope.cli.output import HTML, make_view
    from mqttscope.dissect import FastPath
    from mqttscope.stats.collect import Statistics
    from mqttscope.stats.kernel_counts import attempt

    connection, tables, sort, top = args.selection.connection, args.tables, args.sort, args.top
    wanted = shared.compile_filter(args.selection.expression)
    if wanted is None or not wanted.asks_payloads:
        warn_of_configuration()
    view = make_view(colour=args.colour, payload="none", payload_limit=0)
    run = CaptureRun(args.captures, args.files, args.protocol)
    file = run.file(view, args.output, colour=args.colour)
    reading, watch, dissector = run.reading, run.watch, run.dissector
    matched = [False]
    statistics = Statistics(along=args.form == HTML)
    fast_path = None
    if wanted is None and not connection and reading.takes_fast_path:
        fast_path = FastPath(dissector, statistics.feed, order=reading.order, counting=True, passing=True, reusing=True)
        reading.kernel = attempt(args.captures, statistics, fast_path)
    events = run.events(run.segments(statistics.frames, fast_path))
    with run.until_interrupted():
        for event in counted(events, wanted, connection, matched):
            statistics.feed(event)
    if fast_path is not None:
        for name, counts in fast_path.counts.items():
            statistics.add_frames(name, counts)
    statistics.taps = reading.taps
    statistics.finish()
    sink = run.sink(file)
    shown: dict[str, Any] = {
        "tables": tables, "sort": sort, "other_flows": dissector.other_flows, "skipped": watch.skipped,
    }  # fmt: skip
    if args.form == HTML and file is not None and run.read_nothing:
        file.leave()
    elif args.form == HTML:
        from mqttscope.stats.as_html import render as page

        sink.write(page(statistics, top=top, **shown))
    elif args.form == "json":
        from mqttscope.report.jsonl import dumps, harmless
        from mqttscope.stats.as_json import document

        sink.write(harmless(dumps(document(statistics, top=top, **shown))) + b"\n")
    else:
        from mqttscope.stats.as_text import TOP, render

        sink.write(render(statistics, view, top=top or TOP, **shown))
    if file is None or not file.file.closed:
        sink.flush()
    if file is not None:
        file.close()
    filtered = wanted is not None and args.form != "json"
    return run.end(connections=connection, filtered=filtered, matched=matched[0])


def counted(
    events: Iterable[Event], wanted: Any | None, connections: tuple[int, ...], matched: list[bool] | None = None
) -> Iterator[Event]:
    """Select the events that the user asked for.

    Unlike `inspect`, this keeps the end of every selected connection: the statistics finish a connection at its end,
    and skip connections without any counted packet.  ``matched[0]`` becomes true when the filter matches an event.
    """
    if wanted is None and not connections:
        yield from events
        return
    from mqttscope.events import ConnectionClosed

    for event in events:
        if not isinstance(event, CaptureRemark):
            owner = getattr(event, "connection", None)
            if connections and (owner is None or owner.number not in connections):
                continue
            if wanted is not None:
                matches = wanted.matches(event)
                if matches and matched:
                    matched[0] = True
                if not matches and not isinstance(event, ConnectionClosed):
                    continue
        yield event

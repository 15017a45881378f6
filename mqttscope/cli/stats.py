"""``mqttscope stats``: count and measure the traffic of captures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from mqttscope.cli import options as shared
from mqttscope.cli.command import OUTPUT, group, make_command, on_command_line, option, options
from mqttscope.events import CaptureRemark

if TYPE_CHECKING:
    from mqttscope.cli.output import Watch
    from mqttscope.cli.reading import Reading
    from mqttscope.dissect import Dissector
    from mqttscope.events import Event
    from mqttscope.parallel.counting import Parts
    from mqttscope.parallel.crew import Outlet
    from mqttscope.parallel.walk import Share
    from mqttscope.stats.collect import Statistics

TABLES = ("capture", "connection", "client", "topic")
SORTS = (
    "packets", "bytes", "rate", "latency", "trouble", "reconnects", "refused", "disconnects", "silence", "name",
)  # fmt: skip


def read_tables(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    """Names with commas between them; the tables come in their own order, each once."""
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
        help="Order of rows: highest first, names upwards. [default: trouble for clients, packets for the rest]",
    )  # fmt: skip
    output: str | None = option(
        OUTPUT, "--output", "-o", metavar="FILE",
        help="Write the report to this file, FILE.html as a page. [default: standard output]",
    )  # fmt: skip
    colour: bool | None = shared.colour_option()
    jobs: int | None = shared.jobs_option()

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
def command(given: StatsOptions) -> int:
    """Count and measure the traffic of captures: packets, bytes, rates, QoS, latencies, aliases, losses.

    By capture, connection, client and topic. CAPTURE is a file, a glob, a directory, or - for standard input. Exit
    code 3 when one of them could not be read to its end.
    """
    from mqttscope.cli.capture_run import CaptureRun
    from mqttscope.cli.configuration import warn_of_configuration
    from mqttscope.cli.output import HTML, make_view
    from mqttscope.dissect import FastPath
    from mqttscope.stats.collect import Statistics

    connection, tables, sort, top = given.selection.connection, given.tables, given.sort, given.top
    wanted = shared.compile_filter(given.selection.expression)
    if wanted is None or not wanted.asks_payloads:
        warn_of_configuration()
    view = make_view(colour=given.colour, payload="none", payload_limit=0)
    run = CaptureRun(given.captures, given.files, given.protocol)
    file = run.file(view, given.output, colour=given.colour)
    reading, watch, dissector = run.reading, run.watch, run.dissector
    matched = [False]
    statistics, run.interrupt = together(given, reading, watch, dissector, wanted, matched)
    if statistics is None:
        statistics = Statistics(along=given.form == HTML)
        fast_path = None
        if wanted is None and not connection and reading.takes_fast_path:
            fast_path = FastPath(
                dissector, statistics.feed, order=reading.order, counting=True, passing=True, reusing=True
            )
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
    if given.form == HTML and file is not None and run.read_nothing:
        file.leave()
    elif given.form == HTML:
        from mqttscope.stats.as_html import render as page

        sink.write(page(statistics, top=top, **shown))
    elif given.form == "json":
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
    filtered = wanted is not None and given.form != "json"
    return run.end(connections=connection, filtered=filtered, matched=matched[0])


def together(
    given: StatsOptions, reading: Reading, watch: Watch, dissector: Dissector, wanted: Any, matched: list[bool]
) -> tuple[Statistics | None, KeyboardInterrupt | None]:
    """The same by several processes; ``None`` where one has to count.

    Only one process knows the numbers of connections that ``--connection`` and a filter may ask for.  ``dissector`` and
    ``matched`` get what was counted.
    """
    from mqttscope.cli.sharing import Sources, processes, share_out

    divisible = not given.selection.connection and (wanted is None or not wanted.is_of_the_run)
    sources = Sources(reading)
    count = processes(given.jobs, sources, divisible=divisible)
    if count == 1:
        return None, None
    from mqttscope.dissect import Dissector
    from mqttscope.parallel.counting import Together, count_share

    options = dissector.options

    def work(share: Share, outlet: Outlet) -> Parts:
        found = [False]
        choose = None if wanted is None else partial(counted, wanted=wanted, connections=(), matched=found)
        return count_share(share, outlet, sources.frames, Dissector(options), choose, found, timed=sources.several)

    statistics = Together(count, watch.note, along=given.form == "html")
    done = share_out(
        sources, count, work, statistics.take, watch, dissector, counts_of=lambda part: part.counts,
        max_limited=statistics.limits["releases"], may_end=True,
    )  # fmt: skip
    if done is None:
        return None, None
    parts, asked = done
    statistics.add(parts)
    matched[0] = any(part.matched for part in parts)
    return statistics, asked[0] if asked else None


def counted(
    events: Iterable[Event], wanted: Any | None, connections: tuple[int, ...], matched: list[bool] | None = None
) -> Iterator[Event]:
    """Events that the user asked for.

    Unlike those of `inspect` they hold the end of every connection that was asked for: the statistics need it to
    close the books of a connection, and pass over those of which nothing was counted.  ``matched`` is made to hold
    whether the filter let anything through.
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

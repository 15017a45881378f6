"""``mqttscope inspect``: show the MQTT packets of captures."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from mqttscope.cli import options as shared
from mqttscope.cli.command import OUTPUT, SELECTION, group, make_command, on_command_line, option, options

if TYPE_CHECKING:
    from mqttscope.cli.output import Watch
    from mqttscope.cli.reading import Reading
    from mqttscope.dissect import Dissector
    from mqttscope.events import Event
    from mqttscope.parallel.counts import Counts
    from mqttscope.parallel.crew import Outlet
    from mqttscope.parallel.walk import Share
    from mqttscope.report.base import Reporter, View
    from mqttscope.report.html.packets import Packets

REPRODUCERS = (".sh", ".json", ".py")
"""How files end that hold one connection as something that can be run."""


@options
class InspectOptions:
    """The options of ``inspect``."""

    captures: tuple[str, ...] = shared.captures_argument()
    protocol: shared.ProtocolOptions = group(shared.ProtocolOptions)
    files: shared.FileOptions = group(shared.FileOptions)
    selection: shared.SelectionOptions = group(shared.SelectionOptions)
    limit: int | None = option(
        SELECTION, "--limit", type=click.IntRange(1), metavar="N",
        help="Stop after this many packets. With --format html, 50,000 are listed unless it says more.",
    )  # fmt: skip
    form: str = option(
        OUTPUT, "--format", type=click.Choice((*shared.PACKET_FORMATS, "html")), default="text", show_default=True,
        help="Format of the report.",
    )  # fmt: skip
    view: shared.ViewOptions = group(shared.ViewOptions)
    output: str | None = option(
        OUTPUT, "--output", "-o", metavar="FILE",
        help="Write the report to this file, FILE.html as a page; or one connection as FILE.sh, as FILE.json for "
        "replay, as FILE.py for pytest. [default: standard output]",
    )  # fmt: skip
    write: str | None = option(
        OUTPUT, "--write", "-w", metavar="FILE", help="Write the frames of the packets shown to this pcapng file."
    )
    spreadsheet: bool = option(
        OUTPUT, "--spreadsheet", is_flag=True,
        help="With --format csv: put ' before text that a spreadsheet would take for a formula.",
    )  # fmt: skip
    colour: bool | None = shared.colour_option()
    configuration: shared.ConfigurationOptions = group(shared.ConfigurationOptions)
    jobs: int | None = shared.jobs_option()

    def __post_init__(self) -> None:
        from mqttscope.cli.output import HTML, is_page, refuse_report, same_file

        if is_page(self.output) and "form" not in dict(on_command_line()):
            object.__setattr__(self, "form", HTML)
        if self.form == HTML:
            self._check_page()
        refuse_report(self.form, self.output, self.captures)
        if self.spreadsheet and self.form != "csv":
            raise click.UsageError("--spreadsheet goes with --format csv")
        if self.output is not None and self.write is not None and same_file(self.output, self.write):
            raise click.UsageError("--output and --write name the same file")

    def _check_page(self) -> None:
        """A usage error for views that a page does not have."""
        given, payload = dict(on_command_line()), self.view.payload
        if "time_format" in given:
            raise click.UsageError("--time is for text, tree and ladder: a page shows times in UTC")
        if "payload" in given and payload not in ("auto", "protobuf", "sparkplug-b"):
            raise click.UsageError(
                f"--payload {payload} is for text, tree and ladder: a page shows payloads by their content, or decoded"
                " (protobuf, sparkplug-b)"
            )

    def reproducer(self) -> str | None:
        """The suffix of the reproducer that the output is; a format makes a report of it."""
        suffix = os.path.splitext(self.output or "")[1].lower()
        return suffix if suffix in REPRODUCERS and "form" not in dict(on_command_line()) else None


@make_command(
    InspectOptions,
    epilog="""\b
Examples:
  mqttscope inspect site.pcapng --filter 'type == publish and topic matches "plant/#" and qos > 0'
  mqttscope inspect site.pcapng --filter 'client_identifier == "pump-1"' --write pump-1.pcapng
  mqttscope inspect site.pcapng --connection 7 --output reproduce.sh
  mqttscope inspect site.pcapng --filter 'client_identifier == "pump-1"' --output pump-1.html
  tcpdump -i eth0 -U -w - port 1883 | mqttscope inspect - --format ladder
""",
)
def command(given: InspectOptions) -> int:
    """Show the MQTT packets of captures.

    CAPTURE is a file, a glob, a directory, or - for standard input. Files are pcap or pcapng, also compressed with
    gzip, zstd or lz4. MQTT over TCP and WebSocket is found on any port.
    """
    from mqttscope.api.reading import select
    from mqttscope.cli.capture_run import CaptureRun
    from mqttscope.cli.output import HTML, is_terminal
    from mqttscope.cli.sharing import ShareFailedError
    from mqttscope.dissect import FastPath
    from mqttscope.filter import ACKNOWLEDGED
    from mqttscope.report.formats import make_reporter

    suffix = given.reproducer()
    if suffix is not None and given.output is not None:
        from mqttscope.cli.inspecting import reproduce

        return reproduce(
            given.captures, given.output, suffix, given.files, given.protocol, given.selection,
            show_secrets=given.view.show_secrets,
        )  # fmt: skip
    captures, output, human = given.captures, given.output, given.form in (*shared.HUMAN_FORMATS, HTML)
    wanted = shared.compile_filter(given.selection.expression, acknowledged=True)
    asks_acknowledged = wanted is not None and ACKNOWLEDGED in wanted.asked
    export = None
    if given.write is not None:
        from mqttscope.cli.export import Export

        export = Export(captures, given.write, deduplicate=given.files.deduplicate)
    view = given.view.view(colour=given.colour)
    view.spreadsheet, view.acknowledged = given.spreadsheet, asks_acknowledged
    decoders = view.payloads = view.decoders()
    stdin, fragments = (None, None) if export is None else (export.stdin, export.fragments)
    run = CaptureRun(
        captures, given.files, given.protocol, progress=output is not None or not is_terminal(),
        shown=output is None and human, stdin=stdin, fragments=fragments,
    )  # fmt: skip
    file = run.file(view, output, colour=given.colour)
    sink = run.sink(file)
    reading, watch, dissector = run.reading, run.watch, run.dissector
    divided = DividedWork(given, reading, watch, view, wanted)
    reporter: Reporter | None = None
    page: Packets | None = None
    try:
        shown = divided.run(sink, dissector)
        if shown is None:
            sink = divided.rest(sink)
            reporter = make_reporter(given.form, sink, view)
            if given.form == HTML:
                from mqttscope.report.html.packets import Packets
                from mqttscope.stats.as_html import Measured

                assert isinstance(reporter, Packets)
                page = reporter
                page.limit, reporter = given.limit, Measured(page)
            fast_path = None
            if export is None and wanted is None and not given.selection.connection and given.limit is None:
                passing = given.form == "jsonl"
                # Decoders know a packet by its identity.
                fast_path = FastPath(
                    dissector, reporter.feed, order=reading.order, passing=passing, reusing=passing and decoders is None
                )
            source = run.segments(fast_path=fast_path)
            events = run.events(source) if export is None else watch.events(export.events(source, dissector))
            if asks_acknowledged or given.form in ("tree", "ladder"):
                events = run.with_acknowledgments(events, asked=asks_acknowledged)
            if wanted is not None and decoders is not None and decoders.remembers:
                events = decoders.observed(events)
            shown = 0
            # A page begins with its first event, and is none before something could be read.
            early: list[Event] = []
            for event in select(events, wanted, given.selection.connection, given.limit):
                if export is not None:
                    export.note(event)
                shown += 1
                if page is not None and shown == watch.errors:
                    early.append(event)
                    continue
                for one in early:
                    reporter.feed(one)
                early.clear()
                reporter.feed(event)
            if page is not None and file is not None and run.read_nothing:
                file.leave()
            else:
                for one in early:
                    reporter.feed(one)
                reporter.close()
        if file is None or not file.file.closed:
            sink.flush()
    except (KeyboardInterrupt, ShareFailedError):
        # What was found so far is worth more than nothing: a second Ctrl-C ends it.
        if reporter is not None:
            reporter.close()
        sink.flush()
        raise
    finally:
        if file is not None:
            file.close()
        if export is not None:
            export.write()
    return run.end(
        (None if page is None else page.cut(), None if export is None else export.advice()),
        connections=given.selection.connection, filtered=human and wanted is not None, matched=shown > watch.errors,
        whole=given.limit is None,
    )  # fmt: skip


class DividedWork:
    """The same by several processes, where what is asked for can be shared out.

    One process shows what only it can number or measure: a limit, connections by number, filters by numbers of the run,
    frames that are written, reports whose lines depend on all lines before them.
    """

    def __init__(self, given: InspectOptions, reading: Reading, watch: Watch, view: View, wanted: Any) -> None:
        self.given, self.reading, self.watch, self.view, self.wanted = given, reading, watch, view, wanted
        self.written = 0
        """Bytes that were written before one process had to take over."""

    def divisible(self) -> bool:
        """Whether what is asked for can be shared out, as far as the options tell."""
        given, view, wanted = self.given, self.view, self.wanted
        decoders = view.decoders()
        if decoders is not None and (decoders.remembers or given.form == "jsonl"):
            return False
        if given.write is not None or given.limit is not None or given.selection.connection:
            return False
        if wanted is not None and wanted.is_of_the_run:
            return False
        # A terminal's lines are cut to its columns by what came before; these times count from other events.
        lines = view.width <= 0 and view.time in ("iso", "local", "epoch")
        return given.form == "jsonl" or (given.form == "text" and lines)

    def run(self, sink: Any, dissector: Dissector) -> int | None:
        """Write everything; returns how many events were shown, ``None`` where one process has to do it.

        ``dissector``: gets what was counted.
        """
        from mqttscope.api.reading import select
        from mqttscope.cli.sharing import Sources, processes, share_out

        given, watch = self.given, self.watch
        sources = Sources(self.reading)
        count = processes(given.jobs, sources, divisible=self.divisible())
        if count == 1:
            return None
        from functools import partial

        from mqttscope.dissect import Dissector
        from mqttscope.parallel.lines import MAX_LIMITED, WRITERS, make_lines

        options, wanted = dissector.options, self.wanted
        chosen = None if wanted is None else partial(select, wanted=wanted, connections=(), limit=None)
        writer = WRITERS[given.form](sink, count, watch.note)

        def work(share: Share, outlet: Outlet) -> Counts:
            return make_lines(
                share, outlet, sources.frames, Dissector(options), given.form, self.view, chosen, timed=sources.several
            )

        done = share_out(
            sources, count, work, writer.write, watch, dissector, counts_of=lambda counts: counts,
            max_limited=MAX_LIMITED if given.form == "text" else None,
        )  # fmt: skip
        if done is None:
            self.written = writer.bytes
            return None
        counts: list[Counts] = done[0]
        return sum(one.shown for one in counts)

    def rest(self, sink: Any) -> Any:
        """The sink of one process, which leaves out what was written before."""
        from mqttscope.cli.sharing import Rest

        return Rest(sink, self.written) if self.written else sink

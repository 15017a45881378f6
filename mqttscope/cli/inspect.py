"""``mqttscope inspect``: show the MQTT packets of captures."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from mqttscope.cli import options as shared
from mqttscope.cli.command import OUTPUT, SELECTION, group, make_command, on_command_line, option, options

if TYPE_CHECKING:
    from mqttscope.cli.capture_run import CaptureRun
    from mqttscope.events import Event
    from mqttscope.report.base import Reporter, View
    from mqttscope.report.html.packets import PacketPage
    from mqttscope.report.kernel_lines import KernelLines

REPRODUCERS = (".sh", ".json", ".py")
"""Suffixes of files that reproduce one connection."""


@options
class InspectOptions:
    """The options of ``inspect``."""

    captures: tuple[str, ...] = shared.captures_argument()
    protocol: shared.ProtocolOptions = group(shared.ProtocolOptions)
    files: shared.FileOptions = group(shared.FileOptions)
    selection: shared.SelectionOptions = group(shared.SelectionOptions)
    limit: int | None = option(
        SELECTION, "--limit", type=click.IntRange(1), metavar="N",
        help="Stop after this many packets. Without it an HTML page lists some of many.",
    )  # fmt: skip
    form: str = option(
        OUTPUT, "--format", type=click.Choice((*shared.PACKET_FORMATS, "html")), default="text", show_default=True,
        help="Format of the report.",
    )  # fmt: skip
    view: shared.ViewOptions = group(shared.ViewOptions)
    output: str | None = option(
        OUTPUT, "--output", "-o", metavar="FILE",
        help="Write the report to this file; FILE.html is a page; FILE.sh, FILE.json (replay) and FILE.py (pytest) "
        "reproduce one connection. [default: standard output]",
    )  # fmt: skip
    write: str | None = option(
        OUTPUT, "--write", "-w", metavar="FILE", help="Write the frames of the packets shown to this pcapng file."
    )
    spreadsheet: bool = option(
        OUTPUT, "--spreadsheet", is_flag=True,
        help="With --format csv: put ' before text that a spreadsheet would read as a formula.",
    )  # fmt: skip
    colour: bool | None = shared.colour_option()
    configuration: shared.ConfigurationOptions = group(shared.ConfigurationOptions)

    def __post_init__(self) -> None:
        from mqttscope.cli.output import HTML, is_page, refuse_report, same_file

        if is_page(self.output) and "form" not in dict(on_command_line()):
            object.__setattr__(self, "form", HTML)
        if self.form == HTML:
            self._check_page()
        refuse_report(self.form, self.output, self.captures)
        if self.spreadsheet and self.form != "csv":
            raise click.UsageError("--spreadsheet needs --format csv")
        if self.output is not None and self.write is not None and same_file(self.output, self.write):
            raise click.UsageError("--output and --write name the same file")

    def _check_page(self) -> None:
        """Raise a usage error for views that a page does not support."""
        typed, payload = dict(on_command_line()), self.view.payload
        if "time_format" in typed:
            raise click.UsageError("--time is for text, tree and ladder: a page shows times in UTC")
        if "payload" in typed and payload not in ("auto", "protobuf", "sparkplug-b"):
            raise click.UsageError(
                f"--payload {payload} is for text, tree and ladder: a page shows payloads by their content, or decoded"
                " by protobuf or sparkplug-b"
            )

    def reproducer(self) -> str | None:
        """Suffix of the output if it is a reproducer; with --format it is a report."""
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
def command(args: InspectOptions) -> int:
    """Show the MQTT packets of captures.

    CAPTURE is a file, a glob, a directory, or - for standard input. Files are pcap or pcapng, also compressed with
    gzip, zstd or lz4. MQTT over TCP and WebSocket is found on any port.
    """
    from mqttscope.api.reading import select
    from mqttscope.cli.capture_run import CaptureRun
    from mqttscope.cli.output import HTML, is_terminal
    from mqttscope.dissect import FastPath
    from mqttscope.filter import ACKNOWLEDGED
    from mqttscope.report.formats import make_reporter

    suffix = args.reproducer()
    if suffix is not None and args.output is not None:
        from mqttscope.cli.inspecting import reproduce

        return reproduce(
            args.captures, args.output, suffix, args.files, args.protocol, args.selection,
            show_secrets=args.view.show_secrets,
        )  # fmt: skip
    captures, output, human = args.captures, args.output, args.form in (*shared.HUMAN_FORMATS, HTML)
    wanted = shared.compile_filter(args.selection.expression, acknowledged=True)
    asks_acknowledged = wanted is not None and ACKNOWLEDGED in wanted.asked
    export = None
    if args.write is not None:
        from mqttscope.cli.export import Export

        export = Export(captures, args.write, deduplicate=args.files.deduplicate)
    view = args.view.view(colour=args.colour)
    view.spreadsheet, view.acknowledged = args.spreadsheet, asks_acknowledged
    decoders = view.payloads = view.decoders(detailed=args.form == "tree")
    stdin, fragments = (None, None) if export is None else (export.stdin, export.fragments)
    run = CaptureRun(
        captures, args.files, args.protocol, progress=output is not None or not is_terminal(),
        shown=output is None and human, stdin=stdin, fragments=fragments,
    )  # fmt: skip
    file = run.file(view, output, colour=args.colour)
    sink = run.sink(file)
    reading, watch, dissector = run.reading, run.watch, run.dissector
    shown = 0
    reporter: Reporter | None = None
    page: PacketPage | None = None
    try:
        reading.kernel = _kernel(args, run, sink, view) if export is None and wanted is None else None
        reporter = make_reporter(args.form, sink, view) if reading.kernel is None else reading.kernel.reporter
        if args.form == HTML:
            from mqttscope.report.html.packets import PacketPage
            from mqttscope.stats.as_html import MeasuredPage

            assert isinstance(reporter, PacketPage)
            page = reporter
            page.limit, reporter = args.limit, MeasuredPage(page)
        fast_path = None
        shows_acknowledgments = asks_acknowledged or args.form in ("tree", "ladder")
        # The fast path feeds the reporter by itself, without acknowledgments.
        is_whole = export is None and wanted is None and not args.selection.connection and args.limit is None
        if is_whole and not shows_acknowledgments:
            passing = args.form == "jsonl"
            # Decoders identify a packet by its object.
            fast_path = FastPath(
                dissector, reporter.feed, order=reading.order, passing=passing, reusing=passing and decoders is None
            )
        source = run.segments(fast_path=fast_path)
        events = run.events(source) if export is None else watch.events(export.events(source, dissector))
        if shows_acknowledgments:
            events = run.with_acknowledgments(events, asked=asks_acknowledged)
        if wanted is not None and decoders is not None and decoders.remembers:
            events = decoders.observed(events)
        # A page starts with the first packet: errors before it are held back, so that a failed run leaves no page.
        early: list[Event] = []
        for event in select(events, wanted, args.selection.connection, args.limit):
            if export is not None:
                export.note(event)
            shown += 1
            if page is not None and shown == watch.errors:
                early.append(event)
                continue
            for error in early:
                reporter.feed(error)
            early.clear()
            reporter.feed(event)
        if page is not None and file is not None and run.read_nothing:
            file.leave()
        else:
            for error in early:
                reporter.feed(error)
            reporter.close()
        if file is None or not file.file.closed:
            sink.flush()
    except KeyboardInterrupt:
        # Write the partial results; a second Ctrl-C ends the program.
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
        connections=args.selection.connection, filtered=human and wanted is not None, matched=shown > watch.errors,
        whole=args.limit is None,
    )  # fmt: skip


def _kernel(args: InspectOptions, run: CaptureRun, sink: Any, view: View) -> KernelLines | None:
    """The native kernel, if it can read these captures for this report."""
    if args.form != "jsonl" or args.limit is not None or args.selection.connection:
        return None
    if not run.reading.takes_fast_path:
        return None
    from mqttscope.kernel import native

    if native() is None:
        return None
    from mqttscope.report.formats import make_reporter
    from mqttscope.report.kernel_lines import attempt

    return attempt(args.captures, run.dissector, make_reporter(args.form, sink, view))

"""``mqttscope sniff``: capture from network interfaces and show the MQTT packets."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from mqttscope.cli import options as shared
from mqttscope.cli.command import (
    END,
    LIVE,
    OUTPUT,
    READING,
    argument,
    group,
    make_command,
    on_command_line,
    option,
    options,
)
from mqttscope.cli.completing import interface_names
from mqttscope.cli.main import EXIT_CLEAN, EXIT_UNREADABLE
from mqttscope.cli.metrics import MetricsOptions

if TYPE_CHECKING:
    from mqttscope.cli.linting_settings import LintSettings

MEGABYTE = 1_000_000
IDLE = {*shared.OF_LINT} - {"config", "no_config"}
"""Options that need ``--lint``."""
NO_SCREEN = {"form", "keylog", "count", "until", "stop_on_finding", "outputs"}
"""Options that the screens of ``--dashboard`` do not have."""


@options
class SniffOptions:
    """The options of ``sniff``."""

    interfaces: tuple[str, ...] = argument("[INTERFACE...]", nargs=-1, shell_complete=interface_names)
    more: tuple[str, ...] = option(
        LIVE, "--interface", "-i", multiple=True, metavar="NAME", help="Interface to capture from; may be repeated."
    )
    list_interfaces: bool = option(LIVE, "--list-interfaces", is_flag=True, help="List the interfaces, then exit.")
    bpf: str = option(
        LIVE, "--bpf", metavar="FILTER", default="",
        help="Capture only frames that match (pcap-filter syntax), in addition to --port.",
    )  # fmt: skip
    target: str | None = option(
        LIVE, "--write", "-w", metavar="FILE", help="Write all captured frames to this pcapng file."
    )
    ring_size: float | None = shared.positive_option(
        LIVE, "--ring-size", "With --write: start a new file after this many MB.", metavar="MB"
    )
    ring_files: int | None = option(
        LIVE, "--ring-files", type=click.IntRange(1), metavar="N",
        help="With --ring-size: keep only the newest N files.",
    )  # fmt: skip
    protocol: shared.ProtocolOptions = group(shared.ProtocolOptions)
    keylog: str | None = option(
        READING, "--keylog", metavar="FILE",
        help="Key log for decrypting TLS; it may still grow. [default: $SSLKEYLOGFILE]",
    )  # fmt: skip
    expression: str | None = shared.filter_option()
    form: str = option(
        OUTPUT, "--format", type=click.Choice(shared.PACKET_FORMATS), default="text", show_default=True,
        help="Format of packets; with --serve, packets are shown only if this is given.",
    )  # fmt: skip
    dashboard: bool = option(
        OUTPUT, "--dashboard", is_flag=True,
        help="Open the interactive screens of browse with the overview; q ends the capture.",
    )  # fmt: skip
    metrics: MetricsOptions = group(MetricsOptions)
    view: shared.ViewOptions = group(shared.ViewOptions)
    lint: bool = option(OUTPUT, "--lint", is_flag=True, help="Also lint the packets, and show findings among them.")
    judging: shared.JudgingOptions = group(shared.JudgingOptions, shown={})
    outputs: tuple[str, ...] = shared.outputs_option("Write findings to this file; implies --lint.")
    colour: bool | None = shared.colour_option()
    duration: float | None = shared.positive_option(END, "--duration", "Stop after this time.")
    count: int | None = option(
        END, "--count", type=click.IntRange(1), metavar="N", help="Stop after this many packets."
    )
    until: str | None = option(
        END, "--until", metavar="EXPR", help="Stop at the first event that matches (docs/filters.md)."
    )
    stop_on_finding: bool = option(
        END, "--stop-on-finding", is_flag=True, help="Stop at the first finding that fails the run; implies --lint."
    )

    def __post_init__(self) -> None:
        if not self.list_interfaces:
            self._check_forms()
            self._check_files()
            self._check_linting()
            self._check_dashboard()

    @property
    def linting(self) -> bool:
        return self.lint or self.stop_on_finding or bool(self.outputs)

    @property
    def screen(self) -> str:
        """The format of packets, or ``none``."""
        is_asked = self.metrics.serve is None or "form" in dict(on_command_line())
        return self.form if is_asked else "none"

    @property
    def ring_bytes(self) -> int | None:
        return None if self.ring_size is None else max(1, int(self.ring_size * MEGABYTE))

    def settings(self) -> LintSettings:
        """Settings for linting; usage errors for impossible outputs of findings."""
        from mqttscope.cli.linting_settings import resolve
        from mqttscope.cli.output import same_file

        settings = resolve(self.judging, outputs=self.outputs, protocol=self.protocol)
        settings.format = "concise" if settings.output is None and self.form != "jsonl" else "jsonl"
        written = [path for _, path in settings.more] + ([settings.output] if settings.output else [])
        if self.target is not None and any(same_file(self.target, path) for path in written):
            raise click.UsageError(f"--output: {self.target} is the file of --write")
        if self.linting and settings.output is None and self.form == "csv":
            raise click.UsageError("--format csv cannot contain findings; write them to a file with --output FILE")
        return settings

    def _check_forms(self) -> None:
        if self.target is None and (self.ring_size is not None or self.ring_files is not None):
            raise click.UsageError("--ring-size and --ring-files need --write FILE")
        if self.ring_files is not None and self.ring_size is None:
            raise click.UsageError("--ring-files needs --ring-size MB")

    def _check_files(self) -> None:
        from mqttscope.cli.output import CAPTURE, refuse_name, same_file

        if self.target in ("", "-"):
            raise click.UsageError("--write needs a file name; /dev/stdout is standard output")
        keylog = self.keylog or os.environ.get("SSLKEYLOGFILE")
        outputs = (("--output", output.partition("=")[2] or output) for output in self.outputs)
        for name, path in (("--write", self.target), *outputs):
            if None not in (path, keylog) and same_file(str(path), str(keylog)):
                raise click.UsageError(f"{name}: {path} is the key log")
        if self.target is not None:
            refuse_name(self.target, "--write", CAPTURE)

    def _check_linting(self) -> None:
        """Refuse options of the linter when nothing is linted."""
        idle = next((spelled for name, spelled in on_command_line() if name in IDLE), None)
        if idle is not None and not self.linting and not self.dashboard:
            raise click.UsageError(f"{idle} needs --lint")

    def _check_dashboard(self) -> None:
        """Refuse options that the screens of ``--dashboard`` do not have."""
        other = next((spelled for name, spelled in on_command_line() if name in NO_SCREEN), None)
        if self.dashboard and other is not None:
            raise click.UsageError(f"--dashboard and {other} exclude each other")


@make_command(
    SniffOptions,
    epilog="""\b
Examples:
  mqttscope sniff -i eth0 --port 1883 --bpf 'host 10.0.0.4' --filter 'topic matches "a/#"'
  mqttscope sniff -i lo --write ring.pcapng --ring-size 100 --ring-files 20 --dashboard
  mqttscope sniff -i eth0 --lint --stop-on-finding --duration 600
  mqttscope sniff -i eth0 --port 1883 --serve 9464 --write site.pcapng

These options of mqttscope lint work here too: --select, --extend-select, --ignore, --fail-on, --fail-confidence,
--min-confidence, --min-severity, --baseline, --profile, --complete, --exit-zero, --config, --no-config.

Ctrl-C ends the capture. Exit code 1 when a finding fails the run, 3 when the capture could not start or failed.
""",
)
def command(args: SniffOptions) -> int:
    """Capture from network interfaces and show the MQTT packets.

    INTERFACE is a name such as eth0. The default is the first non-loopback interface of --list-interfaces. dumpcap
    (Debian package tshark) captures the frames.
    """
    from mqttscope.cli.sniffing import SniffRun, StopConditions, choose, listed, live_capture, live_keys, record
    from mqttscope.dissect import Dissector

    if args.list_interfaces:
        click.echo(listed(), nl=False)
        return EXIT_CLEAN
    if args.dashboard:
        return _dashboard(args)
    stops = StopConditions(
        args.duration, args.count, shared.compile_filter(args.until, "--until"), on_finding=args.stop_on_finding
    )
    wanted = shared.compile_filter(args.expression)
    view = args.view.view(colour=args.colour)
    view.payloads = view.decoders(detailed=args.screen == "tree")
    options = args.protocol.dissection()
    findings = monitor = None
    if args.linting or args.metrics.serve is not None:
        from mqttscope.cli.linting import LiveFindings

        settings = args.settings()
        options = settings.options
        findings = LiveFindings(settings, view, quiet=not args.linting)
    decryption = live_keys(args.keylog, verify_checksums=options.verify_checksums)
    options.decrypting = decryption is not None
    interfaces = choose((*args.interfaces, *args.more))
    capture = live_capture(interfaces, args.bpf, [port for port, _ in args.protocol.ports])
    if args.metrics.serve is not None and findings is not None:
        from mqttscope.metrics.monitor import LiveMonitor

        linted = {rule.code for rule in findings.settings.rules}
        monitor = LiveMonitor(capture.name, linted=linted, hiding=view.hiding())
    sniffing = SniffRun(
        capture, Dissector(options), view, form=args.screen,
        human=args.form in shared.HUMAN_FORMATS, wanted=wanted, stops=stops,
        recorder=record(args.target, args.ring_bytes, args.ring_files), findings=findings, decryption=decryption,
        monitor=monitor,
    )  # fmt: skip
    with args.metrics.serving(monitor):
        return sniffing.execute()


def _dashboard(args: SniffOptions) -> int:
    """Show the overview of ``browse``, with what this command captures."""
    from mqttscope.cli.output import require_screens

    shared.compile_filter(args.expression)
    require_screens("--dashboard")
    from mqttscope.cli.browsing import FrameFiles, ViewingOptions, run_live

    view = args.view.view(colour=args.colour)
    view.payloads, view.time = view.decoders(), "relative"
    looking = ViewingOptions(
        args.protocol, view, args.settings(), args.expression or "", overview=True, seconds=args.duration
    )
    recording = FrameFiles(args.target, args.ring_bytes, args.ring_files)
    failed = run_live((*args.interfaces, *args.more), args.bpf, recording, looking, args.metrics)
    return EXIT_UNREADABLE if failed else EXIT_CLEAN

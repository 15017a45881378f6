"""``mqttscope sniff``: show the MQTT packets of an interface as they come."""

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
from mqttscope.cli.main import EXIT_CLEAN

if TYPE_CHECKING:
    from mqttscope.cli.linting_settings import Settings

MEGABYTE = 1_000_000
IDLE = {*shared.OF_LINT} - {"config", "no_config"}
"""Options of linting."""


@options
class SniffOptions:
    """The options of ``sniff``."""

    interfaces: tuple[str, ...] = argument("[INTERFACE...]", nargs=-1, shell_complete=interface_names)
    more: tuple[str, ...] = option(
        LIVE, "--interface", "-i", multiple=True, metavar="NAME", help="Interface to capture from; may be repeated."
    )
    list_interfaces: bool = option(LIVE, "--list-interfaces", is_flag=True, help="List the interfaces and stop.")
    bpf: str = option(
        LIVE, "--bpf", metavar="FILTER", default="",
        help="Capture only this (pcap-filter syntax), in addition to --port.",
    )  # fmt: skip
    target: str | None = option(
        LIVE, "--write", "-w", metavar="FILE", help="Write all captured frames to this pcapng file."
    )
    ring_size: float | None = shared.positive_option(
        LIVE, "--ring-size", "With --write: begin a new file after this many MB.", metavar="MB"
    )
    ring_files: int | None = option(
        LIVE, "--ring-files", type=click.IntRange(1), metavar="N",
        help="With --ring-size: keep only the newest N files.",
    )  # fmt: skip
    protocol: shared.ProtocolOptions = group(shared.ProtocolOptions)
    keylog: str | None = option(
        READING, "--keylog", metavar="FILE",
        help="Key log that decrypts TLS, read while it is written. [default: $SSLKEYLOGFILE]",
    )  # fmt: skip
    expression: str | None = shared.filter_option()
    form: str = option(
        OUTPUT, "--format", type=click.Choice(shared.PACKET_FORMATS), default="text", show_default=True,
        help="Format of packets.",
    )  # fmt: skip
    dashboard: bool = option(
        OUTPUT, "--dashboard", is_flag=True, help="Show rates, clients, topics and findings instead of packets."
    )
    view: shared.ViewOptions = group(shared.ViewOptions)
    lint: bool = option(OUTPUT, "--lint", is_flag=True, help="Lint the packets too, and show findings among them.")
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
        END, "--stop-on-finding", is_flag=True, help="Stop at the first finding that counts; implies --lint."
    )

    def __post_init__(self) -> None:
        if not self.list_interfaces:
            self._check_forms()
            self._check_files()
            self._check_linting()

    @property
    def linting(self) -> bool:
        return self.lint or self.stop_on_finding or bool(self.outputs)

    @property
    def ring_bytes(self) -> int | None:
        return None if self.ring_size is None else max(1, int(self.ring_size * MEGABYTE))

    def settings(self) -> Settings:
        """How to lint; usage errors for reports that cannot go where they are to go."""
        from mqttscope.cli.linting_settings import resolve
        from mqttscope.cli.output import same_file

        found = resolve(self.judging, outputs=self.outputs, protocol=self.protocol)
        found.format = "concise" if found.output is None and self.form != "jsonl" else "jsonl"
        written = [path for _, path in found.more] + ([found.output] if found.output else [])
        if self.target is not None and any(same_file(self.target, path) for path in written):
            raise click.UsageError(f"--output: {self.target} is the file of --write")
        if found.output is None and self.form == "csv":
            raise click.UsageError("--format csv has no room for findings; send them to a file: --output FILE")
        return found

    def _check_forms(self) -> None:
        from mqttscope.cli.output import is_terminal

        if self.target is None and (self.ring_size is not None or self.ring_files is not None):
            raise click.UsageError("--ring-size and --ring-files need --write FILE")
        if self.ring_files is not None and self.ring_size is None:
            raise click.UsageError("--ring-files needs --ring-size MB")
        if self.dashboard and self.form != "text":
            raise click.UsageError(f"--dashboard and --format {self.form} exclude each other")
        if self.dashboard and not is_terminal():
            raise click.UsageError(
                "--dashboard needs a terminal; use --format text or jsonl where the output goes elsewhere"
            )

    def _check_files(self) -> None:
        from mqttscope.cli.output import CAPTURE, refuse_name, same_file

        if self.target in ("", "-"):
            raise click.UsageError("--write needs the name of a file; /dev/stdout is standard output")
        keylog = self.keylog or os.environ.get("SSLKEYLOGFILE")
        outputs = (("--output", one.partition("=")[2] or one) for one in self.outputs)
        for name, path in (("--write", self.target), *outputs):
            if None not in (path, keylog) and same_file(str(path), str(keylog)):
                raise click.UsageError(f"{name}: {path} is the key log")
        if self.target is not None:
            refuse_name(self.target, "--write", CAPTURE)

    def _check_linting(self) -> None:
        """Options of the linter change nothing where nothing is linted."""
        idle = next((spelled for name, spelled in on_command_line() if name in IDLE), None)
        if idle is not None and not self.linting:
            raise click.UsageError(f"{idle} needs --lint")


@make_command(
    SniffOptions,
    epilog="""\b
Examples:
  mqttscope sniff -i eth0 --port 1883 --bpf 'host 10.0.0.4' --filter 'topic matches "a/#"'
  mqttscope sniff -i lo --write ring.pcapng --ring-size 100 --ring-files 20 --dashboard
  mqttscope sniff -i eth0 --lint --stop-on-finding --duration 600

The options of mqttscope lint that select rules and decide what counts work here too: --select, --extend-select,
--ignore, --fail-on, --fail-confidence, --min-confidence, --min-severity, --baseline, --profile, --complete,
--exit-zero, --config, --no-config.

Ctrl-C ends the capture. Exit code 1 when a finding counts, 3 when nothing could be captured, or the capture failed.
""",
)
def command(given: SniffOptions) -> int:
    """Show the MQTT packets of network interfaces as they come.

    INTERFACE is a name such as eth0. The default is the first of --list-interfaces that is not a loopback. dumpcap
    (Debian package tshark) captures the frames.
    """
    from mqttscope.cli.sniffing import Sniffing, Stops, capturing, choose, listed, live_keys, record
    from mqttscope.dissect import Dissector

    if given.list_interfaces:
        click.echo(listed(), nl=False)
        return EXIT_CLEAN
    stops = Stops(
        given.duration, given.count, shared.compile_filter(given.until, "--until"), on_finding=given.stop_on_finding
    )
    wanted = shared.compile_filter(given.expression)
    view = given.view.view(colour=given.colour)
    view.payloads = view.decoders()
    options = given.protocol.dissection()
    findings = None
    if given.linting:
        from mqttscope.cli.linting import Findings

        settings = given.settings()
        options = settings.options
        findings = Findings(settings, view)
    decryption = live_keys(given.keylog, verify_checksums=options.verify_checksums)
    options.decrypting = decryption is not None
    interfaces = choose((*given.interfaces, *given.more))
    capture = capturing(interfaces, given.bpf, [port for port, _ in given.protocol.ports])
    sniffing = Sniffing(
        capture,
        Dissector(options),
        view,
        form="dashboard" if given.dashboard else given.form,
        human=given.dashboard or given.form in shared.HUMAN_FORMATS,
        wanted=wanted,
        stops=stops,
        recorder=record(given.target, given.ring_bytes, given.ring_files),
        findings=findings,
        decryption=decryption,
    )
    return sniffing.execute()

"""``mqttscope sniff``: show the MQTT packets of an interface as they come."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mqttscope.cli.inspect import FORMATS, HUMAN_FORMATS, compile_filter
from mqttscope.cli.lint_options import FORMATS as LINT_FORMATS
from mqttscope.cli.lint_options import OF_LINT, judging, judging_settings
from mqttscope.cli.main import EXIT_CLEAN
from mqttscope.cli.options import colour_option, finite, make_options, selection, viewing

if TYPE_CHECKING:
    from mqttscope.mqtt.constants import ProtocolVersion

STREAMED = ("full", "concise", "jsonl", "github")
"""Formats of findings that need not wait for the end; the others are for files."""
MEGABYTE = 1_000_000
IDLE = OF_LINT - {"config", "no_config"}
"""Options that say how to lint."""


@click.command(
    epilog="""\b
Examples:
  mqttscope sniff -i eth0 --port 1883 --bpf 'host 10.0.0.4' --filter 'topic matches "a/#"'
  mqttscope sniff -i lo --write ring.pcapng --ring-size 100 --ring-files 20 --dashboard
  mqttscope sniff -i eth0 --lint --stop-on-finding --duration 600

The options of mqttscope lint that choose rules and say what counts work here too: --select, --extend-select,
--ignore, --fail-on, --fail-confidence, --min-confidence, --min-severity, --baseline, --profile, --exit-zero,
--config, --no-config.

Ctrl-C ends the capture. Exit code 1 when a finding counts, 3 when nothing could be captured, or the capture broke off.
"""
)
@click.argument("interfaces", nargs=-1, metavar="[INTERFACE...]")
@click.option(
    "--interface", "-i", "more", multiple=True, metavar="NAME", help="Interface to capture from; may be repeated."
)
@click.option("--list-interfaces", is_flag=True, help="List the interfaces and stop.")
@click.option(
    "--bpf", metavar="FILTER", default="", help="Capture only this (pcap-filter syntax), in addition to --port."
)
@click.option(
    "--buffer",
    type=click.IntRange(1, 2047),
    metavar="MIB",
    default=64,
    show_default=True,
    help="Size of the kernel's capture buffer in MiB.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(FORMATS),
    default="text",
    metavar="FORMAT",
    help="text, tree, ladder, jsonl or csv. [default: text]",
)
@click.option("--dashboard", is_flag=True, help="Rates, clients, topics and findings instead of packets.")
@selection
@click.option(
    "--keylog", metavar="FILE", help="Keys of TLS sessions, read as they are written. [default: $SSLKEYLOGFILE]"
)
@viewing
@click.option(
    "--duration",
    type=click.FloatRange(0, min_open=True),
    callback=finite,
    metavar="SECONDS",
    help="Stop after this time.",
)
@click.option("--count", type=click.IntRange(1), help="Stop after this many packets.")
@click.option("--until", metavar="EXPR", help="Stop at the first event that matches (docs/filters.md).")
@click.option("--write", "-w", "target", metavar="FILE", help="Write all frames to a pcapng file, too.")
@click.option(
    "--ring-size",
    type=click.FloatRange(0, min_open=True),
    callback=finite,
    metavar="MB",
    help="Begin a new file after this many MB.",
)
@click.option("--ring-files", type=click.IntRange(1), metavar="N", help="Keep the newest N files only.")
@click.option("--lint", is_flag=True, help="Lint too, and show findings among the packets.")
@click.option("--stop-on-finding", is_flag=True, help="Stop at the first finding that counts; implies --lint.")
@judging
@click.option(
    "--lint-format", type=click.Choice(LINT_FORMATS), metavar="FORMAT", help="Format of findings, as in lint."
)
@click.option(
    "--output", "-o", multiple=True, metavar="[FORMAT=]FILE", help="Write findings to this file; implies --lint."
)
@judging_settings
@colour_option
def command(
    interfaces: tuple[str, ...],
    more: tuple[str, ...],
    list_interfaces: bool,
    bpf: str,
    buffer: int,
    format_: str,
    dashboard: bool,
    expression: str | None,
    connection: tuple[int, ...],
    ports: tuple[tuple[int, str], ...],
    mqtt_version: ProtocolVersion | None,
    keylog: str | None,
    payload: str,
    payload_limit: int,
    time_format: str,
    show_secrets: bool,
    duration: float | None,
    count: int | None,
    until: str | None,
    target: str | None,
    ring_size: float | None,
    ring_files: int | None,
    lint: bool,
    stop_on_finding: bool,
    lint_format: str | None,
    config: str | None,
    no_config: bool,
    colour: bool | None,
    **given: Any,
) -> int:
    """Show the MQTT packets of interfaces as they come.

    dumpcap (Debian package tshark) captures the frames. Without INTERFACE it takes the first of
    --list-interfaces that is not a loopback.
    """
    from mqttscope.cli.output import make_view
    from mqttscope.cli.reading import live_keys
    from mqttscope.cli.sniffing import Sniffing, Stops, capturing, choose, listed, record
    from mqttscope.dissect import Dissector

    if list_interfaces:
        click.echo(listed(), nl=False)
        return EXIT_CLEAN
    _refuse_contradictions(format_, target, ring_size, ring_files, dashboard=dashboard)
    linting = lint or stop_on_finding or bool(given["output"]) or lint_format is not None
    _refuse_files(target, given["output"], keylog or os.environ.get("SSLKEYLOGFILE"))
    if not linting:
        _refuse_idle_options()
    stops = Stops(duration, count, compile_filter(until, "--until"), on_finding=stop_on_finding)
    wanted = compile_filter(expression)
    view = make_view(
        colour=colour,
        time_format=time_format,
        payload=payload,
        payload_limit=payload_limit,
        show_secrets=show_secrets,
    )
    options = make_options(ports, mqtt_version)
    findings = None
    if linting:
        from mqttscope.cli.linting_settings import resolve
        from mqttscope.cli.output import same_file
        from mqttscope.cli.sniffing_findings import Findings

        given["format_"] = lint_format
        settings = resolve(given, ports=ports, mqtt_version=mqtt_version, config=config, search=not no_config)
        settings.format = lint_format or ("concise" if settings.output is None else "jsonl")
        written = [path for _, path in settings.more] + ([settings.output] if settings.output else [])
        if target is not None and any(same_file(target, path) for path in written):
            raise click.UsageError(f"--output: {target} is the file of --write")
        _refuse_held_back(settings.format, settings.output, csv=format_ == "csv" and not dashboard)
        options = settings.options
        findings = Findings(settings, view, jsonl=format_ == "jsonl", forms=lint_format is not None)
    decryption = live_keys(keylog)
    options.decrypting = decryption is not None
    capture = capturing(choose((*interfaces, *more)), bpf, [port for port, _ in ports], buffer)
    sniffing = Sniffing(
        capture,
        Dissector(options),
        view,
        form="dashboard" if dashboard else format_,
        human=dashboard or format_ in HUMAN_FORMATS,
        wanted=wanted,
        connections=connection,
        stops=stops,
        recorder=record(target, None if ring_size is None else max(1, int(ring_size * MEGABYTE)), ring_files),
        findings=findings,
        decryption=decryption,
    )
    return sniffing.execute()


for _parameter in command.params:
    # They are explained by lint, whose they are; the page of this command has enough of its own.
    if isinstance(_parameter, click.Option) and _parameter.name in OF_LINT:
        _parameter.hidden = True


def _refuse_contradictions(
    format_: str, target: str | None, ring_size: float | None, ring_files: int | None, *, dashboard: bool
) -> None:
    from mqttscope.cli.output import is_terminal

    if target is None and (ring_size is not None or ring_files is not None):
        raise click.UsageError("--ring-size and --ring-files need --write FILE")
    if ring_files is not None and ring_size is None:
        raise click.UsageError("--ring-files needs --ring-size MB")
    if dashboard and format_ != "text":
        raise click.UsageError(f"--dashboard and --format {format_} exclude each other")
    if dashboard and not is_terminal():
        raise click.UsageError(
            "--dashboard needs a terminal; use --format text or jsonl where the output goes elsewhere"
        )


def _refuse_files(target: str | None, outputs: tuple[str, ...], keylog: str | None) -> None:
    from mqttscope.cli.output import same_file

    if target in ("", "-"):
        raise click.UsageError("--write needs the name of a file; /dev/stdout is standard output")
    if keylog is None:
        return
    for option, path in (("--write", target), *(("--output", one.partition("=")[2] or one) for one in outputs)):
        if path is not None and same_file(path, keylog):
            raise click.UsageError(f"{option}: {path} is the key log")


def _refuse_idle_options() -> None:
    """Options of the linter change nothing where nothing is linted."""
    context = click.get_current_context()
    for option in context.command.params:
        if option.name in IDLE and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option.opts[0]} needs --lint")


def _refuse_held_back(name: str, output: str | None, *, csv: bool) -> None:
    if output is not None:
        return
    if csv:
        raise click.UsageError("--format csv has no room for findings; send them to a file: --output FILE")
    if name not in STREAMED:
        raise click.UsageError(f"--lint-format {name} is complete at the end only; send it to a file: --output FILE")

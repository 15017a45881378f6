"""``mqttscope lint``: what in captures breaks the specification."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from mqttscope.cli.lint_options import (
    COUNTED,
    FORMATS,
    judging,
)
from mqttscope.cli.main import EXIT_CLEAN
from mqttscope.cli.options import CAPTURES, Port, Version, colour_option, front_end

if TYPE_CHECKING:
    from pathlib import Path

    from mqttscope.cli.linting_settings import Settings
    from mqttscope.mqtt.constants import ProtocolVersion

LOCAL, SPARK = "local", "spark"


def engine(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, str | None]:
    """Who reads and judges captures: this process, or Spark and where."""
    if value is None or value == LOCAL:
        return LOCAL, None
    if value == SPARK:
        return SPARK, os.environ.get("MQTTSCOPE_MASTER")
    if value.startswith(("spark://", "sc://", "local[")):
        return SPARK, value
    raise click.BadParameter(f"{value!r} is neither {LOCAL} nor {SPARK} nor the URL of a cluster", context, parameter)


@click.command(
    epilog="""\b
Examples:
  mqttscope lint site.pcapng --extend-select OPS --fail-on warning
  mqttscope lint run.pcapng --format github --output sarif=lint.sarif --baseline lint-baseline.json
  mqttscope lint site.pcapng --client 'pump-*' --min-severity warning

Exit code 1 when a finding counts (--fail-on, --fail-confidence), 3 when a capture could not be read to its end, or
holds no MQTT packet to judge.
"""
)
@click.argument("captures", nargs=-1, metavar="CAPTURE...", type=CAPTURES)
@judging
@click.option(
    "--format",
    "format_",
    type=click.Choice(FORMATS),
    metavar="FORMAT",
    envvar="MQTTSCOPE_FORMAT",
    help=f"{', '.join(FORMATS)}. [default: full]",
)
@click.option(
    "--output",
    "-o",
    multiple=True,
    metavar="[FORMAT=]FILE",
    help="Write to this file; FORMAT=FILE adds a further format.",
)
@click.option(
    "--baseline", metavar="FILE", envvar="MQTTSCOPE_BASELINE", help="File of known findings, which do not count."
)
@click.option("--update-baseline", is_flag=True, help="Write what is found now to the baseline.")
@click.option("--profile", metavar="NAME|FILE", envvar="MQTTSCOPE_PROFILE", help="Limits of a broker or service.")
@click.option("--exit-zero", is_flag=True, default=None, help="Exit code 0 whatever is found.")
@click.option(
    "--require-packets",
    type=click.IntRange(0),
    metavar="N",
    envvar="MQTTSCOPE_REQUIRE_PACKETS",
    help="Exit code 3 with fewer MQTT packets. [default: 1]",
)
@click.option("--filter", "-f", "expression", metavar="EXPR", help="Only findings of packets that match.")
@click.option("--connection", type=click.IntRange(0), multiple=True, help="Only findings of this connection number.")
@click.option(
    "--client", "clients", multiple=True, metavar="ID", help="Only findings of these clients (* is any text)."
)
@click.option("--verbose", "-v", is_flag=True, help="Show each note in full, not one line for each rule.")
@click.option("--statistics", is_flag=True, help="Count findings by rule instead of showing them.")
@click.option("--show-settings", is_flag=True, help="Show the settings and where they come from, and stop.")
@click.option(
    "--config", metavar="FILE", envvar="MQTTSCOPE_CONFIG", help="Configuration file. [default: search upwards]"
)
@click.option("--no-config", is_flag=True, help="Use no configuration file.")
@click.option("--port", "ports", type=Port(), multiple=True, metavar="PORT[:mqtt|ws|tls]", help="MQTT is spoken here.")
@click.option(
    "--mqtt-version", type=Version(), metavar="auto|3.1|3.1.1|5.0", help="Version where no CONNECT was captured."
)
@click.option("--keylog", metavar="FILE", help="Keys of TLS sessions. [default: $SSLKEYLOGFILE]")
@front_end
@click.option("--engine", metavar="ENGINE", callback=engine, help="local, spark, spark://HOST:PORT, sc://HOST. [local]")
@colour_option
def command(
    captures: tuple[str, ...],
    update_baseline: bool,
    expression: str | None,
    connection: tuple[int, ...],
    clients: tuple[str, ...],
    verbose: bool,
    statistics: bool,
    show_settings: bool,
    config: str | None,
    no_config: bool,
    ports: tuple[tuple[int, str], ...],
    mqtt_version: ProtocolVersion | None,
    keylog: str | None,
    via: tuple[str, ...] | None,
    engine: tuple[str, str | None],
    colour: bool | None,
    **given: Any,
) -> int:
    """Find what breaks the MQTT specification in captures: who, where, which statement, how sure.

    Captures are files, globs, directories, or - for standard input. mqttscope rules lists the rules.
    """
    from mqttscope.cli.linting import Run
    from mqttscope.cli.linting_settings import resolve
    from mqttscope.cli.output import Output, warn
    from mqttscope.cli.reading import Reading
    from mqttscope.lint.finding import Finding
    from mqttscope.lint.selection import Selection

    settings = resolve(given, ports=ports, mqtt_version=mqtt_version, config=config, search=not no_config)
    if not settings.rules:
        warn("no rule is selected, so that nothing can be found")
    if show_settings:
        sink = Output()
        sink.write(settings.shown())
        sink.flush()
        return EXIT_CLEAN
    if not captures:
        raise click.UsageError("Missing argument 'CAPTURE...'.")
    if update_baseline and settings.baseline is None:
        raise click.UsageError("--update-baseline needs --baseline FILE")
    if statistics and settings.format not in COUNTED:
        raise click.UsageError(f"--statistics has no format {settings.format}; give --format {' or '.join(COUNTED)}")
    selection: Selection[Finding] | None = None
    if expression is not None or connection or clients:
        from mqttscope.cli.inspect import compile_filter

        selection = Selection(compile_filter(expression), connection, clients)
    reading = Reading(captures, keylog, via=via)
    shape: dict[str, Any] = {
        "update_baseline": update_baseline,
        "statistics": statistics,
        "colour": colour,
        "verbose": verbose,
        "selection": selection,
    }
    name, master = engine
    if name == SPARK:
        if via is not None:
            raise click.UsageError("--engine spark takes no --via")
        from mqttscope.cli.linting_spark import SparkRun

        run: Run = SparkRun(settings, reading, master=master, **shape)
    else:
        run = Run(settings, reading, **shape)
    return run.execute()


def project_settings(start: Path, *, config: str | None, search: bool, **given: tuple[str, ...]) -> Settings:
    """The settings that ``mqttscope lint`` would have in a folder, with what the environment says.

    ``given`` takes the place of options: ``select``, ``extend_select``, ``ignore``.
    """
    from mqttscope.cli.linting_settings import resolve

    with command.make_context("lint", []) as context:
        params = dict(context.params)
    named = params.pop("config")
    params |= given
    return resolve(
        params,
        ports=(),
        mqtt_version=None,
        config=(config or named) if search else None,
        search=search,
        start=start,
    )

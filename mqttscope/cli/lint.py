"""``mqttscope lint``: find violations of the specification in captures."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from mqttscope.cli import options as shared
from mqttscope.cli.command import (
    FAILING,
    OTHER,
    OUTPUT,
    SELECTION,
    SPARK,
    collect,
    group,
    make_command,
    option,
    options,
)
from mqttscope.cli.main import EXIT_CLEAN

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mqttscope.cli.linting_settings import Settings
    from mqttscope.lint.rule import Rule

LOCAL, ON_SPARK = "local", "spark"


def engine(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, str | None]:
    """Who reads and judges captures: this process, or Spark and where."""
    if value is None or value == LOCAL:
        return LOCAL, None
    if value == ON_SPARK:
        return ON_SPARK, os.environ.get("MQTTSCOPE_MASTER")
    if value.startswith(("spark://", "sc://", "local[")):
        return ON_SPARK, value
    raise click.BadParameter(
        f"{value!r} is neither {LOCAL} nor {ON_SPARK} nor the URL of a cluster", context, parameter
    )


@options
class LintOptions:
    """The options of ``lint``."""

    captures: tuple[str, ...] = shared.captures_argument(required=False)
    protocol: shared.ProtocolOptions = group(shared.ProtocolOptions)
    files: shared.FileOptions = group(shared.FileOptions)
    expression: str | None = option(
        SELECTION, "--filter", "-f", metavar="EXPR", help="Only findings of packets that match (docs/filters.md)."
    )
    connection: tuple[int, ...] = option(
        SELECTION, "--connection", type=shared.ConnectionNumber(), metavar="N", multiple=True,
        help="Only findings of the connection with this number; may be repeated.",
    )  # fmt: skip
    clients: tuple[str, ...] = option(
        SELECTION,
        "--client",
        multiple=True,
        metavar="ID",
        help="Only findings of these clients (* for any characters).",
    )
    judging: shared.JudgingOptions = group(shared.JudgingOptions)
    update_baseline: bool = option(
        FAILING, "--update-baseline", is_flag=True, help="Write what is found now to the file of --baseline."
    )
    require_packets: int | None = option(
        FAILING, "--require-packets", type=click.IntRange(0), metavar="N", envvar="MQTTSCOPE_REQUIRE_PACKETS",
        help="Exit with code 3 when a capture has fewer MQTT packets. [default: 1]",
    )  # fmt: skip
    require_quality: str | None = option(
        FAILING, "--require-quality", type=click.Choice(["usable", "complete"]), envvar="MQTTSCOPE_REQUIRE_QUALITY",
        help="Exit with code 3 when a capture lacks something (docs/lint.md).",
    )  # fmt: skip
    form: str | None = shared.format_option()
    outputs: tuple[str, ...] = shared.outputs_option()
    verbose: bool = option(
        OUTPUT, "--verbose", "-v", is_flag=True, help="Show each note in full, not one line for each rule."
    )
    statistics: bool = option(
        OUTPUT, "--statistics", is_flag=True, help="Count findings by rule instead of showing them."
    )
    colour: bool | None = shared.colour_option()
    engine: tuple[str, str | None] = option(
        SPARK, "--engine", metavar="ENGINE", callback=engine, value=(LOCAL, None),
        help="Where to lint: local, spark, spark://HOST:PORT, sc://HOST. [default: local]",
    )  # fmt: skip
    show_settings: bool = option(
        OTHER, "--show-settings", is_flag=True, help="Show the settings and where they come from, and stop."
    )

    def settings(self) -> Settings:
        """The same with the configuration."""
        from mqttscope.cli.linting_settings import resolve

        return resolve(
            self.judging, form=self.form, outputs=self.outputs, require_packets=self.require_packets,
            require_quality=self.require_quality, protocol=self.protocol,
        )  # fmt: skip


@make_command(
    LintOptions,
    epilog="""\b
Examples:
  mqttscope lint site.pcapng --extend-select OPS --fail-on warning
  mqttscope lint run.pcapng --format github --output sarif=lint.sarif --baseline lint-baseline.json
  mqttscope lint site.pcapng --client 'pump-*' --min-severity warning
  mqttscope lint site.pcapng --output findings.html

Exit code 1 when a finding counts (--fail-on, --fail-confidence), 3 when a capture could not be read to its end, holds
no MQTT packet to judge, or is not of the quality that --require-quality demands.
""",
)
def command(given: LintOptions) -> int:
    """Find violations of the MQTT specification in captures: by whom, where, of which statement, how certain.

    CAPTURE is a file, a glob, a directory, or - for standard input. mqttscope rules lists the rules.
    """
    from mqttscope.cli.linting import LintRun, SparkRun
    from mqttscope.cli.output import Output, refuse_terminal
    from mqttscope.cli.reading import Reading
    from mqttscope.lint.finding import Finding
    from mqttscope.lint.gate import Selection

    settings = given.settings()
    if given.show_settings:
        Output().write_all(settings.shown())
        return EXIT_CLEAN
    if not given.captures:
        raise click.UsageError("Missing argument 'CAPTURE...'.")
    # What these need may come from the configuration.
    if given.update_baseline and settings.baseline is None:
        raise click.UsageError("--update-baseline needs --baseline FILE")
    if given.statistics and settings.format not in shared.COUNTED:
        raise click.UsageError(
            f"--statistics has no format {settings.format}; give --format {' or '.join(shared.COUNTED)}"
        )
    refuse_terminal(settings.format, settings.output)
    selection: Selection[Finding] | None = None
    if given.expression is not None or given.connection or given.clients:
        selection = Selection(shared.compile_filter(given.expression), given.connection, given.clients)
    reading = Reading(given.captures, given.files)
    name, master = given.engine
    if name == ON_SPARK and given.files.via is not None:
        raise click.UsageError("--engine spark takes no --via")
    make_run = LintRun if name == LOCAL else partial(SparkRun, master=master)
    return make_run(
        settings, reading, update_baseline=given.update_baseline, statistics=given.statistics, colour=given.colour,
        verbose=given.verbose, selection=selection,
    ).execute()  # fmt: skip


def project_settings(
    start: Path, *, config: str | None, search: bool, beside: Mapping[str, type[Rule]], **given: tuple[str, ...]
) -> Settings:
    """The settings that ``mqttscope lint`` would have in a folder, with what the environment says.

    ``given`` takes the place of options: ``select``, ``extend_select``, ``ignore``; these may also name the rules
    ``beside``, which the caller adds.
    """
    from mqttscope.cli.linting_settings import resolve

    with command.make_context("lint", []) as context:
        found = collect(LintOptions, {**context.params, **given})
    configuration = replace(
        found.judging.configuration, config=config or found.judging.configuration.config, no_config=not search
    )
    return resolve(
        replace(found.judging, configuration=configuration), form=found.form, require_packets=found.require_packets,
        start=start, beside=beside, may_be_none=True,
    )  # fmt: skip

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

    from mqttscope.cli.linting_settings import LintSettings
    from mqttscope.lint.rule import Rule

LOCAL, ON_SPARK = "local", "spark"


def engine(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, str | None]:
    """Where captures are linted: in this process, or on Spark with its URL."""
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
        FAILING, "--update-baseline", is_flag=True, help="Write the current findings to the --baseline file."
    )
    require_packets: int | None = option(
        FAILING, "--require-packets", type=click.IntRange(0), metavar="N", envvar="MQTTSCOPE_REQUIRE_PACKETS",
        help="Exit with code 3 if a capture has fewer than N MQTT packets. [default: 1]",
    )  # fmt: skip
    require_quality: str | None = option(
        FAILING, "--require-quality", type=click.Choice(["usable", "complete"]), envvar="MQTTSCOPE_REQUIRE_QUALITY",
        help="Exit with code 3 if a capture has a lower quality (docs/lint.md).",
    )  # fmt: skip
    form: str | None = shared.format_option()
    outputs: tuple[str, ...] = shared.outputs_option(
        "Write findings to this file; FORMAT=FILE adds a further format, FILE.pcapng a copy with comments on frames."
    )
    all_frames: bool = shared.all_frames_option()
    verbose: bool = option(
        OUTPUT, "--verbose", "-v", is_flag=True, help="Show each note in full instead of one line per rule."
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
        OTHER, "--show-settings", is_flag=True, help="Show the settings and their sources, then exit."
    )

    @property
    def divided(self) -> tuple[str | None, tuple[str, ...]]:
        """The file of the annotated copy, and the other outputs."""
        from mqttscope.cli.annotating import divide

        return divide(self.outputs)

    def settings(self) -> LintSettings:
        """Settings from these options and the configuration."""
        from mqttscope.cli.linting_settings import resolve

        return resolve(
            self.judging, form=self.form, outputs=self.divided[1], require_packets=self.require_packets,
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
  mqttscope lint site.pcapng --output annotated.pcapng

Exit code 1 when a finding fails the run (--fail-on, --fail-confidence), 3 when a capture could not be read to its end,
contains no MQTT packets, or has a lower quality than --require-quality.
""",
)
def command(args: LintOptions) -> int:
    """Find violations of the MQTT specification in captures: offender, statement, position, confidence.

    CAPTURE is a file, a glob, a directory, or - for standard input. mqttscope rules lists the rules.
    """
    from mqttscope.cli.annotating import AnnotatedCopy
    from mqttscope.cli.linting import LintRun, SparkRun
    from mqttscope.cli.output import Output, refuse_terminal
    from mqttscope.cli.reading import CommandReading
    from mqttscope.lint.finding import Finding
    from mqttscope.lint.gate import FindingSelection

    settings = args.settings()
    if args.show_settings:
        Output().write_all(settings.shown())
        return EXIT_CLEAN
    if not args.captures:
        raise click.UsageError("Missing argument 'CAPTURE...'.")
    # The configuration may provide these.
    if args.update_baseline and settings.baseline is None:
        raise click.UsageError("--update-baseline needs --baseline FILE")
    if args.statistics and settings.format not in shared.COUNTED:
        raise click.UsageError(
            f"--statistics has no format {settings.format}; give --format {' or '.join(shared.COUNTED)}"
        )
    refuse_terminal(settings.format, settings.output)
    selection: FindingSelection[Finding] | None = None
    if args.expression is not None or args.connection or args.clients:
        selection = FindingSelection(shared.compile_filter(args.expression), args.connection, args.clients)
    reading = CommandReading(args.captures, args.files)
    name, master = args.engine
    if name == ON_SPARK and args.files.via is not None:
        raise click.UsageError("--engine spark takes no --via")
    path, _ = args.divided
    if path is None and args.all_frames:
        raise click.UsageError("--all-frames is for a copy of the captures: --output FILE.pcapng")
    if path is not None and name == ON_SPARK:
        raise click.UsageError("--engine spark writes no copy of the captures")
    copy = None if path is None else AnnotatedCopy(path, args.captures, all_frames=args.all_frames)
    make_run = LintRun if name == LOCAL else partial(SparkRun, master=master)
    return make_run(
        settings, reading, update_baseline=args.update_baseline, statistics=args.statistics, colour=args.colour,
        verbose=args.verbose, selection=selection, copy=copy,
    ).execute()  # fmt: skip


def project_settings(
    start: Path, *, config: str | None, search: bool, beside: Mapping[str, type[Rule]], **selections: tuple[str, ...]
) -> LintSettings:
    """Settings of ``mqttscope lint`` in a folder, including environment variables.

    ``selections`` replaces the options ``select``, ``extend_select`` and ``ignore``, which may also name the rules in
    ``beside`` that the caller adds.
    """
    from mqttscope.cli.linting_settings import resolve

    with command.make_context("lint", []) as context:
        options = collect(LintOptions, {**context.params, **selections})
    configuration = replace(
        options.judging.configuration, config=config or options.judging.configuration.config, no_config=not search
    )
    return resolve(
        replace(options.judging, configuration=configuration), form=options.form,
        require_packets=options.require_packets, start=start, beside=beside, may_be_none=True,
    )  # fmt: skip

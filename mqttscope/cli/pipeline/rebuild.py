"""``mqttscope pipeline rebuild`` and ``relint``: make all rows, or all findings, of a lake again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from mqttscope.cli.command import (
    OTHER,
    OUTPUT,
    READING,
    argument,
    group,
    make_command,
    on_command_line,
    option,
    options,
)
from mqttscope.cli.main import EXIT_CLEAN, printable
from mqttscope.cli.output import warn
from mqttscope.cli.pipeline.common import (
    RowOptions,
    SparkOptions,
    lake_option,
    lake_store_option,
    run_erasure,
    single_writer_option,
    store_option,
)
from mqttscope.cli.pipeline.ingesting import IngestOptions, IngestRun, engine_option
from mqttscope.cli.spark_session import packages_needed
from mqttscope.mqtt.wire import counted

if TYPE_CHECKING:
    from mqttscope.lake.manifest import Manifest


@options
class RebuildOptions:
    """The options of ``pipeline rebuild`` and ``pipeline relint``."""

    sources: tuple[str, ...] = argument("[SRC]...", nargs=-1)
    lake: str = lake_option(stores=True)
    single_writer: bool = single_writer_option()
    rows: RowOptions = group(RowOptions)
    settings: dict[str, str] = store_option()
    lake_settings: dict[str, str] = lake_store_option()
    deduplicate: bool = option(READING, "--deduplicate", is_flag=True, help="The captures come from several taps.")
    without_missing: bool = option(
        READING, "--without-missing", is_flag=True,
        help="Continue although captures of the lake cannot be found: their rows are lost.",
    )  # fmt: skip
    engine: str = engine_option()
    spark: SparkOptions = group(SparkOptions)
    jobs: int | None = option(
        OTHER, "--jobs", type=click.IntRange(1), metavar="N", help="Number of processes, as in ingest.",
    )  # fmt: skip
    form: str = option(
        OUTPUT, "--format", type=click.Choice(("text", "json")), default="text", show_default=True,
        help="Format of the summary.",
    )  # fmt: skip

    def ingest(self) -> IngestOptions:
        """The options of an ingest of the captures."""
        return IngestOptions(
            sources=self.sources, lake=self.lake, single_writer=self.single_writer, rows=self.rows,
            settings=self.settings, lake_settings=self.lake_settings, deduplicate=self.deduplicate,
            engine=self.engine, spark=self.spark, jobs=self.jobs, form=self.form,
        )  # fmt: skip


class RebuildRun(IngestRun):
    """One run of ``pipeline rebuild``."""

    def __init__(self, args: RebuildOptions) -> None:
        super().__init__(args.ingest())
        self.more = {"rebuild": True, "without_missing": args.without_missing}

    def sources(self, before: Manifest) -> Sequence[str]:
        """The given captures, or the captures of the lake under their names."""
        self._continue_options(before)
        return self.args.sources or sorted(set(before.captures.values()))

    def known_objects(self, before: Manifest) -> Mapping[str, Sequence[Any]]:
        return {}

    def _continue_options(self, before: Manifest) -> None:
        """Take the values of the lake for options that are not given, and warn of other differences."""
        from mqttscope.lake.writer import differences, option_words

        asked_for, words = {spelling for _, spelling in on_command_line()}, before.options
        if "--payload-limit" not in asked_for:
            self.options.payload_limit = int(words.get("--payload-limit", self.options.payload_limit))
        if "--group" not in asked_for:
            self.options.group = before.group
        if "--deduplicate" not in asked_for:
            self.options.deduplicate = words.get("--deduplicate") == "on"
        changes = differences(
            words, {name: text for name, text in option_words(self.options).items() if name not in asked_for}
        )
        if changes:
            warn(f"the lake is made again with other options: {changes}")


@make_command(
    RebuildOptions,
    epilog="""\b
Examples:
  mqttscope pipeline rebuild --lake lake
  mqttscope pipeline rebuild /archive/2026 --lake lake --payload-limit 1024
  mqttscope pipeline rebuild --lake lake --master local[4]

Captures are recognised by their content: SRC names their places if they have moved. Options may differ from the
earlier ones; without --group, --payload-limit and --deduplicate, the lake keeps its own. If captures are missing,
the exit code is 3 and the lake is unchanged.
""",
)
def rebuild_command(args: RebuildOptions) -> int:
    """Ingest all captures of a lake again, in the order of time; SRC names captures that have moved.

    The result replaces all rows in one commit. Captures that came late are in their place then.
    """
    return RebuildRun(args).execute()


@make_command(
    RebuildOptions,
    epilog="""\b
Examples:
  mqttscope pipeline relint --lake lake
  mqttscope pipeline relint --lake lake --ignore PUB208

All other options must be as in the ingest.
""",
)
def relint_command(args: RebuildOptions) -> int:
    """Make the findings of a lake again, with other rules.

    If the lake has all findings of these rules, the others are left out of its tables. Otherwise all captures are
    read again, as by rebuild; SRC names captures that have moved.
    """
    with packages_needed("tables need", "lake"):
        from mqttscope.lake.forget import keep_findings
        from mqttscope.lake.store import place
    run = RebuildRun(args)
    lake = place(args.lake, args.lake_settings or args.settings, single_writer=args.single_writer)
    dropped = run_erasure(lambda: keep_findings(lake, replace(run.options)))
    if dropped is None:
        warn("the stored tables lack findings of these rules: all captures are read again")
        return run.execute()
    count = counted(sum(dropped.values()), "finding")
    click.echo(f"{printable(args.lake)}: {count} of other rules left out, from the stored tables")
    for rule, number in dropped.items():
        click.echo(f"  {rule:<16}{number:>14,}")
    return EXIT_CLEAN

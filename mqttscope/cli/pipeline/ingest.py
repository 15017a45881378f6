"""``mqttscope pipeline ingest``: captures into a lake."""

from __future__ import annotations

from typing import Any

import click

from mqttscope.cli.pipeline.common import LAKE_SETTINGS, lake_option, lake_settings, size, spark_settings

ENGINES = ("auto", "local", "spark")


@click.command(
    epilog="""\b
Examples:
  mqttscope pipeline ingest 'captures/*.pcapng' --lake lake --payload-limit 1024
  mqttscope pipeline ingest s3://bucket/a/ --fs region=eu-central-1 --lake /shared/lake --group a
  mqttscope pipeline ingest /captures --lake lake --master 'local[4]' --conf spark.driver.memory=4g

Any engine that reads Parquet can read a lake; docs/lake.md lists the columns. Captures that the lake already has are
not read again, and connections continue over several ingests. Exit code 3 when a capture could not be read to its
end, or nothing could be done.
"""
)
@click.argument("sources", nargs=-1, required=True, metavar="SRC...")
@lake_option
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="auto",
    metavar="[auto|local|spark]",
    help="local: in this process, without Java. [default: auto, local for less than 256 MiB]",
)
@spark_settings
@click.option(
    "--split-size", callback=size, metavar="BYTES", help="Read captures in ranges of this length, such as 64m."
)
@lake_settings
@click.option("--format", "format_", type=click.Choice(("text", "json")), default="text", help="Format of the summary.")
@click.option("--quiet", "-q", is_flag=True, help="Print no progress and no text summary.")
def command(
    sources: tuple[str, ...],
    lake: str,
    engine: str,
    master: str | None,
    configuration: dict[str, str],
    settings: dict[str, str],
    split_size: int | None,
    format_: str,
    quiet: bool,
    **given: Any,
) -> int:
    """Take captures into a lake: decode and lint them, write all tables.

    SRC are files, globs, directories, or URIs as s3://bucket/folder/.
    """
    from mqttscope.cli.pipeline.common import lake_options
    from mqttscope.cli.pipeline.ingesting import Run

    options = lake_options({name: given[name] for name in LAKE_SETTINGS})
    run = Run(sources, lake, options, engine, master, configuration, settings, split_size, format_, quiet)
    return run.execute()

"""``mqttscope pipeline watch``: captures into a lake while they are written."""

from __future__ import annotations

from typing import Any

import click

from mqttscope.cli.pipeline.common import LAKE_SETTINGS, lake_option, lake_settings, on_spark, size


@click.command(
    epilog="""\b
Examples:
  mqttscope pipeline watch captures --lake lake
  mqttscope pipeline watch '/captures/site-*' --lake lake --once --max-bytes 256m

The lake gets new frames every few seconds, also from a capture that is still being written, and from rotating sets.
Watching may be stopped and started again at any time: every frame is taken in once. A capture that has not changed
for the --quiet-time is complete; then 'pipeline ingest' knows it too. Exit code 3 when a capture could not be read
further.
"""
)
@click.argument("sources", nargs=-1, required=True, metavar="DIR...")
@lake_option
@click.option(
    "--interval",
    type=click.FloatRange(0),
    default=10.0,
    metavar="SECONDS",
    help="Time from the start of one batch to that of the next. [default: 10]",
)
@click.option("--once", is_flag=True, help="Take in what the captures hold now, then end.")
@click.option(
    "--max-bytes", default="64m", callback=size, metavar="BYTES", help="Bytes of captures in one batch. [default: 64m]"
)
@click.option(
    "--quiet-time",
    type=click.FloatRange(0),
    default=60.0,
    metavar="SECONDS",
    help="A capture is complete when unchanged for this long. [default: 60]",
)
@on_spark
@lake_settings
@click.option("--quiet", "-q", is_flag=True, help="Print no line for each batch.")
def command(
    sources: tuple[str, ...],
    lake: str,
    interval: float,
    once: bool,
    max_bytes: int,
    quiet_time: float,
    master: str | None,
    configuration: dict[str, str],
    quiet: bool,
    **given: Any,
) -> int:
    """Follow captures while they are written, and keep a lake up to date.

    DIR are folders of captures, or globs and files. Ctrl-C ends watching when the batch that runs is in, SIGTERM within
    two seconds: the next watch continues.
    """  # fmt: skip
    from mqttscope.cli.pipeline.common import lake_options
    from mqttscope.cli.pipeline.watching import Run

    options = lake_options({name: given[name] for name in LAKE_SETTINGS})
    run = Run(sources, lake, options, master, configuration, interval, once, max_bytes, quiet_time, quiet)
    return run.execute()

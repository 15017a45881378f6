"""``mqttscope pipeline convert``: convert a lake of an earlier release to Delta tables."""

from __future__ import annotations

import click

from mqttscope.cli.command import make_command, options
from mqttscope.cli.errors import ErrorTranslation, printable_reason
from mqttscope.cli.main import EXIT_CLEAN, printable
from mqttscope.cli.pipeline.common import lake_option
from mqttscope.cli.spark_session import PipelineFailedError, packages_needed


@options
class ConvertOptions:
    """The options of ``pipeline convert``."""

    lake: str = lake_option()


@make_command(
    ConvertOptions,
    epilog="""\b
Examples:
  mqttscope pipeline convert --lake lake
  mqttscope pipeline convert --lake /srv/lakes/north

Reports and queries also work on a lake of an earlier release; an ingest needs Delta tables. Exit code 3 when the lake
does not exist or is damaged.
""",
)
def command(args: ConvertOptions) -> int:
    """Convert the tables of a lake of an earlier release to Delta.

    Rows and nearly all files stay unchanged. An interrupted conversion leaves the lake unchanged, and can be run
    again.
    """
    with packages_needed("tables need", "lake"):
        from mqttscope.lake.convert import convert_lake
        from mqttscope.lake.manifest import LakeError
    with ErrorTranslation(PipelineFailedError, LakeError, text=printable_reason):
        converted = convert_lake(args.lake)
    done = "now has Delta tables" if converted else "already has Delta tables"
    click.echo(f"{printable(args.lake)} {done}")
    return EXIT_CLEAN

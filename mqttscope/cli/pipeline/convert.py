"""``mqttscope pipeline convert``: a lake of an earlier release gets Delta tables."""

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

Reports and questions read a lake of an earlier release as it is; an ingest needs Delta tables. Exit code 3 when there
is no lake, or it is damaged.
""",
)
def command(given: ConvertOptions) -> int:
    """Make the tables of a lake of an earlier release Delta tables.

    Rows stay as they are, and so do nearly all files. A conversion that is stopped leaves the lake as it was, and can
    be run again.
    """
    with packages_needed("tables need", "lake"):
        from mqttscope.lake.convert import convert_lake
        from mqttscope.lake.manifest import LakeError
    with ErrorTranslation(PipelineFailedError, LakeError, text=printable_reason):
        converted = convert_lake(given.lake)
    done = "has Delta tables now" if converted else "has Delta tables already"
    click.echo(f"{printable(given.lake)} {done}")
    return EXIT_CLEAN

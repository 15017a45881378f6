"""``mqttscope pipeline``: captures as tables, and what to do with them; one file per command."""

from __future__ import annotations

import click

from mqttscope.cli.main import LazyGroup

COMMANDS: dict[str, tuple[str, str]] = {
    "ingest": ("mqttscope.cli.pipeline.ingest:command", "Take captures into a lake, in process or with Spark."),
    "watch": ("mqttscope.cli.pipeline.watch:command", "Follow captures while they are written."),
    "report": ("mqttscope.cli.pipeline.report:command", "Report on the health of a fleet, from its lake."),
    "convert": ("mqttscope.cli.pipeline.convert:command", "Make the tables of an older lake Delta tables."),
    "sql": ("mqttscope.cli.pipeline.sql:command", "Query the tables of a lake with SQL."),
}
"""Command name -> its place in the notation of entry points, and its line in the overview."""


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    epilog="""\b
Examples:
  mqttscope pipeline ingest 'captures/*.pcapng' --lake lake
  mqttscope pipeline ingest s3://bucket/site-a/ --lake /shared/lake --master spark://host:7077
  mqttscope pipeline watch captures --lake lake
  mqttscope pipeline report --lake lake --format html --output fleet.html
""",
)
def command() -> None:
    """Build tables from collections of captures.

    A lake is a folder of Delta tables: packets, messages, connections, sessions, findings, topics, clients.
    """

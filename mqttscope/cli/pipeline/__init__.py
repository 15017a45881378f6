"""``mqttscope pipeline``: captures as tables, and commands on them; one file per command."""

from __future__ import annotations

import click

from mqttscope.cli.main import LazyGroup

COMMANDS: dict[str, tuple[str, str]] = {
    "ingest": ("mqttscope.cli.pipeline.ingest:command", "Add captures to a lake, in this process or with Spark."),
    "watch": ("mqttscope.cli.pipeline.watch:command", "Ingest captures while they are being written."),
    "report": ("mqttscope.cli.pipeline.report:command", "Report on the health of a fleet, from its lake."),
    "convert": ("mqttscope.cli.pipeline.convert:command", "Convert the tables of an older lake to Delta."),
    "rebuild": ("mqttscope.cli.pipeline.rebuild:rebuild_command", "Read all captures of a lake again."),
    "relint": ("mqttscope.cli.pipeline.rebuild:relint_command", "Make the findings of a lake again."),
    "forget": ("mqttscope.cli.pipeline.forget:command", "Erase clients and users from a lake."),
    "expire": ("mqttscope.cli.pipeline.expire:command", "Erase old rows from a lake."),
    "sql": ("mqttscope.cli.pipeline.sql:command", "Query the tables of a lake with SQL."),
}
"""Command name -> entry point and line in the overview."""


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

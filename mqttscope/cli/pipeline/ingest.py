"""``mqttscope pipeline ingest``: add captures to a lake."""

from __future__ import annotations

from mqttscope.cli.command import make_command
from mqttscope.cli.pipeline.ingesting import IngestOptions, IngestRun


@make_command(
    IngestOptions,
    epilog="""\b
Examples:
  mqttscope pipeline ingest 'captures/*.pcapng' --lake lake --payload-limit 1024
  mqttscope pipeline ingest s3://bucket/a/ --fs region=eu-central-1 --lake /shared/lake --group a
  mqttscope pipeline ingest s3://bucket/b/ --lake s3://bucket/lake --fs region=eu-central-1
  mqttscope pipeline ingest /captures --lake lake --master 'local[4]' --conf spark.driver.memory=4g

Any engine that reads Delta can read a lake; docs/lake.md lists the columns. Exit code 3 when a
capture could not be read to its end, a rule failed, or nothing could be done.
""",
)
def command(args: IngestOptions) -> int:
    """Add captures to a lake: decode and lint them, and write all tables.

    SRC is a file, a glob, a directory, or a URI such as s3://bucket/folder/. Captures already in the lake are skipped.
    A connection may span several ingests.
    """
    return IngestRun(args).execute()

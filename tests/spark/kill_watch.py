"""A watch that is meant to be killed.  It runs on a Java that another process has started and that outlives it."""

from __future__ import annotations

import sys
from pathlib import Path

from mqttscope.cli.options import ConfigurationOptions, RuleOptions
from mqttscope.cli.pipeline.common import RowOptions
from mqttscope.lake.options import LakeOptions

ARGUMENTS = ("--select", "ALL", "--payload-limit", "65536", "--no-config")
"""The same on the command line."""


def options() -> LakeOptions:
    """All rules, all payloads."""
    everything = RuleOptions(select=("ALL",))
    return RowOptions(rules=everything, payload_limit=65536, configuration=ConfigurationOptions(no_config=True)).lake()


def main(folder: str, lake: str, how: str) -> None:
    """Watch until killed, or once."""
    from pyspark.java_gateway import launch_gateway

    from mqttscope.spark.session import spark_session
    from mqttscope.spark.watch import watch

    # What the one before has left: with its own Java it would have ended with it.
    jvm = launch_gateway().jvm  # type: ignore[no-untyped-call]
    left = jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession()
    if left.isDefined():
        left.get().stop()
    watch(
        spark_session(), [folder], Path(lake), options(), interval_s=0.1, once=how == "once", max_bytes=9000,
        quiet_seconds=3600,
    )  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])

"""What is run on a cluster, as a program: ``cluster_job.py ROOT SETTINGS``; prints what it found as JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(settings: dict[str, Any]) -> dict[str, Any]:
    """Take captures into lakes, look at what is missing, and be interrupted."""
    from mqttscope.spark.distribute import ship
    from mqttscope.spark.ingest import ingest
    from mqttscope.spark.session import spark_session
    from tests.lake.reading import options

    # Who starts the tests in the background has them ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    spark = spark_session(configuration=settings["configuration"])
    document: dict[str, Any] = {"shipped": [ship(spark), ship(spark)], "paths": paths(spark), "rows": []}
    for row in settings["ingests"]:
        done = ingest(
            spark, row["sources"], row["lake"], options(), split_bytes=4000, settings=row["settings"], partitions=2
        )
        document["rows"].append(done.rows)
    document["missing"] = missing(spark)
    document["interrupted_s"] = interrupted(spark)
    return document


def paths(spark: SparkSession) -> list[str]:
    """Where executors have a module of the package from."""
    from pyspark.sql.functions import udf

    def where(_: int) -> str:
        from mqttscope.mqtt import codec

        return str(codec.__file__)

    return sorted({row[0] for row in spark.range(0, 4, 1, 4).select(udf(where)("id")).collect()})


def missing(spark: SparkSession) -> str:
    """What is said when executors lack a package."""
    from mqttscope.spark.distribute import NEEDED, examine
    from mqttscope.spark.session import SparkUnavailableError

    try:
        examine(spark, (*NEEDED, "no_such_package"))
    except SparkUnavailableError as error:
        return str(error)
    return ""


def interrupted(spark: SparkSession) -> float:
    """Press Ctrl-C while all executors are busy for minutes; returns the seconds until they can be used again."""
    from pyspark.sql.functions import udf

    from mqttscope.spark.session import cancelling

    def sleep(_: int) -> str:
        time.sleep(300)
        return ""

    began = 0.0

    def press() -> None:
        nonlocal began
        began = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Timer(2, press).start()
    try:
        with cancelling(spark):
            spark.range(0, 4, 1, 4).select(udf(sleep)("id")).collect()
    except KeyboardInterrupt:
        spark.range(0, 2, 1, 2).collect()
    return time.monotonic() - began


if __name__ == "__main__":
    # Not by the environment, which Java and what it starts would inherit.
    sys.path[0] = sys.argv[1]
    sys.stdout.write(json.dumps(main(json.loads(sys.argv[2]))))

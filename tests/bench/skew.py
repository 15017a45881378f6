"""Skewed traffic on Spark: how long the longest task of each stage takes, beside all of them together.

One server has nearly all of the traffic, and one of its clients a large part of that.  What one key holds is one task,
so that this is what more cores do not make faster.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path

from mqttscope.lake.options import LakeOptions
from mqttscope.lint.catalogue import select
from mqttscope.lint.context import WIDE
from mqttscope.lint.finding import Scope
from mqttscope.lint.rule import Rule
from tests.bench.frames import Link, link, writing
from tests.bench.generate import Traffic, TrafficMix
from tests.bench.printing import Out, heading, row
from tests.lake.parts import frames_of

FRAMES = 100_000
CORES = 2
TASKS = 8
"""Into so many tasks the flows go: more than there are cores, so that they could be shared out evenly."""
SERVER = 0.93
"""The share of one server in the devices: with its large client it has 95 % of the frames."""
CLIENT = 0.21
"""The share of one client in the exchanges; it has 30 % of the frames."""
_TELLING = re.compile(r"BatchScan .*|InMemoryTableScan|MapInArrow|Scan parquet.*|Window|Union|ObjectHashAggregate")
"""What tells a stage: the second one that has MapInArrow runs the wide rules."""
_SHORT_MS = 300
"""Stages that take less together are not worth a line."""


class SkewedTraffic(Traffic):
    """One client of one server has the first share, and the other clients mostly talk to this server as well."""

    def link(self, number: int) -> Link:
        """Where the next connection of a device runs."""
        others = int(len(self.devices) * (1 - SERVER))
        # The first device is the client that has so much.
        server = 3 + number % 4 if 0 < number <= others else 2
        pair = IPv4Address((10 << 24) + 256 + number).packed, IPv4Address(10 << 24 | server).packed
        ports = self.random.randint(32_768, 60_999), 1883
        return link(4, pair, ports, 0, (self.random.getrandbits(32), self.random.getrandbits(32)))


def generate(path: Path, frames: int, devices: int = 1_000) -> None:
    """Write a capture of that many frames."""
    with writing(path) as writer:
        SkewedTraffic(writer, 1, devices, TrafficMix(giant=CLIENT)).run(frames)


def shares(path: Path) -> tuple[float, float]:
    """The shares of the first server and of the first client in the frames of a capture."""
    server, client = IPv4Address(10 << 24 | 2).packed, IPv4Address((10 << 24) + 256).packed
    frames = [frame.data[26:34] for frame in frames_of(path)]
    durations = [sum(raw in (pair[:4], pair[4:]) for pair in frames) / len(frames) for raw in (server, client)]
    return durations[0], durations[1]


@dataclass(slots=True)
class Stage:
    """What the tasks of a stage took."""

    name: str = ""
    milliseconds: list[int] = field(default_factory=list)
    """Of each task: how long the executor worked on it, by the clock."""


def stages(log: Path) -> list[Stage]:
    """The stages of a log of events that take long enough, in their order."""
    actual_stages: defaultdict[int, Stage] = defaultdict(Stage)
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerTaskEnd" and event["Task End Reason"]["Reason"] == "Success":
            actual_stages[event["Stage ID"]].milliseconds.append(event["Task Metrics"]["Executor Run Time"])
        elif event["Event"] == "SparkListenerStageCompleted":
            info = event["Stage Info"]
            parts = {json.loads(row["Scope"])["name"] for row in info["RDD Info"] if "Scope" in row}
            actual_stages[info["Stage ID"]].name = ", ".join(sorted(part for part in parts if _TELLING.fullmatch(part)))
    return [stage for _, stage in sorted(actual_stages.items()) if sum(stage.milliseconds) >= _SHORT_MS]


def ingest(capture: Path, folder: Path, rules: Iterable[Rule]) -> list[Stage]:
    """Ingest into a new lake; returns the stages."""
    from mqttscope.spark.ingest import ingest as with_spark
    from mqttscope.spark.session import spark_session

    log = folder / "events"
    log.mkdir(parents=True)
    configuration = {
        "spark.master": f"local[{CORES}]", "spark.eventLog.enabled": "true", "spark.eventLog.dir": log.as_uri(),
        "spark.eventLog.rolling.enabled": "false", "spark.eventLog.compress": "false",
        "spark.driver.memory": "1g",
    }  # fmt: skip
    spark = spark_session(configuration=configuration)
    try:
        size = os.path.getsize(capture)
        with_spark(
            spark, [str(capture)], folder / "lake", LakeOptions(rules=tuple(rules)), partitions=TASKS,
            split_bytes=size // TASKS,
        )  # fmt: skip
    finally:
        spark.stop()
    (written,) = log.iterdir()
    return stages(written)


def measure(out: Out, frames: Sequence[int] = (FRAMES,)) -> None:
    """Print a table of stages for all rules, without those of broker scope, and without all that look beyond one
    connection."""
    rules = [rule() for rule in select().values()]
    ways = {
        "all rules": rules,
        "no rules of broker scope": [rule for rule in rules if rule.scope is not Scope.BROKER],
        "no wide rules": [rule for rule in rules if rule.scope not in WIDE],
    }
    with tempfile.TemporaryDirectory(prefix="mqttscope-skew-") as text:
        capture = Path(text) / "skewed.pcapng"
        generate(capture, frames[0])
        server, client = shares(capture)
        out(
            f"{frames[0]:,} frames, {capture.stat().st_size / 1e6:.0f} MB: {server:.0%} of them of one server, "
            f"{client:.0%} of one client; {CORES} cores, {TASKS} tasks"
        )
        for name, chosen in ways.items():
            out("")
            heading(out, name, "tasks", "longest s", "all s", "longest/all")
            for stage in ingest(capture, Path(text) / name.replace(" ", "-"), chosen):
                longest, total = max(stage.milliseconds) / 1e3, sum(stage.milliseconds) / 1e3
                figures = f"{longest:.1f}", f"{total:.1f}", f"{longest / total:.0%}"
                row(out, stage.name, str(len(stage.milliseconds)), *figures)

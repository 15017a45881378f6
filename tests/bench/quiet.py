"""``mqttscope pipeline watch`` of a quiet stream: what a batch of few frames costs with many connections open.

Every connection subscribes and publishes once; then a few of them ping, batch after batch.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, BinaryIO

from mqttscope.cli.pipeline.common import RowOptions
from mqttscope.lint.finding import Scope
from tests.bench.devices import PINGREQ, PINGRESP, device, payloads
from tests.bench.frames import START_NS, Link, Writer, link
from tests.bench.pipeline import Tree
from tests.bench.printing import Out, heading, row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mqttscope.lake.options import LakeOptions

CONNECTIONS = (5_000, 50_000)
BATCHES = 8
FEW = 3
"""Connections that ping in a quiet batch."""
_STEP_NS = 20_000
_PAUSE_NS = 100_000_000
"""Short enough that no rule asks about the others in between."""


class Crowd:
    """Connections that stay open, and the capture that has them."""

    def __init__(self, file: BinaryIO, connections: int) -> None:
        self._random = Random(7)
        self._file = file
        self._writer = Writer(file, START_NS)
        self._writer.start()
        self._links: list[Link] = []
        bodies = payloads(self._random)
        for number in range(connections):
            self._open(number, bodies[number % len(bodies)])
        self.flush()

    def ping(self, count: int = FEW) -> None:
        """Some of them ping, and the server answers."""
        self._writer.now_ns += _PAUSE_NS
        for number in range(count):
            for side, packet in enumerate((PINGREQ, PINGRESP)):
                self._writer.data(self._links[number * 17 % len(self._links)], side, packet, _STEP_NS)
        self.flush()

    def flush(self) -> None:
        """Bring it to the file."""
        self._writer.flush()
        self._file.flush()

    def _open(self, number: int, body: bytes) -> None:
        other_device = device(number, self._random)
        client = bytes((10, 1 + number // 65_536, number >> 8 & 255, number & 255))
        new_link = link(
            4, (client, b"\x0a\xfa\0\x01"), (20_000 + number % 40_000, 1883), 0, (number * 977, number * 1_013)
        )
        self._writer.handshake(new_link, _STEP_NS)
        self._links.append(new_link)
        opening = (
            other_device.connect(clean=True),
            other_device.connack(present=False),
            *other_device.subscribe(),
            other_device.publish(0, b"", body, 0.9),
        )
        for number, packet in enumerate(opening):
            self._writer.data(new_link, number % 2, packet, _STEP_NS)


@dataclass(slots=True)
class Costs:
    """What batches took, one after the other."""

    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    """Seconds of all processes."""
    written: list[int] = field(default_factory=list)
    """Bytes of files that are new or longer."""


def measure(out: Out, connections: int = 0, batches: int = BATCHES) -> None:
    """Print a table of both, of one number of connections or of the usual ones."""
    from mqttscope.spark.session import spark_session

    spark = spark_session(configuration={"spark.master": "local[2]", "spark.driver.memory": "1g"})
    heading(out, "open connections", "rules", "batch", "seconds", "processor s", "KB written", texts=3)
    everything = RowOptions().lake()
    within = replace(everything, rules=tuple(rule for rule in everything.rules if rule.scope is not Scope.BROKER))
    for count in (connections,) if connections else CONNECTIONS:
        for rules, options in (("without those of servers", within), ("all", everything)):
            costs = follow(spark, count, batches, options)
            # The second batch takes those that speak out of the files of all others.
            rows = [("first", 0, 1), ("second", 1, 2), ("third and later, median", 2, len(costs.seconds))]
            for name, begin, end in rows:
                values = [statistics.median(row[begin:end]) for row in (costs.seconds, costs.processor, costs.written)]
                figures = f"{values[0]:.1f}", f"{values[1]:.1f}", f"{values[2] / 1_000:,.0f}"
                row(out, f"{count:,}", rules, name, *figures)
    spark.stop()


def follow(spark: SparkSession, connections: int, batches: int, options: LakeOptions) -> Costs:
    """Watch a capture grow, batch by batch."""
    from mqttscope.spark.watch import watch

    costs, semaphore, over = Costs(), threading.Semaphore(0), threading.Event()
    with tempfile.TemporaryDirectory(prefix="mqttscope-watch-") as folder:
        captures, lake = Path(folder, "captures"), Path(folder, "lake")
        captures.mkdir()
        with (captures / "tap.pcapng").open("wb") as file:
            crowd = Crowd(file, connections)
            run = threading.Thread(
                target=watch, args=(spark, [str(captures)], lake, options),
                kwargs={"interval_s": 0.1, "tell": lambda _: semaphore.release(), "over": over, "max_bytes": None},
            )  # fmt: skip
            tree, sizes = Tree(), dict[str, int]()
            tree.look(os.getpid())
            for number in range(batches + 1):
                before, began = tree.processor, time.monotonic()
                if number:
                    crowd.ping()
                else:
                    run.start()
                while not semaphore.acquire(timeout=0.2):
                    if not run.is_alive():
                        return costs
                costs.seconds.append(time.monotonic() - began)
                tree.look(os.getpid())
                costs.processor.append(tree.processor - before)
                now = sizes_in(lake)
                costs.written.append(sum(size - sizes.get(name, 0) for name, size in now.items()))
                sizes = now
            over.set()
            run.join()
    return costs


def sizes_in(folder: Path) -> dict[str, int]:
    """Bytes of each file; what is replaced counts as new."""
    counts = {}
    for path in folder.rglob("*"):
        if path.is_file():
            status = path.stat()
            counts[f"{path}:{status.st_ino}"] = status.st_size
    return counts

"""Row by row: what the pipeline makes of a capture is what one process makes of it.

In one file or many, in any order, in ranges of any length, in one go or as a stream; and that is what ``inspect`` and
``lint`` print.  With a million frames where everything is tried (or as many as MQTTSCOPE_MILLION_FRAMES says), else
with few.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")

from mqttscope.lake.writer import read_table, write_lake
from mqttscope.spark.ingest import ingest
from mqttscope.spark.watch import watch
from tests.cli.running import invoke
from tests.conftest import EXHAUSTIVE
from tests.lake.reading import options
from tests.spark.busy import busy_capture, rotated
from tests.spark.growth import PAST
from tests.spark.same import same_as_printed, same_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FRAMES = int(os.environ.get("MQTTSCOPE_MILLION_FRAMES", 1_000_000 if EXHAUSTIVE else 8_000))
PAYLOAD_LIMIT = 256
LARGE = pytest.mark.exhaustive, pytest.mark.timeout(4 * 3600)


@dataclass(slots=True)
class Collection:
    """A capture in so many files, and the lake that one process makes of it."""

    files: list[str]
    lake: Path


@pytest.fixture(scope="module")
def collections(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Collection]:
    """One capture in 1, 3 and 50 files, made where they are asked for."""
    folder = tmp_path_factory.mktemp("busy")
    return _Made(folder, busy_capture(folder, FRAMES, seed=5))


class _Made(dict[int, Collection]):
    def __init__(self, folder: Path, whole: Path) -> None:
        super().__init__()
        self.folder, self.whole = folder, whole

    def __missing__(self, count: int) -> Collection:
        files = [str(self.whole)] if count == 1 else rotated(self.whole, self.folder / str(count), count, FRAMES)
        for name in files:
            os.utime(name, (PAST, PAST))
        made = self[count] = Collection(files, self.folder / f"lake-{count}")
        write_lake(files, made.lake, options(payload_limit=PAYLOAD_LIMIT))
        return made


@pytest.mark.parametrize(
    ("count", "split_bytes", "partitions"),
    [
        pytest.param(1, None, None, marks=LARGE),
        pytest.param(1, 999_983, 7, marks=LARGE),
        (3, 300_007, 3),
        pytest.param(3, None, None, marks=LARGE),
        pytest.param(50, None, None, marks=LARGE),
        pytest.param(50, 1_000_003, 5, marks=LARGE),
    ],
)
def test_ingest(
    spark: SparkSession,
    collections: dict[int, Collection],
    tmp_path: Path,
    count: int,
    split_bytes: int | None,
    partitions: int | None,
) -> None:
    one = collections[count]
    shuffled = random.Random(count).sample(one.files, count)
    given = options(payload_limit=PAYLOAD_LIMIT)
    ingest(spark, shuffled, tmp_path / "lake", given, split_bytes=split_bytes, partitions=partitions)

    rows = same_tables(tmp_path / "lake", one.lake)
    assert rows["packets"] > FRAMES // 2
    found = read_table(tmp_path / "lake", "findings", ["scope", "rule"])
    assert set(found["scope"].to_pylist()) == {"connection", "session", "broker"}


@pytest.mark.parametrize(
    ("count", "max_bytes"),
    [(3, FRAMES * 75), pytest.param(3, None, marks=LARGE), pytest.param(50, FRAMES * 20, marks=LARGE)],
)
def test_watch(
    spark: SparkSession, collections: dict[int, Collection], tmp_path: Path, count: int, max_bytes: int | None
) -> None:
    one = collections[count]
    given = options(payload_limit=PAYLOAD_LIMIT)
    watch(spark, one.files, tmp_path / "lake", given, once=True, max_bytes=max_bytes)

    same_tables(tmp_path / "lake", one.lake)


@pytest.mark.exhaustive
def test_cuts_make_no_difference(collections: dict[int, Collection]) -> None:
    """Where in a file something was is all that differs."""
    for count in (3, 50):
        same_tables(collections[count].lake, collections[1].lake, places=False)


@pytest.mark.slow
@pytest.mark.parametrize("count", [pytest.param(1, marks=LARGE), 3, pytest.param(50, marks=LARGE)])
def test_printed(collections: dict[int, Collection], count: int) -> None:
    """The tables are those of the pipeline, as the other tests show."""
    one = collections[count]
    packets, findings = same_as_printed(one.lake, one.files, PAYLOAD_LIMIT)

    assert packets > FRAMES // 2
    assert findings > FRAMES // 200


@pytest.mark.exhaustive
@pytest.mark.usefixtures("spark")
def test_lint(collections: dict[int, Collection]) -> None:
    """With Spark it prints the same bytes."""
    words = "lint", *collections[1].files, "--format", "jsonl", "--select", "ALL", "--no-config"
    here, there = invoke(*words), invoke(*words, "--engine", "spark")

    # Not one large difference, which would take hours to show.
    one, other = there.out.splitlines(), here.out.splitlines()
    assert next(((given, wanted) for given, wanted in zip(one, other, strict=False) if given != wanted), None) is None
    assert (len(one), there.code, there.err) == (len(other), here.code, here.err)

"""Folders that grow, and what a stream reads of them, without Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from mqttscope.spark.rows import COLUMNS
from mqttscope.spark.source import MqttCapture, StreamReader
from tests.spark.expected import all_of

PAST = 1_700_000_000
"""A time so long ago that what was written then is complete."""


def put(path: Path, content: bytes, *, quiet: bool = False) -> None:
    """Write a file as a capture tool does: bytes are added, the file stays."""
    with path.open("ab") as file:
        file.write(content[file.tell() :])
    if quiet:
        os.utime(path, (PAST, PAST))


def reader(*sources: Path | str, **options: str) -> StreamReader:
    """The reader of a stream, as Spark makes it."""
    source = MqttCapture({"paths": json.dumps([str(path) for path in sources]), **options})
    data_source_stream_reader = source.streamReader(schema())
    assert isinstance(data_source_stream_reader, StreamReader)
    return data_source_stream_reader


def schema() -> StructType:
    """All columns; making types of their names takes a session."""
    plain = {
        "string": StringType(), "int": IntegerType(), "bigint": LongType(), "binary": BinaryType(),
        "boolean": BooleanType(),
    }  # fmt: skip
    fields = []
    for name, kind in COLUMNS.items():
        if kind.startswith("struct"):
            parts = [part.split(":") for part in kind[7:-1].split(",")]
            fields.append(StructField(name, StructType([StructField(part, plain[of]) for part, of in parts])))
        else:
            fields.append(StructField(name, plain[kind]))
    return StructType(fields)


class Stream:
    """What Spark does with a reader; each step has a reader of its own, as after a crash."""

    def __init__(self, *sources: Path | str, limit: int | None = None, **options: str) -> None:
        self.sources, self.options = sources, options
        self.limit: ReadLimit = ReadAllAvailable() if limit is None else ReadMaxBytes(limit)
        self.offset = json.dumps(self.reader().initialOffset())
        self.batches: list[tuple[str, str]] = []

    def reader(self) -> StreamReader:
        return reader(*self.sources, **self.options)

    def step(self) -> list[dict[str, Any]]:
        """The rows of the next batch; none where there is no batch."""
        end = json.dumps(self.reader().latestOffset(json.loads(self.offset), self.limit))
        if end == self.offset:
            return []
        self.batches.append((self.offset, end))
        self.offset = end
        return self.rows(*self.batches[-1])

    def rows(self, start: str, end: str) -> list[dict[str, Any]]:
        """The rows between two offsets."""
        stream_reader = self.reader()
        parts: Sequence[InputPartition] = stream_reader.partitions(json.loads(start), json.loads(end))
        return [row for part in parts for row in all_of(stream_reader.read(part))]

    def all(self) -> list[dict[str, Any]]:
        """The rows of all batches until there is none."""
        documents: list[dict[str, Any]] = []
        while some := self.step():
            documents += some
        return documents


def batch_rows(*sources: Path | str) -> list[dict[str, Any]]:
    """The rows of the batch source."""
    source = MqttCapture({"paths": json.dumps([str(path) for path in sources])})
    data_source_reader = source.reader(schema())
    return [row for part in data_source_reader.partitions() for row in all_of(data_source_reader.read(part))]


def comparable(rows: list[dict[str, Any]]) -> tuple[list[str], dict[tuple[str, str], int]]:
    """Rows in an order of their own, without their files' places; frames that were skipped are counted together.

    How far time had come (``clock_ns``, and the time of drops) is told as far as what was read in one go.
    """
    skipped: dict[tuple[str, str], int] = {}
    others = []
    for row in rows:
        if row["kind"] == "skipped":
            key = row["capture"], row["message"]
            skipped[key] = skipped.get(key, 0) + row["count"]
        elif row["kind"] not in ("read", "summary"):
            passed = {"file", "clock_ns"} | ({"timestamp_ns"} if row["kind"] == "drops" else set())
            others.append(repr({name: value for name, value in row.items() if name not in passed}))
    return sorted(others), skipped

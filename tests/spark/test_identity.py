"""Captures are told apart by their bytes."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import pytest

from tests import tools

tools.package("pyspark")

from mqttscope.capture.fingerprint import HEAD_BYTES, KnownFingerprints
from mqttscope.capture.locations import Location
from mqttscope.spark import ingest as module
from mqttscope.spark.ingest import Looked, look, tell_apart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def locations(folder: Path) -> list[Location]:
    for name in "abc":
        (folder / name).write_bytes(name.encode() * 3_000_000)
    (folder / "copy").write_bytes((folder / "b").read_bytes())
    made = [Location(name, str(folder / name), 3_000_000) for name in ("a", "b", "copy", "none", "c")]
    return [*made, Location("faulty", "faulty", fault="is a directory without captures")]


def test_executors_read_what_is_much(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = locations(tmp_path)[:-1]
    known = KnownFingerprints.of({sha256(b"b" * 1_000_000).hexdigest(): [1_000_000, crc32(b"b" * HEAD_BYTES)]})
    here = look(spark, found, {}, known)
    monkeypatch.setattr(module, "HERE_BYTES", 1)
    monkeypatch.setattr(module, "TASK_BYTES", 4_000_000)

    assert look(spark, found, {}, known) == here
    of_a = sha256(b"a" * 3_000_000).hexdigest()
    assert here[0] == Looked(of_a, of_a, 3_000_000, crc32(b"a" * HEAD_BYTES))
    assert here[3] == Looked(fault="does not exist")


def test_what_is_new_known_and_faulty(tmp_path: Path) -> None:
    known = sha256(b"c" * 3_000_000).hexdigest()
    # Few bytes on this machine need no session.
    found = tell_apart(None, locations(tmp_path), {known: "c"}, {})  # type: ignore[arg-type]

    assert [one.name for one in found.fresh.values()] == ["a", "b"]
    assert [name for name, _ in found.known] == ["copy", "c"]
    assert found.known[1][1] == known
    assert found.faults == {"faulty": "is a directory without captures", "none": "does not exist"}

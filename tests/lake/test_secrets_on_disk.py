"""A lake on disk, searched byte by byte: no file has a secret in it, packed or unpacked, whatever it was made of."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests import tools

tools.package("pyarrow")

import pyarrow.parquet as pq

from mqttscope.dissect import Options
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.state import load
from mqttscope.lake.writer import write_lake
from mqttscope.net.segment import Segment
from tests.dissect.secure import write
from tests.dissect.talk import Tape
from tests.each import some
from tests.lake.reading import all_of_them
from tests.lake.test_public import SCENES, _flat_state, talk
from tests.secrets.leaks import Secrets
from tests.secrets.mutants import Mutant, Scene, mutant
from tests.secrets.sinks import _flat
from tests.secrets.splices import splice
from tests.secrets.test_fuzz import says

SOME = 12
"""Mutants of each of the two kinds."""


def contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file of a folder as it is, and what is packed in it."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        name, data = str(path.relative_to(folder)), path.read_bytes()
        yield name, name.encode() + b"\n" + data
        if data[:2] == b"\x1f\x8b":
            yield f"{name} unpacked", gzip.decompress(data)
        if data[:4] == b"PAR1":
            yield f"{name} columns", b"\n".join(_columns(path))


def _columns(path: Path) -> Iterator[bytes]:
    """The values of all columns, those of states inflated and read."""
    parts: list[bytes] = []
    for column in pq.read_table(path).columns:
        for value in column.to_pylist():
            _flat(value, parts)
            if not isinstance(value, bytes):
                continue
            parts += [zlib.decompress(value[at + 1 :]) for at in (0, 9) if value[at : at + 1] == b"z"]
            try:
                _flat_state(load(value), parts, set())
            except Exception:
                continue
    return iter(parts)


def lake_of(segments: list[Segment], folder: Path, stops: tuple[int, ...]) -> Path:
    """A lake that took a capture in several ingests, the last connection still open at the end of each."""
    lake, given = folder / "lake", LakeOptions(Options(ports={8080: "ws"}), rules=all_of_them())
    edges = [0, *sorted({min(len(segments), one) for one in stops}), len(segments)]
    for number, (start, stop) in enumerate(pairwise(edges)):
        if start == stop:
            continue
        tape = Tape()
        tape.segments = segments[start:stop]
        write_lake([write(tape, folder / f"{number}.pcapng")], lake, given)
    return lake


def leaks(lake: Path, secrets: Secrets) -> list[str]:
    return [f"{name}: {found}" for name, data in contents(lake) if (found := secrets.leak(data)) is not None]


@pytest.mark.parametrize("scene", some(SCENES, 3), ids=lambda scene: scene.name)
def test_no_file_holds_a_secret(scene: Scene, tmp_path: Path) -> None:
    found = talk(scene, 60)
    assert leaks(lake_of(found, tmp_path, (4, 6)), Secrets(scene.secrets)) == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SOME))
@pytest.mark.parametrize("kind", [mutant, splice], ids=["mutant", "splice"])
def test_no_file_holds_a_secret_of_what_is_damaged(kind: object, seed: int, tmp_path: Path) -> None:
    made: Mutant = kind(seed + 400)  # type: ignore[operator]
    secrets = Secrets(made.scene.secrets)
    found = leaks(lake_of(made.segments, tmp_path, (len(made.segments) // 2,)), secrets)
    assert found == [] or says(made, secrets), made.name


def test_the_search_finds_what_is_kept_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttscope.lake.kernel.PUBLIC", None)
    monkeypatch.setattr("mqttscope.lake.kernel.forget_secrets", lambda flow: None)
    found = talk(SCENES[0], 60)
    assert leaks(lake_of(found, tmp_path, (5,)), Secrets(SCENES[0].secrets)) != []

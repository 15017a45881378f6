"""Contents are told apart by what captures begin with, and by all of their bytes before they count as the same."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from mqttscope.capture.memory import Memory
from mqttscope.spark.contents import CHECK_BYTES, Contents, begins_with, checks
from mqttscope.spark.offsets import Followed


def test_checks_tell_contents_apart() -> None:
    content = bytes(range(256)) * 20

    assert checks(io.BytesIO(content), 5000) == checks(io.BytesIO(content + b"more"), 5000)
    assert checks(io.BytesIO(content), 5000)[0] == checks(io.BytesIO(content), 4999)[0]
    assert checks(io.BytesIO(content), 5000)[1] != checks(io.BytesIO(content), 4999)[1]
    assert checks(io.BytesIO(b""), 0) == (0, 0)


@pytest.mark.parametrize("position", [1, 511, 512, 513, 5_000, 200_000])
def test_what_a_compressed_file_begins_with(position: int, tmp_path: Path) -> None:
    content = bytes(number * number % 251 for number in range(200_000))
    (tmp_path / "a.gz").write_bytes(gzip.compress(content))
    head, tail = checks(io.BytesIO(content), position)
    one = Followed(0, "a", Memory(position), head, tail)

    assert begins_with(str(tmp_path / "a.gz"), one)
    one.tail ^= 1
    assert not begins_with(str(tmp_path / "a.gz"), one)
    one.tail ^= 1
    (tmp_path / "a.gz").write_bytes(gzip.compress(content[: position - 1]))
    assert not begins_with(str(tmp_path / "a.gz"), one)


def test_only_what_begins_alike_is_compared(tmp_path: Path) -> None:
    content = b"head" * 200
    (tmp_path / "new").write_bytes(content)
    heads = {position: checks(io.BytesIO(content), position) for position in (100, CHECK_BYTES, 700)}
    known = Contents()
    for file, (position, (head, tail)) in enumerate(heads.items()):
        known.add(Followed(file, f"same-{file}", Memory(position), head, tail))
    known.add(Followed(3, "other", Memory(700), 1, 2))
    known.add(Followed(4, "at that time", first_ns=5.0))
    known.add(Followed(5, "empty", Memory(0)))

    assert sorted(one.file for one in known.alike(str(tmp_path / "new"), 5.0)) == [0, 1, 2, 4]
    assert sorted(one.file for one in known.alike(str(tmp_path / "new"), 6.0)) == [0, 1, 2]

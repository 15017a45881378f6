"""Contents are told apart by what captures begin with, and by all of their bytes before they count as the same."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from mqttscope.capture.pcap import Memory
from mqttscope.lake.contents import content_at
from mqttscope.spark.contents import CHECK_BYTES, Contents, begins_with, checks, content_now
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


def test_the_content_of_what_was_read_is_found_under_whatever_name(tmp_path: Path) -> None:
    path, renamed = tmp_path / "tap.pcap", tmp_path / "tap.pcap.1"
    path.write_bytes(content := bytes(range(256)) * 9)
    with path.open("rb") as file:
        head, tail = checks(file, 2_000)
    expected = content_at(path, 2_100)

    assert content_now(str(path), 2_000, head, tail, 2_100) == expected
    path.rename(renamed)
    path.write_bytes(content[::-1])
    assert content_now(str(path), 2_000, head, tail, 2_100) == expected
    renamed.unlink()
    assert content_now(str(path), 2_000, head, tail, 2_100) is None
    assert content_now(str(tmp_path / "none" / "a.pcap"), 2_000, head, tail, 2_100) is None

"""What is complete, what is the same, what comes first.  What is read of it: test_stream_source.py."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from mqttscope.spark.following import Follower, checks, remembered
from mqttscope.spark.offsets import Offset
from tests.spark.growth import PAST, put
from tests.spark.samples import frames, pcap


def complete(offset: Offset) -> dict[str, bool]:
    return {Path(name).name: one.size is not None for name, one in offset.captures.items()}


def test_what_has_not_changed_for_a_while_is_complete(tmp_path: Path) -> None:
    put(tmp_path / "a.pcap", pcap(frames(2)), quiet=True)
    put(tmp_path / "b.pcap", pcap(frames(2)))

    assert complete(Follower([str(tmp_path)]).step(Offset())) == {"a.pcap": True, "b.pcap": False}
    assert complete(Follower([str(tmp_path)], 0).step(Offset())) == {"a.pcap": True, "b.pcap": True}


@pytest.mark.parametrize(
    ("second", "begins", "expected"),
    [
        ("tap_00002_20260102.pcap", 100, True),
        ("tap_00002_20260102.pcap.gz", 100, False),
        ("tap_00002_20260102.pcap", 0, False),
        ("other_00002.pcap", 100, False),
    ],
)
def test_what_was_followed_by_another_of_its_set_is_complete(
    second: str, begins: int, expected: bool, tmp_path: Path
) -> None:
    put(tmp_path / "tap_00001_20260101.pcap", pcap(frames(5)))
    put(tmp_path / second, pcap(frames(5), seconds=1_700_000_000 + begins))

    found = complete(Follower([str(tmp_path)]).step(Offset()))
    assert found["tap_00001_20260101.pcap"] is (expected or second.endswith(".gz"))


def test_what_has_no_frame_yet_has_no_place(tmp_path: Path) -> None:
    put(tmp_path / "a.pcap", pcap([]))
    put(tmp_path / "b.pcap", pcap(frames(1)))
    follower = Follower([str(tmp_path)])
    first = follower.step(Offset())
    assert [one.file for one in first.captures.values()] == [0]
    assert follower.step(first) is first

    os.utime(tmp_path / "a.pcap", (PAST, PAST))
    assert complete(follower.step(first)) == {"b.pcap": False, "a.pcap": True}


def test_sources_are_folders_globs_and_files(tmp_path: Path) -> None:
    for name in ("in/a.pcap", "in/b.txt", "other/c.pcap", "d.pcap"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        put(tmp_path / name, pcap(frames(1)) if name.endswith("pcap") else b"text")
    sources = [str(tmp_path / "in"), str(tmp_path / "other" / "*"), str(tmp_path / "d.pcap"), str(tmp_path / "none")]

    found = Follower([*sources, str(tmp_path / "in" / "a.pcap")]).step(Offset())
    assert sorted(complete(found)) == ["a.pcap", "c.pcap", "d.pcap"]
    assert Follower([str(tmp_path / "none")]).step(Offset()).captures == {}


def test_checks_tell_contents_apart() -> None:
    content = bytes(range(256)) * 20

    assert checks(io.BytesIO(content), 5000) == checks(io.BytesIO(content + b"more"), 5000)
    assert checks(io.BytesIO(content), 5000)[0] == checks(io.BytesIO(content), 4999)[0]
    assert checks(io.BytesIO(content), 5000)[1] != checks(io.BytesIO(content), 4999)[1]
    assert checks(io.BytesIO(b""), 0) == (0, 0)


def test_what_a_reader_remembers_is_found_again(tmp_path: Path) -> None:
    content = pcap(frames(9))
    put(tmp_path / "a.pcap", content)

    memory = remembered(str(tmp_path / "a.pcap"), 774)
    assert (memory.position, memory.frames, memory.link_types) == (774, 5, [1])

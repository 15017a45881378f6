"""What is complete, what is the same, what comes first, and offsets.  What is read of it: test_stream_source.py."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from mqttscope.capture.fingerprint import CHECK_BYTES, ends_crc, fingerprint_at
from mqttscope.capture.pcap import InterfaceState, ReaderState
from mqttscope.net.frame import Frame
from mqttscope.spark.follower import (
    CaptureFollower,
    CaptureProblem,
    ContentIndex,
    FollowedCapture,
    Offset,
    begins_with,
    content_now,
    reader_state_at,
    tasks,
)
from tests.spark.growth import PAST, put
from tests.spark.samples import frames, pcap


def test_written_and_read_again() -> None:
    memory = ReaderState(900, 7, 1_700_000_000_000_000_000, [1], 0, False, ">", [InterfaceState(1, 0, 1000, 1, 0)])
    offset = Offset(
        {
            "a.pcapng": FollowedCapture(0, "a.pcapng", ReaderState(500, 3), 11, 12, 510),
            "b.pcapng": FollowedCapture(1, "b.pcapng", memory, 1, 2, None, 77, 5),
            "c.gz": FollowedCapture(2, "c.gz", ReaderState(), waiting=9, is_whole=True),
            "d.gz": FollowedCapture(3, "d.gz", ReaderState(20), 3, 4, 20, is_whole=True),
        },
        4,
        [CaptureProblem(9, "e", "has gone", 3, 70)],
        ["d.gz"],
    )  # fmt: skip
    written = json.dumps(offset.as_json())

    again = Offset.of(json.loads(written))
    assert again == offset
    assert list(again.captures) == list(offset.captures)
    assert json.dumps(again.as_json()) == written
    assert offset.captures["b.pcapng"].copy() == offset.captures["b.pcapng"]
    assert Offset.of(Offset().as_json()) == Offset()


def test_names_that_are_no_utf8() -> None:
    names = ("a\udcff.pcap", "b\udcff.pcap")
    offset = Offset(
        {names[0]: FollowedCapture(0, names[0], ReaderState(20), size=20), names[1]: FollowedCapture(1, names[1])}, 2
    )

    assert Offset.of(json.loads(json.dumps(offset.as_json()))) == offset


def test_how_far_a_capture_is() -> None:
    assert FollowedCapture(0, "a", first_ns=5).now_ns == 5
    assert FollowedCapture(0, "a", ReaderState(9, 1, 7), first_ns=5).now_ns == 7


def test_other_versions_are_refused() -> None:
    with pytest.raises(ValueError, match="the offset has version 7, this program reads 1"):
        Offset.of({"version": 7})


def test_checks_tell_contents_apart() -> None:
    content = bytes(range(256)) * 20

    assert ends_crc(io.BytesIO(content), 5000) == ends_crc(io.BytesIO(content + b"more"), 5000)
    assert ends_crc(io.BytesIO(content), 5000)[0] == ends_crc(io.BytesIO(content), 4999)[0]
    assert ends_crc(io.BytesIO(content), 5000)[1] != ends_crc(io.BytesIO(content), 4999)[1]
    assert ends_crc(io.BytesIO(b""), 0) == (0, 0)


@pytest.mark.parametrize("position", [1, 511, 512, 513, 5_000, 200_000])
def test_what_a_compressed_file_begins_with(position: int, tmp_path: Path) -> None:
    content = bytes(number * number % 251 for number in range(200_000))
    (tmp_path / "a.gz").write_bytes(gzip.compress(content))
    head, tail = ends_crc(io.BytesIO(content), position)
    capture = FollowedCapture(0, "a", ReaderState(position), head, tail)

    assert begins_with(str(tmp_path / "a.gz"), capture)
    capture.tail ^= 1
    assert not begins_with(str(tmp_path / "a.gz"), capture)
    capture.tail ^= 1
    (tmp_path / "a.gz").write_bytes(gzip.compress(content[: position - 1]))
    assert not begins_with(str(tmp_path / "a.gz"), capture)


def test_only_what_begins_alike_is_compared(tmp_path: Path) -> None:
    content = b"head" * 200
    (tmp_path / "new").write_bytes(content)
    heads = {position: ends_crc(io.BytesIO(content), position) for position in (100, CHECK_BYTES, 700)}
    known = ContentIndex()
    for file, (position, (head, tail)) in enumerate(heads.items()):
        known.add(FollowedCapture(file, f"same-{file}", ReaderState(position), head, tail))
    known.add(FollowedCapture(3, "other", ReaderState(700), 1, 2))
    known.add(FollowedCapture(4, "at that time", first_ns=5.0))
    known.add(FollowedCapture(5, "empty", ReaderState(0)))

    assert sorted(capture.file for capture in known.alike(str(tmp_path / "new"), 5.0)) == [0, 1, 2, 4]
    assert sorted(capture.file for capture in known.alike(str(tmp_path / "new"), 6.0)) == [0, 1, 2]


def test_the_content_of_what_was_read_is_found_under_whatever_name(tmp_path: Path) -> None:
    path, renamed = tmp_path / "tap.pcap", tmp_path / "tap.pcap.1"
    path.write_bytes(content := bytes(range(256)) * 9)
    with path.open("rb") as file:
        head, tail = ends_crc(file, 2_000)
    expected = fingerprint_at(path, 2_100)

    assert content_now(str(path), 2_000, head, tail, 2_100) == expected
    path.rename(renamed)
    path.write_bytes(content[::-1])
    assert content_now(str(path), 2_000, head, tail, 2_100) == expected
    renamed.unlink()
    assert content_now(str(path), 2_000, head, tail, 2_100) is None
    assert content_now(str(tmp_path / "none" / "a.pcap"), 2_000, head, tail, 2_100) is None


def test_tasks_between_two_offsets(follower: CaptureFollower, tmp_path: Path) -> None:
    content = pcap(frames(9))
    put(tmp_path / "a.pcap", content[:800])
    put(tmp_path / "b.pcap", pcap(frames(2)), quiet=True)
    start = Offset()
    middle = follower.step(start)
    put(tmp_path / "a.pcap", content)
    end = follower.step(middle)

    first, second = tasks(start, middle)
    assert (first.file, first.location.name, first.start, first.frames_before) == (0, str(tmp_path / "a.pcap"), 0, 0)
    assert [(note.message, note.frame) for note in first.notes] == [("growing", 5)]
    assert second.grown is not None
    assert (second.grown.end, second.grown.size) == (None, len(pcap(frames(2))))
    (only,) = tasks(middle, end)
    assert (only.start, only.frames_before, only.cost) == (774, 5, 600 + (256 << 10))
    assert [(note.message, note.offset, note.count) for note in only.notes] == [("growing", len(content), 0)]
    assert tasks(end, end) == []


def test_a_capture_that_goes_on_after_its_end(follower: CaptureFollower, tmp_path: Path) -> None:
    content = pcap(frames(9))
    put(tmp_path / "a.pcap", content[:800], quiet=True)
    start = follower.step(Offset())
    put(tmp_path / "a.pcap", content, quiet=True)
    assert (tmp_path / "a.pcap").stat().st_mtime == PAST

    (task,) = tasks(start, follower.step(start))
    assert (task.start, task.frames_before) == (774, 5)
    assert task.reported_link_types == {1}


@pytest.fixture
def follower(tmp_path: Path) -> CaptureFollower:
    """Of the folder of the test."""
    return CaptureFollower([str(tmp_path)])


def complete(offset: Offset) -> dict[str, bool]:
    return {Path(name).name: capture.size is not None for name, capture in offset.captures.items()}


def test_what_has_not_changed_for_a_while_is_complete(tmp_path: Path) -> None:
    put(tmp_path / "a.pcap", pcap(frames(2)), quiet=True)
    put(tmp_path / "b.pcap", pcap(frames(2)))

    assert complete(CaptureFollower([str(tmp_path)]).step(Offset())) == {"a.pcap": True, "b.pcap": False}
    assert complete(CaptureFollower([str(tmp_path)], 0).step(Offset())) == {"a.pcap": True, "b.pcap": True}


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

    result = complete(CaptureFollower([str(tmp_path)]).step(Offset()))
    assert result["tap_00001_20260101.pcap"] is (expected or second.endswith(".gz"))


def test_what_has_no_frame_yet_has_no_place(follower: CaptureFollower, tmp_path: Path) -> None:
    put(tmp_path / "a.pcap", pcap([]))
    put(tmp_path / "b.pcap", pcap(frames(1)))
    first = follower.step(Offset())
    assert [capture.file for capture in first.captures.values()] == [0]
    assert follower.step(first) is first

    os.utime(tmp_path / "a.pcap", (PAST, PAST))
    assert complete(follower.step(first)) == {"b.pcap": False, "a.pcap": True}


def test_what_is_only_called_a_capture_is_followed_once_it_has_content(
    follower: CaptureFollower, tmp_path: Path
) -> None:
    for name, content in (("bad.pcap", b"text"), ("none.txt", b"text"), ("empty.pcap", b"")):
        put(tmp_path / name, content, quiet=True)
    first = follower.step(Offset())
    assert complete(first) == {"bad.pcap": True}

    put(tmp_path / "empty.pcap", pcap(frames(1)))
    assert complete(follower.step(first)) == {"bad.pcap": True, "empty.pcap": False}


def test_sources_are_folders_globs_and_files(tmp_path: Path) -> None:
    for name in ("in/a.pcap", "in/b.txt", "other/c.pcap", "d.pcap"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        put(tmp_path / name, pcap(frames(1)) if name.endswith("pcap") else b"text")
    sources = [str(tmp_path / "in"), str(tmp_path / "other" / "*"), str(tmp_path / "d.pcap"), str(tmp_path / "none")]

    offset = CaptureFollower([*sources, str(tmp_path / "in" / "a.pcap")]).step(Offset())
    assert sorted(complete(offset)) == ["a.pcap", "c.pcap", "d.pcap"]
    assert CaptureFollower([str(tmp_path / "none")]).step(Offset()).captures == {}


def test_what_cannot_be_read_is_said_once(tmp_path: Path) -> None:
    put(tmp_path / "a.pcap", pcap(frames(1)))
    os.mkfifo(tmp_path / "pipe.pcap")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "gone.pcap").symlink_to("nowhere")
    (tmp_path / "dir.pcap").mkdir()
    follower = CaptureFollower([str(tmp_path), str(tmp_path / "pip?")])

    first = follower.step(Offset())
    assert complete(first) == {"a.pcap": False}
    assert [(problem.file, Path(problem.name).name, problem.message, problem.offset) for problem in first.problems] == [
        (1, "gone.pcap", "is a link to a file that does not exist", None),
        (2, "pipe", "is not a regular file", None),
        (3, "pipe.pcap", "is not a regular file", None),
    ]
    read = Offset.of(json.loads(json.dumps(first.as_json())))
    assert follower.step(read) is read
    assert CaptureFollower(follower.sources).step(read) is read

    (tmp_path / "gone.pcap").unlink()
    put(tmp_path / "gone.pcap", pcap(frames(1), seconds=1_700_000_100))
    second = follower.step(read)
    assert (complete(second), second.problems) == ({"a.pcap": False, "gone.pcap": False}, [])
    assert [Path(name).name for name in second.unread] == ["pipe", "pipe.pcap"]


DENIED = "cannot be opened: Permission denied"


def deny(*_: object) -> NoReturn:
    raise PermissionError(13, "Permission denied")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """A path, and what is below it, cannot be opened."""
    real = open

    def opened(name: Any, *words: Any, **options: Any) -> Any:
        return deny() if str(name).startswith(str(path)) else real(name, *words, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("builtins.open", opened)
        yield


@pytest.mark.parametrize("content", [pcap(frames(1)), b"text"])
def test_what_must_not_be_read_is_said_until_it_may(content: bytes, follower: CaptureFollower, tmp_path: Path) -> None:
    for name in ("a.pcap", "b"):
        put(tmp_path / name, content, quiet=True)
    with locked(tmp_path):
        first = follower.step(Offset())
        assert complete(first) == {}
        assert [(Path(problem.name).name, problem.message) for problem in first.problems] == [
            ("a.pcap", DENIED),
            ("b", DENIED),
        ]
        assert follower.step(first) is first

    assert complete(follower.step(first)) == {"a.pcap": True} | ({"b": True} if content != b"text" else {})


def test_a_capture_that_cannot_be_read_for_a_while_is_the_same_later(tmp_path: Path) -> None:
    path, content = tmp_path / "a.pcap", pcap(frames(9))
    put(path, content[:300])
    follower = CaptureFollower([str(path)])
    first = follower.step(Offset())
    with locked(path):
        put_at = os.stat(path).st_mtime
        os.utime(path, (put_at - 1000, put_at - 1000))
        second = follower.step(first)
    assert [(problem.message, problem.frames) for problem in second.problems] == [(DENIED, 0)]
    assert second.captures == first.captures

    put(path, content, quiet=True)
    third = follower.step(second)
    assert (third.problems, third.files, complete(third)) == ([], 2, {"a.pcap": True})


def test_captures_with_the_same_bytes_are_read_once(follower: CaptureFollower, tmp_path: Path) -> None:
    for name in ("a.pcap", "b.pcap"):
        put(tmp_path / name, pcap(frames(5)))
    other = bytearray(pcap(frames(5)))
    other[len(other) // 2] ^= 1
    put(tmp_path / "c.pcap", bytes(other))
    first = follower.step(Offset())
    assert [Path(name).name for name in first.passed] == ["b.pcap"]

    put(tmp_path / "d.pcap", pcap(frames(5)))
    put(tmp_path / "e.pcap.gz", gzip.compress(pcap(frames(5))), quiet=True)
    put(tmp_path / "f.pcap.gz", gzip.compress(bytes(other)[:-3]), quiet=True)
    put(tmp_path / "a.pcap.gz", gzip.compress(pcap(frames(5), seconds=1_700_000_100)), quiet=True)
    second = follower.step(first)
    assert [Path(name).name for name in second.passed] == ["d.pcap", "e.pcap.gz"]
    assert set(complete(second)) == {"a.pcap", "b.pcap", "c.pcap", "d.pcap", "e.pcap.gz", "f.pcap.gz", "a.pcap.gz"}


def test_what_was_compressed_before_it_was_read_to_its_end_is_read_on(
    follower: CaptureFollower, tmp_path: Path
) -> None:
    content = pcap(frames(30))
    put(tmp_path / "a.pcap", content[: len(content) // 2])
    first = follower.step(Offset())
    (tmp_path / "a.pcap").unlink()
    put(tmp_path / "a.pcap.1.gz", gzip.compress(content))
    put(tmp_path / "b.pcap.gz", gzip.compress(pcap(frames(30), seconds=1_700_000_100)), quiet=True)

    second = follower.step(first)
    # It may not be whole yet.
    assert (complete(second), second.problems) == ({"a.pcap": False, "b.pcap.gz": True}, [])
    assert [task.location.name for task in tasks(first, second)] == [str(tmp_path / "b.pcap.gz")]
    os.utime(tmp_path / "a.pcap.1.gz", (PAST, PAST))
    third = follower.step(second)
    assert (complete(third), third.problems, third.passed) == ({"a.pcap.1.gz": True, "b.pcap.gz": True}, [], [])
    (task,) = tasks(second, third)
    with (tmp_path / "a.pcap.1.gz").open("rb") as file:
        numbers = [item.number for item in task.items(file) if isinstance(item, Frame)]
    assert numbers == list(range(task.frames_before + 1, 31))
    assert 0 < task.frames_before < 30
    assert follower.step(third) is third


def test_another_capture_may_have_the_name_of_one_that_was_compressed(
    follower: CaptureFollower, tmp_path: Path
) -> None:
    content = pcap(frames(30))
    put(tmp_path / "a.pcap", content[: len(content) // 2])
    first = follower.step(Offset())
    put(tmp_path / "a.pcap.1.gz", gzip.compress(content))
    (tmp_path / "a.pcap").write_bytes(pcap(frames(40), seconds=1_700_000_100))

    second = follower.step(first)
    assert second is first
    os.utime(tmp_path / "a.pcap.1.gz", (PAST, PAST))
    third = follower.step(second)
    assert (complete(third), third.problems) == ({"a.pcap.1.gz": True, "a.pcap": False}, [])
    assert [(capture.file, capture.memory.frames) for capture in third.captures.values()] == [(0, 14), (1, 40)]
    assert [task.frames_before for task in tasks(second, third)] == [14, 0]


def test_a_folder_that_cannot_be_read_for_a_while_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "a", pcap(frames(9))[:300])
    first = CaptureFollower([str(tmp_path)]).step(Offset())

    with monkeypatch.context() as patched:
        patched.setattr("mqttscope.spark.follower.os.listdir", deny)
        second = CaptureFollower([str(tmp_path)]).step(first)
    assert [(problem.name, problem.message) for problem in second.problems] == [(str(tmp_path), DENIED)]
    assert second.captures == first.captures
    assert CaptureFollower([str(tmp_path)]).step(second) is second


def test_one_file_under_several_names_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    put(tmp_path / "in" / "a.pcap", pcap(frames(1)))
    (tmp_path / "in" / "0.pcap").symlink_to("a.pcap")
    (tmp_path / "also").symlink_to("in")

    assert list(CaptureFollower([str(tmp_path / "in"), str(tmp_path / "also")]).step(Offset()).captures) == [
        str(tmp_path / "in" / "a.pcap")
    ]


def test_what_a_reader_remembers_is_found_again(tmp_path: Path) -> None:
    content = pcap(frames(9))
    put(tmp_path / "a.pcap", content)

    memory = reader_state_at(str(tmp_path / "a.pcap"), 774)
    assert (memory.position, memory.frames, memory.link_types) == (774, 5, [1])

"""Files that are written while frames come: whole at any moment, rings that keep their size."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqttscope.capture import open_capture
from mqttscope.capture.record import Recorder
from mqttscope.net.frame import CaptureError, CaptureNotice, Frame

START_NS = 1_767_323_045_123_456_789


def frame(number: int, size: int = 100) -> Frame:
    return Frame(number, START_NS + number, 1, bytes([number % 256]) * size, size, "lo")


def read(*paths: Path) -> list[Frame | CaptureNotice]:
    return list(open_capture([str(path) for path in paths]))


def test_what_was_flushed_is_there_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    recorder = Recorder(str(path))
    assert read(path) == []
    recorder.write(frame(1))
    recorder.flush()

    found = read(path)

    assert [type(one) for one in found] == [Frame]
    recorder.close()
    assert recorder.told() == f"wrote 1 frame to {path}"


def test_much_is_not_held_back(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    recorder = Recorder(str(path))
    for number in range(1, 9):
        recorder.write(frame(number, 60_000))

    assert len(read(path)) >= 4
    recorder.close()


def test_a_file_cut_anywhere_keeps_the_frames_before(tmp_path: Path) -> None:
    path, cut = tmp_path / "a.pcapng", tmp_path / "b.pcapng"
    recorder = Recorder(str(path))
    for number in range(1, 6):
        recorder.write(frame(number))
    recorder.close()
    data = path.read_bytes()

    for end in range(len(data) - 1, 200, -37):
        cut.write_bytes(data[:end])
        frames = [one for one in read(cut) if isinstance(one, Frame)]
        assert [one.number for one in frames] == list(range(1, len(frames) + 1))
        assert len(frames) >= (end - 100) // 132 - 1


def test_a_ring_keeps_the_newest_files_and_each_reads_by_itself(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path / "ring.pcapng"), ring_bytes=1_000, ring_files=3)
    for number in range(1, 101):
        recorder.write(frame(number))
    recorder.close()

    files = sorted(tmp_path.iterdir())

    assert len(files) == 3
    assert recorder.files - recorder.removed == 3
    assert all(one.name.startswith("ring_000") and one.name.endswith("_20260102T030405.pcapng") for one in files)
    payloads = [one.data[0] for path in files for one in read(path) if isinstance(one, Frame)]
    assert payloads == list(range(101 - len(payloads), 101))
    assert not any(isinstance(one, CaptureError) for path in files for one in read(path))
    assert all(path.stat().st_size <= 1_000 + 132 for path in files)
    assert "3 removed" not in recorder.told()
    assert f"{recorder.removed} of them removed again" in recorder.told()


def test_a_ring_without_a_number_of_files_keeps_all(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path / "ring"), ring_bytes=1_000)
    for number in range(1, 31):
        recorder.write(frame(number))
    recorder.close()

    assert len(list(tmp_path.iterdir())) == recorder.files > 3
    assert all(path.suffix == ".pcapng" for path in tmp_path.iterdir())


def test_foreign_files_are_never_removed(tmp_path: Path) -> None:
    kept = tmp_path / "ring_00001_20250101T000000.pcapng"
    kept.write_bytes(b"mine")
    recorder = Recorder(str(tmp_path / "ring.pcapng"), ring_bytes=1, ring_files=1)
    for number in range(1, 4):
        recorder.write(frame(number))
    recorder.close()

    assert kept.read_bytes() == b"mine"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("ring_bytes", [None, 1_000])
def test_a_folder_that_is_not_there(tmp_path: Path, ring_bytes: int | None) -> None:
    with pytest.raises(OSError, match=r"folder|No such"):
        Recorder(str(tmp_path / "none" / "a.pcapng"), ring_bytes=ring_bytes)


def test_a_ring_leaves_files_alone_that_are_there_and_lets_only_their_owner_read(tmp_path: Path) -> None:
    for _ in range(2):
        recorder = Recorder(str(tmp_path / "ring.pcapng"), ring_bytes=1_000)
        recorder.write(frame(1))
        recorder.close()

    found = sorted(tmp_path.iterdir())
    assert len(found) == 2
    assert found[0].name.removesuffix(".pcapng") == found[1].name.removesuffix(".pcapng").removesuffix("-2") or (
        found[1].name.removesuffix(".pcapng") == found[0].name.removesuffix(".pcapng").removesuffix("-2")
    )
    assert {path.stat().st_mode & 0o777 for path in found} == {0o600}

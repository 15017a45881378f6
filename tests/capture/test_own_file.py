"""Files for captures are private, empty, and written by one program."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mqttscope.capture.own_file import make_folder, open_alone, opener, replace_file, write_file


def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    os.close(open_alone(path))

    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_another_program_writes_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    first = open_alone(path)
    os.write(first, b"written")

    with pytest.raises(OSError, match="another program is writing it") as caught:
        open_alone(path)

    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"written"
    os.close(first)
    os.close(open_alone(path))
    assert path.read_bytes() == b""


def test_a_fresh_file_takes_the_place_of_none(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    path.write_bytes(b"kept")

    with pytest.raises(FileExistsError):
        open_alone(path, fresh=True)
    assert path.read_bytes() == b"kept"


def test_a_device_may_be_written_by_many() -> None:
    both = [open_alone("/dev/null"), open_alone("/dev/null")]

    for descriptor in both:
        os.close(descriptor)


def rights(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_what_is_new_is_for_its_owner_alone_and_what_is_there_keeps_its_rights(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b")
    assert [rights(tmp_path / "a"), rights(tmp_path / "a" / "b")] == [0o700, 0o700]

    path = tmp_path / "a" / "report.json"
    with open(path, "w", encoding="utf-8", opener=opener) as file:
        file.write("1")
    assert rights(path) == 0o600

    path.chmod(0o644)
    tmp_path.joinpath("a").chmod(0o755)
    with open(path, "w", encoding="utf-8", opener=opener) as file:
        file.write("2")
    make_folder(tmp_path / "a")
    assert (rights(path), rights(tmp_path / "a"), path.read_text()) == (0o644, 0o755, "2")


def test_a_file_takes_over_the_rights_of_the_one_it_replaces(tmp_path: Path) -> None:
    for name, wanted in (("old", 0o640), ("none", 0o600)):
        path, new = tmp_path / name, tmp_path / "new"
        if name == "old":
            path.touch()
            path.chmod(0o640)
        with open(new, "wb", opener=opener) as file:
            file.write(b"1")
        replace_file(new, path)
        assert rights(path) == wanted


def test_the_umask_of_the_program_stays(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with open(tmp_path / "a", "wb", opener=opener):
            pass
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


def test_a_file_that_is_written_whole_is_for_its_owner_and_keeps_links_and_rights(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to(file)

    write_file(link, b"one")

    assert link.is_symlink()
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"one", 0o600)
    file.chmod(0o640)
    write_file(file, b"two")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"two", 0o640)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "link"]


def test_a_file_that_cannot_be_replaced_stays(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(OSError, match="directory"):
        write_file(folder, b"one")
    write_file("/dev/null", b"one")
    assert list(tmp_path.iterdir()) == [folder]

"""Files for captures are private, empty, and written by one program."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mqttscope.capture.own_file import open_alone


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

"""Key logs that are followed: half lines, rotation, logs that are cut off, removed, or none at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mqttscope.capture.keylog import BadKeysError, KeyLog, read_keys


def random(number: int) -> bytes:
    return number.to_bytes(32, "big")


def line(number: int, label: str = "CLIENT_RANDOM") -> bytes:
    return f"{label} {random(number).hex()} {'ab' * 48}\n".encode()


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_what_is_needed_to_decrypt_both_directions(tmp_path: Path) -> None:
    path = tmp_path / "keys.txt"
    path.write_bytes(b"# a comment\n" + line(1) + line(2, "CLIENT_TRAFFIC_SECRET_0"))
    log = KeyLog(str(path))

    assert (log.complete(random(1)), log.complete(random(2)), log.complete(random(3))) == (True, False, False)
    append(path, line(2, "SERVER_TRAFFIC_SECRET_0"))
    assert log.poll()
    assert not log.poll()
    assert log.complete(random(2))
    assert log.lines(random(2)) == line(2, "CLIENT_TRAFFIC_SECRET_0") + line(2, "SERVER_TRAFFIC_SECRET_0")
    assert log.lines(random(3)) == b""


def test_half_a_line_is_none_until_nothing_more_comes(tmp_path: Path) -> None:
    path = tmp_path / "keys.txt"
    path.write_bytes(line(1)[:-30])
    log = KeyLog(str(path))

    assert not log.complete(random(1))
    append(path, line(1)[-30:-1])
    log.poll()
    assert not log.complete(random(1))
    log.settle()
    assert log.complete(random(1))


def test_a_log_that_does_not_exist_yet_and_goes_again(tmp_path: Path) -> None:
    path = tmp_path / "later" / "keys.txt"
    log = KeyLog(str(path))

    assert not log.exists
    assert not log.poll()
    path.parent.mkdir()
    path.write_bytes(line(1))
    assert log.poll()
    path.unlink()
    assert not log.poll()
    assert not log.exists
    path.write_bytes(line(2))
    assert log.poll()
    assert log.complete(random(1))
    assert log.complete(random(2))


@pytest.mark.parametrize("how", ["cut off", "written again", "rotated"])
def test_logs_that_are_replaced(how: str, tmp_path: Path) -> None:
    path = tmp_path / "keys.txt"
    path.write_bytes(line(1) + line(2))
    log = KeyLog(str(path))

    if how == "cut off":
        path.write_bytes(line(3))
    elif how == "written again":
        path.write_bytes(line(3) + line(4) + line(5))
    else:
        append(path, line(3)[:-1])
        os.rename(path, tmp_path / "keys.1")
        path.write_bytes(line(4))

    assert log.poll()
    assert log.complete(random(3))
    assert log.complete(random(4)) == (how != "cut off")


@pytest.mark.parametrize("content", [b"hello\n", bytes(9_000), b"CLIENT_RANDOM nothing\n"])
def test_files_that_are_no_key_log(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "keys.txt"
    path.write_bytes(content)

    with pytest.raises(BadKeysError, match=r"keys\.txt: holds no lines like CLIENT_RANDOM"):
        KeyLog(str(path))


def test_what_can_never_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "keys.txt").touch()

    for path, text in ((tmp_path, "Is a directory"), (tmp_path / "pipe", "is not a regular file")):
        with pytest.raises(BadKeysError, match=text):
            KeyLog(str(path))

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(BadKeysError, match="Permission denied"):
        KeyLog(str(tmp_path / "keys.txt"))


def test_logs_that_become_unreadable_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys.txt"
    log = KeyLog(str(path))
    path.write_bytes(line(1))

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        assert not log.poll()
    assert log.poll()


def test_whole_files(tmp_path: Path) -> None:
    path = tmp_path / "keys.txt"
    path.write_bytes(line(1)[:-1])

    assert read_keys(str(path)) == line(1)

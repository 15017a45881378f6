"""Only a single regular file that is not empty is mapped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mqttscope.capture.mapped import map_capture


def test_a_file_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(b"content")
    data = map_capture([str(path)])
    assert data is not None
    assert data[:] == b"content"
    assert map_capture([str(path), str(path)]) is None


@pytest.mark.parametrize("kind", ["empty", "folder", "absent", "pipe", "-", "\0"])
def test_anything_else_is_not(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "empty":
        path.touch()
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    name = kind if kind in ("-", "\0") else str(path)
    assert map_capture([name]) is None

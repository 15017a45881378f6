"""What a lake consists of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqttscope.lake.manifest import (
    LakeError,
    Manifest,
    content_digest,
    read_manifest,
    remove_strays,
    sync_folder,
    write_manifest,
)

FULL = Manifest(3, "g", "digest", 12, {"aa": "a.pcap"}, {"packets": ["packets/1.parquet"]}, {}, ["state/1.parquet"])


def test_a_manifest_comes_back(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) == Manifest()
    write_manifest(tmp_path, FULL)

    assert read_manifest(tmp_path) == FULL
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
    sync_folder(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 2}', '{"format": 1, "more": 2}', "null"])
def test_other_files_are_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(content)

    with pytest.raises(LakeError):
        read_manifest(tmp_path)


def test_strays_are_taken_away_and_nothing_else(tmp_path: Path) -> None:
    for name in ("packets/1.parquet", "packets/2.parquet", "state/1.parquet", "state/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    write_manifest(tmp_path, FULL)

    assert remove_strays(tmp_path, FULL) == ["packets/2.parquet"]
    assert remove_strays(tmp_path, FULL) == []
    assert (tmp_path / "state" / "notes.txt").exists()
    assert json.loads((tmp_path / "manifest.json").read_text())["format"] == 1


def test_content_is_known_by_all_its_bytes(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"a" * 3_000_000 + b"b" + b"c" * 3_000_000)
    other.write_bytes(one.read_bytes())

    assert content_digest(one) == content_digest(other)
    other.write_bytes(b"a" * 3_000_000 + b"x" + b"c" * 3_000_000)
    assert content_digest(one) != content_digest(other)


def test_the_content_of_the_first_bytes(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"a" * 3_000_000 + b"more")
    other.write_bytes(b"a" * 3_000_000)

    assert content_digest(one, 3_000_000) == content_digest(other) == content_digest(other, 3_000_000)
    assert content_digest(one, 2) != content_digest(other)

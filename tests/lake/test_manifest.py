"""What a lake consists of."""

from __future__ import annotations

import gzip
import json
import time
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from mqttscope.lake.manifest import (
    RETIRED_S,
    LakeError,
    Manifest,
    check_files,
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


def test_what_is_replaced_stays_for_readers_that_began_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 10_000.0)
    next_one = replace(FULL, files={"packets": ["packets/2.parquet"]}, state_files=["state/2.parquet"])
    next_one.retire(FULL)
    # What flows remember is of no use to readers.
    assert next_one.retired == {"packets/1.parquet": 10_000.0}
    assert next_one.kept_files() == {"packets/1.parquet", "packets/2.parquet", "state/2.parquet"}

    monkeypatch.setattr(time, "time", lambda: 9_000.0)
    corrected = replace(next_one)
    corrected.retire(next_one)
    assert corrected.retired == {"packets/1.parquet": 9_000.0}

    monkeypatch.setattr(time, "time", lambda: 9_000.0 + RETIRED_S)
    last = replace(corrected)
    last.retire(corrected)
    assert last.retired == {}
    assert last.kept_files() == {"packets/2.parquet", "state/2.parquet"}


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


def test_what_was_compressed_has_the_same_content(tmp_path: Path) -> None:
    content = bytes(range(256)) * 9_000
    plain, packed, cut = tmp_path / "plain", tmp_path / "packed", tmp_path / "cut"
    plain.write_bytes(content)
    packed.write_bytes(gzip.compress(content))
    cut.write_bytes(gzip.compress(content)[:-2])

    assert content_digest(packed) == content_digest(plain) == content_digest(packed, 7)
    assert content_digest(cut) == sha256(cut.read_bytes()).hexdigest()


def test_files_that_are_missing_or_cut_off_are_named(tmp_path: Path) -> None:
    packets, state = tmp_path / "packets/1.parquet", tmp_path / "state/1.parquet"
    for path in (packets, state):
        path.parent.mkdir()
        path.write_bytes(b"0123456789")
    check_files(tmp_path, FULL)
    known = replace(FULL, sizes={"packets/1.parquet": 10, "state/1.parquet": 10})
    check_files(tmp_path, known)

    packets.write_bytes(b"012345678")
    # Lakes from before there were sizes.
    check_files(tmp_path, FULL)
    with pytest.raises(LakeError, match=r"packets/1\.parquet has 9 bytes and should have 10: the lake is damaged"):
        check_files(tmp_path, known)
    state.unlink()
    with pytest.raises(LakeError, match=r"state/1\.parquet is missing: the lake is damaged"):
        check_files(tmp_path, FULL)

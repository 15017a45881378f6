"""Hashes of names, and the file of their key."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqttscope.lake.manifest import LakeError, Manifest
from mqttscope.lake.tombstones import VARIABLE, TombstoneKey, key_path, make_key, read_key

KEY = TombstoneKey(b"secret")


def test_names_are_found_in_texts() -> None:
    tombstones = [
        KEY.of_name("client", "dev-1"),
        KEY.of_name("user", "Zoë", everywhere=True),
        KEY.tombstone("flow", "x"),
    ]
    assert KEY.names_in(tombstones, ["a/dev-1/b", "dev-12", "xdev-1", b"\x05Zo\xc3\xab\xff"]) == {"dev-1", "Zoë"}
    assert KEY.names_in(tombstones, [b"0dev-10"]) == set()
    assert KEY.names_in(tombstones, [b"0dev-10"], apart=False) == {"dev-1"}
    assert KEY.names_in([tombstones[2]], ["x"]) == set()
    assert KEY.is_in(tombstones, "user", "Zoë")
    assert not KEY.is_in(tombstones, "client", "Zoë")
    assert KEY.is_in(tombstones, "flow", "x")
    assert not TombstoneKey(b"other").names_in(tombstones, ["dev-1"])


def test_the_place_of_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("APPDATA", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert key_path() == tmp_path / "mqttscope" / "forget.key"
    monkeypatch.delenv("APPDATA")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert key_path().parts[-3:] == (".config", "mqttscope", "forget.key")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "other"))
    assert key_path() == tmp_path / "other"
    assert key_path("given") == Path("given")


def test_the_key_is_made_once_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "new" / "key"
    key = make_key(Manifest(), str(path))
    assert (len(path.read_bytes()), path.stat().st_mode & 0o077) == (32, 0)
    assert make_key(Manifest(), str(path)).identity == key.identity
    written = Manifest(tombstones=["x"], tombstone_key=key.identity)
    assert read_key(written, str(path)).identity == key.identity
    with pytest.raises(LakeError, match="is not the key of the lake's tombstones"):
        make_key(Manifest(tombstones=["x"], tombstone_key=KEY.identity), str(path))
    path.unlink()
    with pytest.raises(LakeError, match="cannot be read"):
        make_key(written, str(path))
    with pytest.raises(LakeError, match="cannot be written"):
        make_key(Manifest(), str(tmp_path))

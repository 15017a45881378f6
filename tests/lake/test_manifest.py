"""What a lake consists of."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mqttscope.lake import manifest
from mqttscope.system import sync_folder

FULL = manifest.Manifest(
    3, "g", "digest", 12, {"aa": "a.pcap"}, {"packets": ["packets/1.parquet"]}, {}, ["state/1.parquet"]
)


def test_a_manifest_comes_back(tmp_path: Path) -> None:
    assert manifest.read_manifest(tmp_path) == manifest.Manifest()
    manifest.write_manifest(tmp_path, FULL)

    assert manifest.read_manifest(tmp_path) == FULL
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
    sync_folder(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 1}', '{"format": 2, "more": 2}', "null"])
def test_other_files_are_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(content)

    # The sentence names the file and is no message of a parser.
    with pytest.raises(
        manifest.LakeError,
        match=r"manifest.json( cannot be read: it is not the JSON that was written| is|: format is not 3)",
    ):
        manifest.read_manifest(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"generation": "3"}, {"generation": -1}, {"group": 5}, {"settings": None}, {"last_ns": "now"},
        {"captures": []},
        {"captures": {"aa": 5}}, {"files": {"packets": "packets/1.parquet"}},
        {"files": {"packets": ["../../x.parquet"]}},
        {"files": {"packets": ["/etc/passwd"]}}, {"state_files": {}}, {"state_files": [5]}, {"streams": {"a": 5}},
        {"streams": {"a": {"batch": "1"}}}, {"streams": {"a": {"batch": 1, "faulty": {"x": []}}}}, {"sizes": {"a": -1}},
        {"rows": {"a": 1.5}}, {"checksums": {"a": "x"}}, {"versions": {"packets": -1}}, {"versions": ["packets"]},
        {"objects": []}, {"objects": {"a": ["d", 1]}}, {"objects": {"a": [1, 1, 1]}}, {"objects": {"a": ["d", 1, -1]}},
        {"objects": {"a": ["d", 1.5, 2]}}, {"faulty": {"a": [["m", 0]]}}, {"faulty": {"a": [["x"]]}},
        {"faulty": {"a": [1]}}, {"faulty": [1]}, {"options": []}, {"options": {"a": 1}}, {"begins": {"a": [1]}},
        {"begins": {"a": 7}}, {"begins": {"a": ["5", "6"]}}, {"begins": {"a": [1.5, 2]}}, {"begins": [1]},
        {"begins": None}, {"schema": None},
    ],
    ids=str,
)  # fmt: skip
def test_what_a_manifest_may_not_say(changes: dict[str, object], tmp_path: Path) -> None:
    manifest.write_manifest(tmp_path, FULL)
    data = json.loads((tmp_path / manifest.NAME).read_text())
    del data["checksum"]
    (tmp_path / manifest.NAME).write_text(json.dumps(data))
    assert manifest.read_manifest(tmp_path) == FULL
    (tmp_path / manifest.NAME).write_text(json.dumps(data | changes))

    with pytest.raises(manifest.LakeError, match="is not the manifest of a lake, or is damaged"):
        manifest.read_manifest(tmp_path)


@pytest.mark.parametrize("nested", ["[" * 100_000, '{"format":2,"captures":' + '{"a":' * 100_000 + "1" + "}" * 100_001])
def test_one_that_is_nested_too_deeply(nested: str, tmp_path: Path) -> None:
    (tmp_path / manifest.NAME).write_text(nested)

    with pytest.raises(
        manifest.LakeError, match=r"(nested too deeply: the lake|is not the manifest of a lake, or) is damaged"
    ):
        manifest.read_manifest(tmp_path)


def test_every_flipped_bit_of_a_manifest_is_noticed(tmp_path: Path) -> None:
    manifest.write_manifest(tmp_path, FULL)
    whole = (tmp_path / manifest.NAME).read_bytes()
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= 1 << place % 8
        (tmp_path / manifest.NAME).write_bytes(data)
        try:
            actual_manifest = manifest.read_manifest(tmp_path)
        except manifest.LakeError:
            continue
        # White space, and the name of the checksum itself.
        assert actual_manifest == FULL


def test_files_are_compared_with_their_checksums(tmp_path: Path) -> None:
    (tmp_path / "packets").mkdir()
    path = tmp_path / "packets" / "1.parquet"
    path.write_bytes(bytes(3 << 20))
    known = replace(FULL, checksums={"packets/1.parquet": manifest.checksum_of(path)})
    names = known.files["packets"]
    manifest.check_content(tmp_path, known, names)
    # An older lake does not say them.
    manifest.check_content(tmp_path, FULL, names)

    path.write_bytes(bytes(2 << 20) + b"\1" + bytes((1 << 20) - 1))
    with pytest.raises(manifest.LakeError, match=r"1.parquet is not what was written \(its checksum differs\)"):
        manifest.check_content(tmp_path, known, names)
    path.unlink()
    with pytest.raises(manifest.LakeError, match=r"1.parquet is missing: the lake is damaged"):
        manifest.check_content(tmp_path, known, names)


def test_strays_are_taken_away_and_nothing_else(tmp_path: Path) -> None:
    later = "packets/0000000004-a-0.parquet"
    texts = ["packets/1.parquet", "packets/0000000003-replaced-0.parquet", "state/1.parquet", "state/notes.txt"]
    texts += ["packets/_delta_log/0000000004-a.parquet"]
    for name in (*texts, later, "state/2.parquet", "flow_keys/0000000003-a-0.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).touch()
    manifest.write_manifest(tmp_path, FULL)

    # What the manifest to come names is no stray.
    manifest.write_manifest(tmp_path, replace(FULL, generation=4, files={"packets": [later]}), manifest.PENDING)
    assert manifest.remove_strays(tmp_path, FULL) == ["flow_keys/0000000003-a-0.parquet", "state/2.parquet"]
    (tmp_path / manifest.PENDING).unlink()
    assert manifest.remove_strays(tmp_path, FULL) == [later]
    assert manifest.remove_strays(tmp_path, FULL) == []
    assert all((tmp_path / name).exists() for name in texts)
    assert json.loads((tmp_path / "manifest.json").read_text())["format"] == manifest.FORMAT


def test_what_is_of_a_generation() -> None:
    assert manifest.is_of("packets/0000000003-token-0.parquet", 3)
    assert not manifest.is_of("packets/0000000003-token-0.parquet", 4)
    assert not manifest.is_of("packets/part-00000-token.parquet", 0)


def test_files_that_are_missing_or_cut_off_are_named(tmp_path: Path) -> None:
    packets, state = tmp_path / "packets/1.parquet", tmp_path / "state/1.parquet"
    for path in (packets, state):
        path.parent.mkdir()
        path.write_bytes(b"0123456789")
    manifest.check_files(tmp_path, FULL)
    known = replace(FULL, sizes={"packets/1.parquet": 10, "state/1.parquet": 10})
    manifest.check_files(tmp_path, known)

    packets.write_bytes(b"012345678")
    # Lakes from before there were sizes.
    manifest.check_files(tmp_path, FULL)
    with pytest.raises(
        manifest.LakeError, match=r"packets/1\.parquet has 9 bytes and should have 10: the lake is damaged"
    ):
        manifest.check_files(tmp_path, known)
    state.unlink()
    with pytest.raises(manifest.LakeError, match=r"state/1\.parquet is missing: the lake is damaged"):
        manifest.check_files(tmp_path, FULL)

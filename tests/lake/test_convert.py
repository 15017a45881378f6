"""A lake of an earlier release gets Delta tables with the same rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqttscope.lake import convert as module
from mqttscope.lake.convert import convert_lake
from mqttscope.lake.manifest import LakeError, check_files, read_manifest
from mqttscope.lake.writer import read_table, write_lake
from tests.each import some
from tests.lake.earlier import make_earlier
from tests.lake.parts import cut
from tests.lake.reading import all_rows, options, rows_for_others, tables_of
from tests.lake.test_writer import SEVERAL, same_as_once


@pytest.mark.parametrize("schema", some([1, 2], 2))
def test_rows_are_what_they_were(schema: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake: Path) -> None:
    parts = cut(SEVERAL[0], tmp_path, 3)
    for part in parts[:2]:
        write_lake([part], lake, options())
    make_earlier(lake, schema=schema)
    rows = tables_of(lake)
    if schema == 2:
        # A file system without second names.
        monkeypatch.setattr("os.link", lambda *_: (_ for _ in ()).throw(OSError))

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, "commit", stop)
        with pytest.raises(KeyboardInterrupt):
            convert_lake(lake)
    assert tables_of(lake) == rows

    assert convert_lake(lake)
    assert not convert_lake(lake)
    assert tables_of(lake) == rows
    assert rows_for_others(lake) == all_rows(lake)
    manifest = read_manifest(lake)
    check_files(lake, manifest)
    assert {path.relative_to(lake).as_posix() for path in lake.glob("*/*.parquet")} >= manifest.all_files()
    assert not list((lake / "open").iterdir())
    if schema == 1:
        with pytest.raises(LakeError, match="was written by an early release with other options, rules or schemas"):
            write_lake(parts[2:], lake, options(payload_limit=1))
        return
    write_lake(parts[2:], lake, options())
    same_as_once(lake, parts)


def test_what_cannot_be_converted_is_said(tmp_path: Path, lake: Path) -> None:
    with pytest.raises(LakeError, match="none does not exist"):
        convert_lake(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(LakeError, match="is not a lake"):
        convert_lake(tmp_path / "empty")
    write_lake([SEVERAL[0]], lake)
    make_earlier(lake)
    (name,) = read_manifest(lake).files["messages"]
    content = (lake / name).read_bytes()
    (lake / name).write_bytes(bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(LakeError, match=r"is not what was written .its checksum differs"):
        convert_lake(lake)
    assert read_table(lake, "packets").num_rows

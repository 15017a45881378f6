"""Forgotten clients are nowhere in a lake, also after later ingests, and everything else stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqttscope.lake.erasure import find_connections
from mqttscope.lake.forget import forget
from mqttscope.lake.manifest import LakeError, read_manifest
from mqttscope.lake.schemas import EVENT_TABLES
from mqttscope.lake.writer import write_lake
from tests.each import some
from tests.lake.fleet import segments, written
from tests.lake.proof import places
from tests.lake.reading import all_rows, options, rows_for_others, tables_of


def fleet(folder: Path, parts: int = 4) -> list[Path]:
    """Some clients as captures; c0, c3 and c6 end."""
    return written(segments(7, 8), folder, parts)


def of_client(lake: Path, client: str) -> set[str]:
    """The connections of a client."""
    rows = tables_of(lake)["connections"]
    return {row["connection_id"] for row in rows if row["client_identifier"] == client}


def others(lake: Path, gone: set[str]) -> dict[str, list[str]]:
    """The rows of all other connections."""
    tables = tables_of(lake)
    return {
        name: sorted(repr(row) for row in tables[name] if row.get("connection_id") not in gone) for name in EVENT_TABLES
    }


def findings(lake: Path) -> set[tuple[str, str, int]]:
    """The findings, by rule and packet."""
    return {(row["rule"], row["connection_id"], row["packet_in_connection"]) for row in tables_of(lake)["findings"]}


@pytest.mark.parametrize("client", some(["c1", "c3"]))  # one is open for long, the other one ends
def test_a_forgotten_client_stays_away_and_others_stay_as_they_are(client: str, tmp_path: Path) -> None:
    parts, whole, lake = fleet(tmp_path / "parts"), tmp_path / "whole", tmp_path / "lake"
    key, gone = str(tmp_path / "key"), set[str]()
    for number, part in enumerate(parts):
        write_lake([part], whole, options())
        write_lake([part], lake, options(key_file=key))
        if number == 1:
            gone = of_client(lake, client)
            result = forget(lake, [client], key_file=key)
            assert (len(gone), result.rows["connections"], result.unknown) == (1, 1, [])
        if gone:
            assert not of_client(lake, client)
            assert others(lake, gone) == others(whole, gone)
            assert [name for name in places(lake, f"from/{client}/") if not name.startswith("scope_state")] == []
    assert all_rows(lake) == rows_for_others(lake)
    tables = tables_of(lake)
    assert client not in [row["client_identifier"] for row in tables["clients"]]
    assert not [row for row in tables["topics"] if client in row["topic"].split("/")]


def test_an_ingest_needs_the_key(tmp_path: Path) -> None:
    parts, lake, key = fleet(tmp_path / "parts", 2), tmp_path / "lake", str(tmp_path / "key")
    write_lake(parts[:1], lake, options())
    forget(lake, ["c5", "stranger"], key_file=key)
    with pytest.raises(LakeError, match="the lake has 4 tombstones of forgotten names, and their key"):
        write_lake(parts[1:], lake, options(key_file=str(tmp_path / "other")))
    (tmp_path / "other").write_bytes(b"another key")
    with pytest.raises(LakeError, match="is not the key of the lake's tombstones: use --key-file"):
        write_lake(parts[1:], lake, options(key_file=str(tmp_path / "other")))
    write_lake(parts[1:], lake, options(key_file=key))
    assert not of_client(lake, "c5")
    assert of_client(lake, "c4")


def test_connections_of_a_client_and_parts_without_a_name(tmp_path: Path) -> None:
    """Late captures give connections without a CONNECT: their addresses belong to a client."""
    parts, lake = fleet(tmp_path / "parts", 3), tmp_path / "lake"
    for part in (parts[0], parts[2], parts[1]):
        write_lake([part], lake, options())
    manifest = read_manifest(lake)
    named = ("client", "c1")
    chosen = find_connections(lake, manifest, manifest.table_files(), lambda *name: name == named)
    rows = [row for row in tables_of(lake)["connections"] if row["client"].startswith("10.0.0.1:")]
    assert len(rows) > 1
    assert chosen.ids == {row["connection_id"] for row in rows}
    assert chosen.clients == {"c1"}
    assert "c2" in chosen.others


def test_a_name_forgotten_everywhere_is_nowhere_after_later_ingests(tmp_path: Path) -> None:
    parts, lake, key = fleet(tmp_path / "parts", 3), tmp_path / "lake", str(tmp_path / "key")
    whole = tmp_path / "whole"
    for folder in (lake, whole):
        write_lake(parts[:1], folder, options())
    forget(lake, ["to", "c5"], key_file=key, everywhere=True)  # "to" is a level of all topics
    assert places(lake, "to/") == []
    for part in parts[1:]:
        write_lake([part], lake, options(key_file=key))
        assert places(lake, "to/") + places(lake, "/c5") == []
        assert {row["topic"] for row in tables_of(lake)["topics"]} >= {"**/c1/2", "from/c1/2"}
        write_lake([part], whole, options())
        assert findings(lake) <= findings(whole)
    assert all_rows(lake) == rows_for_others(lake)

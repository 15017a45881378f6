"""Clients and users are forgotten, names are lifted, old rows expire: the commands, as functions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mqttscope.lake.forget import expire, forget, keep_findings, lift
from mqttscope.lake.manifest import LakeError, read_manifest
from mqttscope.lake.schemas import TABLES
from mqttscope.lake.writer import read_table, write_lake
from tests.cli.running import environment
from tests.dissect.secure import as_frame
from tests.dissect.talk import Talk
from tests.lake.earlier import make_earlier
from tests.lake.fleet import segments, written
from tests.lake.kill_ingest import change
from tests.lake.parts import write_frames
from tests.lake.proof import places
from tests.lake.reading import CAPTURES, all_of_them, all_rows, options, rows_for_others, tables_of
from tests.lake.test_erasure import fleet, of_client
from tests.mqtt.octets import framed, string

NAME = "pump-17"
KILLS, SEED = 30 if os.environ.get("MQTTSCOPE_EXHAUSTIVE") else 3, 20_261_201
"""Number of kills at random times, and the seed of these times."""


def mentioning(path: Path) -> Path:
    """A capture of a device, its neighbour with a longer name, and a dashboard that names it everywhere."""
    segments = []
    for number, (client, user) in enumerate(((NAME, "alice"), (f"{NAME}-b", "bob"), ("dashboard", "bob"))):
        talk = Talk(client_port=41_000 + number, client=f"10.0.1.{number}")
        talk.handshake()
        talk.client(framed(0x10, string("MQTT"), b"\5\x82\0\x3c", b"\0", string(client), string(user)))
        talk.server(framed(0x20, b"\0\0", b"\0"))
        talk.client(framed(0x82, b"\0\1", b"\0", string(f"cmd/{client}/#"), b"\1"))
        talk.server(framed(0x90, b"\0\1", b"\0", b"\1"))
        property_ = b"\x26" + string("about") + string(NAME)
        payload = b'{"id":"%s"}' % NAME.encode()
        talk.client(framed(0x31, string(f"to/{NAME}"), bytes((len(property_),)), property_, payload))
        segments += talk.tape.segments
    return write_frames(path, map(as_frame, sorted(segments, key=lambda segment: segment.timestamp_ns)))


def test_a_name_is_nowhere(tmp_path: Path) -> None:
    lake, key = tmp_path / "lake", str(tmp_path / "key")
    capture = mentioning(tmp_path / f"of-{NAME}.pcapng")
    write_lake([capture], lake, options(key_file=key))
    before = all_rows(lake)
    shown = forget(lake, [NAME], key_file=key, dry_run=True)
    assert (all_rows(lake), read_manifest(lake).generation, Path(key).exists()) == (before, 1, False)
    assert {"packets.topic", "packets.payload", "packets.properties", "packets.capture", "names of captures"} <= {
        *shown.elsewhere
    }

    done = forget(lake, [NAME], key_file=key)
    assert done.rows == shown.rows
    assert {name for name in shown.elsewhere if "." in name} == {name for name in done.elsewhere if "." in name}
    assert places(lake, NAME)
    assert forget(lake, [NAME], key_file=key, everywhere=True).unknown == [NAME]
    # The neighbour has a longer name.
    texts = [place for place in places(lake, NAME) if place not in places(lake, f"{NAME}-b")]
    assert texts == []
    rows = tables_of(lake)
    assert [row["client_identifier"] for row in rows["clients"]] == ["dashboard", f"{NAME}-b"]
    assert {row["topic"] for row in rows["topics"]} == {f"to/{'*' * len(NAME)}"}
    assert rows["packets"][-1]["capture"].endswith(f"of-{'*' * len(NAME)}.pcapng")
    assert all_rows(lake) == rows_for_others(lake)
    # The same bytes are known, under any name.
    shutil.copy(capture, tmp_path / "again.pcapng")
    assert write_lake([tmp_path / "again.pcapng"], lake, options(key_file=key)).captures == []

    forget(lake, [f"{NAME}-b"], ["bob"], key_file=key, everywhere=True)
    assert places(lake, NAME) == []
    assert not any(tables_of(lake).values())


def test_a_user_is_forgotten_with_all_clients(tmp_path: Path) -> None:
    lake, key = tmp_path / "lake", str(tmp_path / "key")
    write_lake([mentioning(tmp_path / "a.pcapng")], lake, options(key_file=key))
    assert forget(lake, [], ["bob"], key_file=key).rows["connections"] == 2
    assert [row["client_identifier"] for row in tables_of(lake)["clients"]] == [NAME]
    # Rules about all clients remember the filter of the other one.
    assert [place.partition("/")[0] for place in places(lake, "dashboard")] == ["scope_state"]


def test_lifted_names_come_again(tmp_path: Path) -> None:
    parts, lake, key = fleet(tmp_path / "parts", 2), tmp_path / "lake", str(tmp_path / "key")
    write_lake(parts[:1], lake, options())
    forget(lake, ["c1", "c2"], ["nobody"], key_file=key)
    count = len(read_manifest(lake).tombstones)
    assert count > 3  # of names, and of open connections and their addresses
    assert lift(lake, ["c1"], key_file=key) == 1
    Path(key).unlink()
    with pytest.raises(LakeError, match="cannot be read"):
        lift(lake, ["c2"], key_file=key)
    assert lift(lake, []) == count - 1
    write_lake(parts[1:], lake, options(key_file=key))
    assert not Path(key).exists()


def test_old_rows_expire_and_stay_away(tmp_path: Path) -> None:
    parts, lake = fleet(tmp_path / "parts", 4), tmp_path / "lake"
    for part in parts[:2]:
        write_lake([part], lake, options())
    times = sorted(row["timestamp_ns"] for row in tables_of(lake)["packets"])
    limit_ns = times[len(times) // 2]
    result = expire(lake, limit_ns)
    rows = tables_of(lake)
    assert result.rows["packets"] == len(times) - len(rows["packets"])
    for name in ("packets", "messages", "findings", "gaps"):
        old = {name for names in read_manifest(lake).open_files.values() for name in names}
        assert not [row for row in rows[name] if row["timestamp_ns"] < limit_ns] or old
    assert all_rows(lake) == rows_for_others(lake)
    there = {path.relative_to(lake).as_posix() for path in lake.glob("*/*.parquet")}
    assert there == read_manifest(lake).all_files()
    assert expire(lake, limit_ns - 1).rows == {}
    assert read_manifest(lake).expired_ns == limit_ns

    # An older capture that comes late, and leaves nothing.
    late = next(path for path in CAPTURES if path.parent.name == "failing-device")
    assert min(row["timestamp_ns"] for row in read_table(lake, "packets").to_pylist()) >= limit_ns
    count = len(read_table(lake, "packets"))
    write_lake([late], lake, options())
    rest = [row for row in tables_of(lake)["packets"] if "failing-device" in row["capture"]]
    assert [row for row in rest if row["timestamp_ns"] < limit_ns] == []
    assert len(read_table(lake, "packets")) == count + len(rest)


def test_what_is_no_lake_of_today(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="is not a lake"):
        forget(tmp_path / "nothing", ["c1"])
    lake = tmp_path / "lake"
    write_lake([CAPTURES[0]], lake, options())
    make_earlier(lake)
    with pytest.raises(LakeError, match="run 'mqttscope pipeline convert"):
        expire(lake, 0)
    assert set(TABLES) <= {path.name for path in lake.iterdir()}


def test_a_client_named_like_a_word_of_the_program(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    write_lake(fleet(tmp_path / "parts", 2)[:1], lake, options())
    with pytest.raises(LakeError, match="tcp is a word of the memories of open connections"):
        forget(lake, ["tcp"], key_file=str(tmp_path / "key"))
    assert of_client(lake, "c1")
    assert {path.relative_to(lake).as_posix() for path in lake.glob("*/*.parquet")} == read_manifest(lake).all_files()


def test_findings_of_dropped_rules_are_left_out(tmp_path: Path) -> None:
    parts, lake = fleet(tmp_path / "parts", 2), tmp_path / "lake"
    write_lake(parts[:1], lake, options())
    rules = sorted({row["rule"] for row in tables_of(lake)["findings"]})
    rest = tuple(rule for rule in all_of_them() if rule.code != rules[0])
    dropped = keep_findings(lake, options(rules=rest))
    assert dropped is not None
    assert list(dropped) == rules[:1]
    write_lake(parts, tmp_path / "rest", options(rules=rest))
    write_lake(parts[1:], lake, options(rules=rest))
    assert places_of_findings(lake) == places_of_findings(tmp_path / "rest")
    assert {row["rule_generation"] for row in tables_of(lake)["findings"]} == {1, 2}
    assert read_manifest(lake).rule_sets[0] != read_manifest(lake).rule_sets[1]
    # The rule is not in all generations.
    before = read_manifest(lake)
    assert keep_findings(lake, options()) is None
    assert read_manifest(lake) == before


def places_of_findings(lake: Path) -> list[tuple[object, ...]]:
    """The findings without their numbers and generation."""
    names = ("rule", "message", "connection_id", "packet_in_connection")
    return sorted(tuple(map(str, (row[name] for name in names))) for row in tables_of(lake)["findings"])


@pytest.mark.long
@pytest.mark.parametrize("work", ["forget c1", "expire", "rebuild", "relint"])
@pytest.mark.parametrize("step", ["places", f"{KILLS}@{SEED}"])
def test_changes_that_are_killed_anywhere(
    work: str, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MQTTSCOPE_KEY_FILE", str(tmp_path / "key"))
    (part,) = written(segments(3, 4), tmp_path / "parts", 1)
    write_lake([part], tmp_path / "lake", options())
    before = all_rows(tmp_path / "lake")
    rows = tables_of(tmp_path / "lake")
    words = {"expire": f"expire {rows['packets'][20]['timestamp_ns']}", "rebuild": f"rebuild {part}",
             "relint": f"relint {rows['findings'][0]['rule']}"}  # fmt: skip
    work = words.get(work, work)
    change(tmp_path / "lake", work)
    after = all_rows(tmp_path / "lake")
    program = [
        sys.executable,
        "-m",
        "tests.lake.kill_ingest",
        str(tmp_path),
        ("2" if work.startswith("relint") else "9") if step == "places" else step,
        str(part),
        words.get(work, work),
    ]
    done = subprocess.run(program, capture_output=True, text=True, env=environment(), check=False)
    assert (done.returncode, done.stderr) == (0, "")
    documents = [json.loads(line) for line in done.stdout.splitlines()]
    assert step != "places" or {document["pending"] for document in documents} == {False, True}
    assert step == "places" or len(documents) == KILLS
    for document in documents:
        assert document["before"] == (before if document["read"] == 1 else after)
        assert document["after"] == document["in_tables"] == after
    for lake in tmp_path.glob("lake-*"):
        if work.startswith("forget") and read_manifest(lake).generation > 1:
            assert places(lake, "/c1") == []

"""A lake in a folder: all or nothing, nothing twice, and connections that continue."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mqttscope.capture import fingerprint
from mqttscope.dissect import Options
from mqttscope.lake import commit, files
from mqttscope.lake import writer as writing
from mqttscope.lake.manifest import LakeError, read_manifest
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.schemas import EVENT_TABLES
from mqttscope.lake.writer import IngestResult, read_table, write_lake
from mqttscope.lint.context import WIDE
from mqttscope.lint.rule import Rule
from tests.capture.test_pcapng import enhanced, interface, option, section, statistics
from tests.conftest import ROOT
from tests.each import some
from tests.lake.earlier import make_earlier
from tests.lake.parts import cut, frames_of
from tests.lake.reading import (
    CAPTURES,
    Tables,
    all_of_them,
    all_rows,
    options,
    ordered,
    read_segments,
    rows_for_others,
    usual,
)
from tests.lake.reading import tables_of as tables_of

SUMS = ("topics", "clients", "sessions")
SEVERAL = [path for path in CAPTURES if path.parent.name in {
    "session-taken-over", "v5-topic-alias-client", "v5-qos", "planted-violations", "lost-segment", "websocket-split",
    "port-reused", "reordered", "joined-v5",
}]  # fmt: skip


def first_ns(path: Path) -> int:
    return frames_of(path)[0].timestamp_ns


def same(tables: Tables, other: Tables) -> None:
    assert ordered(tables, places=False) == ordered(other, places=False)
    for name in SUMS:
        assert tables[name] == other[name]


def same_as_once(lake: Path, captures: Sequence[str | Path]) -> None:
    """The tables of a lake are those that one ingest of the captures makes."""
    once = lake.parent / f"{lake.name} at once"
    write_lake(captures, once, options())
    same(tables_of(lake), tables_of(once))


def closing(tables: Tables) -> Tables:
    """What only says whether the end of a capture is the end of a connection."""
    for row in tables["connections"]:
        if row["closed_how"] in ("capture_end", "open"):
            row |= {"closed_how": None, "closed": None, "closed_ns": None, "closed_capture": None, "closed_frame": None}
    for row in tables["messages"]:
        if row["ended"] == "connection":
            row["ended"] = None
    return tables


@pytest.mark.long
@pytest.mark.parametrize("path", SEVERAL, ids=lambda path: path.parent.name)
def test_tables_of_several_ingests_are_those_of_one(path: Path, tmp_path: Path) -> None:
    lake_options = options()
    write_lake([path], tmp_path / "whole", lake_options)
    whole = tables_of(tmp_path / "whole")
    parts = cut(path, tmp_path, 4)
    for part in parts:
        write_lake([part], tmp_path / "parts", lake_options)
    write_lake(parts[::-1], tmp_path / "at_once", lake_options)

    same(tables_of(tmp_path / "parts"), whole)
    same(tables_of(tmp_path / "at_once"), whole)
    wanted = {name: [dict(row) for row in usual(path).get(name, [])] for name in EVENT_TABLES}
    assert ordered(closing({name: whole[name] for name in EVENT_TABLES})) == ordered(closing(wanted))


@pytest.mark.long
@pytest.mark.parametrize("path", SEVERAL, ids=lambda path: path.parent.name)
def test_a_capture_that_grows_from_ingest_to_ingest(path: Path, tmp_path: Path) -> None:
    content, growing = path.read_bytes(), tmp_path / path.name
    chance = random.Random(len(content))
    for size in [*sorted(chance.randrange(400, len(content)) for _ in range(4)), len(content)]:
        growing.write_bytes(content[:size])
        write_lake([growing], tmp_path / "steps", options())
    write_lake([growing], tmp_path / "once", options())
    once, steps = tables_of(tmp_path / "once"), tables_of(tmp_path / "steps")

    # What ended inside a record has said so.
    steps["ingest_errors"] = [row for row in steps["ingest_errors"] if row["event"] != "capture_error"]
    assert ordered(closing(steps)) == ordered(closing(once))
    (tmp_path / "copy.pcapng.gz").write_bytes(gzip.compress(content))
    assert write_lake([tmp_path / "copy.pcapng.gz"], tmp_path / "steps", options()).captures == []


def test_a_capture_beside_a_shorter_state_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "HEAD_BYTES", 512)
    long = max(CAPTURES, key=lambda path: path.stat().st_size)
    whole, part, packed = tmp_path / "a.pcapng", tmp_path / "b.pcapng", tmp_path / "a.pcapng.gz"
    whole.write_bytes(long.read_bytes())
    part.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    data = gzip.compress(whole.read_bytes())
    packed.write_bytes(data[: len(data) * 2 // 3])
    write_lake([whole], tmp_path / "once", options())

    done = write_lake([part, whole, packed], tmp_path / "at_once", options())
    assert (done.captures, sorted(done.known)) == ([str(whole)], [str(packed), str(part)])
    same(tables_of(tmp_path / "at_once"), tables_of(tmp_path / "once"))
    done = write_lake([part, packed], tmp_path / "once", options())
    assert (done.captures, len(done.known)) == ([], 2)


def test_a_capture_that_is_being_compressed(tmp_path: Path) -> None:
    content, packed = SEVERAL[0].read_bytes(), tmp_path / "a.pcapng.gz"
    whole = gzip.compress(content)
    for size in (len(whole) // 3, len(whole) * 2 // 3, len(whole)):
        packed.write_bytes(whole[:size])
        write_lake([packed], tmp_path / "steps", options())
    write_lake([packed], tmp_path / "once", options())
    once, steps = tables_of(tmp_path / "once"), tables_of(tmp_path / "steps")

    assert [row["message"] for row in steps["ingest_errors"]] == ["is truncated: the gzip data end early"] * 2
    assert ordered(closing(steps | {"ingest_errors": []})) == ordered(closing(once))


def test_what_has_grown_is_told_apart_from_what_is_new(tmp_path: Path) -> None:
    content = SEVERAL[0].read_bytes()
    growing, other, packed = (tmp_path / name for name in ("a.pcapng", "b.pcapng", "a.pcapng.gz"))
    growing.write_bytes(content[: len(content) // 2])
    write_lake([growing], tmp_path / "lake", options())
    packed.write_bytes(gzip.compress(content))
    changed = bytearray(content)
    changed[len(content) // 4] ^= 1
    other.write_bytes(changed)

    done = write_lake([packed, other], tmp_path / "lake", options())
    assert (done.captures, done.grown) == ([str(packed), str(other)], [str(packed)])
    manifest = read_manifest(tmp_path / "lake")
    assert sorted(size for size, _ in manifest.begins.values()) == [len(content) // 2, len(content), len(content)]


def test_what_is_written_while_it_is_read_is_left_to_the_next_ingest(tmp_path: Path) -> None:
    content, growing = SEVERAL[0].read_bytes(), tmp_path / "a.pcapng"
    growing.write_bytes(content[: len(content) // 2])

    def grow(_: int) -> None:
        growing.write_bytes(content)

    write_lake([growing], tmp_path / "lake", options(), progress=grow)
    before = read_table(tmp_path / "lake", "packets").num_rows
    assert write_lake([growing], tmp_path / "lake", options()).grown == [str(growing)]
    write_lake([growing], tmp_path / "once", options())
    assert before < read_table(tmp_path / "once", "packets").num_rows
    frames = [sorted(read_table(tmp_path / text, "packets")["frame"].to_pylist()) for text in ("lake", "once")]
    assert frames[0] == frames[1]


@pytest.mark.parametrize("how", some(["compressed", "renamed", "replaced"], 3))
def test_what_is_rotated_while_others_are_read_is_left_to_the_next_ingest(how: str, tmp_path: Path, lake: Path) -> None:
    first, tap = tmp_path / "a.pcapng", tmp_path / "tap.pcapng"
    early, late, third = (path.read_bytes() for path in sorted(SEVERAL[:3], key=lambda path: first_ns(path)))
    first.write_bytes(early)
    tap.write_bytes(late)

    def rotate(_: int) -> None:
        if how == "compressed" and tap.exists():
            (tmp_path / "tap.pcapng.gz").write_bytes(gzip.compress(late))
            tap.unlink()
        elif how != "compressed" and not (tmp_path / "tap.1.pcapng").exists():
            tap.rename(tmp_path / "tap.1.pcapng")
            if how == "replaced":
                tap.write_bytes(third)

    done = write_lake([first, tap], lake, options(), progress=rotate)
    assert done.captures == [str(first)]
    assert len(read_manifest(lake).captures) == len(read_manifest(lake).begins) == 1
    for _ in range(2):
        done = write_lake(sorted(tmp_path.glob("*.pcapng*")), lake, options())
    assert (done.captures, done.known_errors) == ([], [])
    write_lake(sorted(tmp_path.glob("*.pcapng*")), tmp_path / "once", options())
    rows = [read_table(path, "packets").num_rows for path in (lake, tmp_path / "once")]
    assert rows[0] == rows[1]
    (message,) = {row["message"] for row in read_table(lake, "ingest_errors").to_pylist()}
    assert message == f"{'is another file' if how == 'replaced' else 'does not exist'} since it was found"


def test_a_capture_that_is_gone_costs_nothing_but_itself(tmp_path: Path, lake: Path) -> None:
    gone, poisoned = tmp_path / "gone.pcapng", tmp_path / "poisoned.pcapng"
    drops = statistics(interface_drops=1 << 63, received=1 << 63)
    poisoned.write_bytes(SEVERAL[1].read_bytes() + drops + b"\0" * 7)

    done = write_lake([SEVERAL[0], gone, poisoned], lake, options())

    assert done.captures == [str(SEVERAL[0]), str(poisoned)]
    assert done.faults == {str(gone): "does not exist since it was found"}
    rows = {(row["capture"], row["event"]): row for row in read_table(lake, "ingest_errors").to_pylist()}
    assert set(rows) == {
        (str(gone), "capture_error"), (str(poisoned), "capture_drops"), (str(poisoned), "capture_error"),
    }  # fmt: skip
    assert rows[str(gone), "capture_error"]["message"] == done.faults[str(gone)]
    assert rows[str(poisoned), "capture_drops"]["dropped"] == (1 << 63) - 1
    wanted = sum(len(usual(path)["packets"]) for path in SEVERAL[:2])
    assert read_table(lake, "packets").num_rows == wanted
    gone.write_bytes(SEVERAL[2].read_bytes())
    assert write_lake([gone], lake, options()).captures == [str(gone)]


def test_every_step_shows_what_is_known_by_then(tmp_path: Path) -> None:
    path = SEVERAL[0]
    parts = cut(path, tmp_path, 3)
    for number in range(3):
        done = write_lake([parts[number]], tmp_path / "steps", options())
        assert done.captures == [str(parts[number])]
        same_as_once(tmp_path / "steps", parts[: number + 1])
        shutil.rmtree(tmp_path / "steps at once")
    assert read_manifest(tmp_path / "steps").generation == 3


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_in_is_not_read_again(tmp_path: Path) -> None:
    copied = tmp_path / "other name.pcapng"
    shutil.copy(SEVERAL[0], copied)
    first = write_lake([SEVERAL[0]], tmp_path / "lake")
    before = files_of(tmp_path / "lake")

    again = write_lake([copied, SEVERAL[0]], tmp_path / "lake")

    assert first.captures == [str(SEVERAL[0])]
    assert first.rows["packets"] == len(usual(SEVERAL[0])["packets"]) - _open_packets(tmp_path / "lake")
    assert again == IngestResult(known=[str(copied), str(SEVERAL[0])])
    assert files_of(tmp_path / "lake") == before


def _open_packets(folder: Path) -> int:
    return 0 if "packets" not in read_manifest(folder).open_files else 1


class CrashError(Exception):
    pass


@pytest.mark.parametrize("where", some(["write_table", "state_row", "write_sums", "write_manifest", "sync_folder"], 3))
def test_an_ingest_that_breaks_off_leaves_the_lake_as_it_was(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = cut(SEVERAL[0], tmp_path, 2)
    write_lake(parts[:1], tmp_path / "lake", options())
    before, first = tables_of(tmp_path / "lake"), read_manifest(tmp_path / "lake")

    def crash(*_: object, **__: object) -> None:
        raise CrashError

    with monkeypatch.context() as patched:
        target: Any = next(module for module in (pq.ParquetWriter, writing, commit) if hasattr(module, where))
        patched.setattr(target, where, crash)
        with pytest.raises(CrashError):
            write_lake(parts[1:], tmp_path / "lake", options())
    assert tables_of(tmp_path / "lake") == before

    write_lake(parts[1:], tmp_path / "lake", options())
    same_as_once(tmp_path / "lake", parts)
    named = read_manifest(tmp_path / "lake").all_files() | first.table_files()
    assert {path.relative_to(tmp_path / "lake").as_posix() for path in (tmp_path / "lake").glob("*/*.parquet")} == named


def test_rules_of_wide_scope_make_rows_and_state_where_there_are_any(tmp_path: Path) -> None:
    parts = cut(SEVERAL[0], tmp_path, 2)
    wide, narrow = (rules_of(number) for number in (True, False))
    for name, rules in (("wide", wide), ("narrow", narrow)):
        write_lake(parts[:1], tmp_path / name, options(rules=rules))

    assert read_manifest(tmp_path / "wide").scope_state_files
    assert not read_manifest(tmp_path / "narrow").scope_state_files
    assert not [path for path in tmp_path.rglob("*") if "flow_keys" in path.name]
    # Without their memories they would report what they did not see.
    done = write_lake(parts[1:], tmp_path / "narrow", options(rules=wide))
    assert done.waiting_rules == [rule.code for rule in wide]
    assert not read_manifest(tmp_path / "narrow").scope_state_files


def test_memories_of_another_version_are_not_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open connections end, and no new rule waits for memories that cannot be read."""
    parts, wide = cut(SEVERAL[0], tmp_path, 2), rules_of(True)
    with monkeypatch.context() as earlier:
        earlier.setattr(writing, "_version", lambda: "0")
        for name in ("lake", "same"):
            write_lake(parts[:1], tmp_path / name, options(rules=rules_of(False)))
        assert write_lake(parts[1:], tmp_path / "same", options(rules=wide)).ended == 0
    done = write_lake(parts[1:], tmp_path / "lake", options(rules=wide))

    assert done.ended
    assert done.waiting_rules == []
    assert read_manifest(tmp_path / "lake").scope_state_files


@pytest.mark.parametrize("path", some(SEVERAL, 5), ids=lambda path: path.parent.name)
def test_an_ingest_with_other_rules_continues(path: Path, tmp_path: Path) -> None:
    """New rules judge the connections that begin with them; each finding has the generation of its rules."""
    parts, lake, every = cut(path, tmp_path, 3), tmp_path / "lake", all_of_them()
    some_rules = [rule for number, rule in enumerate(every) if number % 2 or rule.scope in WIDE]
    write_lake(parts[:1], lake, options(rules=tuple(some_rules)))
    for part in parts[1:]:
        assert write_lake([part], lake, options()).waiting_rules == []
    write_lake(parts, tmp_path / "whole", options())

    findings, whole = (tables_of(folder)["findings"] for folder in (lake, tmp_path / "whole"))
    codes = {rule.code for rule in some_rules}
    old = {row["connection_id"] for row in tables_of(lake)["connections"] if row["capture"] == str(parts[0])}
    wanted = [row for row in whole if row["rule"] in codes or row["connection_id"] not in old]
    assert content_of(findings) == content_of(wanted)
    assert {row["rule_generation"] for row in findings} <= {1, 2}
    assert len(read_manifest(lake).rule_sets) == 2
    # Memories of rules that are gone are dropped.
    assert write_lake(parts[:1], tmp_path / "fewer", options()).captures
    assert write_lake(parts[1:], tmp_path / "fewer", options(rules=())).captures


def content_of(findings: list[dict[str, Any]]) -> list[str]:
    """Findings without their numbers, places and generation."""
    names = {"finding_in_connection", "rule_generation", "capture", "frame"}
    return sorted(repr({name: value for name, value in row.items() if name not in names}) for row in findings)


def test_a_lake_is_rebuilt_in_the_order_of_time(tmp_path: Path) -> None:
    parts, lake = cut(SEVERAL[0], tmp_path / "parts", 3), tmp_path / "lake"
    for part in (parts[2], parts[0], parts[1]):
        write_lake([part], lake, options(payload_limit=0))
    before = read_manifest(lake)
    moved = [part.rename(tmp_path / part.name) for part in parts]
    with pytest.raises(LakeError, match=rf"{parts[0]}.* cannot be found .* --without-missing"):
        write_lake(moved[1:], lake, options(), rebuild=True)
    assert read_manifest(lake) == before
    done = write_lake(moved, lake, options(), rebuild=True)
    assert done.captures == [str(part) for part in moved]
    write_lake(moved, tmp_path / "once", options())
    assert tables_of(lake) == tables_of(tmp_path / "once")
    assert rows_for_others(lake) == all_rows(lake)
    write_lake(moved[:1], lake, options(), rebuild=True, without_missing=True)
    assert set(read_manifest(lake).captures.values()) == {str(moved[0])}


def rules_of(wide: bool) -> tuple[Rule, ...]:
    return tuple(rule for rule in all_of_them() if (rule.scope in WIDE) is wide)


def test_errors_of_captures_are_rows(tmp_path: Path) -> None:
    damaged = tmp_path / "cut.pcapng"
    damaged.write_bytes(SEVERAL[0].read_bytes()[:-10])
    write_lake([damaged], tmp_path / "lake")

    (row,) = read_table(tmp_path / "lake", "ingest_errors").to_pylist()
    assert row["event"] == "capture_error"
    assert row["capture"] == str(damaged)


def test_what_cannot_be_is_said(tmp_path: Path, lake: Path) -> None:
    with pytest.raises(LakeError, match=r"nothing is done: .*none.pcap does not exist since it was found"):
        write_lake([tmp_path / "none.pcap"], lake)
    assert not lake.exists()
    write_lake([SEVERAL[0]], lake, LakeOptions(group="a"))
    with pytest.raises(LakeError, match="group 'a'"):
        write_lake([SEVERAL[1]], lake, LakeOptions(group="b"))
    with pytest.raises(LakeError, match="other options"):
        write_lake([SEVERAL[1]], lake, LakeOptions(group="a", payload_limit=3))
    changes: tuple[tuple[dict[str, Any], str], ...] = (
        ({"complete": frozenset({"10.0.0.2:1883"})}, "--complete was none and is 10.0.0.2:1883;"),
        ({"dissect": Options({1884: "ws"})}, "--port was none and is 1884:ws;"),
        ({"secret_length": 9}, r"\(SEC104\) was \d+ and is 9; use the same options, or another folder, or .*rebuild"),
    )  # fmt: skip
    for changed, text in changes:
        with pytest.raises(LakeError, match=f"other options: .*{text}"):
            write_lake([SEVERAL[1]], lake, LakeOptions(group="a", **changed))
    with pytest.raises(LakeError, match="table 'nonsense' does not exist"):
        read_table(lake, "nonsense")
    manifest = json.loads((lake / "manifest.json").read_text())
    (lake / "manifest.json").write_text(json.dumps(manifest | {"format": 99}))
    with pytest.raises(LakeError, match="format 99"):
        read_table(lake, "packets")


def test_captures_out_of_order_are_named(tmp_path: Path) -> None:
    parts = cut(SEVERAL[0], tmp_path, 2)
    write_lake(parts[1:], tmp_path / "lake")

    assert write_lake(parts[:1], tmp_path / "lake").out_of_order == [str(parts[0])]


def test_progress_sees_how_many_segments_there_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(files, "ROWS_PER_FILE", 5)
    write_lake([SEVERAL[0]], tmp_path / "lake", LakeOptions(batch_rows=3), progress=seen.append)

    assert len(seen) > 10
    assert seen == sorted(seen)
    assert seen[0] == 1
    assert seen[-1] <= len(read_segments(SEVERAL[0]))
    assert len(read_manifest(tmp_path / "lake").files["packets"]) > 1
    assert read_table(tmp_path / "lake", "packets", ["type"]).num_columns == 1


def test_a_flipped_bit_in_any_file_is_noticed(tmp_path: Path, lake: Path) -> None:
    parts = cut(SEVERAL[0], tmp_path, 2)
    write_lake(parts[:1], lake, options())
    manifest = read_manifest(lake)
    assert manifest.checksums.keys() == manifest.all_files()
    assert {name.partition("/")[0] for name in manifest.checksums} >= {"packets", "connections", "state", "scope_state"}
    for name in sorted(manifest.checksums):
        whole = (lake / name).read_bytes()
        data = bytearray(whole)
        data[len(data) * 2 // 3] ^= 4
        (lake / name).write_bytes(data)
        table = name.partition("/")[0]
        read_by_ingest = table in ("state", "scope_state", "messages", "connections", "ingest_errors")
        with pytest.raises(LakeError, match=r"not what was written \(its checksum differs\): the lake is damaged"):
            write_lake(parts[1:], lake, options()) if read_by_ingest else read_table(lake, table)
        (lake / name).write_bytes(whole)
    write_lake(parts[1:], lake, options())


def test_a_lake_without_checksums_is_read_and_gets_them(tmp_path: Path) -> None:
    parts = cut(SEVERAL[0], tmp_path, 2)
    write_lake(parts[:1], tmp_path / "lake", options())
    path = tmp_path / "lake" / "manifest.json"
    data = json.loads(path.read_text())
    del data["checksum"], data["checksums"]
    path.write_text(json.dumps(data))

    assert read_table(tmp_path / "lake", "packets").num_rows > 0
    write_lake(parts[1:], tmp_path / "lake", options())
    manifest = read_manifest(tmp_path / "lake")
    assert manifest.checksums.keys() == manifest.all_files()


def test_a_lake_of_an_earlier_release_is_read_and_not_written(tmp_path: Path, lake: Path) -> None:
    parts = cut(SEVERAL[0], tmp_path, 2)
    write_lake(parts[:1], lake, options())
    wanted = read_table(lake, "connections").drop_columns(["late", "also_closed"]).to_pylist()
    make_earlier(lake, schema=1)

    result = read_table(lake, "connections")
    assert result.drop_columns(["late", "also_closed"]).to_pylist() == wanted
    assert result.column("late").to_pylist() == [None] * len(wanted)
    assert read_table(lake, "connections", ["closed_by", "client"]).column_names == ["closed_by", "client"]
    with pytest.raises(LakeError, match=f"'mqttscope pipeline convert --lake {lake}' before an ingest"):
        write_lake(parts[1:], lake, options())


TICKS = (0, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)


@pytest.mark.long
@pytest.mark.parametrize("ticks", TICKS)
@pytest.mark.parametrize("resolution", [0, 6, 9, 0x80])
def test_captures_of_the_ends_of_time(ticks: int, resolution: int, tmp_path: Path) -> None:
    """Times as early and as late as there are, in between, and counts near 2^64."""
    path = tmp_path / "a.pcapng"
    parts = [section(), interface(options=option(9, bytes((resolution,)))), interface()]
    for number, frame in enumerate(frames_of(SEVERAL[0])):
        near = max(0, ticks - number) if number % 3 == 2 else frame.timestamp_ns // 1_000
        parts.append(enhanced(frame.data, near, index=0 if number % 3 == 2 else 1))
    drops = statistics(interface_drops=(1 << 64) - 1, system_drops=(1 << 64) - 1, received=(1 << 64) - 1)
    path.write_bytes(b"".join(parts) + drops)
    done = write_lake([path, SEVERAL[1]], tmp_path / "lake", options())

    assert len(done.captures) == 2
    rows = read_table(tmp_path / "lake", "packets").to_pylist()
    assert {row["capture"] for row in rows} == {str(path), str(SEVERAL[1])}
    (result,) = [row for row in read_table(tmp_path / "lake", "ingest_errors").to_pylist() if row["dropped"]]
    assert (result["dropped"], result["received"]) == ((1 << 63) - 1, (1 << 63) - 1)
    assert "dropped 36893488147419103230 frames" in result["message"]
    # And again, with what was remembered of them.
    write_lake([SEVERAL[2]], tmp_path / "lake", options())


@pytest.mark.parametrize("name", ["clock-set-back", "clock-set-forward"])
def test_times_are_those_of_the_capture_and_latencies_leave_a_step_of_its_clock_out(tmp_path: Path, name: str) -> None:
    source = ROOT / "tests" / "data" / "captures" / "field" / f"{name}.pcap"
    write_lake([source], tmp_path / "lake", options())
    frames = {frame.number: frame.timestamp_ns for frame in frames_of(source)}
    tables = tables_of(tmp_path / "lake")

    assert len(tables["packets"]) > 10
    assert all(row["timestamp_ns"] == frames[row["frame"]] for row in tables["packets"])
    latencies = [row["latency_ns"] for row in tables["messages"] if row["latency_ns"] is not None]
    assert latencies
    assert 0 <= min(latencies) <= max(latencies) < 1_000_000_000
    assert [row["event"] for row in tables["ingest_errors"]] == ["clock_step"]
    assert not {"KAL201", "DLV416"} & {row["rule"] for row in tables["findings"]}
    shifts = {row["clock_shift_ns"] for row in tables["findings"]}
    assert shifts <= {0, read_manifest(tmp_path / "lake").shift_ns}


def test_healed_errors_are_marked(tmp_path: Path, lake: Path) -> None:
    """A capture that has grown, one that could not be opened, and one that stays damaged."""
    grown, absent, damaged = (tmp_path / f"{name}.pcapng" for name in ("grown", "absent", "damaged"))
    content = SEVERAL[0].read_bytes()
    grown.write_bytes(content[:-10])
    damaged.write_bytes(SEVERAL[1].read_bytes()[:-10])
    write_lake([grown, damaged], lake, options(), faults={str(absent): "cannot be opened: Permission denied"})
    assert len(tables_of(lake)["ingest_errors"]) == 3
    grown.write_bytes(content)
    absent.write_bytes(SEVERAL[2].read_bytes())
    done = write_lake([grown, absent, damaged], lake, options())
    assert "ingest_errors" not in done.rows
    assert done.known_errors
    rows = tables_of(lake)["ingest_errors"]
    assert {Path(row["capture"]).stem: row["healed"] for row in rows} == {
        "grown": True,
        "absent": True,
        "damaged": None,
    }
    assert rows_for_others(lake) == all_rows(lake)


def test_an_ingest_that_fails_leaves_nothing(tmp_path: Path, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it fails: the disk is full while rows, sums or errors are written, or at the commit."""
    write_lake([SEVERAL[0]], lake, options())
    before = sorted(path.relative_to(lake) for path in lake.rglob("*"))

    def fail(*_: Any, **__: Any) -> None:
        raise LakeError("No space left on device")

    for name in ("write_sums", "note_errors", "merge_small", "commit", "erase_again"):
        with monkeypatch.context() as patched:
            patched.setattr(writing, name, fail)
            with pytest.raises(LakeError, match="No space"):
                write_lake([SEVERAL[1]], lake, options())
        assert sorted(path.relative_to(lake) for path in lake.rglob("*")) == before
    with monkeypatch.context() as patched:
        patched.setattr("mqttscope.lake.delta.publish", fail)
        with pytest.raises(LakeError, match="No space"):
            write_lake([SEVERAL[1]], lake, options())
    # The commit has begun; the next ingest completes it.
    assert write_lake([SEVERAL[1]], lake, options()).known == [str(SEVERAL[1])]
    same_as_once(lake, SEVERAL[:2])

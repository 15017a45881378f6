"""What a batch leaves as it is of what a lake remembers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mqttscope.lake import carried as module
from mqttscope.lake.carried import MANY, ROWS, StateDivision
from mqttscope.lake.commit import commit, lake_lock
from mqttscope.lake.files import LakeFiles, add_files, measure_files
from mqttscope.lake.manifest import LakeError, Manifest, check_files, read_manifest, remove_strays
from mqttscope.lake.schemas import SCOPE_STATE, STATE
from mqttscope.lake.tables import batch

NOW_NS = 1_000
SCOPES = ("connection", "session")


def flow(number: int) -> bytes:
    return number.to_bytes(4, "big")


def state_rows(
    numbers: Sequence[int], *, due_ns: int | None = 2_000, text: bytes = b"state", keys: int = 10
) -> list[tuple[Any, ...]]:
    return [
        (flow(number), 0, text + flow(number), due_ns, [f"server {number % keys}"], [f"id-{number}"], 0)
        for number in numbers
    ]


def a_row(table: str, **values: Any) -> tuple[Any, ...]:
    return tuple(values.get(name) for name in module._SCHEMAS[table].names)


def lake(root: Path, flows: Sequence[int], *more: tuple[Any, ...], keys: int = 10) -> Manifest:
    """A lake that remembers flows, each with an open connection; ``more``: other rows of ``state``."""
    manifest = Manifest(1)
    with LakeFiles(root, 1, ROWS) as files:
        files.write(STATE.name, batch(STATE.name, [*state_rows(flows, keys=keys), *more]))
        files.write(
            "open/connections",
            batch("connections", [a_row("connections", connection_id=f"id-{number}") for number in flows]),
        )
        rows = [a_row("findings", connection_id=f"id-{number}", scope=scope) for number in flows for scope in SCOPES]
        files.write("open/findings", batch("findings", rows))
        files.write(
            SCOPE_STATE.name,
            batch(SCOPE_STATE.name, [(f"server {number}", b"known", 2_000, None, None, None) for number in range(10)]),
        )
    add_files(manifest, files.names, files.checksums)
    measure_files(root, manifest)
    return manifest


def divided(root: Path, before: Manifest, flows: Sequence[int], now_ns: int | None = NOW_NS) -> StateDivision:
    division = StateDivision.divide(root, before, before.generation + 1, [flow(number) for number in flows], now_ns)
    assert division is not None
    return division


def column(root: Path, names: Sequence[str], name: str) -> list[Any]:
    return [value for text in names for value in pq.read_table(root / text, partitioning=None)[name].to_pylist()]


def after_batch(root: Path, before: Manifest, flows: Sequence[int], keys: int = 10) -> tuple[Manifest, int]:
    """Take a batch that concerns flows, which stay open; returns the lake, and how many bytes were written of it."""
    parts = divided(root, before, flows)
    parts.take_flows()
    parts.note_keys([], NOW_NS)
    after = Manifest(before.generation + 1, checksums=dict(before.checksums), rows=before.rows, sizes=before.sizes)
    after.state_files, after.open_files = parts.state_files, parts.open_files()
    after.checksums |= parts.checksums
    with LakeFiles(root, after.generation, ROWS) as files:
        files.write(STATE.name, batch(STATE.name, state_rows(flows, text=b"newer", keys=keys)))
        rows = [a_row("connections", connection_id=f"id-{number}") for number in flows]
        files.write("open/connections", batch("connections", rows))
    add_files(after, files.names, files.checksums)
    parts.delete_files()
    measure_files(root, after)
    check_files(root, after)
    new = after.all_files() - before.all_files()
    return after, sum(after.sizes[name] for name in new)


def test_flows_are_divided_by_their_segments_and_by_the_time(tmp_path: Path) -> None:
    unknown = flow(98), 0, b"state", None, None, None, None
    (due,) = state_rows([99], due_ns=NOW_NS)
    before = lake(tmp_path, range(20), unknown, due)
    parts = divided(tmp_path, before, [3, 7, 1_000])
    texts = parts.write_rows(parts.take_flows())

    assert sorted(parts.concerned["flow"].to_pylist()) == [flow(number) for number in (3, 7, 98, 99)]
    assert sorted(column(tmp_path, texts, "flow")) == [flow(number) for number in (3, 7, 98, 99)]
    others = [flow(number) for number in range(20) if number not in (3, 7)]
    assert column(tmp_path, parts.state_files, "flow") == others
    assert column(tmp_path, parts.state_files, "state") == [b"state" + raw for raw in others]
    assert parts.others.num_rows == len(others)
    # What no time has come for is not due; without any row that is known as before.
    assert divided(tmp_path, before, [], None).concerned["flow"].to_pylist() == [flow(98)]
    # Nothing is gained where it concerns nearly all.
    assert StateDivision.divide(tmp_path, before, 2, [flow(number) for number in range(10)], NOW_NS) is None
    assert StateDivision.divide(tmp_path, before, 2, [], 2_000) is None


def test_keys_are_divided_by_their_flows_and_by_the_time(tmp_path: Path) -> None:
    before = lake(tmp_path, range(20))
    with LakeFiles(tmp_path, 1) as files:
        files.write(
            SCOPE_STATE.name,
            batch(SCOPE_STATE.name, [("due", b"", NOW_NS, None, None, None), ("older", b"", None, None, None, None)]),
        )
    before.scope_state_files += files.names[SCOPE_STATE.name]
    measure_files(tmp_path, before)
    parts = divided(tmp_path, before, [3])
    parts.take_flows()
    parts.note_keys(["server 7", "new"], NOW_NS)
    some, left = parts.take_keys()
    texts = parts.write_rows(some)
    named, states = parts.take_others()

    assert parts.keys == {"server 3", "server 7", "new", "due", "older"}
    assert sorted(column(tmp_path, texts, "key")) == ["due", "older", "server 3", "server 7"]
    assert sorted(column(tmp_path, left, "key")) == [f"server {number}" for number in range(10) if number not in (3, 7)]
    pairs = zip(named["flow"].to_pylist(), named["key"].to_pylist(), strict=True)
    assert sorted(pairs) == [(flow(7), "server 7"), (flow(13), "server 3"), (flow(17), "server 7")]
    assert parts.rows(some, ("key",))["key"].to_pylist() == column(tmp_path, texts, "key")
    assert {flow(7), flow(13), flow(17)} <= set(column(tmp_path, states, "flow"))


def test_rows_of_what_is_open_are_replaced_by_who_makes_them(tmp_path: Path) -> None:
    before = lake(tmp_path, range(20))
    parts = divided(tmp_path, before, [3])
    parts.take_flows()
    parts.note_keys([], NOW_NS)
    left = parts.open_files()

    assert column(tmp_path, left["connections"], "connection_id") == [
        f"id-{number}" for number in range(20) if number != 3
    ]
    findings = zip(*(column(tmp_path, left["findings"], name) for name in ("connection_id", "scope")), strict=True)
    # Of another flow with the same key the rules of wide scopes are asked again.
    assert set(findings) == {
        (f"id-{number}", scope) for number in range(20) for scope in SCOPES
    } - {("id-3", "connection"), ("id-3", "session"), ("id-13", "session")}  # fmt: skip


def test_what_a_quiet_batch_writes_does_not_grow_with_what_is_open(tmp_path: Path) -> None:
    written = []
    for number, count in enumerate((3 * ROWS, 12 * ROWS)):
        root = tmp_path / str(number)
        manifest = lake(root, range(count), keys=count)
        first, bytes_first = after_batch(root, manifest, [5, 6, 7], count)
        _, bytes_second = after_batch(root, first, [5, 6, 7], count)
        written.append((bytes_first, bytes_second))
        assert len(manifest.state_files) == count // ROWS
        # Flows that speak again and again have a file of their own.
        assert bytes_second * 2 < bytes_first

    (small_first, small_second), (large_first, large_second) = written
    assert large_first < small_first * 1.2
    assert large_second < small_second * 1.2


@pytest.mark.long
def test_small_files_are_merged(tmp_path: Path) -> None:
    now, most = lake(tmp_path, range(2 * ROWS)), 0
    for number in range(3 * MANY):
        now, _ = after_batch(tmp_path, now, [2 * number])
        most = max(most, len(now.state_files), len(now.open_files["connections"]))

        assert sum(now.rows[name] for name in now.state_files) == 2 * ROWS
    assert MANY < most <= MANY + 5
    states = dict(
        zip(column(tmp_path, now.state_files, "flow"), column(tmp_path, now.state_files, "state"), strict=True)
    )
    assert states == {
        flow(number): (b"newer" if number < 6 * MANY and number % 2 == 0 else b"state") + flow(number)
        for number in range(2 * ROWS)
    }
    assert sorted(column(tmp_path, now.open_files["connections"], "connection_id")) == sorted(
        f"id-{number}" for number in range(2 * ROWS)
    )
    assert max(now.rows.values()) <= 2 * ROWS


def test_what_breaks_off_before_the_manifest_leaves_everything(tmp_path: Path) -> None:
    manifest = lake(tmp_path, range(2 * ROWS))
    with lake_lock(tmp_path):
        manifest.generation = 1
        commit(tmp_path, Manifest(), manifest)
    before = read_manifest(tmp_path)
    content = {name: (tmp_path / name).read_bytes() for name in before.all_files()}
    # Killed after all files were written, or before some of them were.
    for steps in range(4):
        parts = divided(tmp_path, before, [5, 6])
        parts.write_rows(parts.take_flows())
        if steps > 0:
            parts.note_keys([], NOW_NS)
            parts.write_rows(parts.take_keys()[0])
        if steps > 1:
            parts.take_others()
        if steps > 2:
            parts.open_files()
        assert {name: (tmp_path / name).read_bytes() for name in before.all_files()} == content
        strays = remove_strays(tmp_path, before)

        assert strays
        assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("*/*.parquet")} == before.all_files()


def test_a_file_that_is_damaged_or_gone_is_named(tmp_path: Path) -> None:
    before = lake(tmp_path, range(20))
    path = tmp_path / before.state_files[0]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(LakeError, match="cannot be read: the lake is damaged"):
        divided(tmp_path, before, [1])
    path.unlink()
    with pytest.raises(LakeError, match="cannot be read: the lake is damaged"):
        divided(tmp_path, before, [1])

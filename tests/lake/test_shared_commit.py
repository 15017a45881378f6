"""Lakes in a store: whoever comes completes what was begun, and of several ingests one wins."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mqttscope
from mqttscope.installation import extra_command
from mqttscope.lake import delta, manifest, shared_commit
from mqttscope.lake.convert import convert_lake
from mqttscope.lake.forget import expire, forget, lift
from mqttscope.lake.manifest import ALIVE_S, NAME, PENDING, LakeError, read_manifest, remove_strays
from mqttscope.lake.schemas import TABLES
from mqttscope.lake.store import LakeStore, Place, StorePath, place
from mqttscope.lake.writer import read_table, write_lake
from tests.cli.running import capture
from tests.lake.reading import all_rows, options, rows_for_others
from tests.lake.test_commit import killed_anywhere
from tests.lake.test_store import Bucket, forgetful
from tests.lake.test_store import store as store

FIRST, SECOND, THIRD = capture("v5-qos"), capture("v311-retained"), capture("v5-topic-alias-client")


def ingest(path: Path, lake: Place) -> None:
    write_lake([path], lake, options())


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[str]]]:
    """What a lake in a folder holds after one, two and three ingests."""
    folder, text_lists = tmp_path_factory.mktemp("steps") / "lake", []
    for path in (FIRST, SECOND, THIRD):
        ingest(path, folder)
        text_lists.append(all_rows(folder))
    return text_lists


def test_a_lake_in_a_store_is_that_of_a_folder(store: StorePath, steps: list[dict[str, list[str]]]) -> None:
    for number, path in enumerate((FIRST, SECOND)):
        ingest(path, store)
        assert all_rows(store) == rows_for_others(store) == steps[number]
    settings = store.store.settings
    with mqttscope.lake.open(store.store.uri, settings=settings) as lake:
        assert {name: sorted(map(repr, lake[name])) for name in TABLES} == steps[1]
        assert {name: len(lake[name]) for name in TABLES} == {name: len(texts) for name, texts in steps[1].items()}
        assert [row["topic"] for row in lake.sql("select topic from retained_messages where state = 'held'")] == [
            "home/mode"
        ]
    with mqttscope.lake.open(store.store.uri, generation=1, settings=settings) as lake:
        assert {name: sorted(map(repr, lake[name])) for name in TABLES} == steps[0]
    # What is in already is not read again, and changes nothing.
    before = store.store.files()
    ingest(FIRST, store)
    assert store.store.files() == before


@pytest.mark.long
def test_changes_in_a_store_are_those_in_a_folder(store: StorePath, tmp_path: Path) -> None:
    key = str(tmp_path / "key")
    name = ""
    for root in (store, tmp_path / "lake"):
        for path in (FIRST, SECOND):
            write_lake([path], root, options(key_file=key))
        name = next(row["client_identifier"] for row in read_table(root, "connections").to_pylist())
        forget(root, [name], key_file=key, everywhere=True)
        write_lake([THIRD], root, options(key_file=key))
        expire(root, min(read_table(root, "packets")["timestamp_ns"].to_pylist()) + 1)
        write_lake([FIRST, SECOND, THIRD], root, options(key_file=key), rebuild=True)
    assert name
    assert all_rows(store) == rows_for_others(store) == all_rows(tmp_path / "lake")
    there = {key for key in store.store.files() if key.endswith(".parquet") and "_delta_log" not in key}
    assert there >= read_manifest(store).all_files()
    forget(store, ["nobody"], key_file=key)
    assert {key for key in store.store.files() if key.endswith(".parquet")} == read_manifest(store).all_files()
    assert lift(store, []) > 1


@pytest.mark.long
def test_damage_is_noticed(store: StorePath) -> None:
    ingest(FIRST, store)
    (name,) = read_manifest(store).files["packets"]
    written = (store / name).read_bytes()
    changed = bytearray(written)
    changed[100] ^= 1
    for content, text in ((bytes(changed), "cannot be read"), (written[:-1], "bytes and should have")):
        with (store / name).open_output() as file:
            file.write(content)
        with pytest.raises(LakeError, match=text):
            read_table(store, "packets", manifest=manifest.open_lake(store))
        with (
            pytest.raises(LakeError, match=f"{text}|cannot be read: the lake is damaged, or its store"),
            mqttscope.lake.open(store.store.uri, settings=store.store.settings) as lake,
        ):
            lake.sql("select * from packets").to_arrow()
    (store / name).unlink()
    with pytest.raises(LakeError, match="is missing: the lake is damaged"):
        manifest.open_lake(store)
    with pytest.raises(LakeError, match="is missing: the lake is damaged"):
        ingest(SECOND, store)


def interrupt(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, when: Callable[..., bool], do: Any) -> None:
    """Do something else at a moment, once: before the call of which a condition holds."""
    real = getattr(owner, name)
    done: list[int] = []

    def called(*arguments: Any, **more: Any) -> Any:
        if not done and when(*arguments):
            done.append(1)
            do()
        return real(*arguments, **more)

    monkeypatch.setattr(owner, name, called)


@pytest.mark.long
def test_who_comes_second_is_refused_and_leaves_nothing(
    store: StorePath, steps: list[dict[str, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(FIRST, store)
    first = read_manifest(store)
    # Another ingest commits as a whole between the reading and the commit of the first one.
    interrupt(monkeypatch, shared_commit, "commit", lambda *_: True, lambda: ingest(SECOND, store))
    with pytest.raises(LakeError, match="was changed by another ingest in the meantime; run this one again"):
        ingest(THIRD, store)
    assert all_rows(store) == rows_for_others(store) == steps[1]
    # Nothing is there but what counts, and what the generation before had.
    known = read_manifest(store).all_files() | first.all_files()
    assert {file for file in store.store.files() if file.endswith(".parquet") and "_delta_log" not in file} == known
    ingest(THIRD, store)
    assert all_rows(store) == rows_for_others(store) == steps[2]


@pytest.mark.long
@pytest.mark.parametrize("moment", ["won", "tables", "manifest"])
def test_who_comes_meanwhile_completes_the_commit_and_both_end(
    moment: str, store: StorePath, steps: list[dict[str, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ingest that has won is slow; another one completes its commit, and commits its own before the first wakes."""
    ingest(FIRST, store)
    seen: list[int] = []

    def other() -> None:
        with mqttscope.lake.open(store.store.uri, settings=store.store.settings) as lake:
            # A reader has all of the first ingest and nothing of the second.
            assert {name: sorted(map(repr, lake[name])) for name in TABLES} == steps[0]
        ingest(THIRD, place(store.store.uri, store.store.settings))
        seen.append(read_manifest(store).generation)

    if moment == "won":
        interrupt(monkeypatch, shared_commit, "_finish", lambda *_: True, other)
    elif moment == "tables":
        # Some of the tables have what the commit names, this one and those after it have not.
        monkeypatch.setattr(delta, "_THREADS", 1)
        interrupt(monkeypatch, delta, "_publish", lambda _, name, *__: name == "connections", other)
    else:
        interrupt(monkeypatch, LakeStore, "replace", lambda _, name, *__: name == NAME, other)
    ingest(SECOND, store)
    assert seen == [3]
    assert all_rows(store) == rows_for_others(store) == steps[2]
    assert read_manifest(store).generation == read_manifest(store, PENDING).generation == 3


@pytest.mark.long
def test_an_answer_that_got_lost_is_no_defeat(
    store: StorePath, steps: list[dict[str, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a client asks again after a lost answer meets what it has written itself."""
    ingest(FIRST, store)
    real = LakeStore.replace

    def lost(self: LakeStore, key: str, data: bytes, tag: str | None) -> None:
        real(self, key, data, tag)
        raise FileExistsError(17, "was written by another")

    with monkeypatch.context() as patched:
        patched.setattr(LakeStore, "replace", lost)
        patched.setattr(LakeStore, "is_conditional", lambda _: True)
        patched.setattr(shared_commit, "_PAUSE_S", 0.001)
        ingest(SECOND, store)
    assert all_rows(store) == rows_for_others(store) == steps[1]


@pytest.mark.long
def test_a_store_without_conditions_is_refused(
    bucket: Bucket, store: StorePath, steps: list[dict[str, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        LakeError,
        match=r"this store has no conditional writes \(If-None-Match\).*; use --single-writer if no other ingest",
    ):
        ingest(FIRST, forgetful(bucket, store))
    for uri in ("gs://bucket/lake", "abfss://container@account.dfs.core.windows.net/lake"):
        with pytest.raises(LakeError, match=r"only S3 keeps ingests from .* use --single-writer"):
            ingest(FIRST, place(uri))
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "boto3", None)
        with pytest.raises(LakeError, match="needs what is not installed .*boto3.*: " + re.escape(extra_command("s3"))):
            ingest(FIRST, store)
        # Nobody else writes it, so that nothing of this is needed.
        alone = place(store.store.uri, store.store.settings, single_writer=True)
        ingest(FIRST, alone)
        ingest(SECOND, alone)
        assert all_rows(alone) == rows_for_others(alone) == steps[1]


@pytest.mark.long
def test_a_lake_is_not_made_among_other_things(store: StorePath) -> None:
    with (store / "photo.jpg").open_output() as file:
        file.write(b"x")
    with pytest.raises(LakeError, match=r"is not a lake, and not empty \(it holds photo.jpg\)"):
        ingest(FIRST, store)
    (store / "photo.jpg").unlink()
    ingest(FIRST, store)
    (store / NAME).unlink()
    (store / PENDING).unlink()
    with pytest.raises(LakeError, match=r"holds the tables of a lake, but not its manifest.json"):
        ingest(SECOND, store)
    with pytest.raises(LakeError, match="is not a lake"):
        mqttscope.lake.open(store.store.uri, settings=store.store.settings)
    with pytest.raises(LakeError, match="is in a store; this works only with a lake in a folder"):
        convert_lake(store)


@pytest.mark.long
def test_what_a_dead_ingest_left_goes_away_after_a_day(store: StorePath, monkeypatch: pytest.MonkeyPatch) -> None:
    ingest(FIRST, store)
    stray = store / "packets" / "0000000009-stray-0.parquet"
    with stray.open_output() as file:
        file.write(b"x")
    actual_manifest = read_manifest(store)
    # It may be of an ingest that is under way.
    assert remove_strays(store, actual_manifest) == []
    now = time.time() + ALIVE_S + 60
    monkeypatch.setattr(time, "time", lambda: now)
    assert remove_strays(store, actual_manifest) == [stray.key]
    manifest.check_files(store, actual_manifest)


@pytest.mark.long
def test_an_ingest_that_is_killed_anywhere(bucket: Bucket, store: StorePath, steps: list[dict[str, list[str]]]) -> None:
    """SIGKILL at moments all over an ingest from a store into a store; what is run again is in once."""
    client, settings = bucket
    parts = []
    for number, path in enumerate((FIRST, SECOND)):
        client.put_object(Bucket="captures", Key=f"killed/{number}.pcapng", Body=path.read_bytes())
        parts.append(f"s3://captures/killed/{number}.pcapng")

    def here(texts: dict[str, list[str]]) -> dict[str, list[str]]:
        """As if the captures lay on this machine."""
        for uri, single_path in zip(parts, (FIRST, SECOND), strict=True):
            texts = {name: sorted(row.replace(uri, str(single_path)) for row in texts) for name, texts in texts.items()}
        return texts

    for killed in killed_anywhere(store.store.uri, 17, *parts, json.dumps(settings)):
        assert here(killed["before"]) == steps[killed["read"] - 1]
        assert here(killed["after"]) == here(killed["in_tables"]) == steps[1]

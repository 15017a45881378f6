"""Captures and lakes in stores of Google and Microsoft, as far as emulators are like them (`tests.emulators`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

import mqttscope
from mqttscope.capture.locations import find
from mqttscope.lake import shared_commit
from mqttscope.lake.manifest import NAME, PENDING, LakeError, read_manifest
from mqttscope.lake.store import COPY, LakeStore, StorePath, place
from mqttscope.lake.writer import write_lake
from tests.cli.running import invoke
from tests.emulators import ACCOUNT, CONTAINER, KEY, azurite, fake_gcs_server, signature
from tests.lake.reading import all_rows, options, rows_for_others
from tests.lake.test_shared_commit import FIRST, SECOND, interrupt
from tests.lake.test_store import check_like_a_path

pytestmark = pytest.mark.long

PARTS = {"a.pcapng": FIRST, "b.pcapng": SECOND}


@pytest.fixture(scope="module", params=["azure", "google"])
def base(request: pytest.FixtureRequest) -> Iterator[tuple[str, dict[str, str]]]:
    """A URI of a store, and the settings that lead to it."""
    with (azurite if request.param == "azure" else fake_gcs_server)() as host, pytest.MonkeyPatch.context() as patched:
        patched.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
        uri = f"abfss://{CONTAINER}@{ACCOUNT}.dfs.core.windows.net"
        yield uri if request.param == "azure" else f"gs://anonymous@{CONTAINER}", {
            "endpoint_override": host, "scheme": "http",
        }  # fmt: skip


@pytest.fixture
def store(base: tuple[str, dict[str, str]]) -> StorePath:
    """A place in it that nobody else uses."""
    path = place(f"{base[0]}/{uuid4().hex}", base[1], single_writer=True)
    assert isinstance(path, StorePath)
    return path


def put(store: StorePath, name: str, data: bytes) -> None:
    with (store / name).open_output() as file:
        file.write(data)


def test_it_is_like_a_path(store: StorePath) -> None:
    check_like_a_path(store)
    put(store, "empty", b"")
    assert (store / "empty").read_bytes() == b""
    assert store.store.files()["empty"].st_size == 0


def test_captures_and_lake_in_one_store(store: StorePath, base: tuple[str, dict[str, str]], tmp_path: Any) -> None:
    """The tables are those of a lake in a folder, from captures in the store."""
    uri, settings = store.store.uri, dict(store.store.settings)
    for name, path in PARTS.items():
        put(store, f"day/{name}", path.read_bytes())
    lake, here = place(f"{uri}/lake", settings, single_writer=True), tmp_path / "here"
    for name, source in (("a.pcapng", f"{uri}/day/a*.pcapng"), ("b.pcapng", f"{uri}/day/")):
        done = write_lake(find([source], settings, read_manifest(lake).objects), lake, options(), settings=settings)
        assert done.captures == [f"{uri}/day/{name}"]
        write_lake(find([source], settings), here, options(), settings=settings)
        assert all_rows(lake) == rows_for_others(lake) == all_rows(here)
    again = write_lake(find([f"{uri}/day/"], settings), lake, options(), settings=settings)
    assert (again.captures, len(again.known)) == ([], 2)
    assert read_manifest(lake).generation == 2
    with mqttscope.lake.open(f"{uri}/lake", settings=settings) as opened:
        relation = opened.sql("select topic from retained_messages where state = 'held'")
        assert [row["topic"] for row in relation] == ["home/mode"]
    words = [word for name, value in settings.items() for word in ("--fs", f"{name}={value}")]
    asked = invoke("pipeline", "sql", "select count(*) as n from packets", "--lake", f"{uri}/lake", *words)
    assert (asked.code, asked.out.split()[-1]) == (0, str(len(all_rows(here)["packets"])).encode()), asked.err
    # Without --single-writer nothing is written.
    refused = invoke("pipeline", "ingest", FIRST, "--lake", f"{uri}/other", *words)
    assert (refused.code, "use --single-writer" in refused.err) == (3, True)
    absent = invoke("pipeline", "sql", "select 1", "--lake", f"{uri}/none", *words)
    assert (absent.code, absent.err) == (3, f"mqttscope: {uri}/none is not a lake\n")


def test_who_comes_second_is_refused(store: StorePath, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(monkeypatch, shared_commit, "commit", lambda *_: True, lambda: write_lake([SECOND], store, options()))
    with pytest.raises(LakeError, match="was changed by another ingest in the meantime; run this one again"):
        write_lake([FIRST], store, options())
    assert set(read_manifest(store).captures.values()) == {str(SECOND)}


@pytest.mark.parametrize("name", [PENDING, NAME])
def test_an_ingest_that_is_killed_while_an_object_is_empty(
    name: str, store: StorePath, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """The first object of a commit, or the last, is emptied and not written."""
    if not store.store.empties:
        pytest.skip("an object of this store is never empty while it is written")
    write_lake([FIRST], store, options())
    rest: list[Any] = []

    def killed(self: LakeStore, key: str, data: bytes) -> None:
        if key != name:
            write(self, key, data)
            return
        rest.append((StorePath(self) / key).open_output())
        raise KeyboardInterrupt

    write = LakeStore._write
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the patch is part of it
        patched.setattr(LakeStore, "_write", killed)
        write_lake([SECOND], store, options())
    assert (store / name).stat().st_size == 0
    assert read_manifest(store, name).generation == 2
    assert read_manifest(store).generation == (1 if name == PENDING else 2)
    # Killed once more, while the copy is written: the object was made whole before.
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the patch is part of it
        patched.setattr(LakeStore, "_write", killed)
        name, whole = name + COPY, name
        store.store.replace(whole, b"{}", store.store.read(whole)[1])  # type: ignore[index]
    assert read_manifest(store, whole).generation == 2
    write_lake([SECOND], store, options())
    for path in (FIRST, SECOND):
        write_lake([path], tmp_path / "here", options())
    assert all_rows(store) == rows_for_others(store) == all_rows(tmp_path / "here")


def test_a_signature_is_as_good_as_a_key(base: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    if "AZURE_STORAGE_ACCOUNT_KEY" not in os.environ or base[0].startswith("gs:"):
        pytest.skip("signatures are those of Azure")
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", signature())
    lake = place(f"{base[0]}/{uuid4().hex}", base[1], single_writer=True)
    write_lake([FIRST], lake, options())
    assert all_rows(lake) == rows_for_others(lake)
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", signature().replace("sig=", "sig=A"))
    with pytest.raises(LakeError, match="403 ") as caught:
        read_manifest(place(lake.store.uri, base[1]))  # type: ignore[union-attr]
    assert "sig=" not in str(caught.value)

"""Captures in a store, read in process: into a lake of a folder, and into one of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from mqttscope.capture import locations
from mqttscope.capture.locations import find, open_location
from mqttscope.lake import writer as writing
from mqttscope.lake.manifest import LakeError, read_manifest
from mqttscope.lake.store import Place, place
from mqttscope.lake.writer import IngestResult, write_lake
from tests.capture.doubled import recorded, two_taps, write
from tests.cli.running import capture
from tests.lake.reading import all_rows, options
from tests.lake.test_store import Bucket

QOS, ALIAS = capture("v5-qos"), capture("v5-topic-alias-client")


class Site:
    """A folder of captures in a store, and the same on this machine."""

    def __init__(self, bucket: Bucket, folder: Path) -> None:
        self.client, self.settings = bucket
        self.key = f"site-{uuid4().hex}"
        self.uri = f"s3://captures/{self.key}"
        self.folder = folder / "captures"
        self.folder.mkdir()

    def put(self, name: str, data: bytes) -> None:
        self.client.put_object(Bucket="captures", Key=f"{self.key}/{name}", Body=data)
        (self.folder / name).write_bytes(data)

    def remove(self, name: str) -> None:
        self.client.delete_object(Bucket="captures", Key=f"{self.key}/{name}")

    def ingest(self, lake: Place, **changes: Any) -> IngestResult:
        actual_locations = find([f"{self.uri}/"], self.settings)
        return write_lake(actual_locations, lake, options(**changes), settings=self.settings)

    def ingest_here(self, lake: Path, **changes: Any) -> IngestResult:
        return write_lake(find([str(self.folder)]), lake, options(**changes))

    def all_rows(self, lake: Place) -> dict[str, list[str]]:
        """Rows of a lake, as if the captures lay here."""
        return {
            name: sorted(text.replace(self.uri, str(self.folder)) for text in row)
            for name, row in all_rows(lake).items()
        }


@pytest.fixture
def site(bucket: Bucket, tmp_path: Path) -> Site:
    return Site(bucket, tmp_path)


@pytest.fixture
def lake(bucket: Bucket) -> Place:
    return place(f"s3://captures/lake-{uuid4().hex}", bucket[1])


def test_tables_are_those_of_captures_on_this_machine(site: Site, tmp_path: Path) -> None:
    here, lake = tmp_path / "here", tmp_path / "lake"
    whole = QOS.read_bytes()
    steps = (
        ("a.pcapng", ALIAS.read_bytes()),
        # The end of one that is being written, then all of it; what was read is not read again.
        ("b.pcapng", whole[:-37]),
        ("b.pcapng", whole),
    )
    for name, data in steps:
        site.put(name, data)
        wanted = site.ingest_here(here)
        done = site.ingest(lake)
        assert done.captures == [f"{site.uri}/{name}"]
        assert (len(done.grown), done.rows, done.open_flows) == (len(wanted.grown), wanted.rows, wanted.open_flows)
    assert done.grown == [f"{site.uri}/b.pcapng"]
    assert site.all_rows(lake) == all_rows(here)
    assert set(read_manifest(lake).captures.values()) == {f"{site.uri}/{name}" for name in ("a.pcapng", "b.pcapng")}
    again = site.ingest(lake)
    assert (again.captures, len(again.known)) == ([], 2)
    assert read_manifest(lake).generation == 3


def test_what_is_in_is_not_fetched_again(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither to be found nor to be known; what is written again is."""
    lake = tmp_path / "lake"
    fetched: list[str] = []

    def opened(target: str, settings: Any = None) -> Any:
        fetched.append(target.removeprefix(f"{site.uri}/"))
        return real(target, settings)

    def ingest() -> tuple[list[str], set[str]]:
        fetched.clear()
        actual_locations = find([f"{site.uri}/"], site.settings, read_manifest(lake).objects)
        done = write_lake(actual_locations, lake, options(), settings=site.settings)
        assert len(done.captures) + len(done.known) == len(actual_locations)
        return [name.removeprefix(f"{site.uri}/") for name in done.captures], set(fetched)

    real = open_location
    for module in (locations, writing):
        monkeypatch.setattr(module, "open_location", opened)
    site.put("a.pcapng", ALIAS.read_bytes())
    # It was written this second, and may be written again in this second.
    monkeypatch.setattr(writing, "SETTLED_NS", 1 << 62)
    assert ingest() == (["a.pcapng"], {"a.pcapng"})
    assert ingest() == ([], {"a.pcapng"})
    monkeypatch.setattr(writing, "SETTLED_NS", -1 << 60)
    site.put("b", QOS.read_bytes())
    assert ingest() == (["b"], {"a.pcapng", "b"})
    assert ingest() == ([], set())
    assert set(read_manifest(lake).objects) == {f"{site.uri}/a.pcapng", f"{site.uri}/b"}
    site.put("b", capture("reordered").read_bytes())
    assert ingest() == (["b"], {"b"})
    site.remove("a.pcapng")
    assert ingest() == ([], set())


@pytest.mark.parametrize("how", ["replaced", "removed"])
def test_what_changes_while_others_are_read_is_left_to_the_next_ingest(
    how: str, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    site.put("a.pcapng", ALIAS.read_bytes())
    site.put("b.pcapng", QOS.read_bytes())
    begun: list[int] = []

    def read(*arguments: Any) -> None:
        begun.append(1)
        if how == "removed":
            site.remove("b.pcapng")
        else:
            site.put("b.pcapng", capture("reordered").read_bytes())
        real(*arguments)

    real = writing._read
    monkeypatch.setattr(writing, "_read", read)
    done = site.ingest(lake)
    monkeypatch.undo()

    assert begun == [1]
    assert done.captures == [f"{site.uri}/a.pcapng"]
    why = "is another file" if how == "replaced" else "does not exist"
    (row,) = [text for text in all_rows(lake)["ingest_errors"] if "since it was found" in text]
    assert f"{why} since it was found" in row
    site.put("b.pcapng", QOS.read_bytes())
    assert site.ingest(lake).captures == [f"{site.uri}/b.pcapng"]


def test_what_is_gone_before_anything_is_read_costs_nothing_but_itself(site: Site, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    site.put("a.pcapng", ALIAS.read_bytes())
    site.put("b.pcapng", QOS.read_bytes())
    actual_locations = find([f"{site.uri}/"], site.settings)
    site.remove("b.pcapng")
    done = write_lake(actual_locations, lake, options(), settings=site.settings)
    assert (done.captures, done.faults) == (
        [f"{site.uri}/a.pcapng"], {f"{site.uri}/b.pcapng": "does not exist since it was found"},
    )  # fmt: skip
    site.remove("a.pcapng")
    with pytest.raises(LakeError, match=r"nothing is done: .*a.pcapng does not exist since it was found"):
        write_lake(actual_locations, lake, options(), settings=site.settings)


@pytest.mark.long
def test_names_are_no_patterns(site: Site, tmp_path: Path) -> None:
    """A key may be what a glob or a path of this machine is elsewhere; what may be a query is not shown."""
    lake = tmp_path / "lake"
    site.put("a[bc]*.pcapng", QOS.read_bytes())
    site.put("-", ALIAS.read_bytes())
    assert len(site.ingest(lake).captures) == 2
    site.ingest_here(tmp_path / "here")
    assert site.all_rows(lake) == all_rows(tmp_path / "here")

    site.put("x?1.pcapng", capture("reordered").read_bytes())
    site.put("x?2.pcapng", capture("port-reused").read_bytes())
    done = site.ingest(lake)
    assert done.captures == [f"{site.uri}/x?***"]
    assert [why.partition(":")[0] for why in done.faults.values()] == ["names several captures"]


@pytest.mark.long
def test_taps_in_a_store(site: Site, lake: Place, tmp_path: Path) -> None:
    frames, other = two_taps(recorded(capture("planted-violations")), loss=0.05, shift_ns=1_003_000_000)
    site.put("near.pcapng", Path(write(tmp_path / "near.pcapng", frames)).read_bytes())
    site.put("far.pcapng", Path(write(tmp_path / "far.pcapng", other)).read_bytes())
    wanted, done = site.ingest_here(tmp_path / "here", deduplicate=True), site.ingest(lake, deduplicate=True)
    assert wanted.taps is not None
    assert done.taps is not None
    texts = [line.replace(f"{site.uri}/", "") for line in done.taps.sentences()]
    assert texts == [line.replace(f"{site.folder}/", "") for line in wanted.taps.sentences()]
    assert "its times are corrected" in texts[0]
    assert site.all_rows(lake) == all_rows(tmp_path / "here")

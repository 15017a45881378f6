"""Places in a store, as far as they are like paths; small objects that are written once, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from mqttscope.lake.store import PROBE, LakeStore, StorePath, is_store, opened, place
from tests.each import each

Bucket = tuple[Any, dict[str, str]]


@pytest.fixture
def store(bucket: Bucket) -> StorePath:
    """A place in the store that nobody else uses."""
    path = place(f"s3://captures/store-{uuid4().hex}", bucket[1])
    assert isinstance(path, StorePath)
    return path


@each("lake, uri", [
    ("s3://bucket/a/b", "s3://bucket/a/b"),
    ("s3a://bucket//a//b//", "s3a://bucket/a/b"),
    ("S3://Bucket", "s3://Bucket"),
    ("gs://bucket/a", "gs://bucket/a"),
    ("abfss://container@account.dfs.core.windows.net/a", "abfss://container@account.dfs.core.windows.net/a"),
    ("lake", None),
    ("/s3://lake", None),
    ("s3:lake", None),
    ("s3://", None),
    ("hdfs://host/lake", None),
    ("https://host/lake", None),
])  # fmt: skip
def test_what_is_in_a_store(lake: str, uri: str | None) -> None:
    path = place(lake)
    assert is_store(lake) == is_store(path) == (uri is not None)
    assert (path.store.uri if isinstance(path, StorePath) else None) == uri
    if uri is None:
        assert path == Path(lake)
        assert opened(path) is path
    else:
        assert place(path) is path


@each("uri, settings, single, options", [
    ("s3://b/l", {"region": "eu-central-1"}, False, {"aws_region": "eu-central-1", "aws_conditional_put": "etag"}),
    ("s3a://b/l", {"region": "x", "endpoint_override": "h:9", "scheme": "http"}, False,
     {"aws_region": "x", "aws_conditional_put": "etag", "aws_endpoint_url": "http://h:9", "aws_allow_http": "true"}),
    ("s3://b/l", {"region": "x", "endpoint_override": "https://h"}, True,
     {"aws_region": "x", "aws_s3_allow_unsafe_rename": "true", "aws_endpoint_url": "https://h",
      "aws_allow_http": "false"}),
    ("gs://b/l", {}, False, {}),
    ("abfs://c@a.dfs.core.windows.net/l", {}, True, {"azure_storage_account_name": "a"}),
])  # fmt: skip
def test_what_delta_is_told(uri: str, settings: dict[str, str], single: bool, options: dict[str, str]) -> None:
    store = LakeStore(uri, settings, single)
    assert store.delta_options == options
    assert store.delta_uri == uri.replace("s3a:", "s3:").replace("abfs:", "abfss:")


def check_like_a_path(store: StorePath) -> None:
    """A place in a store is used as a path is."""
    path = store / "packets" / "1.parquet"
    assert (str(path), path.name, path.key) == (f"{store}/packets/1.parquet", "1.parquet", "packets/1.parquet")
    assert not path.exists()
    for call in (path.stat, path.read_bytes, path.unlink):
        with pytest.raises(FileNotFoundError):
            call()
    path.unlink(missing_ok=True)
    assert store.store.top() == []
    with path.open_output() as file:
        file.write(b"abc")
        # It is there when it is closed, and not before, or empty.
        assert path.exists() == store.store.empties
    assert path.exists()
    assert (path.stat().st_size, path.read_bytes()) == (3, b"abc")
    with opened(path) as file:
        file.seek(1)
        assert file.read() == b"bc"
    with (store / "manifest.json").open_output() as file:
        file.write(b"{}")
    assert {name: status.st_size for name, status in store.store.files().items()} == {
        "packets/1.parquet": 3, "manifest.json": 2,
    }  # fmt: skip
    assert sorted(store.store.top()) == ["manifest.json", "packets"]
    path.unlink()
    assert not path.exists()


def test_it_is_like_a_path(store: StorePath) -> None:
    assert not store.store.empties
    check_like_a_path(store)


def test_a_store_that_cannot_be_reached_is_an_error_of_the_system(bucket: Bucket) -> None:
    gone = place("s3://no-such-bucket-here/lake", bucket[1])
    assert isinstance(gone, StorePath)
    with pytest.raises(OSError, match="NoSuchBucket"):
        gone.store.read("a")
    with pytest.raises(OSError, match="NoSuchBucket"):
        gone.store.replace("a", b"", None)


@pytest.mark.parametrize("single", [False, True])
def test_what_is_replaced_is_what_was_read(single: bool, store: StorePath) -> None:
    lake_store = LakeStore(store.store.uri, store.store.settings, single)
    assert lake_store.read("pending.json") is None
    with pytest.raises(FileExistsError):
        lake_store.replace("pending.json", b"0", "of another")
    lake_store.replace("pending.json", b"1", None)
    with pytest.raises(FileExistsError):
        lake_store.replace("pending.json", b"2", None)
    result = lake_store.read("pending.json")
    assert result is not None
    assert result[0] == b"1"
    lake_store.replace("pending.json", b"3", result[1])
    with pytest.raises(FileExistsError):
        lake_store.replace("pending.json", b"4", result[1])
    again = lake_store.read("pending.json")
    assert again is not None
    assert again[0] == b"3"


def forgetful(bucket: Bucket, store: StorePath) -> StorePath:
    """The same store, which does not look at conditions: the header does not reach it."""
    import boto3

    _, settings = bucket
    endpoint = f"http://{settings['endpoint_override']}"
    client = boto3.client("s3", endpoint_url=endpoint, region_name=settings["region"])

    def forget(params: dict[str, Any], **_: object) -> None:
        for name in ("If-None-Match", "If-Match"):
            params["headers"].pop(name, None)

    client.meta.events.register("before-call.s3.PutObject", forget)
    lake_store = LakeStore(store.store.uri, settings)
    lake_store.__dict__["_client"] = client
    return StorePath(lake_store)


def test_a_store_shows_whether_it_has_conditions(bucket: Bucket, store: StorePath) -> None:
    assert not forgetful(bucket, store).store.is_conditional()
    assert store.store.is_conditional()
    assert store.store.is_conditional()
    assert store.store.top() == [PROBE]
    assert not LakeStore("gs://bucket/lake").is_conditional()

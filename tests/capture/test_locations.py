"""Finding and opening captures: as open_capture does, on this machine and in a store."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import tools

tools.package("pyarrow")

from mqttscope.capture import locations as module
from mqttscope.capture import open_capture
from mqttscope.capture.locations import Location, NoCapturesError, _pattern, _ReadAhead, find, open_location
from tests.spark.samples import everything, frames, pcap


def order(sources: list[str]) -> list[str]:
    """The captures in the order in which open_capture reads them."""
    return list(dict.fromkeys(item.capture for item in open_capture(sources)))


def test_captures_are_found_in_the_order_in_which_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = everything(tmp_path / "set")
    monkeypatch.chdir(tmp_path)

    for named in (sources, ["set"], ["set/?.pcap*", "set/b.pcap"], ["set/c.pcap", "set/b.pcap", "set/c.pcap"]):
        locations = find(named)
        assert [
            location.name for location in dict.fromkeys(locations) if not location.name.endswith("empty.pcap")
        ] == order(named)
        for location in locations:
            assert location.target == os.path.abspath(location.name)
            assert location.fault is not None or location.size == os.path.getsize(location.name)


def test_uris_of_local_files(tmp_path: Path) -> None:
    (tmp_path / "a b.pcap").write_bytes(pcap(frames(1)))
    path = str(tmp_path / "a b.pcap")

    for source in (
        path,
        f"file://{path}",
        f"file:{path}",
        f"file://{path}".replace(" ", "%20"),
        f"file://{tmp_path}/*",
    ):
        assert [location.target for location in find([source])] == [path]


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (["/nowhere/*.pcap", "/nowhere/a"], r"^/nowhere/\*\.pcap matches no file; /nowhere/a does not exist$"),
        (["-"], "^- is standard input, which only one process can read$"),
        ([], "^no capture is named$"),
        (["ftp://host/a"], "^ftp://host/a cannot be opened: Unrecognized filesystem type in URI: ftp://host/"),
        (["hdfs://127.0.0.1:1/a"], "^hdfs://127.0.0.1:1/a cannot be opened: [^\n]*$"),
    ],
)
def test_nothing_that_can_be_read_is_an_error(sources: list[str], message: str) -> None:
    with pytest.raises(NoCapturesError, match=message):
        find(sources)


def test_what_is_faulty_stands_among_the_others(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(pcap(frames(1)))

    locations = find([f"{tmp_path}/a", f"{tmp_path}/b"])

    assert [(location.name[-1], location.fault) for location in locations] == [("b", "does not exist"), ("a", None)]


def test_databricks_paths_are_local() -> None:
    with pytest.raises(NoCapturesError, match=r"^/dbfs/a/b does not exist$"):
        find(["dbfs:/a/b"])


@pytest.mark.parametrize(
    ("pattern", "path", "is_match"),
    [
        ("b/*.pcap", "b/a.pcap", True),
        ("b/*.pcap", "b/c/a.pcap", False),
        ("b/**/*.pcap", "b/c/d/a.pcap", True),
        ("b/**/*.pcap", "b/a.pcap", True),
        ("b/?[0-9].pcap", "b/x7.pcap", True),
        ("b/?[!0-9].pcap", "b/x7.pcap", False),
        ("b/[!a]+(1).pcap", "b/b+(1).pcap", True),
        ("b/a.pcap", "b/aXpcap", False),
    ],
)
def test_globs_of_stores(pattern: str, path: str, is_match: bool) -> None:
    assert (_pattern(pattern).fullmatch(path) is not None) is is_match


def test_captures_in_a_store(bucket: tuple[Any, dict[str, str]], tmp_path: Path) -> None:
    client, reached = bucket
    everything(tmp_path / "set")
    for path in (tmp_path / "set").iterdir():
        client.put_object(Bucket="captures", Key=f"set/{path.name}", Body=path.read_bytes())
    client.put_object(Bucket="captures", Key="set/deeper/z.pcap", Body=pcap(frames(1), seconds=1))
    local = [Path(name).name for name in order([str(tmp_path / "set")]) if not name.endswith("empty.pcap")]

    def result(source: str) -> list[str]:
        return [location.name for location in find([source], reached)]

    names = result("s3a://captures/set/")
    assert [Path(name).name for name in names if "empty" not in name] == local
    assert names[0].startswith("s3a://captures/set/")
    assert result("s3://captures/set/?.pcap") == ["s3://captures/set/b.pcap", "s3://captures/set/c.pcap"]
    assert result("s3://captures/**/[bz].pcap") == ["s3://captures/set/deeper/z.pcap", "s3://captures/set/b.pcap"]
    assert result("s3n://captures/set/c.pcap") == ["s3n://captures/set/c.pcap"]
    for source, why in (
        ("s3://captures/none", "does not exist"),
        ("s3://captures/none/*", "matches no file"),
        ("s3://captures/set/deeper/y*", "matches no file"),
    ):
        with pytest.raises(NoCapturesError, match=why):
            result(source)
    both = find(["s3://captures/set/*", "s3://captures/set/c.pcap", "s3://captures/none"], reached)
    assert [location.name for location in both].count("s3://captures/set/c.pcap") == 1
    with open_location("s3a://captures/set/c.pcap", reached) as file:
        assert file.read() == (tmp_path / "set" / "c.pcap").read_bytes()
    with pytest.raises(OSError, match=r"does not exist|not found|404"):
        open_location("s3://captures/none", reached)


def test_a_location_knows_where_it_is() -> None:
    assert Location("a", "s3://b/a").is_remote
    assert not Location("a", "/b/a").is_remote


class Remote(io.BytesIO):
    """A file as pyarrow has it."""

    def size(self) -> int:
        return len(self.getvalue())


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.integers(-1, 40), st.tuples(st.integers(0, 60), st.just(0)), st.tuples(st.integers(-50, 0), st.just(2))
        )
    )
)
def test_reading_ahead_gives_the_bytes_of_the_file(steps: list[int | tuple[int, int]]) -> None:
    content = bytes(range(50))
    plain, ahead = io.BytesIO(content), _ReadAhead(Remote(content))
    with patch.object(module, "READ_AHEAD_BYTES", 16):
        for step in steps:
            if isinstance(step, tuple):
                assert ahead.seek(*step) == plain.seek(*step)
                continue
            want = plain.tell()
            data = ahead.read(step)
            assert data == content[want : want + len(data)]
            assert data or step == 0 or want >= len(content)
            assert step < 0 or len(data) <= step
            assert step >= 0 or want + len(data) >= len(content)
            plain.seek(want + len(data))
            assert ahead.seek(0, os.SEEK_CUR) == plain.tell()

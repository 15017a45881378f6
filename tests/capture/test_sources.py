"""What directories and glob patterns stand for, and what is said of what cannot be read; reading it: test_files.py."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from mqttscope.capture.files import open_capture
from mqttscope.capture.sources import expand, fault, identity, is_named_like_capture, links_last
from mqttscope.net.frame import CaptureError
from tests.capture.test_files import capture_at


@pytest.mark.parametrize(
    "name",
    [
        "a.pcap", "a.PCAPNG", "a.pcap12", "a.pcap.3", "a.pcap_00001", "a.pcapng-2026.11.22", "a.pcap.gz",
        "a.pcapng.zst", "a.pcap1.lz4", "a.pcap.gz.1", "a.pcap.bz2", "a.ntar",
    ],
)  # fmt: skip
def test_what_is_called_a_capture_and_is_none_is_said_of_directories_too(here: Path, name: str) -> None:
    (here / "set").mkdir()
    (here / "set" / name).write_bytes(b"")
    (here / "set" / f"{name}.txt").write_bytes(b"")
    (here / "set" / f"{name}\n").write_bytes(b"")
    (here / "set" / "capture").write_bytes(capture_at(20))

    error, *frames = open_capture(["set"])

    assert error == CaptureError(f"set/{name}", "is empty", 0, 0)
    assert {one.capture for one in frames} == {"set/capture"}


@pytest.mark.parametrize("name", ["pcap", "a.pcapx", "a.pcap.txt", "a.pcap.part", "a.gz", "a.pcap" + "1" * 200 + "x"])
def test_names_that_say_nothing(name: str) -> None:
    assert not is_named_like_capture(name)


def test_pipes_sockets_and_links_that_lead_nowhere_are_named_and_never_waited_for(here: Path) -> None:
    (here / "set" / "dir.pcap").mkdir(parents=True)
    for suffix in ("", ".pcap"):
        os.mkfifo(here / "set" / f"pipe{suffix}")
        (here / "set" / f"gone{suffix}").symlink_to("nowhere")
        (here / "set" / f"round{suffix}").symlink_to(f"round{suffix}")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("set/s.pcap")
    said = {
        "gone": "is a link to what does not exist",
        "pipe": "is no regular file",
        "round": "cannot be opened: Too many levels of symbolic links",
    }
    irregular = [("pipe", "pipe.pcap"), ("gone", "gone.pcap"), ("round", "round.pcap")]

    found = expand("set")
    matched = expand("set/*")

    socket_error = CaptureError("set/s.pcap", "is no regular file")
    named = [CaptureError(f"set/{name}", said[kind]) for kind, name in irregular]
    assert found is not None
    assert sorted(map(repr, found)) == sorted(map(repr, [*named, socket_error]))
    assert matched is not None
    unnamed = [CaptureError(f"set/{kind}", said[kind]) for kind, _ in irregular]
    assert sorted(map(repr, matched)) == sorted(map(repr, [*named, *unnamed, socket_error]))
    assert list(open_capture(["set", "set/*"])) == [*found, *(one for one in matched if one in unnamed)]


def test_what_is_named_itself_is_not_looked_at(here: Path) -> None:
    os.mkfifo(here / "pipe")

    assert expand("pipe") is None
    assert expand("missing.pcap") is None
    assert expand("nul\0") is None
    assert expand("no*") == [CaptureError("no*", "matches no file")]


def test_links_come_last(here: Path) -> None:
    for name in "bca":
        (here / name).write_bytes(b"")
    (here / "0").symlink_to("c")

    assert links_last("x", ["b", "a"]) == ["x/a", "x/b"]
    assert links_last("", ["0", "c", "b", "a"]) == ["a", "b", "c", "0"]


def test_files_are_the_same_under_any_name(here: Path) -> None:
    (here / "a").write_bytes(b"")
    (here / "b").write_bytes(b"")
    (here / "link").symlink_to("a")
    (here / "hard").hardlink_to(here / "a")
    (here / "gone").symlink_to("nowhere")

    assert identity("a") == identity("./link") == identity(str(here / "hard"))
    assert len({identity(name) for name in ("a", "b", "gone", "missing", "other", "nul\0")}) == 6
    assert [fault(name) for name in ("a", "link", "gone", "missing", ".")] == [
        None, None, "is a link to what does not exist", "does not exist", "is no regular file"
    ]  # fmt: skip
    assert str(fault("nul\0")).startswith("cannot be opened: ")

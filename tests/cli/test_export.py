"""``inspect --output``: the frames of what was shown, as a capture of their own."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mqttscope.capture import open_capture
from mqttscope.cli import export
from mqttscope.net.frame import Frame
from tests.cli.running import CAPTURES, capture, inspected, invoke, run, without

QOS = capture("v5-qos")


def frames(path: Path) -> list[Frame]:
    found = list(open_capture([path]))
    assert all(isinstance(frame, Frame) for frame in found)
    return found  # type: ignore[return-value]


def told(path: Path, *arguments: str) -> list[dict[str, Any]]:
    """What a capture shows, without what changes when frames are left out."""
    return [
        without(line, "capture", "frame")
        for line in inspected(path, *arguments).lines
        if line["event"] in ("packet", "malformed")
    ]


def exported(tmp_path: Path, *arguments: str | Path, given: bytes = b"") -> Path:
    target = tmp_path / "out.pcapng"
    done = invoke("inspect", "--format", "jsonl", *arguments, "--output", target, given=given)
    assert (done.code, done.err) == (0, "")
    return target


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: str(path.parent.name))
def test_reading_the_export_gives_the_same_packets(path: Path, tmp_path: Path) -> None:
    target = exported(tmp_path, path)

    if path.parent.name.startswith("joined"):
        # Which connection is seen first depends on frames without data.
        assert Counter(map(of_packet, told(target))) == Counter(map(of_packet, told(path)))
    elif inspected(path).packets:
        assert told(target) == told(path)
    whole = iter(frames(path))
    assert all(any(kept.data == frame.data for frame in whole) for kept in frames(target))


def of_packet(line: dict[str, Any]) -> str:
    """A packet itself, wherever and whenever it came."""
    return str((line["client"], line["direction"], line["type"], line.get(line["type"])))


DAMAGED = {
    "lost-in-payload": "what surrounds a hole is not shown",
    "strange-port-joined": "nothing says that it is MQTT",
    "joined-v5": "the version is a guess from all packets",
    "planted-violations": "a packet that breaks rules is no proof of where packets begin behind a hole",
    "failing-device": "a packet that breaks rules is no proof of where packets begin behind a hole",
    "split-at-odd-places": "an acknowledgement that lies inside two others",
}


@pytest.mark.parametrize("expression", ["publish", "publish and qos == 0", "puback or suback"])
@pytest.mark.parametrize(
    "path", [path for path in CAPTURES if path.parent.name not in DAMAGED], ids=lambda path: str(path.parent.name)
)
def test_reading_what_a_filter_chose_gives_the_same_packets(path: Path, expression: str, tmp_path: Path) -> None:
    before = inspected(path, "--filter", expression).packets
    target = exported(tmp_path, path, "--filter", expression)
    if not before:
        assert not inspected_quietly(target)
        return

    after = inspected(target, "--filter", expression).packets
    # Holes are open to the end where nobody shows what filled them, so that order and time may differ.
    assert Counter(map(of_packet, after)) == Counter(map(of_packet, before))


def inspected_quietly(path: Path) -> list[dict[str, Any]]:
    return invoke("inspect", "--format", "jsonl", path).packets


def test_frames_keep_their_bytes_and_times_to_the_nanosecond(tmp_path: Path) -> None:
    kept = frames(exported(tmp_path, QOS))
    by_time = {frame.timestamp_ns: frame.data for frame in frames(QOS)}

    assert kept
    for frame in kept:
        assert by_time[frame.timestamp_ns] == frame.data


def test_a_filter_leaves_out_the_frames_of_other_connections(tmp_path: Path) -> None:
    target = exported(tmp_path, QOS, "--filter", 'client_identifier == "sensor-1"')
    lines = inspected(target).packets

    assert {line["client_identifier"] for line in lines} == {"sensor-1"}
    assert len(lines) == 10
    assert 10 < len(frames(target)) < len(frames(QOS)) - 10


def test_handshake_and_connect_come_with_what_was_chosen(tmp_path: Path) -> None:
    target = exported(tmp_path, capture("strange-port"), "--filter", "publish", "--limit", "1")
    lines = inspected(target)

    assert lines.of("connection_opened")[0]["handshake_seen"]
    assert [line["type"] for line in lines.packets] == ["connect", "publish"]


def test_limit(tmp_path: Path) -> None:
    target = exported(tmp_path, QOS, "--limit", "3")

    assert told(target) == told(QOS)[:3]


def test_nothing_shown_gives_an_empty_capture(tmp_path: Path) -> None:
    target = exported(tmp_path, QOS, "--filter", 'topic == "no such topic"')

    assert target.stat().st_size > 0
    assert frames(target) == []


@pytest.mark.parametrize("name", ["v5-qos", "websocket-deflate", "reordered", "byte-by-byte"])
def test_standard_input(name: str, tmp_path: Path) -> None:
    path = capture(name)
    target = exported(tmp_path, "-", given=path.read_bytes())

    assert told(target) == told(path)
    assert target.read_bytes() == exported(tmp_path, path).read_bytes()


def test_standard_input_keeps_its_name_in_the_output(tmp_path: Path) -> None:
    done = invoke(
        "inspect", "-", "--format", "jsonl", "-o", tmp_path / "o.pcapng", given=QOS.read_bytes()
    )  # fmt: skip

    assert {line["capture"] for line in done.lines} == {"-"}


def test_several_captures_become_one(tmp_path: Path) -> None:
    target = exported(tmp_path, QOS, capture("v311-qos"))

    assert len(told(target)) == len(told(QOS)) + len(told(capture("v311-qos")))


def test_no_temporary_file_is_left(tmp_path: Path) -> None:
    done = run("inspect", "-", "-o", tmp_path / "o.pcapng", given=QOS.read_bytes(), env={"TMPDIR": str(tmp_path)})

    assert done.code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["o.pcapng"]


class TestRefused:
    def refused(self, *arguments: str | Path) -> str:
        done = invoke("inspect", *arguments)
        assert (done.code, done.out) == (2, b"")
        return done.err.splitlines()[-1]

    def test_a_directory(self, tmp_path: Path) -> None:
        assert self.refused(QOS, "-o", tmp_path) == f"Error: --output: {tmp_path} is a directory"

    def test_a_directory_that_does_not_exist(self, tmp_path: Path) -> None:
        target = tmp_path / "nowhere" / "o.pcapng"

        assert self.refused(QOS, "-o", target) == f"Error: --output: {target.parent} is no directory"

    def test_a_directory_without_permission(self, tmp_path: Path) -> None:
        closed = tmp_path / "closed"
        closed.mkdir(0o500)
        if os.access(closed, os.W_OK):
            pytest.skip("this user may write everywhere")

        assert self.refused(QOS, "-o", closed / "o.pcapng").endswith("o.pcapng cannot be written")

    def test_a_full_device_is_told(self) -> None:
        done = invoke("inspect", QOS, "-o", "/dev/full")

        assert done.code == 2
        assert done.err == "Error: --output: /dev/full: No space left on device\n"
        assert "PUBLISH" in done.text


def test_tables_of_what_is_remembered_have_a_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(export, "MAX_HANDSHAKES", 1)
    monkeypatch.setattr(export, "MAX_FRAMES_OF_A_PACKET", 1)
    target = exported(tmp_path, capture("byte-by-byte"))

    assert 0 < len(frames(target)) < len(frames(capture("byte-by-byte")))

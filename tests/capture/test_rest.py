"""Captures that go on behind what was read of them: both parts together are the whole."""

from __future__ import annotations

import gzip
import io
import random
from collections.abc import Callable
from pathlib import Path

import lz4.frame
import pytest
import zstandard

from mqttscope.capture import open_capture
from mqttscope.capture.files import Part
from mqttscope.capture.reading import NO_FRAME
from mqttscope.capture.rest import look_behind, memory_at, read_rest
from mqttscope.capture.sources import beginning
from mqttscope.net.frame import CaptureDrops, CaptureError, Frame
from tests.capture.test_growing import CAPTURES
from tests.capture.test_pcap import Item, pcap_file, read
from tests.capture.test_pcapng import enhanced, interface, option, section, statistics

Compress = Callable[[bytes], bytes]


def rest(content: bytes, position: int) -> list[Item]:
    return list(read_rest(io.BytesIO(content), "a.pcap", position))


def frames(items: list[Item]) -> list[Frame]:
    return [one for one in items if isinstance(one, Frame)]


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.compress, lz4.frame.compress])
def test_committed_captures(compress: Compress) -> None:
    chance = random.Random(1)
    for path in CAPTURES:
        content = path.read_bytes()
        whole = frames(read(content))
        for position in (chance.randrange(1, len(content) + 1), len(content)):
            before = frames(read(content[:position]))
            assert before + frames(rest(compress(content), position)) == whole, (path, position)


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_every_position(compress: Compress) -> None:
    content = pcap_file([(number, 0, bytes(number)) for number in range(5)])
    packed, whole = compress(content), read(content)
    for position in range(1, len(content) + 1):
        known = read(content[:position])
        assert frames(known) + rest(packed, position) == whole, position


def test_what_a_part_says_beside_its_frames() -> None:
    first = section() + interface() + enhanced(b"one", 1) + statistics(received=5, interface_drops=2)
    content = first + enhanced(b"two", 2) + statistics(received=9, interface_drops=3)

    *_, drops = read(content)
    assert isinstance(drops, CaptureDrops)
    assert rest(content, len(first)) == read(content)[2:]
    assert rest(content[:-1], len(first))[-1] == read(content[:-1])[-1]
    assert isinstance(rest(content[:-1], len(first))[-1], CaptureError)


def test_drops_are_told_once_whatever_parts_are_read() -> None:
    def lost(count: int) -> bytes:
        return enhanced(b"data", options=option(4, count.to_bytes(8, "little"), "<"))

    parts = [section() + interface() + lost(3), lost(2), lost(0), lost(4) + statistics(received=9, interface_drops=11)]
    told, content = 0, b""
    for part in parts:
        before, content = len(content), content + part
        items = rest(content, before) if before else read(content)
        told += sum(item.dropped for item in items if isinstance(item, CaptureDrops))
    assert told == sum(item.dropped for item in read(content) if isinstance(item, CaptureDrops)) == 11


def test_what_lies_behind() -> None:
    content = pcap_file([(1, 0, b"one"), (2, 0, b"two"), (3, 0, b"three")])
    second = 24 + 16 + 3

    for compress in (bytes, gzip.compress):
        packed = compress(content)
        assert look_behind(io.BytesIO(packed), 24) == (0, 1_000_000_000)
        assert look_behind(io.BytesIO(packed), second) == (1, 2_000_000_000)
        assert look_behind(io.BytesIO(packed), second + 18) == (1, 2_000_000_000)
        assert look_behind(io.BytesIO(packed), len(content)) == (3, NO_FRAME)
        assert memory_at(io.BytesIO(packed), second + 18).position == second


def test_damage_ends_what_can_be_read() -> None:
    good = pcap_file()
    content = good + b"\xff" * 40

    assert rest(content, len(good)) == read(content)[-1:]
    assert rest(content, len(content)) == read(content)[-1:]
    assert rest(gzip.compress(good)[:-4], len(good)) == [
        CaptureError("a.pcap", "is truncated: the gzip data end early", len(good), 4)
    ]


def test_captures_that_are_opened_behind_what_was_read(tmp_path: Path) -> None:
    early, late = tmp_path / "early.pcap", tmp_path / "late.pcap"
    early.write_bytes(pcap_file([(1, 0, b"one"), (9, 0, b"two")]))
    late.write_bytes(pcap_file([(5, 0, b"three")]))

    assert [one.number for one in frames(list(open_capture([early, late])))] == [1, 2, 1]
    with early.open("rb") as file:
        size = early.stat().st_size
        part = Part(43, size, beginning(file, size))
    found = frames(list(open_capture([early, late], parts={str(early): part})))
    # In the order of what is read.
    assert [(one.capture, one.number) for one in found] == [(str(late), 1), (str(early), 2)]
    assert part.was_opened


def test_files_that_are_others_by_now_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap_file())
    size = path.stat().st_size
    with path.open("rb") as file:
        begins = beginning(file, size)
    for part, message in (
        (Part(0, size, begins + 1), "is another file since it was found"),
        (Part(0, size + 1, begins), "is another file since it was found"),
        (Part(0, size, begins), "does not exist since it was found"),
    ):
        if part == Part(0, size, begins):
            path.unlink()
        assert list(open_capture([path], parts={str(path): part})) == [CaptureError(str(path), message)]
        assert not part.was_opened

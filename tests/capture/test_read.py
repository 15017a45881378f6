"""Captures are known by what they begin with; however they grow, the parts are what the finished file is."""

from __future__ import annotations

import gzip
import io
import os
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.capture import open_capture
from mqttscope.capture.files import CapturePortion
from mqttscope.capture.fingerprint import head_crc
from mqttscope.capture.pcap import ReaderState
from mqttscope.capture.read import (
    NO_FRAME,
    BoundedFile,
    CaptureChangedError,
    CaptureRange,
    advance,
    can_grow,
    first_after,
    first_time,
    may_be_compressed,
    read_on,
    read_rest,
    state_at,
)
from mqttscope.net.frame import CaptureDrops, CaptureError, Frame
from tests.capture.test_pcap import Item, pcap_file, read
from tests.capture.test_pcapng import (
    EVERYTHING,
    enhanced,
    interface,
    obsolete,
    of_everything,
    option,
    section,
    simple,
    statistics,
)
from tests.conftest import ROOT
from tests.each import each

LIMITS = "; supported: pcap and pcapng, plain or compressed with gzip, zstd or lz4"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(b"\x89PNG\r\n\x1a\n", f"is not a capture file (starts with 89 50 4e 47){LIMITS}", id="picture"),
        pytest.param(b"ab", f"is not a capture file (starts with 61 62){LIMITS}", id="two bytes"),
        pytest.param(
            b"snoop\0\0\0\0\0\0\2",
            "is a snoop file, which is not supported (starts with 73 6e 6f 6f); convert it to pcap or pcapng",
            id="snoop",
        ),
        pytest.param(
            b"GMBU\0\2" + bytes(100),
            "is a Microsoft Network Monitor file, which is not supported (starts with 47 4d 42 55);"
            " convert it to pcap or pcapng",
            id="Network Monitor",
        ),
        pytest.param(
            b"PK\x03\x04" + bytes(30),
            "is a zip archive, which is not supported (starts with 50 4b 03 04); convert it to pcap or pcapng",
            id="zip archive",
        ),
        pytest.param(
            gzip.compress(gzip.compress(pcap_file(), mtime=0), mtime=0),
            "is compressed more than once (starts with 1f 8b 08 00)",
            id="gzip twice",
        ),
        pytest.param(gzip.compress(b""), "is empty", id="gzip of nothing"),
    ],
)
def test_what_is_no_capture_says_so(content: bytes, message: str) -> None:
    assert read(content) == [CaptureError("a.pcap", message, 0, 0)]
    assert read(content, chunk_size=1) == [CaptureError("a.pcap", message, 0, 0)]


def test_the_time_of_the_first_frame() -> None:
    assert first_time(io.BytesIO(pcap_file([(7, 8, b"data")]))) == 7_000_008_000
    assert first_time(io.BytesIO(gzip.compress(section() + interface() + enhanced(b"data", 9)))) == 9_000
    assert first_time(io.BytesIO(pcap_file([]))) == NO_FRAME
    assert first_time(io.BytesIO(b"")) == NO_FRAME


def test_what_is_written_behind_is_not_there() -> None:
    whole = io.BytesIO(b"0123456789")
    part = BoundedFile(whole, 6)

    assert [part.read(4), part.read(4), part.read(4), part.read()] == [b"0123", b"45", b"", b""]
    assert (part.seek(2), part.read(), part.tell()) == (2, b"2345", 6)
    assert (part.seek(0, os.SEEK_END), part.seek(-2, os.SEEK_CUR), part.read(1)) == (6, 4, b"4")
    assert (part.seek(8), part.read(), part.seek(-6, os.SEEK_END)) == (8, b"", 0)


def test_a_file_that_has_become_shorter() -> None:
    part = BoundedFile(io.BytesIO(b"012"), 6)

    assert (part.seek(0, os.SEEK_END), part.seek(1), part.read(), part.read(2)) == (3, 1, b"12", b"")


def test_it_is_at_its_beginning_wherever_the_file_was() -> None:
    whole = io.BytesIO(b"0123456789")
    whole.seek(3)

    assert BoundedFile(whole, 6).read() == b"012345"


CAPTURES = sorted(path for path in (ROOT / "captures").glob("*/capture.pcap*") if can_grow(path.read_bytes()[:4]))


def grown(content: bytes, sizes: Iterable[int], *, limit: int = 1 << 20) -> list[Item]:
    """What is read of a file that has these sizes one after the other, by readers that know what is written down."""
    written = ReaderState().to_values()
    result: list[Item] = []
    for size in sizes:
        while True:
            end = ReaderState.from_values(written)
            if not advance(io.BytesIO(content[:size]), end, size, limit=limit):
                break
            # By now the file may be longer.
            result += read_on(io.BytesIO(content), "a.pcap", CaptureRange(ReaderState.from_values(written), end, 0))
            written = end.to_values()
    return [
        *result,
        *read_on(io.BytesIO(content), "a.pcap", CaptureRange(ReaderState.from_values(written), None, len(content))),
    ]


def compressed_meanwhile(content: bytes, size: int, compress: Callable[[bytes], bytes]) -> list[Item]:
    """What is read of a file that had this size, and then was compressed."""
    memory = ReaderState()
    advance(io.BytesIO(content[:size]), memory, size)
    actual_frames = list(read_on(io.BytesIO(content[:size]), "a.pcap", CaptureRange(ReaderState(), memory, 0)))
    packed = compress(content)
    return [*actual_frames, *read_on(io.BytesIO(packed), "a.pcap", CaptureRange(memory, None, len(packed)))]


def of_many_kinds(order: str = "<") -> bytes:
    """Sections, drops, times out of bounds, packets without time."""
    drops = option(4, (7).to_bytes(8, "little" if order == "<" else "big"), order)
    return b"".join(
        (
            of_everything(order),
            enhanced(b"lost", order=order, options=drops),
            statistics(order, received=30, interface_drops=9),
            section(">"),
            interface(">", options=option(9, b"\x09", ">")),
            enhanced(b"late", (1 << 63) - 5, ">"),
            enhanced(b"beyond", 1 << 63 | 1, ">"),
            simple(b"no time", 7, ">"),
            interface(">", link_type=113),
            obsolete(b"old", order=">", index=1, drops=3),
            enhanced(b"x" * 500, order=">", index=1),
        )
    )


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("magic", [0xA1B2C3D4, 0xA1B23C4D, 0xA1B2CD34])
def test_a_pcap_at_every_size(magic: int, order: str) -> None:
    content = pcap_file(magic=magic, order=order)
    whole = read(content)

    assert grown(content, range(len(content) + 1)) == whole
    for size in range(len(content)):
        assert grown(content, [size]) == whole, size
        assert grown(content[:size], range(0, size, 7)) == read(content[:size]), size


@pytest.mark.parametrize("content", [of_everything("<"), of_everything(">"), of_many_kinds()])
def test_a_pcapng_at_every_size(content: bytes) -> None:
    whole = read(content)
    assert content[40:] not in (b"", EVERYTHING)

    assert grown(content, range(0, len(content) + 1, 3)) == whole
    for size in range(0, len(content), 3):
        assert grown(content, [size]) == whole, size
        assert grown(content[:size], [size // 2]) == read(content[:size]), size


@given(st.lists(st.integers(0, 1), max_size=40), st.randoms(use_true_random=False), st.integers(1, 400))
@settings(max_examples=60, deadline=None)
def test_any_growth(kinds: Sequence[int], chance: random.Random, limit: int) -> None:
    blocks = [
        (enhanced(bytes([chance.randrange(256)]) * chance.randrange(300)), of_many_kinds())[kind] for kind in kinds
    ]
    content = section() + interface() + b"".join(blocks)
    sizes = sorted(chance.randrange(len(content) + 1) for _ in range(chance.randrange(20)))

    assert grown(content, sizes, limit=limit) == read(content)


@each("path", CAPTURES, ids=lambda path: path.parent.name)
def test_committed_captures(path: object) -> None:
    content = path.read_bytes()  # type: ignore[attr-defined]
    chance = random.Random(len(content))

    assert grown(content, sorted(chance.randrange(len(content)) for _ in range(5)), limit=3000) == read(content)


def test_records_that_begin_like_compressed_data() -> None:
    # Seconds whose bytes are the magic of gzip.
    content = pcap_file([(0x8B1F, 0, b"one"), (0x8B1F, 1, b"two")])

    assert grown(content, [50, len(content)]) == read(content)


def test_damage_ends_a_capture() -> None:
    good = pcap_file()
    content = good + b"\xff" * 40
    memory = ReaderState()

    assert advance(io.BytesIO(content), memory, len(content)) == len(good)
    assert memory.damaged
    assert advance(io.BytesIO(content), memory, len(content)) == 0
    assert grown(content, [len(content)])[:5] == read(content)


def test_a_file_that_is_another_one_is_noticed() -> None:
    content = pcap_file()
    end = ReaderState()
    advance(io.BytesIO(content), end, len(content))

    with pytest.raises(CaptureChangedError, match=r"has changed: frame 4 ended at byte \d+, now frame 3 at "):
        list(read_on(io.BytesIO(content[:-40]), "a", CaptureRange(ReaderState(), end, 0)))
    actual_frames = list(read_on(io.BytesIO(b"something else"), "a", CaptureRange(end, None, 14)))
    assert actual_frames == [CaptureError("a", "has changed: it no longer begins like a capture", 0, 4)]


def test_what_cannot_grow_is_read_in_one_go() -> None:
    content = gzip.compress(pcap_file())

    assert grown(content, range(0, len(content), 10)) == read(pcap_file())
    assert grown(b"abcd", [3]) == read(b"abcd")


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress, lz4.frame.compress])
def test_what_is_compressed_while_it_grows_is_read_on(compress: Callable[[bytes], bytes]) -> None:
    for content in (pcap_file(), pcap_file()[:-3], pcap_file(order=">"), of_many_kinds(), of_many_kinds(">")):
        whole = read(content)
        for size in range(24, len(content) + 1, 7):
            assert compressed_meanwhile(content, size, compress) == whole, size


def test_what_was_compressed_and_is_damaged_says_so() -> None:
    content = pcap_file([(number, 0, bytes([number]) * 90_000) for number in range(9)])
    memory = ReaderState()
    advance(io.BytesIO(content), memory, 100_000)
    packed = gzip.compress(content, 0)[:-200_000]
    *frames, error = read_on(io.BytesIO(packed), "a", CaptureRange(memory, None, len(packed)))

    assert [frame.number for frame in frames if isinstance(frame, Frame)] == [2, 3, 4, 5, 6]
    assert isinstance(error, CaptureError)
    assert error.message == "is truncated: the gzip data end early"


def test_what_can_grow() -> None:
    assert can_grow(pcap_file())
    assert can_grow(section())
    assert not can_grow(b"\x1f\x8b\x08\0")
    assert may_be_compressed(b"\x1f\x8b\x08\0")
    assert not may_be_compressed(b"abcd")


def test_frames_have_times() -> None:
    content = pcap_file()
    memory = ReaderState()
    advance(io.BytesIO(content), memory, len(content) - 1)
    frames = [frame for frame in read(content) if isinstance(frame, Frame)]

    assert (memory.frames, memory.timestamp_ns) == (3, frames[2].timestamp_ns)


Compress = Callable[[bytes], bytes]


def rest(content: bytes, position: int) -> list[Item]:
    return list(read_rest(io.BytesIO(content), "a.pcap", position))


def frames(items: list[Item]) -> list[Frame]:
    return [frame for frame in items if isinstance(frame, Frame)]


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.compress, lz4.frame.compress])
def test_committed_captures_of_test_rest(compress: Compress) -> None:
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
    number, content = 0, b""
    for part in parts:
        before, content = len(content), content + part
        items = rest(content, before) if before else read(content)
        number += sum(item.dropped for item in items if isinstance(item, CaptureDrops))
    assert number == sum(item.dropped for item in read(content) if isinstance(item, CaptureDrops)) == 11


def test_what_lies_behind() -> None:
    content = pcap_file([(1, 0, b"one"), (2, 0, b"two"), (3, 0, b"three")])
    second = 24 + 16 + 3

    for compress in (bytes, gzip.compress):
        packed = compress(content)
        assert first_after(io.BytesIO(packed), 24) == (0, 1_000_000_000)
        assert first_after(io.BytesIO(packed), second) == (1, 2_000_000_000)
        assert first_after(io.BytesIO(packed), second + 18) == (1, 2_000_000_000)
        assert first_after(io.BytesIO(packed), len(content)) == (3, NO_FRAME)
        assert state_at(io.BytesIO(packed), second + 18).position == second


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

    assert [frame.number for frame in frames(list(open_capture([early, late])))] == [1, 2, 1]
    with early.open("rb") as file:
        size = early.stat().st_size
        part = CapturePortion(43, size, head_crc(file, size))
    actual_frames = frames(list(open_capture([early, late], parts={str(early): part})))
    # In the order of what is read.
    assert [(frame.capture, frame.number) for frame in actual_frames] == [(str(late), 1), (str(early), 2)]
    assert part.was_opened


def test_files_that_are_others_by_now_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap_file())
    size = path.stat().st_size
    with path.open("rb") as file:
        begins = head_crc(file, size)
    for part, message in (
        (CapturePortion(0, size, begins + 1), "is another file since it was found"),
        (CapturePortion(0, size + 1, begins), "is another file since it was found"),
        (CapturePortion(0, size, begins), "does not exist since it was found"),
    ):
        if part == CapturePortion(0, size, begins):
            path.unlink()
        assert list(open_capture([path], parts={str(path): part})) == [CaptureError(str(path), message)]
        assert not part.was_opened

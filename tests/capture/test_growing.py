"""Captures that grow: however they grew, the parts are what the finished file is."""

from __future__ import annotations

import gzip
import io
import random
from collections.abc import Callable, Iterable, Sequence

import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.capture.growing import Changed, Grown, advance, can_grow, may_be_compressed, read_on
from mqttscope.capture.memory import Memory
from mqttscope.net.frame import CaptureError, Frame
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

CAPTURES = sorted(path for path in (ROOT / "captures").glob("*/capture.pcap*") if can_grow(path.read_bytes()[:4]))


def grown(content: bytes, sizes: Iterable[int], *, limit: int = 1 << 20) -> list[Item]:
    """What is read of a file that has these sizes one after the other, by readers that know what is written down."""
    written = Memory().written()
    found: list[Item] = []
    for size in sizes:
        while True:
            end = Memory.of(written)
            if not advance(io.BytesIO(content[:size]), end, size, limit=limit):
                break
            # By now the file may be longer.
            found += read_on(io.BytesIO(content), "a.pcap", Grown(Memory.of(written), end, 0))
            written = end.written()
    return [*found, *read_on(io.BytesIO(content), "a.pcap", Grown(Memory.of(written), None, len(content)))]


def compressed_meanwhile(content: bytes, size: int, compress: Callable[[bytes], bytes]) -> list[Item]:
    """What is read of a file that had this size, and then was compressed."""
    memory = Memory()
    advance(io.BytesIO(content[:size]), memory, size)
    found = list(read_on(io.BytesIO(content[:size]), "a.pcap", Grown(Memory(), memory, 0)))
    packed = compress(content)
    return [*found, *read_on(io.BytesIO(packed), "a.pcap", Grown(memory, None, len(packed)))]


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
    blocks = [(enhanced(bytes([chance.randrange(256)]) * chance.randrange(300)), of_many_kinds())[one] for one in kinds]
    content = section() + interface() + b"".join(blocks)
    sizes = sorted(chance.randrange(len(content) + 1) for _ in range(chance.randrange(20)))

    assert grown(content, sizes, limit=limit) == read(content)


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.parent.name)
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
    memory = Memory()

    assert advance(io.BytesIO(content), memory, len(content)) == len(good)
    assert memory.damaged
    assert advance(io.BytesIO(content), memory, len(content)) == 0
    assert grown(content, [len(content)])[:5] == read(content)


def test_a_file_that_is_another_one_is_noticed() -> None:
    content = pcap_file()
    end = Memory()
    advance(io.BytesIO(content), end, len(content))

    with pytest.raises(Changed, match=r"has changed: frame 4 ended at byte \d+, now frame 3 at "):
        list(read_on(io.BytesIO(content[:-40]), "a", Grown(Memory(), end, 0)))
    found = list(read_on(io.BytesIO(b"something else"), "a", Grown(end, None, 14)))
    assert found == [CaptureError("a", "has changed: it does not begin like a capture any more", 0, 4)]


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
    memory = Memory()
    advance(io.BytesIO(content), memory, 100_000)
    packed = gzip.compress(content, 0)[:-200_000]
    *frames, error = read_on(io.BytesIO(packed), "a", Grown(memory, None, len(packed)))

    assert [one.number for one in frames if isinstance(one, Frame)] == [2, 3, 4, 5, 6]
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
    memory = Memory()
    advance(io.BytesIO(content), memory, len(content) - 1)
    frames = [one for one in read(content) if isinstance(one, Frame)]

    assert (memory.frames, memory.timestamp_ns) == (3, frames[2].timestamp_ns)

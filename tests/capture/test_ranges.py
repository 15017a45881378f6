"""Ranges: whatever the capture holds and however it is cut, the parts together are the whole."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mqttscope.capture import open_capture
from mqttscope.capture import ranges as module
from mqttscope.capture.ranges import (
    CHAIN_BYTES,
    HEAD_LIMIT,
    REFUSED,
    SPLIT_BYTES,
    WHOLE,
    Extent,
    Range,
    RangeList,
    RangeRefusedError,
    Split,
    WalkEnd,
    boundaries,
    index_ranges,
    measure,
    read_head,
    read_range,
    settle,
    split,
)
from mqttscope.net.frame import CaptureError, Frame
from tests.capture.test_pcap import Item, pcap_file, read
from tests.capture.test_pcapng import block, enhanced, interface, obsolete, option, section, simple, statistics
from tests.conftest import ROOT, THOROUGH
from tests.each import each


def long_pcap(seed: int = 1, *, payload: bytes | None = None) -> tuple[bytes, list[int]]:
    """A capture of some megabytes and the offsets of its records."""
    random = Random(seed)
    records = [
        (
            1_700_000_000 + number // 50,
            number % 1_000_000,
            random.randbytes(random.randrange(1500)) if payload is None else payload,
        )
        for number in range(3000)
    ]
    offsets = [24]
    for _, _, data in records:
        offsets.append(offsets[-1] + 16 + len(data))
    return pcap_file(records), offsets


def long_pcapng() -> tuple[bytes, list[int]]:
    random = Random(2)
    head = section() + interface()
    packets = [enhanced(random.randbytes(random.randrange(1500))) for _ in range(3000)]
    offsets = [len(head)]
    for packet in packets:
        offsets.append(offsets[-1] + len(packet))
    return head + b"".join(packets), offsets


@pytest.fixture(scope="module", params=["pcap", "pcapng", "zeros"])
def long(request: pytest.FixtureRequest) -> tuple[bytes, list[int]]:
    if request.param == "zeros":
        return long_pcap(payload=bytes(700))
    return long_pcap() if request.param == "pcap" else long_pcapng()


def places(size: int) -> Iterator[int]:
    random = Random(3)
    yield from (random.randrange(size) for _ in range(60))
    yield from (0, 10, size - 1, size, size + 5)


def test_records_are_found_from_anywhere(long: tuple[bytes, list[int]]) -> None:
    content, offsets = long
    actual_boundaries = boundaries(content[:HEAD_LIMIT])
    assert actual_boundaries is not None

    for at in places(len(content)):
        expected = next((offset for offset in offsets if offset >= at), len(content))
        assert actual_boundaries.sync(io.BytesIO(content), at, len(content)) == expected


def test_walks_lead_to_the_first_record_at_or_behind_a_place(long: tuple[bytes, list[int]]) -> None:
    content, offsets = long
    actual_boundaries = boundaries(content[:HEAD_LIMIT])
    assert actual_boundaries is not None
    assert actual_boundaries.first == offsets[0]

    for until in places(len(content)):
        if offsets[100] <= until <= len(content):
            position = next(offset for offset in offsets if offset >= until)
            walk = actual_boundaries.walk(io.BytesIO(content), offsets[100], until, len(content))
            assert walk == WalkEnd(position, offsets.index(position) - 100)


@pytest.mark.parametrize("removed", [1, 15, 16, 30, 700])
def test_a_walk_stops_before_the_record_that_is_cut(removed: int) -> None:
    content, _ = long_pcap()
    actual_boundaries = boundaries(content)
    assert actual_boundaries is not None
    short = content[:-removed]

    walk = actual_boundaries.walk(io.BytesIO(short), 24, len(short), len(short))

    (error,) = (item for item in read(short) if type(item) is CaptureError)
    assert walk == WalkEnd(error.offset or 0, error.frames, "it ends inside a record")


def test_a_file_that_has_become_shorter() -> None:
    for content, first in ((pcap_file(), 24), (section() + interface() + enhanced(b"data"), 48)):
        actual_boundaries = boundaries(content)
        assert actual_boundaries is not None
        assert (
            actual_boundaries.walk(io.BytesIO(content[:first]), first, len(content), len(content)).fault
            == "it is shorter than it was"
        )


def test_nothing_plausible_within_the_longest_record_is_no_place() -> None:
    noise = Random(4).randbytes(5 * CHAIN_BYTES)
    actual_boundaries = boundaries(pcap_file())
    assert actual_boundaries is not None

    assert actual_boundaries.sync(io.BytesIO(noise), 1000, len(noise)) is None
    # At the end of the file there may be nothing but the rest of a record.
    assert actual_boundaries.sync(io.BytesIO(noise), len(noise) - 1000, len(noise)) == len(noise)


def test_searching_hostile_bytes_takes_linear_time() -> None:
    """Chains everywhere, each of which ends in nothing."""
    chain = struct.pack("<IIII", 1, 1, 0, 1) * (CHAIN_BYTES // 16 - 8) + b"\xff" * 64
    hostile = chain * 6
    actual_boundaries = boundaries(pcap_file())
    assert actual_boundaries is not None

    with patch.object(actual_boundaries, "_plausible", wraps=actual_boundaries._plausible) as looked:
        actual_boundaries.sync(io.BytesIO(hostile), 24, len(hostile))
        actual_boundaries.sync(io.BytesIO(hostile), len(hostile) - CHAIN_BYTES, len(hostile))

    assert looked.call_count < 4 * CHAIN_BYTES


def test_heads() -> None:
    secrets = block(10, struct.pack("<II", 0x544C534B, 5) + b"LINE\n")
    head = section() + interface() + secrets + interface(options=option(9, b"\x09"))
    actual_boundaries = boundaries(head + enhanced(b"data"))

    assert actual_boundaries is not None
    assert actual_boundaries.first == len(head)
    # Secrets are told once, by who reads the first range.
    assert actual_boundaries.head == head.replace(secrets, b"")
    for content in (
        b"",
        b"text",
        section(),
        head,
        head + section() + enhanced(b""),
        b"\xd4\xc3\xb2\xa1",
        section()[:-1] + b"\0",
    ):
        assert boundaries(content) is None


def test_damaged_interfaces_cannot_be_cut() -> None:
    assert boundaries(section() + block(1, b"\0\0") + enhanced(b"data")) is None
    assert boundaries(section() + interface(options=option(9, b"1234")[:-4]) + enhanced(b"data")) is None


def test_only_pcapng_has_a_long_head() -> None:
    long_head = section() + block(0xBAD, bytes(100_000)) + interface() + enhanced(b"data") + bytes(2 * HEAD_LIMIT)

    assert read_head(io.BytesIO(long_head)) == long_head[:HEAD_LIMIT]
    assert len(read_head(io.BytesIO(pcap_file() + bytes(1 << 20)))) == 1 << 16
    assert boundaries(read_head(io.BytesIO(long_head))) is not None


MAGICS = (0xA1B2C3D4, 0xA1B23C4D, 0xA1B2CD34)
CAPTURES = sorted((ROOT / "captures").glob("*/capture.pcap*"))


def short_chains(size: int = 200) -> AbstractContextManager[object]:
    """Chains that count are short, so that small payloads can fake them."""
    return patch.object(module, "CHAIN_BYTES", size)


def cut(content: bytes, split_bytes: int, *, apart: bool) -> tuple[RangeList, bytes]:
    """The ranges of a capture: by one walk, or each measured apart from the others."""
    file = io.BytesIO(content)
    actual_boundaries = boundaries(read_head(file))
    splits = split(actual_boundaries, len(content), split_bytes)
    if actual_boundaries is None:
        assert splits == [Split(0, len(content))]
        return RangeList((WHOLE,)), b""
    if not apart:
        return index_ranges(file, actual_boundaries, splits), actual_boundaries.head
    # In any order, each with a file of its own.
    extents = {
        split: measure(io.BytesIO(content), actual_boundaries, split, len(content)) for split in reversed(splits)
    }
    return settle(actual_boundaries.first, [extents[split] for split in splits]), actual_boundaries.head


def in_parts(content: bytes, split_bytes: int, *, apart: bool) -> tuple[list[Item], RangeList]:
    settled, head = cut(content, split_bytes, apart=apart)
    frames = [item for part in settled.ranges for item in read_range(io.BytesIO(content), "a.pcap", part, head)]
    return frames, settled


def check(content: bytes, split_bytes: int) -> tuple[RangeList, RangeList]:
    """Both ways give what reading the whole gives, to the last item."""
    whole = read(content)
    walked, range_list = in_parts(content, split_bytes, apart=False)
    assert walked == whole
    measured, other = in_parts(content, split_bytes, apart=True)
    assert measured == whole
    return range_list, other


def records(*, count: int = 300, size: int = 90) -> list[tuple[int, int, bytes]]:
    return [
        (1_700_000_000 + number, number, bytes((number + at) & 0xFF for at in range(size))) for number in range(count)
    ]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("magic", MAGICS)
def test_a_pcap_in_many_parts(magic: int, order: str) -> None:
    content = pcap_file(records(), magic=magic, order=order)

    with short_chains():
        for split_bytes in (50, 333, 1000, 5000, len(content) - 1):
            for settled in check(content, split_bytes):
                assert settled.fault is None
                assert len(settled.ranges) >= min(300, len(content) // split_bytes) * 0.9
                assert settled.ranges[-1].stop is None


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_pcapng_in_many_parts(order: str) -> None:
    comment = option(1, b"some words", order) + option(0, b"", order)
    body = b"".join(
        enhanced(data, order=order, index=number % 2, options=comment if number % 3 else b"")
        + (block(0xBAD, b"custom", order) if number % 50 == 7 else b"")
        for number, (_, _, data) in enumerate(records())
    )
    head = (
        section(order)
        + interface(order)
        + block(10, struct.pack(order + "II", 0x544C534B, 5) + b"LINE\n", order)
        + interface(order, link_type=113)
    )
    content = head + body + statistics(order, received=9, interface_drops=2)

    with short_chains():
        for split_bytes in (200, 1000, 5000):
            for settled in check(content, split_bytes):
                assert len(settled.ranges) >= len(content) // split_bytes * 0.9
                assert settled.fault is None


@each("order", ["<", ">"])
@each(
    "stumbling",
    [
        section() + interface(),
        interface(link_type=113),
        simple(b"without time", 12),
        block(4, b"") + simple(b"without time", 12),
        obsolete(b"old", drops=3),
        statistics(received=10, interface_drops=4),
        enhanced(b"after drops", options=option(4, struct.pack("<Q", 7))),
        enhanced(b"bad options", options=option(9, b"12345678")[:-4]),
        block(10, struct.pack("<II", 0x544C534B, 5) + b"LINE\n"),
        block(0x4711, b"unknown"),
        enhanced(b"of no interface", index=5),
        enhanced(b"of no year", ticks=1 << 62),
        block(6, bytes(8)),
        b"\0" * 40,
    ],
    ids=lambda stumbling: stumbling[:12].hex(),
)
def test_from_the_first_block_that_others_depend_on_the_rest_is_one_range(stumbling: bytes, order: str) -> None:
    packets = [enhanced(data) for _, _, data in records(count=120)]
    content = section() + interface() + b"".join(packets[:60]) + stumbling + b"".join(packets[60:])
    if order == ">":
        # Damage to the readers of this byte order, wherever it stands.
        content = section(">") + interface(">") + content

    with short_chains():
        for split_bytes in (150, 700, 3000):
            for settled in check(content, split_bytes):
                assert settled.ranges[-1].stop is None
                if order == "<" and split_bytes == 700:
                    assert 8 <= len(settled.ranges) <= 11
                    assert settled.fault is not None


def test_what_cannot_be_cut_is_read_whole() -> None:
    import gzip

    for content in (
        b"",
        b"short",
        gzip.compress(pcap_file(records())),
        pcap_file([])[:20],
        pcap_file([]),
        section(),
        section()[:20],
        section() + interface(),
        section() + enhanced(b"no interface"),
        b"\x0a\x0d\x0d\x0a" + bytes(40),
    ):
        for settled in check(content, 10):
            assert settled.ranges == (WHOLE,)


@pytest.mark.parametrize("cut_off", [1, 17, 100, 106, 107, 5000])
def test_what_lies_before_a_cut_is_read_and_the_fault_is_told(cut_off: int) -> None:
    with short_chains():
        content = pcap_file(records())[:-cut_off]
        for settled in check(content, 1000):
            assert len(settled.ranges) > 10
        check((section() + interface() + b"".join(enhanced(data) for _, _, data in records()))[:-cut_off], 1000)


@settings(deadline=None, max_examples=150 if THOROUGH else 75)
@given(st.data())
def test_damage_anywhere(data: st.DataObject) -> None:
    if data.draw(st.booleans()):
        content = bytearray(pcap_file(records(count=60, size=40)))
    else:
        content = bytearray(
            section() + interface() + b"".join(enhanced(raw) for _, _, raw in records(count=60, size=40))
        )
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(4, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))

    with short_chains(data.draw(st.integers(20, 400))):
        check(bytes(content), data.draw(st.integers(30, 1500)))


# Payloads that are captures themselves: chains of records of both byte orders, and what stands before them.
_inner = st.builds(
    lambda sizes, order, seconds, lead, cut_off: (
        b"\0" * lead + pcap_file([(seconds, 0, b"x" * size) for size in sizes], order=order)[24 * (lead & 1) :]
    )[: -cut_off or None],
    st.lists(st.integers(0, 60), max_size=12),
    st.sampled_from("<>"),
    st.sampled_from([0, 1_700_000_000, 1_700_000_100, 1_900_000_000]),
    st.integers(0, 40),
    st.integers(0, 3),
)
_inner_ng = st.builds(
    lambda sizes, order: b"".join(enhanced(b"y" * size, order=order) for size in sizes),
    st.lists(st.integers(0, 60), max_size=12),
    st.sampled_from("<>"),
)
_payload = st.one_of(st.binary(max_size=120), _inner, _inner_ng, st.integers(0, 200).map(bytes))


@settings(
    deadline=None,
    max_examples=300 if THOROUGH else 150,
    suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow],
)
@given(
    st.lists(st.tuples(st.integers(0, 4), _payload), max_size=25),
    st.sampled_from([*MAGICS, None]),
    st.sampled_from("<>"),
    st.integers(20, 3000),
    st.sampled_from([16, 60, 200, 1000, CHAIN_BYTES]),
)
@example([(0, b"\0" * 200)] * 20, MAGICS[0], "<", 100, 60)
@pytest.mark.long
def test_no_payload_makes_ranges_lie(
    packets: Sequence[tuple[int, bytes]], magic: int | None, order: str, split_bytes: int, chain: int
) -> None:
    if magic is None:
        content = section(order) + interface(order) + b"".join(enhanced(data, order=order) for _, data in packets)
    else:
        listed = [(1_700_000_000 + number * gap, 0, data) for number, (gap, data) in enumerate(packets)]
        content = pcap_file(listed, magic=magic, order=order)

    with short_chains(chain):
        check(content, split_bytes)


def test_a_chain_that_ends_where_its_packet_ends_is_refused_and_read_in_one_piece() -> None:
    """The worst payload: from its begin to the end of the file everything looks right, one byte beside the truth."""
    fake = pcap_file([(1_700_000_000 + number, 0, b"z" * 50) for number in range(40)])[24:]
    content = pcap_file(
        [*records(count=50), *((1_700_000_100, number, fake) for number in range(20)), *records(count=5)]
    )

    with short_chains():
        walked, measured = check(content, 1500)

    assert walked.fault is None
    assert len(walked.ranges) > 15
    assert measured.fault == REFUSED
    assert len(measured.ranges) < 10
    assert measured.offset < 10_000


def test_ranges_as_long_as_they_are() -> None:
    """Nothing patched: frames as long as libpcap makes them, and ranges of half a megabyte."""
    content = pcap_file(
        [(1_700_000_000 + number, 0, bytes([number]) * (number * 997 % 60_000)) for number in range(200)]
    )

    for settled in check(content, 1 << 19):
        assert len(settled.ranges) == -(-len(content) >> 19) or len(settled.ranges) == (len(content) >> 19) + 1
        assert settled.fault is None


@pytest.mark.long
def test_frames_longer_than_ranges() -> None:
    content = pcap_file([(1, 0, b"a" * 100), (2, 0, b"b" * 100_000), (3, 0, b"c" * 200_000), (4, 0, b"d" * 70_000)])

    for settled in check(content, 20_000):
        assert 2 <= len(settled.ranges) <= 4


def test_splits_cover_the_file() -> None:
    actual_boundaries = boundaries(pcap_file([]))
    assert actual_boundaries is not None
    assert split(actual_boundaries, 100, 100) == [Split(0, 100)]
    assert split(None, 1 << 40) == [Split(0, 1 << 40)]
    assert split(actual_boundaries, 101, 50) == [Split(0, 33), Split(33, 67), Split(67, 101)]
    assert split(actual_boundaries, 60, 10) == [Split(0, 30), Split(30, 40), Split(40, 50), Split(50, 60)]
    assert len(split(actual_boundaries, 10 * SPLIT_BYTES)) == 10


def test_measures_that_do_not_fit_together_are_refused() -> None:
    extents = [Extent(24, 100, 5), Extent(100, 200, 5), Extent(201, 300, 5), Extent(300, 400, 5)]

    settled = settle(24, extents)

    assert settled == RangeList((Range(0, 100, 1, 5), Range(100, None, 6)), REFUSED, 100)
    assert settle(24, [replace(extents[0], start=30)]).ranges == (WHOLE,)
    assert settle(24, []).ranges == (WHOLE,)


def test_a_file_that_has_changed_since_is_refused() -> None:
    content = pcap_file(records())
    with short_chains():
        settled, head = cut(content, 1000, apart=False)
    part = settled.ranges[3]

    def again(content: bytes) -> list[Item]:
        return list(read_range(io.BytesIO(content), "a.pcap", part, head))

    assert len(again(content)) == part.frames
    for changed in (
        content[:2000],
        content[: part.start],
        b"\0" * len(content),
        pcap_file(records(size=91)),
        content[: part.start] + pcap_file([(1, 0, b"")] * 100)[24:] + content[part.start :],
    ):
        with pytest.raises(RangeRefusedError, match=r"has changed: the \d+ frames of bytes \d+ to \d+ are \d+ now"):
            again(changed)


def test_a_file_that_grows_is_read_to_its_end() -> None:
    content = pcap_file(records())
    with short_chains():
        settled, head = cut(content, 1000, apart=False)
    grown = content + pcap_file([(1_800_000_000, 0, b"new")])[24:]

    frames = list(read_range(io.BytesIO(grown), "a.pcap", settled.ranges[-1], head))

    assert isinstance(frames[-1], Frame)
    assert (frames[-1].number, frames[-1].data) == (301, b"new")


def test_errors_are_placed_in_the_whole_file() -> None:
    content = pcap_file(records())[:-10]
    with short_chains():
        frames, settled = in_parts(content, 1000, apart=True)

    assert settled.ranges[-1].start > 0
    assert frames[-1] == CaptureError("a.pcap", "ends inside a frame record (96 of 106 bytes are there)", 31718, 299)


@each("path", CAPTURES, ids=lambda path: path.parent.name)
def test_the_captures_of_the_project(path: Path) -> None:
    whole = list(open_capture([path]))
    content = path.read_bytes()

    for split_bytes in (500, 3000):
        for apart in (False, True):
            with short_chains(1000):
                settled, head = cut(content, split_bytes, apart=apart)
            frames = [
                item for part in settled.ranges for item in read_range(io.BytesIO(content), str(path), part, head)
            ]
            assert frames == whole

"""The pcapng reader against hand-built files, every chunking and every cut."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.net.frame import CaptureDrops, CaptureError, CaptureSecrets, Frame
from tests.capture.test_pcap import Item, pcap_file, read
from tests.conftest import THOROUGH

SECOND = 1_000_000_000
TICKS = 1_700_000_000_123_456


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    length = struct.pack(order + "I", 12 + len(body) + (-len(body) & 3))
    return struct.pack(order + "I", kind) + length + body + bytes(-len(body) & 3) + length


def option(code: int, value: bytes, order: str = "<") -> bytes:
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) & 3)


def section(order: str = "<", *, version: tuple[int, int] = (1, 0), options: bytes = b"", length: int = -1) -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, *version, length) + options, order)


def interface(order: str = "<", *, link_type: int = 1, snap_length: int = 0, options: bytes = b"") -> bytes:
    return block(1, struct.pack(order + "HHI", link_type, 0, snap_length) + options, order)


def enhanced(data: bytes, ticks: int = TICKS, order: str = "<", *, index: int = 0, options: bytes = b"") -> bytes:
    fields = struct.pack(order + "IIIII", index, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data) + 4)
    return block(6, fields + data + bytes(-len(data) & 3) + options, order)


def obsolete(data: bytes, ticks: int = TICKS, order: str = "<", *, index: int = 0, drops: int = 0xFFFF) -> bytes:
    fields = struct.pack(order + "HHIIII", index, drops, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data) + 4)
    return block(2, fields + data, order)


def simple(data: bytes, original: int, order: str = "<") -> bytes:
    return block(3, struct.pack(order + "I", original) + data, order)


def statistics(order: str = "<", *, index: int = 0, **counters: int) -> bytes:
    codes = {"received": 4, "interface_drops": 5, "accepted": 6, "system_drops": 7, "delivered": 8}
    options = b"".join(option(codes[name], struct.pack(order + "Q", value), order) for name, value in counters.items())
    return block(5, struct.pack(order + "III", index, 0, 0) + options, order)


def frame(number: int, data: bytes, timestamp_ns: int = TICKS * 1000, *, link_type: int = 1) -> Frame:
    return Frame(number, timestamp_ns, link_type, data, len(data) + 4, "a.pcap")


def of_everything(order: str) -> bytes:
    comment = option(1, "comment with ü".encode(), order) + option(0, b"", order)
    return b"".join(
        (
            section(order, options=option(4, b"somebody", order) + comment),
            interface(order, snap_length=1, options=option(2, b"eth0", order) + comment),
            enhanced(b"one", order=order),
            block(4, b"\0\1\0\4name" + bytes(4), order),
            enhanced(b"second", order=order, options=comment),
            block(0x0BAD, struct.pack(order + "I", 32473) + b"custom", order),
            obsolete(b"third frame", order=order),
            simple(b"4", 5, order),
            block(0x80000009, b"", order),
            enhanced(b"", order=order),
            block(10, struct.pack(order + "II", 0x544C534B, 5) + b"LINE\n", order),
            statistics(order, received=10, interface_drops=2, system_drops=1),
        )
    )


EVERYTHING: list[Item] = [
    frame(1, b"one"),
    frame(2, b"second"),
    frame(3, b"third frame"),
    frame(4, b"4"),
    frame(5, b""),
    CaptureSecrets("a.pcap", 0x544C534B, b"LINE\n"),
    CaptureDrops("a.pcap", 0, 10, 3),
]


@pytest.mark.parametrize("order", ["<", ">"], ids=["little-endian", "big-endian"])
def test_all_kinds_of_blocks_give_the_same_in_every_chunking(order: str) -> None:
    content = of_everything(order)

    for chunk_size in (*range(1, 65), 1 << 18):
        assert read(content, chunk_size=chunk_size) == EVERYTHING, chunk_size


def test_sections_have_their_own_byte_order_and_interfaces() -> None:
    content = (
        section("<")
        + interface("<", link_type=1)
        + interface("<", link_type=113)
        + enhanced(b"a", index=1)
        + section(">", length=12345)
        + interface(">", link_type=276)
        + enhanced(b"b", order=">")
        + enhanced(b"c", order=">", index=1)
    )

    assert read(content) == [
        replace(frame(1, b"a", link_type=113), interface=1),
        frame(2, b"b", link_type=276),
        CaptureError("a.pcap", "is damaged: a block refers to interface 1, 1 are described", len(content) - 36, 2),
    ]


def resolution(value: int) -> bytes:
    return option(9, bytes([value]))


def offset(seconds: int) -> bytes:
    return option(14, struct.pack("<q", seconds))


@pytest.mark.parametrize(
    ("options", "ticks", "timestamp_ns"),
    [
        pytest.param(b"", 7, 7_000, id="microseconds unless said otherwise"),
        pytest.param(resolution(9), 1_700_000_000_123_456_789, 1_700_000_000_123_456_789, id="nanoseconds are exact"),
        pytest.param(resolution(3), 1_700_000_000_001, 1_700_000_000_001_000_000, id="milliseconds"),
        pytest.param(resolution(0), 1_700_000_000, 1_700_000_000 * SECOND, id="seconds"),
        pytest.param(resolution(12), 1_999, 1, id="picoseconds are cut to nanoseconds"),
        pytest.param(resolution(127), (1 << 64) - 1, 0, id="finest power of ten"),
        pytest.param(resolution(0x80 | 20), (5 << 20) | 1, 5 * SECOND + 953, id="power of two"),
        pytest.param(resolution(0x80 | 32), (1 << 63) + 1, (1 << 31) * SECOND, id="finer power of two"),
        pytest.param(resolution(0x80 | 127), (1 << 64) - 1, 0, id="finest power of two"),
        pytest.param(resolution(9) + offset(1000), 5, 1000 * SECOND + 5, id="offset"),
        pytest.param(offset(-1000), 5, -1000 * SECOND + 5000, id="negative offset"),
        pytest.param(option(9, b"\x09\x09"), 7, 7_000, id="resolution of wrong size is ignored"),
        pytest.param(option(1, b"") + option(0, b"") + resolution(9), 7, 7_000, id="nothing counts after the end"),
        pytest.param(b"", (1 << 64) - 3, -3_000, id="negative time in the unsigned field"),
    ],
)
def test_times(options: bytes, ticks: int, timestamp_ns: int) -> None:
    described = section() + interface(options=options)

    assert read(described + enhanced(b"x", ticks) + obsolete(b"x", ticks)) == [
        frame(1, b"x", timestamp_ns),
        frame(2, b"x", timestamp_ns),
    ]


CLOCKS = [b"", resolution(9), resolution(0), resolution(0x80 | 20), resolution(12), resolution(6) + offset(-(1 << 33))]


@given(
    st.lists(
        st.tuples(
            st.integers(0, len(CLOCKS) - 1),
            st.sampled_from((0, 1, TICKS >> 32, 1 << 31, (1 << 32) - 1)),
            st.integers(0, (1 << 32) - 1),
        ),
        max_size=12,
    )
)
@settings(max_examples=300 if THOROUGH else 150, deadline=None, derandomize=True)
def test_ordinary_blocks_have_the_times_that_others_have(moments: list[tuple[int, int, int]]) -> None:
    """The upper half of a clock is remembered between Enhanced Packet Blocks only."""
    begin = section() + b"".join(interface(options=options) for options in CLOCKS)
    quick = begin + b"".join(enhanced(b"x", high << 32 | low, index=index) for index, high, low in moments)
    slow = begin + b"".join(obsolete(b"x", high << 32 | low, index=index) for index, high, low in moments)

    assert read(quick) == read(slow)


@pytest.mark.parametrize(
    ("options", "nearest"),
    [
        pytest.param(resolution(0) + offset(1 << 62), (1 << 63) - 1, id="too late"),
        pytest.param(offset(-(1 << 62)), -(1 << 63), id="too early"),
    ],
)
def test_times_out_of_bounds_are_moved_to_the_nearest_and_reported(options: bytes, nearest: int) -> None:
    content = section() + interface(options=options) + enhanced(b"x") + obsolete(b"x")
    message = "has 2 frame(s) with a time outside the years 1677 to 2262"

    assert read(content) == [
        frame(1, b"x", nearest),
        frame(2, b"x", nearest),
        CaptureError("a.pcap", message, len(content), 2),
    ]
    cut = read(content + b"???")[-1]
    assert isinstance(cut, CaptureError)
    assert cut.message == f"ends inside a block header (3 of 12 bytes are there); {message}"


@pytest.mark.parametrize(
    ("data", "original", "snap_length", "captured"),
    [
        pytest.param(b"abcd", 4, 0, b"abcd", id="whole"),
        pytest.param(b"abc", 3, 65535, b"abc", id="padding is cut off"),
        pytest.param(b"abcd", 1500, 4, b"abcd", id="cut by the snap length"),
        pytest.param(b"abc\0", 1500, 3, b"abc", id="cut by the snap length, padded"),
    ],
)
def test_simple_packet_blocks(data: bytes, original: int, snap_length: int, captured: bytes) -> None:
    content = section() + interface(snap_length=snap_length) + simple(data, original)

    assert read(content) == [Frame(1, 0, 1, captured, original, "a.pcap")]


def test_block_lengths_without_padding_are_read() -> None:
    whole = enhanced(b"abcde")
    unpadded = struct.pack("<I", 32 + 5)
    old = whole[:4] + unpadded + whole[8:-4] + unpadded

    assert read(section() + interface() + old + enhanced(b"next")) == [frame(1, b"abcde"), frame(2, b"next")]


def drop_count(value: int) -> bytes:
    return option(2, b"\0\0\0\1") + option(4, struct.pack("<Q", value)) + option(0, b"")


DESCRIBED = section() + interface() + interface()


@pytest.mark.parametrize(
    ("blocks", "notices"),
    [
        pytest.param(statistics(received=5), [], id="statistics without drops"),
        pytest.param(statistics(received=5, interface_drops=0, system_drops=0), [], id="statistics of no drops"),
        pytest.param(statistics(index=1, system_drops=4), [CaptureDrops("a.pcap", 1, None, 4)], id="received unknown"),
        pytest.param(
            statistics(received=10, interface_drops=1)
            + statistics(received=20, interface_drops=1)
            + statistics(received=35, interface_drops=3),
            [CaptureDrops("a.pcap", 0, 10, 1), CaptureDrops("a.pcap", 0, 25, 2)],
            id="counters that continue counting add up once",
        ),
        pytest.param(
            enhanced(b"", options=drop_count(2)) + obsolete(b"", drops=3) + obsolete(b"", drops=0xFFFF),
            [CaptureDrops("a.pcap", 0, None, 5)],
            id="drops of frames are summed up",
        ),
        pytest.param(
            enhanced(b"", options=drop_count(2)) + section(),
            [CaptureDrops("a.pcap", 0, None, 2)],
            id="drops of frames are told at the end of the section",
        ),
        pytest.param(
            enhanced(b"", options=drop_count(2)) + statistics(interface_drops=2),
            [CaptureDrops("a.pcap", 0, None, 2)],
            id="drops told by frames and statistics count once",
        ),
    ],
)
def test_drops(blocks: bytes, notices: list[CaptureDrops]) -> None:
    assert [item for item in read(DESCRIBED + blocks) if not isinstance(item, Frame)] == notices


def misfit(kind: int) -> bytes:
    return struct.pack("<II", kind, 32) + bytes(20) + struct.pack("<I", 36)


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        pytest.param(misfit(6), "a block has the lengths 32 at its beginning and 36 at its end", id="lengths differ"),
        pytest.param(struct.pack("<III", 6, 8, 8), "a block claims 8 bytes, 12 are the least", id="block too short"),
        pytest.param(struct.pack("<III", 6, 0, 0), "a block claims 0 bytes, 12 are the least", id="block of no length"),
        pytest.param(
            struct.pack("<III", 99, 0xFFFFFFFC, 0), "a block claims 4294967292 bytes", id="absurd length of a block"
        ),
        pytest.param(block(6, bytes(16)), "the body of a packet block has only 16 bytes", id="packet block too short"),
        pytest.param(
            block(6, struct.pack("<IIIII", 0, 0, 0, 5, 5) + bytes(4)),
            "a frame claims 5 bytes, its block has 4",
            id="frame overruns its block",
        ),
        pytest.param(
            block(6, struct.pack("<IIIII", 0, 0, 0, 0xFFFFFFFF, 5) + bytes(4)),
            "a frame claims 4294967295 bytes, its block has 4",
            id="frame of absurd length",
        ),
        pytest.param(enhanced(b"", index=2), "a block refers to interface 2, 2 are described", id="unknown interface"),
        pytest.param(
            enhanced(b"", options=struct.pack("<HH", 1, 9) + bytes(8)),
            "option 1 claims 9 bytes, 8 are there",
            id="option overruns its block",
        ),
        pytest.param(interface(options=b"\1\0\xff\xff"), "option 1 claims 65535 bytes, 0 are there", id="long option"),
        pytest.param(block(1, b"1234"), "the body of an interface description has only 4 bytes", id="short interface"),
        pytest.param(
            simple(b"ab", 5), "a frame claims 5 bytes, its block has 4", id="simple packet overruns its block"
        ),
        pytest.param(block(3, b""), "the body of a packet block has only 0 bytes", id="simple packet without length"),
        pytest.param(statistics(index=9), "a block refers to interface 9, 2 are described", id="statistics of nothing"),
        pytest.param(
            block(10, struct.pack("<II", 1, 9) + b"12345678"),
            "secrets claim 9 bytes, their block has 8",
            id="secrets overrun their block",
        ),
        pytest.param(section(version=(2, 0)), "a section has version 2.0, known is 1", id="unknown version"),
        pytest.param(
            struct.pack("<III", 0x0A0D0D0A, 28, 0x11223344) + bytes(20),
            "a section has the byte order mark 44 33 22 11",
            id="unknown byte order",
        ),
    ],
)
def test_damaged_blocks_end_the_capture(damaged: bytes, message: str) -> None:
    before = DESCRIBED + enhanced(b"good")
    fault = CaptureError("a.pcap", f"is damaged: {message}", len(before), 1)

    for behind in (b"", enhanced(b"not read")):
        for chunk_size in (5, 1 << 18):
            assert read(before + damaged + behind, chunk_size=chunk_size) == [frame(1, b"good"), fault]


def test_frames_over_the_frame_limit_are_damage() -> None:
    content = section() + interface() + enhanced(bytes(100)) + enhanced(bytes(101))
    message = "is damaged: a frame claims 101 bytes, the maximum is 100"

    assert read(content, frame_limit=100) == [
        frame(1, bytes(100)),
        CaptureError("a.pcap", message, len(content) - 136, 1),
    ]


def test_section_alone_is_a_capture_without_frames() -> None:
    assert read(section(version=(1, 2))) == []


@pytest.mark.parametrize("order", ["<", ">"], ids=["little-endian", "big-endian"])
def test_every_cut_keeps_what_is_before_it_and_says_where(order: str) -> None:
    content = of_everything(order)
    ends = [0]
    while ends[-1] < len(content):
        ends.append(ends[-1] + struct.unpack_from(order + "I", content, ends[-1] + 4)[0])

    for cut in range(4, len(content)):
        frames = read(content[:cut])
        if cut not in ends:
            error = frames.pop()
            assert isinstance(error, CaptureError)
            assert error.message.startswith("ends inside a block")
            assert error.offset == max(end for end in ends if end <= cut)
            assert error.frames == sum(isinstance(item, Frame) for item in frames)
        assert frames == EVERYTHING[: len(frames)]


@pytest.mark.parametrize("whole", [pcap_file, of_everything], ids=["pcap", "pcapng"])
@settings(deadline=None, derandomize=True, max_examples=400 if THOROUGH else 200)
@given(
    flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1, max_size=6),
    cut=st.integers(0, 300),
    chunk_size=st.integers(1, 80),
    order=st.sampled_from("<>"),
)
def test_damage_never_raises(
    whole: Callable[..., bytes], flips: list[tuple[int, int]], cut: int, chunk_size: int, order: str
) -> None:
    content = bytearray(whole(order=order))
    for position, bits in flips:
        content[position % len(content)] ^= bits
    content = content[: max(0, len(content) - cut)]

    actual_frames = read(bytes(content), chunk_size=chunk_size)

    frames = [item for item in actual_frames if isinstance(item, Frame)]
    assert [frame.number for frame in frames] == list(range(1, len(frames) + 1))
    assert not any(isinstance(item, CaptureError) for item in actual_frames[:-1])
    if whole is pcap_file:
        assert actual_frames[: len(frames)] == frames
        assert all(
            isinstance(item, CaptureError) and item.frames == len(frames) for item in actual_frames[len(frames) :]
        )
    assert actual_frames == read(bytes(content))


def test_frames_name_their_interface() -> None:
    content = section() + interface() + interface() + enhanced(b"a") + simple(b"b", 1)
    second = section() + interface() + interface(link_type=113)

    assert [item.interface for item in read(content) if isinstance(item, Frame)] == [0, 0]
    for block in (enhanced(b"c", index=1), obsolete(b"c", index=1)):
        assert [item.interface for item in read(second + block) if isinstance(item, Frame)] == [1]

"""Copies with comments, block by block: all other blocks and options stay."""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Collection, Mapping

import pytest

from mqttscope.capture.annotate import MAX_COMMENT, Annotation, annotate
from mqttscope.capture.compressed import ByteSource
from mqttscope.capture.pcapng import Block, read_blocks
from mqttscope.net.frame import CaptureError, Frame
from mqttscope.net.segment import plain_key, reverse_key
from tests.capture.test_pcap import pcap_file, read
from tests.capture.test_pcapng import enhanced, interface, of_everything, option, section, simple
from tests.dissect.secure import as_frame
from tests.dissect.talk import Talk, Tape

COMMENT, END = 1, 0


def copied(
    data: bytes,
    comments: Mapping[int, str] | None = None,
    connections: Collection[bytes] | None = None,
    about: str = "",
) -> tuple[bytes, CaptureError | None]:
    """The copy of a capture, and the error of the original."""
    out = io.BytesIO()
    error = annotate(io.BytesIO(data), "a", Annotation(about, comments or {}, connections), out)
    return out.getvalue(), error


def blocks_of(data: bytes) -> list[Block]:
    items = list(read_blocks(ByteSource(io.BytesIO(data)), b"", "a"))
    assert not any(isinstance(item, CaptureError) for item in items)
    return [item for item in items if isinstance(item, Block)]


def comments_of(block: Block) -> list[str]:
    """The comments of a section or a packet block."""
    start = 24 if block.frame is None else 28 + -(-len(block.frame.data) // 4) * 4
    options, texts = block.data[start:-4], []
    while options:
        code, length = struct.unpack_from(block.order + "HH", options)
        if code == END:
            break
        if code == COMMENT:
            texts.append(options[4 : 4 + length].decode())
        options = options[4 + length + (-length & 3) :]
    return texts


def by_frame(data: bytes) -> dict[int, list[str]]:
    return {block.frame.number: comments_of(block) for block in blocks_of(data) if block.frame is not None}


@pytest.mark.parametrize("order", ["<", ">"])
def test_without_comments_a_copy_has_the_same_blocks(order: str) -> None:
    data = of_everything(order)
    copy, error = copied(data)

    assert error is None
    assert [block.data[24:] for block in blocks_of(copy)] == [block.data[24:] for block in blocks_of(data)]
    assert read(copy) == read(data)


@pytest.mark.parametrize("order", ["<", ">"])
def test_every_frame_gets_its_comment(order: str) -> None:
    data = of_everything(order)
    frames = [item for item in read(data) if isinstance(item, Frame)]
    copy, _ = copied(data, {frame.number: f"§{'x' * frame.number}" for frame in frames}, about="all of them")

    assert len(frames) > 3
    assert {number: texts[0] for number, texts in by_frame(copy).items()} == {
        frame.number: f"§{'x' * frame.number}" for frame in frames
    }
    assert comments_of(blocks_of(copy)[0]) == ["all of them", "comment with ü"]
    assert read(copy) == read(data)


def test_comments_and_options_of_the_original_stay() -> None:
    options = option(COMMENT, b"before") + option(2, bytes(4)) + option(END, b"")
    data = section(options=option(COMMENT, b"of the section") + option(END, b"")) + interface()
    data += enhanced(b"frame", options=options) + enhanced(b"another", options=options)
    copy, _ = copied(data, {1: "new"}, about="about")

    assert by_frame(copy) == {1: ["new", "before"], 2: ["before"]}
    assert comments_of(blocks_of(copy)[0]) == ["about", "of the section"]
    assert option(2, bytes(4)) in blocks_of(copy)[2].data


def test_a_simple_packet_keeps_the_time_of_the_frame_before() -> None:
    data = section() + interface() + enhanced(b"timed") + simple(b"timeless", 8)
    copy, _ = copied(data, {2: "here"})

    assert by_frame(copy) == {1: [], 2: ["here"]}
    assert read(copy) == read(data)


def test_only_the_wanted_connections_are_copied_and_frames_with_comments() -> None:
    tape = Tape()
    wanted, other = (Talk(tape, client_port=port) for port in (40_000, 40_001))
    for talk in (wanted, other):
        talk.handshake()
        talk.client(b"\xc0\0")
    key = wanted.tape.segments[0].key
    frames = [as_frame(segment) for segment in tape.segments]
    data = section() + interface(link_type=frames[0].link_type) + b"".join(enhanced(frame.data) for frame in frames)
    own = [number for number, segment in enumerate(tape.segments, 1) if segment.key in (key, reverse_key(key))]
    foreign = next(number for number in range(1, len(frames) + 1) if number not in own)
    connections = {plain_key(key), plain_key(reverse_key(key))}

    assert len(by_frame(copied(data, {}, connections)[0])) == len(own) < len(frames)
    assert len(by_frame(copied(data, {foreign: "here"}, connections)[0])) == len(own) + 1
    assert len(by_frame(copied(data, {}, set())[0])) == 0


def test_a_pcap_file_becomes_a_section() -> None:
    data = pcap_file([(1, 500_000, b"one"), (2, 0, b"two")])
    copy, error = copied(data, {2: "second"}, about="from pcap")

    assert error is None
    assert by_frame(copy) == {1: [], 2: ["second"]}
    assert comments_of(blocks_of(copy)[0]) == ["from pcap"]
    assert read(copy) == read(data)


def test_a_compressed_capture_is_copied_uncompressed() -> None:
    data = of_everything("<")
    assert copied(gzip.compress(data), {1: "x"}) == copied(data, {1: "x"})


def test_a_damaged_capture_is_copied_up_to_the_damage() -> None:
    data = section() + interface() + enhanced(b"good") + enhanced(b"also good")
    copy, error = copied(data[:-3], {1: "x", 2: "y"})

    assert by_frame(copy) == {1: ["x"]}
    assert error is not None
    assert (error.frames, error.offset) == (1, len(data) - len(enhanced(b"also good")))


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_copy_of_every_part_has_the_frames_that_reading_gives(order: str) -> None:
    data = of_everything(order)
    for size in range(len(data)):
        copy, error = copied(data[:size], {1: "x"})
        items = read(data[:size])
        assert [item for item in read(copy) if isinstance(item, Frame)] == [
            item for item in items if isinstance(item, Frame)
        ]
        assert (error is None) is not any(isinstance(item, CaptureError) for item in items)


def test_long_comments_are_cut_between_characters() -> None:
    data = section() + interface() + enhanced(b"frame")

    assert by_frame(copied(data, {1: "x" * MAX_COMMENT})[0])[1] == ["x" * MAX_COMMENT]
    (text,) = by_frame(copied(data, {1: "é" * MAX_COMMENT})[0])[1]
    assert text == "é" * ((MAX_COMMENT - 3) // 2) + "…"
    (text,) = by_frame(copied(data, {1: "x" * (MAX_COMMENT + 1)})[0])[1]
    assert len(text.encode()) == MAX_COMMENT

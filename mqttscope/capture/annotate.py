"""Copies of captures with comments on their frames, for programs that show them, as Wireshark does.

The copy keeps all information of the original: comments, names of interfaces, drops, key log lines.  Blocks of a pcapng
file are copied byte for byte, unless they get a comment.  A pcap file becomes a section.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol, cast

from mqttscope.capture.compressed import ByteSource
from mqttscope.capture.pcapng import PCAPNG_MAGIC, Block, read_blocks
from mqttscope.capture.read import read_capture
from mqttscope.capture.write import PcapngWriter
from mqttscope.net.frame import CaptureError, Frame
from mqttscope.net.headers import segment
from mqttscope.net.segment import Fragment, Segment, plain_key

MAX_COMMENT: Final = 60_000
"""Maximum length of a comment in bytes; an option of pcapng holds 65,535."""
_COMMENT: Final = 1
_SECTION_OPTIONS: Final = 24
"""Offset of the options in a Section Header Block."""
_FRAME_OPTIONS: Final = 28
"""Offset of the frame in the packet blocks that have options, which come after it."""
_NO_LENGTH: Final = b"\xff" * 8


class ByteSink(Protocol):
    """Takes the bytes of the copy."""

    def write(self, data: bytes, /) -> object:
        """Write bytes."""


@dataclass(slots=True)
class Annotation:
    """Contents of the copy of one capture."""

    about: str
    """Comment of the section, about all comments."""
    comments: Mapping[int, str]
    """Comments by the number of their frames."""
    connections: Container[bytes] | None
    """`plain_key` of both directions of each connection to copy; ``None`` copies all frames."""


def annotate(file: BinaryIO, capture: str, annotation: Annotation, sink: ByteSink) -> CaptureError | None:
    """Copy an open capture, compressed or not, as a pcapng section with comments; the error that ended it, if any.

    Frames with a comment are always copied, and IP fragments too: only the complete datagram shows its connection.
    """
    source = ByteSource(file)
    head = source.fill(b"", 4)
    if head[:4] == PCAPNG_MAGIC:
        return _copy_blocks(read_blocks(source, head, capture), annotation, sink)
    file.seek(0)
    return _convert(file, capture, annotation, sink)


def _copy_blocks(blocks: Iterator[Block | CaptureError], annotation: Annotation, sink: ByteSink) -> CaptureError | None:
    is_first = True
    for block in blocks:
        if isinstance(block, CaptureError):
            return block
        data, frame = block.data, block.frame
        if data[:4] == PCAPNG_MAGIC:
            # Its length does not hold for the copy.
            data = data[:16] + _NO_LENGTH + data[_SECTION_OPTIONS:]
            if is_first and annotation.about:
                data = _with_comment(data, _SECTION_OPTIONS, annotation.about, block.order)
            is_first = False
        elif frame is not None:
            comment = annotation.comments.get(frame.number)
            if comment is not None:
                if block.simple_ticks is not None:
                    data = _enhanced(frame, block.simple_ticks, block.order)
                data = _with_comment(data, _FRAME_OPTIONS + -(-len(frame.data) // 4) * 4, comment, block.order)
            elif not _is_wanted(frame, annotation):
                continue
        sink.write(data)
    return None


def _convert(file: BinaryIO, capture: str, annotation: Annotation, sink: ByteSink) -> CaptureError | None:
    writer = PcapngWriter(cast(BinaryIO, sink), comment=cut(annotation.about))
    for item in read_capture(file, capture):
        if isinstance(item, Frame):
            comment = annotation.comments.get(item.number)
            if comment is not None or _is_wanted(item, annotation):
                writer.write(item, cut(comment or ""))
        elif isinstance(item, CaptureError):
            return item
    return None


def _is_wanted(frame: Frame, annotation: Annotation) -> bool:
    if annotation.connections is None:
        return True
    part = segment(frame)
    return isinstance(part, Fragment) or (isinstance(part, Segment) and plain_key(part.key) in annotation.connections)


def _with_comment(block: bytes, position: int, comment: str, order: str) -> bytes:
    """A block with one more comment before its options, which begin at ``position``."""
    text = cut(comment).encode()
    option = struct.pack(order + "HH", _COMMENT, len(text)) + text + bytes(-len(text) & 3)
    options = block[position:-4] or bytes(4)
    length = struct.pack(order + "I", position + len(option) + len(options) + 4)
    return block[:4] + length + block[8:position] + option + options + length


def _enhanced(frame: Frame, ticks: int, order: str) -> bytes:
    """A Simple Packet Block, which has no options, as an Enhanced Packet Block with the time of the frame before."""
    padding = bytes(-len(frame.data) & 3)
    length = 32 + len(frame.data) + len(padding)
    head = struct.pack(
        order + "IIIIIII", 6, length, 0, ticks >> 32, ticks & 0xFFFFFFFF, len(frame.data), frame.original_length
    )
    return head + frame.data + padding + struct.pack(order + "I", length)


def cut(comment: str) -> str:
    """A comment with at most `MAX_COMMENT` bytes."""
    data = comment.encode("utf-8", "replace")
    return comment if len(data) <= MAX_COMMENT else data[: MAX_COMMENT - 3].decode("utf-8", "ignore") + "…"

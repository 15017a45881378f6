"""One capture that is open: pcap or pcapng, compressed or not, told apart by what it begins with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from mqttscope.capture.compressed import CHUNK_SIZE, ByteSource, is_compressed
from mqttscope.capture.pcap import FRAME_LIMIT, PCAP_MAGICS, read_pcap
from mqttscope.capture.pcapng import PCAPNG_MAGIC, read_pcapng
from mqttscope.net.frame import CaptureError, CaptureNotice, Frame

NO_FRAME = float("-inf")
"""Time of the first frame where there is none: these captures come first."""
_PEEK_SIZE = 1 << 16
_FOREIGN = (
    (b"snoop\0\0\0", "a snoop file"),
    (b"GMBU", "a Microsoft Network Monitor file"),
    (b"RTSS", "a Microsoft Network Monitor 1 file"),
    (b"btsnoop\0", "a Bluetooth snoop file"),
    (b"TRSNIFF data    \x1a", "a Sniffer file"),
    (b"iptrace ", "an AIX iptrace file"),
    (b"\xab\x01\x00\x1c", "an Ixia lcap file"),
    (b"\xac\x01\x00\x1c", "an Ixia lcap file"),
    (b"\x02\x21\x4c\x18", "an lz4 file of the legacy format"),
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ\0", "an xz file"),
    (b"PK\x03\x04", "a zip archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
)
_LONGEST_FOREIGN = max(len(magic) for magic, _ in _FOREIGN)


def first_time(file: BinaryIO) -> float:
    """Time of the first frame of a capture, by which captures are ordered; `NO_FRAME` where there is none."""
    items = read_capture(file, "", chunk_size=_PEEK_SIZE)
    return next((item.timestamp_ns for item in items if isinstance(item, Frame)), NO_FRAME)


def read_capture(
    file: BinaryIO, capture: str, *, chunk_size: int = CHUNK_SIZE, frame_limit: int = FRAME_LIMIT
) -> Iterator[Frame | CaptureNotice]:
    """Frames and notices of one capture that is open already; ``file`` need not be seekable and stays open.

    ``capture``: name for the frames.  Errors and limits as for :func:`open_capture`.
    """
    source = ByteSource(file, chunk_size=chunk_size)
    head = source.fill(b"", 4)
    if head[:4] in PCAP_MAGICS:
        return read_pcap(source, head, capture, frame_limit=frame_limit)
    if head[:4] == PCAPNG_MAGIC:
        return read_pcapng(source, head, capture, frame_limit=frame_limit)
    head = source.fill(head, _LONGEST_FOREIGN)
    return iter((CaptureError(capture, source.fault or _foreign(head), 0, 0),))


def _foreign(head: bytes) -> str:
    """Why a file that begins with ``head`` is not read."""
    if not head:
        return "is empty"
    start = f"(starts with {head[:4].hex(' ')})"
    for magic, name in _FOREIGN:
        if head.startswith(magic):
            return f"is {name}, which is not read {start}; convert it to pcap or pcapng"
    if is_compressed(head):
        return f"is compressed more than once {start}"
    return f"is not a capture file {start}; pcap and pcapng are read, plain or compressed with gzip, zstd or lz4"

"""Writing frames as pcapng.

Own code because dpkt writes one interface per file, times as floating point numbers and no original lengths.

Format: draft-ietf-opsawg-pcapng; little-endian, one section, one interface per link type.
"""

from __future__ import annotations

import os
import struct
from types import TracebackType
from typing import BinaryIO, Self

from mqttscope.capture.own_file import opener
from mqttscope.net.frame import Frame

APPLICATION = b"mqttscope"
"""Named in the section header as the writer."""
EARLIER_OFFSET = -(1 << 34)
"""Seconds: clock offset of the interfaces for times before 1970, which pcapng cannot say without one."""

_OPTION_COMMENT = 1
_OPTION_APPLICATION = 4
_OPTION_TIME_RESOLUTION = 9
_OPTION_TIME_OFFSET = 14
_ENHANCED_OVERHEAD = 32
_PADDING = (b"", b"\0\0\0", b"\0\0", b"\0")


class PcapngWriter:
    """Writes frames to a pcapng file.

    ``path_or_file``: a path, which is created or overwritten and closed by :meth:`close`; or an open binary file, which
    is flushed and stays open.
    ``comment``: what the file says of itself; no more than 65,535 bytes.
    ``nanoseconds``: whether times are kept to the nanosecond, or cut to microseconds for readers that know no better.
    Opening and writing raise :class:`OSError` as files do.
    """

    def __init__(
        self, path_or_file: str | os.PathLike[str] | BinaryIO, *, nanoseconds: bool = True, comment: str = ""
    ) -> None:
        self._owned = isinstance(path_or_file, str | os.PathLike)
        self._file: BinaryIO
        if isinstance(path_or_file, str | os.PathLike):
            self._file = open(path_or_file, "wb", opener=opener)  # noqa: SIM115 (closed by close)
        else:
            self._file = path_or_file
        self._nanoseconds = nanoseconds
        self._interfaces: dict[tuple[int, bool], int] = {}
        self._closed = False
        self._pack = struct.Struct("<IIIIIII").pack
        # No section length: it is not known before the end, and a pipe cannot go back.
        section = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)
        if comment:
            section += _option(_OPTION_COMMENT, comment.encode())
        section += _option(_OPTION_APPLICATION, APPLICATION) + _option(0, b"")
        self._file.write(_block(0x0A0D0D0A, section))

    def write(self, frame: Frame, comment: str = "") -> None:
        """Append a frame: its bytes, length on the wire, time and link type; its number and capture are not kept.

        ``comment`` is told with the frame by those who read the file; it has no more than 65,535 bytes.
        :class:`ValueError` for a frame that pcapng cannot hold: a link type over 65535, a length over 32 bits, a time
        that is no signed 64-bit number of nanoseconds.
        """
        earlier = frame.timestamp_ns < 0
        interface = self._interfaces.get((frame.link_type, earlier))
        if interface is None:
            interface = self._describe_interface(frame.link_type, earlier)
        ticks = frame.timestamp_ns - EARLIER_OFFSET * 1_000_000_000 if earlier else frame.timestamp_ns
        if not self._nanoseconds:
            ticks //= 1000
        captured = len(frame.data)
        padding = _PADDING[captured & 3]
        options = _option(_OPTION_COMMENT, comment.encode()) + _option(0, b"") if comment else b""
        length = _ENHANCED_OVERHEAD + captured + len(padding) + len(options)
        try:
            header = self._pack(6, length, interface, ticks >> 32, ticks & 0xFFFFFFFF, captured, frame.original_length)
        except struct.error as error:
            raise ValueError(f"frame {frame.number} of {frame.capture} does not fit into pcapng: {error}") from error
        self._file.write(b"".join((header, frame.data, padding, options, header[4:8])))

    def close(self) -> None:
        """Finish the file; more than once does no harm."""
        if self._closed:
            return
        self._closed = True
        if self._owned:
            self._file.close()
        else:
            self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _describe_interface(self, link_type: int, earlier: bool) -> int:
        if not 0 <= link_type <= 0xFFFF:
            raise ValueError(f"link type {link_type} does not fit into pcapng")
        options = _option(_OPTION_TIME_RESOLUTION, b"\x09" if self._nanoseconds else b"\x06")
        if earlier:
            options += _option(_OPTION_TIME_OFFSET, struct.pack("<q", EARLIER_OFFSET))
        # Snap length 0 stands for "no limit".
        self._file.write(_block(1, struct.pack("<HHI", link_type, 0, 0) + options + _option(0, b"")))
        index = self._interfaces[link_type, earlier] = len(self._interfaces)
        return index


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + _PADDING[len(value) & 3]


def _block(kind: int, body: bytes) -> bytes:
    length = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + length + body + length

"""Reading and writing the small pcapng files of this folder: one section, one interface, little-endian, nanoseconds."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import dpkt

_SECTION, _INTERFACE, _ENHANCED = 0x0A0D0D0A, 1, 6
_OPTION_NAME, _OPTION_RESOLUTION, _OPTION_APPLICATION = 2, 9, 4


@dataclass(slots=True)
class Frame:
    """One captured frame."""

    timestamp_ns: int
    data: bytes
    original_length: int | None = None
    """Length on the wire when the snap length cut it; None when whole."""


def read(path: Path) -> list[Frame]:
    """The frames of a file written by dumpcap on one interface or by `write`."""
    raw = path.read_bytes()
    frames = []
    at = 0
    while at < len(raw):
        kind, size = struct.unpack_from("<II", raw, at)
        if kind == _ENHANCED:
            block = dpkt.pcapng.EnhancedPacketBlockLE(raw[at : at + size])
            cut = None if block.caplen == block.pkt_len else block.pkt_len
            frames.append(Frame(block.ts_high << 32 | block.ts_low, bytes(block.pkt_data), cut))
        at += size
    return frames


def write(path: Path, frames: list[Frame], application: str, interface: str = "lo", snaplen: int = 262144) -> None:
    """Write frames as Ethernet.

    The section names the application and nothing of the machine (dumpcap would add processor and kernel).
    """
    option = dpkt.pcapng.PcapngOptionLE
    end = option(code=0, data=b"")
    section = dpkt.pcapng.SectionHeaderBlockLE(opts=[option(code=_OPTION_APPLICATION, data=application.encode()), end])
    described = dpkt.pcapng.InterfaceDescriptionBlockLE(
        linktype=dpkt.pcap.DLT_EN10MB,
        snaplen=snaplen,
        opts=[option(code=_OPTION_NAME, data=interface.encode()), option(code=_OPTION_RESOLUTION, data=b"\x09"), end],
    )
    with path.open("wb") as out:
        out.write(bytes(section))
        out.write(bytes(described))
        for frame in frames:
            block = dpkt.pcapng.EnhancedPacketBlockLE(
                ts_high=frame.timestamp_ns >> 32,
                ts_low=frame.timestamp_ns & 0xFFFFFFFF,
                caplen=len(frame.data),
                pkt_len=frame.original_length or len(frame.data),
                pkt_data=frame.data,
            )
            out.write(bytes(block))

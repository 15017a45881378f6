"""Captures as a second tap sees them: the same frames with other tags and addresses, later, and some lost."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random

from mqttscope.capture import PcapngWriter, open_capture
from mqttscope.net.frame import Frame

SHIFT_NS = 200_000
"""What a frame needs from one tap to the other."""
ADDRESSES = b"\x02\x01\x02\x03\x04\x05\x02\x0a\x0b\x0c\x0d\x0e"
TAG = b"\x81\0\0\x0a"
_ETHERNET = 1
_IPV4 = b"\x08\0"


def recorded(path: Path) -> list[Frame]:
    """The frames of a capture."""
    return [item for item in open_capture([str(path)]) if isinstance(item, Frame)]


def moved(frame: Frame, shift_ns: int = SHIFT_NS, tag: bytes = TAG) -> Frame:
    """A frame as it is after a router that sends it into a VLAN: other addresses, one hop less."""
    later, data = frame.timestamp_ns + shift_ns, frame.data
    if frame.link_type != _ETHERNET or data[12:14] != _IPV4:
        return replace(frame, timestamp_ns=later)
    data = ADDRESSES + tag + data[12:22] + bytes([max(0, data[22] - 1)]) + data[23:]
    return replace(frame, timestamp_ns=later, data=data, original_length=frame.original_length + len(tag))


def two_taps(
    frames: Iterable[Frame], *, loss: float = 0, shift_ns: int = SHIFT_NS, tag: bytes = TAG, seed: int = 1
) -> tuple[list[Frame], list[Frame]]:
    """What two taps have of frames; each lacks a part of ``loss``, and no frame is lacking in both."""
    other_frames: list[Frame] = []
    other: list[Frame] = []
    random = Random(seed)
    for frame in frames:
        drawn = random.random()
        if drawn >= loss:
            other_frames.append(frame)
        if not loss <= drawn < 2 * loss:
            other.append(moved(frame, shift_ns, tag))
    return other_frames, other


def in_one(*taps: list[Frame]) -> list[Frame]:
    """The frames of several taps, by time."""
    return list(heapq.merge(*taps, key=lambda frame: frame.timestamp_ns))


def write(path: Path, frames: Iterable[Frame]) -> Path:
    """Write frames to a pcapng file."""
    with path.open("wb") as file, PcapngWriter(file) as out:
        for frame in frames:
            out.write(frame)
    return path

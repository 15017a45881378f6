"""Captures in parts, as taps write them, and parts of captures as tests want them."""

from __future__ import annotations

import io
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from mqttscope.capture import PcapngWriter, open_capture
from mqttscope.net.frame import Frame

T = TypeVar("T")


def at_random(items: Sequence[T], count: int, seed: int = 1) -> list[Sequence[T]]:
    """Items in so many parts, or in as many as there are items, cut at random places."""
    edges = sorted(random.Random(seed).sample(range(1, len(items)), min(count, len(items)) - 1))
    return [items[start:stop] for start, stop in pairwise([0, *edges, len(items)])]


def frames_of(path: Path) -> list[Frame]:
    """The frames of a capture."""
    return [frame for frame in open_capture([path]) if isinstance(frame, Frame)]


def moved(frames: Sequence[Frame], begin_ns: int) -> list[Frame]:
    """Frames at another time."""
    shift = begin_ns - frames[0].timestamp_ns
    return [replace(frame, timestamp_ns=frame.timestamp_ns + shift) for frame in frames]


def as_pcapng(frames: Iterable[Frame]) -> bytes:
    """The bytes of a capture of these frames."""
    file = io.BytesIO()
    with PcapngWriter(file) as out:
        for frame in frames:
            out.write(frame)
    return file.getvalue()


def write_frames(path: Path, frames: Iterable[Frame]) -> Path:
    """A capture of these frames."""
    with PcapngWriter(path) as out:
        for frame in frames:
            out.write(frame)
    return path


def write_parts(frames: Sequence[Frame], folder: Path, count: int, seed: int = 1, name: str = "") -> list[Path]:
    """Frames as several captures, cut at random places."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = enumerate(at_random(frames, count, seed))
    return [write_frames(folder / f"{name}{number:02d}.pcapng", some) for number, some in parts]


def cut(path: Path, folder: Path, count: int, seed: int = 1) -> list[Path]:
    """A capture as several ones, cut at random frames."""
    return write_parts(frames_of(path), folder, count, seed, f"{path.parent.name}-")

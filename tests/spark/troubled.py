"""Captures in which much goes wrong: lost frames, connections that fall silent, drops that are told now and then."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mqttscope.capture import PcapngWriter
from mqttscope.net.frame import Frame
from tests.capture.test_pcapng import statistics
from tests.dissect.secure import as_frame
from tests.lake.test_all_scopes import town

HOUR_NS = 3600 * 10**9


def troubled(folder: Path, seed: int, files: int = 3, *, overlap: bool = False, jitter: bool = False) -> list[str]:
    """Captures of some clients and servers in the order of time; their paths.

    ``overlap``: frames around the cuts may be in the one capture or the other, the second one after a cut is in the
    earlier capture.  ``jitter``: times go back sometimes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(seed)
    frames = [frame for frame in _frames(chance) if chance.random() > 0.06]
    if jitter:
        frames = [
            replace(frame, timestamp_ns=frame.timestamp_ns - chance.choice((0, 0, 150_000_000))) for frame in frames
        ]
    edges = sorted(chance.sample(range(2, len(frames) - 1), files - 1))
    parts: list[list[Frame]] = [[] for _ in range(files)]
    for number, frame in enumerate(frames):
        part = sum(edge <= number for edge in edges)
        # Not over the silence: where times go back by hours, no task knows what the other flows make time out.
        is_near = part > 0 and frame.timestamp_ns - frames[edges[part - 1] - 1].timestamp_ns < HOUR_NS
        if overlap and is_near and (chance.random() < 0.3 or number - 1 in edges) and number not in edges:
            part -= 1
        parts[part].append(frame)
    texts = []
    for number, some in enumerate(parts):
        texts.append(str(folder / f"{number:02d}.pcapng"))
        _write(Path(texts[-1]), some, chance)
    return texts


def _frames(chance: random.Random) -> list[Frame]:
    """A town, then silence in which its connections time out, then it continues and another one begins."""
    segments = town(chance, 6)
    middle = len(segments) // 2
    later = [replace(segment, timestamp_ns=segment.timestamp_ns + 4 * HOUR_NS) for segment in segments[middle:]]
    both = sorted([*segments[:middle], *later], key=lambda segment: segment.timestamp_ns)
    return [as_frame(replace(segment, frame=number)) for number, segment in enumerate(both, 1)]


def _write(path: Path, frames: Sequence[Frame], chance: random.Random) -> None:
    """Write frames; in between it is told three times, and not always, that frames were dropped."""
    numbers = sorted(chance.choices(range(len(frames) + 1), k=chance.choice((0, 1, 3))))
    with path.open("wb") as file:
        out = PcapngWriter(file)
        for number in range(len(frames) + 1):
            for count, place in enumerate(numbers, 1):
                if place == number and number:
                    file.write(statistics(interface_drops=3 * count))
            if number < len(frames):
                out.write(frames[number])

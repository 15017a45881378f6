"""What a derived capture is, where the scripts register theirs, and how a damaged one is judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import mqttbytes as mb
import pcapng
import wrap
from about import HERE
from pcapng import Frame


@dataclass(slots=True)
class Made:
    """Frames and what a reader must find in them."""

    frames: list[Frame]
    versions: list[str]
    packets: Mapping[str, int]
    connections: int = 1
    malformed: int = 0
    gaps: int = 0
    transport: str = "tcp"
    ports: list[int] = field(default_factory=lambda: [1883])
    topics: list[str] | None = None
    snaplen: int = 262144


Build = Callable[[], Made]


@dataclass(slots=True)
class Derivation:
    """One derived or synthesised capture."""

    name: str
    title: str
    shows: str
    origin: str
    build: Build
    notes: str = ""
    explain: Mapping[int, str] = field(default_factory=dict)


DERIVATIONS: dict[str, Derivation] = {}


def derivation(
    name: str,
    title: str,
    shows: str,
    *,
    base: str | None = None,
    notes: str = "",
    explain: Mapping[int, str] | None = None,
) -> Callable[[Build], Build]:
    """Register a function; `base` is the recording it starts from, None when it makes everything itself."""

    def register(build: Build) -> Build:
        origin = f"derived from {base}" if base else "synthesised"
        DERIVATIONS[name] = Derivation(name, title, shows, origin, build, notes, explain or {})
        return build

    return register


def load(name: str) -> list[Frame]:
    """The frames of a capture of this folder."""
    return pcapng.read(HERE / name / "capture.pcapng")


def judge(whole: list[Frame], kept: list[Frame]) -> tuple[dict[str, int], int]:
    """Packets by type that are completely in a damaged copy, and the number of holes in its streams.

    A hole lies between captured bytes of its direction; what is missing before the first byte or behind the last one
    is none.  The frames kept must be the very objects of `whole`, or cut copies with the same timestamps.
    """
    found = wrap.segments(whole)
    present = {frame.timestamp_ns: frame for frame in kept}
    counted: Counter[str] = Counter()
    holes = 0
    for key, (first, stream) in wrap.streams(found).items():
        have = bytearray(len(stream))
        for one in found:
            if (one.connection, one.side) == key and one.data and one.timestamp_ns in present:
                cut = len(whole[one.index].data) - len(present[one.timestamp_ns].data)
                start, length = one.number - first, max(len(one.data) - cut, 0)
                have[start : start + length] = b"\1" * length
        at = 0
        for packet in mb.split(stream):
            if all(have[at : at + len(packet)]):
                counted[mb.TYPES[packet[0] >> 4]] += 1
            at += len(packet)
        holes += sum(1 for run in bytes(have).strip(b"\0").split(b"\1") if run)
    return ordered(counted), holes


def ordered(counted: Mapping[str, int]) -> dict[str, int]:
    """Counts in the order of the type numbers."""
    return {kind: counted[kind] for kind in mb.TYPES if counted.get(kind)}

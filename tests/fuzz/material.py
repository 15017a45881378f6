"""What the seeds are made of: frames and streams of the captures that lie beside the tests."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from mqttscope.dissect import segments
from mqttscope.net.flow import Flow, StreamData
from mqttscope.net.flows import FlowTable
from mqttscope.net.frame import Frame
from mqttscope.net.segment import Segment
from tests.conftest import ROOT
from tests.lake.parts import frames_of

CAPTURES = ROOT / "captures"
MAX_CAPTURE_BYTES = 12_000
"""Larger captures show nothing that the others do not, and make slow seeds."""


@cache
def captures() -> tuple[tuple[str, bytes], ...]:
    """Name and bytes of the small captures."""
    pairs = tuple(
        (path.parent.name, path.read_bytes())
        for path in sorted(CAPTURES.glob("*/capture.pcapng"))
        if path.stat().st_size <= MAX_CAPTURE_BYTES
    )
    assert pairs, f"no captures in {CAPTURES}"
    return pairs


@cache
def frames(name: str) -> tuple[Frame, ...]:
    """All frames of a capture."""
    return tuple(frames_of(CAPTURES / name / "capture.pcapng"))


def names() -> Iterator[str]:
    """Names of the small captures."""
    return (name for name, _ in captures())


@cache
def tcp(name: str) -> tuple[Segment, ...]:
    """All segments of a capture."""
    return tuple(segment for segment in segments(frames(name)) if isinstance(segment, Segment))


@cache
def conversations(name: str) -> tuple[tuple[tuple[bool, bytes], ...], ...]:
    """The flows of a capture: who sent (the initiator is True) and what, in order."""
    table = FlowTable()
    pairs: dict[int, tuple[Flow, list[tuple[bool, bytes]]]] = {}
    events = [event for segment in tcp(name) for event in table.feed(segment)]
    for event in [*events, *table.close()]:
        if isinstance(event, StreamData):
            _, shown_pairs = pairs.setdefault(id(event.flow), (event.flow, []))
            shown_pairs.append((event.from_initiator, event.data))
    return tuple(tuple(pairs) for _, pairs in pairs.values())


def streams() -> Iterator[bytes]:
    """Both directions of every flow."""
    for name in names():
        for conversation in conversations(name):
            for side in (True, False):
                data = b"".join(piece for from_initiator, piece in conversation if from_initiator is side)
                if data:
                    yield data

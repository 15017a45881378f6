"""No matter where it runs, without atheris too: every law holds for every seed and for many fixed mutations.

And it can fail: each target notices when what it watches is broken on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from mqttscope.capture import open_capture
from mqttscope.mqtt import PacketStream
from mqttscope.mqtt import decode as decode_packet
from mqttscope.net.flows import FlowTable
from mqttscope.net.frame import Frame
from mqttscope.net.headers import segment
from mqttscope.net.segment import Fragment, Segment
from mqttscope.net.websocket import WebSocket
from tests.conftest import EXHAUSTIVE
from tests.fuzz import decode, files, headers, lint, reports, segments, stream, websocket
from tests.fuzz import filter as filters
from tests.fuzz.material import frames
from tests.fuzz.mutation import mutations
from tests.fuzz.target import NAMES, Target, load, unique
from tests.fuzz.wrapping import fragments, wrapped

MUTATIONS = 300 if EXHAUSTIVE else 120
SLOW = {"reports": 60, "lint": 60} if EXHAUSTIVE else {"reports": 30, "lint": 30}
"""Fewer of them where one takes long."""


@cache
def seeded(name: str) -> tuple[Target, list[bytes]]:
    target = load(name)
    return target, list(target.seeds())


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_the_law_holds_for_every_seed(name: str) -> None:
    target, seeds = seeded(name)

    assert len(seeds) > 30
    assert target.law.startswith("No matter")
    for data in seeds:
        assert len(data) <= target.max_length
        target.check(data)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_the_law_holds_for_mutations_of_the_seeds_and_for_nothing_at_all(name: str) -> None:
    target, seeds = seeded(name)

    target.check(b"")
    for data in mutations(seeds, SLOW.get(name, MUTATIONS)):
        target.check(data)


def test_mutations_are_the_same_in_every_run_and_differ_from_their_seeds() -> None:
    seeds = [bytes(range(60)), b"abc" * 9]

    chunks = list(mutations(seeds, 50))
    assert chunks == list(mutations(seeds, 50))
    assert chunks != list(mutations(seeds, 50, seed=2))
    assert len(set(chunks)) > 45
    assert not set(chunks) & set(seeds)


@pytest.mark.parametrize("name", files.BOMBS)
def test_a_small_file_that_stands_for_a_large_one_is_read_in_little_memory(name: str) -> None:
    data = files.BOMBS[name]()

    assert len(data) < 1 << 20
    files.check_memory(data)


@pytest.mark.parametrize("name", ["v5-qos", "ipv6"])
def test_the_seeds_of_every_link_type_lead_to_the_same_segment(name: str) -> None:
    plain = frames(name)[3].data
    expected = segment(Frame(1, 0, 1, plain, len(plain), ""))
    assert isinstance(expected, Segment)

    kinds = 0
    for link_type, data in wrapped(plain[14:]):
        actual_segment = segment(Frame(1, 0, link_type, data, len(data), ""))
        if link_type != 147:
            kinds += 1
            assert isinstance(actual_segment, Segment), (link_type, actual_segment)
            assert actual_segment.payload == expected.payload
            assert actual_segment.key.startswith(expected.key)
    assert kinds > 25


def test_the_fragments_of_the_seeds_make_a_segment_again() -> None:
    datagram = next(frame.data[14:] for frame in frames("v5-qos") if len(frame.data) > 14 + 20 + 48 + 8)
    pieces = fragments(datagram)
    assert len(pieces) > 1
    assert all(isinstance(segment(Frame(1, 0, 101, piece, len(piece), "")), Fragment) for piece in pieces)


class Lossy(PacketStream):
    """Forgets at a gap what it holds."""

    __slots__ = ()

    def gap(self, length: int) -> Any:
        self.chunks, self.held = [], 0
        return PacketStream.gap(self, length)


def _without_properties(raw: bytes, version: Any) -> Any:
    packet = decode_packet(raw, version)
    if getattr(packet, "properties", None):
        packet.properties = None  # type: ignore[union-attr]
    return packet


def _with_a_lie(frame: Frame) -> Any:
    actual_segment = segment(frame)
    if isinstance(actual_segment, Segment):
        actual_segment.missing = -1
    return actual_segment


def _renumbered(sources: Any, *, chunk_size: int, **others: Any) -> Iterator[Any]:
    for item in open_capture(sources, chunk_size=chunk_size, **others):
        if isinstance(item, Frame) and chunk_size == 7:
            item.original_length += 1
        yield item


def _forgetful(table: FlowTable, actual_segment: Segment, feed: Any = FlowTable.feed) -> Any:
    events = list(feed(table, actual_segment))
    return events[:-1] if len(actual_segment.payload) == 2 else events


def _deaf(websocket: WebSocket, from_client: bool, data: bytes, feed: Any = WebSocket.feed) -> Any:
    return feed(websocket, from_client, data[:50])


def _far_away(*_: Any) -> tuple[int, int]:
    return 0, 1 << 20


def _as_it_came(text: str, **_: Any) -> str:
    return text


@pytest.mark.parametrize(
    ("module", "owner", "broken"),
    [
        (decode, "tests.mqtt.checks.decode", _without_properties),
        (stream, "tests.fuzz.stream.PacketStream", Lossy),
        (headers, "tests.fuzz.headers.segment", _with_a_lie),
        (segments, "mqttscope.net.flows.FlowTable.feed", _forgetful),
        (reports, "mqttscope.report.style.escape", _as_it_came),
        (files, "tests.fuzz.files.open_capture", _renumbered),
        (websocket, "mqttscope.net.websocket.WebSocket.feed", _deaf),
        (filters, "tests.fuzz.filter.filters.FilterError", KeyError),
        (lint, "mqttscope.lint.engine.place_of", _far_away),
    ],
    ids=NAMES,
)
def test_what_is_broken_on_purpose_is_noticed(
    module: Any, owner: str, broken: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = list(unique(module))  # made of the captures, so before anything is broken
    monkeypatch.setattr(owner, broken)

    def check_all() -> None:
        for data in seeds:
            module.check(data)

    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever says that the law does not hold
        check_all()

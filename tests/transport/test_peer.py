"""Peers: bytes in slices, the end after the last of them, and reading only while there is room."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from mqttscope.transport import peer as module
from mqttscope.transport.peer import LivePeer

if TYPE_CHECKING:
    from mqttscope.transport.link import Link


class Valve:
    """The part of a link that stops and resumes reading."""

    def __init__(self) -> None:
        self.reading = True

    def read(self, on: bool) -> None:
        self.reading = on


class SlicePeer(LivePeer):
    """Keeps the slices that it parses."""

    def __init__(self) -> None:
        self.valve = Valve()
        super().__init__(link=cast("Link", self.valve))
        self.slices: list[bytes] = []
        self.is_full = False

    @property
    def has_room(self) -> bool:
        return not self.is_full

    def parse(self, data: bytes) -> None:
        self.slices.append(data)


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> SlicePeer:
    """A peer whose slices have four bytes."""
    monkeypatch.setattr(module, "MAX_SLICE_BYTES", 4)
    return SlicePeer()


def test_few_bytes_are_parsed_at_once(peer: SlicePeer) -> None:
    peer.received(b"abcd")
    peer.ended("fin", "")

    assert peer.slices == [b"abcd"]
    assert (peer.valve.reading, peer.ended_by) == (True, "fin")


async def test_many_bytes_take_turns_and_the_end_comes_after_them(peer: SlicePeer) -> None:
    peer.received(b"abcdefghij")
    peer.received(b"k")
    peer.ended("reset", "")
    assert (peer.slices, peer.valve.reading, peer.ended_by) == ([], False, "")

    for count in range(1, 4):
        await asyncio.sleep(0)
        assert len(peer.slices) == count
        assert not peer.ended_by
        assert not peer.valve.reading
    await asyncio.sleep(0)
    assert peer.slices == [b"abcd", b"efgh", b"ij", b"k"]
    assert (peer.valve.reading, peer.ended_by) == (True, "reset")


async def test_a_peer_without_room_is_not_read(peer: SlicePeer) -> None:
    peer.is_full = True
    peer.received(b"abcdef")
    while peer.unread:
        await asyncio.sleep(0)
    assert not peer.valve.reading

    peer.is_full = False
    peer.listen()
    assert peer.valve.reading


async def test_a_peer_that_is_over_is_not_woken(peer: SlicePeer) -> None:
    peer.is_over = True
    peer.received(b"abcdef")
    await asyncio.sleep(0)
    assert peer.slices == []

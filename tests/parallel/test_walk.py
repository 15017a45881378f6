"""Shares of flows: each segment is in one, and what is global is seen by all."""

from __future__ import annotations

from collections import deque
from itertools import chain

import pytest

from mqttscope.dissect import Dissector, dissect
from mqttscope.events import ConnectionOpened
from mqttscope.net.frame import CaptureSecrets
from mqttscope.net.headers import segment
from mqttscope.net.segment import Segment, plain_key, reverse_key
from mqttscope.parallel.walk import MARK, STRIDE, IndivisibleError, Share, Walk, plain_endpoints
from tests.conftest import ROOT
from tests.net.octets import frame
from tests.net.test_headers import USUAL
from tests.parallel.shared import CAPTURES, items_of, mixture, unwatched


def keys(count: int) -> list[bytes]:
    return [
        bytes((10, 0, 0, number % 250, 10, 0, 0, 1)) + (40_000 + number).to_bytes(2) + b"\x07["
        for number in range(count)
    ]


def test_a_flow_is_in_one_share_in_both_directions_and_under_all_tags() -> None:
    shares = [Share(number, 3) for number in range(3)]
    for key in keys(300):
        owners = [share.has(key) for share in shares]
        assert sum(owners) == 1
        assert [share.has(reverse_key(key)) for share in shares] == owners
        assert [share.has(key + b"\x00\x07\x04") for share in shares] == owners


@pytest.mark.parametrize("count", [2, 3, 8])
def test_shares_are_alike_in_size(count: int) -> None:
    sizes = [sum(Share(number, count).has(key) for key in keys(4_000)) for number in range(count)]

    assert min(sizes) > 0.8 * 4_000 / count


@pytest.mark.parametrize("seed", [7, 8])
def test_all_shares_together_have_the_connections_and_the_skipped_frames_of_one(seed: int) -> None:
    items = mixture(seed)
    whole = [
        event.connection.flow_key
        for event in dissect(items, dissector=unwatched())
        if isinstance(event, ConnectionOpened)
    ]
    found, skipped, frames = list[bytes](), 0, set[int]()
    for number in range(3):
        walk = Walk(Share(number, 3), unwatched())
        opened = [one for one in walk.events(items, timed=False) if isinstance(one, ConnectionOpened)]
        found += [event.connection.flow_key for event in opened]
        skipped += sum(walk.skipped.values())
        frames.add(walk.frames)
    alone = Walk(Share(0, 1), unwatched())
    list(alone.events(items, timed=False))

    assert sorted(found) == sorted(whole)
    assert skipped == sum(alone.skipped.values()) > 0
    assert frames == {len(items)}


def test_a_share_without_flows_says_how_far_it_is() -> None:
    items = items_of(CAPTURES[0])
    many = items * (3 * STRIDE // len(items) + 1)
    for number in range(2):
        walk = Walk(Share(number, 2), unwatched())
        places = [walk.place // 2 for event in walk.events(many, timed=False) if event is MARK]
        assert [place for at, place in enumerate(places) if at and place - places[at - 1] > STRIDE] == []
        assert max(places) > len(many) - 2 * STRIDE


def test_keys_in_a_capture_are_left_to_one_process() -> None:
    with pytest.raises(IndivisibleError):
        list(Walk(Share(1, 2), unwatched()).events([CaptureSecrets("a", 1, b"")], timed=False))


@pytest.mark.parametrize("name", ["clock-set-back", "clock-set-forward"])
def test_a_clock_that_may_have_been_set_is_left_to_one_process(name: str) -> None:
    items = items_of(ROOT / "tests" / "data" / "captures" / "field" / f"{name}.pcap")

    walks = [Walk(Share(number, 2), Dissector()) for number in range(2)]

    with pytest.raises(IndivisibleError, match="the clock of a capture may have been set"):
        deque(chain.from_iterable(walk.events(items, timed=False) for walk in walks), maxlen=0)


def test_silence_is_shared_out() -> None:
    """The clocks of the connections say that the time has passed."""
    items = items_of(ROOT / "captures" / "keep-alive" / "capture.pcapng")
    shares = [list(Walk(Share(number, 2), Dissector()).events(items, timed=False)) for number in range(2)]

    assert sum(event is not MARK for share in shares for event in share) == len(list(dissect(items)))


def test_endpoints_are_those_of_the_segment() -> None:
    for link_type, data in USUAL:
        found = segment(frame(data, link_type))
        assert isinstance(found, Segment)
        told = plain_endpoints(data, 0, len(data), link_type)
        assert told == plain_key(found.key) or (not told and (link_type != 1 or len(data) < 74))
    assert not plain_endpoints(b"", 0, 0, 1)

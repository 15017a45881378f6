"""Entries of several processes in order, with bounded memory."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from mqttscope.budget import UNFINISHED_BYTES
from mqttscope.parallel.merge import AHEAD_BYTES, EVERYTHING, Batch, Merge, read_batch
from mqttscope.parallel.walk import IndivisibleError, Rank


def batch(
    done: int,
    places: list[int],
    ranks: dict[int, Rank] | None = None,
    *,
    size: int = 100,
    bounds: tuple[int, int, int] = (0, 0, 0),
) -> Batch:
    count = len(places)
    texts = [str(place) for place in places]
    return Batch(done, *bounds, (places, texts, [0] * count, [None] * count), ranks or {}, size)


def taken(merge: Merge) -> list[int]:
    return [entries[1][at] for entries in merge.take() for at in entries[0]]


def test_what_all_have_come_to_is_given_in_order() -> None:
    merge = Merge(2)
    merge.add(0, batch(10, [1, 5, 9]))
    assert taken(merge) == []
    merge.add(1, batch(6, [3, 5]))
    assert taken(merge) == [1, 3, 5, 5]
    merge.add(1, batch(EVERYTHING, [7, 11]))
    assert taken(merge) == [7, 9]
    merge.add(0, batch(EVERYTHING, []))
    assert taken(merge) == [11]


def test_ranks_order_what_several_say_at_one_place() -> None:
    merge = Merge(2)
    merge.add(0, batch(EVERYTHING, [2, 4, 4], {1: (1, 0, b"a"), 2: (3, 0, b"a")}))
    merge.add(1, batch(EVERYTHING, [4, 5], {0: (2, 0, b"a")}))
    ((order, places, *_),) = merge.take()

    assert [places[at] for at in order] == [2, 4, 4, 4, 5]
    assert order == [0, 1, 3, 2, 4]


def test_what_has_no_order_is_left_to_one_process() -> None:
    merge = Merge(2)
    for number in range(2):
        merge.add(number, batch(EVERYTHING, [4], {0: (0, 7, 1)}))
    with pytest.raises(IndivisibleError):
        taken(merge)


@pytest.mark.parametrize("bounds", [(60_000, 0, 0), (0, UNFINISHED_BYTES // 2 + 1, 0), (0, 0, 6)])
def test_limits_for_all_flows_together_are_left_to_one_process(bounds: tuple[int, int, int]) -> None:
    merge = Merge(2, max_limited=10)
    for number in range(2):
        merge.add(number, batch(8, [], bounds=bounds))
    with pytest.raises(IndivisibleError):
        taken(merge)


def test_one_process_at_the_limit_is_none_too_many() -> None:
    merge = Merge(2, max_limited=10)
    merge.add(0, batch(8, [], bounds=(60_000, UNFINISHED_BYTES, 6)))
    merge.add(1, batch(8, []))
    assert taken(merge) == []


def test_who_is_ahead_waits_and_who_is_last_does_not() -> None:
    merge = Merge(2)
    done = 0
    while merge.has_room(0):
        done += 10
        merge.add(0, batch(done, [done - 1], size=1 << 20))
        assert taken(merge) == []
    assert merge.has_room(1)
    assert AHEAD_BYTES <= merge.most_bytes < AHEAD_BYTES + (1 << 21)

    merge.add(1, batch(done, []))
    assert len(taken(merge)) == done // 10
    assert merge.has_room(0)


def test_a_batch_is_read_as_it_was_sent() -> None:
    columns: tuple[Any, ...] = ([1], ["a\ud800"], [2], [(1, ("x", 2))])
    sent = pickle.dumps((3, 4, 5, 6, columns, {0: (1, 2, b"k")}))

    assert read_batch(sent) == Batch(3, 4, 5, 6, columns, {0: (1, 2, b"k")}, len(sent))

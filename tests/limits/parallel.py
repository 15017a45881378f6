"""Inputs at the limits of the package parallel."""

from __future__ import annotations

from collections import Counter

from mqttscope.parallel import lines
from mqttscope.parallel.counts import Counts, overlapping
from mqttscope.parallel.merge import Merge, Sender
from mqttscope.parallel.walk import IndivisibleError, Share, Span, Walk
from tests.parallel.shared import Kept, unwatched
from tests.parallel.test_merge import batch

SECOND_NS = 10**9


def is_divisible(limited: int) -> bool:
    """Whether several processes can write text while shares remember so much of what is limited in number."""
    merge = Merge(1, max_limited=lines.MAX_LIMITED)
    merge.add(0, batch(1, [], bounds=(0, 0, limited)))
    try:
        list(merge.take())
    except IndivisibleError:
        return False
    return True


def has_room(size: int) -> bool:
    """Whether more is read of a process that is ahead, and of which so many bytes wait."""
    merge = Merge(2)
    merge.add(0, batch(10, [], size=size))
    return merge.has_room(0)


def batches(size: int) -> int:
    """How many batches one entry with a text of this size makes a process send."""
    outlet = Kept()
    Sender(outlet, Walk(Share(0, 1), unwatched())).add("", 0, None, size)
    return len(outlet.sent)


def owners(count: int) -> int:
    """How many directions of flows a share remembers when it has met so many."""
    walk = Walk(Share(0, 2), unwatched())
    for number in range(count):
        walk.owns(bytes((10, 0, 0, number, 10, 0, 0, 1)) + b"\xc3\x50\x07\x5b")
    return len(walk._owners)


def overlapping_by(nanoseconds: int) -> list[str]:
    """Captures that are said to overlap where one begins so long before the end of another."""
    spans = {"a": Span(0, 0, SECOND_NS), "b": Span(9, SECOND_NS - nanoseconds, 2 * SECOND_NS)}
    return overlapping([Counts(0, Counter(), spans, 0, 0, 0, 0, 0, (), Counter(), Counter(), 0)])

"""The index of Topic Filters finds what comparing with each of them finds, and looks at little else."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttscope.mqtt.topics import is_valid_topic_filter, matches
from mqttscope.session.filter_index import FilterIndex, Node

LEVELS = st.sampled_from(["", "a", "b", "ab", "$a", "+", "#", "a+"])
FILTERS = st.lists(LEVELS, min_size=1, max_size=5).map("/".join)
TOPICS = st.lists(st.sampled_from(["", "a", "b", "ab", "$a", "+"]), min_size=1, max_size=6).map("/".join)
EVERY_FILTER = [
    "/".join(levels)
    for count in (1, 2, 3)
    for levels in itertools.product(("a", "b", "", "+", "#", "$s"), repeat=count)
    if is_valid_topic_filter("/".join(levels))
]
EVERY_NAME = [
    "/".join(levels) for count in (1, 2, 3, 4) for levels in itertools.product(("a", "b", "", "$s", "x"), repeat=count)
]


def overlap(one: str, other: str) -> bool:
    """Whether a topic exists that both Topic Filters match.  Both are taken as valid, without ``$share/ShareName/``."""
    first, second = one.split("/"), other.split("/")
    for wild, named in ((first[0], second[0]), (second[0], first[0])):
        if wild in ("+", "#") and named[:1] == "$":
            return False  # 5.0 MQTT-4.7.2-1
    for index in range(max(len(first), len(second))):
        left = first[index] if index < len(first) else None
        right = second[index] if index < len(second) else None
        if "#" in (left, right):
            # `#` takes the level above it as well, but no topic is empty.
            return index != 1 or None not in (left, right) or "" not in (first[0], second[0])
        if left is None or right is None:
            return False
        if left != right and "+" not in (left, right):
            return False
    return True


def test_filters_overlap_exactly_when_a_topic_matches_both() -> None:
    taken = {one: frozenset(name for name in EVERY_NAME if matches(one, name)) for one in EVERY_FILTER}
    for one, other in itertools.combinations_with_replacement(EVERY_FILTER, 2):
        assert overlap(one, other) == overlap(other, one) == bool(taken[one] & taken[other]), (one, other)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("a/+", "a/b/c", False),
        ("+/b", "a/+", True),
        ("#", "$SYS/x", False),
        ("$SYS/#", "$SYS/+/x", True),
        ("a/b", "a/b", True),
        ("a/b", "a/c", False),
    ],
)
def test_overlap_by_example(one: str, other: str, meet: bool) -> None:
    assert overlap(one, other) is overlap(other, one) is meet


def plainly(filters: dict[str, str], topic: str) -> list[str]:
    return [name for name, one in filters.items() if matches(one, topic, shared=False)]


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 12), FILTERS), max_size=40),
    st.lists(TOPICS, min_size=1, max_size=8),
)
def test_an_index_matches_like_every_filter_by_itself(steps: list[tuple[bool, int, str]], topics: list[str]) -> None:
    index = FilterIndex()
    filters: dict[str, str] = {}
    for takes, number, topic_filter in steps:
        name = f"filter {number}"
        if takes:
            filters[name] = topic_filter
            index.add(name, topic_filter)
        else:
            filters.pop(name, None)
            index.discard(name)

        for topic in topics:
            assert index.match(topic) == plainly(filters, topic)
    assert len(index) == len(filters)

    for name in list(filters):
        index.discard(name)
    assert index.root == Node()


@given(st.lists(FILTERS, max_size=12, unique=True), FILTERS)
def test_an_index_overlaps_like_every_filter_by_itself(filters: list[str], other: str) -> None:
    index = FilterIndex()
    for one in filters:
        index.add(one, one)
    found, steps = index.overlapping(other, 1_000)

    def valid(one: str) -> bool:
        return is_valid_topic_filter(one, shared=False)

    assert found == [one for one in filters if valid(one) and valid(other) and overlap(one, other)]
    assert steps <= 40


def test_nothing_is_looked_at_but_what_may_match() -> None:
    """A message costs as many nodes beside a hundred thousand filters as beside a hundred."""
    visited = []
    for count in (100, 10_000, 100_000):
        index = FilterIndex()
        for number in range(count):
            index.add(str(number), f"site/{number}/+/state")
        index.add("all", "site/#")

        assert index.match("site/7/x/state") == ["7", "all"]
        assert index.match("site/7/x/other") == ["all"]
        assert index.match("elsewhere/7") == []
        visited.append(index.visited)

    assert visited == [visited[0]] * 3
    assert visited[0] < 12


def test_long_filters_that_part_late_take_one_node_more_each() -> None:
    index = FilterIndex()
    deep = "/".join(["a"] * 20_000)
    for number in range(50):
        index.add(str(number), f"{deep}/{number}/+")

    assert index.match(f"{deep}/7/x") == ["7"]
    assert index.visited == 2
    assert len(index.root.children["a"].children) == 50
    index.discard("7")
    assert index.match(f"{deep}/7/x") == []


def test_a_search_ends_at_its_limit() -> None:
    index = FilterIndex()
    for number in range(500):
        index.add(str(number), f"+/{number}/#")
    for number in range(500):
        index.add(f"share {number}", "a/#")

    assert len(index.match("a/1", 10)) == 10
    assert len(index.match("a/1")) == 501
    found, steps = index.overlapping("#", 10)
    assert len(found) <= 10
    assert steps <= 12

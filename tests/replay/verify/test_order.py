"""The order of deliveries, as far as one is promised."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.replay.verify.deliveries import longest_rise
from mqttscope.replay.verify.difference import DifferenceKind
from mqttscope.replay.verify.verify import compare
from tests.replay.talk import (
    ALL,
    OPENED,
    Different,
    Equal,
    check,
    delivered,
    pairs,
    told,
)

DIFFERENT: Different = {
    "an order": (delivered(*ALL), delivered(ALL[2], ALL[1], ALL[0]), [("order", "", 0)]),
}

EQUAL: Equal = {
    "order across topics": (delivered(*ALL), delivered(ALL[1], ALL[0], ALL[2])),
    "copies of one message for two filters": (
        delivered("publish t/a one subscription_identifier=1", "publish t/a one subscription_identifier=2"),
        delivered("publish t/a one subscription_identifier=2", "publish t/a one subscription_identifier=1"),
    ),
    "two clients overtake each other": (
        OPENED + "pub > publish t/a one\nother > connect\nother < connack\nother > publish t/a two\n"
        "sub < publish t/a one\nsub < publish t/a two",
        OPENED + "pub > publish t/a one\nother > connect\nother < connack\nother > publish t/a two\n"
        "sub < publish t/a two\nsub < publish t/a one",
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_is_found(name: str) -> None:
    check(*DIFFERENT[name])


@pytest.mark.parametrize("name", EQUAL)
def test_what_means_the_same_is_no_difference(name: str) -> None:
    check(*EQUAL[name], [])


@pytest.mark.parametrize(
    ("values", "kept"),
    [([], 0), ([1], 1), ([1, 2, 3], 3), ([3, 2, 1], 1), ([2, 1, 3, 4, 0], 3), ([5, 1, 2, 3], 3), ([1, 9, 2, 3, 8], 4)],
)
def test_the_fewest_are_taken_for_moved(values: list[int], kept: int) -> None:
    found = longest_rise(values)

    assert len(found) == kept
    assert [values[index] for index in sorted(found)] == sorted(values[index] for index in found)


messages = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3)), max_size=12)


@settings(deadline=None)
@given(messages, st.randoms(use_true_random=False))
def test_no_permutation_across_topics_is_a_difference(sent: list[tuple[str, int]], random: Random) -> None:
    shuffled = _shuffled(sent, random)

    assert told(compare(pairs(_conversation(sent, sent), _conversation(sent, shuffled)))) == []


@settings(deadline=None)
@given(messages, st.randoms(use_true_random=False))
def test_whatever_is_missing_or_new_is_counted(sent: list[tuple[str, int]], random: Random) -> None:
    came = [one for one in _shuffled(sent, random) if random.random() < 0.7]
    missing = (Counter(sent) - Counter(came)).total()
    there = compare(pairs(_conversation(sent, sent), _conversation(sent, came)))
    back = compare(pairs(_conversation(sent, came), _conversation(sent, sent)))

    # Of messages that are alike nobody knows which one is missing, so the order is left aside.
    assert sum(one.kind is DifferenceKind.MISSING_DELIVERY for one in there) == missing
    assert sum(one.kind is DifferenceKind.EXTRA_DELIVERY for one in back) == missing
    assert {one.kind for one in there + back} <= {
        DifferenceKind.MISSING_DELIVERY,
        DifferenceKind.EXTRA_DELIVERY,
        DifferenceKind.ORDER,
    }


def _conversation(sent: list[tuple[str, int]], came: list[tuple[str, int]]) -> str:
    lines = [f"pub > publish t/{topic} {payload}" for topic, payload in sent]
    lines += [f"sub < publish t/{topic} {payload} qos=1 id={index + 1}" for index, (topic, payload) in enumerate(came)]
    return OPENED + "\n".join([*lines, "sub > pingreq", "sub < pingresp"])


def _shuffled(sent: list[tuple[str, int]], random: Random) -> list[tuple[str, int]]:
    """The same messages, those of each topic in their order."""
    topics = [topic for topic, _ in sent]
    random.shuffle(topics)
    waiting = {topic: iter([one for one in sent if one[0] == topic]) for topic in topics}
    return [next(waiting[topic]) for topic in topics]

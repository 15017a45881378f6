"""A table of subscriptions finds by its index what comparing a topic with all of them finds."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.lake.state import dump, load
from mqttscope.mqtt import Suback, Subscribe, Subscription, Unsuback, Unsubscribe
from mqttscope.mqtt.topics import matches, parse_shared
from mqttscope.session.matching import FAILURE, MAX_MATCHING, Subscribed
from mqttscope.session.subscriptions import Subscriptions

FILTERS = (
    "a", "a/b", "A/b", "a//b", "+", "#", "a/+", "a/#", "+/b", "/a", "a/", "$SYS/#", "+/x", "a#", "",
    "$share/g/a/+", "$share/h/#", "$share/g/a", "$share/a", "$share//a", "$queue/a/#", "$queue/$queue/#",
    "\u00e9", "e\u0301",
)  # fmt: skip
TOPICS = (
    "a", "a/b", "A/B", "a//b", "b", "/a", "a/", "$SYS/x", "$share/g/a/b", "$queue/a/b", "\u00e9", "e\u0301", "a/+",
)  # fmt: skip
STEP = st.tuples(
    st.sampled_from(["subscribe", "unsubscribe", "suback", "unsuback", "write down and read"]),
    st.lists(st.sampled_from(FILTERS), min_size=1, max_size=4),
    st.sampled_from([0, 1, 2, 0x80, 0x87]),
)


def plainly(table: Subscriptions, topic: str) -> tuple[list[str], list[str], list[str]]:
    """Filters in force, ended, and extended that a topic belongs to, each compared with it."""

    def extended(one: Subscribed) -> bool:
        name = one.topic_filter
        if name.startswith("$queue/"):
            return matches(name.removeprefix("$queue/"), topic, shared=False)
        share = parse_shared(name)
        return share is not None and matches(share[1], topic, shared=False)

    taken = [
        one
        for name, one in table.live.items()
        if matches(one.plain_filter, topic, shared=False) or (name == topic and one.plain_filter == topic)
    ]
    others = [one for one in table.live.values() if one not in taken and not one.is_shared and extended(one)]
    over = [one for one in table.ended.values() if matches(one.plain_filter, topic, shared=False)]
    exact = [one for one in taken if one.topic_filter == topic]
    in_force = [
        one
        for one in [*exact, *(one for one in taken if one not in exact)]
        if one.granted is None or one.granted < FAILURE
    ]
    in_force.sort(key=lambda one: one.packet)
    return (
        [one.topic_filter for one in in_force],
        [one.topic_filter for one in over],
        [one.topic_filter for one in others],
    )


def nearly(table: Subscriptions, topic: str) -> tuple[str, str] | None:
    def changes() -> Iterator[tuple[str, Callable[[str], str]]]:
        yield "folding case", str.casefold
        yield "collapsing '//'", lambda text: re.sub("/{2,}", "/", text)
        yield "trimming '/'", lambda text: text.strip("/")
        yield "Unicode normalisation to NFC", lambda text: unicodedata.normalize("NFC", text)
        yield "Unicode normalisation to NFKC", lambda text: unicodedata.normalize("NFKC", text)

    for words, change in changes():
        for one in table.live.values():
            fine = one.granted is None or one.granted < FAILURE
            if fine and matches(change(one.plain_filter), change(topic), shared=False):
                return one.topic_filter, words
    return None


@settings(max_examples=150, deadline=None)
@given(st.booleans(), st.lists(STEP, min_size=1, max_size=14))
def test_a_table_matches_like_every_filter_by_itself(shared: bool, steps: list[tuple[str, list[str], int]]) -> None:
    table = Subscriptions()
    for number, (what, names, code) in enumerate(steps, 1):
        identifier = number % 3 + 1
        if what == "subscribe":
            packet = Subscribe(identifier, subscriptions=[Subscription(name, 1) for name in names])
            table.subscribe(packet, number, number, number, shared=shared)
        elif what == "unsubscribe":
            table.unsubscribe(Unsubscribe(identifier, topic_filters=names), number, number, number)
        elif what == "write down and read":
            table = load(dump(table))
            assert table.index is None
        else:
            kind = what.removesuffix("ack").replace("sub", "subscribe").replace("unsubscribe", "unsubscribe")
            request = table.request_for(identifier, kind)
            codes = [code] * (len(request.topic_filters) if request else 1)
            if what == "suback":
                table.granted(Suback(identifier, reason_codes=codes), number, number)
            else:
                table.unsubscribed(Unsuback(identifier, reason_codes=codes), number, number)

        for topic in TOPICS:
            found = table.match(topic)
            assert (
                [one.topic_filter for one in found.subscriptions],
                [one.topic_filter for one in found.ended],
                [one.topic_filter for one in found.extended],
            ) == plainly(table, topic)
            assert found.known
            if not found.subscriptions:
                assert table.near(topic) == nearly(table, topic)


def test_a_message_costs_nothing_for_subscriptions_that_do_not_match() -> None:
    visited = []
    for count in (100, 20_000):
        table = Subscriptions()
        rows = [Subscription(f"site/{number}/+", 0) for number in range(count)]
        table.subscribe(Subscribe(1, subscriptions=rows), 1, 1, 1)
        for number in range(50):
            assert len(table.match(f"site/{number}/x").subscriptions) == 1
            assert table.match(f"elsewhere/{number}").subscriptions == ()
        assert table.index is not None
        visited.append(table.index.patterns.visited)

    assert visited[0] == visited[1]


def test_a_topic_of_too_many_subscriptions_proves_nothing() -> None:
    table = Subscriptions()
    rows = [Subscription(f"$share/{number}/#", 0) for number in range(MAX_MATCHING + 1)]
    table.subscribe(Subscribe(1, subscriptions=rows[:-1]), 1, 1, 1)
    assert table.match("a").known
    assert len(table.match("a").subscriptions) == MAX_MATCHING

    table.subscribe(Subscribe(2, subscriptions=rows[-1:]), 2, 2, 2)
    assert not table.match("a").known

"""Which subscriptions a topic belongs to: the index finds what comparing a topic with each of them finds."""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.mqtt import Suback, Subscribe, Subscription, Unsuback, Unsubscribe
from mqttscope.mqtt.topics import is_valid_topic_filter, matches, parse_shared
from mqttscope.session.matching import FAILURE, ClientSubscription, FilterIndex, Match, Node, SubscriptionIndex
from mqttscope.session.subscriptions import Subscriptions
from tests import tools
from tests.conftest import THOROUGH
from tests.session.requests import Talk, filters

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

    def extended(subscription: ClientSubscription) -> bool:
        name = subscription.topic_filter
        if name.startswith("$queue/"):
            return matches(name.removeprefix("$queue/"), topic, shared=False)
        share = parse_shared(name)
        return share is not None and matches(share[1], topic, shared=False)

    subscriptions = [
        client_subscription
        for name, client_subscription in table.live.items()
        if matches(client_subscription.plain_filter, topic, shared=False)
        or (name == topic and client_subscription.plain_filter == topic)
    ]
    others = [
        client_subscription
        for client_subscription in table.live.values()
        if client_subscription not in subscriptions
        and not client_subscription.is_shared
        and extended(client_subscription)
    ]
    over = [
        client_subscription
        for client_subscription in table.ended.values()
        if matches(client_subscription.plain_filter, topic, shared=False)
    ]
    exact = [client_subscription for client_subscription in subscriptions if client_subscription.topic_filter == topic]
    in_force = [
        client_subscription
        for client_subscription in [
            *exact,
            *(client_subscription for client_subscription in subscriptions if client_subscription not in exact),
        ]
        if client_subscription.granted is None or client_subscription.granted < FAILURE
    ]
    in_force.sort(key=lambda client_subscription: client_subscription.packet)
    return (
        [client_subscription.topic_filter for client_subscription in in_force],
        [client_subscription.topic_filter for client_subscription in over],
        [client_subscription.topic_filter for client_subscription in others],
    )


def nearly(table: Subscriptions, topic: str) -> tuple[str, str] | None:
    def changes() -> Iterator[tuple[str, Callable[[str], str]]]:
        yield "folding case", str.casefold
        yield "collapsing '//'", lambda text: re.sub("/{2,}", "/", text)
        yield "trimming '/'", lambda text: text.strip("/")
        yield "Unicode normalisation to NFC", lambda text: unicodedata.normalize("NFC", text)
        yield "Unicode normalisation to NFKC", lambda text: unicodedata.normalize("NFKC", text)

    for words, change in changes():
        for subscription in table.live.values():
            fine = subscription.granted is None or subscription.granted < FAILURE
            if fine and matches(change(subscription.plain_filter), change(topic), shared=False):
                return subscription.topic_filter, words
    return None


@settings(max_examples=150 if THOROUGH else 75, deadline=None)
@given(st.booleans(), st.lists(STEP, min_size=1, max_size=14))
def test_a_table_matches_like_every_filter_by_itself(shared: bool, steps: list[tuple[str, list[str], int]]) -> None:
    tools.package("msgspec")
    from mqttscope.lake.state import dump, load

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
                table.handle_suback(Suback(identifier, reason_codes=codes), number, number)
            else:
                table.handle_unsuback(Unsuback(identifier, reason_codes=codes), number, number)

        for topic in TOPICS:
            match = table.match(topic)
            assert (
                [subscription.topic_filter for subscription in match.subscriptions],
                [subscription.topic_filter for subscription in match.ended],
                [subscription.topic_filter for subscription in match.extended],
            ) == plainly(table, topic)
            assert match.known
            if not match.subscriptions:
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


@pytest.mark.parametrize(
    ("story", "topic", "wanted"),
    [
        pytest.param("subscribe 1 a:1", "a", ["a"], id="from the SUBSCRIBE on"),
        pytest.param("subscribe 1 b:1", "a", [], id="another filter"),
        pytest.param("subscribe 1 a/+:1; subscribe 2 a/b:1 #:1", "a/b", ["a/+", "a/b", "#"], id="overlapping"),
        pytest.param("subscribe 1 a:1; suback 1 0x80", "a", [], id="refused"),
        pytest.param("subscribe 1 a:1 b:1; suback 1 0x80 1", "b", ["b"], id="the other one was refused"),
        pytest.param("subscribe 1 a:1; suback 1 1; unsubscribe 2 a", "a", ["a"], id="until the UNSUBACK"),
        pytest.param(
            "subscribe 1 a:1; suback 1 1; unsubscribe 2 a; unsuback 2", "a", [], id="ended, in 3.1.1"
        ),
        pytest.param(
            "subscribe 1 a:1; unsubscribe 2 a; unsuback 2 0x87", "a", ["a"], id="the UNSUBSCRIBE was refused"
        ),
        pytest.param(
            "subscribe 1 a:1; unsubscribe 2 a; subscribe 3 a:1; unsuback 2 0",
            "a", ["a"], id="subscribed again while the UNSUBSCRIBE was under way",
        ),
        pytest.param("subscribe 1 #:1", "$SYS/x", [], id="no wildcard for the server's own topics"),
        pytest.param("subscribe 1 a/b#:1 +a:1", "a/b", [], id="filters that are none"),
        pytest.param("subscribe 1 a:1; subscribe 2 a:1", "a", ["a"], id="the same filter is one subscription"),
        pytest.param("subscribe 1 $share/g/a/+:1", "a/b", ["$share/g/a/+"], id="shared"),
        pytest.param("subscribe 1 $share/g/a:1 a:1", "a", ["$share/g/a", "a"], id="shared and not"),
        pytest.param("subscribe 1 $share/g:1", "$share/g", ["$share/g"], id="a share that is none"),
    ],
)  # fmt: skip
def test_matching_subscriptions(story: str, topic: str, wanted: list[str]) -> None:
    assert sorted(filters(Talk(story).table, topic)) == sorted(wanted)


def test_before_5_0_a_share_is_an_ordinary_level_and_an_extension_at_best() -> None:
    table = Talk("subscribe 1 $share/g/a:1 $queue/b:1 $share/g/+:1", shared=False).table

    assert filters(table, "$share/g/a") == ["$share/g/a", "$share/g/+"]
    assert filters(table, "a") == []
    assert [subscription.topic_filter for subscription in table.match("a").extended] == ["$share/g/a", "$share/g/+"]
    assert [subscription.topic_filter for subscription in table.match("b").extended] == ["$queue/b", "$share/g/+"]
    assert table.live["$share/g/a"].shared is None


def test_a_share_is_known_in_5_0() -> None:
    subscription = Talk("subscribe 1 $share/g/a/#:1").table.live["$share/g/a/#"]

    assert subscription.is_shared
    assert subscription.shared == ("g", "a/#")
    assert subscription.plain_filter == "a/#"


@pytest.mark.parametrize(
    ("name", "topic", "wanted"),
    [
        ("a/b", "A/B", "folding case"),
        ("a/b", "a//b", "collapsing '//'"),
        ("a/b", "/a/b", "trimming '/'"),
        ("a/+", "a/b/", "trimming '/'"),
        ("caf\u00e9", "cafe\u0301", "Unicode normalisation to NFC"),
        ("\ufb01le", "file", "folding case"),
        ("x\u00b2", "x2", "Unicode normalisation to NFKC"),
        ("a/b", "a/c", None),
    ],
)
def test_filters_that_match_after_a_change(name: str, topic: str, wanted: str | None) -> None:
    near = Talk(f"subscribe 1 {json.dumps(name)}:1").table.near(topic)

    assert near == (None if wanted is None else (name, wanted))


def test_near_is_not_asked_for_topics_that_match_and_leaves_refused_filters_out() -> None:
    assert Talk("subscribe 1 a:1 A:1").table.near("a") is None
    assert Talk("subscribe 1 a:1; suback 1 0x87").table.near("A") is None


def test_a_leading_wildcard_stands_beside_a_topic_of_the_server() -> None:
    table = Talk("subscribe 1 #:1 +/x:1 $SYS/y:1 $share/g/+/x:1").table

    assert table.match("$SYS/x").beside == ("#", "+/x", "$share/g/+/x")
    assert table.match("$SYS/y").beside == ()


def test_retained_messages_are_asked_for_by_handling_and_novelty() -> None:
    def asks(story: str, name: str = "a") -> bool:
        return Talk(story).table.live[name].asks_for_retained

    assert asks("subscribe 1 a:1")
    assert asks("subscribe 1 a:1,retain_handling=1")
    assert not asks("subscribe 1 a:1; subscribe 2 a:1,retain_handling=1")
    assert not asks("subscribe 1 a:1,retain_handling=2")
    assert not asks("subscribe 1 $share/g/a:1", name="$share/g/a")


def one(name: str, packet: int = 0, **fields: Any) -> ClientSubscription:
    """A subscription of 5.0."""
    share = parse_shared(name)
    values = {
        "maximum_qos": 1, "no_local": False, "retain_as_published": False, "retain_handling": 0,
        "subscription_identifier": None, "packet": packet, "frame": packet + 1, "timestamp_ns": 0,
    }  # fmt: skip
    return ClientSubscription(name, name if share is None else share[1], **{**values, **fields})


def matched(
    *rows: ClientSubscription, ended: Iterable[ClientSubscription] = (), topic: str = "a", known: bool = True
) -> Match:
    """What a topic belongs to, of these in force and those that ended."""
    live = {row.topic_filter: row for row in rows}
    over = {row.topic_filter: row for row in ended}
    patterns = [row.topic_filter for row in rows if row.is_shared or set(row.topic_filter) & {"+", "#"}]
    return SubscriptionIndex.of(live, patterns, over).match(topic, live, over, known=known)


def test_a_topic_of_no_subscription() -> None:
    match = matched(one("b"))

    assert match == Match(True, (), (), (), (), 0, 0, (), (), False, False, False, False)
    assert not matched(one("a"), known=False).known


def test_the_granted_qos_is_the_highest_of_those_in_force() -> None:
    match = matched(
        one("a", maximum_qos=0),
        one("+", maximum_qos=2, granted=1),
        one("#", maximum_qos=2, granted=FAILURE),
        ended=[one("a", maximum_qos=2)],
    )

    assert [row.topic_filter for row in match.subscriptions] == ["a", "+"]
    assert (match.granted_qos, match.highest_qos) == (1, 2)


@pytest.mark.parametrize(("granted", "qos"), [(None, 2), (0, 0), (1, 1), (2, 2), (0x7F, 2)])
def test_a_qos_is_granted_or_asked_for_and_never_above_2(granted: int | None, qos: int) -> None:
    assert one("a", maximum_qos=2, granted=granted).qos == qos
    assert one("a", maximum_qos=3).qos == 2


def test_subscriptions_come_in_the_order_of_their_requests() -> None:
    match = matched(one("a", 5), one("#", 2), one("+", 9))

    assert [row.packet for row in match.subscriptions] == [2, 5, 9]


def test_identifiers_are_those_in_force_and_possible_ones_those_before() -> None:
    before = one("a", subscription_identifier=1)
    match = matched(
        one("a", 3, subscription_identifier=2, replaced=before, formerly=(1, 7)),
        one("+", 4),
        ended=[one("#", subscription_identifier=3)],
    )

    assert match.identifiers == (2,)
    assert sorted(match.possible_identifiers) == [1, 1, 2, 3, 7]
    assert not match.all_identified
    assert match.replaces
    assert matched(one("a", subscription_identifier=2)).all_identified
    assert not matched(one("a", subscription_identifier=2)).replaces


def test_no_local_has_to_be_of_all_and_retain_as_published_of_one() -> None:
    both = one("a", no_local=True, retain_as_published=True), one("+", no_local=False)

    assert not matched(*both).all_no_local
    assert matched(*both).retain_as_published
    assert matched(both[0]).all_no_local
    assert not matched(both[1]).retain_as_published
    assert matched(both[1], ended=[one("a", retain_as_published=True)]).retain_as_published


def test_what_is_dropped_is_found_no_more_and_what_is_put_again_is() -> None:
    live = {"+": one("+"), "a/#": one("a/#")}
    index = SubscriptionIndex.of(live, live, {})
    assert index.overlapping("a", live, 10)[0] == ["+", "a/#"]
    assert index.nearest("A", live) == ("+", "folding case")

    index.drop("+")
    gone = live.pop("+")
    assert [row.topic_filter for row in index.match("a", live, {}, known=True).subscriptions] == ["a/#"]
    assert index.overlapping("a", live, 10)[0] == ["a/#"]
    assert index.nearest("B", live) is None

    live["+"] = gone
    index.put(gone, pattern=True)
    assert {row.topic_filter for row in index.match("a", live, {}, known=True).subscriptions} == {"+", "a/#"}
    assert set(index.overlapping("a", live, 10)[0]) == {"+", "a/#"}
    assert index.nearest("B", live) == ("+", "folding case")


def test_a_filter_that_was_refused_is_near_nothing() -> None:
    live = {"a": one("a", granted=0x87), "A/": one("A/", 1)}
    index = SubscriptionIndex.of(live, (), {})

    assert index.nearest("A", live) == ("A/", "trimming '/'")


LEVELS = st.sampled_from(["", "a", "b", "ab", "$a", "+", "#", "a+"])
ANY_FILTER = st.lists(LEVELS, min_size=1, max_size=5).map("/".join)
ANY_TOPIC = st.lists(st.sampled_from(["", "a", "b", "ab", "$a", "+"]), min_size=1, max_size=6).map("/".join)
EVERY_FILTER = [
    "/".join(levels)
    for count in (1, 2, 3)
    for levels in itertools.product(("a", "b", "", "+", "#", "$s"), repeat=count)
    if is_valid_topic_filter("/".join(levels))
]
EVERY_NAME = [
    "/".join(levels) for count in (1, 2, 3, 4) for levels in itertools.product(("a", "b", "", "$s", "x"), repeat=count)
]


def overlap(text: str, other: str) -> bool:
    """Whether a topic exists that both Topic Filters match.  Both are taken as valid, without ``$share/ShareName/``."""
    first, second = text.split("/"), other.split("/")
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
    texts = {text: frozenset(name for name in EVERY_NAME if matches(text, name)) for text in EVERY_FILTER}
    for text, other in itertools.combinations_with_replacement(EVERY_FILTER, 2):
        assert overlap(text, other) == overlap(other, text) == bool(texts[text] & texts[other]), (text, other)


def names_matching(filters: dict[str, str], topic: str) -> list[str]:
    return [name for name, text in filters.items() if matches(text, topic, shared=False)]


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 12), ANY_FILTER), max_size=40),
    st.lists(ANY_TOPIC, min_size=1, max_size=8),
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
            assert index.match(topic) == names_matching(filters, topic)
    assert len(index) == len(filters)

    for name in list(filters):
        index.discard(name)
    assert index.root == Node()


@given(st.lists(ANY_FILTER, max_size=12, unique=True), ANY_FILTER)
def test_an_index_overlaps_like_every_filter_by_itself(filters: list[str], other: str) -> None:
    index = FilterIndex()
    for text in filters:
        index.add(text, text)
    texts, steps = index.overlapping(other, 1_000)

    def valid(single_text: str) -> bool:
        return is_valid_topic_filter(single_text, shared=False)

    assert texts == [text for text in filters if valid(text) and valid(other) and overlap(text, other)]
    assert steps <= 40


def test_a_dollar_sign_hides_the_first_level_of_a_filter_alone() -> None:
    index = FilterIndex()
    for text in ("/", "/$a", "$a", "$a/b"):
        index.add(text, text)

    assert index.overlapping("#", 1_000)[0] == ["/", "/$a"]
    assert index.overlapping("+/#", 1_000)[0] == ["/", "/$a"]


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
    texts, steps = index.overlapping("#", 10)
    assert len(texts) <= 10
    assert steps <= 12


def test_a_filter_is_removed_from_the_index_though_it_is_no_valid_share() -> None:
    index = FilterIndex()
    index.add("a", "$share//a")
    assert index.match("$share//a") == ["a"]

    index.discard("a")

    assert index.match("$share//a") == []

"""Who has subscribed to what: sessions that come and go, and a table that costs nothing for those who do not match."""

from __future__ import annotations

from typing import Any

import pytest

from mqttscope.lint import subscriber_table
from mqttscope.lint.subscriber_table import HeldSubscription, KnownSession, SubscriberTable, plain_filter

SECOND_NS = 1_000_000_000


def key(number: int) -> Any:
    return (b"flow", number, 0)


def subscribe(table: SubscriberTable, session: KnownSession, name: str, number: int = 1) -> HeldSubscription:
    plain, is_shared = plain_filter(name)
    held = HeldSubscription(session.owner, name, plain, is_shared, False, number, number, number)
    table.subscribe(session, held)
    return held


def owners(table: SubscriberTable, topic: str) -> list[str]:
    return [
        subscription.owner for some in table.holding(topic, table.matching(topic)) for subscription in some.values()
    ]


def connected(table: SubscriberTable, owner: str, *filters: str, number: int = 1) -> KnownSession:
    session = table.connect(owner, key(number), number * SECOND_NS, resumes=False)
    for name in filters:
        subscribe(table, session, name)
    return session


@pytest.fixture
def table() -> SubscriberTable:
    return SubscriberTable()


def test_a_topic_finds_those_who_subscribed_to_it(table: SubscriberTable) -> None:
    connected(table, "c1", "a/b", "a/+", number=1)
    connected(table, "c2", "#", number=2)
    connected(table, "c3", "a/c", "$share/g/a/b", number=3)

    assert sorted(owners(table, "a/b")) == ["c1", "c1", "c2", "c3"]
    assert owners(table, "x") == ["c2"]
    assert (table.number, table.shared) == (5, 1)


def test_what_is_unsubscribed_or_replaced_counts_no_more(table: SubscriberTable) -> None:
    session = connected(table, "c1", "a", "+")
    subscribe(table, session, "a", 2)
    table.unsubscribe(session, "+")
    table.unsubscribe(session, "never")

    assert owners(table, "a") == ["c1"]
    assert session.held["a"].packet == 2
    assert table.number == 1


@pytest.mark.parametrize("resumes", [True, False])
def test_what_is_asked_for_before_a_connection_is_accepted_stays(table: SubscriberTable, resumes: bool) -> None:
    connected(table, "c1", "old")
    table.leave("c1", key(1), 2 * SECOND_NS, 1e9)
    session = table.ask("c1", key(2), 3 * SECOND_NS)
    subscribe(table, session, "new", 4 * SECOND_NS)
    assert table.strangers == {key(2): False}

    assert table.connect("c1", key(2), 5 * SECOND_NS, resumes=resumes) is session
    assert list(session.held) == (["old", "new"] if resumes else ["new"])
    assert table.strangers == {}


def test_a_session_that_nobody_saw_begin_may_hold_more_than_was_asked_for(table: SubscriberTable) -> None:
    subscribe(table, table.ask("c1", key(1), SECOND_NS), "new", SECOND_NS)
    table.connect("c1", key(1), 2 * SECOND_NS, resumes=True)
    assert table.strangers == {key(1): True}

    subscribe(table, table.ask("c2", key(2), SECOND_NS), "new", SECOND_NS)
    table.mark_incomplete(key(2))  # bytes are lost
    table.connect("c2", key(2), 2 * SECOND_NS, resumes=False)
    assert table.strangers[key(2)] is True


def test_a_refused_connection_leaves_only_what_was_there_before(table: SubscriberTable) -> None:
    connected(table, "c1", "old")
    table.leave("c1", key(1), 2 * SECOND_NS, 1e9)
    subscribe(table, table.ask("c1", key(2), 3 * SECOND_NS), "new", 4 * SECOND_NS)
    table.refuse("c1", key(2))

    assert list(table.sessions["c1"].held) == ["old"]


def test_a_session_sleeps_until_it_expires(table: SubscriberTable) -> None:
    connected(table, "c1", "a", number=1)
    table.leave("c1", key(1), 10 * SECOND_NS, 60)
    assert owners(table, "a") == ["c1"]
    assert table.sessions["c1"].key is None

    back = table.connect("c1", key(2), 20 * SECOND_NS, resumes=True)
    assert list(back.held) == ["a"]
    assert not table.strangers

    table.leave("c1", key(2), 30 * SECOND_NS, 60)
    late = table.connect("c1", key(3), 100 * SECOND_NS, resumes=True)
    assert not late.held
    assert list(table.strangers) == [key(3)], "it had a session that nobody knows"


def test_a_session_ends_with_a_clean_start_or_with_its_connection(table: SubscriberTable) -> None:
    connected(table, "c1", "a", number=1)
    table.leave("c1", key(1), 10 * SECOND_NS, 60)
    table.connect("c1", key(2), 20 * SECOND_NS, resumes=False)
    assert owners(table, "a") == []

    connected(table, "c2", "a", number=3)
    table.leave("c2", key(3), 30 * SECOND_NS, 0)
    assert "c2" not in table.sessions
    assert table.number == 0


def test_the_end_of_a_connection_that_was_taken_over_ends_nothing(table: SubscriberTable) -> None:
    connected(table, "c1", "a", number=1)
    table.connect("c1", key(2), 5 * SECOND_NS, resumes=True)
    table.leave("c1", key(1), 6 * SECOND_NS, 0)

    assert owners(table, "a") == ["c1"]
    assert table.sessions["c1"].key == key(2)


def test_a_reconnect_with_the_same_filters_leaves_the_revision_as_it_is(table: SubscriberTable) -> None:
    connected(table, "c1", "a/#", "b", number=1)
    before = table.revision
    table.end("c1")
    connected(table, "c1", "a/#", "b", number=2)

    assert table.revision == before
    assert owners(table, "a/x") == ["c1"]


def test_filters_that_nobody_holds_are_cleared_away(table: SubscriberTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriber_table, "MAX_EMPTY", 3)
    connected(table, "stays", "+/x")
    for number in range(12):
        connected(table, "comes", f"{number}/+", number=number)

    assert table.patterns == sum("+" in name for name in table.holders) <= 6
    assert table.held_patterns == 2
    assert sorted(owners(table, "11/x")) == ["comes", "stays"]


@pytest.mark.parametrize("others", [1_000, 100_000])
def test_a_topic_costs_nothing_for_the_subscriptions_that_do_not_match(table: SubscriberTable, others: int) -> None:
    """Nodes are counted, not time."""
    for number in range(others // 10):
        session = table.connect(f"c{number}", key(number), number, resumes=False)
        for quantity in range(5):
            subscribe(table, session, f"site/{number}/{quantity}/+")
            subscribe(table, session, f"site/{number}/{quantity}/state")
    connected(table, "all", "site/#", "+/7/+/state")
    assert table.number == others + 2
    table.matching("site/1/1/state")
    assert table.index is not None
    before = table.index.visited
    for number in range(50):
        texts = owners(table, f"site/{number}/3/state")
        assert sorted(texts) == sorted(["all", f"c{number}", f"c{number}", *(["all"] if number == 7 else [])])

    assert (table.index.visited - before) / 50 < 8


@pytest.mark.parametrize(
    ("topic_filter", "wanted"),
    [
        ("a/b", ("a/b", False)),
        ("$share/g/a/b", ("a/b", True)),
        ("$queue/a", ("a", True)),
        ("$exclusive/a", ("a", True)),
        ("$share/g", ("$share/g", False)),
        ("$SYS/#", ("$SYS/#", False)),
    ],
)
def test_shares_and_the_like_are_taken_off(topic_filter: str, wanted: tuple[str, bool]) -> None:
    assert plain_filter(topic_filter) == wanted


def test_what_matched_is_remembered_until_other_filters_may(
    table: SubscriberTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = table.connect("dev1", ("c", 0, 0), 0, resumes=False)

    def subscribe(name: str) -> None:
        table.subscribe(session, HeldSubscription("dev1", name, name, False, False, 1, 1, 0))

    subscribe("a/#")
    assert table.matching("a/b") == table.matching("a/b") == ("a/#",)
    subscribe("+/b")
    assert table.matching("a/b") == ("a/#", "+/b")
    monkeypatch.setattr(subscriber_table, "MAX_MATCHED", 2)
    for number in range(9):
        assert table.matching(f"a/{number}") == ("a/#",)
    assert table == SubscriberTable(table.sessions, table.holders, table.number, table.shared, table.patterns,
                                    table.held_patterns, table.revision)  # fmt: skip

"""Tables of subscriptions: requests, answers, what is remembered of them, and its limits."""

from __future__ import annotations

import pytest

from mqttscope.session import subscriptions as module
from mqttscope.session.subscriptions import FLOOD_PAUSE_NS, FLOOD_START_NS
from tests.session.requests import SECOND, Talk, filters, suback, subscribe, unsuback, unsubscribe


def test_a_match_is_kept_until_the_table_changes() -> None:
    talk = Talk(subscribe(1, "a", qos=2))
    first = talk.table.match("a")

    assert talk.table.match("a") is first
    assert first.granted_qos == 2
    talk.tell(suback(1, 0))
    assert talk.table.match("a") is not first
    assert talk.table.match("a").granted_qos == 0


def test_what_matches_may_match() -> None:
    names = [
        "a",
        "a/b",
        "a/b/c",
        "b",
        "ab",
        "$SYS/a",
        "+",
        "#",
        "a/#",
        "+/b",
        "a/+/c",
        "a/b/#",
        "$share/g/a/+",
        "$SYS/#",
    ]
    quick = 0
    for name in names:
        table = Talk(subscribe(1, name), suback(1, 0)).table
        for topic in ("a", "a/b", "a/b/c", "b", "ab", "x/b", "$SYS/a", "c/d"):
            assert table.may_match(topic) or not filters(table, topic), (name, topic)
            quick += not table.may_match(topic)
    assert quick > 40


def test_matches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MATCHES", 3)
    table = Talk(subscribe(1, "#")).table

    for number in range(10):
        assert filters(table, f"t{number}") == ["#"]
    assert len(table.found) <= 3


def test_a_new_subscribe_replaces_options_and_remembers_the_old_ones() -> None:
    talk = Talk(subscribe(1, "a", number=7, qos=1), suback(1, 1), subscribe(2, "a", number=8, qos=0))
    one = talk.table.live["a"]
    found = talk.table.match("a")

    assert one.existed
    assert one.times == 2
    assert one.formerly == (7,)
    assert one.replaced is not None
    assert one.replaced.subscription_identifier == 7
    assert (found.granted_qos, found.highest_qos) == (0, 1)
    assert found.identifiers == (8,)
    assert set(found.possible_identifiers) == {7, 8}
    assert found.replaces


def test_only_one_predecessor_is_kept_but_all_its_identifiers() -> None:
    talk = Talk(*(subscribe(number, "a", number=number) for number in range(1, 5)))
    one = talk.table.live["a"]

    assert one.formerly == (3, 2, 1)
    assert one.replaced is not None
    assert one.replaced.replaced is None
    for number in range(5, 40):
        talk.tell(subscribe(number, "a", number=number))
    assert len(talk.table.live["a"].formerly) == module.MAX_CHAIN


def test_a_refused_request_leaves_the_subscription_before_it() -> None:
    talk = Talk(subscribe(1, "a"), suback(1, 1), subscribe(2, "a", qos=2), suback(2, 0x97))
    one = talk.table.live["a"]

    assert (one.packet, one.granted, one.doubtful) == (0, 1, True)
    assert talk.table.refused == {"a": 2}


def test_a_subscription_did_not_exist_when_the_one_before_is_refused_late_or_was_ending() -> None:
    late = Talk(subscribe(1, "a"), subscribe(2, "a"), suback(1, 0x80), suback(2, 1)).table.live["a"]
    ending = Talk(subscribe(1, "a"), unsubscribe(2, "a"), subscribe(3, "a")).table.live["a"]

    assert (late.granted, late.existed, late.replaced) == (1, False, None)
    assert not ending.existed
    assert ending.replaced is not None


def test_an_ended_subscription_is_remembered_until_it_is_asked_for_again() -> None:
    talk = Talk(subscribe(1, "a", number=7), suback(1, 1), unsubscribe(2, "a"), unsuback(2, 0))

    assert talk.table.ended["a"].ended_ns == 3 * SECOND
    assert [one.topic_filter for one in talk.table.match("a").ended] == ["a"]
    talk.tell(subscribe(3, "a"))
    assert talk.table.ended == {}
    assert talk.table.live["a"].formerly == (7,)
    assert talk.table.live["a"].times == 2
    assert not talk.table.live["a"].existed


def test_a_subscription_that_was_ended_does_not_come_back_when_the_next_one_is_refused() -> None:
    rows = subscribe(1, "a"), suback(1, 1), unsubscribe(2, "a"), subscribe(3, "a"), unsuback(2, 0), suback(3, 0x80)
    table = Talk(*rows).table

    assert table.live == {}
    assert table.ended["a"].packet == 0
    assert table.ended["a"].ended_ns == 4 * SECOND


def test_the_highest_qos_that_a_filter_had_is_remembered() -> None:
    table = Talk(*(subscribe(number, "a", qos=qos) for number, qos in enumerate((2, 1, 0), 1))).table

    assert table.live["a"].former_qos == 2
    assert table.match("a").granted_qos == 0
    assert table.match("a").highest_qos == 2


def test_a_suback_of_another_length_says_nothing_about_single_filters() -> None:
    table = Talk(subscribe(1, "a", "b"), suback(1, 0x80)).table

    assert [one.granted for one in table.live.values()] == [None, None]
    assert table.requests[1].codes == (0x80,)


def test_requests_with_one_identifier_are_answered_in_order() -> None:
    talk = Talk(subscribe(1, "a"), subscribe(1, "b"), unsubscribe(1, "c"))

    assert [one.topic_filters for one in (talk.table.request_for(1, "subscribe"),) if one] == [("a",)]
    talk.tell(suback(1, 0x80))
    assert list(talk.table.live) == ["b"]
    talk.tell(suback(1, 1))
    assert talk.table.live["b"].granted == 1
    again = talk.table.request_for(1, "subscribe")
    assert again is not None
    assert again.answers == 1
    assert talk.table.request_for(1, "unsubscribe") is talk.table.requests[1]


def test_an_answer_without_a_request_changes_nothing() -> None:
    talk = Talk(subscribe(1, "a"))
    talk.tell(suback(2, 1), unsuback(1, 0))

    assert talk.table.live["a"].granted is None
    assert talk.table.request_for(2, "subscribe") is None


def test_a_second_answer_changes_nothing() -> None:
    talk = Talk(subscribe(1, "a"), suback(1, 1), suback(1, 0x80))

    assert talk.table.live["a"].granted == 1
    assert talk.table.requests[1].answers == 2
    assert talk.table.requests[1].answer == 1


def test_unanswered_requests_with_one_identifier_are_bounded() -> None:
    table = Talk(*(subscribe(1, f"t{number}") for number in range(100))).table
    depth, one = 0, table.requests.get(1)
    while one is not None:
        depth, one = depth + 1, one.earlier

    assert depth <= module.MAX_CHAIN + 1


def test_an_unsubscribe_remembers_what_its_filters_stood_for() -> None:
    talk = Talk(subscribe(1, "a"), suback(1, 1), subscribe(2, "b"), unsubscribe(3, "a", "b", "c"))
    request = talk.table.requests[3]

    assert request.existing == (0, 2, -1)
    talk.tell(unsuback(3, 0, 0, 0x11))
    assert talk.table.named("a", 0) is talk.table.ended["a"]
    assert talk.table.named("a", 1) is None


def test_too_many_subscriptions_are_said_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SUBSCRIPTIONS", 2)
    talk = Talk(subscribe(1, "a", "b"))

    assert talk.table.match("a").known
    talk.tell(subscribe(2, "c"))
    assert list(talk.table.live) == ["a", "b"]
    assert not talk.table.match("c").known


def test_ended_and_refused_filters_and_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENDED", 5)
    talk = Talk()
    for number in range(1, 30):
        talk.tell(subscribe(number, f"r{number}"), suback(number, 0x80))
        talk.tell(subscribe(number, f"t{number}"), unsubscribe(number + 100, f"t{number}"), unsuback(number + 100, 0))

    assert len(talk.table.ended) == len(talk.table.refused) == len(talk.table.requests) == 5
    assert talk.table.live == {}
    assert talk.table.patterns == {}


def test_what_could_not_be_read_makes_the_table_incomplete() -> None:
    talk = Talk(subscribe(1, "a"))
    talk.table.unreadable(request=True)

    assert not talk.table.match("a").known
    assert talk.table.requests == {}
    talk.table.unreadable(request=False)
    assert talk.table.unread_answers


def test_a_malformed_subscribe_may_lack_everything() -> None:
    talk = Talk()
    broken = subscribe(1)
    broken.subscriptions = None
    talk.tell(broken, suback(1))

    assert talk.table.live == {}
    assert talk.table.requests[1].answers == 1


def test_retained_messages_follow_a_subscribe_in_one_go() -> None:
    table = Talk(subscribe(1, "#")).table

    assert table.is_flood(FLOOD_START_NS)
    assert not table.is_flood(FLOOD_START_NS + 1)
    table.retained_sent("a", FLOOD_START_NS)
    assert table.is_flood(FLOOD_START_NS + FLOOD_PAUSE_NS)
    assert not table.is_flood(FLOOD_START_NS + FLOOD_PAUSE_NS + 1)
    table.retained_sent("a", FLOOD_START_NS + FLOOD_PAUSE_NS + 1)
    assert not table.is_flood(FLOOD_START_NS + FLOOD_PAUSE_NS + 2)
    assert table.retained == {"a": 2}


def test_messages_that_keep_retain_as_published_are_not_counted_as_retained() -> None:
    table = Talk(subscribe(1, "a", retain_as_published=True)).table
    table.retained_sent("a", 0)

    assert table.retained == {}


def test_what_comes_before_anybody_asks_is_not_the_answer_to_a_subscribe() -> None:
    talk = Talk()
    talk.table.retained_sent("a", 0)
    talk.tell(subscribe(1, "a"))
    talk.table.retained_sent("a", 1)

    assert talk.table.retained == {"a": 1}


def test_topics_of_retained_messages_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RETAINED", 4)
    table = Talk(subscribe(1, "#")).table
    for number in range(10):
        table.retained_sent(f"t{number}", 0)

    assert len(table.retained) == 4

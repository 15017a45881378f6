"""Tables of subscriptions: requests, answers, what is remembered of them, and its limits."""

from __future__ import annotations

import pytest

from tests.session.requests import Talk, filters
from tests.tables import cases_of, differing

FACTS = """
a new SUBSCRIBE replaces options and remembers the old ones
    subscribe 1 a:1 subscription_identifier=7; suback 1 1; subscribe 2 a:0 subscription_identifier=8 |
    live[a].existed=True live[a].times=2 live[a].formerly=[7] live[a].replaced.subscription_identifier=7
a refused request leaves the subscription before it
    subscribe 1 a:1; suback 1 1; subscribe 2 a:2; suback 2 0x97 |
    live[a].packet=0 live[a].granted=1 live[a].doubtful=True refused=[a] refused[a]=2
a subscription did not exist when the one before is refused late
    subscribe 1 a:1; subscribe 2 a:1; suback 1 0x80; suback 2 1 |
    live[a].granted=1 live[a].existed=False live[a].replaced=None
a subscription did not exist when the one before was ending
    subscribe 1 a:1; unsubscribe 2 a; subscribe 3 a:1 | live[a].existed=False live[a].replaced.packet=0
an ended subscription is remembered
    subscribe 1 a:1 subscription_identifier=7; suback 1 1; unsubscribe 2 a; unsuback 2 0 |
    ended[a].ended_ns=3000000000 live=[]
an ended subscription is remembered until it is asked for again
    subscribe 1 a:1 subscription_identifier=7; suback 1 1; unsubscribe 2 a; unsuback 2 0; subscribe 3 a:1 |
    ended=[] live[a].formerly=[7] live[a].times=2 live[a].existed=False
a subscription that was ended does not come back when the next one is refused
    subscribe 1 a:1; suback 1 1; unsubscribe 2 a; subscribe 3 a:1; unsuback 2 0; suback 3 0x80 |
    live=[] ended[a].packet=0 ended[a].ended_ns=4000000000
the highest QoS that a filter had is remembered
    subscribe 1 a:2; subscribe 2 a:1; subscribe 3 a:0 | live[a].former_qos=2
a SUBACK of another length says nothing about single filters
    subscribe 1 a:1 b:1; suback 1 0x80 | live=[a,b] live[a].granted=None live[b].granted=None requests[1].codes=[0x80]
requests with one identifier are answered in order
    subscribe 1 a:1; subscribe 1 b:1; unsubscribe 1 c; suback 1 0x80 | live=[b] live[b].granted=None
the second one of them is answered then
    subscribe 1 a:1; subscribe 1 b:1; unsubscribe 1 c; suback 1 0x80; suback 1 1 |
    live[b].granted=1 requests[1].kind=unsubscribe requests[1].earlier.kind=subscribe requests[1].earlier.answers=1
an answer without a request changes nothing
    subscribe 1 a:1; suback 2 1; unsuback 1 0 | live[a].granted=None requests=[1]
a second answer changes nothing
    subscribe 1 a:1; suback 1 1; suback 1 0x80 | live[a].granted=1 requests[1].answers=2 requests[1].answer=1
an UNSUBSCRIBE remembers what its filters stood for
    subscribe 1 a:1; suback 1 1; subscribe 2 b:1; unsubscribe 3 a b c | requests[3].existing=[0,2,-1]
a malformed SUBSCRIBE may lack everything
    subscribe 1; suback 1 empty | live=[] requests[1].answers=1
"""


@pytest.mark.parametrize(("story", "facts"), cases_of(FACTS, str, str))
def test_what_is_remembered(story: str, facts: str) -> None:
    assert differing(Talk(story).table, facts) == {}


MATCHES = """
of a SUBSCRIBE that replaces another both count until it is answered
    subscribe 1 a:1 subscription_identifier=7; suback 1 1; subscribe 2 a:0 subscription_identifier=8 |
    granted_qos=0 highest_qos=1 identifiers=[8] replaces=True possible_identifiers=[8,7,7]
of an ended subscription
    subscribe 1 a:1; suback 1 1; unsubscribe 2 a; unsuback 2 0 | subscriptions=[] ended[0].topic_filter=a
the highest QoS that a filter had
    subscribe 1 a:2; subscribe 2 a:1; subscribe 3 a:0 | granted_qos=0 highest_qos=2
"""


@pytest.mark.parametrize(("story", "facts"), cases_of(MATCHES, str, str))
def test_what_a_topic_belongs_to(story: str, facts: str) -> None:
    assert differing(Talk(story).table.match("a"), facts) == {}


def test_a_match_is_kept_until_the_table_changes() -> None:
    talk = Talk("subscribe 1 a:2")
    first = talk.table.match("a")

    assert talk.table.match("a") is first
    assert first.granted_qos == 2
    talk.tell("suback 1 0")
    assert talk.table.match("a") is not first
    assert talk.table.match("a").granted_qos == 0


def test_what_matches_may_match() -> None:
    quick = 0
    for name in [
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
    ]:
        table = Talk(f"subscribe 1 {name}:1; suback 1 0").table
        for topic in ("a", "a/b", "a/b/c", "b", "ab", "x/b", "$SYS/a", "c/d"):
            assert table.may_match(topic) or not filters(table, topic), (name, topic)
            quick += not table.may_match(topic)
    assert quick > 40


def test_only_one_predecessor_is_kept_but_all_its_identifiers() -> None:
    talk = Talk("; ".join(f"subscribe {number} a:1 subscription_identifier={number}" for number in range(1, 5)))

    assert differing(talk.table, "live[a].formerly=[3,2,1] live[a].replaced.replaced=None") == {}


def test_the_request_that_an_answer_is_for() -> None:
    talk = Talk("subscribe 1 a:1; subscribe 1 b:1; unsubscribe 1 c")

    assert [request.topic_filters for request in (talk.table.request_for(1, "subscribe"),) if request] == [("a",)]
    talk.tell("suback 1 0x80; suback 1 1")
    again = talk.table.request_for(1, "subscribe")
    assert again is not None
    assert again.answers == 1
    assert talk.table.request_for(1, "unsubscribe") is talk.table.requests[1]
    assert talk.table.request_for(2, "subscribe") is None


def test_a_name_leads_to_what_an_unsubscribe_ended() -> None:
    talk = Talk("subscribe 1 a:1; suback 1 1; subscribe 2 b:1; unsubscribe 3 a b c; unsuback 3 0 0 0x11")

    assert talk.table.find("a", 0) is talk.table.ended["a"]
    assert talk.table.find("a", 1) is None


def test_what_could_not_be_read_makes_the_table_incomplete() -> None:
    talk = Talk("subscribe 1 a:1")
    talk.table.note_unreadable(request=True)

    assert not talk.table.match("a").known
    assert talk.table.requests == {}
    talk.table.note_unreadable(request=False)
    assert talk.table.unread_answers


def test_messages_that_keep_retain_as_published_are_not_counted_as_retained() -> None:
    table = Talk("subscribe 1 a:1,retain_as_published").table
    table.retained_sent("a", 0)

    assert table.retained == {}


def test_what_comes_before_anybody_asks_is_not_the_answer_to_a_subscribe() -> None:
    talk = Talk()
    talk.table.retained_sent("a", 0)
    talk.tell("subscribe 1 a:1")
    talk.table.retained_sent("a", 1)

    assert talk.table.retained == {"a": 1}

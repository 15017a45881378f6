"""The way of a message through the broker."""

from __future__ import annotations

from mqttscope.browse.following import FollowedMessage, MessageSearch, partner
from mqttscope.browse.index import FROM_SERVER, Index
from mqttscope.browse.rows import PACKETS
from mqttscope.events import PacketEvent
from tests.browse.made import built, capture


def followed(index: Index, row: int, step: int = 5) -> FollowedMessage:
    following = MessageSearch(index, row)
    while not following.is_over:
        following.advance(step)
    return following.message


def publishes(index: Index, *, delivered: bool) -> list[int]:
    return [
        at
        for at in range(len(index.rows))
        if index.rows[at].kind in PACKETS
        and index.rows[at].header >> 4 == 3
        and bool(index.rows[at].flags & FROM_SERVER) is delivered
    ]


def test_from_publisher_to_subscriber_and_back() -> None:
    index = built(capture("v5-qos"))
    for row in publishes(index, delivered=False):
        message = followed(index, row)
        assert message.publisher == row
        assert message.deliveries == 1
        # From its delivery the way is the same.
        delivery = next(at for at in message.rows if at in publishes(index, delivered=True))
        assert followed(index, delivery) == message
        topics = {index.event(at).topic for at in message.rows if index.rows[at].header >> 4 == 3}  # type: ignore[union-attr]
        assert len(topics) == 1
        qos = index.rows[row].header >> 1 & 3
        answers = {0: 0, 1: 1, 2: 3}[qos]
        assert sum(index.rows[at].header >> 4 != 3 for at in message.rows) >= answers


def test_a_message_that_is_published_again_is_another_one() -> None:
    index = built(capture("v311-redelivery"))
    for row in publishes(index, delivered=False):
        message = followed(index, row)
        assert row in message.rows
        assert all(isinstance(index.event(at), PacketEvent) for at in message.rows)


def test_a_retained_message_has_no_publisher() -> None:
    index = built(capture("v311-retained"))
    messages = [followed(index, row) for row in publishes(index, delivered=True)]

    assert messages
    assert all(message.deliveries >= 1 or message.publisher is not None for message in messages)
    # Only a message is followed.
    assert not MessageSearch.starts_at(index, 0)
    assert MessageSearch.starts_at(index, publishes(index, delivered=False)[0])


def test_one_key_goes_round_an_exchange() -> None:
    index = built(capture("v5-qos"))
    kinds = {}
    for at in range(len(index.rows)):
        row = index.rows[at]
        if row.kind not in PACKETS or row.header >> 4 != 3 or not row.header & 6:
            continue
        way, here = [at], partner(index, at)
        while here is not None and here != at:
            way.append(here)
            here = partner(index, here)
        assert here == at
        kinds[row.header >> 1 & 3] = [index.rows[number].header >> 4 for number in way]

    assert kinds == {1: [3, 4], 2: [3, 5, 6, 7]}
    alone = [at for at in range(len(index.rows)) if index.rows[at].header >> 4 == 3 and not index.rows[at].header & 6]
    assert alone
    assert all(partner(index, at) is None for at in alone)
    assert partner(index, 0) is None

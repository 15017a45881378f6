"""Inputs at the limits of the package session."""

from __future__ import annotations

from unittest.mock import patch

from mqttscope.mqtt import ProtocolVersion, Puback, Publish, Subscribe, Subscription, Unsuback, Unsubscribe
from mqttscope.session import ConnectionSide, subscriptions
from mqttscope.session.capture_time import CaptureTime
from mqttscope.session.history import History
from mqttscope.session.subscriptions import Subscriptions
from tests.session.requests import Talk, filters
from tests.session.test_history import told as history_of

V5 = ProtocolVersion.V5


def is_exact(time_ns: int) -> list[bool]:
    """Whether a time after the epoch, and the matching time before it, stay as they are."""
    return [CaptureTime(time, 0) == time for time in (time_ns, -time_ns - 1)]


def goes_back(by_ns: int) -> bool:
    """Whether times that go back are taken for a clock that was set."""
    history = History()
    for time_ns in (by_ns, 0):
        history.segment(True, 1, 0, 0, time_ns, 0)
    return history.clock_back


def owed_after_answers(count: int) -> dict[int, int]:
    """PUBACKs that the server owes if the capture shows the first PUBLISH after all PUBACKs."""
    history, client, server = History(), ConnectionSide(), ConnectionSide()
    for number in range(count):
        history.apply(Puback(number + 1), V5, server, client, False, number, 1, 0, None)
    history.apply(Publish(qos=1, topic_name="a", packet_identifier=1), V5, client, server, True, count, 2, 0, "a")
    return history.server.owes_puback


def ended_exchanges(count: int) -> list[int]:
    """Identifiers of the ended exchanges that are remembered."""
    story = "; ".join(f"> publish a x qos=1 id={number}; < puback {number}" for number in range(1, count + 1))
    return list(history_of(story).client.ended)


def recent(count: int) -> int:
    """Number of messages that are remembered."""
    return len(history_of("; ".join(f"> publish a {number}" for number in range(count))).client.recent)


def aliases(size: int) -> tuple[list[int], int]:
    """Aliases of two topics of ``size`` bytes in total, and the number of dropped aliases."""
    side = ConnectionSide()
    side.set_alias(1, "four")
    side.set_alias(2, "x" * (size - 4))
    return list(side.aliases), side.aliases_dropped


def subscribed(names: list[str]) -> Subscriptions:
    """The table after one SUBSCRIBE."""
    table = Subscriptions()
    table.subscribe(Subscribe(1, subscriptions=[Subscription(name, 0) for name in names]), 1, 1, 1)
    return table


def matching(count: int) -> tuple[int, bool]:
    """Number of matching subscriptions, and whether the match is complete."""
    match = subscribed([f"$share/{number}/#" for number in range(count)]).match("a")
    return len(match.subscriptions), match.known


def near(count: int) -> tuple[str, str] | None:
    """The filter among ``count`` filters that matches a topic after a change."""
    return subscribed([f"a{number}" for number in range(count)]).near("A0")


def followed(count: int) -> tuple[list[str], bool]:
    """Filters in the table, and whether a match is complete."""
    table = subscribed([f"a{number}" for number in range(count)])
    return list(table.live), table.match("other").known


def matched_topics(count: int) -> int:
    """Number of topics whose match is remembered."""
    table = subscribed(["#"])
    assert all(filters(table, f"t{number}") == ["#"] for number in range(count))
    return len(table.matches)


def counted_topics(count: int) -> list[str]:
    """Topics whose retained messages are counted."""
    table = subscribed(["#"])
    for number in range(count):
        table.retained_sent(f"t{number}", 0)
    return list(table.retained)


def is_flood(*times_ns: int) -> bool:
    """Whether the last retained message may belong to the SUBSCRIBE at time 0."""
    table = Talk("subscribe 1 #:1").table
    for time_ns in times_ns[:-1]:
        table.retained_sent("a", time_ns)
    return table.is_flood(times_ns[-1])


def before(count: int) -> list[object]:
    """Former identifiers of a filter, former requests, and whether a match is known, after ``count + 1`` requests."""
    requests = (f"subscribe 1 a:1 subscription_identifier={number + 1}" for number in range(count + 1))
    table = Talk("; ".join(requests)).table
    numbers, request = list[int](), table.requests[1].earlier
    while request is not None:
        numbers.append(request.packet + 1)
        request = request.earlier
    return [list(table.live["a"].formerly), numbers, table.match("a").known]


def oldest_ended(count: int) -> list[object]:
    """The oldest ended subscription, refused filter and request, and whether the table is complete."""
    talk = Talk()
    for number in range(1, count + 1):
        refused, ended = f'"refused {number}"', f'"ended {number}"'
        talk.tell(f"subscribe {number} {refused}:1; suback {number} 0x80; subscribe {number} {ended}:1")
        talk.tell(f"suback {number} 1; unsubscribe {number} {ended}; unsuback {number} 0")
    table = talk.table
    assert not table.live
    assert not table.patterns
    return [*(next(iter(rows)) for rows in (table.ended, table.refused, table.requests)), table.complete]


def is_complete_after(time_ns: int) -> bool:
    """Whether the table is complete if a subscription is forgotten at this time after its UNSUBACK."""
    names = ["a", "b", "c"]
    table = subscribed(names)
    with patch.object(subscriptions, "MAX_ENDED", 2):
        for number, (ended, now_ns) in enumerate(((names[:1], 0), (names[1:], time_ns)), 2):
            table.unsubscribe(Unsubscribe(number, topic_filters=ended), number, 1, now_ns)
            table.handle_unsuback(Unsuback(number, reason_codes=[0] * len(ended)), number + 2, now_ns)
    return table.complete

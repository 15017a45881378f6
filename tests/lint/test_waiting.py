"""What rules share that wait: when a side is known to have closed, and that what is owed is told once and in time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.events import ConnectionDue
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import (
    Step,
    acknowledges,
    client,
    closes,
    conversation,
    crossing,
    on,
    opened,
    segments,
    server,
)
from mqttscope.lint.finding import Finding
from mqttscope.mqtt.packets import Disconnect, Pingreq, Pingresp, Puback, Publish
from mqttscope.net.segment import Segment

LATER = on(1, *opened(client_identifier="c2", keep_alive=0), closes("client", after=90))


def publish(identifier: int, topic: str = "a") -> Step:
    return client(Publish(qos=1, topic_name=topic, packet_identifier=identifier))


def found(*steps: Step, code: str = "ACK515", without: int | None = None) -> list[Finding]:
    """What one rule finds, where one captured segment is missing (counted from the end)."""
    captured: list[Segment] = segments(conversation("waiting", *steps))
    if without is not None:
        del captured[without]
    linter = Linter([all_rules()[code]()], strict=True)
    return [one for event in dissect_segments(captured) for one in linter.feed(event)]


def test_what_is_owed_is_told_once_though_the_connection_lives_on() -> None:
    pings = [step for _ in range(10) for step in (client(Pingreq(), after=30), server(Pingresp()))]

    assert len(found(*opened(), publish(7), *pings, closes("client"))) == 1


def test_each_packet_has_its_own_time() -> None:
    told = found(
        *opened(keep_alive=0),
        publish(1),
        acknowledges("server"),
        replace(publish(2), after=20),
        acknowledges("server"),
        replace(publish(3), after=20),
        acknowledges("server"),
        *LATER,
    )

    assert [one.related[0].packet for one in told] == [2, 3, 4]
    waited = [one.timestamp_ns - one.related[0].timestamp_ns for one in told]
    assert all(30e9 <= one <= 30e9 + 30e9 / 4 + 1e8 for one in waited), waited


def test_what_is_overdue_at_the_same_time_is_one_finding() -> None:
    told = found(*opened(), publish(1), publish(2), publish(3), acknowledges("server"), *LATER)

    assert [one.related[0].packet for one in told] == [2, 3], "the first one has a time of its own"
    assert told[1].message.endswith(", and 1 more")


def test_an_answer_in_time_leaves_the_others() -> None:
    told = found(*opened(), publish(1), publish(2), server(Puback(2)), *LATER)

    assert [one.related[0].packet for one in told] == [2]


def test_nobody_is_woken_once_nothing_is_owed() -> None:
    linter = Linter([all_rules()["ACK515"]()], strict=True)
    dues = 0
    for event in dissect_segments(segments(conversation("paid", *opened(), publish(1), server(Puback(1)), *LATER))):
        dues += isinstance(event, ConnectionDue)
        linter.feed(event)

    assert dues == 1


@pytest.mark.parametrize("side", ["client", "server"])
@pytest.mark.parametrize("how", ["fin", "reset"])
def test_who_closes_owes_nothing(side: str, how: str) -> None:
    assert found(*opened(), publish(1), acknowledges("server"), closes(side, how, after=20), *LATER) == []


def test_a_fin_that_the_capture_lacks_is_seen_in_its_acknowledgment() -> None:
    steps = (*opened(), publish(1), acknowledges("server"), closes("server", after=20), *LATER)
    captured = segments(conversation("waiting", *steps))
    fins = [index for index, one in enumerate(captured) if one.flags & 1]

    assert found(*steps, without=fins[0]) == []


def test_a_packet_that_never_arrived_is_not_held_against_anybody() -> None:
    assert found(*opened(), publish(1), crossing(server(Pingresp())), *LATER) == []


def test_several_rules_are_woken_each_in_its_time() -> None:
    """Whoever dissects remembers one time for each flow; the later ones must not be lost with it."""

    steps = (*opened(), client(Disconnect()), acknowledges("server"), *LATER)
    linter = Linter([all_rules()[code]() for code in ("DIS503", "DIS504")], strict=True)
    told = [one for event in dissect_segments(segments(conversation("left", *steps))) for one in linter.feed(event)]

    assert [one.rule for one in told] == ["DIS503", "DIS504"]
    assert told[1].timestamp_ns - told[0].timestamp_ns == 25_000_000_000

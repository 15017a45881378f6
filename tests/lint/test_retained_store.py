"""Retained messages that a server must have: which count, which match, who waits, and what is forgotten."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mqttscope.dissect import Options, dissect_segments
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import Step, client, closes, conversation, on, opened, segments, server
from mqttscope.lint.finding import Confidence, Finding, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Pingreq, Puback, Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.net.frame import CaptureDrops

STORE = "mqttscope.lint.retained_store"


def sets(topic: str = "a", payload: bytes = b"21", qos: int = 1) -> tuple[Step, Step]:
    return client(Publish(False, qos, True, topic, 1, None, payload)), server(Puback(1))


def asks(*names: str, number: int = 1) -> tuple[Step, Step]:
    rows = [Subscription(name, 0) for name in names]
    return client(Subscribe(number, subscriptions=rows)), server(Suback(number, reason_codes=[0] * len(rows)))


def gets(topic: str = "a", payload: bytes = b"21") -> Step:
    return server(Publish(topic_name=topic, retain=True, payload=payload))


LATE = client(Pingreq(), after=31)


def found(*steps: Step, drops: bool = False, captures: Any = None) -> list[Finding]:
    linter = Linter([all_rules()["RET406"]()], strict=True)
    if drops:
        linter.feed(CaptureDrops("example", 0, 10, 3))
    captured = segments(conversation("x", *steps))
    if captures is not None:
        captured = [replace(one, capture=captures(one)) for one in captured]
    return [one for event in dissect_segments(captured) for one in linter.feed(event)]


def reader(*steps: Step, version: ProtocolVersion = V5) -> tuple[Step, ...]:
    return on(1, *opened(version, client_identifier="c2"), *steps)


@pytest.mark.parametrize(
    ("version", "severity", "confidence"),
    [
        (V5, Severity.ERROR, Confidence.LIKELY),
        (V3_1_1, Severity.ERROR, Confidence.LIKELY),
        (V3_1, Severity.INFO, Confidence.LIKELY),
    ],
)
def test_an_error_where_the_client_got_it_before(
    version: ProtocolVersion, severity: Severity, confidence: Confidence
) -> None:
    (one,) = found(*opened(version), *sets(), *reader(*asks("a"), gets(), *asks("a", number=2), LATE, version=version))

    assert (one.severity, one.confidence, one.topic) == (severity, confidence, "a")
    assert (one.packet, one.direction) == (None, "server_to_client")


def test_a_warning_where_it_may_not_be_allowed_to_read_it() -> None:
    (one,) = found(*opened(), *sets(), *reader(*asks("a"), LATE))

    assert (one.severity, one.confidence) == (Severity.WARNING, Confidence.HEURISTIC)


def test_dropped_frames_leave_a_guess() -> None:
    steps = [*opened(), *sets(), *reader(*asks("a"), gets(), *asks("a", number=2), LATE)]

    assert [one.confidence for one in found(*steps, drops=True)] == [Confidence.HEURISTIC]


def test_another_capture_may_be_of_another_server() -> None:
    steps = [*opened(), *sets(), *reader(*asks("a"), gets(), *asks("a", number=2), LATE)]

    assert len(found(*steps)) == 1
    assert found(*steps, captures=lambda segment: "x" if segment.frame < 7 else "y") == []


def test_every_filter_of_a_subscribe_counts_once_for_each_topic() -> None:
    asked = reader(*asks("a", "b", "+"), gets(), gets("b"), *asks("a", "b", "+", number=2), LATE)

    assert [one.topic for one in found(*opened(), *sets(), *sets("b"), *asked)] == ["a", "b"]


def test_a_filter_that_matches_too_much_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = reader(*asks("+"), gets(), gets("b"), *asks("+", number=2), LATE)
    assert len(found(*opened(), *sets(), *sets("b"), *asked)) == 2
    monkeypatch.setattr(f"{STORE}.MAX_EXPECTED", 1)

    assert found(*opened(), *sets(), *sets("b"), *asked) == []


@pytest.mark.parametrize("limit", ["MAX_TOPICS", "MAX_SCANNED"])
def test_what_is_forgotten_at_a_limit_is_not_missed(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(f"{STORE}.{limit}", 1)
    asked = reader(*asks("+"), gets(), gets("b"), *asks("+", number=2), LATE)

    assert [one.topic for one in found(*opened(), *sets(), *sets("b"), *asked)] == ["b"]


def test_only_so_many_connections_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{STORE}.MAX_WAITING", 0)

    assert found(*opened(), *sets(), *reader(*asks("a"), LATE)) == []


def test_only_so_many_readers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{STORE}.MAX_READERS", 1)
    first = on(1, *opened(client_identifier="c2"), *asks("a"), gets())
    second = on(2, *opened(client_identifier="c3"), *asks("a"), gets())
    again = on(3, *opened(client_identifier="c2"), *asks("a"), LATE)

    assert [one.severity for one in found(*opened(), *sets(), *first, *second, *again)] == [Severity.WARNING]


def test_a_later_message_with_retain_takes_its_place() -> None:
    asked = reader(*asks("a"), gets(), *asks("a", number=2))

    assert found(*opened(), *sets(), *asked, *sets(payload=b"22"), *on(1, LATE)) == []


def test_the_same_message_without_retain_is_another_mistake() -> None:
    sent = server(Publish(topic_name="a", payload=b"21"))

    assert found(*opened(), *sets(), *reader(*asks("a"), gets(), *asks("a", number=2), sent, LATE)) == []


def test_a_message_of_another_connection_is_another_one_whatever_its_number() -> None:
    """Packets are counted by connection in a lake: here both messages have the number 2."""
    steps = *opened(), *sets(), *reader(*asks("a"), gets(), *asks("a", number=2))
    again = on(2, *opened(client_identifier="c3"), *sets())
    for meanwhile, expected in (((), 1), (again, 0)):
        linter = Linter([all_rules()["RET406"]()], strict=True)
        captured = segments(conversation("x", *steps, *meanwhile, *on(1, LATE)))
        events = dissect_segments(captured, Options(count_by_connection=True))
        assert len([one for event in events for one in linter.feed(event)]) == expected


def told(code: str, *steps: Step) -> list[str]:
    linter = Linter([all_rules()[code]()], strict=True)
    return [
        one.message for event in dissect_segments(segments(conversation("x", *steps))) for one in linter.feed(event)
    ]


AGAIN = client(Publish(topic_name="a", payload=b"21"))
LIVE = server(Publish(topic_name="a", payload=b"21"))


def test_a_connection_that_sends_more_than_is_remembered_hides_what_it_sent() -> None:
    many = client(*(Publish(topic_name="b") for _ in range(70)), after=10)
    asked = reader(*asks("a"), LIVE)
    assert len(told("RET411", *opened(), *sets(), client(after=10), *asked)) == 1
    assert told("RET411", *opened(), *sets(), many, *asked) == []
    talker = on(2, *opened(client_identifier="c3"), many, closes("client"))
    assert told("RET411", *opened(), *sets(), *talker, *asked) == []


def test_topics_of_connections_that_have_ended_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is forgotten of them may have been the same message."""
    gone = on(2, *opened(client_identifier="c3"), AGAIN, client(Publish(topic_name="b")), closes("client"))
    steps = *opened(), *sets(), client(after=10), *reader(*asks("a")), *gone, *reader(LIVE)
    monkeypatch.setattr(f"{STORE}.MAX_TOPICS", 1)
    assert told("RET411", *steps) == []


def test_only_so_many_live_messages_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Subscription("+", 0, retain_as_published=True)
    listens = reader(client(Subscribe(1, subscriptions=[row])), server(Suback(1, reason_codes=[0])))
    says = client(*(Publish(topic_name=name, retain=True, payload=b"21") for name in "ab"))
    gets_both = on(1, server(*(Publish(topic_name=name, payload=b"21") for name in "ab")))
    assert len(told("RET409", *listens, *opened(), says, *gets_both)) == 2
    monkeypatch.setattr(f"{STORE}.MAX_LIVE", 1)
    assert len(told("RET409", *listens, *opened(), says, *gets_both)) == 1


def test_a_message_that_comes_again_has_replaced_what_its_first_copy_had() -> None:
    again = client(Publish(True, 1, True, "a", 1, None, b"21")), server(Puback(1))
    asked = reader(client(after=10), *asks("a"), gets(payload=b"20"))
    assert len(told("RET405", *opened(), *sets(payload=b"20"), sets()[0], *again, *asked)) == 1

"""What is followed of a server: witnesses, wills, time, lost bytes; and the retained messages that it must have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from mqttscope.dissect import Options, dissect_segments
from mqttscope.lint.broker_watch import BrokerRule, Watch, expires_or_retained
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.context import RuleContext
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import Step, client, closes, conversation, lost, on, opened, segments, server
from mqttscope.lint.finding import Confidence, Finding, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Suback,
    Subscribe,
)
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import Properties
from mqttscope.net.frame import CaptureDrops

SECOND_NS = 1_000_000_000


@dataclass(slots=True)
class Facts(Watch):
    """Counts what is forgotten."""

    forgotten: int = 0
    topics: str = ""

    def forget(self) -> None:
        self.forgotten += 1

    def forget_topic(self, topic: str) -> None:
        self.topics += topic


class Watching(BrokerRule):
    """Tells at each PINGREQ what it knows."""

    code = "TST450"
    severity = Severity.ERROR
    looks_at: ClassVar[Any] = (Connect, Connack, Publish, Pingreq)
    Memory = Facts

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        facts: Facts = self.watch(packet, at)  # type: ignore[assignment]
        if not isinstance(packet, Pingreq):
            return None
        since = at.timestamp_ns - 10 * SECOND_NS
        wills = ",".join(facts.wills)
        return self.report("", f"{facts.forgotten} {facts.topics!r} {wills!r} {facts.witnessed(since)}")


def told(*steps: Any, handshake: bool = True) -> list[str]:
    linter = Linter([Watching()], strict=True)
    talk = conversation("x", *steps, handshake=handshake)
    found: list[Finding] = [one for event in dissect_segments(segments(talk)) for one in linter.feed(event)]
    return [one.message for one in found]


PING = (client(Pingreq()), server(Pingresp()))
LATER = (client(Pingreq(), after=11), server(Pingresp()))
WILL = Will("w", b"x", 0, will_retain=True)


def test_a_connection_that_is_open_is_a_witness() -> None:
    assert told(*opened(), *PING, *LATER) == ["0 '' '' False", "0 '' '' True"]
    assert told(*opened(), closes("client"), *on(1, *opened(), *PING, *LATER))[-1] == "0 '' '' True"
    assert told(*opened(), closes("client", after=11), *on(1, *opened(), *PING)) == ["0 '' '' False"]


def test_one_from_before_the_capture_is_a_witness_too() -> None:
    assert told(*PING, *PING, *LATER, handshake=False)[-1].endswith("True")


def test_the_topic_of_a_retained_will_is_left_alone_while_it_is_armed() -> None:
    both = on(1, *opened(client_identifier="c2"), *PING)
    assert told(*opened(will=WILL), *both) == ["0 'w' 'w' False"]
    assert told(*opened(will=Will("w", b"x")), *both) == ["0 '' '' False"]
    assert told(*opened(will=WILL), client(Disconnect()), closes("client"), *both) == ["0 'ww' '' False"]
    assert told(*opened(will=WILL), closes("client", "reset"), *both) == ["0 'ww' '' False"]


def test_a_delayed_will_stays_armed() -> None:
    will = Will("w", b"x", 0, will_retain=True, properties=Properties(will_delay_interval=60))
    both = on(1, *opened(client_identifier="c2"), *PING)
    assert told(*opened(will=will), closes("client", "reset"), *both) == ["0 'ww' 'w' False"]


def test_lost_bytes_of_a_client_may_be_anything() -> None:
    (found,) = told(*opened(), lost(client(Publish(topic_name="a"))), client(Pingreq()))
    assert found.startswith("1 ")
    assert told(*opened(), lost(server(Publish(topic_name="a"))), client(Pingreq(), after=3)) == ["0 '' '' False"]


def test_what_is_not_acknowledged_when_the_connection_ends_is_not_certain() -> None:
    sends = client(Publish(qos=1, topic_name="q", packet_identifier=1))
    assert told(*opened(), sends, closes("client"), *on(1, *opened(client_identifier="c2"), *PING)) == [
        "0 'q' '' False"
    ]


def test_time_that_runs_backwards_makes_everything_uncertain() -> None:
    facts = Facts()
    facts.witnesses["x", 1, 0] = 1
    facts.pass_time(10 * SECOND_NS)
    facts.pass_time(10 * SECOND_NS - 1)
    assert facts.forgotten == 0
    facts.pass_time(8 * SECOND_NS)
    assert (facts.forgotten, facts.witnesses) == (1, {})


def test_too_many_wills_make_a_server_unjudged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttscope.lint.broker_watch.MAX_WILLS", 2)
    facts = Facts()
    for topic in "aab":
        facts.arm(topic)
    assert not facts.hides("c")
    facts.arm("c")
    assert facts.hides("d")


def test_only_so_many_connections_are_witnesses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttscope.lint.broker_watch.MAX_WITNESSES", 1)
    steps = [*opened(), *on(1, *opened(client_identifier="c2")), closes("client"), *on(1, *PING, *LATER)]

    assert told(*steps)[-1].endswith("False")


@pytest.mark.parametrize(
    ("packet", "wanted"),
    [
        (Publish(topic_name="a"), False),
        (Publish(topic_name="a", retain=True), True),
        (Publish(topic_name="a", properties=Properties(message_expiry_interval=1)), True),
        (Publish(topic_name="a", properties=Properties(content_type="x")), False),
    ],
)
def test_messages_that_matter_to_expiry(packet: Publish, wanted: bool) -> None:
    assert expires_or_retained(packet) is wanted


def test_a_hole_in_what_a_client_sent_is_seen_before_it_is_given_up() -> None:
    """The server has answered a PINGREQ that the capture does not have; what the client sends next waits after it."""
    captured = segments(conversation("x", *opened(), *PING, client(Publish(topic_name="a")), *on(1, *opened(), *PING)))
    lost_one = next(index for index, one in enumerate(captured) if one.payload == b"\xc0\x00")
    seen = []

    class Looking(Watching):
        code = "TST451"

        def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
            facts = self.watch(packet, at)
            seen.append(facts.waits_behind_a_hole(at))
            return None

    for path in (captured, captured[:lost_one] + captured[lost_one + 1 :]):
        linter = Linter([Looking()], strict=True)
        for event in dissect_segments(path):
            linter.feed(event)

    assert not any(seen[:7])
    assert any(seen[7:])


def test_a_message_is_certain_when_its_answer_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    sends = client(Publish(qos=1, retain=True, topic_name="q", packet_identifier=1))
    accepted: list[str] = []

    class Waiting(Watching):
        code = "TST452"
        looks_at = (Publish, Puback, Pubrec, Pubcomp)

        def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
            facts: Any = self.watch(packet, at)
            if isinstance(packet, Publish):
                facts.wait_for_answer(at, packet, at.topic)
            return None

    monkeypatch.setattr(Facts, "accept", lambda self, topic, now_ns: accepted.append(topic))
    for answers, wanted in (
        ([Puback(1)], ["q"]),
        ([Puback(1, reason_code=0x87)], []),
        ([Puback(2)], []),
        ([Pubrec(1)], []),
        ([Pubrec(1), Pubcomp(1)], ["q"]),
        ([Pubrec(1, reason_code=0x97), Pubcomp(1)], []),
    ):
        accepted.clear()
        linter = Linter([Waiting()], strict=True)
        for event in dissect_segments(segments(conversation("x", *opened(), sends, server(*answers)))):
            linter.feed(event)
        assert accepted == wanted, answers


def test_only_so_many_answers_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttscope.lint.broker_watch.MAX_UNANSWERED", 1)
    facts = Facts()
    at: Any = type("At", (), {"key": ("x", 1)})
    for number, topic in enumerate("ab", 1):
        facts.wait_for_answer(at, Publish(qos=1, topic_name=topic, packet_identifier=number), topic)

    assert list(facts.unanswered.values()) == ["b"]


STORE = "mqttscope.lint.rules.retained.retained_not_sent"


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
    monkeypatch.setattr("mqttscope.lint.rules.retained.retained_not_sent.MAX_EXPECTED", 1)

    assert found(*opened(), *sets(), *sets("b"), *asked) == []


@pytest.mark.parametrize("limit", ["MAX_TOPICS", "MAX_SCANNED"])
def test_what_is_forgotten_at_a_limit_is_not_missed(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(f"{STORE}.{limit}", 1)
    asked = reader(*asks("+"), gets(), gets("b"), *asks("+", number=2), LATE)

    assert [one.topic for one in found(*opened(), *sets(), *sets("b"), *asked)] == ["b"]


def test_only_so_many_connections_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttscope.lint.rules.retained.retained_not_sent.MAX_WAITING", 0)

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

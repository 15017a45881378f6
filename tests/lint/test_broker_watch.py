"""What is followed of a server: witnesses, wills, time, bytes that were lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.lint.broker_watch import BrokerRule, Watch, expires_or_retained
from mqttscope.lint.context import RuleContext
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import client, closes, conversation, lost, on, opened, segments, server
from mqttscope.lint.finding import Finding, Severity
from mqttscope.lint.rule import Findings
from mqttscope.mqtt import packets
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.parts import Will
from mqttscope.mqtt.properties import Properties

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
    looks_at: ClassVar[Any] = (packets.Connect, packets.Connack, packets.Publish, packets.Pingreq)
    Memory = Facts

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        facts: Facts = self.watch(packet, at)  # type: ignore[assignment]
        if not isinstance(packet, packets.Pingreq):
            return None
        since = at.timestamp_ns - 10 * SECOND_NS
        wills = ",".join(facts.wills)
        return self.report("", f"{facts.forgotten} {facts.topics!r} {wills!r} {facts.witnessed(since)}")


def told(*steps: Any, handshake: bool = True) -> list[str]:
    linter = Linter([Watching()], strict=True)
    talk = conversation("x", *steps, handshake=handshake)
    found: list[Finding] = [one for event in dissect_segments(segments(talk)) for one in linter.feed(event)]
    return [one.message for one in found]


PING = (client(packets.Pingreq()), server(packets.Pingresp()))
LATER = (client(packets.Pingreq(), after=11), server(packets.Pingresp()))
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
    assert told(*opened(will=WILL), client(packets.Disconnect()), closes("client"), *both) == ["0 'ww' '' False"]
    assert told(*opened(will=WILL), closes("client", "reset"), *both) == ["0 'ww' '' False"]


def test_a_delayed_will_stays_armed() -> None:
    will = Will("w", b"x", 0, will_retain=True, properties=Properties(will_delay_interval=60))
    both = on(1, *opened(client_identifier="c2"), *PING)
    assert told(*opened(will=will), closes("client", "reset"), *both) == ["0 'ww' 'w' False"]


def test_lost_bytes_of_a_client_may_be_anything() -> None:
    (found,) = told(*opened(), lost(client(packets.Publish(topic_name="a"))), client(packets.Pingreq()))
    assert found.startswith("1 ")
    assert told(*opened(), lost(server(packets.Publish(topic_name="a"))), client(packets.Pingreq(), after=3)) == [
        "0 '' '' False"
    ]


def test_what_is_not_acknowledged_when_the_connection_ends_is_not_certain() -> None:
    sends = client(packets.Publish(qos=1, topic_name="q", packet_identifier=1))
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
        (packets.Publish(topic_name="a"), False),
        (packets.Publish(topic_name="a", retain=True), True),
        (packets.Publish(topic_name="a", properties=Properties(message_expiry_interval=1)), True),
        (packets.Publish(topic_name="a", properties=Properties(content_type="x")), False),
    ],
)
def test_messages_that_matter_to_expiry(packet: packets.Publish, wanted: bool) -> None:
    assert expires_or_retained(packet) is wanted


def test_a_hole_in_what_a_client_sent_is_seen_before_it_is_given_up() -> None:
    """The server has answered a PINGREQ that the capture does not have; what the client sends next waits after it."""
    captured = segments(
        conversation("x", *opened(), *PING, client(packets.Publish(topic_name="a")), *on(1, *opened(), *PING))
    )
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
    sends = client(packets.Publish(qos=1, retain=True, topic_name="q", packet_identifier=1))
    accepted: list[str] = []

    class Waiting(Watching):
        code = "TST452"
        looks_at = (packets.Publish, packets.Puback, packets.Pubrec, packets.Pubcomp)

        def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
            facts: Any = self.watch(packet, at)
            if isinstance(packet, packets.Publish):
                facts.wait_for_answer(at, packet, at.topic)
            return None

    monkeypatch.setattr(Facts, "accept", lambda self, topic, now_ns: accepted.append(topic))
    for answers, wanted in (
        ([packets.Puback(1)], ["q"]),
        ([packets.Puback(1, reason_code=0x87)], []),
        ([packets.Puback(2)], []),
        ([packets.Pubrec(1)], []),
        ([packets.Pubrec(1), packets.Pubcomp(1)], ["q"]),
        ([packets.Pubrec(1, reason_code=0x97), packets.Pubcomp(1)], []),
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
        facts.wait_for_answer(at, packets.Publish(qos=1, topic_name=topic, packet_identifier=number), topic)

    assert list(facts.unanswered.values()) == ["b"]

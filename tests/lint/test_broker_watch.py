"""What is followed of a server: witnesses, wills, time, bytes that were lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from mqttscope.lint.broker_watch import BrokerRule, BrokerWatch, expires_or_retained
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import conversation, segments
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import Findings
from mqttscope.mqtt import packets
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.properties import Properties
from tests.each import each
from tests.lint.lint_help import lint, steps_of

SECOND_NS = 1_000_000_000


@dataclass(slots=True)
class Facts(BrokerWatch):
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


def told(*lines: str, handshake: bool = True) -> list[str]:
    talk = conversation("x", *steps_of(*lines), handshake=handshake)
    return [finding.message for finding in lint([Watching()], segments(talk))]


PING = "> pingreq; < pingresp"
LATER = f"+11 {PING}"
PING_1 = "@1 > pingreq; @1 < pingresp"
BOTH = f"@1 opened client=c2; {PING_1}"
WILL = "opened will=w will_payload=x will_retain"


@each(
    "text, last",
    [
        (f"opened; {PING}", "0 '' '' False"),
        (f"opened; {PING}; {LATER}", "0 '' '' True"),
        (f"opened; > fin; @1 opened; {PING_1}; +11 {PING_1}", "0 '' '' True"),
        (f"opened; +11 > fin; @1 opened; {PING_1}", "0 '' '' False"),
        # The topic of a retained will is left alone while it is armed; one with a delay stays armed.
        (f"{WILL}; {BOTH}", "0 'w' 'w' False"),
        (f"opened will=w will_payload=x; {BOTH}", "0 '' '' False"),
        (f"{WILL}; > disconnect; > fin; {BOTH}", "0 'ww' '' False"),
        (f"{WILL}; > reset; {BOTH}", "0 'ww' '' False"),
        (f"{WILL} will.will_delay_interval=60; > reset; {BOTH}", "0 'ww' 'w' False"),
        # Lost bytes of a client may be anything, those of a server nothing that counts.
        ("opened; lost > publish a; > pingreq", "1 '' '' False"),
        ("opened; lost < publish a; +3 > pingreq", "0 '' '' False"),
        # What is not acknowledged when the connection ends is not certain.
        (f"opened; > publish q qos=1 id=1; > fin; {BOTH}", "0 'q' '' False"),
    ],
)
def test_what_is_known(text: str, last: str) -> None:
    assert told(text)[-1] == last


def test_one_from_before_the_capture_is_a_witness_too() -> None:
    assert told(PING, PING, LATER, handshake=False)[-1].endswith("True")


def test_time_that_runs_backwards_makes_everything_uncertain() -> None:
    facts = Facts()
    facts.witnesses["x", 1, 0] = 1
    facts.pass_time(10 * SECOND_NS)
    facts.pass_time(10 * SECOND_NS - 1)
    assert facts.forgotten == 0
    facts.pass_time(8 * SECOND_NS)
    assert (facts.forgotten, facts.witnesses) == (1, {})


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
    captured = segments(conversation("x", *steps_of(f"opened; {PING}; > publish a; @1 opened; {PING_1}")))
    lost_one = next(index for index, segment in enumerate(captured) if segment.payload == b"\xc0\x00")
    seen = []

    class Looking(Watching):
        code = "TST451"

        def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
            facts = self.watch(packet, at)
            seen.append(facts.waits_behind_a_hole(at))
            return None

    for path in (captured, captured[:lost_one] + captured[lost_one + 1 :]):
        lint([Looking()], path)

    assert not any(seen[:7])
    assert any(seen[7:])


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        ("puback 1", ["q"]),
        ("puback 1 code=0x87", []),
        ("puback 2", []),
        ("pubrec 1", []),
        ("pubrec 1 & pubcomp 1", ["q"]),
        ("pubrec 1 code=0x97 & pubcomp 1", []),
    ],
)
def test_a_message_is_certain_when_its_answer_has_come(
    answers: str, wanted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
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
    lint([Waiting()], segments(conversation("x", *steps_of(f"opened; > publish q retain qos=1 id=1; < {answers}"))))

    assert accepted == wanted

"""What rules share that wait: when a side is known to have closed, and that what is owed is told once and in time."""

from __future__ import annotations

from mqttscope.dissect import dissect_segments
from mqttscope.events import ConnectionDue
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import (
    conversation,
    segments,
)
from mqttscope.lint.finding import Finding
from mqttscope.net.segment import Segment
from tests.each import each
from tests.lint.lint_help import lint, steps_of

SENDS = "opened; > publish a qos=1 id=1"
LATER = "@1 opened client=c2 keep_alive=0; +90 @1 > fin"


def found(*lines: str, codes: tuple[str, ...] = ("ACK515",), without_fin: bool = False) -> list[Finding]:
    """What rules find, where the first segment with a FIN may be missing."""
    captured: list[Segment] = segments(conversation("waiting", *steps_of(*lines)))
    if without_fin:
        del captured[next(at for at, segment in enumerate(captured) if segment.flags & 1)]
    return lint([all_rules()[code]() for code in codes], captured)


def test_what_is_owed_is_told_once_though_the_connection_lives_on() -> None:
    assert len(found(SENDS, "for 1..10: +30 > pingreq; < pingresp", "> fin")) == 1


def test_each_packet_has_its_own_time() -> None:
    second, third = (f"+20 > publish a qos=1 id={number}; < ack" for number in (2, 3))
    findings = found(f"{SENDS.replace('opened', 'opened keep_alive=0')}; < ack; {second}; {third}; {LATER}")

    assert [finding.related[0].packet for finding in findings] == [2, 3, 4]
    waited = [finding.timestamp_ns - finding.related[0].timestamp_ns for finding in findings]
    assert all(30e9 <= number <= 30e9 + 30e9 / 4 + 1e8 for number in waited), waited


def test_what_is_overdue_at_the_same_time_is_one_finding() -> None:
    findings = found(f"{SENDS}; > publish a qos=1 id=2; > publish a qos=1 id=3; < ack; {LATER}")

    assert [finding.related[0].packet for finding in findings] == [2, 3], "the first one has a time of its own"
    assert findings[1].message.endswith(", and 1 more")


def test_an_answer_in_time_leaves_the_others() -> None:
    findings = found(f"{SENDS}; > publish a qos=1 id=2; < puback 2; {LATER}")

    assert [finding.related[0].packet for finding in findings] == [2]


def test_nobody_is_woken_once_nothing_is_owed() -> None:
    linter = Linter([all_rules()["ACK515"]()], strict=True)
    dues = 0
    for event in dissect_segments(segments(conversation("paid", *steps_of(f"{SENDS}; < puback 1; {LATER}")))):
        dues += isinstance(event, ConnectionDue)
        linter.feed(event)

    assert dues == 1


@each("end", ["> fin", "> reset", "< fin", "< reset"])
def test_who_closes_owes_nothing(end: str) -> None:
    assert found(f"{SENDS}; < ack; +20 {end}; {LATER}") == []


def test_a_fin_that_the_capture_lacks_is_seen_in_its_acknowledgment() -> None:
    assert found(f"{SENDS}; < ack; +20 < fin; {LATER}", without_fin=True) == []


def test_a_packet_that_never_arrived_is_not_held_against_anybody() -> None:
    assert found(f"{SENDS}; crossing < pingresp; {LATER}") == []


def test_several_rules_are_woken_each_in_its_time() -> None:
    """Whoever dissects remembers one time for each flow; the later ones must not be lost with it."""
    findings = found(f"opened; > disconnect; < ack; {LATER}", codes=("DIS503", "DIS504"))

    assert [finding.rule for finding in findings] == ["DIS503", "DIS504"]
    assert findings[1].timestamp_ns - findings[0].timestamp_ns == 25_000_000_000

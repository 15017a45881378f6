"""Retained messages that a server must have: which count, which match, who waits, and what is forgotten."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mqttscope.dissect import Options, dissect_segments
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import conversation, segments
from mqttscope.lint.finding import Confidence, Finding, Severity
from mqttscope.net.frame import CaptureDrops
from tests.each import each
from tests.lint.lint_help import lint, steps_of

STORE = "mqttscope.lint.retained_store"


SETS = "> publish a 21 qos=1 retain id=1; < puback 1"
SETS_B = SETS.replace(" a ", " b ")
READS = "@1 opened client=c2"
ASKS, GETS = "@1 > subscribe 1 a:0; @1 < suback 1 0", "@1 < publish a 21 retain"
ASKS_ALL = "@1 > subscribe 1 +:0; @1 < suback 1 0"
GETS_BOTH = f"{GETS}; {GETS.replace(' a ', ' b ')}"
LATE = "+31 @1 > pingreq"
IN_VAIN = f"opened; {SETS}; {READS}; {ASKS}; {GETS}; {ASKS}"
"""A message that the client got, and asked for again."""


def found(*lines: str, captures: Any = None, code: str = "RET406") -> list[Finding]:
    captured = segments(conversation("x", *steps_of(*lines)))
    if captures is not None:
        captured = [replace(segment, capture=captures(segment)) for segment in captured]
    return lint([all_rules()[code]()], captured)


@pytest.mark.parametrize(
    ("version", "severity"), [("5.0", Severity.ERROR), ("3.1.1", Severity.ERROR), ("3.1", Severity.INFO)]
)
def test_an_error_where_the_client_got_it_before(version: str, severity: Severity) -> None:
    (finding,) = found(IN_VAIN.replace("opened", f"opened {version}"), LATE)

    assert (finding.severity, finding.confidence, finding.topic) == (severity, Confidence.LIKELY, "a")
    assert (finding.packet, finding.direction) == (None, "server_to_client")


def test_a_warning_where_it_may_not_be_allowed_to_read_it() -> None:
    (finding,) = found(f"opened; {SETS}; {READS}; {ASKS}; {LATE}")

    assert (finding.severity, finding.confidence) == (Severity.WARNING, Confidence.HEURISTIC)


def test_dropped_frames_leave_a_guess() -> None:
    linter = Linter([all_rules()["RET406"]()], strict=True)
    linter.feed(CaptureDrops("example", 0, 10, 3))
    events = dissect_segments(segments(conversation("x", *steps_of(IN_VAIN, LATE))))

    assert [finding.confidence for event in events for finding in linter.feed(event)] == [Confidence.HEURISTIC]


def test_another_capture_may_be_of_another_server() -> None:
    assert len(found(IN_VAIN, LATE)) == 1
    assert found(IN_VAIN, LATE, captures=lambda segment: "x" if segment.frame < 7 else "y") == []


def test_every_filter_of_a_subscribe_counts_once_for_each_topic() -> None:
    asks = "@1 > subscribe 1 a:0 b:0 +:0; @1 < suback 1 0 0 0"

    findings = found(f"opened; {SETS}; {SETS_B}; {READS}; {asks}; {GETS_BOTH}; {asks}; {LATE}")
    assert [finding.topic for finding in findings] == ["a", "b"]


@each("meanwhile", [SETS.replace("21", "22"), "@1 < publish a 21"], ids=["another message", "it without RETAIN"])
def test_a_later_message_takes_its_place_and_one_without_retain_is_another_mistake(meanwhile: str) -> None:
    assert found(IN_VAIN, meanwhile, LATE) == []


def test_a_message_of_another_connection_is_another_one_whatever_its_number() -> None:
    """Packets are counted by connection in a lake: here both messages have the number 2."""
    again = f"@2 opened client=c3; @2 {SETS.replace('<', '@2 <')}"
    for meanwhile, expected in (("", 1), (again, 0)):
        linter = Linter([all_rules()["RET406"]()], strict=True)
        captured = segments(conversation("x", *steps_of(IN_VAIN, meanwhile, LATE)))
        events = dissect_segments(captured, Options(count_by_connection=True))
        assert len([finding for event in events for finding in linter.feed(event)]) == expected


LIVE = "@1 < publish a 21"


def test_a_connection_that_sends_more_than_is_remembered_hides_what_it_sent() -> None:
    asked = f"{READS}; {ASKS}; {LIVE}"
    many = "+10 {} > for 1..70: publish b"
    # A repeated packet stands on a line of its own.
    assert len(found(f"opened; {SETS}; +10 > nothing; {asked}", code="RET411")) == 1
    assert found(f"opened; {SETS}", many.format(""), asked, code="RET411") == []
    talker = ("@2 opened client=c3", many.format("@2"), "@2 > fin")
    assert found(f"opened; {SETS}", *talker, asked, code="RET411") == []


def test_topics_of_connections_that_have_ended_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is forgotten of them may have been the same message."""
    gone = "@2 opened client=c3; @2 > publish a 21; @2 > publish b; @2 > fin"
    monkeypatch.setattr(f"{STORE}.MAX_TOPICS", 1)
    asked = f"+10 > nothing; {READS}; {ASKS}; {gone}; {READS}; {LIVE}"
    assert found(f"opened; {SETS}; {asked}", code="RET411") == []


def test_a_message_that_comes_again_has_replaced_what_its_first_copy_had() -> None:
    again = (
        f"> publish a 21 qos=1 retain id=1; {SETS.replace('publish a', 'publish a 21 dup', 1).replace('dup 21', 'dup')}"
    )
    asked = f"{READS}; +10 @1 > nothing; {ASKS}; {GETS.replace('21', '20')}"
    assert len(found(f"opened; {SETS.replace('21', '20')}; {again}; {asked}", code="RET405")) == 1

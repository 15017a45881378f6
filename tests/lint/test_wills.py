"""The wills of a server: phases, what is seen of their topics, and bounds."""

from __future__ import annotations

from typing import Any

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import conversation, segments
from mqttscope.lint.wills import Wills, summaries
from mqttscope.mqtt.properties import Properties
from tests.each import each
from tests.lint.lint_help import steps_of

SECOND_NS = 1_000_000_000
WILL = "opened will=w will_payload=gone"
DELAYED = f"{WILL} will.will_delay_interval=30"
KEPT = f"{DELAYED} session_expiry_interval=3600"
IS_BACK = "@1 opened resume < present"
OTHER = "@1 opened client=c2"


def known(*lines: str) -> Wills:
    linter = Linter([all_rules()["WIL405"]()], strict=True)
    for event in dissect_segments(segments(conversation("x", *steps_of(*lines))), more=True):
        linter.feed(event)
    result: Any = next(row["wills"] for row in linter.remembered().values() if "wills" in row)
    assert isinstance(result, Wills)
    return result


@each(
    "text, phase, delay",
    [
        (f"{WILL}; > reset", "due", 0),
        (f"{WILL}; < fin", "due", 0),
        (f"{KEPT}; > reset", "due", 30),
        (f"{DELAYED}; > reset", "due", 0),
        (f"{DELAYED} session_expiry_interval=7; > reset", "due", 7),
        (f"{WILL}; > disconnect code=4; > fin", "due", 0),
        (f"{KEPT}; > reset; {IS_BACK}", "taken back", 30),
        (f"{KEPT}; {IS_BACK}; > reset", "taken back", 30),
        (f"{KEPT}; > reset; @1 opened", "open", 30),
        (f"{WILL}; > disconnect; > fin", "dropped", None),
        (f"{WILL.replace('opened', 'opened 3.1.1')}; > disconnect; > fin", "dropped", None),
        # Nobody knows what becomes of these.
        (f"{WILL}; > disconnect; > reset", "open", None),
        (f"{WILL}; lost > disconnect; > pingreq; < pingresp; +5 > pingreq; > reset", "open", None),
        (f"{WILL}; < disconnect code=0x8b; < fin", "open", None),
        (f"{WILL}; > raw 30 02 00 09; < fin", "open", None),
    ],
)
def test_what_becomes_of_a_will_at_the_end(text: str, phase: str, delay: int | None) -> None:
    """``delay``: seconds from the end of the connection until the will is due."""
    (will,) = known(text).ended.values()

    assert will.phase == phase
    assert delay is None or round((will.due_ns - will.ended_ns) / SECOND_NS) == delay


def test_a_connection_that_is_open_has_its_will() -> None:
    wills = known(WILL, f"{OTHER} will=$x")
    assert [will.topic for will in wills.armed.values()] == ["w"]
    assert list(wills.topics) == ["w"]


@each(
    "text, is_said",
    [
        ("> publish w here", False),
        ("> publish w gone", True),
        # Lost bytes may hold it.
        (f"{OTHER}; lost @1 > publish w; @1 > pingreq; @1 < pingresp; +5 > pingreq", True),
    ],
)
def test_who_says_the_same_is_noted(text: str, is_said: bool) -> None:
    assert [will.twin for will in known(WILL, text).armed.values()] == [is_said]


def test_who_gets_messages_of_its_topic_is_noted() -> None:
    wills = known(WILL, "> publish w here", OTHER, "@1 < publish w here")
    assert [will.proven for will in wills.armed.values()] == [True]
    assert wills.readers == {"w": ("c2",)}


def test_the_will_of_a_connection_from_before_the_capture_is_not_known() -> None:
    assert known(WILL, OTHER, "> fin").unknown_ns == 0
    first = known(WILL, "@1 > pingreq; @1 < pingresp; @1 > fin")
    assert first.unknown_ns > first.now_ns


def test_what_is_forgotten_of_a_will_is_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttscope.lint.wills.MAX_ENDED", 1)
    wills = known(WILL, f"> reset; {OTHER} will=v; @1 > reset")
    assert [will.topic for will in wills.ended.values()] == list(wills.topics) == ["v"]
    assert list(wills.by_client) == ["c2"]


def test_properties_are_compared_by_what_they_say_and_in_their_order() -> None:
    pairs, two = [("k", "1")], [("k", "2")]
    first = summaries(Properties(user_property=[*pairs, *two], content_type="x"))
    assert first.keys() == {"user_property", "content_type"}
    assert first["user_property"] != summaries(Properties(user_property=[*two, *pairs]))["user_property"]
    assert summaries(None) == summaries(Properties(topic_alias=3)) == {}

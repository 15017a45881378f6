"""The wills of a server: phases, what is seen of their topics, and bounds."""

from __future__ import annotations

from typing import Any

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import Step, client, closes, conversation, lost, on, opened, segments, server
from mqttscope.lint.rule import V3_1_1
from mqttscope.lint.wills import Wills, summaries
from mqttscope.mqtt.packets import Disconnect, Pingreq, Pingresp, Publish
from mqttscope.mqtt.parts import Will
from mqttscope.mqtt.properties import Properties

SECOND_NS = 1_000_000_000
WILL = Will("w", b"gone")
LATER = Will("w", b"gone", properties=Properties(will_delay_interval=30))
HOUR = Properties(session_expiry_interval=3_600)
GONE = closes("client", "reset")


def known(*steps: Step) -> Wills:
    linter = Linter([all_rules()["WIL405"]()], strict=True)
    for event in dissect_segments(segments(conversation("x", *steps)), more=True):
        linter.feed(event)
    found: Any = next(row["wills"] for row in linter.remembered().values() if "wills" in row)
    assert isinstance(found, Wills)
    return found


def phases(*steps: Step) -> list[tuple[str, int]]:
    """Of wills that have ended: phase, and seconds from the end until it is due."""
    return [(one.phase, round((one.due_ns - one.ended_ns) / SECOND_NS)) for one in known(*steps).ended.values()]


@pytest.mark.parametrize(
    ("steps", "phase", "delay"),
    [
        ((*opened(will=WILL), GONE), "due", 0),
        ((*opened(will=WILL), closes("server")), "due", 0),
        ((*opened(will=LATER, connect=HOUR), GONE), "due", 30),
        ((*opened(will=LATER), GONE), "due", 0),
        ((*opened(will=LATER, connect=Properties(session_expiry_interval=7)), GONE), "due", 7),
        ((*opened(will=WILL), client(Disconnect(reason_code=4)), closes("client")), "due", 0),
        (
            (*opened(will=LATER, connect=HOUR), GONE, *on(1, *opened(clean_start=False, session_present=True))),
            "taken back",
            30,
        ),
        (
            (*opened(will=LATER, connect=HOUR), *on(1, *opened(clean_start=False, session_present=True)), GONE),
            "taken back",
            30,
        ),
        ((*opened(will=LATER, connect=HOUR), GONE, *on(1, *opened())), "open", 30),
    ],
)
def test_an_end_makes_a_will_due_unless_the_client_is_back(steps: tuple[Step, ...], phase: str, delay: int) -> None:
    assert phases(*steps) == [(phase, delay)]


def test_a_disconnect_drops_it() -> None:
    for version in ({}, {"version": V3_1_1}):
        (found,) = known(*opened(will=WILL, **version), client(Disconnect()), closes("client")).ended.values()  # type: ignore[arg-type]
        assert found.phase == "dropped"


@pytest.mark.parametrize(
    "steps",
    [
        (client(Disconnect()), GONE),
        (lost(client(Disconnect())), client(Pingreq()), server(Pingresp()), client(Pingreq(), after=5), GONE),
        (server(Disconnect(reason_code=0x8B)), closes("server")),
        (client(b"\x30\x02\x00\x09"), closes("server")),
    ],
    ids=["reset after DISCONNECT", "lost bytes", "shut down", "malformed"],
)
def test_nobody_knows_what_becomes_of_some(steps: tuple[Step, ...]) -> None:
    assert [phase for phase, _ in phases(*opened(will=WILL), *steps)] == ["open"]


def test_a_connection_that_is_open_has_its_will() -> None:
    found = known(*opened(will=WILL), *on(1, *opened(client_identifier="c2", will=Will("$x", b""))))
    assert [one.topic for one in found.armed.values()] == ["w"]
    assert list(found.topics) == ["w"]


def test_who_says_the_same_is_noted_and_who_gets_it() -> None:
    says = client(Publish(topic_name="w", payload=b"gone"))
    other = client(Publish(topic_name="w", payload=b"here"))
    assert [one.twin for one in known(*opened(will=WILL), other).armed.values()] == [False]
    assert [one.twin for one in known(*opened(will=WILL), says).armed.values()] == [True]
    gets = on(1, *opened(client_identifier="c2"), server(Publish(topic_name="w", payload=b"here")))
    found = known(*opened(will=WILL), other, *gets)
    assert [one.proven for one in found.armed.values()] == [True]
    assert found.readers == {"w": ("c2",)}


def test_lost_bytes_may_hold_the_same() -> None:
    gap = on(1, *opened(client_identifier="c2"), lost(client(Publish(topic_name="w"))), client(Pingreq()))
    late = (*on(1, server(Pingresp())), client(Pingreq(), after=5))
    assert [one.twin for one in known(*opened(will=WILL), *gap, *late).armed.values()] == [True]


def test_the_will_of_a_connection_from_before_the_capture_is_not_known() -> None:
    end = on(1, client(Pingreq()), server(Pingresp()), closes("client"))
    assert known(*opened(will=WILL), *on(1, *opened(client_identifier="c2")), closes("client")).unknown_ns == 0
    first = known(*opened(will=WILL), *end)
    assert first.unknown_ns > first.now_ns


def test_all_tables_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttscope.lint.wills.MAX_ENDED", 1)
    second = on(1, *opened(client_identifier="c2", will=Will("v", b"")), GONE)
    found = known(*opened(will=WILL), GONE, *second)
    assert ([one.topic for one in found.ended.values()], list(found.topics), list(found.by_client)) == (
        ["v"],
        ["v"],
        ["c2"],
    )
    monkeypatch.setattr("mqttscope.lint.wills.MAX_ARMED", 0)
    assert known(*opened(will=WILL)).crowded


def test_properties_are_compared_by_what_they_say_and_in_their_order() -> None:
    one, two = [("k", "1")], [("k", "2")]
    first = summaries(Properties(user_property=[*one, *two], content_type="x"))
    assert first.keys() == {"user_property", "content_type"}
    assert first["user_property"] != summaries(Properties(user_property=[*two, *one]))["user_property"]
    assert summaries(None) == summaries(Properties(topic_alias=3)) == {}

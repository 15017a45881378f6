"""What a replay did, for people and for programs."""

from __future__ import annotations

from typing import Any

from mqttscope.replay.player.actions import Kind, Note
from mqttscope.report.base import View
from mqttscope.report.page import Page
from mqttscope.report.replay.outcome import Outcome
from mqttscope.report.replay.summary import summary_document, write_summary
from tests.replay.recordings import connect, recordings


def outcome(**fields: Any) -> Outcome:
    scripts = recordings((0, ">", connect("a")), (1, ">", connect("b")))
    made = Outcome("mqtt://h:1883", "asap", scripts, [scripts[0], None], sent=3, received=2, seconds=0.5, **fields)
    made.add_notes([(Note(Kind.SKIPPED, "PUBLISH, since \x1b[31mit ended"), 2), (Note(Kind.ADDED, "PINGREQ"), 1)])
    made.add_notes([(Note(Kind.SKIPPED, "PUBLISH, since \x1b[31mit ended"), 1)])
    made.failures["cannot connect"] += 2
    made.left_out["no CONNECT"] += 1
    return made


def text(one: Outcome) -> str:
    page = Page(View(width=100, unicode=False))
    write_summary(page, one)
    return page.encoded().decode()


def test_in_words() -> None:
    said = text(outcome(changes=["topics renamed"], missed=4, stopped=True))

    for line in (
        "replayed to mqtt://h:1883; pace asap; 1 of 2 connections",
        "3 packets sent, 2 received",
        "stopped before its end",
        "2 times cannot connect",
        "1 connection not played: no CONNECT",
        "waited in vain 4 times for what the recording has",
        "topics renamed",
        "PINGREQ",
    ):
        assert line in said
    assert "\x1b" not in said
    assert said.index("Sent beside the recording") < said.index("Not sent")


def test_for_programs() -> None:
    document = summary_document(outcome())

    assert (document["event"], document["connections"], document["connected"]) == ("replay", 2, 1)
    assert document["failures"] == [{"reason": "cannot connect", "connections": 2}]
    assert {"kind": "skipped", "note": "PUBLISH, since \x1b[31mit ended", "times": 3} in document["notes"]


def test_pairs_belong_together() -> None:
    one = outcome()

    assert [(recorded.name, live and live.name) for recorded, live in one.pairs] == [("a", "a"), ("b", None)]
    assert one.performed == 1
    assert one.noted(Kind.ADDED) == [("PINGREQ", 1)]

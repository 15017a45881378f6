"""Scripts from captures: what answers what, what is sent again, how connections ended."""

from __future__ import annotations

from pathlib import Path

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.replay.script import Script, read_scripts
from tests.conftest import ROOT


def scripts(name: str) -> list[Script]:
    path: Path = ROOT / "captures" / name / "capture.pcapng"
    return read_scripts(dissect(open_capture([str(path)])))


def test_each_answer_names_what_it_answers() -> None:
    _, sensor = scripts("v5-qos")
    found = [
        (one.type, one.answers.type if one.answers else None) for one in sensor.entries if one.type not in ("publish",)
    ]

    assert found == [
        ("connect", None),
        ("connack", "connect"),
        ("puback", "publish"),
        ("pubrec", "publish"),
        ("pubrel", "publish"),
        ("pubcomp", "publish"),
        ("disconnect", None),
    ]
    places = {one.place for script in scripts("v5-qos") for one in script.entries}
    assert places == set(range(len(places)))


def test_endings_say_who_ended_it() -> None:
    slow, office, again = scripts("v311-redelivery")

    assert (slow.ending.how, slow.ending.by) == ("fin", "client")
    assert (office.ending.how, again.opened_place, slow.ended_place) == ("fin", 16, 16)
    assert [one.name for one in (slow, office, again)] == ["slow", "office", "slow"]


def test_bytes_that_were_lost_are_counted() -> None:
    assert all(not one.lost for one in scripts("v5-qos"))
    assert sum(one.lost for one in scripts("lost-in-payload")) > 0

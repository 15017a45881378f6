"""Topics where there is little room."""

from __future__ import annotations

import pytest

from mqttscope.report.base import View
from mqttscope.report.escape import cells
from mqttscope.report.style import Painter
from mqttscope.report.summary import TopicNames
from tests.each import each


def names(*topics: str, unicode: bool = True) -> TopicNames:
    topic_names = TopicNames(Painter(View(width=80, unicode=unicode)))
    for topic in topics:
        topic_names.learn(topic)
    return topic_names


LINES = tuple(f"plant/line{number}/temperature" for number in range(5))


@pytest.mark.parametrize(
    ("room", "expected"),
    [(22, "…/line3/temperature"), (19, "…/line3/temperature"), (14, "…/line3/temp…e"), (12, "…/line3/tem…")],
)
def test_what_differs_stays_and_what_all_have_goes_first(room: int, expected: str) -> None:
    known = names(*LINES)

    assert known.short(LINES[3], room) == expected
    assert len({known.short(topic, room) for topic in LINES}) == len(LINES)


def test_the_last_level_stays_where_it_differs() -> None:
    known = names("plant/line1/temperature", "plant/line1/pressure", "plant/line1/level")

    assert known.short("plant/line1/temperature", 20) == "…/line1/temperature"
    assert known.short("plant/line1/temperature", 15) == "…/temperature"


def test_levels_that_differ_are_shortened_before_the_last_one() -> None:
    known = names("building-north/kitchen/lamp", "building-south/kitchen/lamp", "building-south/hall/light")

    assert known.short("building-north/kitchen/lamp", 22) == "bui…h/kitchen/lamp"
    assert known.short("building-north/kitchen/lamp", 16) == "bui…h/kit…n/lamp"


@each("room", range(1, 60))
def test_never_wider_than_the_room(room: int) -> None:
    topics = (*LINES, "a" * 300, "/", "", "日本/温度/" + "x" * 40, "\x1b[31m/red", "é/" * 100, "/".join("abcdefg" * 9))
    for unicode in (True, False):
        known = names(*topics, unicode=unicode)
        for topic in topics:
            shown = known.short(topic, room)
            assert cells(shown) <= room
            assert "\x1b" not in shown


def test_a_topic_of_many_levels_costs_no_more_than_its_room() -> None:
    deep = "/".join("x" * 30_000)

    assert cells(names(deep, deep + "y").short(deep, 40)) <= 40

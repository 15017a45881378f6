"""The tree of topics: each level has what is below it, nothing is left out in silence, and no name gets out."""

from __future__ import annotations

import re

from mqttscope.report.html import topics
from mqttscope.report.html.topics import MAX_LEVELS, TopicAmount, topic_tree
from tests.report.fleet.samples import HOSTILE
from tests.report.html.reader import read

SECOND = 10**9


def lines(text: str) -> list[list[str]]:
    """Name, messages, rate and bytes of each line."""
    result = re.findall(r'<span class="name">(.*?)</span>((?:<span class="number">.*?</span>)*)', text)
    return [[name, *re.findall(r">(.*?)<", more)[::2]] for name, more in result]


def test_levels_have_the_sum_of_what_is_below() -> None:
    text = topic_tree(
        [TopicAmount("a/b/c", 30, 300), TopicAmount("a/b/d", 10, 90), TopicAmount("x", 5, 10), TopicAmount("a", 1, 1)],
        10 * SECOND,
    )

    assert lines(text) == [
        ["a", "41", "4.1", "391 B"],
        ["b/", "40", "4.0", "390 B"],
        ["c", "30", "3.0", "300 B"],
        ["d", "10", "1.0", "90 B"],
        ["x", "5", "0.5", "10 B"],
    ]
    assert text.count("<details open>") == 2
    read(text.encode())


def test_levels_without_others_beside_them_are_one_line() -> None:
    text = topic_tree([TopicAmount("plant/7/hall/temperature", 3, 30)], SECOND)

    assert [line[0] for line in lines(text)] == ["plant/7/hall/temperature"]
    assert "<details" not in text


def test_large_trees_are_closed_and_long_ones_counted() -> None:
    many = [TopicAmount(f"a/{at % 50}/{at}", 2, 2) for at in range(topics.MAX_TOPICS + 7)]
    text = topic_tree(many, 0)

    assert "And 7 topics more" in text
    assert text.count("<details open>") < 5
    assert text.count("<details>") >= 46
    assert len(lines(text)) < topics.MAX_TOPICS + 100


def test_hostile_and_deep_names() -> None:
    text = topic_tree(
        [
            TopicAmount(HOSTILE, 1, 1),
            TopicAmount("/".join("x" * 500), 1, 1),
            TopicAmount("", 1, 1),
            TopicAmount("//", 1, 1),
        ],
        SECOND,
    )
    reader = read(text.encode())

    assert reader.tags <= {"div", "span", "details", "summary", "svg", "rect"}
    assert text.count("<details") < MAX_LEVELS
    assert "\u202e" not in text
    token = "pump?api_key=dozjgNryP4J3jVmNHl0w5N"
    assert "dozjgNryP4J3" not in topic_tree([TopicAmount(token, 1, 1)], SECOND)


def test_no_topics_are_no_tree() -> None:
    assert topic_tree([], SECOND) == ""

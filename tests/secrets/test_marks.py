"""Marks around names, each of which is looked for once, and texts without escapes."""

from __future__ import annotations

import pytest

from mqttscope.secrets.marks import Marks, unescaped


def test_marks_before_and_after_a_place() -> None:
    marks = Marks("a{b}\n{c value=1}")

    assert [marks.last_before("{", place) for place in (1, 3, 8)] == [-1, 1, 5]
    assert [marks.first_from("}", place) for place in (0, 3, 4, 15)] == [3, 3, 15, 15]
    key = marks.first_key(0)
    assert key is not None
    assert key[0] == "value="
    assert marks.first_key(key.end()) is None


def test_a_place_in_a_tag_has_no_bare_end_of_it_before() -> None:
    marks = Marks('<a b=">" c> d')

    assert marks.is_open(0, 8)
    assert not marks.is_open(0, 12)


def test_the_pieces_of_an_object_are_given_once() -> None:
    marks = Marks('{a{b}c}"{"')

    assert marks.take_pieces(1) == [(1, 2), (5, 6)]
    assert marks.take_pieces(5) == []
    marks.is_sure = True
    assert marks.take_pieces(5) == [(1, 2), (5, 6)]
    assert marks.take_pieces(8) == []


def test_what_was_looked_at_is_known() -> None:
    marks = Marks("abcdef")
    marks.looked_at(1, 3)
    marks.looked_at(2, 5)

    assert [marks.looked_until(place) for place in (0, 1, 4, 5)] == [0, 5, 5, 5]
    assert [marks.is_new("line", place) for place in (1, 1, 2)] == [True, False, True]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("%70a", "pa"), ("\\u0070a", "pa"), ("\\x70a", "pa"), ("\\u{70}a", "pa"), ("&#112;a", "pa"), ("&#x70;a", "pa"),
        ("&quot;a", '"a'), ("p/* b */a", "pa"), ("p, // b\na", "p, \na"),
    ],
)  # fmt: skip
def test_escapes_and_comments_are_resolved_and_places_stay(text: str, plain: str) -> None:
    result = unescaped(text)

    assert result is not None
    assert result[0] == plain
    assert text[result[1](len(plain) - 1)] == "a"
    assert result[1](len(plain)) == len(text)


@pytest.mark.parametrize("text", ["", "50 % of", "mqtt://broker", "a/b"])
def test_others_have_none(text: str) -> None:
    assert unescaped(text) is None

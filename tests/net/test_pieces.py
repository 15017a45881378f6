from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.net.pieces import Pieces, difference


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (b"", b"", (-1, 0)),
        (b"same", b"same", (-1, 0)),
        (b"same", b"sa", (-1, 0)),
        (b"", b"other", (-1, 0)),
        (b"xbc", b"abc", (0, 1)),
        (b"abx", b"abc", (2, 1)),
        (b"axcx", b"abcd", (1, 2)),
        (b"\0\0\0", b"\0\x01\0", (1, 1)),
        (b"axc-longer", b"abc", (1, 1)),
    ],
)
def test_difference_counts_and_places_what_differs(one: bytes, other: bytes, expected: tuple[int, int]) -> None:
    assert difference(one, other) == expected


def pieces(*entries: tuple[int, bytes]) -> Pieces:
    held = Pieces()
    for start, data in entries:
        held.insert(start, data, 0)
    return held


@pytest.mark.parametrize(
    ("known", "start", "data", "expected", "repeated"),
    [
        pytest.param([], 5, b"abc", [(5, b"abc")], 0, id="into nothing"),
        pytest.param([(5, b"abc")], 8, b"def", [(5, b"abc"), (8, b"def")], 0, id="right behind another"),
        pytest.param([(5, b"abc")], 2, b"def", [(2, b"def"), (5, b"abc")], 0, id="right before another"),
        pytest.param([(5, b"abc")], 5, b"abc", [(5, b"abc")], 3, id="the same again"),
        pytest.param([(5, b"abc")], 6, b"b", [(5, b"abc")], 1, id="inside another"),
        pytest.param([(5, b"abc")], 3, b"xyab", [(3, b"xy"), (5, b"abc")], 2, id="overlapping the front of another"),
        pytest.param([(5, b"abc")], 7, b"cxy", [(5, b"abc"), (8, b"xy")], 1, id="overlapping the end of another"),
        pytest.param([(5, b"abc")], 4, b"-abc-", [(4, b"-"), (5, b"abc"), (8, b"-")], 3, id="around another"),
        pytest.param(
            [(2, b"b"), (4, b"d"), (6, b"f")],
            1,
            b"abcdefg",
            [(1, b"a"), (2, b"b"), (3, b"c"), (4, b"d"), (5, b"e"), (6, b"f"), (7, b"g")],
            3,
            id="over several with holes between",
        ),
    ],
)
def test_inserting_a_piece_fills_holes_and_leaves_what_is_there(
    known: list[tuple[int, bytes]], start: int, data: bytes, expected: list[tuple[int, bytes]], repeated: int
) -> None:
    held = pieces(*known)

    result = held.insert(start, data, 0)

    assert list(zip(held.starts, held.parts, strict=True)) == expected
    assert result.repeated == repeated
    assert result.new == (repeated < len(data))
    assert held.size == sum(len(part) for part in held.parts)


def test_bytes_that_come_again_with_other_content_are_counted_and_do_not_replace_the_first() -> None:
    held = pieces((10, b"abc"), (20, b"def"))

    result = held.insert(9, b"-aXc-------dYY-", 0)

    assert (result.first_difference, result.differences) == (11, 2 + 1)
    assert held.take(9)[0] == b"-abc-------def-"
    assert len(held) == 0
    assert held.size == 0


def test_a_cut_belongs_to_its_piece_and_ends_what_can_be_taken_at_once() -> None:
    held = Pieces()
    held.insert(0, b"ab", 3)
    held.insert(5, b"fg", 0)

    assert held.insert(1, b"bcdef", 0).new is False
    assert held.end() == 7
    assert held.take(0) == (b"ab", 3)
    assert held.take(5) == (b"fg", 0)
    assert held.cut == {}


def test_a_cut_segment_is_split_around_what_is_known() -> None:
    held = pieces((3, b"def"))

    held.insert(0, b"ab", 10)

    assert held.take(0) == (b"ab", 1)
    assert held.take(3) == (b"def", 6)


def test_shifting_moves_starts_and_cuts_alike() -> None:
    held = Pieces()
    held.insert(-5, b"ab", 3)
    held.shift(-5)

    assert held.take(0) == (b"ab", 3)


def test_taking_where_nothing_starts_gives_nothing() -> None:
    assert pieces((5, b"abc")).take(4) == (b"", 0)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.binary(min_size=1, max_size=20)), max_size=25))
def test_pieces_behave_like_a_table_of_bytes_in_which_the_first_stands(entries: list[tuple[int, bytes]]) -> None:
    held = Pieces()
    model: dict[int, int] = {}
    for start, data in entries:
        repeated = [(start + i, byte) for i, byte in enumerate(data) if start + i in model]
        different = [place for place, byte in repeated if model[place] != byte]
        result = held.insert(start, data, 0)
        for i, byte in enumerate(data):
            model.setdefault(start + i, byte)

        assert result.repeated == len(repeated)
        assert result.differences == len(different)
        assert result.first_difference == (different[0] if different else -1)
        assert result.new == (len(repeated) < len(data))

    flat = [(s + i, byte) for s, part in zip(held.starts, held.parts, strict=True) for i, byte in enumerate(part)]
    assert flat == sorted(model.items())
    assert held.size == len(model)

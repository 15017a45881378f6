from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttscope.net.segment import MODULUS, advance, distance


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 0, 0),
        (10, 30, 20),
        (30, 10, -20),
        (MODULUS - 10, 10, 20),
        (10, MODULUS - 10, -20),
        (MODULUS - 1, 0, 1),
        (0, MODULUS - 1, -1),
        (0, 2**31 - 1, 2**31 - 1),
        (0, 2**31, -(2**31)),
        (2**31, 0, -(2**31)),
        (2**31 - 1, MODULUS - 1, -(2**31)),
        (MODULUS - 1, 2**31 - 2, 2**31 - 1),
    ],
)
def test_distance_is_signed_and_wraps(start: int, end: int, expected: int) -> None:
    assert distance(start, end) == expected


@pytest.mark.parametrize(
    ("sequence", "count", "expected"),
    [
        (0, 0, 0),
        (MODULUS - 10, 20, 10),
        (10, -20, MODULUS - 10),
        (5, MODULUS, 5),
        (MODULUS - 1, 1, 0),
        (0, 5 * MODULUS + 3, 3),
    ],
)
def test_advance_wraps(sequence: int, count: int, expected: int) -> None:
    assert advance(sequence, count) == expected


@given(st.integers(0, MODULUS - 1), st.integers(-(2**31), 2**31 - 1))
def test_distance_undoes_advance(sequence: int, count: int) -> None:
    assert distance(sequence, advance(sequence, count)) == count

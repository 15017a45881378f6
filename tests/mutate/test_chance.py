"""The same choices everywhere."""

from __future__ import annotations

from collections import Counter

import pytest

from mqttscope.mutate import Chance


def test_the_same_key_gives_the_same_choices_on_every_version_of_python() -> None:
    assert Chance("capture", 0, 1, 2).octets(16).hex() == "b8fdc15b5812d2424422cf10a663a880"
    assert [Chance("a").below(1000), Chance("b").below(1000)] == [899, 400]
    assert Chance("order").shuffled(range(8)) == [5, 7, 0, 6, 4, 3, 1, 2]


def test_parts_of_a_key_do_not_run_into_each_other() -> None:
    assert Chance("ab", "c").octets(8) != Chance("a", "bc").octets(8)
    assert Chance("1").octets(8) == Chance(1).octets(8)


def test_bytes_do_not_depend_on_how_they_are_asked_for() -> None:
    one, two = Chance("key"), Chance("key")

    assert b"".join(one.octets(size) for size in (1, 40, 7, 0, 52)) == two.octets(100)


def test_numbers_are_spread_evenly() -> None:
    chance = Chance("even")
    counts = Counter(chance.below(3) for _ in range(3000))

    assert set(counts) == {0, 1, 2}
    assert min(counts.values()) > 900


def test_one_number_is_no_choice() -> None:
    assert Chance("one").below(1) == 0
    with pytest.raises(ValueError, match="no number"):
        Chance("none").below(0)


def test_shuffling_loses_nothing() -> None:
    values = list(range(100))

    assert sorted(Chance("cards").shuffled(values)) == values
    assert Chance("cards").pick(["a"]) == "a"

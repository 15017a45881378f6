"""A test of many cases: all of them run, and a failure names its case."""

from __future__ import annotations

import inspect

import pytest

from tests.each import each, sampled, some


def test_every_case_runs_and_those_that_fail_are_named() -> None:
    seen = []

    @each("number", [1, 2, 3, 4])
    def odd(number: int) -> None:
        seen.append(number)
        if number == 3:
            pytest.skip("not this one")
        assert number % 2, "even"

    with pytest.raises(AssertionError, match="even") as caught:
        odd()
    assert seen == [1, 2, 3, 4]
    assert caught.value.__notes__ == ["in the case 2", "1 more fail: 4"]


def test_a_test_of_which_every_case_is_skipped_is_skipped() -> None:
    @each("number", [1, 2])
    def at_most(number: int, most: int) -> None:
        if number > most:
            pytest.skip(f"{number} is more than {most}")

    at_most(most=1)
    with pytest.raises(pytest.skip.Exception, match="1 is more than 0"):
        at_most(most=0)


def test_several_arguments_and_fixtures() -> None:
    seen = []

    @each("expected, other", [(1, "a"), (2, "b")], ids=["first", "second"])
    @each("third", [True, False], ids=str)
    def take(expected: int, other: str, third: bool, tmp_path: object) -> None:
        seen.append((expected, other, third, tmp_path))

    assert list(inspect.signature(take).parameters) == ["tmp_path"]
    take(tmp_path=None)
    assert seen == [(1, "a", True, None), (1, "a", False, None), (2, "b", True, None), (2, "b", False, None)]


def test_no_case_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="no case of number"):
        each("number", [])


def test_cases_may_have_names_of_their_own() -> None:
    @each("expected, other", [pytest.param(1, 2, id="named"), (2, 2)])
    def differ(expected: int, other: int) -> None:
        assert expected == 0

    with pytest.raises(AssertionError) as caught:
        differ()
    assert caught.value.__notes__ == ["in the case named", "1 more fail: 2-2"]
    with pytest.raises(AssertionError, match="a test of its own"):
        each("one", [pytest.param(1, marks=pytest.mark.exhaustive)])


def test_a_sample_and_the_others_are_tests_of_their_own() -> None:
    seen = []

    @sampled("expected, other", [(at, -at) for at in range(5)], ids=str, every=2)
    def take(expected: int, other: int, tmp_path: object) -> None:
        seen.append(expected)
        assert expected != 3

    (mark,) = take.pytestmark  # type: ignore[attr-defined]
    some, others = mark.args[1]
    assert (some.id, [mark.name for mark in some.marks]) == ("some", [])
    assert (others.id, [mark.name for mark in others.marks]) == ("others", ["long"])
    assert list(inspect.signature(take).parameters) == ["part", "tmp_path"]
    take(some.values[0], tmp_path=None)
    assert seen == [0, 2, 4]
    with pytest.raises(AssertionError) as caught:
        take(others.values[0], tmp_path=None)
    assert caught.value.__notes__ == ["in the case 3--3"]

    with pytest.raises(ValueError, match="no case of one"):
        sampled("one", [])


def test_cases_with_a_mark_are_sampled_by_themselves() -> None:
    seen = []

    @sampled("number", [*range(3), *(pytest.param(at, marks=pytest.mark.broker) for at in range(3, 6))], every=2)
    def take(number: int) -> None:
        seen.append(number)

    (mark,) = take.pytestmark  # type: ignore[attr-defined]
    parts = {part.id: part for part in mark.args[1]}
    assert {name: [own.name for own in part.marks] for name, part in parts.items()} == {
        "some": [], "others": ["long"], "broker-some": ["broker"], "broker-others": ["broker", "long"],
    }  # fmt: skip
    take(parts["broker-some"].values[0])
    assert seen == [3, 5]


def test_of_parameters_some_are_of_the_usual_tests() -> None:
    result = some("abcde", 2)

    assert [each for each in result if isinstance(each, str)] == ["a", "c", "e"]
    others = [each for each in result if not isinstance(each, str)]
    assert [each.values for each in others] == [("b",), ("d",)]
    assert {mark.name for each in others for mark in each.marks} == {"long"}

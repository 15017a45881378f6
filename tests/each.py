"""Many small cases in one test: where a case costs less than what pytest spends on a test of its own.

Every case runs, also after one that fails, and a failure names its case and the others that fail; a test of which every
case is skipped is skipped.  `sampled` leaves most of them to the long tests, and `some` does so with parameters.  A
test that takes something which has to be new for each case (a folder, a patch) has parameters instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import pytest

Test = Callable[..., None]
Names = Iterable[str] | Callable[[Any], object] | None
"""How cases are named."""
PARAMETERS = type(pytest.param(None))


def each(names: str, cases: Iterable[Any], ids: Names = None) -> Callable[[Test], Test]:
    """Run a test for each case, with the arguments of ``pytest.mark.parametrize``."""
    words = [word.strip() for word in names.split(",")]
    listed = list(cases)
    rows = [_row(case, len(words)) for case in listed]
    labels = _labels(listed, len(words), ids)
    assert not any(case.marks for case in listed if isinstance(case, PARAMETERS)), "such a case is a test of its own"
    if not rows:
        raise ValueError(f"no case of {names}")

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)

        @wraps(test)
        def run(*own: Any, **fixtures: Any) -> None:
            failed: list[tuple[str, Exception]] = []
            skipped: list[BaseException] = []
            for name, row in zip(labels, rows, strict=True):
                try:
                    test(*own, **fixtures, **dict(zip(words, row, strict=True)))
                except pytest.skip.Exception as error:
                    skipped.append(error)
                except Exception as error:
                    failed.append((name, error))
            if failed:
                (first, wrong), *others = failed
                wrong.add_note(f"in the case {first}")
                if others:
                    wrong.add_note(f"{len(others)} more fail: {', '.join(name for name, _ in others)}")
                raise wrong
            if len(skipped) == len(rows):
                raise skipped[0]

        left = [parameter for name, parameter in signature.parameters.items() if name not in words]
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run

    return decorate


def sampled(names: str, cases: Iterable[Any], ids: Names = None, every: int = 8) -> Callable[[Test], Test]:
    """As `each`, in two tests: one with every eighth case, and one with the others that only ``make test-long`` runs.

    Cases with a mark, such as those of the corpora, are two tests of their own.
    """
    words = [word.strip() for word in names.split(",")]
    rows = list(cases)
    if not rows:
        raise ValueError(f"no case of {names}")
    labels = _labels(rows, len(words), ids)
    groups: dict[str, tuple[list[Any], list[int]]] = {}
    for at, case in enumerate(rows):
        marks = list(case.marks) if isinstance(case, PARAMETERS) else []
        prefix = "".join(f"{mark.name}-" for mark in marks)
        groups.setdefault(prefix, (marks, []))[1].append(at)

    def decorate(test: Test) -> Test:
        parts = []
        for prefix, (marks, places) in groups.items():
            halves: dict[str, tuple[list[int], list[Any]]] = {
                "some": (places[::every], marks),
                "others": ([at for number, at in enumerate(places) if number % every], [*marks, pytest.mark.long]),
            }
            for name, (chosen, its_marks) in halves.items():
                if chosen:
                    plain = [pytest.param(*_row(rows[at], len(words)), id=labels[at]) for at in chosen]
                    parts.append(pytest.param(each(names, plain)(test), id=prefix + name, marks=its_marks))

        @wraps(test)
        def run(part: Test, *own: Any, **fixtures: Any) -> None:
            part(*own, **fixtures)

        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in words]
        first = inspect.Parameter("part", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        run.__signature__ = signature.replace(parameters=[first, *left])  # type: ignore[attr-defined]
        sampled_test: Test = pytest.mark.parametrize("part", parts)(run)
        return sampled_test

    return decorate


def some(cases: Iterable[Any], every: int = 8, *, several: bool = False) -> list[Any]:
    """Parameters: ``make test`` runs every eighth, or those of another step, and ``make test-long`` the others.

    ``several``: a case is a tuple with the values of several parameters.
    """
    return [case if at % every == 0 else _later(case, several) for at, case in enumerate(cases)]


def _later(case: Any, several: bool) -> Any:
    values = case.values if isinstance(case, PARAMETERS) else case if several else (case,)
    marks = [*case.marks, pytest.mark.long] if isinstance(case, PARAMETERS) else pytest.mark.long
    return pytest.param(*values, marks=marks, id=case.id if isinstance(case, PARAMETERS) else None)


def _row(case: Any, size: int) -> tuple[Any, ...]:
    if isinstance(case, PARAMETERS):
        return tuple(case.values)
    return tuple(case) if size > 1 else (case,)


def _labels(cases: Sequence[Any], size: int, ids: Names) -> list[str]:
    """Names of cases."""
    if ids is not None and not callable(ids):
        return list(ids)
    names = []
    for case in cases:
        if isinstance(case, PARAMETERS) and case.id:
            names.append(str(case.id))
        else:
            names.append("-".join(str(ids(value)) if ids else repr(value) for value in _row(case, size)))
    return names

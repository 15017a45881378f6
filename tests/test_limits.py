"""Every limit at its figure and one beyond it, from the table in tests/limits."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.limits.table import Limit, evaluated, excused, found, limits, set_to

ROWS = limits()
each_row = pytest.mark.parametrize("limit", ROWS, ids=[limit.path for limit in ROWS])
named = cache(found)


def tried(limit: Limit) -> int | float:
    """The figure that a row is tried with."""
    figure: int | float = eval(limit.tried or limit.figure)
    return figure


def gives(limit: Limit, cell: str, figure: int | float, folder: Path) -> object:
    """What one cell of a row gives where the limit has a figure."""
    folder.mkdir()
    with set_to(limit, figure):
        return evaluated(limit, cell, tried(limit), folder)


@pytest.mark.parametrize("package", sorted({path.partition(".")[0] for path in named()}))
def test_every_limit_has_a_row_or_a_reason(package: str) -> None:
    listed = [path for path in (*(limit.path for limit in ROWS), *excused()) if path.partition(".")[0] == package]
    assert sorted(listed) == sorted(path for path in named() if path.partition(".")[0] == package)


@each_row
def test_figure(limit: Limit) -> None:
    assert named()[limit.path] == eval(limit.figure)


@each_row
def test_at_the_limit_and_beyond(limit: Limit, tmp_path: Path) -> None:
    figure = tried(limit)
    at = gives(limit, limit.at, figure, tmp_path / "at")
    assert at == gives(limit, limit.gives_at, figure, tmp_path / "gives at")
    beyond = gives(limit, limit.beyond, figure, tmp_path / "beyond")
    assert beyond == gives(limit, limit.gives_beyond, figure, tmp_path / "gives beyond")
    assert at != beyond, "the same at the limit and beyond it"


@pytest.mark.long
@each_row
def test_a_limit_that_is_moved_by_one_is_found(limit: Limit, tmp_path: Path) -> None:
    """One lower, the input at the limit gives something else; one higher, the input beyond it."""
    if limit.fixed:
        pytest.skip("used as its module is read")
    figure = tried(limit)
    for step, cell, result in ((-1, limit.at, limit.gives_at), (1, limit.beyond, limit.gives_beyond)):
        wanted = gives(limit, result, figure, tmp_path / f"{step} gives")
        try:
            moved = gives(limit, cell, figure + step, tmp_path / f"{step}")
        except Exception:
            continue
        assert moved != wanted

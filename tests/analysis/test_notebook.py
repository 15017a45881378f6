"""The example notebook runs, and what it shows is what comes out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import tools

tools.package("duckdb", "pandas", "nbclient", "ipykernel")

import nbformat

from tests.analysis.notebooks import NOTEBOOKS, execute, outputs


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_it_shows_is_what_comes_out(path: Path) -> None:
    shown, pairs = outputs(nbformat.read(path, as_version=4)), outputs(execute(path))

    for (source, wanted), (_, texts) in zip(shown, pairs, strict=True):
        assert texts == wanted, f"python -m tests.analysis.notebooks writes it again\n{source}"
    assert sum(bool(texts) for _, texts in pairs) >= 5


def test_there_is_one() -> None:
    assert [path.name for path in NOTEBOOKS] == ["fleet.ipynb"]

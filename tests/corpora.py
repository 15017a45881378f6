"""Captures and vectors that tests read: those in tests/data, and larger collections that ``MQTTSCOPE_CORPORA`` names.

Both have the same layout (CONTRIBUTING.md).  A test that reads a corpus has the mark `needs`, and then there are three
cases: the variable is not set, and the test is skipped; it is set and the files are there, and the test runs; it is set
and the files are missing, and the test fails and names the folder.  A corpus that is configured and not read would look
like a passed test.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "MQTTSCOPE_CORPORA"
DATA = Path(__file__).resolve().parent / "data"
"""The data of the repository."""
INDEX = "captures/INDEX.tsv"
NOT_INDEXED = ("field/", "trials/")
"""Captures of the corpora that no index describes: what is wrong with them is for the tests that name them."""
_declared: tuple[str, ...] = ()
"""Patterns of the corpora that the current test needs."""


def folder() -> Path | None:
    """The folder that the environment names, or ``None``."""
    configured = os.environ.get(VARIABLE)
    return Path(configured).resolve() if configured else None


def needs(*patterns: str) -> pytest.MarkDecorator:
    """Mark a test that needs files of the corpora: at least one for each pattern, relative to their folder."""
    return pytest.mark.corpora(*patterns)


def prepare(item: pytest.Item) -> None:
    """Skip or fail a test whose corpora are absent; the hook before each test calls this."""
    global _declared
    marks = list(item.iter_markers("corpora"))
    _declared = tuple(pattern for mark in marks for pattern in mark.args)
    if not marks:
        return
    root = folder()
    if root is None:
        pytest.skip(f"{VARIABLE} is not set")
    if not root.is_dir():
        pytest.fail(f"{VARIABLE}: {root} is not a folder", pytrace=False)
    for mark in marks:
        for pattern in mark.args:
            if mark.kwargs.get("has_no_case") or not any(root.glob(pattern)):
                pytest.fail(f"{VARIABLE}: {root} has no case for {pattern}", pytrace=False)


def path(*parts: str) -> Path:
    """A file or folder of tests/data, or else of the corpora, for the test that runs."""
    name = "/".join(parts)
    if (DATA / name).exists():
        return DATA / name
    root = folder()
    if not _declared or root is None:
        pytest.fail(f"{name} is not in tests/data; a test that reads it from the corpora is marked with needs()")
    wanted = root / name
    if not wanted.exists():
        pytest.fail(f"{VARIABLE}: {root} has no {name}", pytrace=False)
    return wanted


def committed(pattern: str) -> list[Path]:
    """Files of tests/data."""
    return sorted(DATA.glob(pattern))


def further(pattern: str) -> list[Path]:
    """Files of the corpora that tests/data does not have."""
    root = folder()
    if root is None:
        return []
    return sorted(file for file in root.glob(pattern) if not (DATA / file.relative_to(root)).exists())


def cases(pattern: str, values: Iterable[Any] | None = None) -> list[Any]:
    """Parameters that only the corpora give: ``values`` read from files, or the files themselves.

    Never empty: without any case there is one that skips or fails, so that a test run shows what did not run.
    """
    rows = list(further(pattern) if values is None else values)
    if rows:
        return [pytest.param(row, marks=needs(pattern)) for row in rows]
    return [pytest.param(None, id="none", marks=pytest.mark.corpora(pattern, has_no_case=True))]


def collections(*patterns: str) -> list[Any]:
    """Parameters for tests of a whole collection: tests/data, and the folder of the corpora."""
    return [pytest.param(DATA, id="data"), pytest.param(folder(), id="corpora", marks=needs(*patterns))]


def relative(file: Path) -> str:
    """Name of a capture below the folder ``captures`` of its collection."""
    root = DATA if file.is_relative_to(DATA) else folder()
    assert root is not None
    return file.relative_to(root / "captures").as_posix()


def index(root: Path | None) -> list[dict[str, str]]:
    """The rows of the index of captures of a collection; none without one."""
    file = root / INDEX if root else None
    if file is None or not file.is_file():
        return []
    with file.open(encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text, delimiter="\t"))

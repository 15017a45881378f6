"""Fixtures and paths that all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


SLOW = ("corpus", "fuzz")
"""Folders of tests that are not part of the quick check: whole captures, and fuzzing."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the slow folders."""
    for item in items:
        if item.path.relative_to(ROOT / "tests").parts[0] in SLOW:
            item.add_marker(pytest.mark.slow)


def shared_path(*parts: str) -> Path:
    """A path in the material that lies beside a development checkout; the calling test is skipped without it."""
    base = ROOT.parent / "shared"
    if not base.is_dir():
        pytest.skip("no ../shared beside this checkout")
    return base.joinpath(*parts)

"""Tests of lakes are skipped where a package is missing that only lakes need."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests import tools

PACKAGES = ("pyarrow", "deltalake", "msgspec")
NEED_NOTHING = ("test_keys.py", "test_manifest.py")


class NeedyModule(pytest.Module):
    """A module that needs packages, which are looked for before it is imported."""

    packages: tuple[str, ...] = PACKAGES

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Skip the module if a package is missing."""
        if self.packages:
            tools.package(*self.packages)
        return super().collect()


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Look for the packages of lakes."""
    return None if module_path.name in NEED_NOTHING else NeedyModule.from_parent(parent, path=module_path)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A place for a lake."""
    return tmp_path / "lake"

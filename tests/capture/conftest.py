"""What tests of files on disk have in common."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of their own, which they are in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path

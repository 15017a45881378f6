"""Fixtures and paths that all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def shared_path(*parts: str) -> Path:
    """A path in the material that lies beside a development checkout; the calling test is skipped without it."""
    base = ROOT.parent / "shared"
    if not base.is_dir():
        pytest.skip("no ../shared beside this checkout")
    return base.joinpath(*parts)

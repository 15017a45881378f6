"""Packages that are optional are named with what installs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqttscope.api.errors import MissingPackageError, optional_package
from mqttscope.errors import ArgumentError


def test_an_optional_package() -> None:
    assert optional_package("json", "pip install json").__name__ == "json"
    with pytest.raises(MissingPackageError, match=r"^nowhere_to_be_found is not installed: pip install it$") as caught:
        optional_package("nowhere_to_be_found", "pip install it")
    assert (caught.value.name, isinstance(caught.value, ImportError)) == ("nowhere_to_be_found", True)
    assert issubclass(ArgumentError, ValueError)


def test_what_a_package_lacks_itself_is_no_news_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_installed.py").write_text("import nowhere_to_be_found")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found") as caught:
        optional_package("half_installed", "pip install it")
    assert not isinstance(caught.value, MissingPackageError)

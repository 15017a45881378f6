"""Packages that are optional are named with what installs them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mqttscope.api.errors import MissingPackageError, optional_package
from mqttscope.errors import ArgumentError
from mqttscope.installation import extra_command, package_command


def test_an_optional_package() -> None:
    assert optional_package("json").__name__ == "json"
    with pytest.raises(MissingPackageError) as caught:
        optional_package("nowhere_to_be_found")
    assert str(caught.value) == f"nowhere_to_be_found is not installed: {package_command('nowhere_to_be_found')}"
    assert (caught.value.name, isinstance(caught.value, ImportError)) == ("nowhere_to_be_found", True)
    with pytest.raises(MissingPackageError, match=re.escape(f"is not installed: {extra_command('lake')}")):
        optional_package("nowhere_to_be_found", extra="lake")
    assert issubclass(ArgumentError, ValueError)


def test_what_a_package_lacks_itself_is_no_news_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_installed.py").write_text("import nowhere_to_be_found")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found") as caught:
        optional_package("half_installed")
    assert not isinstance(caught.value, MissingPackageError)

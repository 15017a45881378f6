"""The documentation as a site: every page is in its navigation, and no link leads nowhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import tools
from tests.conftest import ROOT

DOCS = ROOT / "docs"
PROJECT = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]


def pages(navigation: Any) -> Iterator[str]:
    """The pages that a part of the navigation names."""
    if isinstance(navigation, str):
        yield navigation
        return
    for part in navigation.values() if isinstance(navigation, dict) else navigation:
        yield from pages(part)


def test_every_page_is_in_the_navigation_once() -> None:
    named = list(pages(PROJECT["nav"]))
    there = {path.relative_to(DOCS).as_posix() for path in DOCS.glob("**/*.md")}
    # The index of the rules leads to the page of each.
    reached = {name for name in there if re.fullmatch(r"rules/[A-Z]{3}\d{3}\.md", name)}

    assert len(named) == len(set(named))
    assert set(named) == there - reached


def test_links_stay_inside_the_documentation() -> None:
    """Pages are read where the other files of the project are not."""
    outside = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in DOCS.glob("**/*.md")
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8"))
        if "://" not in target and not (page.parent / target).resolve().is_relative_to(DOCS)
    ]

    assert outside == []


@pytest.mark.long
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    tools.package("zensical")
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict"]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    built = tmp_path / "build" / "site"
    named = {name.replace("README.md", "index.md").replace(".md", ".html") for name in pages(PROJECT["nav"])}
    assert named <= {path.relative_to(built).as_posix() for path in built.glob("**/*.html")}
    assert "thermostat-7" in (built / "tour.html").read_text("utf-8")

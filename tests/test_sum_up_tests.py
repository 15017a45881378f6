"""The last lines of ``make test``: what passed, failed and was skipped in all runs of pytest."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytest_plugins = ["pytester"]

SCRIPT = ROOT / ".ci" / "sum_up_tests.py"
sum_up = runpy.run_path(str(SCRIPT))["sum_up"]
FIRST = """\
import pytest

def test_passes(): pass
def test_skips(): pytest.skip("needs a 'tool'; see there")
@pytest.mark.skipif(True, reason="needs root")
def test_is_skipped(): pass
"""
SECOND = """\
import pytest
pytest.skip("needs root", allow_module_level=True)
"""
FAILING = """\
import pytest

@pytest.fixture
def broken(): raise OSError("no")

def test_fails(): assert 0
def test_has_no_fixture(broken): pass
def test_passes(): pass
"""


@pytest.fixture
def summed(pytester: pytest.Pytester) -> Callable[..., tuple[int, list[str]]]:
    """Run pytest with each test file, as the parts of ``make test`` do; return exit code and lines of the summary."""

    def run(**sources: str) -> tuple[int, list[str]]:
        for name, source in sources.items():
            path = pytester.makepyfile(**{f"test_{name}": source})
            pytester.runpytest_inprocess(
                "-p", "no:randomly", "--continue-on-collection-errors", f"--junit-xml={pytester.path / name}.xml", path
            )
        lines, code = sum_up(pytester.path, list(sources))
        return code, lines

    return run


def test_reasons_are_grouped_over_all_runs(summed: Callable[..., tuple[int, list[str]]]) -> None:
    assert summed(first=FIRST, second=SECOND) == (
        0,
        ["skipped 3:", "     2 needs root", "     1 needs a 'tool'; see there", "1 passed, 0 failed, 3 skipped"],
    )


def test_failures_and_errors_are_failed_and_named(summed: Callable[..., tuple[int, list[str]]]) -> None:
    assert summed(failing=FAILING) == (
        1,
        [
            "failed in failing: test_failing.test_fails",
            "failed in failing: test_failing.test_has_no_fixture",
            "1 passed, 2 failed, 0 skipped",
        ],
    )


def test_a_run_that_dies_at_collection_is_failed(summed: Callable[..., tuple[int, list[str]]]) -> None:
    code, lines = summed(importing="import no_such_module", first=FIRST)

    assert code == 1
    assert lines[0] == "failed in importing: test_importing"
    assert lines[-1] == "1 passed, 1 failed, 2 skipped"


@pytest.mark.parametrize("content", [None, "", "<testsuites><testsuite><testcase"])
def test_a_run_without_a_whole_report_is_failed(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "killed.xml").write_text(content)

    assert sum_up(tmp_path, ["killed"]) == (
        ["failed in killed: ended without a report", "0 passed, 1 failed, 0 skipped"], 1
    )  # fmt: skip


def test_the_program_prints_it_and_returns_its_exit_code(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, SCRIPT, tmp_path, "killed"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


def test_every_target_that_runs_tests_says_why_some_are_skipped() -> None:
    lines = (ROOT / "Makefile").read_text("utf-8").splitlines()
    runs = [line for line in lines if "-m pytest" in line and "--collect-only" not in line]

    assert len(runs) >= 2
    assert [line for line in runs if " -rfEs" not in line] == []

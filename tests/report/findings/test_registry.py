"""The formats by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mqttscope.cli.lint_options import FORMATS as OFFERED
from mqttscope.report.findings.registry import FORMATS
from tests.cli.running import environment
from tests.conftest import ROOT
from tests.report.findings.samples import many, summary, written


def test_the_command_offers_these_formats() -> None:
    assert tuple(FORMATS) == OFFERED


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_takes_every_finding(name: str) -> None:
    text = written(name, many(), summary())

    assert text.endswith("\n")
    assert "CON212" in text


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_can_be_without_findings(name: str) -> None:
    assert name == "jsonl" or written(name, [])


def test_a_format_is_imported_when_it_is_used() -> None:
    script = "import sys, mqttscope.report.findings.registry; print('mqttscope.report.findings.sarif' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, env=environment(), cwd=ROOT, timeout=60, check=False,
    )  # fmt: skip

    assert done.stdout == "False\n"

"""The commands of the pipeline by their own names, and what they ask."""

from __future__ import annotations

import pytest

from mqttscope.cli.main import COMMANDS

pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'mqttscope[spark]'")

from tests.spark.answers.conftest import lake as lake
from tests.spark.answers.conftest import quick as quick
from tests.spark.conftest import spark as spark


@pytest.fixture(autouse=True)
def by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run with everything that the program does around a command: exit codes, quiet ends."""
    for name in ("report", "sql"):
        monkeypatch.setitem(COMMANDS, f"pipeline-{name}", (f"mqttscope.cli.pipeline.{name}", ""))

"""What is written about rules and settings fits the schemas, and so does a baseline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import tools

tools.package("jsonschema")

import jsonschema

from mqttscope.lint.catalogue import all_rules
from tests.cli.running import capture, invoke
from tests.dev.schemas import fits, unnoticed


def document(*words: str | Path) -> Any:
    """What a command writes as JSON."""
    return json.loads(invoke(*words, "--format", "json").out)


def test_rules_fit() -> None:
    every, few = document("rules"), document("rules", "CON212", "TOP104")

    assert fits("rules", [every, few]) == 2
    assert len(every["rules"]) == len(all_rules())
    assert unnoticed("rules", every) == set()
    (settable,) = (row for row in few["rules"] if row["settings"])
    # What a rule may be set to is its own matter, and only rules that are named have their examples.
    settings = {f"rules[].settings.{name}" for name in settable["settings"]}
    assert unnoticed("rules", {**few, "rules": [settable]}) == {"rules[].examples", *settings}


def test_statements_with_their_rules_fit() -> None:
    every, few = document("rules", "--coverage"), document("rules", "--coverage", "CON212")

    assert fits("coverage", [every, few]) == 2
    assert unnoticed("coverage", every) == {"totals.5.0", "totals.3.1.1", "totals.sparkplug 3.0"}


def test_settings_fit(tmp_path: Path) -> None:
    configuration = tmp_path / "mqttscope.toml"
    configuration.write_text(
        """[lint]
extend-select = ["TOP104"]
fail-on = "warning"
[[lint.suppress]]
rules = ["PUB101"]
reason = "known"
expires = 2999-12-31
[rules.TOP104]
levels = 9
"""
    )
    row = ("lint", "--show-settings", capture("v5-qos"))
    result = document(
        *row, "--config", configuration, "--complete", "10.0.0.2:1883", "--profile", "aws-iot-core",
        "--baseline", tmp_path / "known.json", "--port", "8080:ws", "--output", f"sarif={tmp_path / 'a.sarif'}",
    )  # fmt: skip
    assert fits("lint-settings", [result, document(*row, "--no-config")]) == 2
    assert result["suppressed"]
    assert result["more"]
    result["rules"] = [row for row in result["rules"] if row["rule"] == "TOP104"]
    assert unnoticed("lint-settings", result) == {
        "ports.8080", "rules[].settings.levels", "rules[].settings.bytes",
    }  # fmt: skip


def test_baselines_fit(tmp_path: Path) -> None:
    known, none = tmp_path / "known.json", tmp_path / "none.json"
    for rules, path in (("ALL", known), ("ALS203", none)):
        words = ("--select", rules, "--baseline", path, "--update-baseline")
        assert invoke("lint", capture("planted-violations"), *words).code == 0
    full, empty = (json.loads(path.read_text("utf-8")) for path in (known, none))

    assert fits("baseline", [full, empty]) == 2
    assert full["findings"]
    assert empty["findings"] == []
    assert unnoticed("baseline", full) == set()
    with pytest.raises(jsonschema.ValidationError):
        fits("baseline", [{**empty, "tool": "another"}])

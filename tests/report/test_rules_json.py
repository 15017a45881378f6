"""Rules and coverage as JSON."""

from __future__ import annotations

import json
from typing import Any

from mqttscope.lint.catalogue import all_rules, find
from mqttscope.lint.statements import coverage
from mqttscope.report.jsonl import dumps
from mqttscope.report.rules_json import coverage_view, rules_view


def plain(shown: dict[str, Any]) -> Any:
    return json.loads(dumps(shown))


def test_all_rules() -> None:
    shown = plain(rules_view(all_rules().values(), examples=False))

    assert shown["schema"] == 1
    assert [rule["code"] for rule in shown["rules"]] == list(all_rules())
    assert len({tuple(rule) for rule in shown["rules"]}) == 1


def test_one_rule_with_its_examples() -> None:
    (rule,) = plain(rules_view([find("CON212")], examples=True))["rules"]

    assert rule["slug"] == "second-connect"
    assert rule["versions"] == ["3.1", "3.1.1", "5.0"]
    assert rule["summary"] == "A client sends CONNECT twice on one connection."
    assert len(rule["why"]) == 1
    assert rule["instead"] == "Instead, open a new TCP connection for another CONNECT."
    assert rule["default"] is True
    assert rule["reason_code"] == 0x82
    assert rule["statements"][0]["identifier"] == "MQTT-3.1.0-2"
    assert rule["statements"][0]["partly"] is True
    bad = rule["examples"]["bad"][0]
    assert bad["lines"][-1].endswith("^ CON212 error: second CONNECT on one connection")


def test_coverage() -> None:
    shown = plain(coverage_view(coverage()))
    row = next(one for one in shown["coverage"] if one["identifier"] == "MQTT-3.1.0-2" and one["version"] == "5.0")

    assert "CON212" in row["partly"]
    for version, counts in shown["totals"].items():
        wanted = [one for one in shown["coverage"] if one["version"] == version]
        assert counts["statements"] == len(wanted) == sum(counts.values()) - counts["statements"]

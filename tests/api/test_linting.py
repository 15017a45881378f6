"""Findings as programs get them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest

import mqttscope
from mqttscope.api.reading import read_servers
from mqttscope.lint.context import RuleContext
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.rule import Findings as Reports
from mqttscope.lint.rule import Rule
from mqttscope.mqtt.packets import Publish
from tests.cli.made import write_capture
from tests.cli.running import capture, invoke
from tests.lint.lint_help import steps_of

VIOLATIONS = capture("planted-violations")


def test_findings_are_those_of_the_command() -> None:
    findings = mqttscope.lint(VIOLATIONS)
    lines = [
        json.loads(line) for line in invoke("lint", VIOLATIONS, "--format", "jsonl", "--no-config").out.splitlines()
    ]

    assert sorted(findings.to_dicts(), key=str) == sorted(lines, key=str)
    assert findings.packets == 32
    assert findings.errors == []
    assert sum(map(len, findings.by_rule.values())) == len(findings) == len(lines)
    assert findings[0] is next(iter(findings))
    assert findings[:2] == list(findings)[:2]
    certain = findings.at_least("error", "certain")
    assert 0 < len(certain) < len(findings)
    assert {(finding.severity, finding.confidence) for finding in certain} == {("error", "certain")}
    with pytest.raises(mqttscope.ArgumentError, match="severity must be one of error, warning, info"):
        findings.at_least("fatal")
    with pytest.raises(mqttscope.ArgumentError, match="confidence must be one of certain, likely, heuristic"):
        findings.at_least(confidence="sure")


def test_rules_are_selected_as_on_the_command_line() -> None:
    assert set(mqttscope.lint(VIOLATIONS, select=["PUB101", "HDR"]).by_rule) == {"PUB101", "HDR101", "HDR102", "HDR104"}
    assert set(mqttscope.lint(VIOLATIONS, select="PUB101").by_rule) == {"PUB101"}
    assert "PUB101" not in mqttscope.lint(VIOLATIONS, ignore=["PUB1"]).by_rule
    assert "OPS101" in mqttscope.lint(VIOLATIONS, extend_select=["OPS"]).rules
    assert mqttscope.lint(VIOLATIONS, profile="aws-iot-core").rules != mqttscope.lint(VIOLATIONS).rules
    with pytest.raises(mqttscope.UnknownRuleError, match="did you mean PUB101"):
        mqttscope.lint(VIOLATIONS, select=["PUB1011"])
    with pytest.raises(mqttscope.MqttscopeError, match="'aws' is not a profile"):
        mqttscope.lint(VIOLATIONS, profile="aws")


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"ignore": "ALL"}, "ignore=['ALL']"),
        ({"select": ["PUB101"], "ignore": ["PUB1"]}, None),
        ({"select": ["PUB101"], "ignore": ["PUB101"]}, "select=['PUB101'] and ignore=['PUB101']"),
        ({"select": []}, "select=[]"),
        ({"select": frozenset()}, "select=[]"),
        ({"select": iter(())}, "select=[]"),
        ({"select": ()}, None),
        ({"ignore": ["ALL"], "profile": "aws-iot-core"}, None),
    ],
)
def test_a_selection_that_leaves_no_rule_is_refused(chosen: dict[str, Any], expected: str | None) -> None:
    if expected is None:
        assert mqttscope.lint(VIOLATIONS, **chosen).rules
        return
    with pytest.raises(mqttscope.ArgumentError, match=rf"^{re.escape(expected)}: no rule is left to check with"):
        mqttscope.lint(VIOLATIONS, **chosen)


def test_a_filter_chooses_findings_by_their_packets() -> None:
    findings = mqttscope.lint(VIOLATIONS, filter="type == publish")

    assert {finding.packet_type for finding in findings} == {"publish"}
    assert findings.packets < 32


class ShortTopic(Rule):
    """A topic is short."""

    code = "OWN101"
    severity = Severity.INFO
    confidence = Confidence.CERTAIN
    looks_at = Publish

    def check(self, packet: Publish, at: RuleContext) -> Reports:
        return self.report("topic_name", f"{len(packet.topic_name)} characters")


class Fails(ShortTopic):
    code = "OWN102"

    def check(self, packet: Publish, at: RuleContext) -> Reports:
        raise ZeroDivisionError("of the rule")


def test_a_rule_of_ones_own_runs_beside_the_others() -> None:
    findings = mqttscope.lint(capture("v5-qos"), rules=[ShortTopic, Fails])

    assert len(findings.by_rule["OWN101"]) == 6
    assert findings.by_rule["OWN101"][0].message == "23 characters"
    assert list(findings.failed) == ["OWN102"]
    assert "of the rule" in findings.failed["OWN102"]


def test_a_rule_of_ones_own_is_selected_by_its_names() -> None:
    for named in ("OWN", "OWN101", "short-topic"):
        assert mqttscope.lint(VIOLATIONS, rules=[ShortTopic], select=named).rules == ["OWN101"], named
        assert "OWN101" not in mqttscope.lint(VIOLATIONS, rules=[ShortTopic], ignore=named).rules, named
    assert mqttscope.lint(VIOLATIONS, rules=[ShortTopic], select=["PUB101"]).rules == ["OWN101", "PUB101"]
    both = mqttscope.lint(VIOLATIONS, rules=[ShortTopic, Fails], select=["PUB101"], ignore=["OWN", "fails"])
    assert both.rules == ["PUB101"]
    assert repr(mqttscope.lint(VIOLATIONS, select=["PUB101"])) == "<1 finding by 1 rule in 32 packets>"
    with pytest.raises(mqttscope.UnknownRuleError, match="did you mean OWN101"):
        mqttscope.lint(VIOLATIONS, rules=[ShortTopic], select=["OWN1011"])
    with pytest.raises(mqttscope.UnknownRuleError):
        mqttscope.lint(VIOLATIONS, select=["OWN101"])


def test_a_rule_of_ones_own_may_bring_settings() -> None:
    class LongTopic(ShortTopic):
        code = "OWN103"
        settings: ClassVar = {"most": 100}

        def check(self, packet: Publish, at: RuleContext) -> Reports:
            return self.report("topic_name", "long") if len(packet.topic_name) > self.set["most"] else None

    assert len(mqttscope.lint(VIOLATIONS, rules=[LongTopic], select="OWN")) == 0
    assert len(mqttscope.lint(VIOLATIONS, rules=[LongTopic({"most": 5})], select="OWN")) > 0


def test_what_a_rule_of_ones_own_lacks_is_said() -> None:
    wrong = {
        "'rules/ours.py' is not a rule": "rules/ours.py",
        "<class 'int'> is not a rule": int,
        "PUB101 is the code of another rule": type("Taken", (ShortTopic,), {"code": "PUB101"}),
        "OWN101 is the code of another rule": type("Twice", (ShortTopic,), {}),
        "sender has to be": type("Sent", (ShortTopic,), {"code": "OWN103", "sender": "client"}),
    }
    for text, rule in wrong.items():
        with pytest.raises(mqttscope.ArgumentError, match=text):
            mqttscope.lint(VIOLATIONS, rules=[ShortTopic, rule])  # type: ignore[list-item]
    with pytest.raises(mqttscope.ArgumentError, match="is not a rule"):
        mqttscope.Proxy("mqtt://127.0.0.1:9", rules=["rules/ours.py"])  # type: ignore[list-item]


def test_secrets_are_hidden_unless_they_are_asked_for() -> None:
    path = capture("refused-connect")
    packets = mqttscope.open(path, show_secrets=True)
    connect = next(packet.packet for packet in packets if getattr(packet.packet, "password", None))
    secret = connect.password  # type: ignore[union-attr]

    def raws(findings: mqttscope.Findings) -> list[bytes]:
        return [finding.raw for finding in findings if finding.packet_type == "connect"]

    hidden = raws(mqttscope.lint(path, select=["ALL"]))
    assert hidden
    assert not any(secret in raw for raw in hidden)
    assert any(secret in raw for raw in raws(mqttscope.lint(path, select=["ALL"], show_secrets=True)))


def test_errors_of_captures_are_values_beside_the_findings(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcapng"
    cut.write_bytes(VIOLATIONS.read_bytes()[:3000])
    findings = mqttscope.lint(cut)

    assert len(findings.errors) == 1
    assert 0 < findings.packets < 32
    with pytest.raises(mqttscope.CaptureReadError):
        mqttscope.lint(cut, raise_errors=True)


def test_servers_are_compared_as_captures_name_them() -> None:
    (text,) = read_servers(["[fd00:0::1]:01883"])
    assert text == "[fd00::1]:1883"


def test_timing_of_a_test_suite(tmp_path: Path) -> None:
    lost = "opened; > publish a hot qos=1 id=1; < ack; +3 > fin"
    path = write_capture(tmp_path / "short.pcapng", *steps_of(lost))

    assert mqttscope.lint(path).pending == {"ACK515": 1}
    assert "ACK515" in mqttscope.lint(path, timing="test").by_rule
    with pytest.raises(mqttscope.ArgumentError, match="timing must be one of normal, test"):
        mqttscope.lint(path, timing="fast")

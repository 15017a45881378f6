"""Baselines: what they remember and what they call fixed."""

from __future__ import annotations

import json

import pytest

from mqttscope.lint.baseline import Baseline, BaselineError, client_key
from mqttscope.lint.finding import Finding
from tests.lint.lint_help import qos_findings


def made(findings: list[Finding]) -> Baseline:
    baseline = Baseline()
    for one in findings:
        baseline.add(one)
    return Baseline.loads(baseline.dumps())


def test_a_new_capture_of_the_same_device_is_known() -> None:
    baseline = made(qos_findings("meter/17/power"))

    assert all(baseline.knows(one) for one in qos_findings("meter/18/power", "meter/9/power"))


def test_another_device_or_another_topic_is_not_known() -> None:
    baseline = made(qos_findings("meter/17/power"))

    assert not baseline.knows(qos_findings("meter/17/power", client_identifier="dev2")[0])
    assert not baseline.knows(qos_findings("meter/17/voltage")[0])


def test_fixed_is_what_did_not_come_again_from_a_client_that_was_captured() -> None:
    baseline = made([*qos_findings("a"), *qos_findings("b"), *qos_findings("c", client_identifier="dev2")])
    baseline.knows(qos_findings("a")[0])

    assert [one.topic for one in baseline.fixed({"PUB209"}, {"dev1"})] == ["b"]
    assert baseline.fixed({"PUB101"}, {"dev1"}) == []


def test_what_has_no_client_is_fixed_where_connections_without_one_were_captured() -> None:
    baseline = made(qos_findings("a"))
    (entry,) = baseline.entries.values()
    entry.client = ""

    assert baseline.fixed({"PUB209"}, {"dev1"}) == []
    assert baseline.fixed({"PUB209"}, {""}) == [entry]


def test_an_update_takes_out_only_what_was_looked_at() -> None:
    findings = {name: qos_findings(name)[0] for name in ("again", "silenced", "fixed")}
    other = qos_findings("other client", client_identifier="dev2")
    baseline = made([*findings.values(), *other])
    for name in ("again", "silenced"):
        baseline.knows(findings[name])
    found = made([findings["again"], *qos_findings("new")])

    after = baseline.updated(found, {"PUB209"}, {"dev1"})
    assert {one.topic for one in after.entries.values()} == {"again", "new", "other client"}
    after = baseline.updated(found, {"PUB101"}, {"dev1", "dev2"})
    assert {one.topic for one in after.entries.values()} == {"again", "fixed", "new", "other client"}


def test_the_file_is_sorted_one_finding_per_line_and_without_times() -> None:
    findings = qos_findings("b", "a")
    text = made(findings).dumps()

    assert text == made(findings[::-1]).dumps()
    assert [line.count("fingerprint") for line in text.splitlines()] == [0, 1, 1, 0]
    assert set(json.loads(text)["findings"][0]) == {
        "fingerprint", "rule", "client", "topic", "packet_type", "direction", "field",
    }  # fmt: skip


def test_the_file_tells_no_secrets() -> None:
    findings = qos_findings("home/jane.doe@example.org/lamp", client_identifier="AKIAIOSFODNN7EXAMPLE")
    baseline = made(findings)

    assert "jane" not in baseline.dumps()
    assert "IOSFODNN" not in baseline.dumps()
    assert baseline.knows(findings[0])
    assert client_key("AKIAIOSFODNN7EXAMPLE") == next(iter(baseline.entries.values())).client


def test_an_empty_baseline_is_valid_json() -> None:
    assert json.loads(Baseline().dumps())["findings"] == []
    assert Baseline.loads(Baseline().dumps()).entries == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ("[]", "no list of findings"),
        ("[" * 100_000, "nested too deeply"),
        ('{"schema": 1, "findings": [' + "[" * 900 + "]" * 900 + "]}", "not a finding"),
        ('{"schema": 2, "findings": []}', "schema 2"),
        ('{"schema": 1, "findings": [1]}', "not a finding"),
        ('{"schema": 1, "findings": [{"rule": "PUB209"}]}', "without fingerprint"),
        ('{"schema": 1, "findings": [{"rule": 3, "fingerprint": "x"}]}', "not a finding"),
    ],
)
def test_what_is_no_baseline_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(BaselineError, match=why):
        Baseline.loads(text)

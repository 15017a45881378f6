"""JUnit XML and SARIF."""

from __future__ import annotations

import json
from xml.etree import ElementTree

from mqttscope.broker_test.verdict import BrokerVerdict
from mqttscope.report.broker_test.ci_reports import WORDS, sarif_log, write_junit
from mqttscope.report.broker_test.outcome import RANK
from tests import tools
from tests.conftest import ROOT
from tests.report.broker_test.tries import LINE, run, secret, with_reduction
from tests.report.make import Lines


def test_a_suite_for_each_broker_and_a_failure_for_each_deviation() -> None:
    sink = Lines()
    write_junit(sink, [with_reduction(run()), run("ws://other/mqtt")])
    root = ElementTree.fromstring(sink.data)

    assert (root.get("tests"), root.get("failures")) == ("6", "2")
    assert [node.get("name") for node in root] == ["mqtt://h:1883", "ws://other/mqtt"]
    failure = root.find(".//failure")
    assert failure is not None
    assert failure.get("type") == "tolerated"
    assert failure.text is not None
    assert "PINGREQ is <answered>" in failure.text
    assert LINE in failure.text
    assert len(root.findall(".//testcase")) == 6


def test_names_that_are_no_text_and_secrets_do_no_harm() -> None:
    broker_run = with_reduction(secret())
    broker_run.broker, broker_run.capture = "\udcff", "odd \udcff.pcapng"
    lines, data = Lines(), sarif_log([broker_run])
    write_junit(lines, [broker_run])
    (result,) = json.loads(data)["runs"][0]["results"]

    assert len(ElementTree.fromstring(lines.data)) == 1
    assert LINE.encode() not in lines.data
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "odd%20%FF.pcapng"
    assert b"open sesame".hex().encode() not in data


def test_it_is_valid_and_names_what_is_broken() -> None:
    log = json.loads(sarif_log([with_reduction(run())]))
    tools.package("jsonschema")
    import jsonschema

    jsonschema.validate(log, json.loads((ROOT / "tests" / "data" / "sarif-schema-2.1.0.json").read_text("utf-8")))
    (result,) = log["runs"][0]["results"]

    assert (result["ruleId"], result["level"]) == ("tolerated", "warning")
    assert result["message"]["text"].endswith("The broker breaks 5.0 MQTT-4.13.1-1.")
    rules = log["runs"][0]["tool"]["driver"]["rules"]
    assert rules[result["ruleIndex"]]["id"] == "tolerated"
    assert result["properties"]["case"]["seed"] == 1


def test_every_deviation_has_words() -> None:
    assert set(WORDS) == set(RANK) - {BrokerVerdict.CONFORMING}

"""SARIF."""

from __future__ import annotations

import json

import jsonschema

from mqttscope.broker_test.verdict import Verdict
from mqttscope.report.broker_test.outcome import RANK
from mqttscope.report.broker_test.sarif import WORDS, sarif_log
from tests.conftest import ROOT
from tests.report.broker_test.tries import run, secret, with_reduction


def test_it_is_valid_and_names_what_is_broken() -> None:
    log = json.loads(sarif_log([with_reduction(run())]))
    jsonschema.validate(log, json.loads((ROOT / "tests" / "data" / "sarif-schema-2.1.0.json").read_text("utf-8")))
    (result,) = log["runs"][0]["results"]

    assert (result["ruleId"], result["level"]) == ("tolerated", "warning")
    assert result["message"]["text"].endswith("The broker breaks 5.0 MQTT-4.13.1-1.")
    rules = log["runs"][0]["tool"]["driver"]["rules"]
    assert rules[result["ruleIndex"]]["id"] == "tolerated"
    assert result["properties"]["case"]["seed"] == 1


def test_every_deviation_has_words() -> None:
    assert set(WORDS) == set(RANK) - {Verdict.CONFORMING}


def test_names_that_are_no_text_and_secrets_do_no_harm() -> None:
    made = secret()
    made.broker, made.capture = "\udcff", "odd \udcff.pcapng"
    data = sarif_log([made])
    (result,) = json.loads(data)["runs"][0]["results"]

    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "odd%20%FF.pcapng"
    assert b"open sesame".hex().encode() not in data

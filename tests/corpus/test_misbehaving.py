"""Rules about sessions, servers and reactions on traffic that was recorded while somebody misbehaved."""

from __future__ import annotations

import tomllib
from functools import cache
from typing import Any

import pytest

from mqttscope.capture import open_capture
from mqttscope.dev.generate import is_concerned, recorded_evidence
from mqttscope.dissect import dissect
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding, Severity
from tests.conftest import ROOT
from tests.each import each

CAPTURES = ROOT / "captures"
RULES = all_rules()
SIDES = {"client": "client_to_server", "server": "server_to_client"}


def about(name: str) -> dict[str, Any]:
    return tomllib.loads((CAPTURES / name / "about.toml").read_text("utf-8"))


NAMES = sorted(path.parent.name for path in CAPTURES.glob("*/about.toml") if "fires" in about(path.parent.name))
FIRES = [(name, code) for name in NAMES for code in about(name)["fires"]]


@cache
def findings(name: str) -> tuple[Finding, ...]:
    """What all rules find, those of practice too."""
    changed = {code: row["settings"] for code, row in about(name)["fires"].items() if "settings" in row}
    linter = Linter([rule(changed.get(code)) for code, rule in RULES.items()], strict=True)
    events = dissect(open_capture([str(CAPTURES / name / "capture.pcapng")]))
    return tuple(finding for event in events for finding in linter.feed(event))


@each("name, code", FIRES)
def test_the_rule_fires_with_its_severity_and_blames_who_did_it(name: str, code: str) -> None:
    blamed = SIDES[about(name)["fires"][code]["blames"]]
    pairs = {(finding.severity, finding.direction) for finding in findings(name) if finding.rule == code}

    assert (RULES[code].severity, blamed) in pairs


@pytest.mark.parametrize("name", NAMES)
def test_no_other_rule_reports_an_error(name: str) -> None:
    errors = {finding.rule for finding in findings(name) if finding.severity is Severity.ERROR}
    beside = set(about(name).get("beside", ()))

    assert errors - set(about(name)["fires"]) == beside


@pytest.mark.parametrize("name", NAMES)
def test_findings_are_in_frames_of_the_capture_with_a_message_of_their_own(name: str) -> None:
    frames = about(name)["expect"]["frames"]
    rows = [(finding.rule, finding.frame, finding.connection, finding.message) for finding in findings(name)]

    assert all(1 <= frame <= frames for _, frame, _, _ in rows)
    assert len(set(rows)) == len(rows), "said twice"


def test_every_rule_beyond_packets_and_connections_was_seen_on_recorded_traffic() -> None:
    assert set(filter(is_concerned, RULES)) <= set(recorded_evidence(CAPTURES)) <= set(RULES)


@pytest.mark.parametrize("name", NAMES)
def test_what_provokes_is_told(name: str) -> None:
    described = about(name)

    assert described["origin"] == "recorded"
    for code, row in described["fires"].items():
        assert set(row.get("settings", ())) <= set(RULES[code].settings)
        assert {"blames", "how"} <= set(row) <= {"blames", "how", "settings"}
        assert row["blames"] in SIDES
        assert row["how"]
        assert not row["how"].endswith("."), "it is a part of a sentence"
    assert all(described.get("beside", {}).values())

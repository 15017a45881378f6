"""The linter on the project's captures: conforming ones give no error, and each error that is found is a true one."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.lint.catalogue import instances, select
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding, Severity
from tests.conftest import ROOT
from tests.each import each

CAPTURES = ROOT / "captures"
FOLDERS = sorted(
    path.parent
    for path in CAPTURES.glob("*/capture.pcapng")
    if "fires" not in tomllib.loads((path.parent / "about.toml").read_text("utf-8"))
)
"""Captures that are there to make rules fire say themselves which: tests/corpus/test_misbehaving.py."""

TRUE_ERRORS: dict[str, dict[str, int]] = {
    # Examples of a source document, broken on purpose: what follows the packet is read at wrong places.
    "example-alias-length-too-short": {"ENC107": 1},
    "example-length-too-long": {"ENC107": 1},
    "failing-device": {"ALS202": 1, "FLW201": 1, "PUB103": 1},
    "five-byte-length": {"ENC106": 1},
    # A client that was made to sleep past its Keep Alive.
    "keep-alive": {"KAL201": 1},
    # A client that sends three messages where the broker takes two.
    "receive-maximum-exceeded": {"FLW201": 2},
    # Connections that were made to be refused.
    "refused-connect": {"CON106": 1},
    "refused-protocol-level": {"CON102": 1},
    # Clients that misbehave to see what the broker says.
    "v5-enhanced-auth": {"AUT203": 1},
    "v5-reason-codes": {"ACK203": 1, "ACK208": 1},
    "v5-server-disconnect": {"ALS202": 1, "FLW202": 1, "PRP105": 1, "PUB103": 1, "PUB209": 1, "PUB210": 1},
    # What brokers do otherwise, with clients that conform: docs/brokers.md has each of them.
    "deviations-aedes": {"DLV202": 1, "DLV411": 1, "PUB311": 1, "RET203": 1},
    "deviations-amqtt": {"DLV202": 1, "DLV208": 1, "DLV411": 1, "WIL408": 1},
    "deviations-ejabberd": {"FLW202": 1, "SUB217": 1},
    "deviations-mosquitto": {"DLV411": 1, "RET204": 1},
    "deviations-rabbitmq": {"ACK204": 1, "ACK313": 1, "DLV208": 1},
    # mosquitto 2.0.11 sends three messages where the client takes two: after the first PUBACK it sends two.
    "v5-flow-control": {"FLW201": 2},
}
"""Rules that report errors in a capture, and how often; every capture that is not here conforms."""

PLANTED: tuple[tuple[str, str], ...] = (
    ("PUB101", "5.0 MQTT-3.3.1-4"),
    ("PUB103", "5.0 MQTT-3.3.2-2"),
    ("ENC102", "5.0 MQTT-1.5.4-2"),
    ("ENC101", "5.0 MQTT-1.5.4-1"),
    ("ALS101", "5.0 MQTT-3.3.2-8"),
    ("ALS202", "5.0 MQTT-3.3.2-9"),
    ("FLW201", "5.0 MQTT-3.3.4-7"),
    ("ACK101", "5.0 MQTT-2.2.1-3"),
    ("PUB209", "5.0 MQTT-3.2.2-11"),
    ("PUB102", "5.0 MQTT-3.3.1-2"),
    ("HDR102", "5.0 MQTT-3.8.1-1"),
    ("SUB107", "5.0 MQTT-4.7.1-1"),
    ("SUB101", "5.0 MQTT-3.8.3-2"),
    ("ACK203", "5.0 MQTT-2.2.1-5"),
    ("HDR101", "5.0 V5-TYPE-reserved"),
    ("HDR102", "5.0 MQTT-2.1.3-1"),
    ("HDR104", "5.0 V5-LENGTH-empty-packets"),
    ("PRP105", "5.0 V5-PROP-repeat-PUBLISH"),
    ("PRP104", "5.0 V5-PROP-not-allowed"),
    ("PRP103", "5.0 V5-PROP-unknown"),
    ("PRP106", "5.0 V5-VALUE-payload-format"),
    ("PUB210", "5.0 MQTT-3.2.2-14"),
    ("ENC105", "5.0 MQTT-1.5.5-1"),
    ("CON212", "5.0 MQTT-3.1.0-2"),
)
"""The violations of ``captures/planted-violations`` in their order, with a statement that each finding has to cite."""


def findings(path: Path) -> list[Finding]:
    linter = Linter(instances(select().values()), strict=True)
    return [finding for event in dissect(open_capture([str(path)])) for finding in linter.feed(event)]


def errors(path: Path) -> dict[str, int]:
    return dict(Counter(finding.rule for finding in findings(path) if finding.severity is Severity.ERROR))


@each("folder", FOLDERS, ids=lambda folder: str(folder.name))
def test_there_are_no_errors_but_the_true_ones(folder: Path) -> None:
    if folder.name == "planted-violations":
        pytest.skip("has a test of its own")

    assert errors(folder / "capture.pcapng") == TRUE_ERRORS.get(folder.name, {})


def test_most_captures_conform() -> None:
    names = {folder.name for folder in FOLDERS}

    assert set(TRUE_ERRORS) <= names
    assert len(names) - len(TRUE_ERRORS) >= 50


def test_all_24_planted_violations_are_found_with_their_statements() -> None:
    actual_findings = findings(CAPTURES / "planted-violations" / "capture.pcapng")
    by_packet: dict[int, list[Finding]] = {}
    for finding in actual_findings:
        if finding.severity is Severity.ERROR and finding.packet is not None:
            by_packet.setdefault(finding.packet, []).append(finding)
    left = list(PLANTED)
    for number in sorted(by_packet):
        code, cited = left[0] if left else ("", "")
        for finding in by_packet[number]:
            if finding.rule == code and cited in finding.statements:
                left.pop(0)
                break

    assert len(PLANTED) == 24
    assert left == [], "not found, or with other statements"

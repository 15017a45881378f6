"""The linter on captures of public projects: conforming ones give no error, what is found was looked at by hand."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.lint.catalogue import select, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Severity
from tests import corpora
from tests.each import sampled

ENDINGS = (".pcap", ".pcapng", ".cap", ".gz", ".zst", ".lz4")
PATTERN = "captures/**/*"
FILES = [path for path in corpora.committed(PATTERN) if path.suffix in ENDINGS]
AT_LEAST = 300
STACKS: dict[str, dict[str, Any]] = json.loads(corpora.path("captures/stacks/truth.json").read_text(encoding="utf-8"))

TRUE_ERRORS: dict[str, set[str]] = {
    # A test suite of the protocol: a wrong protocol name, an empty identifier without a clean session, a second
    # CONNECT, and a client that sleeps past its Keep Alive.
    "live/paho-suite-v311.pcap": {"CON101", "CON106", "CON212", "KAL201"},
    # Test cases of an intrusion detection system for what they are named after.
    "suricata-verify/mqtt-events-invalid-qos.pcap": {"PUB101"},
    "suricata-verify/mqtt-events-unassigned-msgtype.pcap": {"HDR101"},
    # A Payload Format Indicator of 144 and of 88, where the standard allows 0 and 1.
    # The server accepts both.
    "suricata-verify/mqtt5-pub-mosquittoprops.pcap": {"ERR501", "PRP106"},
    "suricata-verify/mqtt5-sub-mosquittoprops.pcap": {"ERR501", "PRP106"},
    # Made up: the server acknowledges on the level of TCP alone.
    "arkime/mqtt_synthetic.pcap": {"CON527"},
    # What breaks in them on purpose: damaged packets with secrets, and packets of a fuzzer under a clock that is set.
    "trials/sec.pcap": {
        "CON101", "CON102", "CON103", "CON104", "CON105", "CON212", "CON220", "CON529", "ENC101", "ERR501",
        "PRP104", "WSK203",
    },
    "trials/time-jumps-back.pcap": {"ALS101", "ENC101", "ENC102", "PUB101", "PUB103"},
    # One client breaks a rule on purpose, and test_stacks.py says which.
    **{f"stacks/{name}": set(row["findings"]) for name, row in STACKS.items() if "keys" not in row},
}  # fmt: skip
DERIVED: dict[str, set[str]] = {"derived/suricata-mqtt5-props/": {"ERR501", "PRP106"}}
"""Damaged and repackaged forms of captures that have true errors: at most these."""


def judged(paths: list[Path]) -> list[Path]:
    """Captures whose errors are known: all but those of reported faults."""
    return [path for path in paths if path.suffix in ENDINGS and not corpora.relative(path).startswith("field/")]


def errors(path: Path) -> set[str]:
    linter = Linter(map(usual_rule, select().values()), strict=True)
    counts = Counter(
        finding.rule
        for event in dissect(open_capture([str(path)]))
        for finding in linter.feed(event)
        if finding.severity is Severity.ERROR
    )
    return set(counts)


def test_there_are_captures() -> None:
    assert len(FILES) >= AT_LEAST


@sampled(
    "path",
    [*FILES, *corpora.cases(corpora.INDEX, judged(corpora.further(PATTERN)))],
    ids=corpora.relative,
)
def test_there_are_no_errors_but_the_true_ones(path: Path) -> None:
    name = corpora.relative(path)
    allowed = next((rules for prefix, rules in DERIVED.items() if name.startswith(prefix)), None)

    if allowed is None:
        assert errors(path) == TRUE_ERRORS.get(name, set())
    else:
        assert errors(path) <= allowed

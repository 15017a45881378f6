"""Lakes as a program makes them: the tables of the command, and what an ingest says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import tools

tools.package("pyarrow", "deltalake")

import mqttscope
from mqttscope.lake.schemas import EVENT_TABLES
from mqttscope.lake.writer import read_table
from mqttscope.lint.context import RuleContext
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.rule import Findings as Reports
from mqttscope.lint.rule import Rule
from mqttscope.mqtt.packets import Publish
from tests.cli.running import capture, invoke

QOS, VIOLATIONS = capture("v5-qos"), capture("planted-violations")


def test_the_lake_is_that_of_the_command(tmp_path: Path) -> None:
    by_command, by_library = tmp_path / "command", tmp_path / "library"
    result = invoke("pipeline", "ingest", QOS.parent, VIOLATIONS, "--lake", by_command, "--no-config")
    assert result.code == 0

    done = mqttscope.lake.ingest(QOS.parent, str(VIOLATIONS), lake=by_library)

    for name in EVENT_TABLES:
        assert read_table(by_library, name).equals(read_table(by_command, name)), name
    assert done.captures == [str(QOS), str(VIOLATIONS)] or done.captures == [str(VIOLATIONS), str(QOS)]
    assert done.rows == {name: n for name in EVENT_TABLES if (n := read_table(by_library, name).num_rows)}
    assert sum(done.findings.values()) == done.rows["findings"] > 0
    assert (done.generation, done.known, done.errors) == (1, [], [])


def test_what_is_in_is_not_read_again(tmp_path: Path) -> None:
    mqttscope.lake.ingest(QOS, lake=tmp_path / "lake")
    again = mqttscope.lake.ingest(QOS, lake=tmp_path / "lake")
    assert (again.captures, again.known, again.generation) == ([], [str(QOS)], 1)
    more = mqttscope.lake.ingest(VIOLATIONS, lake=tmp_path / "lake")
    assert (more.captures, more.generation) == ([str(VIOLATIONS)], 2)
    with pytest.raises(mqttscope.lake.LakeError, match="written with other options"):
        mqttscope.lake.ingest(capture("v5-topic-alias-client"), lake=tmp_path / "lake", payload_limit=10)


@dataclass
class Seen:
    """What a rule remembers."""

    packets: int = 0


class ThirdPublish(Rule):
    """A client publishes a third time.

    Instead, publish twice.
    """

    code = "OWN201"
    severity = Severity.WARNING
    confidence = Confidence.CERTAIN
    looks_at = Publish
    Memory = Seen

    def check(self, packet: Publish, at: RuleContext) -> Reports:
        memory: Seen = at.memory(self)
        memory.packets += 1
        return self.report("topic_name", "the third") if memory.packets == 3 else None


def test_rules_are_chosen_as_for_lint(tmp_path: Path) -> None:
    # Its connection is open at the end, so that what the rule remembers is written down.
    mqttscope.lake.ingest(VIOLATIONS, lake=tmp_path / "lake", select=["PUB101", "OWN"], rules=[ThirdPublish])
    wanted = mqttscope.lint(VIOLATIONS, select=["PUB101", "OWN"], rules=[ThirdPublish])
    with mqttscope.lake.open(tmp_path / "lake") as lake:
        pairs = sorted((finding["rule"], finding["frame"]) for finding in lake.findings)
    assert pairs == sorted((finding.rule, finding.frame) for finding in wanted)
    assert {rule for rule, _ in pairs} == {"PUB101", "OWN201"}

    silent = mqttscope.lake.ingest(VIOLATIONS, lake=tmp_path / "silent", ignore="ALL")
    assert silent.findings == {}


class Failing(Rule):
    """A rule fails.

    Instead, find something.
    """

    code = "OWN202"
    severity = Severity.WARNING
    looks_at = Publish

    def check(self, packet: Publish, at: RuleContext) -> Reports:
        raise ZeroDivisionError("of the rule")


def test_rules_that_fail_are_named(tmp_path: Path) -> None:
    done = mqttscope.lake.ingest(QOS, lake=tmp_path / "lake", select=["OWN"], rules=[Failing, ThirdPublish])
    wanted = mqttscope.lint(QOS, select=["OWN"], rules=[Failing, ThirdPublish])
    assert done.failed == wanted.failed
    assert "ZeroDivisionError: of the rule" in done.failed["OWN202"]
    assert sum(done.findings.values()) == len(wanted) > 0
    again = mqttscope.lake.ingest(QOS, lake=tmp_path / "lake", select=["OWN"], rules=[Failing, ThirdPublish])
    assert again.failed == {}  # nothing was judged


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcapng"
    cut.write_bytes(QOS.read_bytes()[:-37])
    done = mqttscope.lake.ingest(cut, VIOLATIONS, lake=tmp_path / "lake")
    (error,) = done.errors
    assert error.capture == str(cut)
    assert error.frames > 0
    again = mqttscope.lake.ingest(cut, lake=tmp_path / "lake")
    assert again.errors == [error]


def test_what_cannot_be_meant_changes_nothing(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for error, text, names, more in (
        (mqttscope.CaptureNotFoundError, "nope.pcap does not exist", ["nope.pcap"], {}),
        (mqttscope.CaptureNotFoundError, "nope.pcap does not exist", ["nope.pcap", QOS], {}),
        (mqttscope.CaptureNotFoundError, "without captures", [tmp_path], {}),
        (mqttscope.CaptureNotFoundError, "cannot be opened", ["no-such-store://bucket/a.pcap"], {}),
        (mqttscope.UnknownRuleError, "did you mean PUB101", [QOS], {"select": "PUB1011"}),
        (mqttscope.lake.LakeError, "is not a folder", [QOS], {"lake": QOS}),
        (TypeError, "at least one capture", [], {}),
    ):
        with pytest.raises(error, match=text):
            mqttscope.lake.ingest(*names, **{"lake": lake, **more})  # type: ignore[arg-type]
        assert not lake.exists(), text

"""The formats by name, of which none gets a secret: one that writes all that it can get is no leak."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import fields, replace
from types import ModuleType
from typing import Any

import pytest

from mqttscope.cli.options import FINDING_FORMATS
from mqttscope.dissect import dissect_segments
from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.lint import grouping
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding, Severity
from mqttscope.lint.gate import Suppression
from mqttscope.report.base import Sink, View
from mqttscope.report.findings import shown
from mqttscope.report.findings.base import RunSummary
from mqttscope.report.findings.shown import FORMATS, STREAMED, ShownFinding
from mqttscope.report.style import Painter
from mqttscope.secrets.findings import HidingOptions
from tests.cli.running import environment
from tests.conftest import ROOT
from tests.each import each, some
from tests.report.findings.samples import CONNECT, HOSTILE, IN_BASELINE, MADE, SECRET, clean, many, summary, written
from tests.report.test_harmless import ANSI, check
from tests.secrets.leaks import Secrets
from tests.secrets.mutants import Mutant, mutant
from tests.secrets.sinks import READING, Text, rules
from tests.secrets.splices import splice
from tests.secrets.test_fuzz import says


class Forgetful:
    """A format that hides nothing: it writes everything of a finding, of its packet and of the end."""

    def __init__(self, sink: Sink, view: View) -> None:
        self.sink = sink

    def feed(self, shown: ShownFinding, suppressed: Suppression | None = None) -> None:
        """Write it all."""
        for name in (text for text in dir(ShownFinding) if not text.startswith("_")):
            self._write(getattr(shown, name))
        self._write(shown.repeats(Painter(View(width=0))))
        self._write({name: value for name, value in vars(shown).items() if not name.startswith("_")})
        self._write([getattr(shown.finding, field.name) for field in fields(Finding)])
        event = shown.event
        if event is not None:
            packet = event.malformed if isinstance(event, MalformedEvent) else event.packet
            self._write([event, packet, packet.raw])
        self._write((shown, suppressed))

    def close(self, summary: RunSummary) -> None:
        """Write that as well."""
        self._write(summary)

    def _write(self, value: Any) -> None:
        self.sink.write(repr(value).encode("utf-8", "surrogateescape") + b"\n")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("mqttscope.report.findings.forgetful")
    module.Forgetful = Forgetful  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(shown.FORMATS, "forgetful", ("forgetful", "Forgetful"))


def told(new_mutant: Mutant) -> bytes:
    linter, sink = Linter(rules()), Text()
    reporter = shown.make_reporter("forgetful", sink, View())
    for event in dissect_segments(new_mutant.segments, READING):
        for finding in linter.feed(event):
            reporter.feed(finding)
    reporter.close(clean())
    return sink.whole()


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(("kind", "count"), some([(mutant, 80), (splice, 20)], several=True))
def test_a_format_cannot_leak(kind: Any, count: int) -> None:
    texts, findings = [], 0
    for seed in range(count):
        result = kind(seed)
        secrets, written = Secrets(result.scene.secrets), told(result)
        findings += written.count(b"ShownFinding(Finding(")
        leak = secrets.leak(written)
        if leak is not None and not says(result, secrets):
            texts.append(f"{leak} of {result.name}")
    assert texts == []
    assert findings > 2 * count


@pytest.mark.usefixtures("registered")
def test_it_would_leak_what_is_shown_on_request() -> None:
    sink = Text()
    for show in (False, True):
        reporter = shown.make_reporter("forgetful", sink, View(show_secrets=show))
        reporter.feed(MADE)
        reporter.close(clean())
        assert (Secrets([SECRET]).leak(sink.whole()) is not None) is show


def test_names_that_are_hidden_are_counted_all_the_same() -> None:
    keys = ["AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLF"]
    finding, other = (ShownFinding(Finding(**{**_values(), "client_identifier": key}), HidingOptions()) for key in keys)

    assert finding.finding.client_identifier == other.finding.client_identifier
    assert finding.client_key != other.client_key


def test_a_finding_is_concealed_when_a_format_asks_and_once() -> None:
    shown = ShownFinding(MADE, HidingOptions())

    assert shown.size == len(CONNECT)
    assert shown.finding is shown.finding
    assert shown.event is shown.event
    assert isinstance(shown.event, PacketEvent)
    assert shown.event.packet.raw == shown.finding.raw
    assert shown.finding.raw.endswith(b"*" * 14)


def _values() -> dict[str, Any]:
    return {field.name: getattr(MADE, field.name) for field in fields(Finding)}


TIMES = "from 2026-01-02T03:04:05.000Z to 2026-01-02T03:04:07.000Z, last in frame 300"


def later(frame: int, seconds: int, **changes: Any) -> Finding:
    return replace(MADE, frame=frame, timestamp_ns=MADE.timestamp_ns + seconds * 1_000_000_000, **changes)


def test_findings_of_one_cause_are_one_line_at_the_place_of_the_first() -> None:
    other = replace(MADE, rule="ENC101", message="something else")
    lines = written("concise", [MADE, other, later(300, 2, message="worse"), later(200, 1)]).splitlines()

    assert [line.partition(" (dev1): ")[2].partition(" [")[0] for line in lines[:-1]] == [
        "CON212 Password without User Name",
        "ENC101 something else",
    ]
    assert lines[0].endswith(f" (3 times {TIMES})")
    assert " times " not in lines[1]


def test_the_fault_of_a_server_is_one_finding_with_some_of_its_clients() -> None:
    by_server = [later(300, 2 * (n > 0), direction="server_to_client", client_identifier=f"dev{n}") for n in range(900)]
    by_client = [replace(finding, direction="client_to_server") for finding in by_server]

    (line, _) = written("concise", by_server).splitlines()
    assert line.endswith(f"(900 times {TIMES}, 900 clients: 'dev0', 'dev1', 'dev2' and 897 more)")
    assert len(written("concise", by_client).splitlines()) == 901


def test_every_finding_where_that_is_asked_for_and_in_formats_for_programs() -> None:
    assert len(written("concise", [MADE] * 3, every=True).splitlines()) == 4
    assert len(written("jsonl", [MADE] * 3).splitlines()) == 3
    assert len(json.loads(written("json", [MADE] * 3))["findings"]) == 3


def test_both_numbers_are_told() -> None:
    end = clean(counts=Counter({Severity.ERROR: 41}), failing=Counter({Severity.ERROR: 40}))
    findings = [later(n, 0, client_identifier=f"dev{n % 3}") for n in range(41)]

    assert (
        written("concise", findings, end).splitlines()[-1].startswith("3 errors (41 occurrences, 40 fail the run) by ")
    )
    assert written("concise", findings, end, every=True).splitlines()[-1].startswith("41 errors (40 fail the run) by ")


def test_what_the_baseline_knows_is_told_apart_from_what_is_new() -> None:
    results = json.loads(written("sarif", [MADE, (MADE, IN_BASELINE), (MADE, IN_BASELINE)]))["runs"][0]["results"]

    assert [(result["occurrenceCount"], "suppressions" in result) for result in results] == [(1, False), (2, True)]
    (line, _) = written("concise", [(MADE, IN_BASELINE), MADE]).splitlines()
    assert " times " not in line


@pytest.mark.parametrize("name", STREAMED)
def test_live_the_first_comes_at_once_and_the_sums_at_the_end(name: str) -> None:
    sink = Text()
    reporter = shown.make_reporter(name, sink, View(width=0), live=True)
    reporter.feed(MADE)
    assert b"Password without User Name" in sink.whole()
    for frame in (200, 300):
        assert reporter.is_new(MADE) is (name == "jsonl")
        reporter.feed(later(frame, 2))
    reporter.feed(replace(MADE, client_identifier="dev2"))
    before = sink.whole()
    reporter.close(clean())
    end = sink.whole()[len(before) :].decode()

    assert before.count(b"Password without User Name") == (4 if name == "jsonl" else 2)
    assert end.count(f"3 times {TIMES}") == (name != "jsonl")
    assert " 1 times" not in end


def test_the_oldest_cause_makes_room_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "MAX_GROUPS", 2)
    findings = [replace(MADE, client_identifier=name) for name in "aabbccaa"]
    lines = written("concise", findings).splitlines()[:-1]

    assert [line.partition(" (")[2][0] for line in lines] == ["a", "b", "c", "a"]
    assert all("(2 times " in line for line in lines)
    live = written("concise", findings, live=True).splitlines()[:-1]
    assert [" again: " in line for line in live] == [False, False, False, True, False, True, True, True]


def test_the_command_offers_these_formats() -> None:
    assert tuple(FORMATS) == FINDING_FORMATS


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_takes_every_finding(name: str) -> None:
    text = written(name, many(), summary())

    assert text.endswith("\n")
    assert "CON212" in text


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_can_be_without_findings(name: str) -> None:
    assert name == "jsonl" or written(name, [])


def test_a_format_is_imported_when_it_is_used() -> None:
    script = "import sys, mqttscope.report.findings.shown; print('mqttscope.report.findings.sarif' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, env=environment(), cwd=ROOT, timeout=60, check=False,
    )  # fmt: skip

    assert done.stdout == "False\n"


RANKED: dict[str, Any] = {"ranked": True}
SHOWN: list[tuple[str, dict[str, Any]]] = [("concise", {}), ("full", {}), ("full", RANKED), ("github", {})]
"""Formats for people that show findings, and their options."""


@each("name, options", SHOWN)
def test_suppressed_findings_are_not_shown(name: str, options: dict[str, Any]) -> None:
    mild = [replace(MADE, severity=severity) for severity in Severity]
    text = written(name, [(finding, IN_BASELINE) for finding in mild], **options)

    assert text.endswith("no findings by 3 rules\n")
    assert text.count("\n") == 1


@each("colour", [False, True])
@each("unicode", [False, True])
@each("width", [0, 40, 60, 80, 200])
@each("name, options", [*SHOWN[:3], ("full", {"verbose": True, **RANKED})])
def test_lines_fit_and_are_harmless(
    name: str, options: dict[str, Any], width: int, *, unicode: bool, colour: bool
) -> None:
    mild = [replace(HOSTILE, severity=severity) for severity in (Severity.INFO, Severity.WARNING)]
    view = {"width": width, "unicode": unicode, "colour": colour}

    check(written(name, [*many(), *mild], summary(), **view, **options).split("\n"), width, unicode=unicode)


@each("name, options", SHOWN[:2])
def test_colour_changes_nothing_but_colour(name: str, options: dict[str, Any]) -> None:
    plain = written(name, many(), summary(), width=80, **options)
    colour = written(name, many(), summary(), width=80, colour=True, **options)

    assert plain != colour
    assert ANSI.sub("", colour) == plain

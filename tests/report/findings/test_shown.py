"""The formats by name, of which none gets a secret: one that writes all that it can get is no leak."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from types import ModuleType
from typing import Any

import pytest

from mqttscope.cli.options import FINDING_FORMATS
from mqttscope.dissect import dissect_segments
from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding
from mqttscope.lint.gate import Suppression
from mqttscope.redact.findings import Hiding
from mqttscope.report.base import Sink, View
from mqttscope.report.findings import shown
from mqttscope.report.findings.base import Summary
from mqttscope.report.findings.shown import FORMATS, ShownFinding
from tests.cli.running import environment
from tests.conftest import ROOT
from tests.redact.leaks import Secrets
from tests.redact.mutants import Mutant, mutant
from tests.redact.sinks import READING, Text, rules
from tests.redact.splices import splice
from tests.redact.test_fuzz import says
from tests.report.findings.samples import CONNECT, MADE, SECRET, clean, many, summary, written


class Forgetful:
    """A format that hides nothing: it writes everything of a finding, of its packet and of the end."""

    def __init__(self, sink: Sink, view: View) -> None:
        self.sink = sink

    def feed(self, shown: ShownFinding, suppressed: Suppression | None = None) -> None:
        """Write it all."""
        for name in (one for one in dir(ShownFinding) if not one.startswith("_")):
            self._write(getattr(shown, name))
        self._write({name: value for name, value in vars(shown).items() if not name.startswith("_")})
        self._write([getattr(shown.finding, one.name) for one in fields(Finding)])
        event = shown.event
        if event is not None:
            found = event.malformed if isinstance(event, MalformedEvent) else event.packet
            self._write([event, found, found.raw])
        self._write((shown, suppressed))

    def close(self, summary: Summary) -> None:
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


def told(made: Mutant) -> bytes:
    linter, sink = Linter(rules()), Text()
    reporter = shown.make_reporter("forgetful", sink, View())
    for event in dissect_segments(made.segments, READING):
        for finding in linter.feed(event):
            reporter.feed(finding)
    reporter.close(clean())
    return sink.whole()


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(("kind", "count"), [(mutant, 80), (splice, 20)])
def test_a_format_cannot_leak(kind: Any, count: int) -> None:
    found, findings = [], 0
    for seed in range(count):
        made = kind(seed)
        secrets, written = Secrets(made.scene.secrets), told(made)
        findings += written.count(b"ShownFinding(Finding(")
        leak = secrets.leak(written)
        if leak is not None and not says(made, secrets):
            found.append(f"{leak} of {made.name}")
    assert found == []
    assert findings > 2 * count


@pytest.mark.usefixtures("registered")
def test_it_would_leak_what_is_shown_on_request() -> None:
    sink = Text()
    for show in (False, True):
        reporter = shown.make_reporter("forgetful", sink, View(show_secrets=show))
        reporter.feed(MADE)
        assert (Secrets([SECRET]).leak(sink.whole()) is not None) is show


def test_names_that_are_hidden_are_counted_all_the_same() -> None:
    keys = ["AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLF"]
    one, other = (ShownFinding(Finding(**{**_values(), "client_identifier": key}), Hiding()) for key in keys)

    assert one.finding.client_identifier == other.finding.client_identifier
    assert one.client_key != other.client_key


def test_a_finding_is_concealed_when_a_format_asks_and_once() -> None:
    shown = ShownFinding(MADE, Hiding())

    assert shown.size == len(CONNECT)
    assert shown.finding is shown.finding
    assert shown.event is shown.event
    assert isinstance(shown.event, PacketEvent)
    assert shown.event.packet.raw == shown.finding.raw
    assert shown.finding.raw.endswith(b"*" * 14)


def _values() -> dict[str, Any]:
    return {one.name: getattr(MADE, one.name) for one in fields(Finding)}


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

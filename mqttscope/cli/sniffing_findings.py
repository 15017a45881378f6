"""Linting while frames come: findings among the packets, into files, and what they make of the exit code."""

from __future__ import annotations

from functools import partial
from typing import Any

from mqttscope.cli.linting import read_baseline
from mqttscope.cli.linting_settings import Settings
from mqttscope.cli.output import FileSink, Output, warn
from mqttscope.events import Event, MalformedEvent, PacketEvent
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Confidence, Finding
from mqttscope.lint.gate import Gate, Verdict
from mqttscope.lint.rule import Needs
from mqttscope.mqtt.wire import counted as number_of
from mqttscope.net.frame import CaptureDrops
from mqttscope.report.base import View
from mqttscope.report.findings.base import Summary, counted
from mqttscope.report.findings.conceal import client_name
from mqttscope.report.findings.registry import make_reporter

MAX_HELD_FINDINGS = 10_000
"""Findings that go into a format which is written at the end; the rest of them is counted."""
_HELD = ("json", "sarif", "junit", "gitlab", "markdown")
MAX_ERRORS_TOLD = 3


class Findings:
    """The linter and where its findings go."""

    def __init__(self, settings: Settings, view: View, *, jsonl: bool, forms: bool) -> None:
        self.settings = settings
        self.view = view
        self.linter = Linter(settings.rules)
        self.gate = Gate(
            settings.policy(),
            read_baseline(settings.baseline),
            rules=settings.rules,
            name=partial(client_name, view=view),
        )
        self.packets = 0
        self.doubtful = 0
        """Findings among those that count only while the capture is whole."""
        self.dropped = 0
        """Frames that the kernel dropped, as far as it was told."""
        self.not_held = 0
        """Findings beyond `MAX_HELD_FINDINGS`."""
        self._needing = {rule.code for rule in settings.rules if rule.needs & Needs.WHOLE}
        self._told = 0
        self._shown: Any = None
        self._form = "jsonl" if jsonl and not forms else settings.format
        view.secret_length = settings.secret_length
        plain = View(width=0, payload_limit=256, secret_length=view.secret_length)
        self._files: list[FileSink] = []
        self._reporters: list[tuple[bool, Any]] = []
        outputs = (*([(settings.format, settings.output)] if settings.output else ()), *settings.more)
        for name, path in outputs:
            sink = FileSink(path)
            self._files.append(sink)
            made = make_reporter(name, sink, plain, counts=settings.policy().breaks)
            self._reporters.append((name in _HELD, made))
        if not settings.rules:
            warn("no rule is selected, so that nothing can be found")

    def show_in(self, sink: Output) -> None:
        """Show findings among the packets as well, unless they have a file of their own."""
        if self.settings.output is None:
            self._shown = make_reporter(self._form, sink, self.view, counts=self.settings.policy().breaks)

    def feed(self, event: Event) -> list[Finding]:
        """Lint an event; its findings are to be taken once the packet was shown."""
        if isinstance(event, CaptureDrops):
            self.dropped += event.dropped
        elif isinstance(event, PacketEvent | MalformedEvent):
            self.packets += 1
        return self.linter.feed(event)

    def take(self, finding: Finding) -> Verdict:
        """Count and show a finding; what becomes of it."""
        verdict = self.gate.judge(finding)
        if verdict.counts and not verdict.repeated:
            self.doubtful += finding.confidence is Confidence.CERTAIN and finding.rule in self._needing
        if verdict.shown:
            self._show(finding, verdict)
        return verdict

    def _show(self, finding: Finding, verdict: Verdict) -> None:
        self._told += 1
        full = self._told > MAX_HELD_FINDINGS
        for held, reporter in self._reporters:
            if held and full:
                self.not_held += 1
            else:
                reporter.feed(finding, verdict.suppression)
        if self._shown is not None:
            self._shown.feed(finding, verdict.suppression)

    def flush(self) -> None:
        """Write what was found so far to the files."""
        for sink in self._files:
            sink.flush()

    @property
    def failed(self) -> bool:
        """Whether the findings make the run fail.

        dumpcap tells at its end what the kernel dropped.  Had that been known, findings that need every frame would
        have been likely only, as they are in files that say so.
        """
        counting = self.gate.failing.total()
        if self.dropped and self.settings.fail_confidence is Confidence.CERTAIN:
            counting -= self.doubtful
        return counting > 0 and not self.settings.exit_zero

    def close(self, capture: str, *, truncated: bool) -> None:
        """Write the end of every report."""
        linter, gate = self.linter, self.gate
        for finding, verdict in gate.summed_up():
            self._show(finding, verdict)
        summary = Summary(
            rules=linter.rules,
            captures=[capture],
            counts=gate.counts,
            failing=gate.failing,
            hidden=gate.hidden,
            hidden_failing=gate.hidden_failing,
            suppressed=gate.suppressed,
            packets=self.packets,
            spoken={capture} if self.packets else set(),
            nothing="" if self.packets else "nothing to judge: no MQTT packet was captured",
            withheld=linter.withheld,
            quality=linter.quality,
            internal_errors=linter.internal_errors,
            profile=self.settings.profile,
            truncated=truncated,
            fail_on=self.settings.fail_on,
            fail_confidence=self.settings.fail_confidence,
        )
        shown = [] if self._shown is None else [self._shown]
        for reporter in (*(one for _, one in self._reporters), *shown):
            reporter.close(summary)
        for sink in self._files:
            sink.close()

    def told(self) -> list[str]:
        """What standard error has to say."""
        said = [f"linted: {counted(self.gate.counts, self.gate.failing, self.settings.fail_on)}"]
        if self.dropped and self.doubtful:
            said.append(
                "frames were dropped, which dumpcap reported only at its end: findings that need every frame are"
                f" likely, not certain ({number_of(self.doubtful, 'finding')})"
            )
        if self.linter.forgotten_keys:
            said.append(f"limit: {self.linter.forgotten_keys:,} sessions were forgotten by the linter to make room")
        if self.not_held:
            said.append(
                f"limit: {self.not_held:,} findings were left out of reports that are written at the end, which hold"
                f" {MAX_HELD_FINDINGS:,}"
            )
        said += [
            f"internal error in {error.rule}: frame {error.frame}: {error.error}"
            for error in self.linter.internal_errors[:MAX_ERRORS_TOLD]
        ]
        failures = sum(self.linter.failures.values())
        if failures:
            said.append(
                f"rules failed {failures:,} times: this is a bug in mqttscope, and the findings are not complete"
            )
        return said

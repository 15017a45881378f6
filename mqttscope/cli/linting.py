"""One run of the linter: captures in, reports out, and the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from mqttscope.cli import advice
from mqttscope.cli.linting_settings import Settings
from mqttscope.cli.main import EXIT_CLEAN, EXIT_FINDINGS, EXIT_UNREADABLE
from mqttscope.cli.output import CannotWrite, Output, Watch, awaited, make_view, warn
from mqttscope.cli.reading import Reading
from mqttscope.cli.targets import FileSink, refuse_inputs
from mqttscope.dissect import Dissector, dissect_segments
from mqttscope.events import ConnectionClosed, Event
from mqttscope.lint.baseline import Baseline, BaselineError, client_key
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding, Severity
from mqttscope.lint.suppress import Suppression
from mqttscope.report.base import Sink, View
from mqttscope.report.findings.base import Summary
from mqttscope.report.findings.registry import make_reporter
from mqttscope.report.findings.statistics import make_statistics

IN_BASELINE = Suppression("baseline", "in the baseline")
MAX_CLIENTS = 100_000
"""Clients that are remembered to tell what was fixed since the baseline."""


class Run:
    """Settings at work."""

    def __init__(
        self,
        settings: Settings,
        reading: Reading,
        *,
        update_baseline: bool,
        statistics: bool,
        colour: bool | None,
        sink: Sink | None = None,
    ) -> None:
        """``sink`` takes the place of standard output."""
        self.settings = settings
        self.reading = reading
        self.captures = reading.captures
        self.update_baseline = update_baseline
        self.baseline = read_baseline(settings.baseline, may_be_new=update_baseline)
        self.made = Baseline()
        self.linter = Linter(settings.rules)
        settings.options.decrypting = reading.decrypting
        self.dissector = Dissector(settings.options)
        self.watch = Watch(progress=True)
        self.clients: set[str] = set()
        self.counts: Counter[Severity] = Counter()
        self.suppressed: Counter[str] = Counter()
        self.failing = 0
        self.files: list[FileSink] = []
        self.stdout: Output | None = None
        self.sink = sink
        self.closed = False
        """The reports are written: what a thread finds that could not be waited for comes too late."""
        self.reporters = self._reporters(statistics, colour)

    def execute(self) -> int:
        """Lint the captures; returns the exit code."""
        try:
            self._judge()
        finally:
            # What was found before Ctrl-C is worth more than nothing.
            self.close()
        if self.update_baseline:
            self._write_baseline()
        self._tell()
        if self.watch.errors or self.linter.internal_errors:
            return EXIT_UNREADABLE
        failed = self.failing and not self.settings.exit_zero and not self.update_baseline
        return EXIT_FINDINGS if failed else EXIT_CLEAN

    def _judge(self) -> None:
        """Read the captures, take what is found."""
        self._feed(self._events())

    def feed(self, event: Event) -> None:
        """Lint one event of a run that others drive."""
        self._feed((event,))

    def _events(self) -> Iterable[Event]:
        segments = self.reading.segments(self.watch.skipped)
        return self.watch.events(dissect_segments(segments, dissector=self.dissector))

    def _feed(self, events: Iterable[Event]) -> None:
        feed = self.linter.feed
        for event in events:
            for finding in feed(event):
                self._take(finding)
            if type(event) is ConnectionClosed and len(self.clients) < MAX_CLIENTS:
                connection = event.connection
                self.clients.add(client_key(connection.client_identifier))
                if connection.connect_packet != 0:
                    self.clients.add(client_key(None))

    def _take(self, finding: Finding) -> None:
        if self.closed:
            return
        settings = self.settings
        # Whatever else hides it, what came again was not fixed.
        known = self.baseline.knows(finding)
        if finding.confidence.rank < settings.min_confidence.rank:
            if known and self.update_baseline:
                self.made.add(finding)
            return
        suppression = settings.suppressions.find(finding)
        if suppression is None:
            if self.update_baseline:
                self.made.add(finding)
            if known:
                suppression = IN_BASELINE
        if suppression is not None:
            self.suppressed[suppression.kind] += 1
        else:
            self.counts[finding.severity] += 1
            self.failing += (
                finding.severity.rank >= settings.fail_on.rank
                and finding.confidence.rank >= settings.fail_confidence.rank
            )
        for reporter in self.reporters:
            reporter.feed(finding, suppression)

    def _complete(self) -> set[str]:
        """Codes of the rules that could find all there was: none where a capture could not be read to its end."""
        linter = self.linter
        if self.watch.errors:
            return set()
        return {rule.code for rule in linter.rules} - linter.withheld.keys() - linter.failures.keys()

    def close(self) -> None:
        """Write what the reports still have to say."""
        self.closed = True
        try:
            self._close()
        finally:
            for file in self.files:
                file.close()

    def _close(self) -> None:
        linter = self.linter
        summary = Summary(
            rules=linter.rules,
            captures=list(self.captures),
            counts=self.counts,
            suppressed=self.suppressed,
            withheld=linter.withheld,
            quality=linter.quality,
            internal_errors=linter.internal_errors,
            fixed=self.baseline.fixed(self._complete(), self.clients),
            profile=self.settings.profile,
            truncated=bool(self.watch.errors),
            fail_on=self.settings.fail_on,
            fail_confidence=self.settings.fail_confidence,
        )
        for reporter in self.reporters:
            reporter.close(summary)
        if self.stdout is not None:
            self.stdout.flush()

    def _reporters(self, statistics: bool, colour: bool | None) -> list[Any]:
        settings = self.settings
        length = settings.secret_length
        plain = View(width=0, payload_limit=256, secret_length=length)
        made: list[Any] = []
        if settings.output is None:
            view = make_view(colour=colour, time_format="iso", payload="auto", payload_limit=256, show_secrets=False)
            view.secret_length = length
            make = make_statistics if statistics else make_reporter
            shown = self.sink
            if shown is None:
                # The exit code is that of the findings, also when the reader has seen enough.
                shown = self.stdout = Output(immediate=awaited(self.captures), goes_on=True)
            made.append(make(settings.format, shown, view))
        outputs = (*([(settings.format, settings.output)] if settings.output else ()), *settings.more)
        for _, path in outputs:
            refuse_inputs(path, self.captures, settings.inputs())
        for name, path in outputs:
            sink = FileSink(path, self.captures)
            self.files.append(sink)
            counted = statistics and path == settings.output
            made.append((make_statistics if counted else make_reporter)(name, sink, plain))
        return made

    def _write_baseline(self) -> None:
        path = self.settings.baseline
        assert path is not None
        if self.watch.errors:
            warn(f"baseline {path}: not written, since a capture could not be read to its end")
            return
        made = self.baseline.updated(self.made, self._complete(), self.clients)
        new = len(made.entries.keys() - self.baseline.entries.keys())
        gone = len(self.baseline.entries.keys() - made.entries.keys())
        kept = len(made.entries.keys() - self.made.entries.keys())
        try:
            path.write_text(made.dumps(), "utf-8")
        except OSError as error:
            raise CannotWrite(f"cannot write {path}: {error.strerror or error}") from None
        unseen = f"; {kept:,} kept, whose rules or clients were not looked at" if kept else ""
        warn(f"baseline {path}: {len(made.entries):,} kinds of findings, {new:,} new, {gone:,} gone{unseen}")

    def _tell(self) -> None:
        """What standard error has to say, whatever the format."""
        if not self.dissector.connections and not self.watch.errors:
            warn(advice.nothing_found(self.dissector))
        snapped = advice.snap_length(self.dissector, self.watch.skipped)
        unread = advice.not_read(self.dissector, self.watch.skipped, via=self.reading.via)
        for told in filter(None, (*advice.named_otherwise(self.dissector), snapped, self.reading.advice(), unread)):
            warn(told)
        self.tell_rules()

    def tell_rules(self) -> None:
        """What standard error has to say of suppressions and of rules that failed."""
        for pattern in self.settings.suppressions.expired():
            warn(f"{pattern.written}: the suppression expired on {pattern.expires}; its findings count again")
        for error in self.linter.internal_errors[:3]:
            warn(f"internal error in {error.rule}: {error.capture}, frame {error.frame}: {error.error}")
        failures = sum(self.linter.failures.values())
        if failures:
            warn(f"rules failed {failures:,} times: this is a bug in mqttscope, and the findings are not complete")


def read_baseline(path: Path | None, *, may_be_new: bool = False) -> Baseline:
    """The baseline of a file; a usage error when it cannot be read."""
    if path is None or (may_be_new and not path.exists()):
        return Baseline()
    try:
        return Baseline.loads(path.read_text("utf-8"))
    except OSError as error:
        hint = "; --update-baseline makes it" if isinstance(error, FileNotFoundError) else ""
        raise click.UsageError(f"baseline {path}: {error.strerror or error}{hint}") from None
    except (BaselineError, UnicodeDecodeError) as error:
        raise click.UsageError(f"baseline {path}: {error}") from None

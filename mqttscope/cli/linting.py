"""Runs of the linter: captures in, reports out, and the exit code; or while frames come, findings among packets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mqttscope.capture.files import STDIN, find_captures
from mqttscope.capture.write import write_file
from mqttscope.cli import advice, output
from mqttscope.cli.errors import ErrorTranslation
from mqttscope.cli.linting_settings import Settings
from mqttscope.cli.main import EXIT_CLEAN, EXIT_FINDINGS, EXIT_UNREADABLE
from mqttscope.cli.own_rules import refuse_on_spark
from mqttscope.cli.reading import Reading
from mqttscope.dissect import FastPath, dissect_segments
from mqttscope.events import ClockStep, ConnectionClosed, Event, MalformedEvent, PacketEvent
from mqttscope.lint.context import WIDE
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Confidence, Finding, Severity
from mqttscope.lint.gate import Baseline, BaselineError, Gate, Selection, Verdict, client_key
from mqttscope.lint.quality import QualityLevel, Shortfall, is_whole_packet
from mqttscope.lint.rule import Needs
from mqttscope.mqtt.wire import counted
from mqttscope.net.frame import CaptureDrops, CaptureError, CaptureNotice
from mqttscope.report.base import Sink, View
from mqttscope.report.findings.base import Summary, covers, no_packet_in, shortfall_sentences, too_little
from mqttscope.report.findings.base import counted as count_findings
from mqttscope.report.findings.shown import Entrance, make_reporter
from mqttscope.secrets.addresses import public_name
from mqttscope.secrets.findings import Hiding, client_name

if TYPE_CHECKING:
    from mqttscope.lake.finding_collector import Sums
    from mqttscope.transport.recording import Recording

MAX_CLIENTS = 100_000
"""Clients that are remembered to report what was fixed since the baseline."""


class FindingReports:
    """A linter with its settings, and the reports of its findings."""

    def __init__(self, settings: Settings, *, update_baseline: bool = False, **linting: Any) -> None:
        """``linting``: more arguments of the linter."""
        self.settings = settings
        self.gate = Gate(
            settings.policy(),
            read_baseline(settings.baseline, may_be_new=update_baseline),
            rules=settings.rules,
            updating=update_baseline,
            name=partial(client_name, hiding=Hiding(settings.secret_length)),
        )
        self.linter = Linter(settings.rules, complete=settings.complete, **linting)
        self.plain = View(width=0, payload_limit=256, secret_length=settings.secret_length)
        """How reports in files look."""
        self.files: list[output.FileSink] = []
        self.outputs = [*([(settings.format, settings.output)] if settings.output else ()), *settings.more]
        """Formats of reports in files, and these files."""

    def summary(self, captures: Sequence[str], packets: int, **more: Any) -> Summary:
        """The end of every report; ``more``: what else is known."""
        settings, linter, gate = self.settings, self.linter, self.gate
        return Summary(
            rules=linter.rules,
            captures=[public_name(name) for name in captures],
            counts=gate.counts,
            failing=gate.failing,
            hidden=gate.hidden,
            hidden_failing=gate.hidden_failing,
            suppressed=gate.suppressed,
            packets=packets,
            withheld=linter.withheld,
            pending=linter.pending,
            quality=linter.quality,
            internal_errors=linter.internal_errors,
            profile=settings.profile,
            timing=settings.timing,
            fail_on=settings.fail_on,
            fail_confidence=settings.fail_confidence,
            **more,
        )

    def unmet(self) -> list[str]:
        """The message about servers of ``--complete`` that no connection was seen of."""
        linter = self.linter
        return [
            f"--complete {one}: no connection of this server was seen" for one in sorted(linter.complete - linter.met)
        ]


class LintRun(FindingReports):
    """Settings at work."""

    def __init__(
        self,
        settings: Settings,
        reading: Reading,
        *,
        colour: bool | None,
        update_baseline: bool = False,
        statistics: bool = False,
        sink: Sink | None = None,
        verbose: bool = False,
        selection: Selection[Finding] | None = None,
    ) -> None:
        """``sink`` takes the place of standard output, for findings that are shown while traffic passes."""
        super().__init__(
            settings, update_baseline=update_baseline, together=reading.deduplicate, end_ns=reading.order.end_ns
        )
        self.reading = reading
        self.captures = reading.captures
        self.update_baseline = update_baseline
        self.selection = selection
        self.dissector = reading.dissector(settings.options)
        self.watch = output.Watch(progress=True)
        self.clients: set[str] = set()
        self.has_more_clients = False
        """There are more of them than `MAX_CLIENTS`."""
        self.spoken: Counter[str] = Counter()
        """MQTT packets that were judged, by capture; where a part is selected, those of all of it."""
        self.understood: set[str] = set()
        """Captures in which one of them is well formed."""
        self._spoken_last = ""
        self.read: list[str] = []
        """Captures that were found under the names that the user gave, once they were read."""
        self.cut = 0
        """Packets that never came to their end."""
        self._pages: dict[int, output.FileSink] = {}
        """Files of reports that are pages, by the identity of the report."""
        self.stdout: output.Output | None = None
        self.sink = sink
        self.closed = False
        """The reports are written: what a thread finds that could not be waited for comes too late."""
        self.reporters = self._reporters(statistics, colour, verbose)

    @property
    def failing(self) -> int:
        """Findings so far that make the run fail."""
        return self.gate.failing.total()

    @property
    def packets(self) -> int:
        """MQTT packets that were judged."""
        return self.spoken.total() if self.selection is None else self.selection.packets

    @property
    def required_quality(self) -> QualityLevel | None:
        """What ``--require-quality`` demands of captures; live traffic has no end that it could be judged by."""
        return None if self.sink is not None else self.settings.require_quality

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
        if (self.nothing() or self.shortfalls()) and not self.settings.exit_zero:
            return EXIT_UNREADABLE
        failed = self.failing and not self.settings.exit_zero and not self.update_baseline
        return EXIT_FINDINGS if failed else EXIT_CLEAN

    def _judge(self) -> None:
        reading = self.reading
        # A selection keeps events.
        fast_path = FastPath(self.dissector, self.feed, order=reading.order, passing=self.selection is None)
        segments = self.watch.follow(reading).segments(
            self.watch.skipped, fast_path=fast_path, note_skipped=self.linter.ledger.note_skipped
        )
        try:
            for event in self.watch.events(dissect_segments(segments, dissector=self.dissector)):
                self.feed(event)
        finally:
            self.read = [name for name in find_captures(self.captures) if isinstance(name, str)]
            self.read += [STDIN] if STDIN in self.captures else []

    def feed(self, event: Event) -> None:
        """Lint one event, which may come from a run that others drive."""
        findings = self.linter.feed(event)
        selection = self.selection
        if selection is not None:
            findings = selection.take(event, findings)
        elif type(event) is PacketEvent:
            self.spoken[event.capture] += 1
            if event.capture is not self._spoken_last:
                self._spoken_last = event.capture
                self.understood.add(event.capture)
        for finding in findings:
            self._take(finding)
        if type(event) is not PacketEvent:
            self._seen(event)

    def nothing(self) -> str:
        """Why there is nothing to judge, or too little, where that is so."""
        required, packets = self.settings.require_packets, self.packets
        if required == 0 or (required is None and self.failing):
            return ""
        if packets and self.selection is None and not self.understood and required is None:
            return "nothing to judge: no MQTT packet in what was read is well formed"
        if packets and self.selection is None:
            return too_little(self._too_short(required), required, alone=len(self.captures) == 1)
        if packets and required is not None and packets < required:
            return too_little({"": packets}, required, alone=True)
        if packets:
            return ""
        selection = self.selection
        if selection is not None and self.dissector.connections:
            if required is None and selection.wanted is not None and selection.events:
                return ""  # the filter is about other events
            return f"nothing to judge: {selection.missing(self.dissector.connections)}"
        if self.cut:
            return "nothing to judge: no MQTT packet in what was read came to its end"
        return "nothing to judge: no MQTT packet in what was read"

    def idle(self) -> list[str]:
        """Captures that the user named and that hold no packet, where others do."""
        return [] if self.selection is not None or not self.spoken else [*self._too_short(1)]

    def shortfalls(self) -> list[Shortfall]:
        """The captures that are not as good as ``--require-quality`` demands."""
        level = self.required_quality
        if level is None:
            return []
        silent: list[str] = []
        if self.settings.require_packets != 0 and self.selection is None:
            # Each file of a directory or a pattern counts by itself here.
            known = {*self._heard(), *self.linter.quality.errors}
            silent = [name for name in map(public_name, self.read) if name not in known]
        return self.linter.ledger.shortfalls(level, silent)

    def _too_short(self, required: int | None) -> dict[str, int]:
        """Captures that the user named and that hold fewer packets, with their number.

        Those that could not be read are left out.  ``None`` requires one packet, which has to be well formed.
        """
        heard, bad = self._heard(), self.linter.quality.errors
        numbers = heard if required is not None else {name: heard[name] for name in self.understood | self._copied()}
        short = {}
        for name in map(public_name, self.captures):
            packets = numbers.get(name) or sum(number for known, number in numbers.items() if covers(name, known))
            if packets < (required or 1) and (packets or not any(covers(name, known) for known in bad)):
                short[name] = packets
        return short

    def _copied(self) -> set[str]:
        """Captures whose packets were read from another tap, or from another capture of the same traffic."""
        if not self.spoken:
            return set()
        copies = {name for name, flow in self.dissector.flows.copies.items() if flow.context is not None}
        return copies if self.reading.taps is None else copies | self.reading.taps.copied()

    def _heard(self) -> dict[str, int]:
        """Packets by capture; those of a tap whose packets were read from another one count as those of the other."""
        return {**dict.fromkeys(self._copied(), self.spoken.total()), **self.spoken}

    def _seen(self, event: Event) -> None:
        """Take note of an event that is not a well-formed packet."""
        if type(event) is ConnectionClosed:
            connection = event.connection
            self._know(client_key(connection.client_identifier))
            if connection.connect_packet != 0:
                self._know(client_key(None))
        if isinstance(event, MalformedEvent):
            if is_whole_packet(event):
                self.spoken[event.capture] += 1
            else:
                history = event.connection.history
                self.cut += history is None or not history.foreign

    def _know(self, client: str) -> None:
        if len(self.clients) < MAX_CLIENTS:
            self.clients.add(client)
        elif client not in self.clients:
            self.has_more_clients = True

    def _take(self, finding: Finding) -> None:
        if self.closed:
            return
        verdict = self.gate.judge(finding)
        if verdict.shown:
            self._show(finding, verdict)

    def _show(self, finding: Finding, verdict: Verdict) -> None:
        for reporter in self.reporters:
            reporter.feed(finding, verdict.suppression)

    def _complete(self) -> set[str]:
        """Codes of the rules that could find all there was: none where not all of the captures was looked at."""
        linter = self.linter
        if self.watch.errors or self.selection is not None:
            return set()
        crowded = {code for codes in linter.crowded_servers().values() for code in codes}
        return {rule.code for rule in linter.rules} - linter.withheld.keys() - linter.failures.keys() - crowded

    def close(self) -> None:
        """Write what the reports still hold."""
        self.closed = True
        try:
            self._close()
        finally:
            for file in self.files:
                file.close()

    def _close(self) -> None:
        for finding, verdict in self.gate.summed_up():
            self._show(finding, verdict)
        nothing = self.nothing()
        summary = self.summary(
            self.captures,
            self.packets,
            spoken={*self._heard()} if self.selection is None else self.selection.spoken,
            idle=[] if nothing else self.idle(),
            nothing=nothing,
            required_quality=self.required_quality,
            shortfalls=self.shortfalls(),
            required=bool(self.settings.require_packets),
            fixed=self.gate.baseline.fixed(self._complete(), self.clients),
            truncated=bool(self.watch.errors),
        )
        unread = not self.packets and self.watch.read_nothing(self.dissector.flows.opened_flows)
        for reporter in self.reporters:
            page = self._pages.get(id(reporter))
            if unread and page is not None:
                page.leave()
            else:
                reporter.close(summary)
        if self.stdout is not None:
            self.stdout.flush()

    def _reporters(self, statistics: bool, colour: bool | None, verbose: bool) -> list[Any]:
        if statistics:
            from mqttscope.report.findings.statistics import make_statistics

        settings = self.settings
        shape: dict[str, Any] = {"counts": settings.policy().breaks, "ranked": self.sink is None, "verbose": verbose}
        shape |= {"every": settings.every, "live": self.sink is not None or STDIN in self.captures}
        made: list[Any] = []
        if settings.output is None:
            view = output.make_view(colour=colour, payload="auto", payload_limit=256)
            view.secret_length = settings.secret_length
            shown = self.sink
            if shown is None:
                # The exit code is that of the findings, also when the reader has seen enough.
                shown = self.stdout = output.Output(immediate=output.awaited(self.captures), continues=True)
            made.append(
                make_statistics(settings.format, shown, view)
                if statistics
                else make_reporter(settings.format, shown, view, **shape)
            )
        for _, path in self.outputs:
            output.refuse_inputs(path, self.captures, settings.inputs())
        for name, path in self.outputs:
            sink = output.FileSink(path, self.captures, private=False)
            self.files.append(sink)
            made.append(
                make_statistics(name, sink, self.plain)
                if statistics and path == settings.output
                else make_reporter(name, sink, self.plain, **shape)
            )
            if name == output.HTML:
                self._pages[id(made[-1])] = sink
        return made

    def _write_baseline(self) -> None:
        path = self.settings.baseline
        assert path is not None
        if self.watch.errors:
            output.warn(f"baseline {path}: not written, since a capture could not be read to its end")
            return
        if not self.packets and self.nothing():
            output.warn(f"baseline {path}: not written, since there was nothing to judge")
            return
        if self.shortfalls():
            output.warn(f"baseline {path}: not written, since the captures are not {self.required_quality}")
            return
        known, found = self.gate.baseline, self.gate.made
        made = known.updated(found, self._complete(), self.clients)
        new = len(made.entries.keys() - known.entries.keys())
        gone = len(known.entries.keys() - made.entries.keys())
        kept = len(made.entries.keys() - found.entries.keys())
        with ErrorTranslation(output.CannotWriteError, OSError, before=f"cannot write {path}: "):
            write_file(path, made.dumps().encode())
        unseen = f"; {kept:,} kept, whose rules or clients were not judged" if kept else ""
        output.warn(f"baseline {path}: {len(made.entries):,} kinds of findings, {new:,} new, {gone:,} gone{unseen}")

    def _tell(self) -> None:
        """The lines for standard error, in every format."""
        nothing = self.nothing()
        human = self.stdout is not None and self.settings.format in ("full", "concise")
        is_shown = human and output.is_terminal()  # the report has said it on the same terminal
        if self.selection is not None and self.dissector.connections and not nothing:
            absent = advice.selected_nothing(
                self.dissector, self.selection.connections, filtered=False, matched=True, whole=True
            )
            if absent:
                output.warn(absent)
        if not self.dissector.connections and not self.watch.errors:
            told = advice.nothing_found(self.dissector)
            output.warn(f"nothing to judge: {told}" if nothing else told)
        elif nothing and not self.watch.errors and not is_shown:
            output.warn(nothing)
        level = self.required_quality
        short = [] if level is None else shortfall_sentences(level, self.shortfalls())
        idle = "" if nothing else no_packet_in(self.idle())
        if not is_shown:
            output.warn_all((idle, self.linter.quality.unheard, *short))
        if self.selection is not None and self.selection.left_out:
            left = counted(self.selection.left_out, "finding")
            output.warn(f"limit: {left} left out, which waited for the Client Identifier of their connection")
        snapped = advice.snap_length(self.dissector, self.watch.skipped)
        unread = advice.not_read(self.dissector, self.watch.skipped, via=self.reading.via)
        of_connections = advice.of_connections(self.dissector, deduplicates=self.reading.deduplicate)
        of_taps, unopened = self.reading.of_taps(), self.reading.unopened()
        output.warn_all((*of_connections, *of_taps, snapped, unopened, unread))
        self.tell_rules()

    def tell_rules(self) -> None:
        """The lines for standard error about suppressions, about limits and about rules that failed."""
        for pattern in self.settings.suppressions.expired():
            output.warn(f"{pattern.written}: the suppression expired on {pattern.expires}; its findings count again")
        if self.has_more_clients and self.settings.baseline is not None:
            output.warn(f"limit: {MAX_CLIENTS:,} clients were compared with the baseline; it keeps its other entries")
        output.warn_all(self.unmet())
        for error in self.linter.internal_errors[:MAX_ERRORS_TOLD]:
            output.warn(f"internal error in {error.rule}: {error.capture}, frame {error.frame}: {error.error}")
        output.warn_all((*self.linter.limits_told(), *self.linter.failures_told()))


class SparkRun(LintRun):
    """Settings at work on Spark.  ``master``: where; ``None`` on all cores of this machine."""

    def __init__(self, *arguments: Any, master: str | None, **others: Any) -> None:
        super().__init__(*arguments, **others)
        refuse_on_spark(self.settings.rules)
        if STDIN in self.captures:
            raise click.UsageError("--engine spark reads captures in several places at once, not standard input")
        if self.reading.decrypting:
            raise click.UsageError("--engine spark decrypts nothing: leave out --keylog (and $SSLKEYLOGFILE)")
        wanted = None if self.selection is None else self.selection.wanted
        if wanted is not None and wanted.is_of_the_run:
            raise click.UsageError(
                "--engine spark knows no numbers of the run in --filter: give --connection in place of 'connection', a"
                " time in place of a relative one, or let this process judge (--engine local)"
            )
        self.master = master
        self.begun = False

    def close(self) -> None:
        """Write what the reports still hold; where nothing was judged, there is no verdict."""
        if self.begun:
            super().close()
            return
        for file in self.files:
            file.close()

    def _judge(self) -> None:
        from mqttscope.cli.spark_session import for_captures, packages_needed, session, task_progress

        with packages_needed("Spark needs", "spark"):
            from mqttscope.capture.locations import NoCapturesError, find
            from mqttscope.lake.options import LakeOptions
            from mqttscope.spark.linting import judge
            from mqttscope.spark.session import followed
        given = self.settings
        options = LakeOptions(
            dissect=given.options, rules=tuple(given.rules), complete=given.complete, secret_length=given.secret_length
        )  # fmt: skip
        try:
            found = find(list(self.captures))
        except NoCapturesError as error:
            self.begun = True
            self._tell_notices([CaptureError(one.name, one.fault or "") for one in error.faulty])
            return
        fitting = for_captures(sum(one.size for one in found))
        with session(self.master, {}, fitting) as spark, task_progress() as show, followed(spark, show):
            judged = judge(spark, found, options, selection=self.selection)
            self.begun = True
            for finding in judged.findings:
                self._take(finding)
        self.watch.skipped.update(judged.skipped)
        for (capture, reason), frames in judged.skipped_by_capture.items():
            self.linter.ledger.note_skipped(capture, reason, frames)
        self._tell_notices(judged.notices)
        self._count(judged.sums, [one.name for one in found])

    def _tell_notices(self, notices: Sequence[CaptureNotice | ClockStep]) -> None:
        for notice in self.watch.events(notices):
            self.linter.feed(notice)

    def _count(self, sums: Sums, captures: Sequence[str]) -> None:
        """What the tasks counted, as if it had been counted here; ``captures``: names, in the order of reading."""
        from mqttscope.lint.failures import Failures

        linter, dissector = self.linter, self.dissector
        linter.ledger.add(sums.ledger)
        linter.withheld.update(sums.withheld)
        linter.awaited.update(sums.awaited)
        linter.ripe |= sums.ripe
        failures = Failures.together([sums.failures], captures)
        linter.failures.update(failures.counts)
        linter.internal_errors += failures.errors
        linter.met |= sums.met
        self.clients |= sums.clients
        self.spoken, self.understood, self.read = Counter(sums.spoken), sums.understood, list(captures)
        if self.selection is not None:
            self.selection.events, self.selection.packets = sums.chosen_events, sums.chosen_packets
            self.selection.spoken, self.selection.left_out = sums.chosen_spoken, sums.left_out
        dissector.connections = sums.connections
        dissector.flows.opened_flows = sums.opened_flows
        dissector.cut_bytes, dissector.closed_bytes = sums.cut_bytes, sums.kept_bytes
        dissector.other_tls.update(sums.other_tls)
        dissector.named_otherwise.update(sums.named_otherwise)
        # Whoever has such sums has the lake.
        from mqttscope.lake.finding_collector import OF_CONNECTIONS

        for name in OF_CONNECTIONS:
            setattr(dissector, name, getattr(sums, name))


def tell_judging(recording: Recording, *, hint: bool = True) -> None:
    """Report how the traffic was judged; ``hint``: name the command that judges all of a recording."""
    more = f"; mqttscope lint {recording.path} judges all" if hint and recording.path else ""
    output.warn_all(sentence + more for sentence in recording.told())


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


MAX_HELD_FINDINGS = 10_000
"""Findings that go into a format which is written at the end; the rest of them is counted."""
_HELD = ("json", "sarif", "junit", "gitlab", "markdown")
MAX_ERRORS_TOLD = 3
"""Failures of rules that are shown one by one; all of them are counted."""


@dataclass(slots=True)
class _Report:
    """Findings in a file."""

    held: bool
    """Whether it is written at the end."""
    entrance: Entrance
    passed: int = 0
    """What it holds, where that is so."""


class Findings(FindingReports):
    """The linter of live traffic and where its findings go."""

    def __init__(self, settings: Settings, view: View) -> None:
        super().__init__(settings)
        self.view = view
        self.packets = 0
        self.doubtful = 0
        """Findings among those that count only while the capture is complete."""
        self.dropped = 0
        """Frames that the kernel dropped, as far as it is known."""
        self.not_held = 0
        """Findings beyond `MAX_HELD_FINDINGS`."""
        self._needing = {rule.code for rule in settings.rules if rule.needs & Needs.WHOLE}
        if settings.complete:
            self._needing |= {rule.code for rule in settings.rules if rule.scope in WIDE}
        self._shown: Entrance | None = None
        view.secret_length = settings.secret_length
        self._reporters: list[_Report] = []
        for name, path in self.outputs:
            sink = output.FileSink(path, private=False)
            self.files.append(sink)
            self._reporters.append(_Report(name in _HELD, self._make(name, sink, self.plain)))

    def show_in(self, sink: output.Output) -> None:
        """Show findings among the packets as well, unless they have a file of their own."""
        if self.settings.output is None:
            self._shown = self._make(self.settings.format, sink, self.view)

    def _make(self, name: str, sink: Sink, view: View) -> Entrance:
        settings = self.settings
        return make_reporter(name, sink, view, counts=settings.policy().breaks, every=settings.every, live=True)

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
        for one in self._reporters:
            is_new = one.held and one.entrance.is_new(finding, verdict.suppression)
            if is_new and one.passed >= MAX_HELD_FINDINGS:
                self.not_held += 1
            else:
                one.passed += is_new
                one.entrance.feed(finding, verdict.suppression)
        if self._shown is not None:
            self._shown.feed(finding, verdict.suppression)

    def flush(self) -> None:
        for sink in self.files:
            sink.flush()

    @property
    def failed(self) -> bool:
        """Whether the findings make the run fail.

        dumpcap reports at its end what the kernel dropped.  Had that been known, findings that need every frame would
        have been likely only, as they are in files that say so.
        """
        counting = self.gate.failing.total()
        if self.dropped and self.settings.fail_confidence is Confidence.CERTAIN:
            counting -= self.doubtful
        return counting > 0 and not self.settings.exit_zero

    def close(self, capture: str, *, truncated: bool) -> None:
        """Write the end of every report."""
        for finding, verdict in self.gate.summed_up():
            self._show(finding, verdict)
        summary = self.summary(
            [capture],
            self.packets,
            spoken={capture} if self.packets else set(),
            nothing="" if self.packets else "nothing to judge: no MQTT packet was captured",
            truncated=truncated,
        )
        shown = [] if self._shown is None else [self._shown]
        for reporter in (*(one.entrance for one in self._reporters), *shown):
            reporter.close(summary)
        for sink in self.files:
            sink.close()

    def _causes(self) -> Counter[Severity]:
        """What was shown as one, in whichever report."""
        shown = [*([] if self._shown is None else [self._shown]), *(one.entrance for one in self._reporters)]
        return next((one.causes for one in shown if one.causes), Counter())

    def told(self) -> list[str]:
        """The lines for standard error."""
        said = [f"linted: {count_findings(self.gate.counts, self.gate.failing, self.settings.fail_on, self._causes())}"]
        if self.dropped and self.doubtful:
            said.append(
                "frames were dropped, which dumpcap reported only at its end: findings that need every frame are"
                f" likely, not certain ({counted(self.doubtful, 'finding')})"
            )
        said += self.unmet()
        said += self.linter.limits_told()
        if self.not_held:
            said.append(
                f"limit: {counted(self.not_held, 'finding')} left out of reports that are written at the end,"
                f" which hold {MAX_HELD_FINDINGS:,}"
            )
        said += [
            f"internal error in {error.rule}: frame {error.frame}: {error.error}"
            for error in self.linter.internal_errors[:MAX_ERRORS_TOLD]
        ]
        return said + self.linter.failures_told()

"""Runs of the linter: over captures, with reports and an exit code; or live, with findings among packets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mqttscope.capture.files import STDIN, find_captures
from mqttscope.capture.write import write_file
from mqttscope.cli import advice, output
from mqttscope.cli.annotating import PCAPNG
from mqttscope.cli.errors import ErrorTranslation
from mqttscope.cli.linting_settings import LintSettings
from mqttscope.cli.main import EXIT_CLEAN, EXIT_FINDINGS, EXIT_UNREADABLE
from mqttscope.cli.own_rules import refuse_on_spark
from mqttscope.cli.reading import CommandReading
from mqttscope.dissect import FastPath, dissect_segments
from mqttscope.events import ClockStep, ConnectionClosed, Event, MalformedEvent, PacketEvent
from mqttscope.lint.context import WIDE
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Confidence, Finding, Severity
from mqttscope.lint.gate import BaselineError, FindingBaseline, FindingSelection, Gate, GateVerdict, client_key
from mqttscope.lint.quality import QualityLevel, Shortfall, is_whole_packet
from mqttscope.lint.rule import Needs
from mqttscope.mqtt.wire import counted
from mqttscope.net.frame import CaptureDrops, CaptureError, CaptureNotice
from mqttscope.report.base import Sink, View
from mqttscope.report.findings.base import RunSummary, covers, no_packet_in, shortfall_sentences, too_little
from mqttscope.report.findings.base import counted as count_findings
from mqttscope.report.findings.shown import FindingEntrance, make_reporter
from mqttscope.secrets.addresses import public_name
from mqttscope.secrets.findings import HidingOptions, client_name

if TYPE_CHECKING:
    from mqttscope.cli.annotating import AnnotatedCopy
    from mqttscope.lake.finding_collector import Sums
    from mqttscope.transport.recording import Recording

MAX_CLIENTS = 100_000
"""Maximum number of clients compared with the baseline."""


class FindingReports:
    """A linter with its settings, and the reports of its findings."""

    def __init__(self, settings: LintSettings, *, update_baseline: bool = False, **linting: Any) -> None:
        """``linting``: further arguments of the linter."""
        self.settings = settings
        self.gate = Gate(
            settings.policy(),
            read_baseline(settings.baseline, may_be_new=update_baseline),
            rules=settings.rules,
            updating=update_baseline,
            name=partial(client_name, hiding=HidingOptions(settings.secret_length)),
        )
        self.linter = Linter(settings.rules, complete=settings.complete, **linting)
        self.plain = View(width=0, payload_limit=256, secret_length=settings.secret_length)
        """View for reports in files."""
        self.files: list[output.FileSink] = []
        self.outputs = [*([(settings.format, settings.output)] if settings.output else ()), *settings.more]
        """Formats and paths of reports in files."""

    def summary(self, captures: Sequence[str], packets: int, **more: Any) -> RunSummary:
        """RunSummary at the end of every report; ``more``: further fields."""
        settings, linter, gate = self.settings, self.linter, self.gate
        return RunSummary(
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
        """Messages about servers of ``--complete`` without a connection."""
        linter = self.linter
        unmet = sorted(linter.complete - linter.met)
        return [f"--complete {server}: no connection of this server was seen" for server in unmet]


class LintRun(FindingReports):
    """One run of the linter over captures or live traffic."""

    def __init__(
        self,
        settings: LintSettings,
        reading: CommandReading,
        *,
        colour: bool | None,
        update_baseline: bool = False,
        statistics: bool = False,
        sink: Sink | None = None,
        verbose: bool = False,
        selection: FindingSelection[Finding] | None = None,
        copy: AnnotatedCopy | None = None,
    ) -> None:
        """``sink`` replaces standard output, for findings in live traffic.  ``copy``: gets comments on frames."""
        super().__init__(
            settings, update_baseline=update_baseline, together=reading.deduplicate, end_ns=reading.order.end_ns
        )
        self.reading = reading
        self.captures = reading.captures
        self.update_baseline = update_baseline
        self.selection = selection
        self.dissector = reading.dissector(settings.options)
        self.watch = output.CaptureWatch(progress=True)
        self.clients: set[str] = set()
        self.has_more_clients = False
        """Whether there are more clients than `MAX_CLIENTS`."""
        self.spoken: Counter[str] = Counter()
        """Number of MQTT packets by capture, regardless of a selection."""
        self.understood: set[str] = set()
        """Captures with a well-formed packet."""
        self._spoken_last = ""
        self.read: list[str] = []
        """Captures found under the names from the user; set after reading."""
        self.cut = 0
        """Number of incomplete packets."""
        self._pages: dict[int, output.FileSink] = {}
        """Files of HTML reports, by the id of the reporter."""
        self.stdout: output.Output | None = None
        self.sink = sink
        self.copy = copy
        self.heard: Callable[[Finding], object] = lambda _: None
        """Gets each finding that is neither suppressed nor hidden."""
        self.closed = False
        """Whether the reports are written; later findings of a thread are dropped."""
        self.reporters = self._reporters(statistics, colour, verbose)

    @property
    def failing(self) -> int:
        """Number of findings that fail the run, up to now."""
        return self.gate.failing.total()

    @property
    def packets(self) -> int:
        """Number of linted MQTT packets."""
        return self.spoken.total() if self.selection is None else self.selection.packets

    @property
    def required_quality(self) -> QualityLevel | None:
        """Level of ``--require-quality``; ``None`` for live traffic, which has no quality at its end."""
        return None if self.sink is not None else self.settings.require_quality

    def execute(self) -> int:
        """Lint the captures; returns the exit code."""
        try:
            self._judge()
        finally:
            # Write partial results after Ctrl-C.
            self.close()
        if self.update_baseline:
            self._write_baseline()
        self._print_messages()
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

    def feed(self, event: Event) -> list[Finding]:
        """Lint one event, possibly from the run of another command; returns the findings."""
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
            self._note_event(event)
        return findings

    def nothing(self) -> str:
        """Reason why packets to lint are missing, too few or empty."""
        required, packets = self.settings.require_packets, self.packets
        if required == 0 or (required is None and self.failing):
            return ""
        if packets and self.selection is None and not self.understood and required is None:
            return "nothing to judge: the captures contain no well-formed MQTT packet"
        if packets and self.selection is None:
            return too_little(self._too_short(required), required, alone=len(self.captures) == 1)
        if packets and required is not None and packets < required:
            return too_little({"": packets}, required, alone=True)
        if packets:
            return ""
        selection = self.selection
        if selection is not None and self.dissector.connections:
            if required is None and selection.wanted is not None and selection.events:
                return ""  # the filter selects other events
            return f"nothing to judge: {selection.missing(self.dissector.connections)}"
        if self.cut:
            return "nothing to judge: the captures contain no complete MQTT packet"
        return "nothing to judge: the captures contain no MQTT packet"

    def idle(self) -> list[str]:
        """Named captures without a packet, if other captures have packets."""
        return [] if self.selection is not None or not self.spoken else [*self._too_short(1)]

    def shortfalls(self) -> list[Shortfall]:
        """Captures with a lower quality than ``--require-quality``."""
        level = self.required_quality
        if level is None:
            return []
        silent: list[str] = []
        if self.settings.require_packets != 0 and self.selection is None:
            # Here each file of a directory or a pattern counts separately.
            known = {*self._packets_by_capture(), *self.linter.quality.errors}
            silent = [name for name in map(public_name, self.read) if name not in known]
        return self.linter.ledger.shortfalls(level, silent)

    def _too_short(self, required: int | None) -> dict[str, int]:
        """Named captures with fewer packets than required, with their number of packets.

        Unreadable captures are omitted.  ``None`` requires one well-formed packet.
        """
        heard, bad = self._packets_by_capture(), self.linter.quality.errors
        numbers = (
            heard
            if required is not None
            else {name: heard[name] for name in self.understood | self._captures_with_copies()}
        )
        short = {}
        for name in map(public_name, self.captures):
            packets = numbers.get(name) or sum(number for known, number in numbers.items() if covers(name, known))
            if packets < (required or 1) and (packets or not any(covers(name, known) for known in bad)):
                short[name] = packets
        return short

    def _captures_with_copies(self) -> set[str]:
        """Captures with packets that were read from another tap or another capture of the traffic."""
        if not self.spoken:
            return set()
        copies = {name for name, flow in self.dissector.flows.copies.items() if flow.context is not None}
        return copies if self.reading.taps is None else copies | self.reading.taps.copied()

    def _packets_by_capture(self) -> dict[str, int]:
        """Number of packets by capture; a tap read from another tap gets the number of all packets."""
        return {**dict.fromkeys(self._captures_with_copies(), self.spoken.total()), **self.spoken}

    def _note_event(self, event: Event) -> None:
        """Note an event that is not a well-formed packet."""
        if self.copy is not None:
            self.copy.note(event)
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
        if verdict.is_occurrence:
            self.heard(finding)
        if verdict.shown:
            self._show(finding, verdict)

    def _show(self, finding: Finding, verdict: GateVerdict) -> None:
        for reporter in self.reporters:
            reporter.feed(finding, verdict.suppression)

    def _complete_rules(self) -> set[str]:
        """Codes of the rules with complete findings; empty if only a part of the captures was linted."""
        linter = self.linter
        if self.watch.errors or self.selection is not None:
            return set()
        crowded = {code for codes in linter.crowded_servers().values() for code in codes}
        return {rule.code for rule in linter.rules} - linter.withheld.keys() - linter.failures.keys() - crowded

    def close(self) -> None:
        """Finish the reports."""
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
            spoken={*self._packets_by_capture()} if self.selection is None else self.selection.spoken,
            idle=[] if nothing else self.idle(),
            nothing=nothing,
            required_quality=self.required_quality,
            shortfalls=self.shortfalls(),
            required=bool(self.settings.require_packets),
            fixed=self.gate.baseline.fixed(self._complete_rules(), self.clients),
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
        reporters: list[Any] = []
        if settings.output is None:
            view = output.make_view(colour=colour, payload="auto", payload_limit=256)
            view.secret_length = settings.secret_length
            shown = self.sink
            if shown is None:
                # The findings decide the exit code, also when the reader of the output has stopped reading.
                shown = self.stdout = output.Output(immediate=output.awaited(self.captures), continues=True)
            reporters.append(
                make_statistics(settings.format, shown, view)
                if statistics
                else make_reporter(settings.format, shown, view, **shape)
            )
        for _, path in self.outputs:
            output.refuse_inputs(path, self.captures, settings.inputs())
        for name, path in self.outputs:
            sink = output.FileSink(path, self.captures, private=False)
            self.files.append(sink)
            reporters.append(
                make_statistics(name, sink, self.plain)
                if statistics and path == settings.output
                else make_reporter(name, sink, self.plain, **shape)
            )
            if name == output.HTML:
                self._pages[id(reporters[-1])] = sink
        if self.copy is not None:
            self.files.append(self.copy)
            reporters.append(make_reporter(PCAPNG, self.copy, self.plain))
            self._pages[id(reporters[-1])] = self.copy
        return reporters

    def _write_baseline(self) -> None:
        path = self.settings.baseline
        assert path is not None
        if self.watch.errors:
            output.warn(f"baseline {path}: not written, because a capture could not be read to its end")
            return
        if not self.packets and self.nothing():
            output.warn(f"baseline {path}: not written, because there was nothing to judge")
            return
        if self.shortfalls():
            output.warn(f"baseline {path}: not written, because the captures are not {self.required_quality}")
            return
        known, current = self.gate.baseline, self.gate.new_baseline
        updated = known.updated(current, self._complete_rules(), self.clients)
        new = len(updated.entries.keys() - known.entries.keys())
        gone = len(known.entries.keys() - updated.entries.keys())
        unlinted = len(updated.entries.keys() - current.entries.keys())
        with ErrorTranslation(output.CannotWriteError, OSError, before=f"cannot write {path}: "):
            write_file(path, updated.dumps().encode())
        unseen = f"; {unlinted:,} kept, because their rules or clients were not linted" if unlinted else ""
        output.warn(f"baseline {path}: {len(updated.entries):,} kinds of findings, {new:,} new, {gone:,} gone{unseen}")

    def _print_messages(self) -> None:
        """Print the final messages on standard error, in every format."""
        nothing = self.nothing()
        human = self.stdout is not None and self.settings.format in ("full", "concise")
        is_shown = human and output.is_terminal()  # the report on this terminal contains them
        if self.selection is not None and self.dissector.connections and not nothing:
            absent = advice.selected_nothing(
                self.dissector, self.selection.connections, filtered=False, matched=True, whole=True
            )
            if absent:
                output.warn(absent)
        if not self.dissector.connections and not self.watch.errors:
            reason = advice.nothing_found(self.dissector)
            output.warn(f"nothing to judge: {reason}" if nothing else reason)
        elif nothing and not self.watch.errors and not is_shown:
            output.warn(nothing)
        level = self.required_quality
        short = [] if level is None else shortfall_sentences(level, self.shortfalls())
        idle = "" if nothing else no_packet_in(self.idle())
        if not is_shown:
            output.warn_all((idle, self.linter.quality.unheard, *short))
        if self.selection is not None and self.selection.left_out:
            left = counted(self.selection.left_out, "finding")
            output.warn(f"limit: {left} omitted that waited for the Client Identifier of their connection")
        snapped = advice.snap_length(self.dissector, self.watch.skipped)
        unread = advice.not_read(self.dissector, self.watch.skipped, via=self.reading.via)
        of_connections = advice.of_connections(self.dissector, deduplicates=self.reading.deduplicate)
        of_taps, unopened = self.reading.of_taps(), self.reading.unopened()
        output.warn_all((*of_connections, *of_taps, snapped, unopened, unread))
        self.tell_rules()

    def tell_rules(self) -> None:
        """Print messages about suppressions, limits and failed rules on standard error."""
        for pattern in self.settings.suppressions.expired():
            output.warn(f"{pattern.written}: the suppression expired on {pattern.expires} and has no effect")
        if self.has_more_clients and self.settings.baseline is not None:
            output.warn(f"limit: compared {MAX_CLIENTS:,} clients with the baseline, which keeps its other entries")
        output.warn_all(self.unmet())
        for error in self.linter.internal_errors[:MAX_ERRORS_TOLD]:
            output.warn(f"internal error in {error.rule}: {error.capture}, frame {error.frame}: {error.error}")
        output.warn_all((*self.linter.limit_sentences(), *self.linter.failure_sentences()))


class SparkRun(LintRun):
    """One run of the linter on Spark.  ``master``: its URL; ``None`` uses all cores of this machine."""

    def __init__(self, *arguments: Any, master: str | None, **others: Any) -> None:
        super().__init__(*arguments, **others)
        refuse_on_spark(self.settings.rules)
        if STDIN in self.captures:
            raise click.UsageError("--engine spark cannot read standard input")
        if self.reading.decrypting:
            raise click.UsageError("--engine spark cannot decrypt TLS: omit --keylog (and $SSLKEYLOGFILE)")
        wanted = None if self.selection is None else self.selection.wanted
        if wanted is not None and wanted.is_of_the_run:
            raise click.UsageError(
                "--engine spark supports no numbers of the run in --filter: use --connection instead of 'connection',"
                " an absolute instead of a relative time, or --engine local"
            )
        self.master = master
        self.begun = False

    def close(self) -> None:
        """Finish the reports, unless linting did not start."""
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
        settings = self.settings
        options = LakeOptions(
            dissect=settings.options, rules=tuple(settings.rules), complete=settings.complete,
            secret_length=settings.secret_length,
        )  # fmt: skip
        try:
            captures = find(list(self.captures))
        except NoCapturesError as error:
            self.begun = True
            self._tell_notices([CaptureError(capture.name, capture.fault or "") for capture in error.faulty])
            return
        fitting = for_captures(sum(capture.size for capture in captures))
        with session(self.master, {}, fitting) as spark, task_progress() as show, followed(spark, show):
            judged = judge(spark, captures, options, selection=self.selection)
            self.begun = True
            for finding in judged.findings:
                self._take(finding)
        self.watch.skipped.update(judged.skipped)
        for (capture, reason), frames in judged.skipped_by_capture.items():
            self.linter.ledger.note_skipped(capture, reason, frames)
        self._tell_notices(judged.notices)
        self._count(judged.sums, [capture.name for capture in captures])

    def _tell_notices(self, notices: Sequence[CaptureNotice | ClockStep]) -> None:
        for notice in self.watch.events(notices):
            self.linter.feed(notice)

    def _count(self, sums: Sums, captures: Sequence[str]) -> None:
        """Take over the counts of the Spark tasks; ``captures``: names in reading order."""
        from mqttscope.lint.failures import RuleFailures

        linter, dissector = self.linter, self.dissector
        linter.ledger.add(sums.ledger)
        linter.withheld.update(sums.withheld)
        linter.awaited.update(sums.awaited)
        linter.ripe |= sums.ripe
        failures = RuleFailures.together([sums.failures], captures)
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
        # Imported late; these sums exist only if the packages of lakes are installed.
        from mqttscope.lake.finding_collector import CONNECTION_COUNTS

        for name in CONNECTION_COUNTS:
            setattr(dissector, name, getattr(sums, name))


def print_lint_messages(recording: Recording, *, hint: bool = True) -> None:
    """Report incomplete linting of the traffic; ``hint``: suggest a command that lints the whole recording."""
    more = f"; mqttscope lint {recording.path} lints everything" if hint and recording.path else ""
    output.warn_all(sentence + more for sentence in recording.closing_remarks())


def read_baseline(path: Path | None, *, may_be_new: bool = False) -> FindingBaseline:
    """Read a baseline; a usage error if that fails."""
    if path is None or (may_be_new and not path.exists()):
        return FindingBaseline()
    try:
        return FindingBaseline.loads(path.read_text("utf-8"))
    except OSError as error:
        hint = "; --update-baseline creates it" if isinstance(error, FileNotFoundError) else ""
        raise click.UsageError(f"baseline {path}: {error.strerror or error}{hint}") from None
    except (BaselineError, UnicodeDecodeError) as error:
        raise click.UsageError(f"baseline {path}: {error}") from None


MAX_HELD_FINDINGS = 10_000
"""Maximum number of findings in a format that is written at the end; the rest is counted."""
_HELD = ("json", "sarif", "junit", "gitlab", "markdown")
MAX_ERRORS_TOLD = 3
"""Maximum number of rule failures that are reported one by one."""


@dataclass(slots=True)
class _FileReport:
    """A report of findings in a file."""

    held: bool
    """Whether the report is written at the end."""
    entrance: FindingEntrance
    passed: int = 0
    """Number of findings in a report that is written at the end."""


class LiveFindings(FindingReports):
    """The linter of live traffic, and the reports of its findings."""

    def __init__(self, settings: LintSettings, view: View, *, quiet: bool = False) -> None:
        """``quiet``: findings go to live metrics alone, and do not fail the run."""
        super().__init__(settings)
        self.view = view
        self.quiet = quiet
        self.packets = 0
        self.doubtful = 0
        """Number of findings that fail the run only if the capture is complete."""
        self.dropped = 0
        """Number of frames that the kernel is known to have dropped."""
        self.not_held = 0
        """Number of findings beyond `MAX_HELD_FINDINGS`."""
        self._needing = {rule.code for rule in settings.rules if rule.needs & Needs.WHOLE}
        if settings.complete:
            self._needing |= {rule.code for rule in settings.rules if rule.scope in WIDE}
        self._shown: FindingEntrance | None = None
        view.secret_length = settings.secret_length
        self._reporters: list[_FileReport] = []
        for name, path in self.outputs:
            sink = output.FileSink(path, private=False)
            self.files.append(sink)
            self._reporters.append(_FileReport(name in _HELD, self._make(name, sink, self.plain)))

    def show_in(self, sink: output.Output) -> None:
        """Show findings among the packets, unless they go to a file."""
        if self.settings.output is None and not self.quiet:
            self._shown = self._make(self.settings.format, sink, self.view)

    def _make(self, name: str, sink: Sink, view: View) -> FindingEntrance:
        settings = self.settings
        return make_reporter(name, sink, view, counts=settings.policy().breaks, every=settings.every, live=True)

    def feed(self, event: Event) -> list[Finding]:
        """Lint an event; pass its findings to `take` after the packet was shown."""
        if isinstance(event, CaptureDrops):
            self.dropped += event.dropped
        elif isinstance(event, PacketEvent | MalformedEvent):
            self.packets += 1
        return self.linter.feed(event)

    def take(self, finding: Finding) -> GateVerdict:
        """Count and show a finding; returns the verdict."""
        verdict = self.gate.judge(finding)
        if verdict.counts and not verdict.repeated:
            self.doubtful += finding.confidence is Confidence.CERTAIN and finding.rule in self._needing
        if verdict.shown:
            self._show(finding, verdict)
        return verdict

    def _show(self, finding: Finding, verdict: GateVerdict) -> None:
        for report in self._reporters:
            is_new = report.held and report.entrance.is_new(finding, verdict.suppression)
            if is_new and report.passed >= MAX_HELD_FINDINGS:
                self.not_held += 1
            else:
                report.passed += is_new
                report.entrance.feed(finding, verdict.suppression)
        if self._shown is not None:
            self._shown.feed(finding, verdict.suppression)

    def flush(self) -> None:
        for sink in self.files:
            sink.flush()

    @property
    def failed(self) -> bool:
        """Whether the findings fail the run.

        dumpcap reports dropped frames only at its end.  Findings that need every frame are then only likely, as they
        are in captures with a record of drops.
        """
        counting = self.gate.failing.total()
        if self.dropped and self.settings.fail_confidence is Confidence.CERTAIN:
            counting -= self.doubtful
        return counting > 0 and not self.settings.exit_zero and not self.quiet

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
        for reporter in (*(report.entrance for report in self._reporters), *shown):
            reporter.close(summary)
        for sink in self.files:
            sink.close()

    def _causes(self) -> Counter[Severity]:
        """Number of shown causes by severity, from any report."""
        shown = [*([] if self._shown is None else [self._shown]), *(report.entrance for report in self._reporters)]
        return next((entrance.causes for entrance in shown if entrance.causes), Counter())

    def messages(self) -> list[str]:
        """Final messages for standard error."""
        if self.quiet:
            return self.linter.failure_sentences()
        totals = count_findings(self.gate.counts, self.gate.failing, self.settings.fail_on, self._causes())
        sentences = [f"linted: {totals}"]
        if self.dropped and self.doubtful:
            sentences.append(
                "dumpcap reported dropped frames at its end: findings that need every frame are likely, not certain"
                f" ({counted(self.doubtful, 'finding')})"
            )
        sentences += self.unmet()
        sentences += self.linter.limit_sentences()
        if self.not_held:
            sentences.append(
                f"limit: {counted(self.not_held, 'finding')} omitted from reports that are written at the end, with at"
                f" most {MAX_HELD_FINDINGS:,}"
            )
        sentences += [
            f"internal error in {error.rule}: frame {error.frame}: {error.error}"
            for error in self.linter.internal_errors[:MAX_ERRORS_TOLD]
        ]
        return sentences + self.linter.failure_sentences()

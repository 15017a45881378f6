"""Findings of captures: violations of the specification with offender, statement, position and confidence.

for finding in mqttscope.lint("a.pcapng", select=["PUB"]):
print(finding.rule, finding.severity, finding.message, finding.statements)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path as FilePath
from typing import Any, overload

from mqttscope import arguments
from mqttscope.api.captures import CaptureSelection, Path, Ports
from mqttscope.api.reading import read_path, read_servers
from mqttscope.events import Event, MalformedEvent, PacketEvent
from mqttscope.lint.catalogue import secret_length
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Confidence, Finding, Severity
from mqttscope.lint.given_rules import chosen_rules, names_of, refuse_none, selected_names
from mqttscope.lint.profile import load, rules_of
from mqttscope.lint.quality import Quality
from mqttscope.lint.rule import Rule, Timing
from mqttscope.mqtt.wire import counted
from mqttscope.net.frame import CaptureError
from mqttscope.secrets.findings import HidingOptions, conceal


class Findings(Sequence[Finding]):
    """Findings in order of detection, with facts about the captures."""

    def __init__(self, findings: list[Finding], errors: list[CaptureError], linter: Linter, packets: int) -> None:
        self._findings = findings
        self.errors: list[CaptureError] = errors
        """Errors of captures; the findings cover the readable parts."""
        self.packets: int = packets
        """Number of linted MQTT packets; 0 means that the captures contain no MQTT, not that all is well."""
        self.rules: list[str] = [rule.code for rule in linter.rules]
        """Codes of the rules that ran."""
        self.withheld: dict[str, int] = dict(linter.withheld)
        """Number of findings by rule that the quality of the captures does not allow."""
        self.pending: dict[str, int] = dict(linter.pending)
        """Number of connections that ended before the timeout of a rule, by rule, for rules that could check no
        connection."""
        self.quality: Quality = linter.quality
        """Quality of the captures: losses, connections joined late, errors."""
        self.failed: dict[str, str] = {failure.rule: failure.error for failure in linter.internal_errors}
        """Rules that failed on a packet, with the error; usually own rules."""

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> list[Finding]: ...
    def __getitem__(self, index: int | slice) -> Finding | list[Finding]:
        return self._findings[index]

    def __len__(self) -> int:
        return len(self._findings)

    def __repr__(self) -> str:
        rules = counted(len(self.by_rule), "rule")
        return f"<{counted(len(self), 'finding')} by {rules} in {counted(self.packets, 'packet')}>"

    @property
    def by_rule(self) -> dict[str, list[Finding]]:
        """Findings by code of the rule."""
        findings: dict[str, list[Finding]] = {}
        for finding in self._findings:
            findings.setdefault(finding.rule, []).append(finding)
        return findings

    def at_least(
        self, severity: Severity | str = Severity.INFO, confidence: Confidence | str = Confidence.HEURISTIC
    ) -> list[Finding]:
        """Findings with at least this severity and confidence.

        ``at_least("error", "certain")`` returns the findings that make ``mqttscope lint`` exit with code 1.
        """
        __tracebackhide__ = True
        lowest = arguments.choice("severity", severity, Severity)
        surest = arguments.choice("confidence", confidence, Confidence)
        return [
            finding
            for finding in self._findings
            if finding.severity.rank >= lowest.rank and finding.confidence.rank >= surest.rank
        ]

    def to_dicts(self) -> list[dict[str, Any]]:
        """The JSON forms: lines of ``mqttscope lint --format jsonl`` (docs/findings.md)."""
        import orjson

        from mqttscope.report.findings.json import FINDING, line

        return [orjson.loads(line(FINDING.view(finding))) for finding in self._findings]


def lint(
    *captures: Path,
    select: Iterable[str] = (),
    extend_select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    rules: Iterable[type[Rule] | Rule] = (),
    profile: Path | None = None,
    timing: str = "normal",
    complete: Iterable[str] = (),
    filter: str | None = None,  # noqa: A002 - name of the option
    keys: Path | None = None,
    ports: Ports = (),
    version: str | None = None,
    deduplicate: bool = False,
    verify_checksums: bool = True,
    show_secrets: bool = False,
    raise_errors: bool = False,
) -> Findings:
    """Lint captures; returns all findings, of every severity and confidence.

    ``captures``, ``filter``, ``keys``, ``ports``, ``version``, ``deduplicate``, ``verify_checksums`` and
    ``raise_errors`` are as for `open`; a filter selects findings by their packets.  ``select``, ``extend_select`` and
    ``ignore``: codes, prefixes and names of rules, like the options of ``mqttscope lint`` (docs/rules.md).  ``rules``:
    additional rules, as classes or as instances with settings, unless ignored: own rules (docs/adding-a-rule.md), which
    the other three arguments may name, and other rules with different settings.
    ``profile``: name of a cloud service with known limits, or the path of a ``.toml`` file.  ``complete``: servers
    (``host:port``) with every connection in the captures.  ``timing``: ``test`` for test suites on one machine, with
    timeouts of at most one second (docs/lint.md).  No configuration file is read.

    `UnknownRuleError` and `ProfileError` for unknown names, `ArgumentError` if no rule is selected and for an
    incomplete rule in ``rules``, in addition to the errors of `open`.
    """
    source = CaptureSelection(
        captures, filter=filter, keys=keys, ports=ports, version=version, raise_errors=raise_errors,
        deduplicate=deduplicate, verify_checksums=verify_checksums,
    )  # fmt: skip
    limits = read_path(profile, "profile")
    arguments.flag("show_secrets", show_secrets)
    return judge(
        source,
        select=selected_names(select),
        extend_select=names_of(extend_select, "extend_select"),
        ignore=names_of(ignore, "ignore"),
        extra_rules=rules,
        timing=arguments.choice("timing", timing, Timing),
        limits=() if limits is None else rules_of(load(limits, FilePath.cwd())),
        complete=read_servers(complete),
        show_secrets=show_secrets,
    )


def judge(
    source: CaptureSelection, *, select: Sequence[str] = (), extend_select: Sequence[str] = (),
    ignore: Sequence[str] = (), extra_rules: Iterable[type[Rule] | Rule] = (), timing: Timing = Timing.NORMAL,
    limits: Sequence[Rule] = (), complete: frozenset[str] = frozenset(), show_secrets: bool = False
) -> Findings:  # fmt: skip
    """Like `lint`; ``extra_rules``: additional rules that may be named, ``limits``: rules that always run."""
    chosen = [*chosen_rules(select, extend_select, ignore, extra_rules, timing), *limits]
    refuse_none(chosen, select=select, extend_select=extend_select, ignore=ignore)
    reading = source.reading()
    linter = Linter(chosen, complete=complete, together=source.deduplicate, end_ns=reading.order.end_ns)
    judging = _LinterRun(linter, source, show_secrets=show_secrets)
    for event in source.events(reading, source.dissector(reading), judging.feed, linter.ledger.note_skipped):
        judging.feed(event)
    return Findings(judging.findings, source.errors, judging.linter, judging.packets)


class _LinterRun:
    """The linter of one reading, with its findings."""

    def __init__(self, linter: Linter, source: CaptureSelection, *, show_secrets: bool) -> None:
        self.linter = linter
        self.findings: list[Finding] = []
        self.packets = 0
        self._wanted = source.filter()
        self._hiding = HidingOptions(secret_length(linter.rules), show_secrets=show_secrets)

    def feed(self, event: Event) -> None:
        findings = self.linter.feed(event)
        is_wanted = self._wanted is None or self._wanted.matches(event)
        if is_wanted and isinstance(event, PacketEvent | MalformedEvent):
            self.packets += 1
        if findings and is_wanted:
            self.findings += (conceal(finding, self._hiding) for finding in findings)

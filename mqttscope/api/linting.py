"""Findings of captures: what breaks the specification, by whom, where, of which statement, and how certain.

for finding in mqttscope.lint("a.pcapng", select=["PUB"]):
print(finding.rule, finding.severity, finding.message, finding.statements)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path as FilePath
from typing import Any, overload

from mqttscope import arguments
from mqttscope.api.captures import Path, Ports, Source
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
from mqttscope.secrets.findings import Hiding, conceal


class Findings(Sequence[Finding]):
    """Findings in the order in which they were found, and what is to be known of the captures."""

    def __init__(self, found: list[Finding], errors: list[CaptureError], linter: Linter, packets: int) -> None:
        self._found = found
        self.errors: list[CaptureError] = errors
        """What could not be read: findings are of what could."""
        self.packets: int = packets
        """MQTT packets that were judged; 0 says that the captures hold no MQTT, which is no good news."""
        self.rules: list[str] = [rule.code for rule in linter.rules]
        """Codes of the rules that ran."""
        self.withheld: dict[str, int] = dict(linter.withheld)
        """Findings by rule that the captures are not good enough for."""
        self.pending: dict[str, int] = dict(linter.pending)
        """Rules that judged nothing since no connection lasts as long as their time-outs: connections that ended while
        they waited, by rule."""
        self.quality: Quality = linter.quality
        """How good the captures are: what was lost, joined late or could not be read."""
        self.failed: dict[str, str] = {one.rule: one.error for one in linter.internal_errors}
        """Rules that failed on some packet, with the reason: rules of one's own may."""

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> list[Finding]: ...
    def __getitem__(self, index: int | slice) -> Finding | list[Finding]:
        return self._found[index]

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        rules = counted(len(self.by_rule), "rule")
        return f"<{counted(len(self), 'finding')} by {rules} in {counted(self.packets, 'packet')}>"

    @property
    def by_rule(self) -> dict[str, list[Finding]]:
        """Findings by the code of their rule."""
        found: dict[str, list[Finding]] = {}
        for one in self._found:
            found.setdefault(one.rule, []).append(one)
        return found

    def at_least(
        self, severity: Severity | str = Severity.INFO, confidence: Confidence | str = Confidence.HEURISTIC
    ) -> list[Finding]:
        """Those of this severity and confidence, or higher ones.

        ``at_least("error", "certain")`` are those for which ``mqttscope lint`` ends with exit code 1.
        """
        __tracebackhide__ = True
        lowest = arguments.choice("severity", severity, Severity)
        surest = arguments.choice("confidence", confidence, Confidence)
        return [one for one in self._found if one.severity.rank >= lowest.rank and one.confidence.rank >= surest.rank]

    def to_dicts(self) -> list[dict[str, Any]]:
        """The JSON forms: what ``mqttscope lint --format jsonl`` writes (docs/findings.md)."""
        import orjson

        from mqttscope.report.findings.json import FINDING, line

        return [orjson.loads(line(FINDING.view(one))) for one in self._found]


def lint(
    *captures: Path,
    select: Iterable[str] = (),
    extend_select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    rules: Iterable[type[Rule] | Rule] = (),
    profile: Path | None = None,
    timing: str = "normal",
    complete: Iterable[str] = (),
    filter: str | None = None,  # noqa: A002 - the word of the option
    keys: Path | None = None,
    ports: Ports = (),
    version: str | None = None,
    deduplicate: bool = False,
    verify_checksums: bool = True,
    show_secrets: bool = False,
    raise_errors: bool = False,
) -> Findings:
    """Judge captures; returns all findings, of every severity and confidence.

    ``captures``, ``filter``, ``keys``, ``ports``, ``version``, ``deduplicate``, ``verify_checksums`` and
    ``raise_errors`` are as for `open`;
    a filter chooses findings by their packets.  ``select``, ``extend_select`` and ``ignore`` take codes, prefixes and
    names of rules as ``mqttscope lint`` does (docs/rules.md).  ``rules``: rules that run as well unless they are
    ignored, as classes or as instances with settings: those of one's own (docs/adding-a-rule.md), which the other three
    may name, and others whose settings are to be different.
    ``profile``: limits of a cloud service, or the path of a ``.toml`` file.  ``complete``: servers (``host:port``) of
    which the captures hold every connection.  ``timing``: ``test`` for test suites on one machine, where rules wait for
    a second at most (docs/lint.md).  No configuration file is read.

    `UnknownRuleError` and `ProfileError` for names that do not exist, `ArgumentError` when no rule is left and for an
    incomplete rule in ``rules``, besides the errors of `open`.
    """
    source = Source(
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
        given=rules,
        timing=arguments.choice("timing", timing, Timing),
        limits=() if limits is None else rules_of(load(limits, FilePath.cwd())),
        complete=read_servers(complete),
        show_secrets=show_secrets,
    )


def judge(
    source: Source,
    *,
    select: Sequence[str] = (),
    extend_select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    given: Iterable[type[Rule] | Rule] = (),
    timing: Timing = Timing.NORMAL,
    limits: Sequence[Rule] = (),
    complete: frozenset[str] = frozenset(),
    show_secrets: bool = False,
) -> Findings:
    """As `lint`; ``given`` are known to what selects and ignores, ``limits`` run in any case."""
    chosen = [*chosen_rules(select, extend_select, ignore, given, timing), *limits]
    refuse_none(chosen, select=select, extend_select=extend_select, ignore=ignore)
    reading = source.reading()
    linter = Linter(chosen, complete=complete, together=source.deduplicate, end_ns=reading.order.end_ns)
    judging = _Judging(linter, source, show_secrets=show_secrets)
    for event in source.events(reading, source.dissector(reading), judging.feed, linter.ledger.note_skipped):
        judging.feed(event)
    return Findings(judging.found, source.errors, judging.linter, judging.packets)


class _Judging:
    """The linter at work."""

    def __init__(self, linter: Linter, source: Source, *, show_secrets: bool) -> None:
        self.linter = linter
        self.found: list[Finding] = []
        self.packets = 0
        self._wanted = source.filter()
        self._hiding = Hiding(secret_length(linter.rules), show_secrets=show_secrets)

    def feed(self, event: Event) -> None:
        found = self.linter.feed(event)
        is_wanted = self._wanted is None or self._wanted.matches(event)
        if is_wanted and isinstance(event, PacketEvent | MalformedEvent):
            self.packets += 1
        if found and is_wanted:
            self.found += (conceal(one, self._hiding) for one in found)

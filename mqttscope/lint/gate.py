"""The gate: decides whether a finding is selected, suppressed or already known, and whether it fails the run.

`Gate` is the only place that decides this, for captures, live traffic and tests.  A finding *fails the run* if it is at
least as severe as ``fail_on``, at least as certain as ``fail_confidence``, and not suppressed.  Findings of a rule with
``once`` are one finding of the run: `Gate` holds them back, and `Gate.summed_up` returns them at the end.

`FindingSelection` restricts findings to a part of the captures: a filter, connections or clients.  `Suppressions` are
entries of the configuration that ignore findings of a client or a topic, or suppress them with a reason.
`FindingBaseline` has earlier findings, identified by fingerprints that survive a new capture.  Its file is meant to be
committed: it is sorted, with one finding per line and without times and addresses, so that its diffs are readable.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from datetime import date
from fnmatch import fnmatchcase, translate
from functools import cached_property
from typing import Any, Generic, TypeVar

from mqttscope.errors import MqttscopeError, schema_fault
from mqttscope.events import ConnectionClosed, Event
from mqttscope.lint.finding import Confidence, Finding, Severity, client_shape, fingerprint, topic_shape
from mqttscope.lint.grouping import Group, client_of
from mqttscope.lint.quality import is_whole_packet
from mqttscope.lint.rule import Rule
from mqttscope.mqtt.topics import matches
from mqttscope.mqtt.view import utf8
from mqttscope.secrets.credentials import starred_name
from mqttscope.secrets.forms import find_all, without


@dataclass(slots=True, frozen=True)
class Suppression:
    """Why a finding does not fail the run."""

    kind: str
    """``configuration`` or ``baseline``."""
    reason: str
    expires: str | None = None
    """Last day (ISO date) of the suppression."""


@dataclass
class Pattern:
    """One entry of the configuration: which findings it suppresses, and why."""

    codes: frozenset[str]
    """Codes of the rules, prefixes expanded."""
    client: str | None = None
    """Client Identifier, with ``*``, ``?`` and ``[...]`` as in file names."""
    topic: str | None = None
    """MQTT Topic Filter for the topic of the finding."""
    reason: str = ""
    expires: date | None = None
    written: str = ""
    """Name of the entry in messages."""
    used: int = 0
    """Number of suppressed findings."""

    def covers(self, finding: Finding) -> bool:
        """Whether the entry applies to a finding."""
        if finding.rule not in self.codes:
            return False
        if self.client is not None and not self._client_pattern.fullmatch(finding.client_identifier or ""):
            return False
        return self.topic is None or (finding.topic is not None and matches(self.topic, finding.topic))

    @cached_property
    def _client_pattern(self) -> re.Pattern[str]:
        return re.compile(translate(self.client or "*"))

    def is_expired(self, today: date) -> bool:
        return self.expires is not None and today > self.expires


@dataclass(slots=True)
class Suppressions:
    """All entries of the configuration, on one day."""

    patterns: list[Pattern] = field(default_factory=list)
    today: date | None = None

    def find(self, finding: Finding) -> Suppression | None:
        """The suppression of a finding by the first entry that applies; expired entries do not apply."""
        for pattern in self.patterns:
            if pattern.covers(finding):
                if self.today is not None and pattern.is_expired(self.today):
                    continue
                pattern.used += 1
                expires = None if pattern.expires is None else pattern.expires.isoformat()
                return Suppression("configuration", pattern.reason, expires)
        return None

    def expired(self) -> list[Pattern]:
        return [pattern for pattern in self.patterns if self.today is not None and pattern.is_expired(self.today)]

    def unused(self) -> list[Pattern]:
        expired = self.expired()
        return [pattern for pattern in self.patterns if not pattern.used and pattern not in expired]


SCHEMA = 1


class BaselineError(MqttscopeError, ValueError):
    """The text is not a baseline; the message gives the reason."""


def client_key(client_identifier: str | None) -> str:
    """The key of a client in entries: the shape of its identifier, without possible secrets."""
    return _without_secrets(client_shape(client_identifier and starred_name(client_identifier)))


def _without_secrets(text: str) -> str:
    return without(text, find_all(text))


@dataclass(slots=True)
class BaselineEntry:
    """A kind of finding: all findings with one fingerprint."""

    fingerprint: str
    rule: str
    client: str
    """Shape of the Client Identifier, see `client_key`."""
    topic: str
    """Shape of the topic."""
    packet_type: str
    direction: str
    field: str

    @classmethod
    def of(cls, finding: Finding) -> BaselineEntry:
        """The entry of a finding."""
        return cls(
            finding.fingerprint,
            finding.rule,
            client_key(finding.client_identifier),
            _without_secrets(topic_shape(finding.topic and starred_name(finding.topic))),
            finding.packet_type or "",
            finding.direction or "",
            finding.field,
        )

    def as_json(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class FindingBaseline:
    """Known findings, and how often each was found in this run."""

    entries: dict[str, BaselineEntry] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)

    def contains(self, finding: Finding) -> bool:
        """Whether the finding is in the baseline; if so, count it."""
        known = finding.fingerprint in self.entries
        if known:
            self.seen[finding.fingerprint] += 1
        return known

    def add(self, finding: Finding) -> None:
        """Add a finding to a new baseline."""
        if finding.fingerprint not in self.entries:
            self.entries[finding.fingerprint] = BaselineEntry.of(finding)

    def fixed(self, rules: set[str], clients: set[str]) -> list[BaselineEntry]:
        """Entries that were not found again, although their rule ran and their client was captured.

        ``rules``: codes of the rules that could find everything.  ``clients``: keys (`client_key`) of the captured
        clients; the empty key stands for a connection, or the start of one, without CONNECT.
        """
        return [
            entry
            for entry in self.entries.values()
            if not self.seen[entry.fingerprint] and entry.rule in rules and entry.client in clients
        ]

    def updated(self, current: FindingBaseline, rules: set[str], clients: set[str]) -> FindingBaseline:
        """The baseline that replaces this one: the current findings, and entries that could not be checked.

        An entry is dropped if its finding was found again and something else suppresses it now.
        """
        gone = {entry.fingerprint for entry in self.fixed(rules, clients)} | self.seen.keys()
        remaining = {known: entry for known, entry in self.entries.items() if known not in gone}
        return FindingBaseline({**remaining, **current.entries})

    def dumps(self) -> str:
        """The text of the file."""
        rows = sorted(self.entries.values(), key=lambda row: (row.rule, row.client, row.topic, row.fingerprint))
        lines = ",\n".join("  " + json.dumps(row.as_json()) for row in rows)
        body = f"\n{lines}\n " if rows else ""
        return f'{{"schema": {SCHEMA}, "tool": "mqttscope", "findings": [{body}]}}\n'

    @classmethod
    def loads(cls, text: str) -> FindingBaseline:
        """Read the text of a file; `BaselineError` if it is not a baseline."""
        try:
            document = json.loads(text)
        except RecursionError:
            raise BaselineError("not a baseline: nested too deeply") from None
        except ValueError as error:
            raise BaselineError(f"not JSON: {error}") from None
        if not isinstance(document, dict):
            raise BaselineError("not a baseline: it has no list of findings")
        fault = schema_fault(document.get("schema", SCHEMA), SCHEMA)
        if fault:
            raise BaselineError(f"{fault}, or remove the file and write it again with --update-baseline")
        if "schema" not in document or not isinstance(document.get("findings"), list):
            raise BaselineError("not a baseline: it has no list of findings")
        baseline = cls()
        for row in document["findings"]:
            entry = _entry(row)
            baseline.entries[entry.fingerprint] = entry
        return baseline


def _entry(row: Any) -> BaselineEntry:
    names = [field_.name for field_ in fields(BaselineEntry)]
    if not isinstance(row, dict) or not all(isinstance(row.get(name, ""), str) for name in names):
        raise BaselineError(f"not a finding: {str(row)[:80]}")
    if not row.get("fingerprint") or not row.get("rule"):
        raise BaselineError(f"a finding without fingerprint or rule: {str(row)[:80]}")
    return BaselineEntry(*(row.get(name, "") for name in names))


IN_BASELINE = Suppression("baseline", "in the baseline")


@dataclass(slots=True)
class Policy:
    """Which findings fail the run, which are shown, and which are suppressed."""

    fail_on: Severity = Severity.ERROR
    fail_confidence: Confidence = Confidence.CERTAIN
    min_confidence: Confidence = Confidence.HEURISTIC
    """Less certain findings are neither shown nor fail the run."""
    min_severity: Severity = Severity.INFO
    """Less severe findings are not shown."""
    suppressions: Suppressions = field(default_factory=Suppressions)

    def breaks(self, finding: Finding) -> bool:
        """Whether a finding fails the run, unless it is suppressed."""
        return finding.severity.rank >= self.fail_on.rank and finding.confidence.rank >= self.fail_confidence.rank


@dataclass(slots=True, frozen=True)
class GateVerdict:
    """The decision about one finding."""

    suppression: Suppression | None = None
    counts: bool = False
    """Whether it fails the run."""
    shown: bool = True
    """Whether reports show it now."""
    repeated: bool = False
    """Whether it is part of a finding of the run that was already decided."""

    @property
    def is_occurrence(self) -> bool:
        """Whether it occurs in reports, by itself or in the number of occurrences of another finding."""
        return self.suppression is None and (self.shown or self.repeated) and self is not UNSURE


UNSURE = GateVerdict(shown=False, repeated=True)
"""Below ``min_confidence``: treated as not found."""
_VERDICTS = {(counts, shown): GateVerdict(None, counts, shown) for counts in (False, True) for shown in (False, True)}
"""The decisions about nearly all findings."""


class Gate:
    """The decisions of one run, and their totals."""

    def __init__(
        self,
        policy: Policy,
        baseline: FindingBaseline | None = None,
        *,
        rules: Iterable[Rule] = (),
        updating: bool = False,
        name: Callable[[Finding], str] = client_of,
    ) -> None:
        """``rules``: the rules that run.  ``updating``: create a new baseline, ``new_baseline``.

        ``name`` returns a client's name for findings about many clients; it hides secrets of the client's packet.
        """
        self.policy = policy
        self.baseline = FindingBaseline() if baseline is None else baseline
        self.new_baseline = FindingBaseline()
        self.updating = updating
        self._name = name
        self.counts: Counter[Severity] = Counter()
        """Findings that are not suppressed."""
        self.failing: Counter[Severity] = Counter()
        """Findings among them that fail the run."""
        self.suppressed: Counter[str] = Counter()
        """Suppressed findings, by the kind of their suppression."""
        self.hidden: Counter[Severity] = Counter()
        """Findings below ``min_severity`` that are not suppressed: no report shows them."""
        self.hidden_failing = 0
        """Findings among them that fail the run."""
        self._once = {rule.code: rule for rule in rules if rule.once is not None}
        self._held: dict[str, tuple[Group, GateVerdict]] = {}

    def judge(self, finding: Finding) -> GateVerdict:
        """Decide about one finding."""
        policy = self.policy
        # A known finding that was found again is not fixed, even if it is hidden otherwise.
        known = self.baseline.contains(finding)
        if finding.confidence.rank < policy.min_confidence.rank:
            if known and self.updating:
                self.new_baseline.add(finding)
            return UNSURE
        suppression = policy.suppressions.find(finding)
        if suppression is None:
            if self.updating:
                self.new_baseline.add(finding)
            if known:
                suppression = IN_BASELINE
        shown = finding.severity.rank >= policy.min_severity.rank
        if suppression is not None:
            self.suppressed[suppression.kind] += 1
            return GateVerdict(suppression, shown=shown)
        if self._once:
            rule = self._once.get(finding.rule)
            if rule is not None and finding.severity is rule.once:
                return self._hold(finding, shown=shown)
        return self._counted(finding, shown=shown)

    def summed_up(self) -> list[tuple[Finding, GateVerdict]]:
        """The findings about the complete run, for the end of reports; each call returns new ones only."""
        held, self._held = self._held, {}
        return [(self._summary_finding(group), verdict) for group, verdict in held.values() if verdict.shown]

    def _counted(self, finding: Finding, *, shown: bool) -> GateVerdict:
        counts = self.policy.breaks(finding)
        self.counts[finding.severity] += 1
        self.failing[finding.severity] += counts
        if not shown:
            self.hidden[finding.severity] += 1
            self.hidden_failing += counts
        return _VERDICTS[counts, shown]

    def _hold(self, finding: Finding, *, shown: bool) -> GateVerdict:
        held = self._held.get(finding.rule)
        repeated = held is not None
        if held is None:
            held = self._held[finding.rule] = Group(finding), self._counted(finding, shown=shown)
        group, verdict = held
        group.add(finding, self._name)
        return GateVerdict(None, verdict.counts, shown=False, repeated=repeated)

    def _summary_finding(self, group: Group) -> Finding:
        first, number = group.first, len(group.clients)
        if number == 1:
            return first
        message = self._once[first.rule].sum_up(group.number_of_clients, group.named())
        # Which client comes first is chance, so the fingerprint must not depend on it.
        known = fingerprint(first.rule, first.direction, None, first.packet_type, first.field, first.topic)
        return replace(first, message=message, clients=number, fingerprint=known)


MAX_WAITING = 10_000
"""Maximum number of findings that wait for the Client Identifier of their connection; further ones are dropped."""

FoundT = TypeVar("FoundT")


@dataclass(slots=True)
class _PendingFindings(Generic[FoundT]):
    """Findings in a connection with a client that is not known yet."""

    findings: list[FoundT] = field(default_factory=list)
    events: int = 0
    packets: int = 0
    captures: set[str] = field(default_factory=set)

    def add(self, event: Event, findings: list[FoundT]) -> None:
        self.findings += findings
        self.events += 1
        if is_whole_packet(event):
            self.packets += 1
            self.captures.add(event.capture)


@dataclass(slots=True)
class FindingSelection(Generic[FoundT]):
    """The part of the captures to report findings for; rules see everything.  Plain data."""

    wanted: Any = None
    """A filter."""
    connections: tuple[int, ...] = ()
    clients: tuple[str, ...] = ()
    """Patterns for Client Identifiers."""
    most: int = 0
    """Maximum number of findings that may wait; 0 for `MAX_WAITING`."""
    events: int = 0
    """Number of selected events."""
    packets: int = 0
    """Number of packets among them."""
    spoken: set[str] = field(default_factory=set)
    """Captures with selected packets."""
    left_out: int = 0
    """Findings dropped beyond the maximum."""
    _waiting: dict[int, _PendingFindings[FoundT]] = field(default_factory=dict)
    """Findings by connection number."""
    _count: int = 0

    def take(self, event: Event, findings: list[FoundT]) -> list[FoundT]:
        """The selected findings of an event, and earlier ones if the client is now known."""
        connection = getattr(event, "connection", None)
        if connection is None or (self.connections and connection.number not in self.connections):
            return []
        matches = self.wanted is None or self.wanted.matches(event)
        name, number = connection.client_identifier, connection.number
        if self.clients and not name and not isinstance(event, ConnectionClosed):
            if matches:
                room = (self.most or MAX_WAITING) - self._count
                self.left_out += max(0, len(findings) - room)
                self._count += len(findings[:room])
                self._waiting.setdefault(number, _PendingFindings()).add(event, findings[:room])
            return []
        passed = self._waiting.pop(number, None) or _PendingFindings()
        self._count -= len(passed.findings)
        if self.clients and not any(fnmatchcase(name or "", pattern) for pattern in self.clients):
            return []
        if matches:
            passed.add(event, findings)
        self.events += passed.events
        self.packets += passed.packets
        self.spoken |= passed.captures
        return passed.findings

    def missing(self, connections: int) -> str:
        """The message if no packet is selected."""
        absent = [number for number in self.connections if number >= connections]
        if absent:
            last = "the only one is number 0" if connections == 1 else f"numbers go from 0 to {connections - 1}"
            return f"no connection {', '.join(map(str, absent))}: {last}"
        if self.clients and self.wanted is None:
            names = ", ".join(repr(utf8(pattern)) for pattern in self.clients)
            return f"no packet of {'a client' if len(self.clients) == 1 else 'clients'} {names}"
        return "no packet matches what was selected"

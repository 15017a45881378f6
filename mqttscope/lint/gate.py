"""Decides what becomes of a finding: whether it is selected, suppressed or known, and whether it makes the run fail.

`Gate` is the one place that decides it for captures, live traffic and tests.  A finding *counts* when it is at least as
severe as ``fail_on`` and as sure as ``fail_confidence``, and nothing suppresses it.  Findings of a rule with ``once``
are one finding of the run: they are held back and come with `Gate.summed_up` at the end.

`Selection` restricts findings to a part of the captures, by a filter, by connections or by clients.  `Suppressions` are
the entries of the configuration that ignore findings for a client or a topic, or suppress them with a reason.
`Baseline` holds the findings that were there before, known by fingerprints that survive a new capture.  Its file is
meant to be committed: it is sorted, has one finding per line and neither times nor addresses, so that its differences
are readable.
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
    """Why a finding does not count."""

    kind: str
    """``configuration`` or ``baseline``."""
    reason: str
    expires: str | None = None
    """Date (ISO) after which it counts again."""


@dataclass
class Pattern:
    """One entry of the configuration: which findings it silences, and why."""

    codes: frozenset[str]
    """Codes of the rules, prefixes expanded."""
    client: str | None = None
    """Client Identifier; ``*``, ``?`` and ``[...]`` as in file names."""
    topic: str | None = None
    """MQTT Topic Filter that the topic of the finding has to match."""
    reason: str = ""
    expires: date | None = None
    written: str = ""
    """How the configuration has it, for messages."""
    used: int = 0
    """How many findings it silenced."""

    def covers(self, finding: Finding) -> bool:
        """Whether a finding is one of those meant."""
        if finding.rule not in self.codes:
            return False
        if self.client is not None and not self._client.fullmatch(finding.client_identifier or ""):
            return False
        return self.topic is None or (finding.topic is not None and matches(self.topic, finding.topic))

    @cached_property
    def _client(self) -> re.Pattern[str]:
        return re.compile(translate(self.client or "*"))

    def is_expired(self, today: date) -> bool:
        return self.expires is not None and today > self.expires


@dataclass(slots=True)
class Suppressions:
    """All of them, on one day."""

    patterns: list[Pattern] = field(default_factory=list)
    today: date | None = None

    def find(self, finding: Finding) -> Suppression | None:
        """The first that silences a finding; expired ones silence nothing."""
        for pattern in self.patterns:
            if pattern.covers(finding):
                if self.today is not None and pattern.is_expired(self.today):
                    continue
                pattern.used += 1
                expires = None if pattern.expires is None else pattern.expires.isoformat()
                return Suppression("configuration", pattern.reason, expires)
        return None

    def expired(self) -> list[Pattern]:
        return [one for one in self.patterns if self.today is not None and one.is_expired(self.today)]

    def unused(self) -> list[Pattern]:
        expired = self.expired()
        return [one for one in self.patterns if not one.used and one not in expired]


SCHEMA = 1


class BaselineError(MqttscopeError, ValueError):
    """The text is no baseline; the message gives the reason."""


def client_key(client_identifier: str | None) -> str:
    """By what entries know a client: the shape of its identifier, without what looks like a secret."""
    return _without_secrets(client_shape(client_identifier and starred_name(client_identifier)))


def _without_secrets(text: str) -> str:
    return without(text, find_all(text))


@dataclass(slots=True)
class Entry:
    """A kind of finding: all those with the same fingerprint."""

    fingerprint: str
    rule: str
    client: str
    """Shape of the Client Identifier, as `client_key` gives it."""
    topic: str
    """Shape of the topic."""
    packet_type: str
    direction: str
    field: str

    @classmethod
    def of(cls, finding: Finding) -> Entry:
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
class Baseline:
    """Known findings, and how often each was seen again in this run."""

    entries: dict[str, Entry] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)

    def knows(self, finding: Finding) -> bool:
        """Whether the finding is an old one; counts it when it is."""
        known = finding.fingerprint in self.entries
        if known:
            self.seen[finding.fingerprint] += 1
        return known

    def add(self, finding: Finding) -> None:
        """Take a finding into a baseline that is being made."""
        if finding.fingerprint not in self.entries:
            self.entries[finding.fingerprint] = Entry.of(finding)

    def fixed(self, rules: set[str], clients: set[str]) -> list[Entry]:
        """Entries that did not come again although their rule ran and their client was captured.

        ``rules`` are codes of those that could find all there was, ``clients`` what `client_key` makes of those that
        were captured; the empty one stands for a connection, or the beginning of one, without CONNECT.
        """
        return [
            entry
            for entry in self.entries.values()
            if not self.seen[entry.fingerprint] and entry.rule in rules and entry.client in clients
        ]

    def updated(self, found: Baseline, rules: set[str], clients: set[str]) -> Baseline:
        """What takes the place of this baseline: what was found now, and entries that were not looked at.

        An entry whose finding came again, but is silenced otherwise by now, is not needed any more.
        """
        gone = {entry.fingerprint for entry in self.fixed(rules, clients)} | self.seen.keys()
        kept = {known: entry for known, entry in self.entries.items() if known not in gone}
        return Baseline({**kept, **found.entries})

    def dumps(self) -> str:
        """The text of the file."""
        rows = sorted(self.entries.values(), key=lambda one: (one.rule, one.client, one.topic, one.fingerprint))
        lines = ",\n".join("  " + json.dumps(row.as_json()) for row in rows)
        body = f"\n{lines}\n " if rows else ""
        return f'{{"schema": {SCHEMA}, "tool": "mqttscope", "findings": [{body}]}}\n'

    @classmethod
    def loads(cls, text: str) -> Baseline:
        """Read the text of a file; `BaselineError` when it is none."""
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
        made = cls()
        for row in document["findings"]:
            entry = _entry(row)
            made.entries[entry.fingerprint] = entry
        return made


def _entry(row: Any) -> Entry:
    names = [one.name for one in fields(Entry)]
    if not isinstance(row, dict) or not all(isinstance(row.get(name, ""), str) for name in names):
        raise BaselineError(f"not a finding: {str(row)[:80]}")
    if not row.get("fingerprint") or not row.get("rule"):
        raise BaselineError(f"a finding without fingerprint or rule: {str(row)[:80]}")
    return Entry(*(row.get(name, "") for name in names))


IN_BASELINE = Suppression("baseline", "in the baseline")


@dataclass(slots=True)
class Policy:
    """What counts, what is shown, and what is suppressed."""

    fail_on: Severity = Severity.ERROR
    fail_confidence: Confidence = Confidence.CERTAIN
    min_confidence: Confidence = Confidence.HEURISTIC
    """What is less sure is neither shown nor counted."""
    min_severity: Severity = Severity.INFO
    """What is less severe is not shown."""
    suppressions: Suppressions = field(default_factory=Suppressions)

    def breaks(self, finding: Finding) -> bool:
        """Whether a finding is one of those that make a run fail."""
        return finding.severity.rank >= self.fail_on.rank and finding.confidence.rank >= self.fail_confidence.rank


@dataclass(slots=True, frozen=True)
class Verdict:
    """What becomes of one finding."""

    suppression: Suppression | None = None
    counts: bool = False
    """It makes the run fail."""
    shown: bool = True
    """Reports get it now."""
    repeated: bool = False
    """It is one more of those that are one finding of the run."""


UNSURE = Verdict(shown=False, repeated=True)
"""Below ``min_confidence``: as if it had not been found."""
_VERDICTS = {(counts, shown): Verdict(None, counts, shown) for counts in (False, True) for shown in (False, True)}
"""Those about nearly all findings."""


class Gate:
    """The verdicts of one run, and what they add up to."""

    def __init__(
        self,
        policy: Policy,
        baseline: Baseline | None = None,
        *,
        rules: Iterable[Rule] = (),
        updating: bool = False,
        name: Callable[[Finding], str] = client_of,
    ) -> None:
        """``rules`` are those that run; with ``updating`` a new baseline is ``made``.

        ``name`` gives what a client is called in a finding about many, where that may hold a secret of its packet.
        """
        self.policy = policy
        self.baseline = Baseline() if baseline is None else baseline
        self.made = Baseline()
        self.updating = updating
        self._name = name
        self.counts: Counter[Severity] = Counter()
        """Findings that are not suppressed."""
        self.failing: Counter[Severity] = Counter()
        """Those of them that count."""
        self.suppressed: Counter[str] = Counter()
        """Those that are, by the kind of their suppression."""
        self.hidden: Counter[Severity] = Counter()
        """Findings below ``min_severity`` that are not suppressed: no report has them."""
        self.hidden_failing = 0
        """Those of them that count."""
        self._once = {rule.code: rule for rule in rules if rule.once is not None}
        self._held: dict[str, tuple[Group, Verdict]] = {}

    def judge(self, finding: Finding) -> Verdict:
        """Decide about one finding."""
        policy = self.policy
        # Whatever else hides it, what came again was not fixed.
        known = self.baseline.knows(finding)
        if finding.confidence.rank < policy.min_confidence.rank:
            if known and self.updating:
                self.made.add(finding)
            return UNSURE
        suppression = policy.suppressions.find(finding)
        if suppression is None:
            if self.updating:
                self.made.add(finding)
            if known:
                suppression = IN_BASELINE
        shown = finding.severity.rank >= policy.min_severity.rank
        if suppression is not None:
            self.suppressed[suppression.kind] += 1
            return Verdict(suppression, shown=shown)
        if self._once:
            rule = self._once.get(finding.rule)
            if rule is not None and finding.severity is rule.once:
                return self._hold(finding, shown=shown)
        return self._counted(finding, shown=shown)

    def summed_up(self) -> list[tuple[Finding, Verdict]]:
        """The findings about the complete run, for the end of reports; each is given once."""
        held, self._held = self._held, {}
        return [(self._sum(one), verdict) for one, verdict in held.values() if verdict.shown]

    def _counted(self, finding: Finding, *, shown: bool) -> Verdict:
        counts = self.policy.breaks(finding)
        self.counts[finding.severity] += 1
        self.failing[finding.severity] += counts
        if not shown:
            self.hidden[finding.severity] += 1
            self.hidden_failing += counts
        return _VERDICTS[counts, shown]

    def _hold(self, finding: Finding, *, shown: bool) -> Verdict:
        held = self._held.get(finding.rule)
        repeated = held is not None
        if held is None:
            held = self._held[finding.rule] = Group(finding), self._counted(finding, shown=shown)
        group, verdict = held
        group.add(finding, self._name)
        return Verdict(None, verdict.counts, shown=False, repeated=repeated)

    def _sum(self, group: Group) -> Finding:
        first, number = group.first, len(group.clients)
        if number == 1:
            return first
        message = self._once[first.rule].sum_up(group.number_of_clients, group.named())
        # Which client comes first is chance, so that it is no part of what the finding is known by.
        known = fingerprint(first.rule, first.direction, None, first.packet_type, first.field, first.topic)
        return replace(first, message=message, clients=number, fingerprint=known)


MAX_WAITING = 10_000
"""Findings that wait for the Client Identifier of their connection; further ones are left out, and counted."""

Found = TypeVar("Found")


@dataclass(slots=True)
class _Waiting(Generic[Found]):
    """What was found in a connection whose client is not known yet."""

    findings: list[Found] = field(default_factory=list)
    events: int = 0
    packets: int = 0
    captures: set[str] = field(default_factory=set)

    def add(self, event: Event, found: list[Found]) -> None:
        self.findings += found
        self.events += 1
        if is_whole_packet(event):
            self.packets += 1
            self.captures.add(event.capture)


@dataclass(slots=True)
class Selection(Generic[Found]):
    """The part of the captures that findings are wanted of; rules see all of it.  Plain data."""

    wanted: Any = None
    """A filter."""
    connections: tuple[int, ...] = ()
    clients: tuple[str, ...] = ()
    """Patterns of Client Identifiers."""
    most: int = 0
    """Findings that may wait, where that is not `MAX_WAITING`."""
    events: int = 0
    """Events that are in it."""
    packets: int = 0
    """Packets among them."""
    spoken: set[str] = field(default_factory=set)
    """Captures that hold them."""
    left_out: int = 0
    """Findings beyond `MAX_WAITING`."""
    _waiting: dict[int, _Waiting[Found]] = field(default_factory=dict)
    """By the number of the connection."""
    _count: int = 0

    def take(self, event: Event, found: list[Found]) -> list[Found]:
        """The findings that are in it, of an event, or of earlier ones whose client is known by now."""
        connection = getattr(event, "connection", None)
        if connection is None or (self.connections and connection.number not in self.connections):
            return []
        matches = self.wanted is None or self.wanted.matches(event)
        name, number = connection.client_identifier, connection.number
        if self.clients and not name and not isinstance(event, ConnectionClosed):
            if matches:
                room = (self.most or MAX_WAITING) - self._count
                self.left_out += max(0, len(found) - room)
                self._count += len(found[:room])
                self._waiting.setdefault(number, _Waiting()).add(event, found[:room])
            return []
        passed = self._waiting.pop(number, None) or _Waiting()
        self._count -= len(passed.findings)
        if self.clients and not any(fnmatchcase(name or "", one) for one in self.clients):
            return []
        if matches:
            passed.add(event, found)
        self.events += passed.events
        self.packets += passed.packets
        self.spoken |= passed.captures
        return passed.findings

    def missing(self, connections: int) -> str:
        """The message where no packet is in it."""
        absent = [number for number in self.connections if number >= connections]
        if absent:
            last = "the only one is number 0" if connections == 1 else f"numbers go from 0 to {connections - 1}"
            return f"there is no connection {', '.join(map(str, absent))}: {last}"
        if self.clients and self.wanted is None:
            names = ", ".join(repr(utf8(one)) for one in self.clients)
            return f"no packet of {'a client' if len(self.clients) == 1 else 'clients'} {names}"
        return "no packet matches what was selected"

"""What becomes of a finding: whether it is shown, suppressed or known, and whether it counts, so that the run fails.

One place decides it for captures, live traffic and tests.  A finding *counts* when it is at least as severe as
``fail_on`` and as sure as ``fail_confidence``, and nothing suppresses it.

Findings of a rule with ``once`` are one finding of the run: they are held, and come with `Gate.summed_up` at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from mqttscope.lint.baseline import Baseline
from mqttscope.lint.finding import Confidence, Finding, Severity, fingerprint
from mqttscope.lint.rule import Rule
from mqttscope.lint.suppress import Suppression, Suppressions

IN_BASELINE = Suppression("baseline", "in the baseline")
MAX_CLIENTS = 100_000
"""Clients that are told apart in a finding about all of them."""
MAX_NAMED = 3
"""Clients that such a finding names."""
MAX_NAME = 60
"""Characters of a Client Identifier in it."""


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


@dataclass(slots=True)
class _Held:
    """Findings of a rule that are one finding of the run."""

    first: Finding
    verdict: Verdict
    clients: set[str] = field(default_factory=set)
    names: list[str] = field(default_factory=list)
    """What the first few of them are called."""
    more: bool = False
    """There were more clients than are told apart."""


def client_of(finding: Finding) -> str:
    """The Client Identifier of a finding, or the address of its client."""
    return finding.client_identifier or finding.client


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
        self._held: dict[str, _Held] = {}

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
        """The findings that are about the run as a whole, for the end of reports; each is given once."""
        held, self._held = self._held, {}
        return [(self._sum(one), one.verdict) for one in held.values() if one.verdict.shown]

    def _counted(self, finding: Finding, *, shown: bool) -> Verdict:
        counts = self.policy.breaks(finding)
        self.counts[finding.severity] += 1
        self.failing[finding.severity] += counts
        if not shown:
            self.hidden[finding.severity] += 1
            self.hidden_failing += counts
        return Verdict(None, counts, shown)

    def _hold(self, finding: Finding, *, shown: bool) -> Verdict:
        held = self._held.get(finding.rule)
        repeated = held is not None
        if held is None:
            held = self._held[finding.rule] = _Held(finding, self._counted(finding, shown=shown))
        client = client_of(finding)
        if client not in held.clients:
            if len(held.clients) >= MAX_CLIENTS:
                held.more = True
            else:
                held.clients.add(client)
                if len(held.names) < MAX_NAMED:
                    held.names.append(self._name(finding))
        return Verdict(None, held.verdict.counts, shown=False, repeated=repeated)

    def _sum(self, held: _Held) -> Finding:
        first, number = held.first, len(held.clients)
        if number == 1:
            return first
        named = [repr(_short(name)) for name in held.names]
        if number > MAX_NAMED or held.more:
            named.append("others" if held.more else f"{number - len(named):,} more")
        names = f"{', '.join(named[:-1])} and {named[-1]}"
        message = self._once[first.rule].sum_up(f"{'more than ' if held.more else ''}{number:,}", names)
        # Which client comes first is chance, so that it is no part of what the finding is known by.
        known = fingerprint(first.rule, first.direction, None, first.packet_type, first.field, first.topic)
        return replace(first, message=message, clients=number, fingerprint=known)


def _short(name: str) -> str:
    return name if len(name) <= MAX_NAME else name[:MAX_NAME] + "…"

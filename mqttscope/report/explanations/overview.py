"""The first five lines of a report: what broke, for how many clients, since when, why, and what to look at."""

from __future__ import annotations

from dataclasses import dataclass, field

from mqttscope.explain.model import Candidate, Cause, Explanation
from mqttscope.report.base import Clock
from mqttscope.report.explanations.base import TITLES
from mqttscope.report.numbers import plural

MAX_CLIENTS = 100_000
"""Clients that are counted by name."""
MAX_NAMED = 5
"""Clients and causes that are named."""


@dataclass(slots=True)
class _Kind:
    """Ends with one cause."""

    first: Candidate
    count: int = 0
    clients: set[str] = field(default_factory=set)


class Overview:
    """Feed it each end in trouble, then ask for its `lines`."""

    def __init__(self) -> None:
        self._kinds: dict[Cause, _Kind] = {}
        self._clients: dict[str, None] = {}
        self._from_ns: int | None = None
        self._until_ns = 0
        self._clock_set = False
        self._clock = Clock()

    def add(self, one: Explanation) -> None:
        """Count an end, unless it is an ordinary one."""
        if one.is_quiet:
            return
        known = self._kinds.setdefault(one.cause, _Kind(one.first))
        if one.first.certainty.rank > known.first.certainty.rank:
            known.first = one.first
        known.count += 1
        name = one.client_identifier or one.client.rpartition(":")[0]
        if len(self._clients) < MAX_CLIENTS:
            self._clients[name] = None
            known.clients.add(name)
        self._from_ns = one.ended_ns if self._from_ns is None else min(self._from_ns, one.ended_ns)
        self._until_ns = max(self._until_ns, one.ended_ns)

    def lines(self) -> list[tuple[str, str]]:
        """Titles and sentences; empty where nothing broke."""
        if not self._kinds or self._from_ns is None:
            return []
        kinds = sorted(self._kinds.items(), key=lambda one: (-len(one[1].clients), -one[1].count))
        told = ", ".join(f"{kind.count:,} × {TITLES[cause]}" for cause, kind in kinds[:MAX_NAMED])
        more = "" if len(kinds) <= MAX_NAMED else f", {plural(len(kinds) - MAX_NAMED, 'other cause')}"
        total = sum(kind.count for _, kind in kinds)
        names = list(self._clients)
        named = ", ".join(names[:MAX_NAMED]) + (", …" if len(names) > MAX_NAMED else "")
        first = kinds[0][1].first
        since = self._clock.iso(self._from_ns)
        if self._until_ns != self._from_ns:
            since += f", the last at {self._clock.iso(self._until_ns)}"
        return [
            ("What broke", f"{plural(total, 'connection')}: {told}{more}"),
            ("Clients", f"{len(names):,}: {named}"),
            ("Since", since),
            ("Why", f"{first.certainty}: {first.headline}"),
            ("Look at", first.advice[0] if first.advice else "the ends below"),
        ]

"""What a run against one broker came to: counted as it goes, for all formats."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from mqttscope.trial.run import Result
from mqttscope.trial.smaller import Smaller
from mqttscope.trial.verdict import Verdict, ruling_json

RANK = (
    Verdict.CRASHED,
    Verdict.HUNG,
    Verdict.COLLATERAL,
    Verdict.LEAKED,
    Verdict.REFUSED_LEGAL,
    Verdict.TOLERATED,
    Verdict.NO_ANSWER,
    Verdict.WRONG_REASON,
    Verdict.CONFORMING,
)
"""The worst first."""


@dataclass(slots=True)
class Reduced:
    """A failing case that was made smaller, and how it is played by hand."""

    smaller: Smaller
    shell: str


@dataclass(slots=True)
class Tried:
    """One broker."""

    broker: str
    capture: str
    """The captures, as they were named."""
    capture_hash: str
    seed: int
    results: list[Result] = field(default_factory=list)
    """Those with a verdict."""
    not_played: Counter[str] = field(default_factory=Counter)
    """Why cases did not get to their mutation."""
    too_long: int = 0
    """Cases left out, since their pauses are longer than was allowed."""
    seconds: float = 0.0
    stopped: str = ""
    """Why it ended early."""
    reduced: dict[int, Reduced] = field(default_factory=dict)
    """By the number of the case."""

    def add(self, result: Result) -> None:
        """Count a case."""
        if result.ruling is None:
            self.not_played[result.not_played] += 1
        else:
            self.results.append(result)

    @property
    def deviations(self) -> list[Result]:
        """Cases in which the broker deviates, the worst first."""
        found = [one for one in self.results if one.deviates]
        return sorted(found, key=lambda one: (RANK.index(verdict(one)), one.case.mutation.name, one.number))

    @property
    def verdicts(self) -> dict[Verdict, int]:
        """How often each verdict was given, the worst first."""
        counts = Counter(verdict(one) for one in self.results)
        return {one: counts[one] for one in RANK if counts[one]}

    def by_statement(self) -> dict[str, Counter[Verdict]]:
        """Verdicts by what was broken; legal flows stand under ``legal``."""
        rows: dict[str, Counter[Verdict]] = {}
        for one in self.results:
            for name in one.case.statements or (f"{one.case.version.text} ({one.case.verdict})",):
                rows.setdefault(name, Counter())[verdict(one)] += 1
        return rows

    def by_mutation(self) -> dict[str, Counter[Verdict]]:
        """Verdicts by mutation."""
        rows: dict[str, Counter[Verdict]] = {}
        for one in self.results:
            rows.setdefault(one.case.mutation.name, Counter())[verdict(one)] += 1
        return rows


def verdict(result: Result) -> Verdict:
    """The verdict of a case that has one."""
    assert result.ruling is not None
    return result.ruling.verdict


def result_json(result: Result, reduced: Reduced | None = None) -> dict[str, Any]:
    """One case as plain JSON."""
    ruling = None if result.ruling is None else ruling_json(result.ruling)
    document: dict[str, Any] = {
        "schema": 1,
        "event": "case",
        "number": result.number,
        **(ruling or {"verdict": None, "why": result.not_played, "statements": []}),
        "seconds": round(result.seconds, 6),
        "case": result.case.as_json(),
    }
    if result.unclean:
        document["left_behind"] = list(result.unclean)
    if reduced is not None:
        document["reduced"] = {
            "tries": reduced.smaller.tries,
            "sends": [one.hex() for one in reduced.smaller.sends],
            "shell": reduced.shell,
        }
    return document


def summary_json(tried: Tried) -> dict[str, Any]:
    """The run as plain JSON."""
    return {
        "schema": 1,
        "event": "mutate",
        "broker": tried.broker,
        "capture": tried.capture,
        "capture_hash": tried.capture_hash,
        "seed": tried.seed,
        "cases": len(tried.results),
        "deviations": len(tried.deviations),
        "verdicts": {str(name): count for name, count in tried.verdicts.items()},
        "not_played": [{"reason": why, "cases": count} for why, count in tried.not_played.most_common()],
        "too_long": tried.too_long,
        "seconds": round(tried.seconds, 6),
        "stopped": tried.stopped,
    }

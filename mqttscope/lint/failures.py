"""Failures of rules, combined from several linters: tasks on a cluster, or batches that follow each other.

One linter stores its own failures (`engine.Linter.internal_errors`).  Here they become plain data that can be combined
and reported with the same sentences.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mqttscope.lint.engine import MAX_INTERNAL_ERRORS, InternalError, Linter
from mqttscope.lint.rule import Rule
from mqttscope.mqtt.view import utf8

MAX_TEXT = 2_000
"""Maximum number of characters kept of an exception's text."""


@dataclass(slots=True)
class RuleFailures:
    """Failures of rules, as bounded plain data that can be encoded as JSON."""

    errors: list[InternalError] = field(default_factory=list)
    """The first `MAX_INTERNAL_ERRORS` errors, and the first of each rule; without their traces."""
    counts: dict[str, int] = field(default_factory=dict)
    """Number of failures per rule, by its code."""

    def __bool__(self) -> bool:
        return bool(self.counts)

    def take(self, linter: Linter, *, but: Collection[str] = ()) -> None:
        """Add the failures of a linter; ``but``: rules with failures that are reported elsewhere."""
        errors = [_plain(error) for error in linter.internal_errors if error.rule not in but]
        self.add(RuleFailures(errors, {code: count for code, count in linter.failures.items() if code not in but}))

    def add(self, later: RuleFailures) -> None:
        """Add later failures."""
        known = {error.rule for error in self.errors}
        for error in later.errors:
            if error.rule not in known or len(self.errors) < MAX_INTERNAL_ERRORS:
                known.add(error.rule)
                self.errors.append(error)
        for code, count in later.counts.items():
            self.counts[code] = self.counts.get(code, 0) + count

    def sentences(self, rules: Iterable[Rule]) -> list[str]:
        """Sentences about the failures of ``rules``, as `Linter.failure_sentences` writes them."""
        if not self.counts:
            return []
        linter = Linter(rules)
        linter.failures.update(self.counts)
        return linter.failure_sentences()

    @classmethod
    def loaded(cls, plain: dict[str, Any]) -> RuleFailures:
        """The failures in the result of `dataclasses.asdict`."""
        return cls([InternalError(**row) for row in plain["errors"]], dict(plain["counts"]))

    @classmethod
    def together(cls, parts: Iterable[RuleFailures], captures: Sequence[str] = ()) -> RuleFailures:
        """The failures of tasks that ran in parallel, in the order of frames.

        ``captures``: names in the order of reading.  ``parts`` contain names as UTF-8 text (`utf8`); they are restored.
        """
        listed = list(parts)
        places = {utf8(name): place for place, name in enumerate(captures)}
        errors = sorted(
            (error for part in listed for error in part.errors),
            key=lambda row: (places.get(row.capture, len(places)), row.capture, row.frame, row.rule, row.error),
        )
        named = [
            replace(row, capture=captures[places[row.capture]]) if row.capture in places else row for row in errors
        ]
        total = cls()
        total.add(cls(named))
        for part in listed:
            total.add(cls(counts=part.counts))
        return total


def _plain(error: InternalError) -> InternalError:
    text = utf8(error.error)
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}..."
    return InternalError(error.rule, utf8(error.capture), error.frame, text, "")

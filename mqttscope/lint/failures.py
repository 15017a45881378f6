"""Rules that failed, where several linters share the work: tasks on a cluster, or one batch after the other.

One linter keeps its failures itself (`engine.Linter.internal_errors`).  Where others have to know them, they are
taken out of it as plain data, put together, and reported with the same words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mqttscope.lint.engine import MAX_INTERNAL_ERRORS, InternalError, Linter
from mqttscope.lint.rule import Rule
from mqttscope.mqtt.view import utf8

MAX_TEXT = 2_000
"""Characters that are kept of what a rule has raised."""


@dataclass(slots=True)
class Failures:
    """Rules that failed.  Plain data that can be encoded as JSON, and bounded."""

    errors: list[InternalError] = field(default_factory=list)
    """The first ones: `MAX_INTERNAL_ERRORS` in all, and the first of each rule; without their traces."""
    counts: dict[str, int] = field(default_factory=dict)
    """How often each rule failed, by its code."""

    def __bool__(self) -> bool:
        return bool(self.counts)

    def take(self, linter: Linter, *, but: Collection[str] = ()) -> None:
        """Add the failures of a linter; ``but``: codes of rules whose failures another one reports."""
        errors = [_plain(one) for one in linter.internal_errors if one.rule not in but]
        self.add(Failures(errors, {code: count for code, count in linter.failures.items() if code not in but}))

    def add(self, others: Failures) -> None:
        """Add the failures of others, which came later."""
        known = {one.rule for one in self.errors}
        for one in others.errors:
            if one.rule not in known or len(self.errors) < MAX_INTERNAL_ERRORS:
                known.add(one.rule)
                self.errors.append(one)
        for code, count in others.counts.items():
            self.counts[code] = self.counts.get(code, 0) + count

    def told(self, rules: Iterable[Rule]) -> list[str]:
        """How often ``rules`` failed, in the sentences of `Linter.failures_told`."""
        if not self.counts:
            return []
        linter = Linter(rules)
        linter.failures.update(self.counts)
        return linter.failures_told()

    @classmethod
    def loaded(cls, plain: dict[str, Any]) -> Failures:
        """The failures of what `dataclasses.asdict` has made of them."""
        return cls([InternalError(**one) for one in plain["errors"]], dict(plain["counts"]))

    @classmethod
    def together(cls, parts: Iterable[Failures], captures: Sequence[str] = ()) -> Failures:
        """The failures of tasks that ran at the same time, in the order of frames.

        ``captures``: their names, in the order of reading.  Names in ``parts`` are text (`utf8`); these come back.
        """
        listed = list(parts)
        places = {utf8(name): place for place, name in enumerate(captures)}
        found = sorted(
            (one for part in listed for one in part.errors),
            key=lambda one: (places.get(one.capture, len(places)), one.capture, one.frame, one.rule, one.error),
        )
        named = (replace(one, capture=captures[places[one.capture]]) if one.capture in places else one for one in found)
        made = cls()
        made.add(cls(list(named)))
        for part in listed:
            made.add(cls(counts=part.counts))
        return made


def _plain(error: InternalError) -> InternalError:
    told = utf8(error.error)
    if len(told) > MAX_TEXT:
        told = f"{told[:MAX_TEXT]}..."
    return InternalError(error.rule, utf8(error.capture), error.frame, told, "")

"""What changing a recording did to it, counted and said in words; and the error of a change that cannot be made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


class RewriteError(ValueError):
    """A change that was asked for and cannot be made; the message says what would be allowed."""


@dataclass(slots=True)
class Changes:
    """What was dropped, changed or left as it is, as sentences with counts, in the order in which it came up."""

    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    """How often, by the thing that is counted and what happened to it."""

    def count(self, thing: str, happened: str, number: int = 1) -> None:
        """Count something: ``count("Topic Name", "mapped")`` becomes ``3 Topic Names mapped``."""
        if number:
            key = thing, happened
            self.counts[key] = self.counts.get(key, 0) + number

    def note(self, sentence: str) -> None:
        """Say something once that is not counted."""
        self.counts.setdefault(("", sentence), 1)

    def add(self, other: Changes) -> None:
        """Take over what another step did."""
        for (thing, happened), number in other.counts.items():
            if thing:
                self.count(thing, happened, number)
            else:
                self.note(happened)

    @property
    def sentences(self) -> list[str]:
        """For people."""
        return list(self)

    def __iter__(self) -> Iterator[str]:
        for (thing, happened), number in self.counts.items():
            yield f"{_counted(number, thing)} {happened}" if thing else happened

    def __bool__(self) -> bool:
        return bool(self.counts)


def _counted(number: int, thing: str) -> str:
    if number == 1:
        return f"1 {thing}"
    if thing.endswith("y"):
        return f"{number} {thing[:-1]}ies"
    return f"{number} {thing}{'es' if thing.endswith('s') else 's'}"

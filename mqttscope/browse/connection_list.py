"""The connections in the pane at the top, in one of several orders, filtered by words in their lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from mqttscope.browse.index import Index
from mqttscope.explain.model import QUIET
from mqttscope.report.explanations.base import TITLES

ORDERS: Final = ("number", "end", "findings", "packets", "last packet")
"""Orders of connections, in the order of the key that switches them."""
_PAINTING: Final = re.compile(r"\x1b\[[0-9;]*m")


class ConnectionList:
    """Numbers of connections, which are looked at step by step."""

    def __init__(self, index: Index, line: Callable[[int], str]) -> None:
        """``line`` returns the painted line of a connection."""
        self.order = ORDERS[0]
        self.words: tuple[str, ...] = ()
        """Words that the line of a listed connection has, in lower case."""
        self._index = index
        self._line = line
        self._numbers: list[int] = []
        self._looked_at = 0

    def __len__(self) -> int:
        return len(self._numbers) if self.words or self.order != ORDERS[0] else len(self._index.connections)

    def __getitem__(self, at: int) -> int:
        return self._numbers[at] if self.words or self.order != ORDERS[0] else at

    @property
    def title(self) -> str:
        """The order and the words, unless they are the usual ones."""
        parts = [f"by {self.order}"] if self.order != ORDERS[0] else []
        return " ".join([*parts, *(f"with {word}" for word in self.words)])

    @property
    def is_complete(self) -> bool:
        """Whether all connections were looked at."""
        is_usual = not self.words and self.order == ORDERS[0]
        return is_usual or self._looked_at == len(self._index.connections)

    def begin(self) -> None:
        """Look at all connections again: order, words or connections have changed."""
        self._numbers, self._looked_at = [], 0

    def advance(self, is_over: Callable[[], bool]) -> bool:
        """Look at further connections until ``is_over``; returns whether the list has changed."""
        count, before = len(self._index.connections), len(self._numbers)
        if self.is_complete:
            return False
        while self._looked_at < count and not is_over():
            line = _PAINTING.sub("", self._line(self._looked_at)).lower() if self.words else ""
            if all(word in line for word in self.words):
                self._numbers.append(self._looked_at)
            self._looked_at += 1
        if len(self._numbers) > before and self.order != ORDERS[0]:
            self._numbers.sort(key=self._key)
        return len(self._numbers) > before

    def _key(self, number: int) -> tuple[object, ...]:
        connections = self._index.connections
        if self.order == "end":
            cause = self._index.explanations.causes.get(number)
            return cause is None, cause in QUIET, "" if cause is None else TITLES[cause], number
        if self.order == "findings":
            return *(-connections.findings[severity][number] for severity in (2, 1, 0)), number
        if self.order == "packets":
            return -connections.rows[number], number
        return -connections.last_rows[number], number

"""Which rows are meant: by time, client, server, topic and rule.

A condition on what a table does not have holds for all of its rows: a connection has no topic.  All results are
relations that can stand in a FROM.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from mqttscope.analysis.dialects import Words
from mqttscope.analysis.joins import topic_matches
from mqttscope.report.fleet.model import Asked

_TOPICS = ("messages", "findings")
"""Tables whose rows are chosen by their topic: a packet that has none may be about any."""


class Selection:
    """Conditions of what was asked for, in the words of an engine."""

    def __init__(self, words: Words, asked: Asked) -> None:
        self.words = words
        self.asked = asked

    def rows(self, relation: str, table: str) -> str:
        """Rows of packets, messages, findings or gaps, each of which has one time."""
        return _where(relation, [*self._before(table), *self._since(), *self._clients()])

    def history(self, relation: str, table: str) -> str:
        """The same without the beginning of the time, and of all clients: what an answer may depend on."""
        return _where(relation, self._before(table))

    def since(self, relation: str) -> str:
        """Not before the time that was asked for."""
        return _where(relation, self._since())

    def clients(self, relation: str, *columns: str) -> str:
        """Of the clients that were asked for, one of whom stands in one of the columns."""
        return _where(relation, self._clients(*columns))

    def connections(self, relation: str) -> str:
        """Connections that were there in the time."""
        asked = self.asked
        conditions = self._servers()
        if asked.until_ns is not None:
            conditions.append(f"timestamp_ns < {asked.until_ns}")
        if asked.since_ns is not None:
            conditions.append(f"coalesce(closed_ns, {asked.since_ns}) >= {asked.since_ns}")
        return _where(relation, [*conditions, *self._clients()])

    def findings(self, relation: str) -> str:
        """Findings of the rules that were asked for."""
        text = self.words.text
        rules = [
            f"left(rule, {len(one)}) = {text(one.upper())} or slug = {text(one.lower())}" for one in self.asked.rule
        ]
        return _where(self.rows(relation, "findings"), _any(rules))

    def _since(self) -> list[str]:
        return [] if self.asked.since_ns is None else [f"timestamp_ns >= {self.asked.since_ns}"]

    def _before(self, table: str) -> list[str]:
        asked = self.asked
        conditions = self._servers()
        if table in _TOPICS:
            conditions += _any([topic_matches(self.words, "topic", one) for one in asked.topic])
        if asked.until_ns is not None:
            conditions.append(f"timestamp_ns < {asked.until_ns}")
        return conditions

    def _servers(self) -> list[str]:
        return _any([like(self.words, "server", one) for one in self.asked.server])

    def _clients(self, *columns: str) -> list[str]:
        names = columns or ("client_identifier",)
        return _any([like(self.words, name, one) for one in self.asked.client for name in names])


def _where(relation: str, conditions: Iterable[str]) -> str:
    told = " and ".join(f"({one})" for one in conditions)
    return f"(select * from {relation} where {told})" if told else relation


def _any(conditions: Sequence[str]) -> list[str]:
    """One condition: that any of these holds; none where there are none."""
    return [" or ".join(f"coalesce({one}, false)" for one in conditions)] if conditions else []


def like(words: Words, column: str, pattern: str) -> str:
    """Whether a column fits a pattern in which ``*`` stands for any characters and ``?`` for one."""
    if not re.search(r"[*?]", pattern):
        return f"{column} = {words.text(pattern)}"
    told = re.sub(r"[!%_]", r"!\g<0>", pattern).replace("*", "%").replace("?", "_")
    return f"{column} like {words.text(told)} escape '!'"

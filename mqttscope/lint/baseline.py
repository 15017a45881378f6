"""The baseline: findings that were there before and do not count, known by fingerprints that survive a new capture.

The file is meant to be committed: sorted, one finding per line, without times and addresses, so that its differences
can be read.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from mqttscope.lint.finding import Finding, client_shape, topic_shape
from mqttscope.redact.secrets import find_all, without

SCHEMA = 1


class BaselineError(ValueError):
    """The text is no baseline; the message says why."""


def client_key(client_identifier: str | None) -> str:
    """By what entries know a client: the shape of its identifier, without what looks like a secret."""
    return _without_secrets(client_shape(client_identifier))


def _without_secrets(text: str) -> str:
    """The file is meant to be committed."""
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
            _without_secrets(topic_shape(finding.topic)),
            finding.packet_type or "",
            finding.direction or "",
            finding.field,
        )

    def as_json(self) -> dict[str, str]:
        """Plain values by name."""
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
        if not isinstance(document, dict) or not isinstance(document.get("findings"), list):
            raise BaselineError("not a baseline: it has no list of findings")
        if document.get("schema") != SCHEMA:
            raise BaselineError(f"schema {document.get('schema')!r} is not {SCHEMA}: written by another version")
        made = cls()
        for row in document["findings"]:
            entry = _entry(row)
            made.entries[entry.fingerprint] = entry
        return made


def _entry(row: Any) -> Entry:
    names = Entry.__slots__
    if not isinstance(row, dict) or not all(isinstance(row.get(name, ""), str) for name in names):
        raise BaselineError(f"not a finding: {str(row)[:80]}")
    if not row.get("fingerprint") or not row.get("rule"):
        raise BaselineError(f"a finding without fingerprint or rule: {str(row)[:80]}")
    return Entry(*(row.get(name, "") for name in names))

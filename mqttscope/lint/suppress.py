"""Findings that are not to count: ignored for a client or a topic, suppressed with a reason, or in the baseline."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date
from fnmatch import translate
from functools import cached_property

from mqttscope.lint.finding import Finding
from mqttscope.mqtt.topics import matches


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
        """Whether its last day is over."""
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
        """Those whose day is over."""
        return [one for one in self.patterns if self.today is not None and one.is_expired(self.today)]

    def unused(self) -> list[Pattern]:
        """Those that could silence something and did not."""
        expired = self.expired()
        return [one for one in self.patterns if not one.used and one not in expired]

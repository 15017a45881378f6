"""Groups findings with one cause, which reports show as one: number, time span and affected clients.

A cause is a rule, the side to blame, and the field.  A server that breaks one rule for 900 clients is one cause, and so
is a client that breaks it 900 times, on any number of connections.  Severity, confidence and suppression are part of
the cause, so all of its findings have the same effect on the run.

Memory grows with the causes, not with the findings: each cause has its first finding, and totals.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field

from mqttscope.lint.finding import Finding, fingerprint
from mqttscope.mqtt.constants import Direction
from mqttscope.session.connection import host_of

MAX_CLIENTS = 100_000
"""Maximum number of clients counted individually in findings about many clients."""
MAX_NAMED = 3
"""Maximum number of clients named in such a finding."""
MAX_NAME = 60
"""Maximum length of a Client Identifier in it."""
_INDEX = re.compile(r"\[\d+\]")


def client_of(finding: Finding) -> str:
    """The Client Identifier of a finding, or the address of its client."""
    return finding.client_identifier or finding.client


def culprit(finding: Finding) -> tuple[str, str]:
    """The side to blame, and which server or client; a client without a Client Identifier is identified by its host."""
    if finding.direction == Direction.SERVER_TO_CLIENT:
        return "server", finding.server
    return "client" if finding.direction else "", finding.client_identifier or host_of(finding.client)


def cause(finding: Finding) -> tuple[Hashable, ...]:
    plain = _INDEX.sub("[]", finding.field) if "[" in finding.field else finding.field
    return finding.rule, culprit(finding), plain, finding.severity, finding.confidence


def cause_fingerprint(finding: Finding) -> str:
    """Identity of a cause in the next capture, whichever of its findings is the first there."""
    if finding.clients > 1:
        return finding.fingerprint
    client = None if culprit(finding)[0] == "server" else finding.client_identifier
    return fingerprint(finding.rule, finding.direction, client, None, finding.field, None)


@dataclass(slots=True)
class Group:
    """Findings that are reported as one."""

    first: Finding
    occurrences: int = 0
    first_ns: int = 0
    """The earliest time, not necessarily the time of ``first``: captures may come in any order."""
    last_ns: int = 0
    last_frame: int = 0
    last_capture: str = ""
    clients: set[int] = field(default_factory=set)
    """Hashes of `client_of`: hidden names may look alike."""
    names: list[str] = field(default_factory=list)
    """Names of the first few clients, once there is a second one."""
    more: bool = False
    """Whether there were more clients than are counted individually."""

    def add(self, finding: Finding, name: Callable[[Finding], str], room: int | None = None) -> bool:
        """Add a finding; returns whether its client is new.  ``room``: further clients counted individually."""
        self.occurrences += 1
        now = finding.timestamp_ns
        self.first_ns = now if self.occurrences == 1 else min(self.first_ns, now)
        if now >= self.last_ns or self.occurrences == 1:
            self.last_ns, self.last_frame, self.last_capture = now, finding.frame, finding.capture
        client = hash(client_of(finding))
        if client in self.clients:
            return False
        alone = not self.clients and finding is self.first
        if not alone and self.clients and not self.names:
            self.names.append(name(self.first))
        if (MAX_CLIENTS - len(self.clients) if room is None else room) <= 0:
            self.more = True
            return False
        self.clients.add(client)
        if not alone and len(self.names) < MAX_NAMED:
            self.names.append(name(finding))
        return True

    @property
    def number_of_clients(self) -> str:
        """``900``, ``more than 100,000``."""
        return f"{'more than ' if self.more else ''}{len(self.clients):,}"

    def named(self) -> str:
        """The first few clients by their names: ``'a', 'b', 'c' and 897 more``."""
        number = len(self.clients)
        named = [repr(name if len(name) <= MAX_NAME else name[:MAX_NAME] + "…") for name in self.names]
        if number > len(named) or self.more:
            named.append("others" if self.more else f"{number - len(named):,} more")
        return f"{', '.join(named[:-1])} and {named[-1]}" if len(named) > 1 else "".join(named)


MAX_GROUPS = 10_000
"""Maximum number of causes at a time; beyond it the oldest ends, and counts as new if it is found again."""
MAX_BYTES = 64 * 1024 * 1024
"""Maximum number of bytes in the packets of their first findings."""


class Groups:
    """The causes of a run, in the order of their first findings."""

    def __init__(self, name: Callable[[Finding], str]) -> None:
        """``name`` returns a client's name; it hides secrets of the client's packet."""
        self._name = name
        self._groups: dict[tuple[Hashable, ...], Group] = {}
        self._bytes = 0
        self._clients = 0

    def __contains__(self, key: tuple[Hashable, ...]) -> bool:
        return key in self._groups

    def add(self, key: tuple[Hashable, ...], finding: Finding) -> Group:
        """Add a finding of a cause; returns its group, which is new if it has one occurrence."""
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(finding)
            self._bytes += len(finding.raw)
        self._clients += group.add(finding, self._name, MAX_CLIENTS - self._clients)
        return group

    def ended(self, *, everything: bool = False) -> Iterator[Group]:
        """Remove and return the oldest causes: the ones without room, or all of them."""
        groups = self._groups
        while groups and (everything or len(groups) > MAX_GROUPS or (self._bytes > MAX_BYTES and len(groups) > 1)):
            group = groups.pop(next(iter(groups)))
            self._bytes -= len(group.first.raw)
            self._clients -= len(group.clients)
            yield group

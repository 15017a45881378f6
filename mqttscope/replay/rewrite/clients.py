r"""Mappings of Client Identifiers: ``sensor-*=load-*``.

Each ``*`` on the left matches any characters, as few as will do, and stands for the same characters on the right.
Everything else is meant literally; an equals sign inside is written ``\=``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import Malformed
from mqttscope.mqtt.topics import utf8_length
from mqttscope.replay.rewrite.changes import Changes, RewriteError
from mqttscope.replay.rewrite.links import rename, say
from mqttscope.replay.rewrite.packets import with_client
from mqttscope.replay.rewrite.topics import split_pair
from mqttscope.replay.script import Script

MAX_CHARACTERS_3_1 = 23
"""Longest Client Identifier of MQTT 3.1 (section 3.1)."""
MAX_BYTES = 65_535


@dataclass(slots=True)
class ClientMapping:
    """One mapping."""

    source: str
    target: str
    used: int = 0
    """How often it was used."""
    _pattern: re.Pattern[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.source.count("*") != self.target.count("*"):
            raise RewriteError(f"client mapping {self}: both sides need the same number of asterisks")
        self._pattern = re.compile("(.*?)".join(map(re.escape, self.source.split("*"))), re.DOTALL)

    @classmethod
    def parse(cls, text: str) -> ClientMapping:
        """The mapping of ``FROM=TO``."""
        return cls(*split_pair(text, "client mapping"))

    def __str__(self) -> str:
        return f"{self.source}={self.target}"

    def client(self, identifier: str) -> str | None:
        """The mapped Client Identifier; ``None`` where the mapping does not apply."""
        found = self._pattern.fullmatch(identifier)
        if found is None:
            return None
        parts = self.target.split("*")
        return "".join(part + found[index] for index, part in enumerate(parts[:-1], 1)) + parts[-1]


def map_clients(scripts: Iterable[Script], mappings: Iterable[ClientMapping], changes: Changes) -> None:
    """Map the Client Identifiers of copied scripts: of CONNECT, those that servers assigned, and of the connection.

    The first mapping that applies is used; an empty Client Identifier stays empty.
    """
    mine = [ClientMapping(one.source, one.target) for one in mappings]

    def change(identifier: str) -> str:
        for mapping in mine:
            mapped = mapping.client(identifier)
            if mapped is not None:
                mapping.used += 1
                return mapped
        return identifier

    change_clients(scripts, change, changes)
    for mapping in mine:
        if not mapping.used:
            changes.note(f"the client mapping {mapping} applied to nobody")


def change_clients(scripts: Iterable[Script], change: Callable[[str], str], changes: Changes) -> None:
    """Put all Client Identifiers of copied scripts through a function."""
    origins: dict[str, set[str]] = {}
    for script in scripts:
        before = script.connection.client_identifier
        for entry in script.entries:
            if isinstance(entry.packet, Malformed):
                continue
            made = with_client(entry.packet, change)
            if made is not entry.packet:
                say(entry, made, script.version)
                changes.count("Client Identifier", "mapped" if entry.from_client else "mapped that a server assigned")
        if not before:
            continue
        after = change(before)
        if after != before:
            rename(script, after)
        judge_identifier(after, script.version, changes)
        origins.setdefault(after, set()).add(before)
    for after, before_all in origins.items():
        if len(before_all) > 1:
            told = ", ".join(map(repr, sorted(before_all)))
            changes.note(f"{told} are all {after!r} now: they will take each other's sessions over")


def judge_identifier(identifier: str, version: ProtocolVersion, changes: Changes) -> None:
    """Refuse a Client Identifier that cannot be sent, and say where a server may refuse it."""
    if not identifier or utf8_length(identifier) > MAX_BYTES or "\0" in identifier:
        raise RewriteError(f"{identifier[:60]!r} is not a Client Identifier: 1 to {MAX_BYTES} bytes, no U+0000")
    if version == ProtocolVersion.V3_1 and len(identifier) > MAX_CHARACTERS_3_1:
        changes.count(
            "Client Identifier", f"longer than the {MAX_CHARACTERS_3_1} characters of MQTT 3.1: servers may refuse it"
        )

"""Options for the content of the tables, as plain data that can be sent to other machines."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, is_dataclass, replace

from mqttscope.dissect.options import Options
from mqttscope.lake.manifest import DIGEST_DIGITS
from mqttscope.lint.context import WIDE
from mqttscope.lint.finding import Scope
from mqttscope.lint.rule import Rule
from mqttscope.secrets.forms import LENGTH

MAX_RAW_BYTES = 65_536
"""Maximum number of bytes kept of a malformed packet or of unparsed bytes."""
BATCH_ROWS = 8_192
"""Maximum number of rows of a record batch."""


@dataclass(slots=True)
class LakeOptions:
    """How events become rows."""

    dissect: Options = field(default_factory=Options)
    """How the captures are read; packets are always counted by connection."""
    group: str = ""
    """Name of captures that belong together; no connection continues in another group."""
    payload_limit: int = 0
    """Maximum number of bytes kept of each payload; its length and the beginning of its SHA-256 are always kept."""
    digest_digits: int = DIGEST_DIGITS
    """Number of hexadecimal digits kept of each SHA-256; all rows of a lake have the same number."""
    rules: tuple[Rule, ...] = ()
    """Rules to run, of every scope."""
    complete: frozenset[str] = frozenset()
    """Servers with all of their connections in the captures (`lint.engine.Linter`)."""
    secret_length: int = LENGTH
    """Minimum number of characters of random text in a finding that is treated as a secret."""
    batch_rows: int = BATCH_ROWS
    deduplicate: bool = False
    """The captures of one ingest come from several taps: each frame is read once."""

    rule_generation: int = 1
    """Number of this set of rules among all sets of the lake."""
    since: dict[str, int] = field(default_factory=dict)
    """For rules that the lake did not always have, the first generation with each: older connections are not judged."""
    key_file: str | None = None
    """File of the key of forgotten names; ``None`` for its usual place (`lake.tombstones`)."""

    def reading(self) -> Options:
        return replace(self.dissect, count_by_connection=True)

    def narrow_rules(self) -> list[Rule]:
        return [rule for rule in self.rules if rule.scope not in WIDE]

    def wide_rules(self) -> list[Rule]:
        """Rules that need more than one connection: all connections of a session or a server."""
        return [rule for rule in self.rules if rule.scope in WIDE]

    def widest(self) -> Scope | None:
        """The scope that brings together all connections that the wide rules need; ``None`` without such rules.

        If any rule needs a server, all run over its connections, which include the connections of its sessions: reading
        each connection again for the sessions costs more than the rules do.
        """
        scopes = {rule.scope for rule in self.wide_rules()}
        return next((scope for scope in (Scope.BROKER, Scope.SESSION) if scope in scopes), None)


def allow_rule_state(rules: Iterable[Rule]) -> None:
    """Let the lake store the memory of third-party rules; `ImportError` without msgspec."""
    from mqttscope.lake.state import allow

    for rule in rules:
        if not type(rule).is_ours():
            module = sys.modules[type(rule).__module__]
            for member in vars(module).values():
                if isinstance(member, type) and is_dataclass(member) and member.__module__ == module.__name__:
                    allow(member)
            if rule.Memory is not None:
                allow(rule.Memory)

"""Options of what the tables hold.  Plain data, so that it can be sent to other machines."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, is_dataclass, replace

from mqttscope.dissect.options import Options
from mqttscope.lint.context import WIDE
from mqttscope.lint.finding import Scope
from mqttscope.lint.rule import Rule
from mqttscope.secrets.forms import LENGTH

MAX_RAW_BYTES = 65_536
"""Bytes that are kept of a malformed packet or of unparsed bytes."""
BATCH_ROWS = 8_192
"""Rows of a record batch, at most."""


@dataclass(slots=True)
class LakeOptions:
    """How events become rows."""

    dissect: Options = field(default_factory=Options)
    """How the captures are read; packets are counted by connection in any case."""
    group: str = ""
    """Names captures that belong together: no connection continues in another group."""
    payload_limit: int = 0
    """Bytes of each payload that are kept; length and SHA-256 always are."""
    rules: tuple[Rule, ...] = ()
    """Rules to run, of every scope."""
    complete: frozenset[str] = frozenset()
    """Servers of which the captures hold every connection (`lint.engine.Linter`)."""
    secret_length: int = LENGTH
    """Characters from which on random text in a finding counts as a secret."""
    batch_rows: int = BATCH_ROWS
    deduplicate: bool = False
    """Captures that are ingested together are those of several taps: each frame is read once."""

    def reading(self) -> Options:
        return replace(self.dissect, count_by_connection=True)

    def narrow_rules(self) -> list[Rule]:
        return [rule for rule in self.rules if rule.scope not in WIDE]

    def wide_rules(self) -> list[Rule]:
        """Rules that need more than one connection: those of a session, or of a server."""
        return [rule for rule in self.rules if rule.scope in WIDE]

    def widest(self) -> Scope | None:
        """The scope whose connections the wide rules need together; ``None`` where there are no such rules.

        Where any rule needs a server, all run over its connections: these hold those of its sessions, and reading each
        connection once more for the sessions costs more than the rules do.
        """
        scopes = {rule.scope for rule in self.wide_rules()}
        return next((scope for scope in (Scope.BROKER, Scope.SESSION) if scope in scopes), None)


def let_be_remembered(rules: Iterable[Rule]) -> None:
    """Let a lake write down what rules that come from elsewhere remember; `ImportError` without msgspec."""
    from mqttscope.lake.state import allow

    for rule in rules:
        if not type(rule).is_ours():
            module = sys.modules[type(rule).__module__]
            for one in vars(module).values():
                if isinstance(one, type) and is_dataclass(one) and one.__module__ == module.__name__:
                    allow(one)
            if rule.Memory is not None:
                allow(rule.Memory)

"""No capture shows a cause that its packets, segments and frames contradict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mqttscope.errors import MqttscopeError
from mqttscope.explain import Cause
from mqttscope.explain.causes import declarations
from tests import corpora
from tests.conftest import ROOT
from tests.each import each
from tests.explain.contradicting import Reading
from tests.explain.running import capture, explain

MOST_BYTES = 2_000_000
"""Size of the largest capture that is read."""


def contradictions(path: Path) -> tuple[int, list[str]]:
    """How many ends a capture has, and what contradicts their causes."""
    try:
        shown, reading = explain(path), Reading(path)
    except (MqttscopeError, OSError):
        return 0, []
    return len(shown), [f"{path.name} #{end.connection} {fact}" for end in shown for fact in reading.against(end)]


@pytest.mark.parametrize("root", [pytest.param(ROOT, id="project"), *corpora.collections("captures/**/*.pcap")])
def test_nothing_that_is_shown_is_contradicted(root: Path) -> None:
    files = (path for path in sorted(root.glob("captures/**/*")) if path.suffix in (".pcap", ".pcapng", ".cap"))
    read = [contradictions(path) for path in files if path.stat().st_size < MOST_BYTES]

    assert [fact for _, facts in read for fact in facts] == []
    assert sum(count for count, _ in read) > 100


@each(
    "name, cause, fact",
    [
        ("too-large-v311", Cause.KEEP_ALIVE, "client_spoke"),
        ("too-large-v311", Cause.NOT_AUTHORIZED, "was_accepted_before"),
        ("half-open", Cause.SERVER_RESTART, "server_ran_on"),
    ],
)
def test_a_contradiction_that_is_not_declared_is_noticed(
    name: str, cause: Cause, fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = declarations.DECLARATIONS[cause]
    rest = tuple(each for each in declared.contradictions if each.__name__ != fact)
    monkeypatch.setitem(declarations.DECLARATIONS, cause, replace(declared, contradictions=rest))

    assert len(rest) < len(declared.contradictions)
    assert contradictions(capture(name))[1]

"""What `Triage` gathers of conversations, for the tests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from mqttscope.capture import open_capture
from mqttscope.dissect import Dissector, dissect_segments, segments
from mqttscope.triage.collect import Triage
from tests.conftest import ROOT
from tests.lint.lint_help import steps_of, talked


def gathered(*lines: str) -> Triage:
    """What is gathered of a conversation that is written as text."""
    steps = steps_of(*lines) if lines else ()
    return _fed(Triage(), talked(*steps))


def refused(number: int, name: str, code: int = 0x87) -> str:
    """A connection that the server refuses."""
    connect = f"@{number} > connect client={json.dumps(name) if name else '-'}"
    return f"{connect}; @{number} < connack code={code}; @{number} < fin"


END = "> disconnect; > fin"
WILDCARD = "> publish a/+ x"
LOOP = (
    "opened 3.1.1 protocol_level=0x84; > subscribe 1 a:0; < suback 1 0; > publish a x",
    "for 1..19: < publish a x; > publish a x", f"< publish a x; {END}",
)  # fmt: skip
"""A message that a bridge forwards and is sent again, twenty times."""


TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"


def of_capture(*names: str | Path) -> Triage:
    """What is gathered of captures of the project, or of files."""
    paths = [
        str(name) if isinstance(name, Path) else str(ROOT / "captures" / name / "capture.pcapng") for name in names
    ]
    triage = Triage()
    return _fed(triage, segments(triage.frames(open_capture(paths))))


def _fed(triage: Triage, source: Iterable[object]) -> Triage:
    watched = triage.explainer.watch.segments(source)  # type: ignore[arg-type]
    for event in dissect_segments(watched, dissector=Dissector()):
        triage.feed(event)
    triage.finish()
    return triage

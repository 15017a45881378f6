"""What `Triage` gathers of conversations, for the tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mqttscope.capture import open_capture
from mqttscope.dissect import Dissector, dissect_segments, segments
from mqttscope.lint.examples import Step, conversation
from mqttscope.lint.examples import segments as segments_of
from mqttscope.triage.collect import Triage
from tests.conftest import ROOT


def gathered(*steps: Step, handshake: bool = True) -> Triage:
    """What is gathered of a conversation."""
    return _fed(Triage(), segments_of(conversation("", *steps, handshake=handshake)))


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

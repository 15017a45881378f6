"""What `Triage` gathers of conversations, for the tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mqttscope.capture import open_capture
from mqttscope.dissect import Dissector, dissect_segments, segments
from mqttscope.lint.examples import Step, client, closes, conversation, on, opened, server
from mqttscope.lint.examples import segments as segments_of
from mqttscope.mqtt.packets import Connack, Disconnect, Publish
from mqttscope.triage.collect import Triage
from tests.conftest import ROOT


def gathered(*steps: Step, handshake: bool = True) -> Triage:
    """What is gathered of a conversation."""
    return _fed(Triage(), segments_of(conversation("", *steps, handshake=handshake)))


def triaged(of: tuple[str | Step, ...]) -> Triage:
    """What is gathered of a conversation or, where these are names, of captures."""
    names, steps = [one for one in of if isinstance(one, str)], [one for one in of if isinstance(one, Step)]
    return of_capture(*names) if names else gathered(*steps)


def refused(number: int, name: str, code: int = 0x87) -> tuple[Step, ...]:
    """A connection that the server refuses."""
    connect, _ = opened(client_identifier=name)
    return on(number, connect, server(Connack(reason_code=code)), closes("server"))


END = (client(Disconnect()), closes("client"))
WILDCARD = client(Publish(topic_name="a/+", payload=b"x"))
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

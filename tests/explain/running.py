"""Explanations of conversations and captures, for the tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from mqttscope.capture import open_capture
from mqttscope.dissect import Dissector, Options, dissect_segments, segments
from mqttscope.explain import Explainer, Explanation
from mqttscope.explain.fates import Trace
from mqttscope.explain.message_report import MessageReport
from mqttscope.explain.messages import MessageWatch
from mqttscope.lint.catalogue import select, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import ExampleStep, conversation
from mqttscope.lint.examples import segments as segments_of
from mqttscope.lint.rule import Rule
from mqttscope.net.segment import Segment
from tests.conftest import ROOT
from tests.lint.lint_help import steps_of

CLIENT_PORT = 51_234
"""Port of the client of connection 0 in a conversation."""


def capture(name: str) -> Path:
    """A capture of the project."""
    return ROOT / "captures" / name / "capture.pcapng"


def explain(path: Path, explainer: Explainer | None = None) -> list[Explanation]:
    """The explanations of a capture, by the number of the connection."""
    running = explainer or Explainer()
    source = segments(running.watch.frames(open_capture([str(path)])), Counter())
    return _explained(running, source)


def explained(
    *steps: ExampleStep, explainer: Explainer | None = None, handshake: bool = True, rules: Iterable[Rule] = ()
) -> list[Explanation]:
    """The explanations of a conversation; ``rules`` are further ones of the linter."""
    running = explainer or Explainer()
    return _explained(running, segments_of(conversation("", *steps, handshake=handshake)), rules)


def of_segments(
    source: Iterable[Segment], explainer: Explainer | None = None, *, options: Options | None = None
) -> list[Explanation]:
    """The explanations of segments."""
    return _explained(explainer or Explainer(), source, options=options)


def only(*steps: ExampleStep) -> Explanation:
    """The explanation of the first connection."""
    return explained(*steps)[0]


def ending(*lines: str) -> Explanation:
    """The explanation of the first connection of a conversation that is written as text."""
    return only(*steps_of(*lines))


def traced(topic: str, *steps: ExampleStep) -> Trace:
    """The fate of messages in a conversation."""
    watch, explainer = MessageWatch(topic), Explainer()
    source = explainer.watch.segments(watch.pauses.segments(segments_of(conversation("", *steps))))
    for event in dissect_segments(source):
        watch.feed(event)
        for explanation in explainer.feed(event):
            watch.note_end(explanation)
    for explanation in explainer.close():
        watch.note_end(explanation)
    return MessageReport(watch).trace()


def across(topic: str, places: dict[int, tuple[int, int]], *lines: str) -> Trace:
    """The fate of messages between brokers.

    ``places``: for the number of a connection, the last bytes of the addresses of its client and of its server.
    """
    watch = MessageWatch(topic)
    moved = [_moved(segment, places) for segment in segments_of(conversation("", *steps_of(*lines)))]
    for event in dissect_segments(moved):
        watch.feed(event)
    return MessageReport(watch).trace()


def _moved(segment: Segment, places: dict[int, tuple[int, int]]) -> Segment:
    ports = [int.from_bytes(segment.key[start : start + 2], "big") for start in (8, 10)]
    client, server = places[max(ports) - CLIENT_PORT]
    hosts = (client, server) if ports[0] >= CLIENT_PORT else (server, client)
    addresses = b"".join(bytes((10, 0, 0, host)) for host in hosts)
    return replace(segment, key=addresses + segment.key[8:])


def _explained(
    explainer: Explainer, source: Iterable[object], rules: Iterable[Rule] = (), options: Options | None = None
) -> list[Explanation]:
    linter = Linter([*(usual_rule(rule) for rule in select().values()), *rules], strict=True)
    explanations: list[Explanation] = []
    dissector = Dissector(options)
    watched = explainer.watch.segments(dissector.clock.follow(source))
    for event in dissect_segments(watched, dissector=dissector):
        explanations += explainer.feed(event, linter.feed(event))
    explanations += explainer.close()
    return sorted(explanations, key=lambda explanation: explanation.connection)

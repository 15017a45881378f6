"""Explanations of conversations and captures, for the tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from mqttscope.capture import open_capture
from mqttscope.dissect import Dissector, dissect_segments, segments
from mqttscope.explain import Explainer, Explanation
from mqttscope.explain.fates import Trace
from mqttscope.explain.messages import MessageWatch
from mqttscope.lint.catalogue import select, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import Step, conversation
from mqttscope.lint.examples import segments as segments_of
from mqttscope.lint.rule import Rule
from mqttscope.net.segment import Segment
from tests.conftest import ROOT
from tests.lint.lint_help import steps_of


def capture(name: str) -> Path:
    """A capture of the project."""
    return ROOT / "captures" / name / "capture.pcapng"


def explain(path: Path, explainer: Explainer | None = None) -> list[Explanation]:
    """The explanations of a capture, by the number of the connection."""
    running = explainer or Explainer()
    source = segments(running.watch.frames(open_capture([str(path)])), Counter())
    return _explained(running, source)


def explained(
    *steps: Step, explainer: Explainer | None = None, handshake: bool = True, rules: Iterable[Rule] = ()
) -> list[Explanation]:
    """The explanations of a conversation; ``rules`` are further ones of the linter."""
    running = explainer or Explainer()
    return _explained(running, segments_of(conversation("", *steps, handshake=handshake)), rules)


def of_segments(source: Iterable[Segment]) -> list[Explanation]:
    """The explanations of segments."""
    return _explained(Explainer(), source)


def only(*steps: Step) -> Explanation:
    """The explanation of the first connection."""
    return explained(*steps)[0]


def ending(*lines: str) -> Explanation:
    """The explanation of the first connection of a conversation that is written as text."""
    return only(*steps_of(*lines))


def traced(topic: str, *steps: Step) -> Trace:
    """The fate of messages in a conversation."""
    watch = MessageWatch(topic)
    for event in dissect_segments(segments_of(conversation("", *steps))):
        watch.feed(event)
    return watch.trace()


def _explained(explainer: Explainer, source: Iterable[object], rules: Iterable[Rule] = ()) -> list[Explanation]:
    linter = Linter([*(usual_rule(rule) for rule in select().values()), *rules], strict=True)
    found: list[Explanation] = []
    dissector = Dissector()
    watched = explainer.watch.segments(dissector.clock.follow(source))
    for event in dissect_segments(watched, dissector=dissector):
        found += explainer.feed(event, linter.feed(event))
    found += explainer.close()
    return sorted(found, key=lambda one: one.connection)

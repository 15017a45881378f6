"""Compares the findings of a capture with the findings of its redacted copy, by all rules of the standards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from mqttscope.dissect import Dissector, FastPath, Options, dissect_segments, segments
from mqttscope.events import Event
from mqttscope.lint.catalogue import select, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.mqtt.wire import counted
from mqttscope.net.frame import CaptureNotice, Frame

MAX_DIFFERENCES: Final = 8
"""Maximum number of rules that are named in differences."""

Findings = Counter[tuple[str, str, str]]
"""Number of findings by rule, severity and confidence."""


@dataclass(slots=True)
class Judgement:
    """Findings of `lint` that a redacted copy should keep."""

    findings: Findings = field(default_factory=Counter)
    withheld: int = 0
    """Number of possible findings withheld for lack of evidence."""

    def differences(self, after: Judgement) -> list[str]:
        """Differences of the copy, as phrases; empty without differences."""
        phrases = []
        changed = [key for key in self.findings | after.findings if self.findings[key] != after.findings[key]]
        for key in sorted(changed)[:MAX_DIFFERENCES]:
            rule, severity, confidence = key
            phrases.append(
                f"{self.findings[key]:,} before and {after.findings[key]:,} after of {rule} ({severity}, {confidence})"
            )
        if len(changed) > MAX_DIFFERENCES:
            phrases.append(f"{counted(len(changed) - MAX_DIFFERENCES, 'other rule')}")
        if self.withheld != after.withheld:
            phrases.append(
                f"{self.withheld:,} before and {after.withheld:,} after that were withheld for lack of evidence"
            )
        return phrases


def judge(read: Callable[[FastPath], Iterable[Frame | CaptureNotice]], options: Options) -> Judgement:
    """Lint the frames that ``read`` yields; it may leave frames to the fast path instead."""
    judgement = Judgement()
    linter = Linter([usual_rule(rule) for rule in select().values()])
    findings = judgement.findings

    def feed(event: Event) -> None:
        for finding in linter.feed(event):
            findings[finding.rule, str(finding.severity), str(finding.confidence)] += 1

    dissector = Dissector(options)
    for event in dissect_segments(segments(read(FastPath(dissector, feed, passing=True))), dissector=dissector):
        feed(event)
    judgement.withheld = linter.withheld.total()
    return judgement

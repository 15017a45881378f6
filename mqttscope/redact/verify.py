"""Whether the findings of a capture are those of its redacted copy: both are linted, by all rules of the standards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from mqttscope.dissect import Dissector, Options, dissect_segments, segments
from mqttscope.lint.catalogue import select, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.mqtt.wire import counted
from mqttscope.net.frame import CaptureNotice, Frame

MAX_DIFFERENCES: Final = 8
"""Rules whose findings differ that are named."""

Findings = Counter[tuple[str, str, str]]
"""How many findings there are of a rule, with a severity and a confidence."""


@dataclass(slots=True)
class Judgement:
    """What `lint` says of frames, as far as a redacted copy should keep it."""

    findings: Findings = field(default_factory=Counter)
    withheld: int = 0
    """Possible findings that were not shown, for lack of evidence."""

    def differences(self, after: Judgement) -> list[str]:
        """What differs in the copy, as phrases; empty if nothing does."""
        found = []
        changed = [key for key in self.findings | after.findings if self.findings[key] != after.findings[key]]
        for key in sorted(changed)[:MAX_DIFFERENCES]:
            rule, severity, confidence = key
            found.append(
                f"{self.findings[key]:,} before and {after.findings[key]:,} after of {rule} ({severity}, {confidence})"
            )
        if len(changed) > MAX_DIFFERENCES:
            found.append(f"{counted(len(changed) - MAX_DIFFERENCES, 'other rule')}")
        if self.withheld != after.withheld:
            found.append(
                f"{self.withheld:,} before and {after.withheld:,} after that were withheld for lack of evidence"
            )
        return found


def judge(
    frames: Iterable[Frame | CaptureNotice], options: Options, take: Callable[[Frame], None] | None = None
) -> Judgement:
    """Lint frames; each is given to ``take`` before."""
    made = Judgement()
    linter = Linter([usual_rule(rule) for rule in select().values()])
    for event in dissect_segments(segments(_taken(frames, take)), dissector=Dissector(options)):
        for finding in linter.feed(event):
            made.findings[finding.rule, str(finding.severity), str(finding.confidence)] += 1
    made.withheld = linter.withheld.total()
    return made


def _taken(
    frames: Iterable[Frame | CaptureNotice], take: Callable[[Frame], None] | None
) -> Iterator[Frame | CaptureNotice]:
    for frame in frames:
        if take is not None and isinstance(frame, Frame):
            take(frame)
        yield frame

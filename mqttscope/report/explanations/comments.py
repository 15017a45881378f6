"""Explanations as comments on frames, for a copy of the capture that Wireshark shows (``--format pcapng``)."""

from __future__ import annotations

from collections import Counter
from typing import cast

from mqttscope.explain.fates import Trace
from mqttscope.explain.model import Cause, Evidence, Explanation, Totals
from mqttscope.report.base import CommentSink, Sink, View
from mqttscope.report.explanations.base import TITLES, node_title, verdict
from mqttscope.report.style import Painter


class ExplanationComments:
    """Comments on the frame of each end, on the frames of its evidence, and on messages and their deliveries."""

    def __init__(self, sink: Sink, view: View, *, every: bool = False) -> None:
        """``every`` is for other formats: here nothing is folded."""
        self._comments = cast(CommentSink, sink)
        self._painter = Painter(View(width=0))
        self._shown: Counter[Cause] = Counter()
        self._remarks: list[str] = []

    def feed(self, explanation: Explanation) -> None:
        """Comment on an end, and on its evidence."""
        self._shown[explanation.cause] += 1
        first, where = explanation.first, f"connection {explanation.connection}"
        others = "".join(
            f" Also possible: {TITLES[other.cause]} ({other.certainty})." for other in explanation.candidates[1:]
        )
        advice = f" To change: {first.advice[0]}" if first.advice else ""
        self._comment(
            explanation.ended_capture,
            explanation.ended_frame,
            f"END {first.cause} ({first.certainty}), {where}: {first.headline}{others}{advice}",
        )
        for kind, evidences in (("FOR", first.reasons), ("AGAINST", first.doubts), ("AFTER", explanation.afterwards)):
            self._evidences(evidences, f"{kind} {first.cause}, {where}", explanation.capture)

    def trace(self, trace: Trace) -> None:
        """Comment on messages and their deliveries."""
        for message in trace.messages:
            published = message.published
            capture = "" if published is None else published.source.capture
            if published is not None:
                self._comment(published.capture, published.frame, f"MESSAGE {message.topic}: {message.outcome}")
            self._evidences(message.evidence, f"MESSAGE {message.topic}", capture)
            for delivery in message.deliveries:
                text = f"{str(delivery.fate).upper()} {message.topic}, {delivery.client}: {delivery.outcome}"
                self._comment(delivery.capture or capture, delivery.frame, text)
        for answer in trace.nodes:
            title = f"NODE {answer.node}: {node_title(answer)}: {answer.headline}"
            self._evidences(answer.reasons, title, "")
        self._remarks += trace.remarks

    def close(self, totals: Totals | None, *, asked: str = "") -> None:
        """Finish the copy, with the summary as its comment."""
        about = " ".join(map(self._painter.safe, [*verdict(totals, self._shown, asked), *self._remarks]))
        self._comments.finish(
            f"mqttscope explain: {about} Comments on frames begin with END, FOR, AGAINST, AFTER or NODE."
        )

    def _evidences(self, evidences: tuple[Evidence, ...], before: str, capture: str) -> None:
        for evidence in evidences:
            self._comment(evidence.capture or capture, evidence.frame, f"{before}: {evidence.text}")

    def _comment(self, capture: str, frame: int | None, text: str) -> None:
        if frame:
            self._comments.comment(capture, frame, self._painter.safe(text))

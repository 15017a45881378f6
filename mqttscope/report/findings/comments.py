"""Findings as comments on frames, for a copy of the capture that Wireshark shows (``--output pcapng=FILE``)."""

from __future__ import annotations

from typing import cast

from mqttscope.lint.finding import Confidence
from mqttscope.report.base import CommentSink, Sink, View
from mqttscope.report.findings.base import MAX_NAME, RunSummary, cited, message, sentences
from mqttscope.report.findings.shown import FileFormat, ShownFinding
from mqttscope.report.numbers import plural


class FindingComments(FileFormat):
    """Passes a comment on for every finding that is not suppressed."""

    def __init__(self, sink: Sink, view: View) -> None:
        super().__init__(sink, view)
        self._comments = cast(CommentSink, sink)

    def write(self, shown: ShownFinding) -> None:
        """Pass the comment of a finding on."""
        finding = shown.finding
        sure = "" if finding.confidence is Confidence.CERTAIN else f", {finding.confidence}"
        statements = f" [{cited(finding)}]" if finding.statements else ""
        name = self.painter.name(finding.client_identifier or finding.client, MAX_NAME)
        text = f"{finding.rule} {finding.severity}{sure}: {message(finding, self.painter)}{statements} (client {name})"
        self._comments.comment(shown.capture, finding.frame, text)

    def close(self, summary: RunSummary) -> None:
        """Finish the copy, with a comment about the run."""
        about = "; ".join(self.painter.safe(sentence) for sentence, _ in sentences(summary))
        packets = plural(summary.packets or 0, "MQTT packet")
        self._comments.finish(f"mqttscope lint, {packets}: {about}. Comments on frames begin with the code of a rule.")

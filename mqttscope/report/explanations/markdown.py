"""Explanations as Markdown for a ticket; captured text is escaped."""

from __future__ import annotations

from mqttscope.explain import describe
from mqttscope.explain.fates import Trace
from mqttscope.explain.model import Evidence, Explanation, Totals
from mqttscope.report.base import Clock, Sink, View
from mqttscope.report.explanations.base import TITLES, node_title, protocol_text, verdict
from mqttscope.report.explanations.restarts import FoldingReport, RestartEvent
from mqttscope.report.findings.markdown import safe
from mqttscope.report.style import Painter


class ExplanationMarkdown(FoldingReport):
    """Writes a section for each end of a connection."""

    def __init__(self, sink: Sink, view: View, *, every: bool = False) -> None:
        super().__init__(sink, every=every)
        self.painter = Painter(View(width=0))
        self._clock = Clock()

    def write_restart(self, event: RestartEvent) -> None:
        """Write the end of several connections as one event."""
        first = event.first.first
        names = [
            f"{safe('#')}{end.connection} {self._safe(end.client_identifier or end.client)}" for end in event.named
        ]
        more = f" and {event.more:,} more" if event.more else ""
        out = [
            f"### {self._safe(event.title)}: {TITLES[event.first.cause]} ({first.certainty})\n\n",
            f"{self._safe(event.headline)}\n\n",
            (
                f"{event.protocols}, {self._safe(self._clock.iso(event.from_ns))}, {event.lasted},"
                f" {self._safe(event.first.capture)}: {', '.join(names)}{more}\n\n"
            ),
            *self._evidences(event.reasons),
            *self._evidences(event.afterwards),
            "\n**What to change**\n\n",
            *(f"* {self._safe(advice)}\n" for advice in first.advice),
        ]
        self.sink.write("".join([*out, "\n"]).encode("utf-8", "replace"))

    def write_end(self, explanation: Explanation) -> None:
        """Write the end of one connection."""
        first = explanation.first
        name = self._safe(explanation.client_identifier or "(no Client Identifier)")
        server = f"{explanation.server} ({explanation.server_name})" if explanation.server_name else explanation.server
        ended_ns = explanation.ended_ns
        lasted = "" if explanation.clock_set else f" after {describe.span(ended_ns - explanation.opened_ns)}"
        out = [
            f"### {safe('#')}{explanation.connection} {name}: {TITLES[explanation.cause]} ({first.certainty})\n\n",
            f"{self._safe(first.headline)}\n\n",
            (
                f"{self._safe(explanation.client)} → {self._safe(server)}, {protocol_text(explanation)}, ended"
                f" {self._safe(self._clock.iso(explanation.ended_ns))}{lasted},"
                f" {self._safe(explanation.ended_capture)} frame {explanation.ended_frame}\n\n"
            ),
            *self._evidences(first.reasons),
            *self._evidences(first.doubts, "against it: "),
        ]
        for broken in first.broken:
            keys = ", ".join(broken.statements)
            rule = f"{keys} ({broken.rule})" if keys else broken.rule
            who = "broker" if broken.by == "server" else "client"
            out.append(f"* broken by the {who}: {rule}, frame {broken.frame}: {self._safe(broken.message)}\n")
        for other in explanation.candidates[1:]:
            out.append(
                f"\n**Also possible: {TITLES[other.cause]}** ({other.certainty}): {self._safe(other.headline)}\n\n"
            )
            out += [*self._evidences(other.reasons), *self._evidences(other.doubts, "against it: ")]
        if explanation.afterwards:
            out += ["\n**Afterwards**\n\n", *self._evidences(explanation.afterwards)]
        out.append("\n| time | frame | from | event |\n|---|---:|---|---|\n")
        for moment in explanation.timeline:
            who = {"server": "broker"}.get(moment.by, moment.by)
            when = self._safe(self._clock.iso(moment.timestamp_ns))
            out.append(f"| {when} | {moment.frame} | {who} | {self._safe(moment.what)} |\n")
        out += [f"\n{self._safe(note)}\n" for note in explanation.notes]
        if first.advice:
            out += ["\n**What to change**\n\n", *(f"* {self._safe(advice)}\n" for advice in first.advice)]
        self.sink.write("".join([*out, "\n"]).encode("utf-8", "replace"))

    def trace(self, trace: Trace) -> None:
        """Write why messages arrived or did not."""
        out = []
        for message in trace.messages:
            out.append(f"### {self._safe(message.topic)}: {self._safe(message.outcome)}\n\n")
            out += self._evidences(message.evidence)
            if message.deliveries:
                out.append("\n| client | fate | frame | reason |\n|---|---|---:|---|\n")
            for delivery in message.deliveries:
                cells = str(delivery.fate).replace("_", " "), delivery.frame or "", self._safe(delivery.outcome)
                out.append(f"| {self._safe(delivery.client)} | {' | '.join(map(str, cells))} |\n")
            advice = dict.fromkeys(text for delivery in message.deliveries for text in delivery.advice)
            out += ["\n", *(f"* {self._safe(text)}\n" for text in advice), "\n"]
        for answer in trace.nodes:
            out.append(f"### {self._safe(f'edge node {answer.node}: {node_title(answer)}')}\n\n")
            out.append(f"{self._safe(answer.headline)}\n\n")
            out += [*self._evidences(answer.reasons), "\n"]
            out += [*(f"* {self._safe(text)}\n" for text in answer.advice), "\n"]
        out += [f"{self._safe(sentence)}\n\n" for sentence in trace.remarks]
        self.sink.write("".join(out).encode("utf-8", "replace"))

    def close(self, totals: Totals | None, *, asked: str = "") -> None:
        """Write the summary."""
        self.write_restarts()
        summary = " ".join(self._safe(sentence) for sentence in verdict(totals, self.shown, asked))
        self.sink.write(f"{summary}\n".encode("utf-8", "replace"))
        first = [] if self.every else self.overview.lines(self._clock.iso, totals)
        lines = "".join(f"* **{title}**: {self._safe(line)}\n" for title, line in first)
        self.release(f"{lines}\n".encode("utf-8", "replace") if lines else b"")

    def _evidences(self, evidences: tuple[Evidence, ...], before: str = "") -> list[str]:
        lines = []
        for evidence in evidences:
            where = (
                ""
                if evidence.timestamp_ns is None
                else f" (frame {evidence.frame}, {self._safe(self._clock.iso(evidence.timestamp_ns))})"
            )
            lines.append(f"* {before}{self._safe(evidence.text)}{where}\n")
        return lines

    def _safe(self, text: str) -> str:
        return safe(self.painter.safe(text))

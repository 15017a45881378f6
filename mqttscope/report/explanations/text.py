"""Explanations for a terminal.

    #1 asleep: Keep Alive ran out (likely)
      127.0.0.1:41000 → 127.0.0.1:1883, MQTT 3.1.1, 2026-01-02, open for 4.759 s
      The Keep Alive ran out: the client sent nothing for 4.758 s, and 1.5 s are allowed.
      12:00:00.000134 frame 9   Keep Alive 1 s in the CONNECT: the broker waits 1.5 × 1 s = 1.5 s for a packet
      ...
      Last packets
      12:00:00.000134 frame 9   asleep → broker CONNECT ...
      What to change
      - Let the client send PINGREQ ...

Connections that one stop of the broker ended are one block, and a repeated end of the same client with the same cause
is one line, unless every end is requested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from mqttscope.explain import describe
from mqttscope.explain.fates import Fate, Trace
from mqttscope.explain.model import Candidate, Cause, Certainty, Evidence, Explanation, Moment, NodeAnswer, Totals
from mqttscope.report.base import Clock, Sink, View
from mqttscope.report.explanations.base import TITLES, node_title, protocol_text, verdict
from mqttscope.report.explanations.restarts import FoldingReport, RestartEvent
from mqttscope.report.style import Painter, Wrapped, encoded
from mqttscope.report.when import WIDE, TimeColumn
from mqttscope.session.connection import host_of

MAX_LINES = 12
"""Maximum number of terminal lines per sentence."""
MAX_AGAIN = 3
"""Maximum number of repeated ends of one client with one cause that are shown; further ones are counted."""
ADVICE = "What to change"
TITLE_WIDTH = 12
NARROW = 60
STYLES = {Certainty.CERTAIN: "error", Certainty.LIKELY: "note", Certainty.HYPOTHESIS: "dim"}


class ExplanationText(FoldingReport):
    """Writes a block for each end."""

    def __init__(self, sink: Sink, view: View, *, every: bool = False) -> None:
        super().__init__(sink, every=every)
        self.painter = Painter(view)
        self.times = TimeColumn(replace(view, width=min(view.width or 100, WIDE - 1)))
        self.narrow = 0 < view.width < NARROW
        self._clock = Clock()
        self._again: Counter[tuple[str, Cause]] = Counter()

    def write_end(self, explanation: Explanation) -> None:
        """Write the end of one connection."""
        known = explanation.client_identifier or host_of(explanation.client), explanation.cause
        self._again[known] += 1
        count = self._again[known]
        if self.every or count == 1:
            self.sink.write(encoded([*self.block(explanation), ""]))
        elif count <= MAX_AGAIN + 1:
            self.sink.write(encoded([*self._line(explanation), ""]))

    def block(self, explanation: Explanation) -> list[str]:
        """The lines of an explanation."""
        return [text for lines, _ in self.framed(explanation) for text in lines]

    def framed(self, explanation: Explanation) -> Iterator[tuple[list[str], int | None]]:
        """The lines of an explanation in groups, each with its frame, if it has one."""
        painter, first = self.painter, explanation.first
        head = Wrapped(painter.line(), most=MAX_LINES)
        head.add(f"#{explanation.connection} ", "dim")
        head.add(painter.name(explanation.client_identifier or "(no Client Identifier)", 60), "client")
        head.add(f": {TITLES[explanation.cause]}", "type")
        head.add(f" ({first.certainty})", STYLES[first.certainty])
        yield head.texts(), explanation.ended_frame
        yield self._paragraph(self._where(explanation), "dim"), explanation.opened_frame
        yield self._paragraph(first.headline, ""), None
        yield from self._candidate(first)
        for other in explanation.candidates[1:]:
            if other is explanation.candidates[1]:
                yield self._title("Also possible"), None
            yield self._paragraph(f"{TITLES[other.cause]} ({other.certainty}): {other.headline}", "note"), None
            yield from self._candidate(other, indent=4)
        if explanation.afterwards:
            yield self._title("Afterwards"), None
            for evidence in explanation.afterwards:
                yield self._evidence(evidence, ""), evidence.frame
        yield (
            self._title("Last packets" + (f" ({explanation.left_out:,} before)" if explanation.left_out else "")),
            None,
        )
        for moment in explanation.timeline:
            yield self._moment(moment, explanation), moment.frame
        for note in explanation.notes:
            yield self._paragraph(note, "note"), None
        others = (cause for cause in explanation.candidates[1:] if cause.certainty is not Certainty.HYPOTHESIS)
        advice = list(dict.fromkeys(text for candidate in (first, *others) for text in candidate.advice))
        if advice:
            yield self._title(ADVICE), None
            for text in advice:
                yield self._paragraph(f"- {painter.safe(text)}", "topic"), None

    def framed_node(self, answer: NodeAnswer) -> Iterator[tuple[list[str], int | None]]:
        """The lines of an answer about an edge node in groups, each with its frame, if it has one."""
        yield self._headed(f"edge node {self.painter.name(answer.node, 60)}: ", node_title(answer)), None
        yield self._paragraph(answer.headline, ""), None
        for evidence in answer.reasons:
            yield self._evidence(evidence, ""), evidence.frame
        for advice in answer.advice:
            yield self._paragraph(f"- {advice}", "topic"), None

    def trace(self, trace: Trace) -> None:
        """Write why messages arrived or did not."""
        out = []
        for message in trace.messages:
            head = Wrapped(self.painter.line(), most=MAX_LINES)
            head.add(self.painter.safe(message.topic), "topic")
            head.add(f": {message.outcome}")
            out += head.texts()
            for evidence in message.evidence:
                out += self._evidence(evidence, "")
            for delivery in message.deliveries:
                sign = {Fate.DELIVERED: "+ ", Fate.NOT_CONCERNED: "  "}.get(delivery.fate, "- ")
                text = f"{delivery.client}: {delivery.outcome}"
                evidence = Evidence(text, delivery.frame, delivery.timestamp_ns, delivery.capture)
                style = "topic" if delivery.fate is Fate.DELIVERED else "error" if delivery.is_trouble else ""
                out += self._evidence(evidence, sign, style)
                for advice in delivery.advice:
                    out += self._paragraph(f"- {advice}", "topic", indent=4)
            out.append("")
        for answer in trace.nodes:
            out += [*(line for lines, _ in self.framed_node(answer) for line in lines), ""]
        for sentence in trace.remarks:
            out += self._paragraph(sentence, "note", indent=0)
        self.sink.write(encoded(out))

    def close(self, totals: Totals | None, *, asked: str = "") -> None:
        """Write the summary."""
        self.write_restarts()
        out: list[str] = []
        for (name, cause), count in self._again.items():
            if not self.every and count > MAX_AGAIN + 1:
                more = count - MAX_AGAIN - 1
                shown = self.painter.name(name, 60)
                out += self._paragraph(
                    f"{shown}: {more:,} more with the same cause ({TITLES[cause]}); --all shows each", "dim", 0
                )
        for sentence in verdict(totals, self.shown, asked):
            out += self._paragraph(self.painter.safe(sentence), "", 0)
        self.sink.write(encoded(out))
        first = [] if self.every else self.overview.lines(self._when, totals)
        lines = [line for title, sentence in first for line in self._headed(title, sentence)]
        self.release(encoded([*lines, ""]) if lines else b"")

    def _when(self, timestamp_ns: int) -> str:
        day = self._clock.iso(timestamp_ns).partition("T")[0] + " " if self.times.mode == "clock" else ""
        return day + self.times.text(timestamp_ns)

    def _headed(self, title: str, sentence: str) -> list[str]:
        line = self.painter.line()
        text = Wrapped(line, indent=TITLE_WIDTH, most=MAX_LINES)
        text.add(title.ljust(TITLE_WIDTH), "type")
        text.add(self.painter.safe(sentence))
        return text.texts()

    def write_restart(self, event: RestartEvent) -> None:
        """Write the end of several connections as one event."""
        first = event.first.first
        head = Wrapped(self.painter.line(), most=MAX_LINES)
        head.add(event.title, "client")
        head.add(f": {TITLES[event.first.cause]}", "type")
        head.add(f" ({first.certainty})", STYLES[first.certainty])
        out = head.texts()
        capture = self.painter.name(event.first.capture, max(20, min(self.painter.width - 8, 70)))
        day = self._clock.iso(event.from_ns).partition("T")[0]
        out += self._paragraph(f"{event.protocols}, {day}, {event.lasted}, {capture}", "dim")
        out += self._paragraph(event.headline, "")
        for evidence in event.reasons:
            out += self._evidence(evidence, "")
        names = [
            f"#{end.connection} {self.painter.name(end.client_identifier or end.client, 40)}" for end in event.named
        ]
        if names:
            out += self._paragraph(", ".join(names) + (f" and {event.more:,} more" if event.more else ""), "client")
        if event.afterwards:
            out += self._title("Afterwards")
            for evidence in event.afterwards:
                out += self._evidence(evidence, "")
        out += self._title(ADVICE)
        for text in first.advice:
            out += self._paragraph(f"- {self.painter.safe(text)}", "topic")
        out += self._paragraph("--connection N explains one of them in full; --all explains each.", "dim")
        self.sink.write(encoded([*out, ""]))

    def _line(self, end: Explanation) -> list[str]:
        text = Wrapped(self.painter.line(), most=MAX_LINES)
        text.add(f"#{end.connection} ", "dim")
        text.add(self.painter.name(end.client_identifier or end.client, 60), "client")
        text.add(f": {TITLES[end.cause]} again", "type")
        text.add(f", {self.times.text(end.ended_ns)}, frame {end.ended_frame}: {self.painter.safe(end.first.headline)}")
        return text.texts()

    def _where(self, end: Explanation) -> str:
        arrow = self.painter.to_server
        day = self._clock.iso(end.ended_ns).partition("T")[0]
        version = protocol_text(end)
        lasted = "" if end.clock_set else f"open for {describe.span(end.ended_ns - end.opened_ns)}, "
        capture = self.painter.name(end.capture, max(20, min(self.painter.width - 8, 70)))
        name = f" ({self.painter.name(end.server_name, 60)})" if end.server_name else ""
        return f"{end.client} {arrow} {end.server}{name}, {version}, {day}, {lasted}{capture}"

    def _candidate(self, candidate: Candidate, indent: int = 2) -> Iterator[tuple[list[str], int | None]]:
        for evidence in candidate.reasons:
            yield self._evidence(evidence, "", indent=indent), evidence.frame
        for evidence in candidate.doubts:
            yield self._evidence(evidence, "against it: ", "note", indent=indent), evidence.frame
        for broken in candidate.broken:
            keys = ", ".join(broken.statements) + " " * bool(broken.statements)
            who = "broker" if broken.by == "server" else "client"
            sentence = (
                f"broken by the {who}: {keys}[{broken.rule} {broken.slug}],"
                f" frame {broken.frame}: {self.painter.safe(broken.message)}"
            )
            yield self._paragraph(sentence, "", indent), broken.frame

    def _evidence(self, evidence: Evidence, sign: str, style: str = "", indent: int = 2) -> list[str]:
        line = self.painter.line()
        line.put(" " * indent, indent)
        text = Wrapped(line, indent=indent + 4, most=MAX_LINES)
        if evidence.timestamp_ns is not None:
            text.add(self.times.text(evidence.timestamp_ns), "time")
            if evidence.frame is None:
                text.add(" " if self.narrow else " " * 13, "dim")
            else:
                text.add(f" f{evidence.frame} " if self.narrow else f" frame {evidence.frame:<5} ", "dim")
        else:
            text.add(("·" if self.painter.unicode else "*") + " ", "dim")
        text.add(self.painter.safe(f"{sign}{evidence.text}"), style)
        return text.texts()

    def _moment(self, moment: Moment, explanation: Explanation) -> list[str]:
        name = self.painter.name(explanation.client_identifier or "client", 20)
        line = self.painter.line()
        line.put("  ", 2)
        text = Wrapped(line, indent=6, most=MAX_LINES)
        text.add(self.times.text(moment.timestamp_ns), "time")
        text.add(f" frame {moment.frame:<5} " if not self.narrow else f" f{moment.frame} ", "dim")
        if moment.by:
            arrow = self.painter.to_server if moment.by == "client" else self.painter.to_client
            text.add(f"{name} {arrow} broker " if not self.narrow else f"{arrow} ", moment.by)
        text.add(self.painter.safe(moment.what))
        return text.texts()

    def _title(self, title: str) -> list[str]:
        return [f"  {self.painter.paint(title, 'type')}"]

    def _paragraph(self, sentence: str, style: str, indent: int = 2) -> list[str]:
        line = self.painter.line()
        line.put(" " * indent, indent)
        text = Wrapped(line, indent=indent + 2, most=MAX_LINES)
        text.add(self.painter.safe(sentence), style)
        return text.texts()

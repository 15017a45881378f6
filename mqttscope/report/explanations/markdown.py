"""Explanations as Markdown for a ticket; nothing captured has a meaning in it."""

from __future__ import annotations

from mqttscope.explain import describe
from mqttscope.explain.fates import Trace
from mqttscope.explain.model import Evidence, Explanation, Totals
from mqttscope.report.base import Clock, Sink, View
from mqttscope.report.explanations.base import TITLES, spoken, verdict
from mqttscope.report.explanations.restarts import Folding, Restart
from mqttscope.report.findings.markdown import safe
from mqttscope.report.style import Painter


class Markdown(Folding):
    """Writes a section for each end."""

    def __init__(self, sink: Sink, view: View, *, every: bool = False) -> None:
        super().__init__(sink, every=every)
        self.painter = Painter(View(width=0))
        self._clock = Clock()

    def tell_restart(self, event: Restart) -> None:
        """Write one stop of a server."""
        first = event.first.first
        names = [
            f"{safe('#')}{one.connection} {self._safe(one.client_identifier or one.client)}" for one in event.named
        ]
        more = f" and {event.more:,} more" if event.more else ""
        out = [
            f"### {self._safe(event.title)}: {TITLES[event.first.cause]} ({first.certainty})\n\n",
            f"{self._safe(event.headline)}\n\n",
            (
                f"{event.spoken}, {self._safe(self._clock.iso(event.from_ns))}, {event.lasted},"
                f" {self._safe(event.first.capture)}: {', '.join(names)}{more}\n\n"
            ),
            *self._evidences(event.reasons),
            *self._evidences(event.afterwards),
            "\n**What to change**\n\n",
            *(f"* {self._safe(told)}\n" for told in first.advice),
        ]
        self.sink.write("".join([*out, "\n"]).encode("utf-8", "replace"))

    def tell(self, explanation: Explanation) -> None:
        """Write one explanation."""
        one, first = explanation, explanation.first
        name = self._safe(one.client_identifier or "(no Client Identifier)")
        server = f"{one.server} ({one.server_name})" if one.server_name else one.server
        lasted = "" if one.clock_set else f" after {describe.span(one.ended_ns - one.opened_ns)}"
        out = [
            f"### {safe('#')}{one.connection} {name}: {TITLES[one.cause]} ({first.certainty})\n\n",
            f"{self._safe(first.headline)}\n\n",
            (
                f"{self._safe(one.client)} → {self._safe(server)}, {spoken(one)}, ended"
                f" {self._safe(self._clock.iso(one.ended_ns))}{lasted},"
                f" {self._safe(one.ended_capture)} frame {one.ended_frame}\n\n"
            ),
            *self._evidences(first.reasons),
            *self._evidences(first.doubts, "against it: "),
        ]
        for broken in first.broken:
            keys = ", ".join(broken.statements)
            rule = f"{keys} ({broken.rule})" if keys else broken.rule
            who = "broker" if broken.by == "server" else "client"
            out.append(f"* broken by the {who}: {rule}, frame {broken.frame}: {self._safe(broken.message)}\n")
        for other in one.candidates[1:]:
            out.append(
                f"\n**Also possible: {TITLES[other.cause]}** ({other.certainty}): {self._safe(other.headline)}\n\n"
            )
            out += [*self._evidences(other.reasons), *self._evidences(other.doubts, "against it: ")]
        if one.afterwards:
            out += ["\n**Afterwards**\n\n", *self._evidences(one.afterwards)]
        out.append("\n| time | frame | from | what |\n|---|---:|---|---|\n")
        for moment in one.timeline:
            who = {"server": "broker"}.get(moment.by, moment.by)
            when = self._safe(self._clock.iso(moment.timestamp_ns))
            out.append(f"| {when} | {moment.frame} | {who} | {self._safe(moment.what)} |\n")
        out += [f"\n{self._safe(note)}\n" for note in one.notes]
        if first.advice:
            out += ["\n**What to change**\n\n", *(f"* {self._safe(told)}\n" for told in first.advice)]
        self.sink.write("".join([*out, "\n"]).encode("utf-8", "replace"))

    def trace(self, trace: Trace) -> None:
        """Write why a message arrived or did not."""
        out = []
        for message in trace.messages:
            out.append(f"### {self._safe(message.topic)}: {self._safe(message.said)}\n\n")
            out += self._evidences(message.evidence)
            if message.deliveries:
                out.append("\n| client | what | frame | why |\n|---|---|---:|---|\n")
            for one in message.deliveries:
                fate = str(one.fate).replace("_", " ")
                out.append(f"| {self._safe(one.client)} | {fate} | {one.frame or ''} | {self._safe(one.said)} |\n")
            advice = dict.fromkeys(told for one in message.deliveries for told in one.advice)
            out += ["\n", *(f"* {self._safe(told)}\n" for told in advice), "\n"]
        out += [f"{self._safe(told)}\n\n" for told in trace.told]
        self.sink.write("".join(out).encode("utf-8", "replace"))

    def close(self, totals: Totals | None, *, asked: str = "") -> None:
        """Write the end."""
        self.tell_restarts()
        told = " ".join(self._safe(one) for one in verdict(totals, self.shown, asked))
        self.sink.write(f"{told}\n".encode("utf-8", "replace"))
        first = [] if self.every else self.overview.lines(self._clock.iso)
        lines = "".join(f"* **{title}**: {self._safe(line)}\n" for title, line in first)
        self.release(f"{lines}\n".encode("utf-8", "replace") if lines else b"")

    def _evidences(self, found: tuple[Evidence, ...], before: str = "") -> list[str]:
        made = []
        for one in found:
            where = (
                ""
                if one.timestamp_ns is None
                else f" (frame {one.frame}, {self._safe(self._clock.iso(one.timestamp_ns))})"
            )
            made.append(f"* {before}{self._safe(one.text)}{where}\n")
        return made

    def _safe(self, told: str) -> str:
        return safe(self.painter.safe(told))

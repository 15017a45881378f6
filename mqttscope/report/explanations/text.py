"""Explanations for people at a terminal.

    #1 asleep: Keep Alive ran out (likely)
      127.0.0.1:41000 → 127.0.0.1:1883, MQTT 3.1.1, 2026-01-02, open for 4.759 s
      The Keep Alive ran out: the client sent nothing for 4.758 s, and 1.5 s are allowed.
      12:00:00.000134 frame 9   Keep Alive 1 s in the CONNECT: the broker waits 1.5 × 1 s = 1.5 s for a packet
      ...
      Last packets
      12:00:00.000134 frame 9   asleep → broker CONNECT ...
      What to change
      - Let the client send PINGREQ ...

Connections that one stop of the broker ended are one block, and the same client with the same cause again is one
line, unless every end was asked for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from mqttscope.explain import describe
from mqttscope.explain.fates import Fate, Trace
from mqttscope.explain.model import Candidate, Cause, Certainty, Evidence, Explanation, Moment, Totals
from mqttscope.report.base import Clock, Sink, View
from mqttscope.report.explanations.base import TITLES, spoken, verdict
from mqttscope.report.explanations.restarts import Folding, Restart
from mqttscope.report.style import Painter, Wrapped, encoded
from mqttscope.report.when import WIDE, TimeColumn

MAX_LINES = 12
"""Lines of one sentence in a narrow terminal."""
MAX_AGAIN = 3
"""Ends of one client by one cause that have a line of their own after the first; further ones are counted."""
TITLE_WIDTH = 12
NARROW = 60
STYLES = {Certainty.CERTAIN: "error", Certainty.LIKELY: "note", Certainty.HYPOTHESIS: "dim"}


class Text(Folding):
    """Writes a block for each end."""

    def __init__(self, sink: Sink, view: View, *, every: bool = False) -> None:
        super().__init__(sink, every=every)
        self.painter = Painter(view)
        self.times = TimeColumn(replace(view, width=min(view.width or 100, WIDE - 1)))
        self.narrow = 0 < view.width < NARROW
        self._clock = Clock()
        self._again: Counter[tuple[str, Cause]] = Counter()

    def tell(self, explanation: Explanation) -> None:
        """Write one explanation."""
        known = explanation.client_identifier or explanation.client.rpartition(":")[0], explanation.cause
        self._again[known] += 1
        count = self._again[known]
        if self.every or count == 1:
            self.sink.write(encoded([*self.block(explanation), ""]))
        elif count <= MAX_AGAIN + 1:
            self.sink.write(encoded([*self._line(explanation), ""]))

    def block(self, one: Explanation) -> list[str]:
        """The lines of one explanation."""
        painter, first = self.painter, one.first
        head = Wrapped(painter.line(), most=MAX_LINES)
        head.add(f"#{one.connection} ", "dim")
        head.add(painter.name(one.client_identifier or "(no Client Identifier)", 60), "client")
        head.add(f": {TITLES[one.cause]}", "type")
        head.add(f" ({first.certainty})", STYLES[first.certainty])
        out = head.texts()
        out += self._told(self._where(one), "dim")
        out += self._told(first.headline, "")
        out += self._candidate(first)
        for other in one.candidates[1:]:
            out += self._title("Also possible")[: 1 if other is one.candidates[1] else 0]
            out += self._told(f"{TITLES[other.cause]} ({other.certainty}): {other.headline}", "note")
            out += self._candidate(other, indent=4)
        if one.afterwards:
            out += self._title("Afterwards")
            for told in one.afterwards:
                out += self._evidence(told, "")
        out += self._title("Last packets" + (f" ({one.left_out:,} before)" if one.left_out else ""))
        for moment in one.timeline:
            out += self._moment(moment, one)
        for note in one.notes:
            out += self._told(note, "note")
        likely = [each for each in one.candidates if each is first or each.certainty is not Certainty.HYPOTHESIS]
        advice = list(dict.fromkeys(text for candidate in likely for text in candidate.advice))
        if advice:
            out += self._title("What to change")
            for text in advice:
                out += self._told(f"- {painter.safe(text)}", "topic")
        return out

    def trace(self, trace: Trace) -> None:
        """Write why a message arrived or did not."""
        out = []
        for message in trace.messages:
            head = Wrapped(self.painter.line(), most=MAX_LINES)
            head.add(self.painter.safe(message.topic), "topic")
            head.add(f": {message.said}")
            out += head.texts()
            for told in message.evidence:
                out += self._evidence(told, "")
            for one in message.deliveries:
                sign = {Fate.DELIVERED: "+ ", Fate.NOT_CONCERNED: "  "}.get(one.fate, "- ")
                out += self._evidence(
                    Evidence(f"{one.client}: {one.said}", one.frame, one.timestamp_ns, one.capture), sign,
                    "topic" if one.fate is Fate.DELIVERED else "error" if one.is_trouble else "",
                )  # fmt: skip
                for advice in one.advice:
                    out += self._told(f"- {advice}", "topic", indent=4)
            out.append("")
        for sentence in trace.told:
            out += self._told(sentence, "note", indent=0)
        self.sink.write(encoded(out))

    def close(self, totals: Totals | None, *, asked: str = "") -> None:
        """Write the end."""
        self.tell_restarts()
        out: list[str] = []
        for (name, cause), count in self._again.items():
            if not self.every and count > MAX_AGAIN + 1:
                more = count - MAX_AGAIN - 1
                shown = self.painter.name(name, 60)
                out += self._told(
                    f"{shown}: {more:,} more by the same cause ({TITLES[cause]}); --all shows each", "dim", 0
                )
        for told in verdict(totals, self.shown, asked):
            out += self._told(self.painter.safe(told), "", 0)
        self.sink.write(encoded(out))
        first = [] if self.every else self.overview.lines(self._when)
        lines = [line for title, told in first for line in self._headed(title, told)]
        self.release(encoded([*lines, ""]) if lines else b"")

    def _when(self, timestamp_ns: int) -> str:
        day = self._clock.iso(timestamp_ns).partition("T")[0] + " " if self.times.mode == "clock" else ""
        return day + self.times.text(timestamp_ns)

    def _headed(self, title: str, told: str) -> list[str]:
        line = self.painter.line()
        text = Wrapped(line, indent=TITLE_WIDTH, most=MAX_LINES)
        text.add(title.ljust(TITLE_WIDTH), "type")
        text.add(self.painter.safe(told))
        return text.texts()

    def tell_restart(self, event: Restart) -> None:
        """Write one stop of a server."""
        first = event.first.first
        head = Wrapped(self.painter.line(), most=MAX_LINES)
        head.add(event.title, "client")
        head.add(f": {TITLES[event.first.cause]}", "type")
        head.add(f" ({first.certainty})", STYLES[first.certainty])
        out = head.texts()
        capture = self.painter.name(event.first.capture, max(20, min(self.painter.width - 8, 70)))
        day = self._clock.iso(event.from_ns).partition("T")[0]
        out += self._told(f"{event.spoken}, {day}, {event.lasted}, {capture}", "dim")
        out += self._told(event.headline, "")
        for told in event.reasons:
            out += self._evidence(told, "")
        names = [
            f"#{one.connection} {self.painter.name(one.client_identifier or one.client, 40)}" for one in event.named
        ]
        if names:
            out += self._told(", ".join(names) + (f" and {event.more:,} more" if event.more else ""), "client")
        if event.afterwards:
            out += self._title("Afterwards")
            for told in event.afterwards:
                out += self._evidence(told, "")
        out += self._title("What to change")
        for text in first.advice:
            out += self._told(f"- {self.painter.safe(text)}", "topic")
        out += self._told("--connection N explains one of them in full, --all each.", "dim")
        self.sink.write(encoded([*out, ""]))

    def _line(self, one: Explanation) -> list[str]:
        """The same again."""
        text = Wrapped(self.painter.line(), most=MAX_LINES)
        text.add(f"#{one.connection} ", "dim")
        text.add(self.painter.name(one.client_identifier or one.client, 60), "client")
        text.add(f": {TITLES[one.cause]} again", "type")
        text.add(f", {self.times.text(one.ended_ns)}, frame {one.ended_frame}: {self.painter.safe(one.first.headline)}")
        return text.texts()

    def _where(self, one: Explanation) -> str:
        arrow = self.painter.to_server
        day = self._clock.iso(one.ended_ns).partition("T")[0]
        version = spoken(one)
        lasted = "" if one.clock_set else f"open for {describe.span(one.ended_ns - one.opened_ns)}, "
        capture = self.painter.name(one.capture, max(20, min(self.painter.width - 8, 70)))
        name = f" ({self.painter.name(one.server_name, 60)})" if one.server_name else ""
        return f"{one.client} {arrow} {one.server}{name}, {version}, {day}, {lasted}{capture}"

    def _candidate(self, one: Candidate, indent: int = 2) -> list[str]:
        out = []
        for told in one.reasons:
            out += self._evidence(told, "", indent=indent)
        for told in one.doubts:
            out += self._evidence(told, "against it: ", "note", indent=indent)
        for broken in one.broken:
            keys = ", ".join(broken.statements) + " " * bool(broken.statements)
            who = "broker" if broken.by == "server" else "client"
            out += self._told(
                f"broken by the {who}: {keys}[{broken.rule} {broken.slug}],"
                f" frame {broken.frame}: {self.painter.safe(broken.message)}", "", indent,
            )  # fmt: skip
        return out

    def _evidence(self, told: Evidence, sign: str, style: str = "", indent: int = 2) -> list[str]:
        line = self.painter.line()
        line.put(" " * indent, indent)
        text = Wrapped(line, indent=indent + 4, most=MAX_LINES)
        if told.timestamp_ns is not None:
            text.add(self.times.text(told.timestamp_ns), "time")
            if told.frame is None:
                text.add(" " if self.narrow else " " * 13, "dim")
            else:
                text.add(f" f{told.frame} " if self.narrow else f" frame {told.frame:<5} ", "dim")
        else:
            text.add(("·" if self.painter.unicode else "*") + " ", "dim")
        text.add(self.painter.safe(f"{sign}{told.text}"), style)
        return text.texts()

    def _moment(self, moment: Moment, one: Explanation) -> list[str]:
        name = self.painter.name(one.client_identifier or "client", 20)
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

    def _told(self, told: str, style: str, indent: int = 2) -> list[str]:
        line = self.painter.line()
        line.put(" " * indent, indent)
        text = Wrapped(line, indent=indent + 2, most=MAX_LINES)
        text.add(self.painter.safe(told), style)
        return text.texts()

"""Explanations as a page for a browser: causes, connections along the time, and each end with its evidence and story.

A row of the page is an explanation as in ``json``.
"""

from __future__ import annotations

from collections import Counter

from mqttscope.explain.fates import Fate, Trace
from mqttscope.explain.model import Cause, Certainty, Evidence, Explanation, Totals
from mqttscope.mqtt.view import utf8
from mqttscope.report.base import Clock, Sink, View
from mqttscope.report.explanations.as_json import EXPLANATION
from mqttscope.report.explanations.base import TITLES, verdict
from mqttscope.report.html.charts import Bar, Lane, Stretch, bar_rows, lane_rows
from mqttscope.report.html.page import PageWriter
from mqttscope.report.html.pieces import doubt, legend, note, part, safe, short
from mqttscope.report.jsonl import dumps
from mqttscope.report.numbers import plural
from mqttscope.secrets.addresses import public_name

MAX_ROWS = 10_000
"""Explanations that the page lists; further ones are counted."""
MAX_LANES = 40
"""Clients of the time line, those whose connections ended first; connections of further ones are counted."""
MAX_STRETCHES = 60
"""Connections of each of them, the first; further ones are counted."""
MAX_MESSAGES = 1_000
"""How many messages are explained one by one; further ones are counted."""
KINDS = {Certainty.CERTAIN: "error", Certainty.LIKELY: "warning", Certainty.HYPOTHESIS: ""}
"""Classes of explanations by how sure they are."""
_ENDS = {
    Cause.NORMAL: "disconnected",
    Cause.STILL_OPEN: "open",
    Cause.UNREADABLE: "unknown",
    Cause.NOT_SHOWN: "unknown",
    Cause.NO_MQTT: "unknown",
}
_TOLD = {
    "broken": "ended in trouble",
    "disconnected": "ended with DISCONNECT",
    "open": "still open",
    "unknown": "not read",
}


class Html:
    """Writes a row for each explanation, then what is read without the script."""

    def __init__(self, sink: Sink, view: View, *, every: bool = False) -> None:
        self.page = PageWriter(sink, "explanations")
        self.shown: Counter[Cause] = Counter()
        self._lanes: dict[str, list[Stretch]] = {}
        self._messages: list[str] = []
        self._left_out = 0
        self._not_drawn = 0
        """Connections that are not in the time line."""
        self._clock = Clock()

    def feed(self, explanation: Explanation) -> None:
        """Write one explanation."""
        one = explanation
        self.shown[one.cause] += 1
        self._lane(one)
        if self.page.rows >= MAX_ROWS:
            self._left_out += 1
            return
        self.page.begin(f"explanation of {utf8(public_name(one.capture))}")
        self.page.row(dumps(EXPLANATION.view(one)))

    def _lane(self, one: Explanation) -> None:
        name = one.client_identifier or one.client.rpartition(":")[0]
        lane = self._lanes.get(name)
        if lane is None:
            if len(self._lanes) >= MAX_LANES:
                self._not_drawn += 1
                return
            lane = self._lanes[name] = []
        if len(lane) < MAX_STRETCHES and not one.clock_set:
            told = f"#{one.connection} {self._time(one.opened_ns)} to {self._time(one.ended_ns)}: {TITLES[one.cause]}"
            lane.append(Stretch(one.opened_ns, one.ended_ns, _ENDS.get(one.cause, "broken"), told))
        else:
            self._not_drawn += 1

    def trace(self, trace: Trace) -> None:
        """Keep why messages arrived or did not."""
        for message in trace.messages[:MAX_MESSAGES]:
            proofs = [self._proof(told, "") for told in message.evidence]
            for one in message.deliveries:
                sign = {Fate.DELIVERED: "✓ ", Fate.NOT_CONCERNED: ""}.get(one.fate, "✗ ")
                told = Evidence(f"{one.client}: {one.said}", one.frame, one.timestamp_ns, one.capture)
                proofs.append(self._proof(told, sign, "missed" if one.is_trouble else ""))
                proofs += [f'<li class="advice">{safe(advice)}</li>' for advice in one.advice]
            kind = "error" if any(one.is_trouble for one in message.deliveries) else "info"
            self._messages.append(
                f'<article class="card {kind}"><h3><span class="code">{short(message.topic)}</span> '
                f'{safe(message.said)}</h3><ul class="proofs">{"".join(proofs)}</ul></article>'
            )
        left = len(trace.messages) - MAX_MESSAGES
        self._messages += [doubt(f"And {plural(left, 'message')} more.")] if left > 0 else []
        self._messages += [note(one) for one in trace.told]

    def _proof(self, told: Evidence, sign: str, kind: str = "") -> str:
        when = ""
        if told.timestamp_ns is not None:
            when = f'<span class="time">{self._time(told.timestamp_ns)} frame {told.frame or 0}</span> '
        return f'<li class="{kind or "proof"}">{when}{safe(sign + told.text)}</li>'

    def close(self, totals: Totals | None, *, asked: str = "") -> None:
        """Write the end, with the totals of the ends."""
        self.page.begin("explanation")
        told = verdict(totals, self.shown, asked)
        out = ["<header><h1>Explanation</h1></header>"]
        good = totals is not None and totals.connections and not totals.causes
        out += [
            f'<p class="{("good" if good else "doubt") if not at else "note"}">{safe(one)}</p>'
            for at, one in enumerate(told)
        ]
        if self._left_out:
            out.append(doubt(f"The page lists the first {MAX_ROWS:,} ends, and counts {self._left_out:,} more."))
        bars = [Bar(TITLES[cause], (count,)) for cause, count in self.shown.most_common()]
        out += part("Causes", bar_rows(bars, ("bar",), "ends by their cause"))
        lanes = [Lane(name, stretches) for name, stretches in self._lanes.items() if stretches]
        ends = [at for lane in lanes for one in lane.stretches for at in (one.from_ns, one.until_ns or one.from_ns)]
        if ends:
            kinds = [kind for kind in _TOLD if any(one.kind == kind for lane in lanes for one in lane.stretches)]
            plot = lane_rows(lanes, self._time(min(ends)), self._time(max(ends)))
            more = note(f"Not drawn: {plural(self._not_drawn, 'more connection')}.") if self._not_drawn else ""
            title = "These connections along the time"
            out += part(title, plot, before=legend(kinds, _TOLD.__getitem__), after=more)
        out += [*(["<h2>Messages</h2>"] if self._messages else []), *self._messages]
        words = {
            "titles": {str(cause): title for cause, title in TITLES.items()},
            "kinds": {str(one): kind for one, kind in KINDS.items()},
        }
        self.page.close(out, title="Each end", words=words)

    def _time(self, timestamp_ns: int) -> str:
        return self._clock.iso(timestamp_ns).replace("T", " ")[:23]

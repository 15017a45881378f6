"""Explanations as a page for a browser: the answer, causes, a timeline of connections, each end with its evidence.

A row of the page is drawn from an explanation as in ``json``, and contains it.  A stop of the broker is one entry.  The
ends in it, and repeated ends of one client with one cause, are lines that open below the other entries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from mqttscope.explain.describe import span
from mqttscope.explain.fates import Fate, Trace
from mqttscope.explain.model import Cause, Evidence, Explanation, Totals
from mqttscope.report.base import Sink, View
from mqttscope.report.explanations.as_json import EXPLANATION
from mqttscope.report.explanations.base import TITLES, node_title, protocol_text, verdict
from mqttscope.report.explanations.restarts import FoldingReport, RestartEvent
from mqttscope.report.explanations.text import ADVICE
from mqttscope.report.html.charts import ChartLane, LaneStretch, lanes, share_bar
from mqttscope.report.html.page import PageWriter, card
from mqttscope.report.html.pieces import (
    between,
    captures_text,
    exact_moment,
    header,
    legend,
    paragraph,
    part,
    safe,
    short,
    table,
)
from mqttscope.report.jsonl import dumps
from mqttscope.report.numbers import number, plural
from mqttscope.report.sections import Cell, value
from mqttscope.session.connection import host_of

MAX_ROWS = 10_000
"""Maximum number of explanations listed on the page; further ones are counted."""
MAX_LANES = 40
"""Maximum number of clients in the timeline, in the order of their first end; the rest is counted."""
MAX_STRETCHES = 60
"""Maximum number of connections per client in the timeline; further ones are counted."""
MAX_MESSAGES = 1_000
"""Maximum number of messages explained one by one; further ones are counted."""
_ENDS = {
    Cause.NORMAL: "disconnected",
    Cause.STILL_OPEN: "open",
    Cause.UNREADABLE: "unknown",
    Cause.NOT_SHOWN: "unknown",
    Cause.NO_MQTT: "unknown",
}
_COLOURS = ("part4", "part1", "part0", "part3", "part2")
"""Classes of the most frequent causes in the timeline; other ends in trouble share one."""
_LEGEND = {
    "broken": "other trouble",
    "disconnected": "ended with DISCONNECT",
    "open": "still open",
    "unknown": "not read",
}
_SIDES = {"client": ("client_to_server", "→"), "server": ("server_to_client", "←")}


class ExplanationHtml(FoldingReport):
    """Writes a row for each explanation, below the parts that sum them up."""

    def __init__(self, sink: Sink, view: View, *, every: bool = False) -> None:
        super().__init__(sink, every=every)
        self.page = PageWriter(sink, "explanations", 20)
        self.entries: Counter[Cause] = Counter()
        """Number of causes, with a stop of the broker and a repeated end counted once."""
        self._seen: set[tuple[str, Cause]] = set()
        self._first: dict[tuple[str, int], Explanation] = {}
        """The first end of each stop of a broker, as long as it is the only one."""
        self._lanes: dict[str, list[LaneStretch]] = {}
        self._captures: dict[str, None] = {}
        self._times: list[int] = []
        self._messages: list[str] = []
        self._nodes: list[str] = []
        self._left_out = 0
        self._not_drawn = 0
        """Number of connections missing from the timeline."""

    def feed(self, explanation: Explanation) -> None:
        """Draw an explanation, and write it."""
        self._captures[explanation.capture] = None
        times = (*self._times, explanation.opened_ns, explanation.ended_ns)
        self._times = [min(times), max(times)]
        self._lane(explanation)
        super().feed(explanation)

    def _lane(self, end: Explanation) -> None:
        name = end.client_identifier or host_of(end.client)
        lane = self._lanes.get(name)
        if lane is None:
            if len(self._lanes) >= MAX_LANES:
                self._not_drawn += 1
                return
            lane = self._lanes[name] = []
        if len(lane) < MAX_STRETCHES and not end.clock_set:
            hint = (
                f"#{end.connection} {exact_moment(end.opened_ns)} to {exact_moment(end.ended_ns)}: {TITLES[end.cause]}"
            )
            lane.append(LaneStretch(end.opened_ns, end.ended_ns, _ENDS.get(end.cause, str(end.cause)), hint))
        else:
            self._not_drawn += 1

    def write_end(self, explanation: Explanation) -> None:
        """Write the end of one connection: in full, or as a line that opens if the client had it before."""
        self._first.pop((explanation.capture, explanation.connection), None)
        known = explanation.client_identifier or host_of(explanation.client), explanation.cause
        is_repeated = known in self._seen and not self.every
        if not is_repeated:
            self.entries[explanation.cause] += 1
            if len(self._seen) < MAX_ROWS:
                self._seen.add(known)
        self._row(explanation, folded=is_repeated)

    def write_absorbed(self, event: RestartEvent, explanation: Explanation) -> None:
        """Write an end of a stop as a line that opens; a single one becomes an entry of its own."""
        key = event.first.capture, event.first.connection
        if event.count + event.refusals == 1:
            self._first[key] = explanation
            return
        if (first := self._first.pop(key, None)) is not None:
            self._row(first, folded=True)
        self._row(explanation, folded=True)

    def write_restart(self, event: RestartEvent) -> None:
        """Write the ends of several connections as one entry."""
        first = event.first.first
        self.entries[event.first.cause] += 1
        named = [f"#{end.connection} {end.client_identifier or end.client}" for end in event.named]
        more = f" and {event.more:,} more" if event.more else ""
        head = (
            f"{_title(event.first, event.title)}"
            f'<p class="where">{safe(event.protocols)}, {exact_moment(event.from_ns)}, {safe(event.lasted)}, '
            f'{short(event.first.capture)}</p><p class="headline">{safe(event.headline)}</p>'
        )
        body = _proofs(map(_proof, event.reasons)) + (f"<p>{safe(', '.join(named))}{more}</p>" if named else "")
        afterwards = _section("Afterwards", _proofs(map(_proof, event.afterwards)))
        body += afterwards + _advice(first.advice)
        self.page.row(card("", head, body, documented=False), b"", rank=-1)

    def _row(self, explanation: Explanation, *, folded: bool) -> None:
        if self.page.rows >= MAX_ROWS:
            self._left_out += 1
            return
        document = EXPLANATION.view(explanation)
        name = explanation.client_identifier or "(no Client Identifier)"
        head = _title(explanation, f"#{explanation.connection} {name}")
        text = f'<p class="headline">{safe(explanation.first.headline)}</p>'
        body = _body(document, explanation)
        if folded:
            when = f' <span class="time">{exact_moment(explanation.ended_ns)}</span>'
            line = head.removeprefix("<h3>").removesuffix("</h3>") + when
            markup = card("", line, _where(explanation) + text + body, folded=True)
        else:
            markup = card("", head + _where(explanation) + text, body)
        rank = 2 if folded else 1 if explanation.is_quiet else 0
        self.page.row(markup, dumps(document), connection=explanation.connection, rank=rank)

    def trace(self, trace: Trace) -> None:
        """Keep the reasons why messages arrived or did not."""
        for message in trace.messages[:MAX_MESSAGES]:
            proofs = [_proof(proof) for proof in message.evidence]
            for delivery in message.deliveries:
                sign = {Fate.DELIVERED: "✓ ", Fate.NOT_CONCERNED: ""}.get(delivery.fate, "✗ ")
                text = f"{sign}{delivery.client}: {delivery.outcome}"
                proof = Evidence(text, delivery.frame, delivery.timestamp_ns, delivery.capture)
                proofs.append(_proof(proof, kind="missed" if delivery.is_trouble else ""))
                proofs += [f'<li class="advice">{safe(advice)}</li>' for advice in delivery.advice]
            kind = "error" if any(delivery.is_trouble for delivery in message.deliveries) else ""
            head = f'<h3><span class="code">{short(message.topic)}</span> {safe(message.outcome)}</h3>'
            self._messages.append(f'<article class="card {kind}">{head}{_proofs(proofs)}</article>')
        for answer in trace.nodes[:MAX_MESSAGES]:
            head = f'<h3><span class="code">{short(answer.node)}</span> {safe(node_title(answer))}</h3>'
            text = f'<p class="headline">{safe(answer.headline)}</p>{_proofs(map(_proof, answer.reasons))}'
            self._nodes.append(f'<article class="card">{head}{text}{_advice(answer.advice)}</article>')
        left = len(trace.nodes) - MAX_MESSAGES
        self._nodes += [paragraph(f"And {plural(left, 'answer')} more.", "doubt")] if left > 0 else []
        left = len(trace.messages) - MAX_MESSAGES
        self._messages += [paragraph(f"And {plural(left, 'message')} more.", "doubt")] if left > 0 else []
        self._messages += [paragraph(sentence) for sentence in trace.remarks]

    def close(self, totals: Totals | None, *, asked: str = "") -> None:
        """Write the page: the answer, causes and timeline, then the rows."""
        self.write_restarts()
        named = captures_text(self._captures)
        first = self.overview.lines(exact_moment, totals)
        lines = "".join(f"<dt>{safe(title)}</dt><dd>{safe(line)}</dd>" for title, line in first)
        good = totals is not None and totals.connections and not totals.causes
        out = [
            header("Explanation", named, between(*self._times) if self._times else ""),
            f'<dl class="answer">{lines}</dl>' if lines else "",
            *(
                paragraph(sentence, "note" if at or lines else "good" if good else "doubt")
                for at, sentence in enumerate(verdict(totals, self.shown, asked))
            ),
        ]
        if self._left_out:
            text = f"The page lists the first {MAX_ROWS:,} ends; {self._left_out:,} more are only counted."
            out.append(paragraph(text, "doubt"))
        out += [*(["<h2>Messages</h2>"] if self._messages else []), *self._messages]
        out += [*(["<h2>Edge nodes of Sparkplug</h2>"] if self._nodes else []), *self._nodes]
        most = max(self.shown.values(), default=1)
        rows = [cause for cause, _ in self.shown.most_common()]
        kinds = dict(zip((cause for cause in rows if cause not in _ENDS), _COLOURS, strict=False))
        causes = [
            Cell("cause", TITLES.__getitem__, "text"),
            Cell("entries", lambda cause: number(self.entries[cause])),
            Cell("connections", lambda cause: number(self.shown[cause])),
            Cell("", lambda cause: share_bar([self.shown[cause] / most], [_kind(cause, kinds)]), "bars"),
        ]
        out += part("Causes", table(rows, causes) if rows else "")
        out += self._timeline(kinds)
        self.page.close(f"explanation of {named}", out, "Each end")

    def _timeline(self, colours: dict[Cause, str]) -> list[str]:
        """Lanes of clients, with ends coloured by cause."""
        stretches = [stretch for lane in self._lanes.values() for stretch in lane]
        titles = {colour: TITLES[cause] for cause, colour in colours.items()} | _LEGEND
        for stretch in stretches:
            if stretch.kind not in _LEGEND:
                stretch.kind = colours.get(Cause(stretch.kind), "broken")
        kinds = [kind for kind in titles if any(stretch.kind == kind for stretch in stretches)]
        rows = [ChartLane(name, lane) for name, lane in self._lanes.items() if lane]
        more = f"Not drawn: {plural(self._not_drawn, 'more connection')}." if self._not_drawn else ""
        before = legend(kinds, titles.__getitem__)
        return part("Timeline of these connections", lanes(rows, exact_moment), before=before, after=paragraph(more))


def _kind(cause: Cause, colours: dict[Cause, str]) -> str:
    """Class of a cause in the bars and the timeline."""
    return _ENDS.get(cause) or colours.get(cause, "broken")


def _title(end: Explanation, name: str) -> str:
    """Heading of an entry: cause, connection and client, certainty."""
    return (
        f'<h3><span class="code">{TITLES[end.cause]}</span> {short(name)} '
        f'<span class="badge">{end.first.certainty}</span></h3>'
    )


def _where(end: Explanation) -> str:
    server = f"{end.server} ({end.server_name})" if end.server_name else end.server
    lasted = "" if end.clock_set else f" after {span(end.ended_ns - end.opened_ns)}"
    text = f"{end.client} → {server}, {protocol_text(end)}, ended {exact_moment(end.ended_ns)}{lasted}"
    return f'<p class="where">{safe(text)}, {short(end.ended_capture)} frame {end.ended_frame}</p>'


def _proof(evidence: Any, before: str = "", kind: str = "") -> str:
    """An item from an evidence, as an object or as JSON."""
    time_ns, frame, text = (value(evidence, name) for name in ("timestamp_ns", "frame", "text"))
    when = "" if time_ns is None else f'<span class="time">{exact_moment(time_ns)} frame {frame or 0}</span> '
    return f'<li class="{kind}">{when}{safe(before + str(text))}</li>'


def _proofs(items: Iterable[str]) -> str:
    shown = "".join(items)
    return f'<ul class="proofs">{shown}</ul>' if shown else ""


def _reasons(candidate: dict[str, Any]) -> str:
    broken = [
        f'<li class="violation">broken by the {"broker" if row["by"] == "server" else "client"}: '
        f"{safe(', '.join(row['statements']))} [{row['rule']} {row['slug']}], frame {row['frame']}: "
        f"{safe(row['message'])}</li>"
        for row in candidate["broken"]
    ]
    doubts = (_proof(evidence, "against it: ") for evidence in candidate["against"])
    return _proofs([*map(_proof, candidate["for"]), *doubts, *broken])


def _section(title: str, content: str) -> str:
    return f"<h4>{safe(title)}</h4>{content}" if content else ""


def _advice(texts: Iterable[str]) -> str:
    items = "".join(f"<li>{safe(text)}</li>" for text in texts)
    return _section(ADVICE, f'<ul class="advice">{items}</ul>' if items else "")


def _body(document: dict[str, Any], end: Explanation) -> str:
    """Evidence, advice, other causes, later events, and the last packets."""
    first, *others = document["causes"]
    out = [_reasons(first), _advice(first["advice"])]
    for other in others:
        title = f"Also possible: {TITLES[Cause(other['cause'])]} ({other['certainty']})"
        out.append(_section(title, paragraph(other["headline"], "") + _reasons(other)))
    out.append(_section("Afterwards", _proofs(map(_proof, document["afterwards"]))))
    rows = ""
    for row in document["timeline"]:
        sender, arrow = _SIDES.get(row["by"], ("event", ""))
        rows += (
            f'<tr class="{sender}"><td class="time">{exact_moment(row["timestamp_ns"])[11:]}</td><td class="number">'
            f'{row["frame"]}</td><td class="way">{arrow}</td><td class="what">{safe(row["text"])}</td></tr>'
        )
    left = f" ({end.left_out:,} before)" if end.left_out else ""
    story = f'<div class="table"><table class="story"><tbody>{rows}</tbody></table></div>'
    out.append(_section(f"Last packets{left}", story))
    return "".join([*out, *map(paragraph, document["notes"])])

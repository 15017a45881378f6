"""A fleet report as one self-contained HTML page: the sections of the text report, with charts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mqttscope.report.fleet import model, text
from mqttscope.report.fleet.news import meaning, sentences
from mqttscope.report.fleet.text import MISSING, SECTIONS, ending_text, group_name
from mqttscope.report.html.charts import (
    RANGE_NOTE,
    Bar,
    ChartLane,
    GridCell,
    LaneStretch,
    LatencyRange,
    columns,
    crossing_grid,
    lanes,
    ranges,
)
from mqttscope.report.html.page import FILTER, document
from mqttscope.report.html.pieces import SEVERITIES, between, bound, header, legend, paragraph, part, safe, short
from mqttscope.report.html.sheet import HtmlTables
from mqttscope.report.sections import Document, value
from mqttscope.report.when import moment


def render(report: model.FleetReport) -> bytes:
    """A report as a page."""
    shown, sheet = text.document(report), _Sheet(report)
    asked, missing = text.conditions(report), text.doubts(report)
    seen = report.overview
    sheet.line(text.amounts(report), "bold")
    sheet.line([f"Missing data: {'; '.join(missing)}." if missing else "Nothing is missing from the captures."], "dim")
    sheet.parts.append(FILTER)
    for section in (*SECTIONS, MISSING):
        sheet.charts = CHARTS.get(section.title if isinstance(section.title, str) else "", ())
        sheet.report = shown
        section.write(sheet, shown)
    sheet.explain_rules()
    first, *others = sentences(report)
    kind = "doubt" if report.news.now.errors else "good" if report.rules else "note"
    return document(
        f"Fleet report: {report.lake}",
        [
            header("Fleet report", report.lake, between(seen.first_ns, seen.last_ns) or "nothing captured"),
            paragraph(f"Restricted to {'; '.join(asked)}." if asked else ""),
            paragraph(first, kind),
            *(f'<ul class="news">{"".join(f"<li>{safe(sentence)}</li>" for sentence in others)}</ul>',),
            *sheet.parts,
        ],
    )


class _Sheet(HtmlTables):
    """Tables, with the charts of a section below its title, and links from names to where the page explains them."""

    charts: tuple[Callable[[Document], str], ...] = ()
    report: Document

    def __init__(self, report: model.FleetReport) -> None:
        super().__init__()
        lists = (report.rules, report.by_client, report.by_shape, report.by_property)
        self._rules = dict.fromkeys(row.rule for rows in lists for row in rows.rows)
        names = dict.fromkeys(row.group for row in report.by_client.rows if row.group)
        self._clients = {name: number for number, name in enumerate(names)}
        self._is_of_clients = False
        self._shown: set[str] = set()

    def title(self, text: str) -> None:
        super().title(text)
        self._is_of_clients = text == "Rules by client"
        self.parts += [chart(self.report) for chart in self.charts]

    def named(self, text: str) -> str:
        """A rule links to its explanation, a client to its rules."""
        rule, number = text.partition(" ")[0], self._clients.get(text)
        if rule in self._rules:
            return f'<a href="#rule-{rule}">{safe(text)}</a>'
        if number is None:
            return super().named(text)
        if self._is_of_clients and text not in self._shown:
            self._shown.add(text)
            return f'<a id="client-{number}">{short(text)}</a>'
        return f'<a href="#client-{number}">{short(text)}</a>'

    def explain_rules(self) -> None:
        """A line for each rule of the page: its finding, and the command that explains it."""
        if self._rules:
            self.title("Rules")
        for code in sorted(self._rules):
            more = f'<span class="note">mqttscope rules {code}</span>'
            self.parts.append(f'<p id="rule-{code}">{code}: {safe(meaning(code))}. {more}</p>')


def _grid(report: Document) -> str:
    cells = [
        GridCell(group_name(row["client"], "client"), row["rule"], row["findings"], row["severity"])
        for row in report["crossings"]
    ]
    plot = crossing_grid(cells)
    return "".join(part("Findings by client and rule", plot, before=legend(SEVERITIES), level=3))


def _over_time(report: Document) -> str:
    rows = report["parts"] or report["days"]
    charts = [("Findings", SEVERITIES), ("Packets", ("packets",)), ("Messages that clients published", ("messages",))]
    out = []
    for title, kinds in charts:
        plot = columns([Bar(row["day"], tuple(map(row.get, kinds))) for row in rows], kinds, f"{title} over time")
        out += part(title, plot, before=legend(kinds) if len(kinds) > 1 else "", level=3)
    return "".join(out)


def _buckets(report: Document) -> str:
    kinds = ("acknowledged", "delivered")
    bars = [
        Bar("longer" if row["below_ns"] is None else f"< {bound(row['below_ns'])}", tuple(map(row.get, kinds)))
        for row in report["latency"]["buckets"]
    ]
    note = "From PUBLISH to its acknowledgement, and from publisher to subscriber; one bar per range."
    plot = columns(bars, kinds, "messages by latency")
    return "".join(part("Message latency", plot, before=legend(kinds), after=paragraph(note), level=3))


def _ranges(path: str, report: Document) -> str:
    rows = []
    for row in value(report, path)["rows"]:
        latency = row["latency"]
        if latency["count"]:
            percentiles = latency["p50_ns"], latency["p90_ns"], latency["p99_ns"]
            rows.append(LatencyRange(group_name(row["name"], "subscriber"), latency["count"], *percentiles))
    return ranges(rows, numbers=False) + paragraph(RANGE_NOTE) if rows else ""


def _way(how: str) -> str:
    return ending_text(model.EndingRow(how, None, 0))


def _time_line(report: Document) -> str:
    """Timeline of the clients with most connections."""
    ranked = report["endings"]["lanes"]
    rows, kinds = [], dict[str, None]()
    for lane in ranked["rows"]:
        stretches = []
        for span in lane["spans"]:
            kinds[span["how"]] = None
            to = "the end of the captures" if span["until_ns"] is None else moment(span["until_ns"])
            hint = f"{moment(span['from_ns'])} to {to}: {_way(span['how'])}"
            stretches.append(LaneStretch(span["from_ns"], span["until_ns"], span["how"], hint))
        rows.append(ChartLane(lane["client"] or "(no Client Identifier)", stretches))
    left = ranked["total"] - len(rows)
    more = paragraph(f"and {left:,} more clients" if left > 0 else "")
    return "".join(
        part("Timeline of connections", lanes(rows, moment), before=legend(kinds, _way), after=more, level=3)
    )


def _connects(report: Document) -> str:
    reconnects = report["reconnects"]
    bars = [Bar(moment(row["from_ns"])[:16], (row["connects"],)) for row in reconnects["timeline"]]
    each = reconnects["minutes_each"]
    title = f"CONNECT packets {f'in {each:,} min each' if each > 1 else 'a minute'}"
    return "".join(part(title, columns(bars, ("connects",), "CONNECT packets over time"), level=3))


CHARTS: dict[str, tuple[Callable[[Document], str], ...]] = {
    "Broken rules": (_grid,),
    "How connections ended": (_time_line,),
    "Connecting": (_connects,),
    "": (_over_time,),
    "From PUBLISH to its acknowledgement": (_buckets,),
    "Slowest topics": (partial(_ranges, "latency.topics"),),
    "Slowest subscribers": (partial(_ranges, "latency.subscribers"),),
}
"""Charts by the titles of their sections; the section over time has a title that varies."""

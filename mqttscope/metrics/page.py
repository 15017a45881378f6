"""The live page, and the document of facts that its script requests.

The document has no secrets, and its size has a limit.  The script writes captured text as text, never as markup.
"""

from __future__ import annotations

from functools import cache, partial
from importlib.resources import files
from typing import Any

import orjson

from mqttscope.lint.finding import Severity
from mqttscope.metrics.facts import LATENCY_BOUNDS_NS, LiveFacts, RateRow, busiest
from mqttscope.metrics.monitor import LiveMonitor
from mqttscope.report.escape import escape
from mqttscope.report.explanations.base import TITLES
from mqttscope.report.html.page import live_document
from mqttscope.report.html.pieces import LONGEST
from mqttscope.secrets.addresses import public_name
from mqttscope.secrets.findings import masked

MAX_ROWS = 10
"""Maximum number of the busiest clients and topics on the page."""
MAX_FINDING_ROWS = 40
"""Maximum number of rules on the page, the most severe and then the latest."""
_PARTS = (
    '<header><h1>mqttscope <span id="capture"></span></h1><p class="when" id="when"></p></header>',
    '<noscript><p class="doubt">This page needs JavaScript. /metrics has the numbers as text.</p></noscript>',
    '<p class="doubt" id="state" role="status" hidden></p><p class="headline" id="headline"></p>',
    '<dl id="figures"></dl>',
    '<section id="troubled"><h2>Clients in trouble</h2><div id="troubles"></div>',
    '<details id="more"><summary></summary><div id="others"></div></details></section>',
    '<section><h2>Since the start</h2><div id="history"></div></section>',
    '<section id="latency"><h2>Time from PUBLISH to its acknowledgment</h2><div class="table" id="latencies"></div>',
    '</section><section id="broken"><h2>Findings</h2><div class="table" id="findings"></div></section>',
    '<section><h2>Ends and refusals</h2><div class="table" id="ends"></div></section>',
    '<section><h2>Busiest clients and topics</h2><div class="table" id="clients"></div>',
    '<div class="table" id="topics"></div></section>',
)


@cache
def live_page() -> tuple[bytes, str]:
    """The page, and its content security policy."""
    own_script, more_style = (
        files("mqttscope.metrics").joinpath(name).read_text("utf-8") for name in ("live.js", "live.css")
    )
    return live_document("mqttscope: live", _PARTS, own_script, more_style)


def facts_document(monitor: LiveMonitor) -> bytes:
    """The facts of the page as JSON."""
    document = monitor.read(_facts)
    document["capture"] = _text(public_name(monitor.capture))
    for trouble in document["troubles"]:
        trouble["client"] = _text(trouble["client"])
        trouble["text"], trouble["advice"] = _sentence(trouble["text"]), _sentence(trouble["advice"])
    for row in document["findings"]:
        row["client"], row["message"] = _text(row["client"]), _sentence(row["message"])
    for name in ("clients", "topics"):
        document[name] = [{**row, "name": _text(row["name"])} for row in document[name]]
    document["errors"] = [_sentence(error) for error in document["errors"]]
    return orjson.dumps(document)


def _facts(facts: LiveFacts) -> dict[str, Any]:
    """Plain values that the page shows; names still have their secrets."""
    history = facts.history
    columns = ("packets", "connects", "refused", "ends", "findings", "dropped", "open")
    severities = {str(severity): 0 for severity in Severity}
    for row in facts.findings.values():
        severities[str(row.severity)] += row.count
    latest = list(reversed(facts.findings.values()))
    shown = sorted(latest, key=lambda row: -row.severity.rank)[:MAX_FINDING_ROWS]
    return {
        "schema": 1, "started_ns": facts.started_ns, "now_ns": facts.now_ns, "frames": facts.frames,
        "dropped": facts.dropped, "lost_bytes": facts.lost_bytes, "malformed": facts.malformed,
        "packets": facts.total.packets, "rate": facts.total.packet_rate, "open": facts.open, "opened": facts.opened,
        "reconnects": facts.reconnects.packets, "refused": facts.refused.packets, "broken": facts.broken.packets,
        "undecided": facts.undecided, "unexplained": facts.unexplained,
        "refusals": dict(facts.refusals), "forgotten": facts.forgotten,
        "ends": [{"title": TITLES[cause], "count": count} for cause, count in facts.ends.most_common()],
        "severities": severities, "errors": [*facts.errors],
        "latency": {
            "count": facts.latency.count, "bounds_ns": LATENCY_BOUNDS_NS, "counts": [*facts.latency_counts],
            **{f"p{percent}_ns": facts.latency.percentile(percent) for percent in (50, 99)},
            "maximum_ns": facts.latency.maximum,
        },
        "troubles": [
            {
                "client": row.client, "cause": TITLES[row.cause], "certainty": row.certainty, "text": row.text,
                "advice": row.advice, "count": row.count, "undecided": row.undecided, "last_ns": row.last_ns,
            }
            for row in reversed(facts.troubles.values())
        ],
        "findings": [
            {
                "rule": row.rule, "slug": row.slug, "severity": row.severity, "count": row.count, "client": row.client,
                "message": row.message, "last_ns": row.last_ns,
            }
            for row in shown
        ],
        **{name: _busiest(getattr(facts, name)) for name in ("clients", "topics")},
        "history": {
            "interval_ns": history.interval_ns, "start_ns": history.start_ns,
            **{name: [getattr(interval, name) for interval in history.intervals] for name in columns},
            "p99_ns": [interval.latency_p99_ns for interval in history.intervals],
        },
    }  # fmt: skip


def _busiest(table: dict[str, RateRow]) -> list[dict[str, Any]]:
    return [
        {"name": name, "packets": row.packets, "rate": row.packet_rate, "connects": row.connects}
        for name, row in busiest(table, MAX_ROWS)
    ]


def _shown(text: str, longest: int) -> str:
    text = escape(masked(text))
    return text if len(text) <= longest else f"{text[:longest]}…"


_text = partial(_shown, longest=LONGEST)
_sentence = partial(_shown, longest=2 * LONGEST)

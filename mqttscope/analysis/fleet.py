"""Asks a lake for its fleet report: `fleet_report` runs all questions of this package.

`add_overview` and `by_capture` answer its own: how much there is in the lake, and how far its data can be trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqttscope.analysis.dialects import Words
from mqttscope.analysis.joins import OWN
from mqttscope.analysis.questions import Engine, Lake
from mqttscope.analysis.reconnects import add_endings, add_reconnects
from mqttscope.analysis.rules import add_rules
from mqttscope.analysis.talk import add_latency, add_retained, add_talk
from mqttscope.report.fleet.model import PROPERTIES, Asked, CaptureTrust, FleetReport, Overview, Trust

ERRORS = 3
"""Errors of a capture that are shown."""
LARGEST = (1 << 63) - 1
"""The largest number of a column."""
_SUMS = ("gaps", "gap_bytes", "unparsed", "unparsed_bytes", "dropped", "error_count")


def add_overview(report: FleetReport, lake: Lake) -> None:
    """Fill in how much there is, and what is missing."""
    questions = lake.questions()
    selection, words = questions.selection, questions.words
    packets = selection.rows(questions.table("packets"), "packets")
    messages = selection.rows(questions.table("messages"), "messages")
    gaps = selection.rows(questions.table("gaps"), "gaps")
    questions.add(
        "packets",
        f"""select count(*) as packets, count(distinct capture) as captures, min(timestamp_ns) as first_ns,
        max(timestamp_ns) as last_ns, count(*) filter (where event = 'malformed') as malformed from {packets}""",
    )
    questions.add(
        "messages",
        f"""select count(*) filter (where {OWN}) as messages_published,
        count(*) filter (where not ({OWN})) as messages_delivered,
        {words.distinct("server", "topic")} as topics,
        count(*) filter (where topic is null) as unknown_topics from {messages}""",
    )
    questions.add("connections", _connections(words, selection.connections(questions.table("connections"))))
    findings = selection.findings(questions.table("findings"))
    questions.add(
        "findings", f"select count(*) as findings, count(*) filter (where severity = 'error') as errors from {findings}"
    )
    lacking = questions.view(by_capture(words, gaps, questions.table("ingest_errors")))
    questions.add("lacking", f"select {', '.join(f'{_added(name)} as {name}' for name in _SUMS)} from {lacking}")
    questions.top("captures", lacking, "error_count desc, dropped desc, gap_bytes desc, unparsed_bytes desc, capture")
    questions.collect()

    said, talked = questions.row("packets"), questions.row("messages")
    known: dict[str, Any] = questions.row("connections")
    trust = {"malformed": said.pop("malformed"), "unknown_topics": talked.pop("unknown_topics")}
    counted = {name: known.pop(name) for name in ("servers", "clients")}
    missing = questions.row("lacking")
    missing["errors"] = missing.pop("error_count")
    report.overview = Overview(
        **said, **talked, **counted, **questions.row("findings"), connections=known["connections"]
    )
    report.trust = Trust(**known, **trust, **missing, captures=questions.ranked("captures", _trust))


def _connections(words: Words, connections: str) -> str:
    return f"""select count(*) as connections, count(distinct server) as servers,
    {words.distinct("server", "client_identifier")} as clients,
    count(*) filter (where not coalesce(version_known, false)) as joined, count(*) filter (where gaps > 0) as with_gaps,
    count(*) filter (where closed_how in ('open', 'capture_end')) as open,
    count(*) filter (where client_identifier is null) as unnamed
    from {connections}"""


def _added(counts: str) -> str:
    """A sum that stops at the largest number there is: a capture may report that many dropped frames.

    The sum of no rows is null, which ``least`` passes over: it has to be zero before that.
    """
    added = f"coalesce(sum(cast({counts} as decimal(38,0))), cast(0 as decimal(38,0)))"
    return f"cast(least({added}, cast({LARGEST} as decimal(38,0))) as bigint)"


def by_capture(words: Words, gaps: str, errors: str) -> str:
    """What each capture lacks; captures that lack nothing have no row."""
    return f"""
    with lost as (
        select capture, count(*) filter (where event = 'gap') as gaps,
            sum(case when event = 'gap' then length end) as gap_bytes,
            count(*) filter (where event = 'unparsed') as unparsed,
            sum(case when event = 'unparsed' then length end) as unparsed_bytes
        from {gaps} group by capture
    ),
    said as (
        select capture, {_added("case when event = 'capture_drops' then dropped end")} as dropped,
            count(*) filter (where event = 'capture_error') as error_count,
            {words.names("case when event = 'capture_error' then message end", ERRORS)} as errors
        from {errors} group by capture
    )
    select coalesce(lost.capture, said.capture) as capture, errors,
        {", ".join(f"coalesce({name}, 0) as {name}" for name in _SUMS)}
    from lost full join said on lost.capture = said.capture
    """


def _trust(row: dict[str, Any]) -> CaptureTrust:
    counts = {name: row[name] for name in row if name != "error_count"}
    return CaptureTrust(**counts | {"errors": row["errors"] or []})


PARTS = (add_overview, add_rules, add_latency, add_talk, add_retained, add_endings, add_reconnects)
"""What fills in a report; the questions of each are asked together."""


def fleet_report(
    engine: Engine, asked: Asked | None = None, *, progress: Callable[[int, int], None] | None = None
) -> FleetReport:
    """Ask a lake for the health of its fleet.

    ``progress`` is called with the number of parts that are done, and of all parts.
    """
    asked = asked or Asked(group_by=list(PROPERTIES))
    report = FleetReport(engine.lake, asked)
    lake = Lake(engine, asked)
    for number, add in enumerate(PARTS):
        if progress is not None:
            progress(number, len(PARTS))
        add(report, lake)
    return report

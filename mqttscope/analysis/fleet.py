"""Builds the fleet report of a lake: `fleet_report` runs all queries of this package.

`add_overview` and `by_capture` measure how much data the lake has, and how far it can be trusted; `add_news` adds the
numbers of the first sentences.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mqttscope.analysis.devices import devices
from mqttscope.analysis.dialects import Dialect
from mqttscope.analysis.joins import OWN
from mqttscope.analysis.questions import Engine, Questions, ReportSource, RowSelection
from mqttscope.analysis.reconnects import add_endings, add_reconnects
from mqttscope.analysis.rules import add_rules
from mqttscope.analysis.talk import add_latency, add_retained, add_talk
from mqttscope.analysis.undelivered import undelivered
from mqttscope.report.fleet.model import (
    PROPERTIES,
    CaptureTrust,
    FleetReport,
    LostRow,
    NewsPeriod,
    Overview,
    ReportQuery,
    SilentRow,
    TrustReport,
)

ERRORS = 3
"""Maximum number of errors shown per capture."""
PERIODS = 5
"""A device is silent if it sends nothing for more usual periods than this."""
LEAST_MESSAGES = 5
"""Minimum number of publications that make a period usual."""
LEAST_SILENT_NS = 10 * 10**9
"""Minimum time without a packet: shorter ones are normal at the end of any capture."""
_TABLES = ("packets", "messages", "connections", "gaps")
LARGEST = (1 << 63) - 1
"""Largest value of a column."""
_SUMS = ("gaps", "gap_bytes", "unparsed", "unparsed_bytes", "dropped", "error_count")


def add_overview(report: FleetReport, lake: ReportSource) -> None:
    """Fill in how much data there is, and how much is missing."""
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

    packet_counts, message_counts = questions.row("packets"), questions.row("messages")
    known: dict[str, Any] = questions.row("connections")
    trust = {"malformed": packet_counts.pop("malformed"), "unknown_topics": message_counts.pop("unknown_topics")}
    counted = {name: known.pop(name) for name in ("servers", "clients")}
    missing = questions.row("lacking")
    missing["errors"] = missing.pop("error_count")
    report.overview = Overview(
        **packet_counts, **message_counts, **counted, **questions.row("findings"), connections=known["connections"]
    )
    report.trust = TrustReport(**known, **trust, **missing, captures=questions.ranked("captures", _trust))


def _connections(words: Dialect, connections: str) -> str:
    return f"""select count(*) as connections, count(distinct server) as servers,
    {words.distinct("site", "named")} as clients,
    count(*) filter (where not coalesce(version_known, false)) as joined, count(*) filter (where gaps > 0) as with_gaps,
    count(*) filter (where closed_how in ('open', 'capture_end')) as open,
    count(*) filter (where client_identifier is null) as unnamed
    from (select *, case when client_identifier != '' then client_identifier
            else regexp_replace(client, ':[0-9]+$', coalesce(client_identifier, ' ')) end as named,
        case when server like '%: %' then split_part(server, ': ', 1) else '' end as site from {connections})"""


def _added(counts: str) -> str:
    """A sum with the largest value of a column as its limit: a capture may report that many dropped frames.

    The sum of no rows is null, which ``least`` ignores, so it becomes zero first.
    """
    added = f"coalesce(sum(cast({counts} as decimal(38,0))), cast(0 as decimal(38,0)))"
    return f"cast(least({added}, cast({LARGEST} as decimal(38,0))) as bigint)"


def by_capture(words: Dialect, gaps: str, errors: str) -> str:
    """Data missing from each capture; a complete capture has no row."""
    return f"""
    with lost as (
        select capture, count(*) filter (where event = 'gap') as gaps,
            sum(case when event = 'gap' then length end) as gap_bytes,
            count(*) filter (where event = 'unparsed') as unparsed,
            sum(case when event = 'unparsed' then length end) as unparsed_bytes
        from {gaps} group by capture
    ),
    reported as (
        select capture, {_added("case when event = 'capture_drops' then dropped end")} as dropped,
            count(*) filter (where event = 'capture_error') as error_count,
            {words.names("case when event = 'capture_error' then message end", ERRORS)} as errors
        from {errors} group by capture
    )
    select coalesce(lost.capture, reported.capture) as capture, errors,
        {", ".join(f"coalesce({name}, 0) as {name}" for name in _SUMS)}
    from lost full join reported on lost.capture = reported.capture
    """


def _trust(row: dict[str, Any]) -> CaptureTrust:
    counts = {name: row[name] for name in row if name != "error_count"}
    return CaptureTrust(**counts | {"errors": row["errors"] or []})


def add_news(report: FleetReport, lake: ReportSource) -> None:
    """Fill in the numbers of the first sentences, and the lists that they begin."""
    questions, asked = lake.questions(), lake.asked
    words, selection = questions.words, questions.selection
    relations = {name: questions.table(name) for name in _TABLES}
    relations |= {name: selection.history(relations[name], name) for name in ("packets", "messages")}
    missing = questions.view(undelivered(words, relations))
    lost = questions.keep(
        f"select *, published_ns as timestamp_ns, subscriber as client_identifier from {missing} where lost"
    )
    listed = selection.rows(lost, "")
    grouped = f"""select server, subscriber, count(*) as messages, count(distinct topic) as topics,
        min(published_ns) as first_ns, max(published_ns) as last_ns, min(reason) as reason
        from {listed} group by server, subscriber"""
    questions.top("lost", questions.view(grouped), "messages desc, server, subscriber")
    silent = f"""select server, client_identifier, silent_ns, usual_period_ns, last_seen_ns, connected
        from ({devices(words, relations)})
        where messages >= {LEAST_MESSAGES} and silent_ns > {PERIODS} * usual_period_ns
            and silent_ns >= {LEAST_SILENT_NS}"""
    silent = selection.clients(selection.since(f"(select *, last_seen_ns as timestamp_ns from ({silent}))"))
    questions.top("silent", questions.view(f"select * from {silent}"), "silent_ns desc, server, client_identifier")
    _add_period(questions, "now", selection, listed)
    last_ns = asked.until_ns if asked.until_ns is not None else report.overview.last_ns
    if asked.since_ns is not None and last_ns is not None and last_ns > asked.since_ns:
        begin_ns = asked.since_ns - (last_ns - asked.since_ns)
        earlier = RowSelection(words, replace(asked, since_ns=begin_ns, until_ns=asked.since_ns))
        _add_period(questions, "before", earlier, earlier.rows(lost, ""))
    questions.collect()

    report.news.now = NewsPeriod(**questions.row("now"))
    if "before" in questions.names():
        report.news.before = NewsPeriod(**questions.row("before"))
    report.news.lost = questions.ranked("lost", lambda row: LostRow(**row))
    report.news.silent = questions.ranked(
        "silent", lambda row: SilentRow(**{name: row[name] for name in row if name != "timestamp_ns"})
    )


def _add_period(questions: Questions, name: str, selection: RowSelection, lost: str) -> None:
    findings = selection.findings(questions.table("findings"))
    packets = selection.rows(questions.table("packets"), "packets")
    clients = questions.words.distinct("server", "who")
    questions.add(
        name,
        f"""select * from (select count(*) as errors, {clients} as clients, min(timestamp_ns) as first_ns from (
            select *, coalesce(client_identifier, connection_id) as who from {findings} where severity = 'error'
        )) cross join (select count(*) as lost, {questions.words.distinct("server", "subscriber")} as subscribers
        from {lost}) cross join (select count(*) as packets from {packets})""",
    )


PARTS = (add_overview, add_rules, add_news, add_latency, add_talk, add_retained, add_endings, add_reconnects)
"""Functions that fill in parts of a report, each with one batch of queries."""


def fleet_report(
    engine: Engine, asked: ReportQuery | None = None, *, progress: Callable[[int, int], None] | None = None
) -> FleetReport:
    """Build the fleet report of a lake.

    ``progress`` is called with the number of finished parts, and of all parts.
    """
    asked = asked or ReportQuery(group_by=list(PROPERTIES))
    report = FleetReport(engine.lake, asked)
    lake = ReportSource(engine, asked)
    for number, add in enumerate(PARTS):
        if progress is not None:
            progress(number, len(PARTS))
        add(report, lake)
    return report

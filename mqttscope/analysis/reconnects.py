"""How connections end, and how often clients come back.

`add_endings` counts endings and the clients that return again and again.  `add_reconnects` finds reconnect storms:
minutes when clients connect far more often than usual.
"""

from __future__ import annotations

from collections.abc import Sequence

from mqttscope.analysis.dialects import Dialect
from mqttscope.analysis.questions import ReportSource, Row, units_since_1970
from mqttscope.report.fleet import model


def add_endings(report: model.FleetReport, lake: ReportSource) -> None:
    """Fill in how connections ended."""
    questions = lake.questions()
    known = questions.view(with_endings(questions.selection.connections(questions.table("connections"))))
    questions.add(
        "ways",
        f"""select ended, ended_by, count(*) as connections from {known} group by ended, ended_by
        order by connections desc, ended nulls first, ended_by nulls first""",
    )
    order = "broken desc, reconnects desc, server nulls first, client nulls first"
    questions.top("clients", questions.view(by_client(known)), order)
    questions.add("spans", spans(known, questions.asked.top))
    questions.add("lanes", f"select {questions.words.distinct('server', 'client_identifier')} as total from {known}")
    questions.collect()
    report.endings = model.EndingReport(
        [model.EndingRow(row["ended"], row["ended_by"], row["connections"]) for row in questions.rows("ways")],
        questions.ranked(
            "clients", lambda row: model.ClientEndings(**{name: row[name] for name in row if name != "broken"})
        ),
        model.RankedRows(lanes(questions.rows("spans")), questions.row("lanes")["total"]),
    )


def with_endings(connections: str) -> str:
    """Connections with how each ended and who ended it; a DISCONNECT outranks the TCP end after it."""
    return f"""
    with known as (
        select *, case when disconnect_by is not null then 'disconnect'
            when closed_how in ('open', 'capture_end') then 'open' else coalesce(closed_how, 'open') end as ended
        from {connections}
    )
    select *, case when ended != 'open' then coalesce(disconnect_by, closed_by) end as ended_by from known
    """


def by_client(known: str) -> str:
    """Clients that came back, or had connections that ended without DISCONNECT."""
    return f"""
    with counted as (
        select server, client_identifier as client, count(*) as connections, count(*) - 1 as reconnects,
            count(*) filter (where ended = 'disconnect') as disconnects,
            count(*) filter (where ended = 'fin' and ended_by = 'client') as by_client,
            count(*) filter (where ended = 'fin' and ended_by = 'server') as by_server,
            count(*) filter (where ended = 'reset') as resets,
            count(*) filter (where ended in ('idle', 'port_reused', 'evicted')) as timeouts,
            count(*) filter (where ended not in ('open', 'disconnect')) as broken
        from {known} where client_identifier is not null and client_identifier != ''
        group by server, client_identifier
    )
    select * from counted where reconnects > 0 or broken > 0
    """


SPANS = 60
"""Maximum number of connections on the time line of one client: the latest ones."""


def spans(known: str, most: int) -> str:
    """The latest connections of the clients with most connections, one row each, in order."""
    return f"""
    with named as (select * from {known} where client_identifier is not null),
    clients as (
        select server, client_identifier, count(*) as connections,
            row_number() over (order by count(*) desc, server, client_identifier) as client_place
        from named group by server, client_identifier
    ),
    placed as (
        select *, row_number() over (partition by server, client_identifier
            order by timestamp_ns desc, connection_id desc) as place
        from named
    )
    select client_place, server, client_identifier as client, connections, timestamp_ns as from_ns,
        case when ended != 'open' then closed_ns end as until_ns, ended
    from placed join clients using (server, client_identifier)
    where client_place <= {most} and place <= {SPANS} order by client_place, place desc
    """


def lanes(rows: Sequence[Row]) -> list[model.ClientTimeline]:
    """The rows of `spans`, grouped by client."""
    by_place: dict[int, model.ClientTimeline] = {}
    for row in rows:
        lane = by_place.get(row["client_place"])
        if lane is None:
            lane = by_place[row["client_place"]] = model.ClientTimeline(
                row["server"], row["client"], row["connections"]
            )
        lane.spans.append(model.ConnectionSpan(row["from_ns"], row["until_ns"], row["ended"]))
    return list(by_place.values())


MINUTE_NS = 60 * 10**9
CLIENT_BURST = 5
"""CONNECT packets of one client in a minute that make a burst, whatever is usual: it cannot keep a connection."""
SERVER_BURST = 10
"""Minimum number of CONNECT packets of all clients in a minute that makes a burst."""
SERVER_RATIO = 3
"""Minimum ratio of these packets to the usual number."""
PARTS = 60
"""Maximum number of plotted parts of the time."""
_STORM = "server, who, from_minute, last_minute, connects, peak, usual, clients"


def add_reconnects(report: model.FleetReport, lake: ReportSource) -> None:
    """Fill in how often clients connect, by the CONNECT packets that were captured."""
    questions = lake.questions()
    packets = questions.selection.rows(questions.table("packets"), "packets")
    connects = questions.keep(connecting(questions.words, packets))
    questions.add("connects", f"select count(*) as connects from {connects}")
    questions.add(
        "refused", f"select count(*) filter (where type = 'connack' and reason_code != 0) as refused from {packets}"
    )
    questions.top(
        "storms",
        questions.view(storms(connects)),
        "case when who is null then 0 else 1 end, connects desc, from_minute, server nulls first, who nulls first",
    )
    questions.add("parts", _parts(connects))
    questions.collect()

    parts = questions.rows("parts")
    report.reconnects = model.Reconnects(
        questions.row("connects")["connects"],
        questions.row("refused")["refused"],
        questions.ranked("storms", _storm_row),
        timeline(parts),
        parts[0]["each_part"] if parts else 1,
    )


def connecting(words: Dialect, packets: str) -> str:
    """CONNECT packets: server, minute, and client, or its address without a Client Identifier."""
    return f"""
    with connects as (
        select server, client, coalesce(connect.client_identifier, client_identifier) as named,
            {units_since_1970(words, MINUTE_NS)} as minute
        from {packets} where type = 'connect'
    )
    select server, case when named != '' then named else regexp_replace(client, ':[0-9]+$', '') end as who, minute
    from connects
    """


def storms(connects: str) -> str:
    of_clients = bursts(connects, ["server", "who"], str(CLIENT_BURST))
    of_servers = bursts(connects, ["server"], f"greatest({SERVER_BURST}, usual * {SERVER_RATIO})")
    return f"select {_STORM} from ({of_servers}) union all select {_STORM} from ({of_clients})"


def bursts(connects: str, keys: Sequence[str], least: str) -> str:
    """Consecutive minutes with at least this many CONNECT packets, by server or by client.

    ``least`` may depend on ``usual``, the median of the minutes with any CONNECT.  Empty minutes are ignored: the
    capture may have paused.
    """
    by = ", ".join(keys)
    own = "who" in keys
    return f"""
    with minutes as (select {by}, minute, count(*) as in_minute from {connects} group by {by}, minute),
    medians as (select {by}, median(in_minute) as usual from minutes group by {by}),
    busy as (select * from minutes join medians using ({by}) where in_minute >= {least}),
    begun as (
        select *,
            case when minute - lag(minute) over (partition by {by} order by minute) = 1 then 0 else 1 end as begins
        from busy
    ),
    numbered as (
        select *, sum(begins) over
            (partition by {by} order by minute rows between unbounded preceding and current row) as burst
        from begun
    )
    select server, {"who" if own else "cast(null as varchar(1)) as who"}, usual, min(minute) as from_minute,
        max(minute) as last_minute, count(*) as connects, max(in_minute) as peak,
        {"cast(1 as bigint)" if own else "count(distinct who)"} as clients
    from {connects} join numbered using ({by}, minute) group by {by}, burst, usual
    """


def _parts(connects: str) -> str:
    return f"""
    with edges as (
        select min(minute) as first_minute, max(minute) as last_minute,
            cast(ceil((max(minute) - min(minute) + 1) / {PARTS}) as bigint) as each_part
        from {connects}
    ),
    placed as (
        select *, cast(floor((minute - first_minute) / each_part) as bigint) as part
        from {connects} cross join edges
    )
    select first_minute, last_minute, each_part, part, count(*) as connects from placed
    group by first_minute, last_minute, each_part, part
    """


def timeline(parts: Sequence[Row]) -> list[tuple[int, int]]:
    """All parts in order, including parts without a CONNECT."""
    if not parts:
        return []
    first, last, each = (parts[0][name] for name in ("first_minute", "last_minute", "each_part"))
    counts = {row["part"]: row["connects"] for row in parts}
    number = (last - first) // each + 1
    return [((first + part * each) * MINUTE_NS, counts.get(part, 0)) for part in range(number)]


def _storm_row(row: Row) -> model.StormRow:
    begin, end = row["from_minute"] * MINUTE_NS, (row["last_minute"] + 1) * MINUTE_NS
    counts = row["connects"], row["peak"], row["usual"], row["clients"]
    return model.StormRow(row["server"], row["who"], begin, end, *counts)

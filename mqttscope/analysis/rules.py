"""Finds out which rules are broken, by which clients, and how that changes from day to day."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mqttscope.analysis.dialects import Words
from mqttscope.analysis.joins import OWN
from mqttscope.analysis.questions import Lake, Row, units_since_1970
from mqttscope.report.fleet.model import Crossing, DayRow, FleetReport, GroupRow, RuleRow
from mqttscope.report.fleet.text import moment

DAY_NS = 86_400 * 10**9
PARTS_NS = tuple(seconds * 10**9 for seconds in (1, 10, 60, 600, 3600))
MOST_PARTS = 48
"""Maximum number of parts that a short time is shown in."""
GROUPS = {"by_client": "client_identifier", "by_shape": "shape", "by_property": "property"}
"""Lists of the report, and what they group by."""
_WHO = "connection_id, server, client_identifier, timestamp_ns"
_CLIENT = "coalesce(client_identifier, connection_id)"
"""Who a client is: its Client Identifier, or else its connection."""
_TROUBLED = "errors desc, warnings desc, findings desc, clients desc, grouped nulls first"
_RANKED = ("error", "warning", "info")
_RANK = "case severity when 'error' then 0 when 'warning' then 1 else 2 end"
_WORST = f"{_RANK}, findings desc, rule, grouped nulls first"
_BY_TIME = ("findings", "connections", "messages", "packets")
_SEVERITIES = ", ".join(f"count(*) filter (where severity = '{one}') as {one}s" for one in _RANKED)


def add_rules(report: FleetReport, lake: Lake) -> None:
    """Fill in rules, groups and days."""
    questions, asked = lake.questions(), lake.asked
    words, selection = questions.words, questions.selection
    # What a connection says of itself is said in its CONNECT, which may lie before the time that was asked for.
    said = questions.view(property_of(words, questions.table("packets"), asked.group_by))
    findings = selection.findings(questions.table("findings"))
    connections = selection.connections(questions.table("connections"))
    both = f"select client_identifier from {findings} union all select client_identifier from {connections}"
    shapes = questions.engine.shapes(f"({both})")
    found = questions.keep(with_groups(f"select {_WHO}, rule, slug, severity from {findings}", said, shapes))
    known = questions.keep(with_groups(f"select {_WHO} from {connections}", said, shapes))
    for name, group in {"rules": "cast(null as varchar(1))", **GROUPS}.items():
        meant = f"(select * from {found} where property is not null)" if group == "property" else found
        questions.top(name, questions.view(_by_rule(words, meant, group)), _WORST)
    for name, group in {"shapes": "shape", "properties": "property"}.items():
        questions.top(name, questions.view(_by_group(words, found, known, group)), _TROUBLED)
    each_ns = part_length(report.overview.first_ns, report.overview.last_ns)
    units = {"day": DAY_NS} | ({"part": each_ns} if each_ns else {})
    # Those that were there in the time may have begun before it.
    begun = selection.since(known)
    published = f"(select * from {selection.rows(questions.table('messages'), 'messages')} where {OWN})"
    packets = selection.rows(questions.table("packets"), "packets")
    for unit, unit_ns in units.items():
        questions.add(f"findings by {unit}", _by_time(words, found, unit_ns, _SEVERITIES))
        questions.add(f"connections by {unit}", _by_time(words, begun, unit_ns, "count(*) as connections"))
        questions.add(f"messages by {unit}", _by_time(words, published, unit_ns, "count(*) as messages"))
        questions.add(f"packets by {unit}", _by_time(words, packets, unit_ns, "count(*) as packets"))
    questions.add("crossings", _crossings(found, asked.top))
    questions.collect()

    report.rules, report.by_client, report.by_shape, report.by_property = (
        questions.ranked(name, lambda row: RuleRow(**_group(row))) for name in ("rules", *GROUPS)
    )
    report.shapes, report.properties = (
        questions.ranked(name, lambda row: GroupRow(**_group(row))) for name in ("shapes", "properties")
    )
    report.days, *parts = (
        days(
            [row for name in _BY_TIME for row in questions.rows(f"{name} by {unit}")],
            one,
        )
        for unit, one in units.items()
    )
    report.crossings = [
        Crossing(row["client"], row["rule"], row["findings"], _RANKED[row["worst"]])
        for row in questions.rows("crossings")
    ]
    for report.parts in parts:
        report.part_seconds = each_ns // 10**9


def _group(row: Row) -> Row:
    """``group`` is a word of SQL."""
    return {"group" if name == "grouped" else name: value for name, value in row.items()}


def property_of(words: Words, packets: str, names: Sequence[str]) -> str:
    """The User Property of the CONNECT of each connection that has one of these names: the first of them.

    Names are compared without case.
    """
    ranks = " ".join(f"when {words.text(one.lower())} then {rank}" for rank, one in enumerate(names))
    rank = f"case lower(named.name) {ranks} end" if names else "cast(null as int)"
    return f"""
    with said as (
        select connection_id, packet_in_connection, properties.user_property as listed from {packets}
        where type = 'connect' and properties.user_property is not null
    ),
    each_one as (
        select connection_id, packet_in_connection, named.value as property, position, {rank} as preference
        from said {words.unnested("listed", "named", "position")}
    ),
    ranked as (
        select connection_id, property,
            row_number() over (partition by connection_id order by packet_in_connection, preference, position) as place
        from each_one where preference is not null and property is not null
    )
    select connection_id, property from ranked where place = 1
    """


def with_groups(rows: str, said: str, shapes: str) -> str:
    """Rows of connections with ``shape`` and ``property``."""
    return f"""
    with found as ({rows})
    select found.*, shape, property from found
    left join {said} as said on found.connection_id = said.connection_id
    left join {shapes} as shapes on found.client_identifier = shapes.client_identifier
    """


def _by_rule(words: Words, found: str, group: str) -> str:
    return f"""
    with found as (select *, {group} as grouped, {_CLIENT} as who from {found})
    select grouped, rule, slug, severity, count(*) as findings, count(distinct connection_id) as connections,
        {words.distinct("server", "who")} as clients, min(timestamp_ns) as first_ns, max(timestamp_ns) as last_ns
    from found group by grouped, rule, slug, severity
    """


def _by_group(words: Words, found: str, known: str, group: str) -> str:
    return f"""
    with known as (select *, {group} as grouped, {_CLIENT} as who from {known}),
    clients as (
        select grouped, {words.distinct("server", "who")} as clients, count(*) as connections from known
        group by grouped
    ),
    counted as (
        select {group} as named, count(*) as findings, {_SEVERITIES} from {found} group by {group}
    )
    select grouped, clients, connections, coalesce(findings, 0) as findings, coalesce(errors, 0) as errors,
        coalesce(warnings, 0) as warnings
    from clients left join counted on grouped is not distinct from named
    """


def _crossings(found: str, most: int) -> str:
    """Findings by client and rule: of the clients that have most, and of the rules that are broken most by these."""
    return f"""
    with clients as (
        select client_identifier as client, row_number() over (order by count(*) desc, client_identifier nulls first)
            as client_place
        from {found} group by client_identifier
    ),
    crossed as (
        select client, client_place, rule, count(*) as findings, min({_RANK}) as worst
        from {found} join clients on client_identifier is not distinct from client
        where client_place <= {most} group by client, client_place, rule
    ),
    rules as (
        select rule as broken, row_number() over (order by sum(findings) desc, min(worst), rule) as rule_place
        from crossed group by rule
    )
    select client, rule, findings, worst from crossed join rules on rule = broken
    where rule_place <= {most} order by client_place, rule_place
    """


def _by_time(words: Words, relation: str, unit_ns: int, counted: str) -> str:
    unit = units_since_1970(words, unit_ns)
    return f"select {unit} as unit, {counted} from {relation} group by {unit}"


def part_length(first_ns: int | None, last_ns: int | None) -> int:
    """How long parts of a time are that are shown one by one, at most `MOST_PARTS` of them; 0 for days."""
    if first_ns is None or last_ns is None:
        return 0
    return next((unit for unit in PARTS_NS if last_ns // unit - first_ns // unit < MOST_PARTS), 0)


def days(rows: Iterable[Row], unit_ns: int = DAY_NS) -> list[DayRow]:
    """Counts of several tables by day or a part of it, put together; those without anything are not listed."""
    found: dict[int, DayRow] = {}
    for row in rows:
        told = moment(row["unit"] * unit_ns)
        day = found.setdefault(row["unit"], DayRow(told[:10] if unit_ns == DAY_NS else told))
        for name in row.keys() - {"unit"}:
            setattr(day, name, row[name])
    return [found[unit] for unit in sorted(found)]

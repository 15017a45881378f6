"""Rules that clients break, and how this changes from day to day."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mqttscope.analysis.dialects import Dialect
from mqttscope.analysis.joins import OWN
from mqttscope.analysis.questions import ReportSource, Row, units_since_1970
from mqttscope.report.fleet.model import DayRow, FleetReport, GroupRow, RuleClientCount, RuleRow
from mqttscope.report.when import moment

DAY_NS = 86_400 * 10**9
PARTS_NS = tuple(seconds * 10**9 for seconds in (1, 10, 60, 600, 3600))
MOST_PARTS = 48
"""Maximum number of parts that a short time is divided into."""
GROUPS = {"by_client": "client_identifier", "by_shape": "shape", "by_property": "property"}
"""Lists of the report, and the column that each groups by."""
_WHO = "connection_id, server, client_identifier, timestamp_ns"
_CLIENT = "coalesce(client_identifier, connection_id)"
"""Client Identifier of a client, or its connection without one."""
_TROUBLED = "errors desc, warnings desc, findings desc, clients desc, grouped nulls first"
_RANKED = ("error", "warning", "info")
_RANK = "case severity when 'error' then 0 when 'warning' then 1 else 2 end"
_WORST = f"{_RANK}, clients desc, findings desc, rule, grouped nulls first"
_BY_TIME = ("findings", "connections", "messages", "packets")
_SEVERITIES = ", ".join(f"count(*) filter (where severity = '{severity}') as {severity}s" for severity in _RANKED)


def add_rules(report: FleetReport, lake: ReportSource) -> None:
    """Fill in rules, groups and days."""
    questions, asked = lake.questions(), lake.asked
    words, selection = questions.words, questions.selection
    # A client describes itself in its CONNECT, which may be earlier than the requested time.
    properties = questions.view(property_of(words, questions.table("packets"), asked.group_by))
    findings = selection.findings(questions.table("findings"))
    connections = selection.connections(questions.table("connections"))
    both = f"select client_identifier from {findings} union all select client_identifier from {connections}"
    shapes = questions.engine.shapes(f"({both})")
    faults = questions.keep(with_groups(f"select {_WHO}, rule, slug, severity from {findings}", properties, shapes))
    known = questions.keep(with_groups(f"select {_WHO} from {connections}", properties, shapes))
    for name, group in {"rules": "cast(null as varchar(1))", **GROUPS}.items():
        meant = f"(select * from {faults} where property is not null)" if group == "property" else faults
        questions.top(name, questions.view(_by_rule(words, meant, group)), _WORST)
    for name, group in {"shapes": "shape", "properties": "property"}.items():
        questions.top(name, questions.view(_by_group(words, faults, known, group)), _TROUBLED)
    each_ns = part_length(report.overview.first_ns, report.overview.last_ns)
    units = {"day": DAY_NS} | ({"part": each_ns} if each_ns else {})
    # Connections that were open within the time may have begun before it.
    begun = selection.since(known)
    published = f"(select * from {selection.rows(questions.table('messages'), 'messages')} where {OWN})"
    packets = selection.rows(questions.table("packets"), "packets")
    for unit, unit_ns in units.items():
        questions.add(f"findings by {unit}", _by_time(words, faults, unit_ns, _SEVERITIES))
        questions.add(f"connections by {unit}", _by_time(words, begun, unit_ns, "count(*) as connections"))
        questions.add(f"messages by {unit}", _by_time(words, published, unit_ns, "count(*) as messages"))
        questions.add(f"packets by {unit}", _by_time(words, packets, unit_ns, "count(*) as packets"))
    questions.add("crossings", _crossings(faults, asked.top))
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
            unit_ns,
        )
        for unit, unit_ns in units.items()
    )
    report.crossings = [
        RuleClientCount(row["client"], row["rule"], row["findings"], _RANKED[row["worst"]])
        for row in questions.rows("crossings")
    ]
    for report.parts in parts:
        report.part_seconds = each_ns // 10**9


def _group(row: Row) -> Row:
    """Rename the column ``grouped``: ``group`` is an SQL keyword."""
    return {"group" if name == "grouped" else name: value for name, value in row.items()}


def property_of(words: Dialect, packets: str, names: Sequence[str]) -> str:
    """The User Property of each connection's CONNECT with the first of these names that is present.

    Names are compared without case.
    """
    ranks = " ".join(f"when {words.text(name.lower())} then {rank}" for rank, name in enumerate(names))
    rank = f"case lower(named.name) {ranks} end" if names else "cast(null as int)"
    return f"""
    with described as (
        select connection_id, packet_in_connection, properties.user_property as listed from {packets}
        where type = 'connect' and properties.user_property is not null
    ),
    each_one as (
        select connection_id, packet_in_connection, named.value as property, position, {rank} as preference
        from described {words.unnested("listed", "named", "position")}
    ),
    ranked as (
        select connection_id, property,
            row_number() over (partition by connection_id order by packet_in_connection, preference, position) as place
        from each_one where preference is not null and property is not null
    )
    select connection_id, property from ranked where place = 1
    """


def with_groups(rows: str, properties: str, shapes: str) -> str:
    """Rows of connections with ``shape`` and ``property``."""
    return f"""
    with listed as ({rows})
    select listed.*, shape, property from listed
    left join {properties} as properties on listed.connection_id = properties.connection_id
    left join {shapes} as shapes on listed.client_identifier = shapes.client_identifier
    """


def _by_rule(words: Dialect, findings: str, group: str) -> str:
    return f"""
    with faults as (select *, {group} as grouped, {_CLIENT} as who from {findings})
    select grouped, rule, slug, severity, count(*) as findings, count(distinct connection_id) as connections,
        {words.distinct("server", "who")} as clients, min(timestamp_ns) as first_ns, max(timestamp_ns) as last_ns
    from faults group by grouped, rule, slug, severity
    """


def _by_group(words: Dialect, findings: str, known: str, group: str) -> str:
    return f"""
    with known as (select *, {group} as grouped, {_CLIENT} as who from {known}),
    clients as (
        select grouped, {words.distinct("server", "who")} as clients, count(*) as connections from known
        group by grouped
    ),
    counted as (
        select {group} as named, count(*) as findings, {_SEVERITIES} from {findings} group by {group}
    )
    select grouped, clients, connections, coalesce(findings, 0) as findings, coalesce(errors, 0) as errors,
        coalesce(warnings, 0) as warnings
    from clients left join counted on grouped is not distinct from named
    """


def _crossings(findings: str, most: int) -> str:
    """Findings by client and rule, for the clients and the rules with the worst and most findings."""
    return f"""
    with clients as (
        select client_identifier as client, row_number() over (
            order by min({_RANK}), count(*) desc, client_identifier nulls first
        ) as client_place
        from {findings} group by client_identifier
    ),
    crossed as (
        select client, client_place, rule, count(*) as findings, min({_RANK}) as worst
        from {findings} join clients on client_identifier is not distinct from client
        where client_place <= {most} group by client, client_place, rule
    ),
    rules as (
        select rule as broken, row_number() over (order by min(worst), sum(findings) desc, rule) as rule_place
        from crossed group by rule
    )
    select client, rule, findings, worst from crossed join rules on rule = broken
    where rule_place <= {most} order by client_place, rule_place
    """


def _by_time(words: Dialect, relation: str, unit_ns: int, counts: str) -> str:
    unit = units_since_1970(words, unit_ns)
    return f"select {unit} as unit, {counts} from {relation} group by {unit}"


def part_length(first_ns: int | None, last_ns: int | None) -> int:
    """Length of the parts that a short time is divided into, at most `MOST_PARTS`; 0 if days are enough."""
    if first_ns is None or last_ns is None:
        return 0
    return next((unit for unit in PARTS_NS if last_ns // unit - first_ns // unit < MOST_PARTS), 0)


def days(rows: Iterable[Row], unit_ns: int = DAY_NS) -> list[DayRow]:
    """Merged counts of several tables by day or part of a day; empty ones are left out."""
    by_unit: dict[int, DayRow] = {}
    for row in rows:
        start = moment(row["unit"] * unit_ns)
        day = by_unit.setdefault(row["unit"], DayRow(start[:10] if unit_ns == DAY_NS else start))
        for name in row.keys() - {"unit"}:
            setattr(day, name, row[name])
    return [by_unit[unit] for unit in sorted(by_unit)]

"""Finds out which rules are broken, by which clients, and how that changes from day to day.

`shape` reduces a Client Identifier to its form without serial numbers, so that a fleet becomes a few groups.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from mqttscope.report.fleet.model import DayRow, FleetReport, GroupRow, RuleRow
from mqttscope.report.fleet.text import moment
from mqttscope.spark.answers.frames import Gathering, Row, count_where, units_since_1970

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import Column, DataFrame

    from mqttscope.spark.answers.frames import Frames

DAY_NS = 86_400 * 10**9
PARTS_NS = tuple(seconds * 10**9 for seconds in (1, 10, 60, 600, 3600))
MOST_PARTS = 48
GROUPS = {"by_client": "client_identifier", "by_shape": "shape", "by_property": "property"}
"""Lists of the report, and what they group by."""


def add_rules(report: FleetReport, frames: Frames) -> None:
    """Fill in rules, groups and days."""
    asked, said = report.asked, property_of(frames.packets(), report.asked.group_by)
    # What a connection says of itself is said in its CONNECT, which may lie before the time that was asked for.
    questions = Gathering()
    found = questions.keep(with_groups(frames.selection.findings(frames.findings()).select(*_WHO, *_FINDING), said))
    known = questions.keep(with_groups(frames.selection.connections(frames.connections()).select(*_WHO), said))
    for name, group in {"rules": None, **GROUPS}.items():
        meant = found.where("property is not null") if group == "property" else found
        questions.top(name, _by_rule(meant, group), _worst(), asked.top)
    for name, group in {"shapes": "shape", "properties": "property"}.items():
        questions.top(name, _by_group(found, known, group), _troubled(), asked.top)
    each_ns = part_length(report.overview.first_ns, report.overview.last_ns)
    units = {"day": DAY_NS} | ({"part": each_ns} if each_ns else {})
    # Those that were there in the time may have begun before it.
    begun = frames.selection.since(known)
    published = frames.selection.rows(frames.messages()).where("direction = 'client_to_server'")
    for unit, unit_ns in units.items():
        questions.add(f"findings by {unit}", _by_time(found, unit_ns, *_severities()))
        questions.add(f"connections by {unit}", _by_time(begun, unit_ns, f.count(f.lit(1)).alias("connections")))
        questions.add(f"messages by {unit}", _by_time(published, unit_ns, f.count(f.lit(1)).alias("messages")))
    questions.collect()

    report.rules, report.by_client, report.by_shape, report.by_property = (
        questions.ranked(name, lambda row: RuleRow(**row)) for name in ("rules", *GROUPS)
    )
    report.shapes, report.properties = (
        questions.ranked(name, lambda row: GroupRow(**row)) for name in ("shapes", "properties")
    )
    report.days, *parts = (
        days(
            [row for name in ("findings", "connections", "messages") for row in questions.rows(f"{name} by {unit}")],
            one,
        )
        for unit, one in units.items()
    )
    for report.parts in parts:
        report.part_seconds = each_ns // 10**9


_WHO = ("connection_id", "server", "client_identifier", "timestamp_ns")
_FINDING = ("rule", "slug", "severity")


def property_of(packets: DataFrame, names: Sequence[str]) -> DataFrame:
    """The User Property of the CONNECT of each connection that has one of these names: the first of them.

    Names are compared without case.
    """
    listed = f.col("properties.user_property")
    values = [f.get(f.filter(listed, _called(one.lower())), f.lit(0))["value"] for one in names]
    connects = packets.where((f.col("type") == "connect") & listed.isNotNull())
    said = f.coalesce(*values) if values else f.lit(None).cast("string")
    return (
        connects.select("connection_id", "packet_in_connection", said.alias("property"))
        .where("property is not null")
        .groupBy("connection_id")
        .agg(f.min_by("property", "packet_in_connection").alias("property"))
    )


def _called(name: str) -> Callable[[Column], Column]:
    return lambda one: f.lower(one["name"]) == name


def with_groups(frame: DataFrame, said: DataFrame) -> DataFrame:
    """Rows of connections with ``shape`` and ``property``."""
    return frame.withColumn("shape", shape_of(f.col("client_identifier"))).join(said, "connection_id", "left")


def _client() -> Column:
    """Who a client is: its Client Identifier, or else its connection."""
    return f.coalesce("client_identifier", "connection_id")


def _worst() -> list[Column]:
    severity = f.col("severity")
    rank = f.when(severity == "error", 0).when(severity == "warning", 1).otherwise(2)
    return [rank.asc(), f.desc("findings"), f.asc("rule"), f.asc("group")]


def _troubled() -> list[Column]:
    return [f.desc("errors"), f.desc("warnings"), f.desc("findings"), f.desc("clients"), f.asc("group")]


def _severities() -> list[Column]:
    return [count_where(f.col("severity") == one, f"{one}s") for one in ("error", "warning", "info")]


def _by_rule(found: DataFrame, group: str | None) -> DataFrame:
    named = f.lit(None).cast("string") if group is None else f.col(group)
    return (
        found.withColumn("group", named)
        .withColumn("who", _client())
        .groupBy("group", "rule", "slug", "severity")
        .agg(
            f.count(f.lit(1)).alias("findings"),
            f.countDistinct("connection_id").alias("connections"),
            f.countDistinct("server", "who").alias("clients"),
            f.min("timestamp_ns").alias("first_ns"),
            f.max("timestamp_ns").alias("last_ns"),
        )
    )


def _by_group(found: DataFrame, known: DataFrame, group: str) -> DataFrame:
    clients = (
        known.withColumn("who", _client())
        .groupBy(f.col(group).alias("group"))
        .agg(f.countDistinct("server", "who").alias("clients"), f.count(f.lit(1)).alias("connections"))
    )
    counted = found.groupBy(f.col(group).alias("named")).agg(f.count(f.lit(1)).alias("findings"), *_severities()[:2])
    both = clients.join(counted, f.col("group").eqNullSafe(f.col("named")), "left")
    return both.select(
        "group", "clients", "connections", *(f.coalesce(name, f.lit(0)).alias(name) for name in _COUNTED)
    )


_COUNTED = ("findings", "errors", "warnings")


def _by_time(frame: DataFrame, unit_ns: int, *counted: Column) -> DataFrame:
    return frame.groupBy(units_since_1970(unit_ns).alias("unit")).agg(*counted)


def part_length(first_ns: int | None, last_ns: int | None) -> int:
    """How long parts of a time are that are shown one by one: so that there are 48 at most; 0 for days."""
    if first_ns is None or last_ns is None:
        return 0
    return next((unit for unit in PARTS_NS if last_ns - first_ns <= MOST_PARTS * unit), 0)


def days(rows: Iterable[Row], unit_ns: int = DAY_NS) -> list[DayRow]:
    """Counts of several tables by day or a part of it, put together; those without anything are not listed."""
    found: dict[int, DayRow] = {}
    for row in rows:
        told = moment(row["unit"] * unit_ns)
        day = found.setdefault(row["unit"], DayRow(told[:10] if unit_ns == DAY_NS else told))
        for name in row.keys() - {"unit"}:
            setattr(day, name, row[name])
    return [found[unit] for unit in sorted(found)]


MARK = "#"
_ALONE, _END = "(?<![0-9A-Za-z])", "(?![0-9A-Za-z])"
_HEX = "[0-9A-Fa-f]"
PATTERN = "|".join(
    (
        # A UUID, and an address of a network card.
        f"{_ALONE}{_HEX}{{8}}-(?:{_HEX}{{4}}-){{3}}{_HEX}{{12}}{_END}",
        f"{_ALONE}{_HEX}{{2}}(?:[:_-]{_HEX}{{2}}){{5}}{_END}",
        # Hexadecimal between other characters: long, or with a digit, since words can be made of a to f.
        f"{_ALONE}{_HEX}{{8,}}{_END}",
        f"{_ALONE}[A-Fa-f]*[0-9]{_HEX}*{_END}",
        # After a word: in capitals, or from a digit on to the end.
        "(?<=[a-z])[A-F]*[0-9][0-9A-F]{3,}" + _END,
        f"[0-9]{_HEX}{{3,}}{_END}",
        "[0-9]+",
    )
)
"""What counts as a serial number; means the same to Java as to Python."""
_FIND = re.compile(PATTERN)


def shape(client_identifier: str) -> str:
    """``sensor-0017`` and ``sensor-4711`` are ``sensor-#``; UUIDs, hexadecimal and other digits become ``#`` too."""
    return _FIND.sub(MARK, client_identifier)


def shape_of(client_identifier: Column) -> Column:
    """The same for a column."""
    from pyspark.sql import functions as f

    return f.regexp_replace(client_identifier, PATTERN, MARK)

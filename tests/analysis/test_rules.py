"""Rules, groups and days of the report of all captures: as plain Python counts them."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path

from mqttscope.analysis.fleet import fleet_report
from mqttscope.analysis.local import LocalEngine
from mqttscope.analysis.questions import ReportSource
from mqttscope.analysis.rules import add_rules, part_length
from mqttscope.analysis.shapes import shapes as shapes_of
from mqttscope.lake.writer import read_table, write_lake
from mqttscope.report.fleet.model import FleetReport, ReportQuery
from tests.analysis.by_hand import own
from tests.lake.reading import CAPTURES, Row, Tables, options

RANKS = {"error": 0, "warning": 1, "info": 2}


def day(row: Row) -> str:
    return datetime.fromtimestamp(row["timestamp_ns"] // 10**9, UTC).date().isoformat()


def test_rules_groups_and_days(report: FleetReport, tables: Tables) -> None:
    documents = tables["findings"]
    keys = Counter((RANKS[row["severity"]], row["rule"]) for row in documents)
    clients = defaultdict[tuple[int, str], set[tuple[str, str]]](set)
    for document in documents:
        client = document["connection_id" if document["client_identifier"] is None else "client_identifier"]
        clients[RANKS[document["severity"]], document["rule"]].add((document["server"], client))
    expected = [rule for _, rule in sorted(keys, key=lambda key: (key[0], -len(clients[key]), -keys[key], key[1]))]
    assert [row.rule for row in report.rules.rows] == expected
    assert report.rules.total == len(expected)
    for row in report.rules.rows:
        those = [
            document for document in documents if (document["rule"], document["severity"]) == (row.rule, row.severity)
        ]
        assert row.findings == len(those)
        assert row.connections == len({document["connection_id"] for document in those})
        assert (row.first_ns, row.last_ns) == tuple(
            pick(document["timestamp_ns"] for document in those) for pick in (min, max)
        )
    by_client = Counter((row["client_identifier"], row["rule"], row["severity"]) for row in documents)
    assert {(row.group, row.rule, row.severity): row.findings for row in report.by_client.rows} == by_client

    names = sorted({row["client_identifier"] for row in [*documents, *tables["connections"]]} - {None})
    known = dict(zip(names, shapes_of(names), strict=True))

    def of(name: str | None) -> str | None:
        return None if name is None else known[name]

    by_shape = Counter((of(row["client_identifier"]), row["rule"], row["severity"]) for row in documents)
    assert {(row.group, row.rule, row.severity): row.findings for row in report.by_shape.rows} == by_shape
    shapes = Counter(of(row["client_identifier"]) for row in tables["connections"])
    assert {row.group: row.connections for row in report.shapes.rows} == shapes
    assert sum(row.errors for row in report.shapes.rows) == report.overview.errors
    assert {row.group for row in report.by_property.rows} == {"1.4"}
    assert {row.group for row in report.properties.rows} == {"1.4", None}

    days = Counter((day(row), f"{row['severity']}s") for row in documents)
    assert {(row.day, name): getattr(row, name) for row in report.days for name in ("errors", "infos")} == {
        (row.day, name): days[row.day, name] for row in report.days for name in ("errors", "infos")
    }
    assert {row.day: row.packets for row in report.days if row.packets} == Counter(map(day, tables["packets"]))
    crossed = {(row.client, row.rule): (row.findings, row.severity) for row in report.crossings}
    assert crossed == {
        key: (
            sum(by_client[(*key, rank)] for rank in RANKS),
            min((rank for rank in RANKS if by_client[(*key, rank)]), key=RANKS.__getitem__),
        )
        for key in {(client, code) for client, code, _ in by_client}
    }
    assert {row.day: row.messages for row in report.days} == Counter(day(row) for row in own(tables["messages"]))


def test_short_times_are_shown_in_parts(tmp_path: Path) -> None:
    write_lake([CAPTURES[0]], tmp_path, options())
    with LocalEngine(tmp_path) as engine:
        report = fleet_report(engine, ReportQuery(group_by=[]))
    rows = read_table(tmp_path, "messages").to_pylist()

    seconds = Counter(datetime.fromtimestamp(row["timestamp_ns"] // 10**9, UTC) for row in own(rows))
    assert report.part_seconds == 1
    assert {row.day: row.messages for row in report.parts if row.messages} == {
        f"{second:%Y-%m-%d %H:%M:%S}": count for second, count in seconds.items()
    }
    assert [part_length(0, seconds * 10**9) // 10**9 for seconds in (0, 47, 48, 2_000, 100_000, 172_800)] == [
        1, 1, 10, 60, 3600, 0,
    ]  # fmt: skip


def test_connections_count_on_the_day_they_begin(lake: Path, tables: Tables) -> None:
    """Those that had begun before the time were there in it, and belong to no day of it."""
    ends = [(row["timestamp_ns"], row["closed_ns"] or row["timestamp_ns"]) for row in tables["connections"]]
    since_ns = max(begun + 1 for begun, closed in ends if closed > begun)
    begun = sum(time >= since_ns for time, _ in ends)
    assert begun < sum(closed >= since_ns for _, closed in ends)

    report = FleetReport(str(lake), ReportQuery(since_ns=since_ns))
    with LocalEngine(lake) as engine:
        add_rules(report, ReportSource(engine, report.asked))

    assert sum(row.connections for row in report.days) == begun

"""Bursts of CONNECT packets, and the time that is plotted."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pyarrow as pa

from mqttscope.analysis.local import LocalEngine
from mqttscope.analysis.questions import ReportSource
from mqttscope.analysis.reconnects import MINUTE_NS, add_endings, bursts, timeline
from mqttscope.lake.writer import read_table
from mqttscope.report.fleet.model import FleetReport, ReportQuery
from tests.analysis.asking import rows_of
from tests.lake.reading import Row, Tables


def ended(row: Row) -> tuple[str, str | None]:
    """A DISCONNECT goes before what TCP did after it."""
    if row["disconnect_by"] is not None:
        return "disconnect", row["disconnect_by"]
    if row["closed_how"] in ("open", "capture_end"):
        return "open", None
    return row["closed_how"], row["closed_by"]


def test_endings(lake: Path) -> None:
    asked = ReportQuery(top=10_000, group_by=[])
    report = FleetReport(str(lake), asked)
    with LocalEngine(lake) as engine:
        add_endings(report, ReportSource(engine, asked))
    connections = read_table(lake, "connections").to_pylist()
    assert {(row.how, row.by): row.connections for row in report.endings.ways} == Counter(map(ended, connections))
    assert {how for how, _ in map(ended, connections)} >= {"disconnect", "fin", "reset"}

    by_client: dict[tuple[str, str], list[tuple[str, str | None]]] = defaultdict(list)
    for row in connections:
        if row["client_identifier"]:
            by_client[row["server"], row["client_identifier"]].append(ended(row))
    troubled = {
        key: ways for key, ways in by_client.items()
        if len(ways) > 1 or any(how not in ("open", "disconnect") for how, _ in ways)
    }  # fmt: skip
    client_endings = {(row.server, row.client): row for row in report.endings.clients.rows}
    assert client_endings.keys() == troubled.keys()
    assert report.endings.clients.total == len(troubled)
    for key, ways in troubled.items():
        row = client_endings[key]
        assert (row.connections, row.reconnects) == (len(ways), len(ways) - 1)
        assert row.disconnects == sum(how == "disconnect" for how, _ in ways)
        assert (row.by_client, row.by_server) == (ways.count(("fin", "client")), ways.count(("fin", "server")))
        assert row.resets == sum(how == "reset" for how, _ in ways)
        assert row.timeouts == sum(how in ("idle", "port_reused", "evicted") for how, _ in ways)


def test_time_lines(report: FleetReport, tables: Tables) -> None:
    named = [row for row in tables["connections"] if row["client_identifier"] is not None]
    expected: dict[tuple[str, str], list[tuple[int, int | None, str]]] = defaultdict(list)
    for row in sorted(named, key=lambda row: (row["timestamp_ns"], row["connection_id"])):
        how = ended(row)[0]
        until = None if how == "open" else row["closed_ns"]
        expected[row["server"], row["client_identifier"]].append((row["timestamp_ns"], until, how))

    lanes = report.endings.lanes
    assert lanes.total == len(expected) == len(lanes.rows)
    assert [row.connections for row in lanes.rows] == sorted(map(len, expected.values()), reverse=True)
    for client_timeline in lanes.rows:
        assert [(span.from_ns, span.until_ns, span.how) for span in client_timeline.spans] == expected[
            client_timeline.server, client_timeline.client
        ]


def test_bursts() -> None:
    # Two a minute are usual; minutes without any do not count.  Minutes 100 and 101, and 103, stand out.
    usual = [("s", f"c{index}", minute) for minute in (*range(1, 40, 3), 99, 102) for index in range(2)]
    storm = [("s", f"d{index % 7}", minute) for minute in (100, 101, 103) for index in range(12)]
    seen = pa.table(dict(zip(("server", "who", "minute"), zip(*usual, *storm, strict=True), strict=True)))

    of_servers = rows_of(bursts("seen", ["server"], "greatest(10, usual * 3)"), seen=seen)
    of_clients = rows_of(bursts("seen", ["server", "who"], "2"), seen=seen)

    names = ("usual", "from_minute", "last_minute", "connects", "peak", "clients")
    rows = sorted(tuple(row[name] for name in names) for row in of_servers)
    assert rows == [(2.0, 100, 101, 24, 12, 7), (2.0, 103, 103, 12, 12, 7)]
    rows = sorted(tuple(row[name] for name in names) for row in of_clients if row["who"] == "d0")
    assert rows == [(2.0, 100, 101, 4, 2, 1), (2.0, 103, 103, 2, 2, 1)]


def test_the_time_has_no_holes() -> None:
    parts = [
        {"first_minute": 100, "last_minute": 110, "each_part": 5, "part": 0, "connects": 3},
        {"first_minute": 100, "last_minute": 110, "each_part": 5, "part": 2, "connects": 1},
    ]

    assert timeline(parts) == [(100 * MINUTE_NS, 3), (105 * MINUTE_NS, 0), (110 * MINUTE_NS, 1)]
    assert timeline([]) == []

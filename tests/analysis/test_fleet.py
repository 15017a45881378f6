"""The report of all captures: equal to what plain Python counts in the same tables."""

from __future__ import annotations

from pathlib import Path

from mqttscope.analysis.fleet import add_overview
from mqttscope.analysis.local import LocalEngine
from mqttscope.analysis.questions import ReportSource
from mqttscope.lake.writer import write_lake
from mqttscope.report.fleet.model import FleetReport, ReportQuery
from tests.lake.reading import CAPTURES, Tables, options


def test_captures_that_lack_nothing(tmp_path: Path) -> None:
    (whole,) = (path for path in CAPTURES if path.parent.name == "v311-qos")
    write_lake([whole], tmp_path, options())
    report = FleetReport(str(tmp_path), ReportQuery())
    with LocalEngine(tmp_path) as engine:
        add_overview(report, ReportSource(engine, ReportQuery()))
    trust = report.trust
    assert report.overview.captures == 1
    assert (trust.gaps, trust.gap_bytes, trust.unparsed, trust.unparsed_bytes) == (0, 0, 0, 0)
    assert (trust.dropped, trust.errors) == (0, 0)
    assert trust.captures.rows == []


def test_overview_and_trust(report: FleetReport, tables: Tables) -> None:
    seen, trust = report.overview, report.trust
    packets, connections = tables["packets"], tables["connections"]
    assert (seen.packets, seen.connections) == (len(packets), len(connections))
    assert seen.captures == len({row["capture"] for row in packets})
    # As `stats` counts: a client without a Client Identifier is its address.
    named = {
        row["client_identifier"] or (row["client_identifier"], row["client"].rpartition(":")[0]) for row in connections
    }
    assert seen.clients == len(named)
    assert seen.messages_published + seen.messages_delivered == len(tables["messages"])
    assert (seen.first_ns, seen.last_ns) == tuple(pick(row["timestamp_ns"] for row in packets) for pick in (min, max))
    assert (
        trust.gaps
        == sum(row["event"] == "gap" for row in tables["gaps"])
        == sum(row.gaps for row in trust.captures.rows)
    )
    assert trust.unparsed_bytes == sum(row["length"] for row in tables["gaps"] if row["event"] == "unparsed")
    assert trust.malformed == sum(row["event"] == "malformed" for row in packets)
    assert trust.joined == sum(not row["version_known"] for row in connections)
    assert trust.with_gaps == sum(row["gaps"] > 0 for row in connections)

"""The numbers of the news: equal to what plain Python counts, and the time before."""

from __future__ import annotations

from pathlib import Path

from mqttscope.analysis.fleet import LEAST_MESSAGES, LEAST_SILENT_NS, PERIODS, add_news
from mqttscope.analysis.local import LocalEngine
from mqttscope.analysis.questions import ReportSource
from mqttscope.report.fleet.model import FleetReport, NewsReport, ReportQuery
from tests.analysis.test_question_page import fleet as fleet
from tests.lake.reading import Tables


def news_of(lake: Path, asked: ReportQuery) -> NewsReport:
    report = FleetReport("", asked)
    with LocalEngine(lake) as engine:
        add_news(report, ReportSource(engine, asked))
    return report.news


def test_all_of_it(report: FleetReport, tables: Tables) -> None:
    errors = [row for row in tables["findings"] if row["severity"] == "error"]
    now = report.news.now
    assert now.errors == len(errors)
    assert now.clients == len(
        {
            (row["server"], row["connection_id" if row["client_identifier"] is None else "client_identifier"])
            for row in errors
        }
    )
    assert now.first_ns == min(row["timestamp_ns"] for row in errors)
    assert now.lost == sum(row.messages for row in report.news.lost.rows)
    assert now.subscribers == len(report.news.lost.rows)
    assert report.news.before is None
    assert report.news.silent


def test_a_fleet(fleet: Path) -> None:
    with LocalEngine(fleet) as engine:
        devices = engine.ask("select client_identifier, messages, silent_ns, usual_period_ns from devices").rows
        quiet = [
            row[0] for row in devices
            if row[1] >= LEAST_MESSAGES and row[2] >= LEAST_SILENT_NS and row[2] > PERIODS * row[3]
        ]  # fmt: skip
        ((middle,),) = engine.ask("select min(published_ns) + 1 from undelivered where lost").rows
    news = news_of(fleet, ReportQuery(top=5))
    assert [(row.subscriber, row.messages, row.reason) for row in news.lost.rows] == [("board", 1, "not_sent")]
    assert sorted(row.client_identifier for row in news.silent.rows) == sorted(quiet)
    assert "pump-1" in quiet

    later = news_of(fleet, ReportQuery(since_ns=middle, until_ns=middle + 10**12))
    assert (later.now.lost, later.before and later.before.lost) == (0, 1)
    assert later.before is not None
    assert later.before.packets > 0
    assert news_of(fleet, ReportQuery(client=["nobody"])).lost.rows == []

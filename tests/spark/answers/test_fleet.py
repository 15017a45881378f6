"""The report of all captures: equal to what plain Python counts in the same tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mqttscope.lake.manifest import read_manifest
from mqttscope.lake.schemas import TABLES
from mqttscope.lake.writer import read_table, write_lake
from mqttscope.mqtt.topics import matches
from mqttscope.report.fleet.model import Asked, FleetReport, Percentiles
from mqttscope.spark.answers.fleet import PARTS, add_overview, fleet_report
from mqttscope.spark.answers.frames import Frames
from mqttscope.spark.answers.rules import add_rules, part_length, shape
from mqttscope.spark.answers.selection import Selection
from mqttscope.spark.tables import open_lake
from tests.lake.reading import CAPTURES, Row, Tables, options
from tests.spark.test_joins import retained_by_hand, source_by_hand

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")


def test_captures_that_lack_nothing(spark: SparkSession, tmp_path: Path) -> None:
    (whole,) = (path for path in CAPTURES if path.parent.name == "v311-qos")
    write_lake([whole], tmp_path, options())
    report = FleetReport(str(tmp_path), Asked())
    add_overview(report, Frames(spark, tmp_path, read_manifest(tmp_path), Selection(Asked())))
    trust = report.trust
    assert report.overview.captures == 1
    assert (trust.gaps, trust.gap_bytes, trust.unparsed, trust.unparsed_bytes) == (0, 0, 0, 0)
    assert (trust.dropped, trust.errors) == (0, 0)
    assert trust.captures.rows == []


pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")


RANKS = {"error": 0, "warning": 1, "info": 2}
ALL = 10_000


@pytest.fixture(scope="module")
def tables(lake: Path) -> Tables:
    return {name: read_table(lake, name).to_pylist() for name in TABLES if name != "ingest_errors"}


@pytest.fixture(scope="module")
def kept() -> dict[str, FleetReport]:
    return {}


@pytest.fixture
def report(spark: SparkSession, lake: Path, kept: dict[str, FleetReport]) -> FleetReport:
    """One report for all tests, with all rows of all lists."""
    if not kept:
        told: list[tuple[int, int]] = []
        asked = Asked(top=ALL, group_by=["nothing", "Firmware"])
        kept["whole"] = fleet_report(spark, lake, asked, progress=lambda *numbers: told.append(numbers))
        assert told == [(number, len(PARTS)) for number in range(len(PARTS))]
    return kept["whole"]


def own(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["direction"] == "client_to_server"]


def who(row: Row) -> str:
    return str(row["client_identifier"] if row["client_identifier"] is not None else row["client"])


def spread(values: list[int]) -> Percentiles:
    values = sorted(values)
    if not values:
        return Percentiles()
    p50, p90, p99 = (values[ceil(part * len(values)) - 1] for part in (0.5, 0.9, 0.99))
    return Percentiles(len(values), p50, p90, p99, values[-1])


def day(row: Row) -> str:
    return datetime.fromtimestamp(row["timestamp_ns"] // 10**9, UTC).date().isoformat()


def test_overview_and_trust(report: FleetReport, tables: Tables) -> None:
    seen, trust = report.overview, report.trust
    packets, connections = tables["packets"], tables["connections"]
    assert (seen.packets, seen.connections) == (len(packets), len(connections))
    assert seen.captures == len({row["capture"] for row in packets})
    named = {(row["server"], row["client_identifier"]) for row in connections if row["client_identifier"] is not None}
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


def test_rules_groups_and_days(report: FleetReport, tables: Tables) -> None:
    found = tables["findings"]
    keys = Counter((RANKS[row["severity"]], row["rule"]) for row in found)
    expected = [rule for (_, rule), _ in sorted(keys.items(), key=lambda one: (one[0][0], -one[1], one[0][1]))]
    assert [row.rule for row in report.rules.rows] == expected
    assert report.rules.total == len(expected)
    for row in report.rules.rows:
        those = [one for one in found if one["rule"] == row.rule]
        assert row.findings == len(those)
        assert row.connections == len({one["connection_id"] for one in those})
        assert (row.first_ns, row.last_ns) == tuple(pick(one["timestamp_ns"] for one in those) for pick in (min, max))
    by_client = Counter((row["client_identifier"], row["rule"]) for row in found)
    assert {(row.group, row.rule): row.findings for row in report.by_client.rows} == by_client

    def of(name: str | None) -> str | None:
        return None if name is None else shape(name)

    by_shape = Counter((of(row["client_identifier"]), row["rule"]) for row in found)
    assert {(row.group, row.rule): row.findings for row in report.by_shape.rows} == by_shape
    shapes = Counter(of(row["client_identifier"]) for row in tables["connections"])
    assert {row.group: row.connections for row in report.shapes.rows} == shapes
    assert sum(row.errors for row in report.shapes.rows) == report.overview.errors
    assert {row.group for row in report.by_property.rows} == {"1.4"}
    assert {row.group for row in report.properties.rows} == {"1.4", None}

    days = Counter((day(row), f"{row['severity']}s") for row in found)
    assert {(row.day, name): getattr(row, name) for row in report.days for name in ("errors", "infos")} == {
        (row.day, name): days[row.day, name] for row in report.days for name in ("errors", "infos")
    }
    assert {row.day: row.messages for row in report.days} == Counter(day(row) for row in own(tables["messages"]))


def test_short_times_are_shown_in_parts(spark: SparkSession, tmp_path: Path) -> None:
    write_lake([CAPTURES[0]], tmp_path, options())
    found = fleet_report(spark, tmp_path, Asked(group_by=[]))
    rows = read_table(tmp_path, "messages").to_pylist()

    seconds = Counter(datetime.fromtimestamp(row["timestamp_ns"] // 10**9, UTC) for row in own(rows))
    assert found.part_seconds == 1
    assert {row.day: row.messages for row in found.parts if row.messages} == {
        f"{second:%Y-%m-%d %H:%M:%S}": count for second, count in seconds.items()
    }
    assert [part_length(0, seconds * 10**9) // 10**9 for seconds in (0, 48, 49, 2_000, 100_000, 172_801)] == [
        1, 1, 10, 60, 3600, 0,
    ]  # fmt: skip


def test_connections_count_on_the_day_they_begin(spark: SparkSession, lake: Path, tables: Tables) -> None:
    """Those that had begun before the time were there in it, and belong to no day of it."""
    ends = [(row["timestamp_ns"], row["closed_ns"] or row["timestamp_ns"]) for row in tables["connections"]]
    since_ns = max(begun + 1 for begun, closed in ends if closed > begun)
    begun = sum(time >= since_ns for time, _ in ends)
    assert begun < sum(closed >= since_ns for _, closed in ends)

    told = FleetReport(str(lake), Asked(since_ns=since_ns))
    add_rules(told, Frames(spark, lake, open_lake(lake), Selection(told.asked)))

    assert sum(row.connections for row in told.days) == begun


def test_latency(report: FleetReport, tables: Tables) -> None:
    messages = tables["messages"]
    for answered in report.latency.acknowledged:
        direction = {"client": "client_to_server", "server": "server_to_client"}[answered.sender]
        those = [one for one in messages if one["direction"] == direction and one["qos"] == answered.qos]
        assert answered.latency == spread([one["latency_ns"] for one in those if one["latency_ns"] is not None])
        assert answered.unanswered == sum(one["completed_ns"] is None for one in those)
    retained = {(row["connection_id"], row["timestamp_ns"]): row["retain"] for row in own(messages)}
    waited: dict[str, list[int]] = defaultdict(list)
    unknown = 0
    sources = source_by_hand(messages)
    for row in messages:
        if row["direction"] == "client_to_server" or row["dup"]:
            continue
        source, time, _ = sources[row["connection_id"], row["direction"], row["stream_offset"]]
        if row["retain"] and (source is None or retained[source[:2]]):
            continue
        if time is None:
            unknown += 1
        else:
            waited[row["topic"]].append(time)
    assert report.latency.end_to_end == spread([time for times in waited.values() for time in times])
    assert report.latency.unknown == unknown
    assert {row.name: row.latency for row in report.latency.topics.rows} == {
        name: spread(times) for name, times in waited.items()
    }
    slow = [row.latency.p90 or 0 for row in report.latency.topics.rows]
    assert slow == sorted(slow, reverse=True)


def listening(packets: list[Row]) -> set[tuple[str, str, str]]:
    """Server, filter and client of subscriptions that were not refused."""
    found = set()
    answers = {
        (row["connection_id"], row["packet_identifier"], row["packet_in_connection"]): row["reason_codes"]
        for row in packets
        if row["type"] == "suback"
    }
    for row in packets:
        if row["type"] != "subscribe":
            continue
        later = sorted(
            (number, codes)
            for (connection, identifier, number), codes in answers.items()
            if (connection, identifier) == (row["connection_id"], row["packet_identifier"])
            and number > row["packet_in_connection"]
        )
        codes = later[0][1] if later else []
        for position, one in enumerate(row["subscriptions"] or ()):
            if position >= len(codes) or codes[position] < 0x80:
                found.add((row["server"], one["topic_filter"], who(row)))
    return found


def test_who_talks_on_which_topic(report: FleetReport, tables: Tables) -> None:
    messages = [row for row in tables["messages"] if row["topic"]]
    subscribed = listening(tables["packets"])
    topics = {(row["server"], row["topic"]) for row in messages}
    assert {(row.server, row.topic) for row in report.talk.topics.rows} == topics
    for row in report.talk.topics.rows:
        those = [one for one in messages if (one["server"], one["topic"]) == (row.server, row.topic)]
        assert row.published == len(own(those))
        assert row.publishers.names == sorted({who(one) for one in own(those)})[:5]
        assert row.receivers.count == len({who(one) for one in those if one["direction"] == "server_to_client"})
        heard = {name for server, one, name in subscribed if server == row.server and matches(one, row.topic)}
        assert (row.subscribers.count, row.subscribers.names) == (len(heard), sorted(heard)[:5])
    assert report.talk.unheard == sum(
        row.published > 0 and not row.subscribers.count for row in report.talk.topics.rows
    )
    filters = {(row.server, row.topic_filter): row for row in report.talk.filters.rows}
    assert set(filters) == {one[:2] for one in subscribed}
    for (server, topic_filter), one in filters.items():
        assert one.topics == sum(matches(topic_filter, topic) for where, topic in topics if where == server)
    assert report.talk.idle == sum(not row.topics for row in filters.values()) > 0


def test_retained_messages_and_connecting(report: FleetReport, tables: Tables) -> None:
    messages = tables["messages"]
    retained = [row for row in messages if row["retain"]]
    kept = report.retained
    last_ns = max(row["timestamp_ns"] for row in messages)
    held = {one[:2]: one for one in sorted(retained_by_hand(messages, last_ns), key=lambda one: one[3])}
    assert kept.delivered == len(retained) - len(own(retained))
    assert kept.set + kept.cleared + kept.refused == len(own(retained))
    assert kept.held == sum(one[5] is None for one in held.values()) > 0
    assert {(row.server, row.topic): row.since_ns for row in kept.topics.rows if row.since_ns} == {
        name: one[3] for name, one in held.items()
    }
    assert report.expiry.published == sum(row["message_expiry_interval"] is not None for row in own(messages)) > 0
    connects = sum(row["type"] == "connect" for row in tables["packets"])
    assert report.reconnects.connects == connects == sum(count for _, count in report.reconnects.minutes)
    assert report.reconnects.storms.rows[0].client is None

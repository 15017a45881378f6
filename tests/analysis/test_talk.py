"""Who talks on which topic, how long messages take, what is retained: as plain Python counts it."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa

from mqttscope.analysis.talk import acknowledged, bucketed, buckets, listeners, spoken
from mqttscope.lake.schemas import TABLES
from mqttscope.mqtt.topics import matches
from mqttscope.report.fleet.model import FleetReport, LatencyBucket
from tests.analysis.asking import WORDS, rows_of
from tests.analysis.by_hand import own, spread, who
from tests.analysis.test_joins import retained_by_hand, source_by_hand
from tests.lake.reading import Row, Tables


def test_latency(report: FleetReport, tables: Tables) -> None:
    messages = tables["messages"]
    for answered in report.latency.acknowledged:
        direction = {"client": "client_to_server", "server": "server_to_client"}[answered.sender]
        those = [
            message for message in messages if message["direction"] == direction and message["qos"] == answered.qos
        ]
        assert answered.latency == spread(
            [document["latency_ns"] for document in those if document["latency_ns"] is not None]
        )
        assert answered.unanswered == sum(document["completed_ns"] is None for document in those)
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
    rows = set()
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
        for position, other_row in enumerate(row["subscriptions"] or ()):
            if position >= len(codes) or codes[position] < 0x80:
                rows.add((row["server"], other_row["topic_filter"], who(row)))
    return rows


def test_how_long_messages_take(report: FleetReport, tables: Tables) -> None:
    took = [row["latency_ns"] for row in tables["messages"] if row["qos"] and row["latency_ns"] is not None]
    latency_buckets = report.latency.buckets
    low = 0
    for bucket in latency_buckets:
        high = bucket.below_ns or 1 << 63
        assert bucket.acknowledged == sum(low <= value < high for value in took)
        low = high
    assert sum(latency_bucket.acknowledged for latency_bucket in latency_buckets) == len(took)
    assert sum(latency_bucket.delivered for latency_bucket in latency_buckets) == report.latency.end_to_end.count
    for end in (latency_buckets[0], latency_buckets[-1]):
        assert end.acknowledged or end.delivered


def test_buckets() -> None:
    rows = rows_of(bucketed("v", "seen"), seen=pa.table({"v": [0, 9_999, 10_000, 49_999, 10**15, None]}))

    assert [(bucket.below_ns, bucket.acknowledged, bucket.delivered) for bucket in buckets(rows, rows[:0])][:4] == [
        (10_000, 2, 0), (20_000, 1, 0), (50_000, 1, 0), (100_000, 0, 0)
    ]  # fmt: skip
    assert buckets(rows, rows)[-1] == LatencyBucket(None, 1, 1)
    assert buckets([], []) == []


def test_who_talks_on_which_topic(report: FleetReport, tables: Tables) -> None:
    messages = [row for row in tables["messages"] if row["topic"]]
    subscribed = listening(tables["packets"])
    topics = {(row["server"], row["topic"]) for row in messages}
    assert {(row.server, row.topic) for row in report.talk.topics.rows} == topics
    for row in report.talk.topics.rows:
        those = [message for message in messages if (message["server"], message["topic"]) == (row.server, row.topic)]
        assert row.published == len(own(those))
        assert row.publishers.names == sorted({who(document) for document in own(those)})[:5]
        assert row.receivers.count == len(
            {who(document) for document in those if document["direction"] == "server_to_client"}
        )
        heard = {name for server, text, name in subscribed if server == row.server and matches(text, row.topic)}
        assert (row.subscribers.count, row.subscribers.names) == (len(heard), sorted(heard)[:5])
    assert report.talk.unheard == sum(
        row.published > 0 and not row.subscribers.count for row in report.talk.topics.rows
    )
    filters = {(row.server, row.topic_filter): row for row in report.talk.filters.rows}
    assert set(filters) == {row[:2] for row in subscribed}
    for (server, topic_filter), filter_row in filters.items():
        assert filter_row.topics == sum(matches(topic_filter, topic) for where, topic in topics if where == server)
    assert report.talk.idle == sum(not row.topics for row in filters.values()) > 0


def test_retained_messages_and_connecting(report: FleetReport, tables: Tables) -> None:
    messages = tables["messages"]
    retained = [row for row in messages if row["retain"]]
    retained_report = report.retained
    last_ns = max(row["timestamp_ns"] for row in messages)
    held = {row[:2]: row for row in sorted(retained_by_hand(messages, last_ns), key=lambda row: row[3])}
    assert retained_report.delivered == len(retained) - len(own(retained))
    assert retained_report.set + retained_report.cleared + retained_report.refused == len(own(retained))
    assert retained_report.held == sum(row[5] is None for row in held.values()) > 0
    assert {(row.server, row.topic): row.since_ns for row in retained_report.topics.rows if row.since_ns} == {
        name: row[3] for name, row in held.items()
    }
    assert report.expiry.published == sum(row["message_expiry_interval"] is not None for row in own(messages)) > 0
    connects = sum(row["type"] == "connect" for row in tables["packets"])
    assert report.reconnects.connects == connects == sum(count for _, count in report.reconnects.minutes)
    assert report.reconnects.storms.rows[0].client is None


def table_of(names: str, rows: list[tuple[object, ...]]) -> pa.Table:
    return pa.table(dict(zip(names.split(), zip(*rows, strict=True), strict=True)))


def test_each_side_of_a_server_is_counted_by_topic() -> None:
    """A client without an identifier is called by its address; one that sends and receives counts on both sides."""
    result = table_of(
        "server topic direction client_identifier client payload_length",
        [
            ("s", "t", "client_to_server", "a", "1:1", 5),
            ("s", "t", "client_to_server", None, "2:2", 3),
            ("s", "t", "server_to_client", "a", "1:1", 5),
            ("s", "u", "server_to_client", "a", "1:1", 5),
            ("other", "t", "client_to_server", "a", "1:1", 9),
        ],
    )
    documents = {(row["server"], row["topic"]): row for row in rows_of(spoken(WORDS, "messages"), messages=result)}

    assert documents["s", "t"] == {
        "server": "s", "topic": "t", "published": 2, "delivered": 1, "payload_bytes": 8,
        "publishers": 2, "publishers_names": ["2:2", "a"], "receivers": 1, "receivers_names": ["a"],
    }  # fmt: skip
    assert (documents["s", "u"]["published"], documents["s", "u"]["payload_bytes"]) == (0, 0)
    assert (documents["s", "u"]["publishers"], documents["s", "u"]["publishers_names"] or []) == (0, [])
    assert documents["other", "t"]["payload_bytes"] == 9


def test_answers_are_counted_by_sender_and_qos() -> None:
    result = table_of(
        "direction qos latency_ns completed_ns state retransmissions",
        [
            ("client_to_server", 0, None, None, "sent", 0),
            ("client_to_server", 1, 10, 10, "complete", 0),
            ("client_to_server", 1, 30, 30, "refused", 2),
            ("client_to_server", 1, None, None, "open", 0),
            ("server_to_client", 2, None, None, "open", 1),
        ],
    )
    first, second = rows_of(acknowledged(WORDS, "messages"), messages=result)

    assert first == {
        "sender": "client", "qos": 1, "measured": 2, "percentiles": [10, 30, 30], "maximum": 30,
        "unanswered": 1, "refused": 1, "retransmitted": 1,
    }  # fmt: skip
    assert (second["sender"], second["qos"], second["measured"]) == ("server", 2, 0)
    assert (second["percentiles"], second["maximum"], second["unanswered"]) == (None, None, 1)


def test_every_listener_comes_once_and_none_that_was_refused(tables: Tables) -> None:
    packets = pa.Table.from_pylist(tables["packets"], schema=TABLES["packets"].arrow())
    rows = rows_of(listeners(WORDS, "packets"), packets=packets)
    actual_rows = [(row["server"], row["topic_filter"], row["who"]) for row in rows]

    assert len(set(actual_rows)) == len(actual_rows)
    assert set(actual_rows) == listening(tables["packets"])

"""Joins: equal to what the engine, or a few lines of plain Python, say of the same rows."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqttscope.analysis import joins
from mqttscope.dissect import dissect_segments
from mqttscope.lint.examples import segments
from mqttscope.lint.rules.delivery.message_expiry_not_decremented import MessageExpiryNotDecremented
from mqttscope.mqtt.topics import matches
from tests.analysis.asking import WORDS, expiry, rows_of, table_of
from tests.lake.reading import CAPTURES, Row, Tables, collect, options, usual

LEVELS = st.sampled_from(["", "a", "b", "ab", " ", "$a", "$share", "$SYS", "ä", "+", "#", "a+", "\0", "日", "g"])
NAMES = st.lists(LEVELS, min_size=1, max_size=4).map("/".join)
FILTERS = st.one_of(
    NAMES,
    st.lists(st.sampled_from(["", "a", "b", "$a", "+", "$SYS"]), max_size=4).map("/".join),
    st.lists(st.sampled_from(["", "a", "$a", "+"]), max_size=3).map(lambda levels: "/".join([*levels, "#"])),
    st.tuples(st.sampled_from(["$share/g/", "$share/", "$share/g+/", "$share//"]), NAMES).map("".join),
)
FIXED = [
    "#", "/#", "+", "/", "//", "+/+", "a/#", "a", "a/+/#", "$SYS/#", "$share", "$share/", "$share/g", "$share/g/",
    "$share/g/#", "$share/g/a/#", "a#", "#/a", "a/#/b", "", "x" * 65_535, "x" * 65_536, "ä" * 32_768, "+/#", "a\nb/+",
]  # fmt: skip


def many(strategy: st.SearchStrategy[str], number: int = 200) -> list[str]:
    """What hypothesis makes of a strategy: all of it goes through one job."""
    texts: list[str] = []

    @settings(max_examples=number, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def take(text: str) -> None:
        texts.append(text)

    take()
    return sorted(set(texts))


def column(name: str, values: list[str]) -> pa.Table:
    return pa.table({name: pa.array(values, pa.string())})


@pytest.fixture(scope="module")
def everything() -> Tables:
    """The rows of all captures; each has servers of its own, since the same port was another broker in another one.

    So have connections: some captures are made of the same conversation.
    """
    tables: Tables = {"packets": [], "messages": []}
    for path in CAPTURES:
        for name, rows in tables.items():
            for row in usual(path).get(name, []):
                own = {key: f"{path.parent.name} {row[key]}" for key in ("server", "connection_id")}
                rows.append(row | own)
    return tables


def test_topics_and_filters() -> None:
    topics = sorted({*many(NAMES), *FIXED})
    filters = sorted({*many(FILTERS), *FIXED})
    names, wanted = column("topic", [*topics, topics[0]]), column("topic_filter", filters * 2)

    rows = rows_of(joins.matching(WORDS, "names", "wanted"), names=names, wanted=wanted)

    pairs = [(row["topic"], row["topic_filter"]) for row in rows]

    expected = {(topic, text) for topic in topics for text in filters if matches(text, topic)}
    assert len(expected) > 500
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == expected


def test_one_filter() -> None:
    topics = sorted({*many(NAMES), "", "$SYS/a", "a/b", "/"})
    filters = [*FIXED[:19], "a/+", "+/b", "$SYS/+", "a/b"]
    columns = [
        f"{joins.topic_matches(WORDS, 'topic', WORDS.text(text))} as is_{place}" for place, text in enumerate(filters)
    ]

    rows = rows_of(f"select topic, {', '.join(columns)} from names", names=column("topic", topics))

    for topic, *result in (row.values() for row in rows):
        assert result == [matches(text, topic) for text in filters], topic


def test_two_columns() -> None:
    topics, filters = sorted({*many(NAMES, 60), *FIXED}), sorted({*many(FILTERS, 60), *FIXED})
    query = f"""select topic, topic_filter, {joins.topic_matches(WORDS, "topic", "topic_filter")} as is_match
    from names cross join wanted"""

    rows = rows_of(query, names=column("topic", topics), wanted=column("topic_filter", filters))

    assert len(rows) == len(topics) * len(filters)
    assert [row for row in rows if row["is_match"] != matches(row["topic_filter"], row["topic"])] == []


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(
        rows, key=lambda row: (row["timestamp_ns"], row["capture"], row["frame"], row["packet_in_connection"])
    )


def retained_by_hand(rows: list[Row], last_ns: int) -> list[tuple[Any, ...]]:
    """What a broker would keep, step by step."""
    rest: dict[tuple[str, str], Row] = {}
    actual_rows = []

    def end(row: Row, until_ns: int, how: str) -> None:
        expiry = row["message_expiry_interval"]
        over = None if expiry is None else row["timestamp_ns"] + expiry * 10**9
        if over is not None and over < until_ns:
            until_ns, how = over, "expired"
        actual_rows.append((row["server"], row["topic"], row["payload_sha256"], row["timestamp_ns"], until_ns, how))

    for row in in_order(rows):
        if row["direction"] != "client_to_server" or not row["retain"] or not row["topic"] or row["state"] == "refused":
            continue
        key = row["server"], row["topic"]
        before = rest.pop(key, None)
        if before is not None:
            end(before, row["timestamp_ns"], "replaced" if row["payload_length"] else "cleared")
        if row["payload_length"]:
            rest[key] = row
    for row in rest.values():
        end(row, last_ns + 1, "held")
    return [(*row[:4], *((None, None) if row[5] == "held" else row[4:])) for row in actual_rows]


def source_by_hand(rows: list[Row]) -> dict[tuple[str, str, int], tuple[Any, ...]]:
    """The last message of this content that was published before each delivery."""
    published: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    actual_rows = {}
    ordered = sorted(in_order(rows), key=lambda row: (row["timestamp_ns"], row["direction"]))
    for row in ordered:
        key = row["server"], row["topic"], row["payload_sha256"]
        known = None not in key
        if row["direction"] == "client_to_server":
            if known:
                published[key].append(row)
            continue
        before = published[key] if known else []
        source = before[-1] if before else None
        name = row["connection_id"], row["direction"], row["stream_offset"]
        actual_rows[name] = (
            None if source is None else (source["connection_id"], source["timestamp_ns"], source["qos"]),
            None if source is None else row["timestamp_ns"] - source["timestamp_ns"],
            len(before) > 1,
        )
    return actual_rows


def test_deliveries_and_retained_messages(everything: Tables) -> None:
    rows = everything["messages"]
    messages = table_of("messages", rows)

    actual_rows = {
        (row["connection_id"], row["direction"], row["stream_offset"]): (
            row["published"]
            and (row["published"]["connection_id"], row["published"]["timestamp_ns"], row["published"]["qos"]),
            row["waited_ns"],
            row["repeated"],
        )
        for row in rows_of(joins.deliveries(WORDS, "messages"), messages=messages)
    }
    left_rows = [
        tuple(row[name] for name in ("server", "topic", "payload_sha256", "from_ns", "until_ns", "ended"))
        for row in rows_of(joins.retained_intervals("messages"), messages=messages)
    ]

    expected = source_by_hand(rows)
    assert sum(row[0] is not None for row in expected.values()) > 40
    assert sum(row[0] is None for row in expected.values()) > 5
    assert actual_rows == expected
    intervals = retained_by_hand(rows, max(row["timestamp_ns"] for row in rows))
    assert {interval[5] for interval in intervals} >= {None, "replaced"}
    assert sorted(map(repr, left_rows)) == sorted(map(repr, intervals))


def test_subscriptions(everything: Tables) -> None:
    rows = everything["packets"]
    expected: list[Row] = []
    waiting: dict[tuple[str, int], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row["connection_id"], row["packet_in_connection"])):
        key = row["connection_id"], row["packet_identifier"]
        live = [
            document
            for document in expected
            if document["connection"] == row["connection_id"] and document["until_ns"] is None
        ]
        if row["type"] == "subscribe":
            waiting[key] = []
            for asked in row["subscriptions"] or ():
                for document in live:
                    if document["filter"] == asked["topic_filter"]:
                        document["until_ns"] = row["timestamp_ns"]
                new = {"connection": row["connection_id"], "filter": asked["topic_filter"], "granted": None}
                waiting[key].append(new | {"from_ns": row["timestamp_ns"], "until_ns": None})
            expected += waiting[key]
        elif row["type"] == "unsubscribe":
            waiting.pop(key, None)
            for document in live:
                if document["filter"] in row["topic_filters"]:
                    document["until_ns"] = row["timestamp_ns"]
        elif row["type"] == "suback" and key in waiting:
            for document, code in zip(waiting.pop(key), row["reason_codes"], strict=False):
                document["granted"] = code

    documents = [
        {"connection": row["connection_id"], "filter": row["topic_filter"], "granted": row["granted"],
         "from_ns": row["timestamp_ns"], "until_ns": row["until_ns"]}
        for row in rows_of(joins.subscriptions(WORDS, "packets"), packets=table_of("packets", rows))
    ]  # fmt: skip

    assert len(expected) > 40
    assert {document["granted"] for document in expected} >= {0, 1, 2, None}
    assert any(document["until_ns"] for document in expected)
    assert sorted(map(repr, documents)) == sorted(map(repr, expected))


def conversations() -> tuple[dict[str, pa.Table], dict[str, int]]:
    """Tables of all conversations of the rule about intervals, each a server, and how often the rule speaks of each."""
    tables: Tables = {"packets": [], "messages": [], "gaps": []}
    reported: dict[str, int] = {}
    rule = MessageExpiryNotDecremented()
    for each in (*rule.good, *rule.bad):
        lake_options = options(rules=())
        documents = collect(dissect_segments(segments(each), lake_options.reading()), lake_options)
        reported[each.title] = sum(len(step.marks) for step in each.steps) if each in rule.bad else 0
        for name, rows in tables.items():
            names = {"server": each.title}
            rows += [
                row | names | {"connection_id": each.title + row["connection_id"]} for row in documents.get(name, [])
            ]
    return {name: table_of(name, table) for name, table in tables.items()}, reported


def test_message_expiry_as_the_linter_judges_it() -> None:
    """All conversations of its rule."""
    tables, reported = conversations()

    rows = rows_of(expiry(), **tables)

    judged = [row["server"] for row in rows if row["verdict"] not in (None, "right")]
    wrong = {name: judged.count(name) for name in reported}
    assert any(reported.values())
    assert wrong == reported
    assert {row["verdict"] for row in rows} >= {"right", "not_reduced", "missing", None}

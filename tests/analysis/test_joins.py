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
    found: list[str] = []

    @settings(max_examples=number, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def take(one: str) -> None:
        found.append(one)

    take()
    return sorted(set(found))


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

    found = [(row["topic"], row["topic_filter"]) for row in rows]

    expected = {(topic, one) for topic in topics for one in filters if matches(one, topic)}
    assert len(expected) > 500
    assert len(found) == len(set(found))
    assert set(found) == expected


def test_one_filter() -> None:
    topics = sorted({*many(NAMES), "", "$SYS/a", "a/b", "/"})
    filters = [*FIXED[:19], "a/+", "+/b", "$SYS/+", "a/b"]
    columns = [f"{joins.topic_matches(WORDS, 'topic', one)} as is_{place}" for place, one in enumerate(filters)]

    rows = rows_of(f"select topic, {', '.join(columns)} from names", names=column("topic", topics))

    for topic, *found in (row.values() for row in rows):
        assert found == [matches(one, topic) for one in filters], topic


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(
        rows, key=lambda row: (row["timestamp_ns"], row["capture"], row["frame"], row["packet_in_connection"])
    )


def retained_by_hand(rows: list[Row], last_ns: int) -> list[tuple[Any, ...]]:
    """What a broker would keep, step by step."""
    kept: dict[tuple[str, str], Row] = {}
    found = []

    def end(row: Row, until_ns: int, how: str) -> None:
        expiry = row["message_expiry_interval"]
        over = None if expiry is None else row["timestamp_ns"] + expiry * 10**9
        if over is not None and over < until_ns:
            until_ns, how = over, "expired"
        found.append((row["server"], row["topic"], row["payload_sha256"], row["timestamp_ns"], until_ns, how))

    for row in in_order(rows):
        if row["direction"] != "client_to_server" or not row["retain"] or not row["topic"] or row["state"] == "refused":
            continue
        key = row["server"], row["topic"]
        before = kept.pop(key, None)
        if before is not None:
            end(before, row["timestamp_ns"], "replaced" if row["payload_length"] else "cleared")
        if row["payload_length"]:
            kept[key] = row
    for row in kept.values():
        end(row, last_ns + 1, "held")
    return [(*one[:4], *((None, None) if one[5] == "held" else one[4:])) for one in found]


def source_by_hand(rows: list[Row]) -> dict[tuple[str, str, int], tuple[Any, ...]]:
    """The last message of this content that was published before each delivery."""
    published: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    found = {}
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
        found[name] = (
            None if source is None else (source["connection_id"], source["timestamp_ns"], source["qos"]),
            None if source is None else row["timestamp_ns"] - source["timestamp_ns"],
            len(before) > 1,
        )
    return found


def test_deliveries_and_retained_messages(everything: Tables) -> None:
    rows = everything["messages"]
    messages = table_of("messages", rows)

    found = {
        (row["connection_id"], row["direction"], row["stream_offset"]): (
            row["published"]
            and (row["published"]["connection_id"], row["published"]["timestamp_ns"], row["published"]["qos"]),
            row["waited_ns"],
            row["repeated"],
        )
        for row in rows_of(joins.deliveries(WORDS, "messages"), messages=messages)
    }
    kept = [
        tuple(row[name] for name in ("server", "topic", "payload_sha256", "from_ns", "until_ns", "ended"))
        for row in rows_of(joins.retained_intervals("messages"), messages=messages)
    ]

    expected = source_by_hand(rows)
    assert sum(one[0] is not None for one in expected.values()) > 40
    assert sum(one[0] is None for one in expected.values()) > 5
    assert found == expected
    intervals = retained_by_hand(rows, max(row["timestamp_ns"] for row in rows))
    assert {one[5] for one in intervals} >= {None, "replaced"}
    assert sorted(map(repr, kept)) == sorted(map(repr, intervals))


def test_subscriptions(everything: Tables) -> None:
    rows = everything["packets"]
    expected: list[Row] = []
    waiting: dict[tuple[str, int], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row["connection_id"], row["packet_in_connection"])):
        key = row["connection_id"], row["packet_identifier"]
        live = [one for one in expected if one["connection"] == row["connection_id"] and one["until_ns"] is None]
        if row["type"] == "subscribe":
            waiting[key] = []
            for asked in row["subscriptions"] or ():
                for one in live:
                    if one["filter"] == asked["topic_filter"]:
                        one["until_ns"] = row["timestamp_ns"]
                new = {"connection": row["connection_id"], "filter": asked["topic_filter"], "granted": None}
                waiting[key].append(new | {"from_ns": row["timestamp_ns"], "until_ns": None})
            expected += waiting[key]
        elif row["type"] == "unsubscribe":
            waiting.pop(key, None)
            for one in live:
                if one["filter"] in row["topic_filters"]:
                    one["until_ns"] = row["timestamp_ns"]
        elif row["type"] == "suback" and key in waiting:
            for one, code in zip(waiting.pop(key), row["reason_codes"], strict=False):
                one["granted"] = code

    found = [
        {"connection": row["connection_id"], "filter": row["topic_filter"], "granted": row["granted"],
         "from_ns": row["timestamp_ns"], "until_ns": row["until_ns"]}
        for row in rows_of(joins.subscriptions(WORDS, "packets"), packets=table_of("packets", rows))
    ]  # fmt: skip

    assert len(expected) > 40
    assert {one["granted"] for one in expected} >= {0, 1, 2, None}
    assert any(one["until_ns"] for one in expected)
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def conversations() -> tuple[dict[str, pa.Table], dict[str, int]]:
    """Tables of all conversations of the rule about intervals, each a server, and how often the rule speaks of each."""
    tables: Tables = {"packets": [], "messages": [], "gaps": []}
    reported: dict[str, int] = {}
    rule = MessageExpiryNotDecremented()
    for one in (*rule.good, *rule.bad):
        given = options(rules=())
        made = collect(dissect_segments(segments(one), given.reading()), given)
        reported[one.title] = sum(len(step.marks) for step in one.steps) if one in rule.bad else 0
        for name, rows in tables.items():
            names = {"server": one.title}
            rows += [row | names | {"connection_id": one.title + row["connection_id"]} for row in made.get(name, [])]
    return {name: table_of(name, found) for name, found in tables.items()}, reported


def test_message_expiry_as_the_linter_judges_it() -> None:
    """All conversations of its rule."""
    tables, reported = conversations()

    rows = rows_of(expiry(), **tables)

    judged = [row["server"] for row in rows if row["verdict"] not in (None, "right")]
    wrong = {name: judged.count(name) for name in reported}
    assert any(reported.values())
    assert wrong == reported
    assert {row["verdict"] for row in rows} >= {"right", "not_reduced", "missing", None}

"""Views that are ready: what plain Python makes of the tables of all captures."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from datetime import date, timedelta
from pathlib import Path
from statistics import median

import pytest

from mqttscope.analysis.columns import table_names
from mqttscope.analysis.local import LocalEngine
from mqttscope.analysis.views import VIEWS, named_in
from tests.analysis.by_hand import own, spread, who
from tests.analysis.test_joins import in_order, source_by_hand
from tests.conftest import ROOT
from tests.each import each
from tests.lake.reading import Row, Tables

MINUTE_NS = 60_000_000_000
SECOND_NS = 1_000_000_000


@pytest.fixture(scope="module")
def views(lake: Path) -> dict[str, list[Row]]:
    documents = {}
    with LocalEngine(lake) as engine:
        for name in VIEWS:
            engine.make_views([name])
            documents[name] = engine.rows(f"select * from {name}")
    return documents


def test_columns_are_those_that_are_explained(lake: Path, views: dict[str, list[Row]]) -> None:
    assert not set(VIEWS) & set(table_names())
    page = (ROOT / "docs" / "lake.md").read_text("utf-8")
    with LocalEngine(lake) as engine:
        result = {name: list(engine.ask(f"describe {name}").rows) for name in VIEWS}
    for name, described in result.items():
        assert list(views[name][0]) == list(VIEWS[name].columns)
        assert [(row[0], row[2] or "") for row in described] == list(VIEWS[name].columns.items())
        (section,) = re.findall(rf"^### {name}\n\n(.*?)(?=^#)", page, re.M | re.S)
        lines = [f"| `{column}` | `{kind}` | {meaning or ''} |" for column, kind, meaning in described]
        head = "| column | type | meaning |\n|---|---|---|\n"
        assert section.strip() == f"{VIEWS[name].meaning}\n\n{head}" + "\n".join(lines)


@each("sql, names", [
    ("select * from packets", []),
    ("select * from Deliveries join messages using (topic)", ["deliveries"]),
    ("show tables", list(VIEWS)),
    ("select 1 as top, talkers from topics", []),
    ("describe top_talkers", ["top_talkers"]),
])  # fmt: skip
def test_views_that_nobody_names_are_not_made(sql: str, names: list[str]) -> None:
    assert named_in(sql) == names


def test_words_of_a_question_keep_their_meaning(lake: Path) -> None:
    """Only what a view needs gets the names of Spark: the length of bytes is what DuckDB says."""
    query = "select octet_length('ab'::blob) as bytes, count(*) as number from deliveries"
    with LocalEngine(lake) as engine:
        ((length, number),) = engine.ask(query).rows
    assert (length, number > 100) == (2, True)


def test_session_activity(views: dict[str, list[Row]], tables: Tables) -> None:
    connections = {row["connection_id"]: row for row in tables["connections"]}
    expected = {}
    for row in tables["sessions"]:
        members = [connections[each] for each in row["connection_ids"]]
        expected[row["server"], row["client_identifier"], row["session"]] = (
            row["last_ns"] - row["first_ns"], len(members),
            sum(member["disconnect_by"] is None and member["closed_how"] not in ("open", "capture_end")
                for member in members),
            *(sum(member[kind][way] for member in members)
              for kind in ("packets", "bytes") for way in ("client_to_server", "server_to_client")),
        )  # fmt: skip
    names = (
        "duration_ns", "connections", "broken", "packets_sent", "packets_received", "bytes_sent", "bytes_received",
    )  # fmt: skip
    rows = {
        (row["server"], row["client_identifier"], row["session"]): tuple(row[name] for name in names)
        for row in views["session_activity"]
    }
    assert len(views["session_activity"]) == len(rows)
    assert rows == expected
    assert any(row[1] > 1 for row in rows.values())
    assert any(row[2] for row in rows.values())


def test_deliveries(views: dict[str, list[Row]], tables: Tables) -> None:
    """Each delivery with the last publication of the same content before it, found by looking at all of them."""
    published = {(row["connection_id"], row["timestamp_ns"]): row for row in own(tables["messages"])}
    sources = source_by_hand(tables["messages"])
    documents = {(row["connection_id"], row["direction"], row["stream_offset"]): row for row in views["deliveries"]}
    deliveries = [row for row in tables["messages"] if row["direction"] == "server_to_client"]
    assert len(views["deliveries"]) == len(documents) == len(deliveries)
    matched = live = 0
    for row in deliveries:
        place = row["connection_id"], row["direction"], row["stream_offset"]
        source, _, repeated = sources[place]
        last, shown = source and published[source[:2]], documents[place]
        assert shown["published_ns"] == (last and last["timestamp_ns"])
        assert shown["publisher"] == (last and who(last))
        assert shown["receiver"] == who(row)
        assert shown["waited_ns"] == (last and row["timestamp_ns"] - last["timestamp_ns"])
        assert shown["repeated"] == repeated
        number = row["retain"] and (last is None or last["retain"])
        assert shown["live"] == (not number and not row["dup"])
        matched, live = matched + (last is not None), live + shown["live"]
    assert 0 < matched < len(deliveries)
    assert 0 < live < len(deliveries)


def test_retained_messages(views: dict[str, list[Row]], tables: Tables) -> None:
    """A server that takes what clients publish, in the order of time, and forgets what expires."""
    held: dict[tuple[str, str], Row | None] = {}
    cleared = set()
    messages = in_order([row for row in tables["messages"] if row["topic"] and row["retain"]])
    for row in own(messages):
        if row["state"] != "refused":
            held[row["server"], row["topic"]] = row if row["payload_length"] else None
            if not row["payload_length"]:
                cleared.add((row["server"], row["topic"]))
    last_ns = max(row["timestamp_ns"] for row in tables["messages"])
    states = {}
    for key in {(row["server"], row["topic"]) for row in messages}:
        rest = held.get(key)
        if rest is not None:
            interval = rest["message_expiry_interval"]
            ends = None if interval is None else rest["timestamp_ns"] + interval * SECOND_NS
            states[key] = "held" if ends is None or ends > last_ns else "expired"
        elif key in cleared:
            states[key] = "cleared"
        else:
            delivered = any((row["server"], row["topic"]) == key and row["direction"] == "server_to_client"
                            for row in messages)  # fmt: skip
            states[key] = "unknown" if delivered else "refused"

    documents = {(row["server"], row["topic"]): row for row in views["retained_messages"]}
    assert {key: row["state"] for key, row in documents.items()} == states
    assert len(views["retained_messages"]) == len(documents)
    assert set(states.values()) >= {"held", "cleared", "unknown"}
    payloads = {
        (row["connection_id"], row["packet_in_connection"]): row["payload"]
        for row in tables["packets"] if row["type"] == "publish"
    }  # fmt: skip
    names = ("client_identifier", "client", "qos", "payload_length", "payload_sha256", "frame", "connection_id")
    for key, row in documents.items():
        rest = held.get(key) if states[key] == "held" else None
        assert [row[name] for name in names] == [rest and rest[name] for name in names]
        assert row["payload"] == (rest and payloads[rest["connection_id"], rest["packet_in_connection"]])


def test_reconnect_storms(views: dict[str, list[Row]], tables: Tables) -> None:
    """Minute by minute: what is busy, and what of it follows on each other."""
    counts: dict[tuple[str, str | None], Counter[int]] = defaultdict(Counter)
    clients: dict[tuple[str, int], list[str]] = defaultdict(list)
    for row in tables["packets"]:
        if row["type"] == "connect":
            result = row["connect"]["client_identifier"]
            name = row["client_identifier"] if result is None else result
            name = name or row["client"].rpartition(":")[0]
            minute = row["timestamp_ns"] // MINUTE_NS
            counts[row["server"], None][minute] += 1
            counts[row["server"], name][minute] += 1
            clients[row["server"], minute].append(name)
    expected = set()
    for (server, name), minutes in counts.items():
        usual = median(minutes.values())
        least = 5 if name is not None else max(10, 3 * usual)
        run: list[int] = []
        for minute in [*sorted(number for number, count in minutes.items() if count >= least), -1]:
            if run and minute != run[-1] + 1:
                number = 1 if name is not None else len({who for number in run for who in clients[server, number]})
                inside = [minutes[number] for number in run]
                expected.add((server, name, run[0] * MINUTE_NS, (run[-1] + 1) * MINUTE_NS, sum(inside), max(inside),
                              usual, number))  # fmt: skip
                run = []
            run.append(minute)
    rows = [tuple(row.values()) for row in views["reconnect_storms"]]
    assert len(rows) == len(set(rows))
    assert set(rows) == expected
    assert {row[1] is None for row in rows} == {True, False}


def test_top_talkers(views: dict[str, list[Row]], tables: Tables) -> None:
    names = {row["connection_id"]: (row["server"], who(row)) for row in tables["connections"]}
    counted: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in tables["connections"]:
        sums = counted[names[row["connection_id"]]]
        sums["connections"] += 1
        for kind in ("packets", "bytes"):
            sums[f"{kind}_sent"] += row[kind]["client_to_server"]
            sums[f"{kind}_received"] += row[kind]["server_to_client"]
    for row in tables["messages"]:
        way = "sent" if row["direction"] == "client_to_server" else "received"
        sums = counted[names[row["connection_id"]]]
        sums[f"messages_{way}"] += 1
        sums[f"payload_bytes_{way}"] += row["payload_length"]
    result: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(views["top_talkers"], key=lambda row: row["place"]):
        result[row["server"]].append(row)
        sums = counted.pop((row["server"], row["client_identifier"]))
        names_of = [name for name in row if name not in ("place", "server", "client_identifier")]
        assert {name: row[name] for name in names_of} == {name: sums[name] for name in names_of}
    assert not counted
    for rows in result.values():
        assert [row["place"] for row in rows] == list(range(1, len(rows) + 1))
        bytes_of = [row["bytes_sent"] + row["bytes_received"] for row in rows]
        assert bytes_of == sorted(bytes_of, reverse=True)


def test_payload_sizes(views: dict[str, list[Row]], tables: Tables) -> None:
    sizes: dict[tuple[str, str, str, date], list[int]] = defaultdict(list)
    for row in tables["messages"]:
        if row["topic"] is not None:
            day = date(1970, 1, 1) + timedelta(days=row["timestamp_ns"] // (86_400 * SECOND_NS))
            sizes[row["server"], row["topic"], row["direction"], day].append(row["payload_length"])
    documents = {(row["server"], row["topic"], row["direction"], row["day"]): row for row in views["payload_sizes"]}
    assert documents.keys() == sizes.keys()
    for key, values in sizes.items():
        row, wanted = documents[key], spread(values)
        assert (row["messages"], row["payload_bytes"], row["smallest"]) == (len(values), sum(values), min(values))
        assert (row["p50"], row["p90"], row["p99"], row["largest"]) == (
            wanted.p50, wanted.p90, wanted.p99, wanted.maximum,
        )  # fmt: skip

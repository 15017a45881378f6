"""Devices, takeovers, refusals, pings and captures: what plain Python makes of the tables of all captures."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from mqttscope import __version__
from mqttscope.analysis.devices import TAKEN_OVER, pings
from mqttscope.analysis.local import LocalEngine
from mqttscope.dissect import dissect_segments
from mqttscope.lake.manifest import open_lake
from mqttscope.lake.options import LakeOptions
from mqttscope.lint.examples import conversation, segments
from tests.analysis.asking import WORDS, rows_of, table_of
from tests.lake.reading import Row, Tables, collect
from tests.lint.lint_help import steps_of

VIEWS = ("devices", "takeovers", "connect_refusals", "pings", "captures")


@pytest.fixture(scope="module")
def views(lake: Path) -> dict[str, list[Row]]:
    with LocalEngine(lake) as engine:
        engine.make_views(VIEWS)
        return {name: engine.rows(f"select * from {name}") for name in VIEWS}


def test_devices(views: dict[str, list[Row]], tables: Tables) -> None:
    last, times = defaultdict[tuple[str, str], list[int]](list), defaultdict[tuple[str, str], list[int]](list)
    end_ns = max(row["timestamp_ns"] for row in tables["packets"])
    for name, times_of in (("packets", last), ("messages", times)):
        for row in tables[name]:
            if row["direction"] == "client_to_server":
                times_of[row["server"], row["client_identifier"]].append(row["timestamp_ns"])
    connections = defaultdict[tuple[str, str], list[Row]](list)
    for row in tables["connections"]:
        if row["client_identifier"]:
            connections[row["server"], row["client_identifier"]].append(row)
    assert len(views["devices"]) == len(connections)
    for row in views["devices"]:
        key = row["server"], row["client_identifier"]
        assert row["connections"] == len(connections[key])
        assert row["messages"] == len(times[key])
        if last[key]:
            assert (row["last_seen_ns"], row["silent_ns"]) == (max(last[key]), end_ns - max(last[key]))
        spaces = [later - earlier for earlier, later in pairwise(sorted(times[key]))]
        assert (row["usual_period_ns"] is None) == (not spaces)
        spaces = [space for space in spaces if space >= 10**9] or spaces
        assert not spaces or abs(row["usual_period_ns"] - median(spaces)) <= 1
    assert any(row["firmware"] for row in views["devices"])
    assert any(row["broken_ends"] for row in views["devices"])


def test_takeovers(views: dict[str, list[Row]], tables: Tables) -> None:
    reasons = {row["connection_id"]: row["disconnect_reason"] for row in tables["connections"]}
    connection_ids = {row["connection_id"] for row in views["takeovers"]}
    named = {key for key, reason in reasons.items() if reason == TAKEN_OVER}
    later = {row["next_connection_id"] for row in views["takeovers"]}
    assert named & connection_ids
    assert later <= reasons.keys()
    for row in views["takeovers"]:
        assert row["connection_id"] in named or row["closed_ns"] is None or row["closed_ns"] > row["taken_ns"]


def test_connect_refusals(views: dict[str, list[Row]], tables: Tables) -> None:
    refusals = [row for row in tables["packets"] if row["type"] == "connack" and row["reason_code"]]
    names = list(views["connect_refusals"][0])
    expected = [tuple(row[name] for name in names) for row in refusals]
    assert sorted(map(repr, (tuple(row.values()) for row in views["connect_refusals"]))) == sorted(map(repr, expected))


def test_pings(views: dict[str, list[Row]], tables: Tables) -> None:
    requests = [row for row in tables["packets"] if row["type"] == "pingreq"]
    assert len(views["pings"]) == len(requests)
    waits = [row["round_trip_ns"] for row in views["pings"]]
    assert None in waits
    assert any(wait is not None and wait > 0 for wait in waits)


def test_a_ping_without_an_answer() -> None:
    steps = steps_of("opened client=c; > pingreq; +1 < pingresp; +1 > pingreq; +1 > pingreq; +3 < pingresp")
    tables = collect(dissect_segments(segments(conversation("", *steps))), LakeOptions())
    packets = table_of("packets", tables["packets"])
    rows = rows_of(
        f"select round_trip_ns from ({pings(WORDS, {'packets': 'packets'})}) order by timestamp_ns", packets=packets
    )

    assert [row["round_trip_ns"] and round(row["round_trip_ns"] / 10**9) for row in rows] == [1, None, 3]


def test_captures(lake: Path, views: dict[str, list[Row]], tables: Tables) -> None:
    assert {row["sha256"]: row["capture"] for row in views["captures"]} == open_lake(lake).captures
    assert {(row["generation"], row["mqttscope_version"]) for row in views["captures"]} == {(1, __version__)}
    assert all(row["ingested_ns"] > row["last_ns"] >= row["first_ns"] for row in views["captures"] if row["packets"])
    assert sum(row["packets"] for row in views["captures"]) == len(tables["packets"])
    assert sum(row["gaps"] for row in views["captures"]) == sum(row["event"] == "gap" for row in tables["gaps"])

"""Latencies of recording and replay as a table and as JSON."""

from __future__ import annotations

import orjson

from mqttscope.report.base import View
from mqttscope.report.replay.latency import lines, render

MS = 1_000_000
RECORDED = {"connect": [MS, 2 * MS, 40 * MS], "ping": [MS]}
LIVE = {"connect": [MS // 2], "delivery": [2_500 * MS]}


def test_recorded_and_live_times_stand_below_each_other() -> None:
    assert render(RECORDED, LIVE, View(width=100, unicode=False)).decode().split("\n")[1:-1] == [
        "Latency",
        "handshake                      broker    count     min     p50      p95      p99      max",
        "-----------------------------------------------------------------------------------------",
        "CONNECT to CONNACK             recorded      3  1.0 ms  2.0 ms  40.0 ms  40.0 ms  40.0 ms",
        "CONNECT to CONNACK             live          1  500 us  500 us   500 us   500 us   500 us",
        "PINGREQ to PINGRESP            recorded      1  1.0 ms  1.0 ms   1.0 ms   1.0 ms   1.0 ms",
        "PINGREQ to PINGRESP            live",
        "PUBLISH to its first delivery  recorded",
        "PUBLISH to its first delivery  live          1  2.50 s  2.50 s   2.50 s   2.50 s   2.50 s",
    ]


def test_narrow_tables_leave_columns_out() -> None:
    for width in (40, 60, 80):
        shown = render(RECORDED, LIVE, View(width=width)).decode().split("\n")
        assert max(map(len, shown)) <= width


def test_nothing_measured_is_nothing_shown() -> None:
    assert render({}, {"ping": []}, View()) == b""
    assert lines({}, {}) == b""


def test_json_has_nanoseconds() -> None:
    first, ping, delivery = map(orjson.loads, lines(RECORDED, LIVE).splitlines())

    assert first == {
        "schema": 1, "event": "latency", "kind": "connect",
        "recorded": {"count": 3, "min_ns": MS, "p50_ns": 2 * MS, "p95_ns": 40 * MS, "p99_ns": 40 * MS,
                     "max_ns": 40 * MS},
        "live": {"count": 1, "min_ns": MS // 2, "p50_ns": MS // 2, "p95_ns": MS // 2, "p99_ns": MS // 2,
                 "max_ns": MS // 2},
    }  # fmt: skip
    assert (ping["live"], delivery["recorded"]) == (None, None)

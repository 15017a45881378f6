"""What a replay did, for people and for programs."""

from __future__ import annotations

from typing import Any

import orjson

from mqttscope.replay.drivers.run import make_plan
from mqttscope.replay.live import NoteKind, ReplayNote
from mqttscope.report.base import View
from mqttscope.report.page import Page
from mqttscope.report.replay import summary
from tests.replay.recordings import connack, connect, publish, recordings


def test_in_words_and_for_programs() -> None:
    scripts = recordings(
        (0, ">", connect("dev\x1b")), (0, "<", connack()), (0, ">", publish("kept", retain=True, payload=b"x"))
    )
    plan, page = make_plan(scripts), Page(View(width=100, unicode=False))
    summary.write_plan(
        page, plan, scripts, broker="mqtt://h:1883", pace="2x", length_ns=1_500_000_000, changes=["renamed"]
    )
    shown_text = page.encoded().decode()

    for line in ("would replay to mqtt://h:1883", "pace 2x", "at least 1.50 s", "1 PUBLISH", "kept", "renamed"):
        assert line in shown_text
    assert "\x1b" not in shown_text
    summary.write_plan(page, plan, scripts, broker="b", pace="asap", length_ns=0, changes=[])
    assert "as soon as possible" in page.encoded().decode()
    document = summary.plan_document(plan, scripts, broker="b", pace="asap", length_ns=0, changes=[])
    assert document["retained_topics"] == ["kept"]
    assert document["connections"][0]["packets"] == 2


MS = 1_000_000
RECORDED = {"connect": [MS, 2 * MS, 40 * MS], "ping": [MS]}
LIVE = {"connect": [MS // 2], "delivery": [2_500 * MS]}


def test_recorded_and_live_times_stand_below_each_other() -> None:
    assert summary.render_latency(RECORDED, LIVE, View(width=100, unicode=False)).decode().split("\n")[1:-1] == [
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
        shown = summary.render_latency(RECORDED, LIVE, View(width=width)).decode().split("\n")
        assert max(map(len, shown)) <= width


def test_nothing_measured_is_nothing_shown() -> None:
    assert summary.render_latency({}, {"ping": []}, View()) == b""
    assert summary.latency_lines({}, {}) == b""


def test_json_has_nanoseconds() -> None:
    first, ping, delivery = map(orjson.loads, summary.latency_lines(RECORDED, LIVE).splitlines())

    assert first == {
        "schema": 1, "event": "latency", "kind": "connect",
        "recorded": {"count": 3, "min_ns": MS, "p50_ns": 2 * MS, "p95_ns": 40 * MS, "p99_ns": 40 * MS,
                     "max_ns": 40 * MS},
        "live": {"count": 1, "min_ns": MS // 2, "p50_ns": MS // 2, "p95_ns": MS // 2, "p99_ns": MS // 2,
                 "max_ns": MS // 2},
    }  # fmt: skip
    assert (ping["live"], delivery["recorded"]) == (None, None)


def outcome(**fields: Any) -> summary.ReplayOutcome:
    scripts = recordings((0, ">", connect("a")), (1, ">", connect("b")))
    replay_outcome = summary.ReplayOutcome(
        "mqtt://h:1883", "asap", scripts, [scripts[0], None], sent=3, received=2, seconds=0.5, **fields
    )
    replay_outcome.add_notes(
        [
            (ReplayNote(NoteKind.SKIPPED, "PUBLISH, since \x1b[31mit ended"), 2),
            (ReplayNote(NoteKind.ADDED, "PINGREQ"), 1),
        ]
    )
    replay_outcome.add_notes([(ReplayNote(NoteKind.SKIPPED, "PUBLISH, since \x1b[31mit ended"), 1)])
    replay_outcome.failures["cannot connect"] += 2
    replay_outcome.left_out["no CONNECT"] += 1
    return replay_outcome


def text(replay_outcome: summary.ReplayOutcome) -> str:
    page = Page(View(width=100, unicode=False))
    summary.write_summary(page, replay_outcome)
    return page.encoded().decode()


def test_in_words() -> None:
    shown_text = text(outcome(changes=["topics renamed"], missed=4, stopped=True))

    for line in (
        "replayed to mqtt://h:1883; pace asap; 1 of 2 connections",
        "3 packets sent, 2 received",
        "stopped before its end",
        "2 times cannot connect",
        "1 connection not played: no CONNECT",
        "waited in vain 4 times for packets of the recording",
        "topics renamed",
        "PINGREQ",
    ):
        assert line in shown_text
    assert "\x1b" not in shown_text
    assert shown_text.index("Sent beside the recording") < shown_text.index("Not sent")


def test_for_programs() -> None:
    document = summary.summary_document(outcome())

    assert (document["event"], document["connections"], document["connected"]) == ("replay", 2, 1)
    assert document["failures"] == [{"reason": "cannot connect", "connections": 2}]
    assert {"kind": "skipped", "note": "PUBLISH, since \x1b[31mit ended", "times": 3} in document["notes"]


def test_pairs_belong_together() -> None:
    replay_outcome = outcome()

    assert [(recorded.name, live and live.name) for recorded, live in replay_outcome.pairs] == [("a", "a"), ("b", None)]
    assert replay_outcome.performed == 1
    assert replay_outcome.noted(NoteKind.ADDED) == [("PINGREQ", 1)]

"""Differences as JSON Lines."""

from __future__ import annotations

from typing import Any

import orjson

from mqttscope.replay.verify import verify
from mqttscope.report.base import View
from mqttscope.report.replay.json import ReplayJson
from tests.replay.talk import ALL, OPENED, asked, delivered, pairs
from tests.replay.verify.test_answers import DIFFERENT as ANSWERS
from tests.report.make import Lines


def written(recorded: str, live: str, **options: object) -> list[dict[str, Any]]:
    sink, verification = Lines(), verify(pairs(recorded, live))
    report = ReplayJson(sink, View(**options))  # type: ignore[arg-type]
    for difference in verification.differences:
        report.feed(difference)
    report.close(verification)
    assert "\u202e" not in sink.data.decode()
    return [orjson.loads(line) for line in sink.lines]


def test_a_difference_has_both_packets_as_inspect_shows_them() -> None:
    documents = written(
        asked("dev > publish a x qos=1 id=1", "dev < puback 1"), "dev > connect\ndev < connack code=0x87"
    )
    first = documents[0]

    assert {key: value for key, value in first.items() if key not in ("recorded", "live")} == {
        "schema": 1, "event": "difference", "kind": "reason-code", "connection": 0, "name": "dev", "version": "5.0",
        "field": "reason_code", "expected": 0, "found": 0x87, "follows": 1, "because_of": None, "cause": None,
        "message": "The CONNACK of CONNECT has Reason Code 0x87 Not authorized instead of 0x00 Success.",
    }  # fmt: skip
    assert (first["recorded"]["event"], first["recorded"]["type"]) == ("packet", "connack")
    assert first["live"]["connack"]["reason"] == "Not authorized"


def test_counts_come_at_the_end() -> None:
    *_, connection, other, total = written(delivered(*ALL), delivered(*ALL[1:]))

    assert connection == {
        "schema": 1, "event": "verified_connection", "connection": 0, "name": "sub", "compared": 6, "equal": 5,
        "different": 1, "follow": 0, "not_judged": 0, "reasons": {},
    }  # fmt: skip
    assert other["name"] == "pub"
    assert (total["event"], total["connections"], total["differences"]) == ("verification", 2, 1)
    assert (total["compared"], total["kinds"]) == (7, {"missing-delivery": 1})


def test_what_is_not_there_is_null_and_a_malformed_packet_is_shown_as_such() -> None:
    missing, broken = written(delivered(*ALL), delivered(*ALL[1:]))[0], written(*ANSWERS["a broken packet"][:2])[0]

    assert (missing["live"], missing["field"], missing["recorded"]["topic"]) == (None, None, "t/a")
    assert (broken["kind"], broken["live"]["event"]) == ("malformed", "malformed")


def test_the_live_packet_names_its_own_connection() -> None:
    both = pairs(asked(), "dev > connect\ndev < connack code=0x87")
    assert both[0][1] is not None
    both[0][1].connection.server = "live:1883"
    verification = verify(both)
    report = ReplayJson(Lines(), View())
    shown = report.difference(verification.differences[0])

    assert (shown["recorded"]["server"], shown["live"]["server"]) == ("broker:1883", "live:1883")


def test_secrets_are_not_written() -> None:
    recorded = asked("dev > publish a x qos=1 id=1", "dev < puback 1 user_property=password:hush-hush")
    recorded = recorded.replace("dev > connect", "dev > connect password=hush-hush")
    live = recorded.replace("1 user_property=password:hush-hush", "1")

    assert "hush" not in str(written(recorded, live))
    assert "hush" not in str(written(recorded, ""))
    assert "hush" in str(written(recorded, live, show_secrets=True))


def test_lines_are_harmless() -> None:
    sent = OPENED + "pub > publish t/\u202e\x7f x"
    (line, *_) = written(f"{sent}\nsub < publish t/\u202e\x7f x", sent)

    assert line["recorded"]["topic"] == "t/\u202e\x7f"

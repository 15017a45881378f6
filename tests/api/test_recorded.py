"""What of a recording is played, and how fast."""

from __future__ import annotations

import pytest

from mqttscope.api.captures import Source
from mqttscope.api.recorded import NothingRecordedError, Wanted, read_pace, read_recorded
from mqttscope.errors import ArgumentError
from mqttscope.replay.rewrite import Moment, RewriteError
from tests.cli.running import capture
from tests.each import each

QOS = capture("v311-qos")


def test_everything_is_played_as_it_was_captured() -> None:
    found = read_recorded(Source([QOS]), Wanted())

    assert sorted(one.name for one in found.scripts) == ["logger", "sensor-1"]
    assert (found.changes, found.left_out, found.alterations, found.truncated) == ([], [], None, False)


def test_parts_are_selected() -> None:
    found = read_recorded(Source([QOS]), Wanted(clients=("sensor-*",)))
    assert [one.name for one in found.scripts] == ["sensor-1"]
    assert found.alterations is not None

    found = read_recorded(Source([QOS], filter="qos == 0"), Wanted())
    kinds = [entry.type for script in found.scripts for entry in script.entries if entry.from_client]
    assert kinds.count("publish") == 1
    assert found.changes

    with pytest.raises(NothingRecordedError, match="no connection can be replayed"):
        read_recorded(Source([QOS]), Wanted(clients=("nobody",)))
    with pytest.raises(RewriteError):
        Moment.parse("yesterday")


def test_what_has_no_beginning_is_left_out_with_the_reason() -> None:
    with pytest.raises(NothingRecordedError, match="the capture does not have its CONNECT"):
        read_recorded(Source([capture("joined-v311")]), Wanted())


@each(
    "pace, found",
    [
        ("recorded", (1.0, False, "recorded")), ("asap", (None, False, "asap")), ("causal", (None, True, "causal")),
        (2, (2.0, False, "2x")), ("0.5x", (0.5, False, "0.5x")), ("3", (3.0, False, "3")),
    ],
)  # fmt: skip
def test_paces(pace: str | float, found: tuple[float | None, bool, str]) -> None:
    made = read_pace(pace)
    assert (made.speed, made.causal, made.text) == found


@each("pace", ["", "fast", 0, -1, float("nan"), float("inf"), "x"])
def test_what_is_no_pace(pace: str | float) -> None:
    with pytest.raises(ArgumentError):
        read_pace(pace)

"""What of a recording is played, and how fast."""

from __future__ import annotations

import pytest

from mqttscope.api.captures import CaptureSelection
from mqttscope.api.recorded import NothingRecordedError, RecordedSelection, read_pace, read_recorded
from mqttscope.errors import ArgumentError
from mqttscope.replay.rewrite import RecordingTime, RewriteError
from tests.cli.running import capture
from tests.each import each

QOS = capture("v311-qos")


def test_everything_is_played_as_it_was_captured() -> None:
    recorded = read_recorded(CaptureSelection([QOS]), RecordedSelection())

    assert sorted(script.name for script in recorded.scripts) == ["logger", "sensor-1"]
    assert (recorded.changes, recorded.left_out, recorded.alterations, recorded.truncated) == ([], [], None, False)


def test_parts_are_selected() -> None:
    recorded = read_recorded(CaptureSelection([QOS]), RecordedSelection(clients=("sensor-*",)))
    assert [script.name for script in recorded.scripts] == ["sensor-1"]
    assert recorded.alterations is not None

    recorded = read_recorded(CaptureSelection([QOS], filter="qos == 0"), RecordedSelection())
    kinds = [entry.type for script in recorded.scripts for entry in script.entries if entry.from_client]
    assert kinds.count("publish") == 1
    assert recorded.changes

    with pytest.raises(NothingRecordedError, match="no connection can be replayed"):
        read_recorded(CaptureSelection([QOS]), RecordedSelection(clients=("nobody",)))
    with pytest.raises(RewriteError):
        RecordingTime.parse("yesterday")


def test_what_has_no_beginning_is_left_out_with_the_reason() -> None:
    with pytest.raises(NothingRecordedError, match="its CONNECT was not captured"):
        read_recorded(CaptureSelection([capture("joined-v311")]), RecordedSelection())


@each(
    "pace, expected",
    [
        ("recorded", (1.0, False, "recorded")), ("asap", (None, False, "asap")), ("causal", (None, True, "causal")),
        (2, (2.0, False, "2x")), ("0.5x", (0.5, False, "0.5x")), ("3", (3.0, False, "3")),
    ],
)  # fmt: skip
def test_paces(pace: str | float, expected: tuple[float | None, bool, str]) -> None:
    new_pace = read_pace(pace)
    assert (new_pace.speed, new_pace.causal, new_pace.text) == expected


@each("pace", ["", "fast", 0, -1, float("nan"), float("inf"), "x"])
def test_what_is_no_pace(pace: str | float) -> None:
    with pytest.raises(ArgumentError):
        read_pace(pace)

"""Intervals without a packet of a server."""

from __future__ import annotations

from mqttscope.explain.hushes import LEAST_HUSH_NS, Hush, Voices
from tests.dissect.talk import SECOND
from tests.each import each

SERVER = "192.0.2.2:1883"


def spoken(*times_s: float) -> Voices:
    voices = Voices()
    for frame, time_s in enumerate(times_s, 1):
        voices.spoke(SERVER, int(time_s * SECOND), frame)
    return voices


@each(
    "at_s, hush",
    [
        (5, Hush(1 * SECOND, 1, 9 * SECOND, 2)),
        (10, None),
        (12, Hush(11 * SECOND, 3, 20 * SECOND)),
    ],
)
def test_the_interval_around_a_time(at_s: int, hush: Hush | None) -> None:
    assert spoken(1, 9, 11).hush(SERVER, at_s * SECOND, 20 * SECOND) == hush


def test_a_packet_that_comes_late_in_the_capture_does_not_move_the_last_one_back() -> None:
    voices = spoken(10, 3)

    assert voices.hush(SERVER, 12 * SECOND, 20 * SECOND) == Hush(10 * SECOND, 1, 20 * SECOND)


def test_an_unknown_server_and_a_short_pause() -> None:
    assert spoken(1).hush("192.0.2.3:1883", SECOND, 90 * SECOND) is None
    assert spoken(1).hush(SERVER, SECOND, SECOND + LEAST_HUSH_NS - 1) is None

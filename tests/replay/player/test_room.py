"""What is kept of a live connection beyond its recording."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Pingresp
from mqttscope.replay.player import room
from mqttscope.replay.player.room import MAX_BEYOND_BYTES, PACKET_BYTES, Room
from tests.replay.player.playing import begun, say
from tests.replay.recordings import connack, connect, conversation, publish


def test_room_is_limited_for_each_connection_and_for_all() -> None:
    made = Room(left=3 * PACKET_BYTES)

    assert made.take(0, b"") == PACKET_BYTES
    assert made.take(MAX_BEYOND_BYTES, b"") == 0
    assert made.take(0, b"x" * PACKET_BYTES) == 2 * PACKET_BYTES
    assert made.take(0, b"") == 0


def test_beyond_the_room_packets_are_counted_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_BEYOND_BYTES", 3 * PACKET_BYTES + 10)
    script = conversation((">", connect()), ("<", connack()), ("<", publish("t", payload=b"1")))
    one = begun(script)
    for _ in range(10):
        say(one, Pingresp())
    say(one, publish("t", payload=b"1"))

    kept = [entry.type for entry in one.live.entries]
    assert kept == ["connect", "connack", *["pingresp"] * 3, "publish"]
    assert one.not_kept == 7


def test_an_acknowledgement_that_is_sent_again_and_again_is_beyond_the_recording(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mqttscope.mqtt import Pubcomp, Pubrec, Pubrel

    monkeypatch.setattr(room, "MAX_BEYOND_BYTES", 4 * PACKET_BYTES + 50)
    script = conversation(
        (">", connect()), ("<", connack()), (">", publish("t", qos=2, packet_identifier=1)),
        ("<", Pubrec(1)), (">", Pubrel(1)), ("<", Pubcomp(1)),
    )  # fmt: skip
    one = begun(script)
    one.perform(0)
    for _ in range(20):
        say(one, Pubrec(1))

    assert len(one.live.entries) <= 2 + 3 + 4
    assert one.not_kept > 20

"""What is kept of a device and of its session, and when it is answered."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Subscription
from mqttscope.replay.live import PACKET_BYTES
from mqttscope.replay.server import connection
from tests.replay.server.desk import HELLO, MESSAGES, Desk


def test_times_are_the_recorded_ones() -> None:
    text = HELLO + "dev > publish a x qos=1 id=1\n+0.5 dev < puback 1\n+2 dev < publish b y"
    desk = Desk(text, speed=2.0)
    device, _ = desk.connect()
    desk.later(1)
    device.heard()
    assert device.say("publish a x qos=1 id=1") == []
    desk.later(0.3)
    assert device.heard() == ["puback id=1"]
    desk.later(0.9)
    assert device.heard() == []
    desk.later(0.2)
    assert device.heard() == ["publish b y qos=0"]


def test_packets_beyond_what_is_kept_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_KEPT_BYTES", 20 * PACKET_BYTES)
    device, _ = Desk(MESSAGES).connect()
    device.say(*["pingreq"] * 50)

    assert len(device.player.live.script.entries) <= 20
    (note,) = [replay_note for replay_note in device.player.live.notes if "not compared" in replay_note.text]
    assert device.player.live.notes[note] == 2 + 100 - len(device.player.live.script.entries)


def test_what_no_answer_is_recorded_of_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_WAITING_BYTES", 10 * PACKET_BYTES)
    monkeypatch.setattr(connection, "MAX_PINGS", 5)
    silent = (
        HELLO + "dev > subscribe 1 t/#:2\ndev > pingreq\ndev < publish t/a one qos=0\ndev > disconnect\ndev > fin\n"
    )
    device, _ = Desk(silent).connect()
    for number in range(1, 100):
        device.say(f"subscribe {number} t/#:2")
    live = device.player.live
    assert len(live._waiting) <= 10
    assert live._waiting_bytes == sum(PACKET_BYTES + len(script_entry.raw) for script_entry in live._waiting.values())


def test_messages_that_are_complete_use_no_room() -> None:
    device, _ = Desk(MESSAGES).connect()
    for number in range(1, 20):
        device.say(f"publish x {'p' * 20} qos=2 id=5")
        assert device.player.device.session.arrived_bytes > 20, number
        device.say("pubrel 5")
        assert device.player.device.session.arrived_bytes == 0


def test_of_many_sessions_those_with_something_in_them_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_SESSIONS", 10)
    sessions = connection.ServerSessions()
    states = [sessions.session_of(f"kept-{number}") for number in range(3)]
    for state in states:
        state.subscriptions["a"] = connection.DeviceSubscription(Subscription("a"), 0)
    for number in range(100):
        sessions.session_of(f"empty-{number}")
    assert [sessions.session_of(f"kept-{number}") for number in range(3)] == states
    assert sessions.forgotten == 0
    assert len(sessions.known) <= 10
    for number in range(100):
        sessions.session_of(f"full-{number}").subscriptions["a"] = connection.DeviceSubscription(Subscription("a"), 0)
    assert len(sessions.known) <= 10
    assert "full-99" in sessions.known

"""Sessions of devices."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Subscription
from mqttscope.replay.server import sessions as module


def test_of_many_sessions_those_with_something_in_them_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SESSIONS", 10)
    sessions = module.ServerSessions()
    kept = sessions.of("kept")
    kept.subscriptions["a"] = module.Subscribed(Subscription("a"), 0)
    for number in range(100):
        sessions.of(f"empty-{number}")
    assert sessions.of("kept") is kept
    assert len(sessions.known) <= 10
    for number in range(100):
        sessions.of(f"full-{number}").subscriptions["a"] = module.Subscribed(Subscription("a"), 0)
    assert len(sessions.known) <= 10
    assert "full-99" in sessions.known

"""Sessions of clients."""

from __future__ import annotations

from mqttscope.replay.player.actions import Sessions, Unfinished
from tests.replay.recordings import connect, conversation, publish


def test_a_client_is_known_by_its_identifier_and_none_by_an_empty_one() -> None:
    sessions = Sessions()

    assert sessions.of("a") is sessions.of("a")
    assert sessions.of("a") is not sessions.of("b")
    assert sessions.of("") is not sessions.of("")


def test_what_is_forgotten() -> None:
    session = Sessions().of("a")
    entry = conversation((">", connect()), (">", publish("t", qos=1, packet_identifier=1))).entries[1]
    session.unfinished.update({1: Unfinished(entry), 2: Unfinished(entry)})
    session.receiving[9] = None
    session.forget([1, 3])

    assert list(session.unfinished) == [2]
    assert not session.receiving
    session.clear()
    assert not session.unfinished

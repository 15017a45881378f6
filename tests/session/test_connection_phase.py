"""The table of phases: complete, and followed by connections at every place."""

from __future__ import annotations

from itertools import product

import pytest

from mqttscope.mqtt import Connack, Disconnect
from mqttscope.session.connection_phase import (
    ACCEPTANCE,
    CONNECT,
    CONNECTED,
    CONNECTING,
    DISCONNECT,
    DISCONNECTED,
    OPENING,
    REFUSAL,
    REFUSED,
    SPECIFIED,
    TRANSITIONS,
    ConnectionPhase,
    ConnectionTrigger,
)
from tests.session.story import Row, Story, connack, connect

PACKETS: dict[ConnectionTrigger, Row] = {
    CONNECT: ("C", connect()),
    ACCEPTANCE: ("S", connack()),
    REFUSAL: ("S", connack(0x87)),
    DISCONNECT: ("C", Disconnect()),
}
WAYS: dict[ConnectionPhase, list[ConnectionTrigger]] = {
    OPENING: [],
    CONNECTING: [CONNECT],
    CONNECTED: [CONNECT, ACCEPTANCE],
    REFUSED: [CONNECT, REFUSAL],
    DISCONNECTED: [CONNECT, ACCEPTANCE, DISCONNECT],
}
LAST = {CONNECT: "connecting", ACCEPTANCE: "connected", REFUSAL: "refused", DISCONNECT: "disconnected"}
"""A passive reader goes by the last packet that changes anything."""


def test_there_is_a_way_from_every_phase_for_every_trigger() -> None:
    assert set(TRANSITIONS) == set(product(ConnectionPhase, ConnectionTrigger))
    assert set(SPECIFIED) < set(TRANSITIONS)


def test_the_specification_leads_to_every_phase() -> None:
    reached, before = {OPENING}, set[ConnectionPhase]()
    while reached != before:
        before = set(reached)
        reached |= {after for (phase, _), after in SPECIFIED.items() if phase in before}
    assert reached == set(ConnectionPhase)


@pytest.mark.parametrize(("phase", "trigger"), TRANSITIONS, ids=" and ".join)
def test_a_connection_follows_the_table(phase: ConnectionPhase, trigger: ConnectionTrigger) -> None:
    story = Story(*(PACKETS[one] for one in WAYS[phase]))
    assert story.connection.phase is phase
    connection = story.tell(PACKETS[trigger])

    assert connection.phase is TRANSITIONS[phase, trigger]
    assert connection.phase.value == LAST[trigger]


def test_the_side_that_sends_is_not_asked() -> None:
    assert Story(("S", connect())).connection.phase is CONNECTING
    assert Story(("C", connect()), ("C", Connack())).connection.phase is CONNECTED
    assert Story(("S", Disconnect())).connection.phase is DISCONNECTED


def test_phases_are_shown_as_their_words() -> None:
    assert [f"{one}" for one in ConnectionPhase] == ["opening", "connecting", "connected", "refused", "disconnected"]

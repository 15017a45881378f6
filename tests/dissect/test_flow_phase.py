"""The table of phases: every way in it is taken, and no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mqttscope.dissect import Dissector
from mqttscope.dissect.flow_phase import (
    IGNORED,
    MQTT,
    SEARCHING,
    TLS,
    TRANSITIONS,
    UNDECIDED,
    WEBSOCKET,
    FlowPhase,
    FlowTrigger,
)
from mqttscope.dissect.flow_state import FlowState
from mqttscope.net.frame import Plaintext
from tests.dissect.scenes import HELLO, HTTP, HTTP_ANSWER, MQTT_HELLO, dialogue_of, opened, websocket
from tests.dissect.talk import CONNACK, PINGREQ, PUBACK_3, PUBLISH_1, START, Talk, connect, read, wire
from tests.net.framing import request, response
from tests.net.hellos import record, server_hello


def gap() -> Talk:
    """Bytes are lost, and packets found after them."""
    talk = opened()
    talk.lose("client", 9)
    talk.client(PUBLISH_1)
    talk.tape.wait(10)
    for _ in range(3):
        talk.client(PINGREQ)
    return talk


def joined() -> Talk:
    """A capture that began later than the connection."""
    talk = Talk()
    for _ in range(2):
        talk.client(PUBLISH_1)
        talk.server(PUBACK_3)
    talk.client(PINGREQ)
    return talk


def said(port: int, *parts: tuple[str, bytes]) -> Callable[[], Talk]:
    """A connection on a port, its bytes given."""

    def talk() -> Talk:
        made = Talk(port=port).handshake()
        for who, data in parts:
            (made.client if who == "C" else made.server)(data)
        made.close()
        return made

    return talk


def ignored_reset() -> Talk:
    """Both sides continue after a reset."""
    talk = opened()
    talk.reset("client")
    for _ in range(3):
        talk.client(PUBLISH_1)
        talk.server(PUBACK_3)
    return talk


CHAT = tuple((who, head.replace(b"mqtt", b"chat")) for who, head in (("C", request()), ("S", response())))
STORIES = {
    "a CONNECT": (opened, [(UNDECIDED, MQTT)]),
    "a capture that began later": (joined, [(UNDECIDED, MQTT), (MQTT, SEARCHING), (SEARCHING, MQTT)]),
    "lost bytes": (gap, [(UNDECIDED, MQTT), (MQTT, SEARCHING), (SEARCHING, MQTT)]),
    "a reset that both sides ignored": (ignored_reset, [(UNDECIDED, MQTT), (UNDECIDED, MQTT)]),
    "a WebSocket": (websocket, [(UNDECIDED, WEBSOCKET)]),
    "a WebSocket for something else": (said(8080, *CHAT), [(UNDECIDED, WEBSOCKET), (WEBSOCKET, IGNORED)]),
    "HTTP that is no WebSocket": (said(9999, ("C", HTTP), ("S", HTTP_ANSWER)), [(UNDECIDED, IGNORED)]),
    "TLS that names MQTT": (said(443, ("C", MQTT_HELLO), ("S", record(22, server_hello()))), [(UNDECIDED, TLS)]),
    "TLS for something else": (
        said(443, ("C", HELLO), ("S", record(22, server_hello()))),
        [(UNDECIDED, TLS), (TLS, IGNORED)],
    ),
}


Moves = list[tuple[FlowPhase, FlowPhase]]


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> Moves:
    """From which phase to which flows went."""
    found: Moves = []
    move = FlowState.move

    def noted(self: FlowState, trigger: FlowTrigger) -> None:
        before = self.phase
        move(self, trigger)
        found.append((before, self.phase))

    monkeypatch.setattr(FlowState, "move", noted)
    return found


@pytest.mark.parametrize(("story", "expected"), STORIES.values(), ids=STORIES)
def test_a_flow_follows_the_table(story: Callable[[], Talk], expected: Moves, moves: Moves) -> None:
    read(story().tape)

    assert moves == expected


def test_every_way_of_the_table_is_taken() -> None:
    assert {way for _, expected in STORIES.values() for way in expected} == {
        (before, after) for (before, _), after in TRANSITIONS.items()
    }
    assert {phase for way in TRANSITIONS.items() for phase in (way[0][0], way[1])} == set(FlowPhase)
    assert {trigger for _, trigger in TRANSITIONS} == set(FlowTrigger)


def test_what_is_decrypted_has_phases_of_its_own(moves: Moves) -> None:
    """Of a flow that seemed to be TLS for something else: it is taken up again, and its inside is MQTT."""
    talk = said(443, ("C", HELLO), ("S", record(22, server_hello())))()
    dissector = Dissector()
    for segment in talk.tape.segments[:-3]:
        list(dissector.feed(segment))
    assert dialogue_of(talk, dissector) is None
    for who, data in (("client", wire(connect())), ("server", wire(CONNACK))):
        list(dissector.plaintext(Plaintext(talk.keys[who], data, 9, START, "a.pcap")))
    dialogue = dialogue_of(talk, dissector)

    assert moves == [(UNDECIDED, TLS), (TLS, IGNORED), (UNDECIDED, TLS), (UNDECIDED, MQTT)]
    assert dialogue is not None
    assert dialogue.inner is not None
    assert (dialogue.phase, dialogue.inner.phase) == (TLS, MQTT)


def test_a_trigger_that_does_not_fit_is_a_fault_of_the_program() -> None:
    entry = Dissector()
    talk = opened()
    for segment in talk.tape.segments:
        list(entry.feed(segment))
    dialogue = dialogue_of(talk, entry)
    assert dialogue is not None

    with pytest.raises(KeyError):
        dialogue.move(FlowTrigger.SPEAKS_TLS)
    assert dialogue.phase is MQTT

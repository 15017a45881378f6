"""Silence until the end of a connection is the client's fault only where something shows that it was still there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mqttscope.mqtt import Connack, Disconnect, ProtocolVersion
from mqttscope.net.segment import RST
from tests.dissect.talk import PUBLISH_1, V3_1_1, V5, Talk, connect
from tests.lint.test_order import findings

MINUTE_AND_A_HALF = 90
TAKEN_OVER, TIMED_OUT = 0x8E, 0x8D


def silent(version: ProtocolVersion = V5) -> Talk:
    """A client that has said all it will say, with a Keep Alive of 60 s, for a minute and a half."""
    talk = Talk().handshake()
    greeting = connect(version.value)
    greeting.keep_alive = 60
    talk.client(greeting, version=version)
    talk.server(Connack(), version=version)
    talk.client(PUBLISH_1, version=version)
    talk.tape.wait(MINUTE_AND_A_HALF)
    return talk


def forgotten(talk: Talk) -> None:
    """A stack that was started again answers what it knows nothing of: a reset without acknowledgment."""
    sequence = talk.position["client"]
    talk.tape.add(talk.keys["client"], sequence, 0, RST, b"", 0)


def nobody(talk: Talk) -> None:
    """Nothing more comes, however often the server repeats itself."""
    for seconds in (0.2, 0.4, 0.8, 1.6):
        talk.tape.wait(seconds)
        talk.position["server"] -= 1
        talk.fin("server")


def stack(talk: Talk) -> None:
    """The stack of the client takes the end."""
    talk.ack("client")


def both(talk: Talk) -> None:
    """The client closes as well."""
    talk.fin("client")


@pytest.mark.parametrize("reason_code", [TAKEN_OVER, TIMED_OUT, None])
@pytest.mark.parametrize(
    ("answer", "there"),
    [(nobody, False), (forgotten, False), (stack, True), (both, True)],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_the_server_ends_the_connection_of_a_silent_client(
    reason_code: int | None, answer: Callable[[Talk], None], *, there: bool
) -> None:
    talk = silent(V3_1_1 if reason_code is None else V5)
    if reason_code is not None:
        talk.server(Disconnect(reason_code=reason_code), version=V5)
    talk.fin("server")
    answer(talk)

    found = findings(talk, "KAL201")

    assert [str(one.confidence) for one in found] == (["certain"] if there else [])


@pytest.mark.parametrize(("acknowledged", "there"), [(True, True), (False, False)])
def test_the_capture_ends_behind_a_disconnect_of_the_server(*, acknowledged: bool, there: bool) -> None:
    talk = silent()
    talk.server(Disconnect(reason_code=TIMED_OUT), version=V5)
    if acknowledged:
        talk.ack("client")

    assert bool(findings(talk, "KAL201")) is there


@pytest.mark.parametrize("version", [V3_1_1, V5])
def test_a_reset_that_answers_a_message_shows_nothing(version: ProtocolVersion) -> None:
    talk = silent(version)
    talk.server(PUBLISH_1, version=version)
    forgotten(talk)

    assert findings(talk, "KAL201") == []


def test_a_message_that_nobody_takes_shows_nothing() -> None:
    talk = silent(V3_1_1)
    talk.server(PUBLISH_1)

    assert findings(talk, "KAL201") == []

    talk.ack("client")

    assert [str(one.confidence) for one in findings(talk, "KAL201")] == ["certain"]


def test_a_reset_of_the_server_alone_leaves_it_likely() -> None:
    talk = silent(V3_1_1)
    talk.reset("server")

    assert [str(one.confidence) for one in findings(talk, "KAL201")] == ["likely"]


def test_a_reset_of_the_server_behind_a_message_that_nobody_took_shows_nothing() -> None:
    talk = silent(V3_1_1)
    talk.server(PUBLISH_1)
    talk.reset("server")

    assert findings(talk, "KAL201") == []

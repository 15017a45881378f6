"""What a rule may take for known of a side: pieces, lost beginnings, late reading, signs of life until the end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.lint.catalogue import all_rules, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding
from mqttscope.mqtt import Connack, Disconnect, Properties, ProtocolVersion, Pubcomp, Publish, Pubrec, Pubrel
from mqttscope.net.segment import RST
from tests.dissect.talk import PINGREQ, PUBLISH_1, V3_1_1, V5, Talk, connect, wire


def findings(talk: Talk, *codes: str) -> list[Finding]:
    """What the rules of these codes find, or all."""
    linter = Linter([usual_rule(rule) for code, rule in all_rules().items() if not codes or code in codes], strict=True)
    return [found for event in dissect_segments(talk.tape.segments) for found in linter.feed(event)]


def test_the_keep_alive_runs_until_a_packet_begins() -> None:
    talk = Talk().handshake()
    greeting = connect()
    greeting.keep_alive = 10
    talk.client(greeting)
    talk.server(Connack())
    raw = wire(Publish(topic_name="a", payload=b"x" * 40))
    for start in range(0, len(raw), 10):
        talk.tape.wait(8)
        talk.client(raw[start : start + 10])
    talk.tape.wait(8)
    talk.client(PINGREQ)
    assert findings(talk, "KAL201") == []

    talk.tape.wait(12)
    talk.client(raw[:5])
    talk.client(raw[5:])
    assert [found.message for found in findings(talk, "KAL201")] == [
        "client was silent for 12.0 s before PUBLISH, its Keep Alive is 10 s"
    ]


def test_who_began_a_packet_before_the_limits_came_is_not_to_blame() -> None:
    talk = Talk().handshake()
    talk.client(connect(5), version=V5)
    raw = wire(Publish(topic_name="a", qos=2, packet_identifier=1, payload=b"x"), version=V5)
    talk.client(raw[:4])
    talk.server(Connack(properties=Properties(maximum_qos=1)), version=V5)
    talk.client(raw[4:])

    assert [found.severity for found in findings(talk, "PUB209")] == ["info"]


def test_who_is_heard_alone_is_not_blamed_for_what_the_other_may_have_said() -> None:
    """The server's direction of a delivery of QoS 2: its PUBREL answers a PUBREC that was not captured."""
    talk = Talk()
    talk.position["client"] += 1
    talk.server_opens()
    talk.lose("client", 20)
    talk.ack("server")
    talk.server(Connack())
    talk.server(Publish(topic_name="a", qos=2, packet_identifier=1, payload=b"x"))
    talk.lose("client", 4)
    talk.ack("server")
    talk.server(Pubrel(1))
    talk.lose("client", 4)
    talk.ack("server")

    assert [found.rule for found in findings(talk) if found.severity == "error"] == []


def test_answers_that_are_read_before_what_waits_behind_a_hole_are_not_wrong() -> None:
    talk = Talk().handshake()
    talk.lose("client", 20)  # the CONNECT
    talk.ack("server")
    talk.server(Connack())
    talk.ack("client")
    for number in range(1, 6):
        talk.server(Publish(topic_name="a", qos=2, packet_identifier=number, payload=b"x"))
        talk.client(Pubrec(number))
        talk.server(Pubrel(number))
        talk.client(Pubcomp(number))
    talk.ack("server")

    assert [found.rule for found in findings(talk) if found.severity == "error"] == []


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

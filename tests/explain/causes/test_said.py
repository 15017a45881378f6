"""Causes that a packet names."""

from __future__ import annotations

import pytest

from mqttscope.explain import Cause, Certainty
from mqttscope.lint.examples import Step, client, closes, make_connect, opened, server
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Connack, Disconnect, Publish
from mqttscope.mqtt.properties import Properties
from tests.explain.running import only

V311 = ProtocolVersion.V3_1_1


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (0x8D, Cause.KEEP_ALIVE),
        (0x8E, Cause.TAKEN_OVER),
        (0x8B, Cause.SERVER_RESTART),
        (0x87, Cause.NOT_AUTHORIZED),
        (0x93, Cause.RECEIVE_MAXIMUM),
        (0x94, Cause.TOPIC_ALIAS),
        (0x95, Cause.PACKET_TOO_LARGE),
        (0x96, Cause.QUOTA_EXCEEDED),
        (0x98, Cause.ADMINISTRATIVE_ACTION),
        (0x9D, Cause.USE_ANOTHER_SERVER),
        (0xA2, Cause.NOT_SUPPORTED),
        (0x80, Cause.SERVER_DISCONNECT),
    ],
)
def test_the_disconnect_of_the_server_is_certain(code: int, cause: Cause) -> None:
    one = only(*opened(), server(Disconnect(reason_code=code)), closes("server"))

    assert (one.cause, one.first.certainty, one.first.reason_code) == (cause, Certainty.CERTAIN, code)
    assert f"0x{code:02X}" in one.first.headline


@pytest.mark.parametrize("code", [0x00, 0x04])
def test_a_goodbye_is_normal_whoever_closes(code: int) -> None:
    for side in ("client", "server"):
        one = only(*opened(), client(Disconnect(reason_code=code)), closes(side, "reset"))
        assert one.cause is Cause.NORMAL


def test_a_client_names_its_reason_too() -> None:
    one = only(*opened(), client(Disconnect(reason_code=0x95)), closes("client"))

    assert one.cause is Cause.PACKET_TOO_LARGE
    assert one.first.headline.startswith("The client ended the connection with 0x95")
    assert only(*opened(), client(Disconnect(reason_code=0x80)), closes("client")).cause is Cause.CLIENT_DISCONNECT


def test_the_arithmetic_of_the_keep_alive_is_told() -> None:
    steps = opened(keep_alive=60, connack=Properties(server_keep_alive=10))
    one = only(*steps, server(Disconnect(reason_code=0x8D), after=15), closes("server"))

    second, first, third, *_ = [told.text for told in one.first.reasons]
    assert first == (
        "Server Keep Alive 10 s in the CONNACK (the CONNECT asked for 60 s): the broker waits 1.5 × 10 s = 15 s for a"
        " packet of the client"
    )
    assert second.startswith("the client's last packet: CONNECT")
    assert third.startswith("the broker ended the connection 15.0")


@pytest.mark.parametrize(
    ("version", "code", "cause"),
    [
        (ProtocolVersion.V5, 0x86, Cause.BAD_CREDENTIALS),
        (ProtocolVersion.V5, 0x8A, Cause.BANNED),
        (ProtocolVersion.V5, 0x80, Cause.CONNECT_REFUSED),
        (V311, 1, Cause.UNSUPPORTED_VERSION),
        (V311, 2, Cause.CLIENT_IDENTIFIER_REJECTED),
        (V311, 3, Cause.SERVER_UNAVAILABLE),
        (V311, 4, Cause.BAD_CREDENTIALS),
        (V311, 5, Cause.NOT_AUTHORIZED),
    ],
)
def test_a_refusal_is_certain(version: ProtocolVersion, code: int, cause: Cause) -> None:
    steps: tuple[Step, ...] = (client(make_connect(version)), server(Connack(reason_code=code)), closes("server"))
    one = only(*steps)

    assert (one.cause, one.first.certainty) == (cause, Certainty.CERTAIN)


def test_a_refusal_says_that_there_were_no_credentials() -> None:
    refused = server(Connack(reason_code=0x87)), closes("server")
    without = only(client(make_connect()), *refused)
    known = only(client(make_connect(user_name="ada", password=b"x")), *refused)

    assert any("no user name" in told.text for told in without.first.reasons)
    assert not any("no user name" in told.text for told in known.first.reasons)


def test_a_connect_without_an_answer() -> None:
    refused = only(client(make_connect()), closes("server", after=2))
    given_up = only(client(make_connect()), closes("client", after=30))

    assert refused.cause is given_up.cause is Cause.NO_CONNACK
    assert refused.first.headline.startswith("The broker closed 2.0")
    assert given_up.first.headline.startswith("The client gave up 30.0")


def test_the_violation_stands_with_the_reason_code() -> None:
    limits = opened(connack=Properties(maximum_qos=1))
    one = only(
        *limits,
        client(Publish(topic_name="a", qos=2, packet_identifier=1)),
        server(Disconnect(reason_code=0x9B)),
        closes("server"),
    )

    assert one.first.broken[0].by == "client"
    assert one.first.broken[0].statements
    assert "Maximum QoS is 1" in one.first.headline


@pytest.mark.parametrize(("version", "code"), [(ProtocolVersion.V5, 0x87), (V311, 5)])
def test_advice_for_a_refused_connect_is_about_credentials(version: ProtocolVersion, code: int) -> None:
    known = make_connect(version, user_name="ada", password=b"x")
    one = only(client(known), server(Connack(reason_code=code)), closes("server"))

    assert "user name, password" in one.first.advice[0]
    assert not any("topic" in told for told in one.first.advice)


def test_before_5_0_a_server_must_not_disconnect() -> None:
    one = only(*opened(V311), server(Disconnect()), closes("server"))

    assert (one.cause, one.first.reason_code) == (Cause.SERVER_DISCONNECT, None)
    assert "a server must not" in one.first.headline
    assert "Granted" not in repr(one)

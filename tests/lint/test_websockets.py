"""Problems of a WebSocket as rules see them."""

from __future__ import annotations

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.events import ConnectionClosed
from mqttscope.lint.examples import client, closes, conversation, make_connect
from mqttscope.lint.rehearsal import segments
from mqttscope.lint.websocket_examples import framed, upgraded
from mqttscope.lint.websockets import NOT_OFFERED, problem, problems
from mqttscope.mqtt.packets import Pingreq
from mqttscope.net.websocket import TEXT
from mqttscope.session.connection import Connection


def connection_of(offered: str | None, selected: str | None, opcode: int = 2) -> Connection:
    captured = segments(
        conversation(
            "one",
            *upgraded(offered, selected),
            client(framed(make_connect())),
            client(framed(Pingreq(), opcode=opcode)),
            closes("client"),
        )
    )
    (closed,) = [event for event in dissect_segments(captured) if isinstance(event, ConnectionClosed)]
    return closed.connection


@pytest.mark.parametrize(
    ("offered", "reason", "detail"),
    [
        (None, "subprotocol_not_offered", "the request offers no subprotocol"),
        ("mqttv3.1", "subprotocol_old", "the request offers mqttv3.1"),
        ("MQTT, chat", "subprotocol_foreign", "the request offers MQTT, 1 other"),
    ],
)
def test_what_the_request_offers_instead_is_told(offered: str | None, reason: str, detail: str) -> None:
    assert problem(connection_of(offered, offered), *NOT_OFFERED) == (reason, detail)


def test_a_good_upgrade_has_no_problems() -> None:
    connection = connection_of("mqttv3.1, mqtt", "mqtt")

    assert problems(connection) == []
    assert problem(connection, *NOT_OFFERED) is None


def test_a_problem_names_its_frame() -> None:
    (text,) = problems(connection_of("mqtt", "mqtt", TEXT))

    assert (text["reason"], text["from_client"], text["frame"]) == ("text_frame", True, 7)


def test_other_transports_have_none() -> None:
    assert problems(Connection(0, "c", "s", "", 1, 0, details={"problems": ["of TLS"]}, transport="tls")) == []

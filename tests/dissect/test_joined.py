"""Flows captured from the middle: version and roles are assumed, with evidence."""

from __future__ import annotations

import pytest

from mqttscope.dissect import Dissector, Options
from mqttscope.events import PacketEvent
from tests.dissect.scenes import HTTP, HTTP_ANSWER, SCENE, Joined, check_scene, dialogue_of
from tests.dissect.talk import V3_1, Talk, only
from tests.net.hellos import record
from tests.tables import cases_of

JOINED = """
3.1.1 on a known port
    1883 | > publish & subscribe; < puback & suback; > pingreq; < pingresp |
    opened tcp; > publish a/b 1; > subscribe 1; < puback 2; < suback 2; > pingreq 3; < pingresp 4;
      closed capture_end by nobody |
    3.1.1 guessed by a PUBLISH that is well formed in 3.1.1 only; .4:50000 to .2:1883; guessed by packet types; opening;
      no handshake
3.1.1 on an unknown port
    9999 | > publish & subscribe; < puback & suback; > pingreq; < pingresp |
    opened tcp; > publish a/b 1; > subscribe 1; < puback 2; < suback 2; > pingreq 3; < pingresp 4;
      closed capture_end by nobody |
    3.1.1 guessed by a PUBLISH that is well formed in 3.1.1 only; .4:50000 to .2:9999; guessed by packet types; opening;
      no handshake
5.0 on a known port
    1883 5.0 |
    > publish t hello topic_alias=1 & subscribe; < suback & pingresp; > pingreq & publish - hello topic_alias=1 |
    opened tcp; > publish t 1; > subscribe 1; < suback 2; < pingresp 2; > pingreq 3; > publish t 3;
      closed capture_end by nobody |
    5.0 guessed by a PUBLISH with well-formed properties; .4:50000 to .2:1883; guessed by packet types; opening;
      no handshake
5.0 on an unknown port
    9999 5.0 |
    > publish t hello topic_alias=1 & subscribe; < suback & pingresp; > pingreq & publish - hello topic_alias=1 |
    opened tcp; > publish t 1; > subscribe 1; < suback 2; < pingresp 2; > pingreq 3; > publish t 3;
      closed capture_end by nobody |
    5.0 guessed by a PUBLISH with well-formed properties; .4:50000 to .2:9999; guessed by packet types; opening;
      no handshake
where the higher port is that of the server, packet types tell
    60000 40000 | > subscribe & pingreq; < suback & pingresp |
    opened tcp; > subscribe 1; > pingreq 1; < suback 2; < pingresp 2; closed capture_end by nobody |
    3.1.1 guessed by a SUBSCRIBE that is well formed in 3.1.1 only; .4:40000 to .2:60000; guessed by packet types;
      opening; no handshake
where packets tell nothing, the port tells who serves
    1883 1200 | > publish; < puback | opened tcp; > publish a/b 1; < puback 2; closed capture_end by nobody |
    3.1.1 guessed by a PUBLISH that is well formed in 3.1.1 only; .4:1200 to .2:1883; guessed by port; opening;
      no handshake
on unknown ports, where packets tell nothing, the higher one is taken for the client
    9999 60000 | > publish; < puback; > publish; < puback; > publish; < puback |
    opened tcp; > publish a/b 1; < puback 2; > publish a/b 3; < puback 4; > publish a/b 5; < puback 6;
      closed capture_end by nobody |
    3.1.1 guessed by a PUBLISH that is well formed in 3.1.1 only; .4:60000 to .2:9999; guessed by higher port; opening;
      no handshake
inside a payload its bytes do not tell who is who
    1883 | < raw 82026e6f742061207061636b657432090003612f6200036f6e32090003612f6200036f6e |
    opened tcp; < unparsed 14 resynchronised 1; < publish a/b 1; < publish a/b 1; closed capture_end by nobody |
    3.1.1 guessed by a PUBLISH that is well formed in 3.1.1 only; .4:50000 to .2:1883; guessed by port; opening;
      server gapped; server waits for 3; no handshake
a CONNECT without handshake says all there is to know
    9999 5.0 | ack client; > connect 5.0; < connack |
    opened tcp; > connect 2; < connack 3; closed capture_end by nobody |
    5.0 by CONNECT; .4:50000 to .2:9999; by CONNECT; connected as dev; no handshake
the first bytes lost, the rest is found on an unknown port
    9999 | handshake; lose client 20; < connack & publish; +3; > puback & pingreq; < pingresp |
    opened tcp; < connack 4; < publish a/b 4; < pingresp 6; > gap 20 not_captured; > puback 6; > pingreq 6;
      closed capture_end by nobody |
    3.1.1 guessed by a CONNACK that is well formed in 3.1.1 only; .4:50000 to .2:9999; by TCP handshake; connected;
      gaps 1 20; client gapped
what a later packet tells of the version overrules what was assumed
    1883 | > subscribe & pingreq; < suback & pingresp; < publish a text |
    opened tcp; > subscribe 1; > pingreq 1; < suback 2; < pingresp 2; < publish a 3; closed capture_end by nobody |
    3.1.1 guessed by a SUBSCRIBE that is well formed in 3.1.1 only; .4:50000 to .2:1883; guessed by packet types;
      opening; no handshake
DISCONNECT by the server does not confuse roles
    1883 5.0 | < disconnect code=0x8b properties; fin server |
    opened tcp; < disconnect 1; ending 2; closed fin by server, disconnected by server |
    5.0 guessed by a DISCONNECT that is well formed in 5.0 only; .4:50000 to .2:1883; guessed by port; disconnected;
      no handshake
packets of both sides come in the order of the frames
    1883 |
    < publish s/x v qos=1 id=95; > puback 95 & publish s/y one & pingreq; > publish s/y two; < pingresp;
      < publish s/y three |
    opened tcp; < publish s/x 1; > puback 2; > publish s/y 2; > pingreq 2; > publish s/y 3; < pingresp 4;
      < publish s/y 5; closed capture_end by nobody |
    3.1.1 guessed by a PUBLISH that is well formed in 3.1.1 only; .4:50000 to .2:1883; guessed by port; opening;
      no handshake
"""


@pytest.mark.parametrize(("setting", "story", "expected", "known"), cases_of(JOINED, *SCENE))
def test_what_is_said_of_it(setting: str, story: str, expected: list[str], known: list[str]) -> None:
    check_scene(setting, story, expected, known)


def test_the_user_says_the_version_of_a_connection_that_was_joined() -> None:
    events = only(Joined.v311(1883).events(Options(version=V3_1)), PacketEvent)

    connection = events[0].connection
    assert (connection.version, connection.version_known, connection.version_evidence) == (V3_1, True, "given")


@pytest.mark.parametrize(
    ("client", "server"),
    [
        pytest.param(b"SSH-2.0-a\r\n" * 3, b"SSH-2.0-b\r\n", id="SSH"),
        pytest.param(record(23, b"x" * 40), record(23, b"y" * 40), id="TLS"),
        pytest.param(HTTP, HTTP_ANSWER, id="HTTP"),
    ],
)
def test_other_protocols_joined_in_the_middle_are_forgotten_at_once(client: bytes, server: bytes) -> None:
    talk = Talk(port=9999)
    dissector = Dissector()
    talk.client(client)
    talk.server(server)

    assert [event for segment in talk.tape.segments for event in dissector.feed(segment)] == []
    assert dialogue_of(talk, dissector) is None

"""MQTT in TLS and in WebSocket: which flows are taken for it, and who is the client."""

from __future__ import annotations

from typing import cast

import pytest

from mqttscope.dissect import Dissector, Options
from mqttscope.events import ConnectionOpened, MalformedEvent, PacketEvent, UnparsedEvent
from tests.dissect.scenes import HELLO, HTTP, HTTP_ANSWER, MASK, MQTT_HELLO, Joined, types
from tests.dissect.talk import (
    CONNACK,
    PINGREQ,
    PINGRESP,
    PUBACK_3,
    PUBLISH_1,
    Talk,
    connect,
    names,
    only,
    publish,
    read,
    wire,
)
from tests.net.framing import frame, request, response
from tests.net.hellos import record, server_hello

UNREADABLE = record(22, b"\x01" + (45).to_bytes(3, "big") + b"\x03\x03" + bytes(42))
"""A hello with a length that is one byte more than its record has."""


@pytest.mark.parametrize(
    ("port", "hello", "late", "listed"),
    [
        pytest.param(8883, HELLO, False, True, id="the port of MQTT over TLS"),
        pytest.param(1883, HELLO, False, True, id="TLS on the port of plain MQTT"),
        pytest.param(443, MQTT_HELLO, False, True, id="ALPN says mqtt"),
        pytest.param(443, HELLO, False, False, id="nothing says MQTT"),
        pytest.param(8443, HELLO, False, True, id="the user names the port"),
        pytest.param(443, MQTT_HELLO, True, True, id="a hello behind its answer is read, ALPN says mqtt"),
        pytest.param(443, HELLO, True, False, id="a hello behind its answer is read, nothing says MQTT"),
        pytest.param(8883, UNREADABLE, False, True, id="a hello that cannot be read, on the port of MQTT over TLS"),
        pytest.param(8443, UNREADABLE, False, True, id="a hello that cannot be read, on a port that the user names"),
        pytest.param(443, UNREADABLE, False, False, id="a hello that cannot be read, on another port"),
    ],
)
def test_tls_that_goes_with_mqtt_is_listed(port: int, hello: bytes, late: bool, listed: bool) -> None:
    talk = Talk(port=port).handshake()
    talk.client(hello)
    talk.server(record(21, b"\x02\x28") if hello is UNREADABLE else record(22, server_hello()))
    if late:
        *before, asked, answered = talk.tape.segments
        talk.tape.segments = [*before, answered, asked]
    talk.client(record(23, b"secret"))
    talk.close()
    dissector = Dissector(Options(ports={8443: "tls"}))

    events = read(talk.tape, dissector=dissector)

    assert names(events) == (["ConnectionOpened", "ConnectionEnding", "ConnectionClosed"] if listed else [])
    assert dissector.other_tls == ({} if listed else {f"192.0.2.2:{port}": 1})
    if listed:
        connection = only(events, ConnectionOpened)[0].connection
        assert connection.transport == "tls"
        assert connection.details["server_name"] == (None if hello is UNREADABLE else "broker.example")
        assert (connection.closed_how, connection.closed_by) == ("fin", "client")
        assert connection.version_known is False


def test_what_the_server_sends_alone_is_no_mqtt_on_another_port() -> None:
    talk = Talk(port=443).handshake()
    talk.server(record(22, server_hello()))
    talk.server(record(23, b"secret"))
    dissector = Dissector()

    assert read(talk.tape, dissector=dissector) == []
    assert dissector.other_tls == {"192.0.2.2:443": 1}


def test_a_client_hello_without_handshake_says_who_the_client_is() -> None:
    talk = Talk(port=60_000, client_port=8883)
    talk.server(MQTT_HELLO)

    connection = only(talk.events(), ConnectionOpened)[0].connection

    assert connection.client == "192.0.2.2:60000"
    assert (connection.roles_known, connection.roles_evidence) == (True, "TLS hello")


def test_tls_joined_in_the_middle_is_listed_on_its_port() -> None:
    talk = Talk(port=8883)
    talk.client(record(23, b"x" * 30))

    (opened,) = only(talk.events(), ConnectionOpened)

    assert (opened.connection.transport, opened.connection.roles_known) == ("tls", False)
    assert opened.connection.server == "192.0.2.2:8883"


def test_plain_mqtt_on_the_port_of_tls_is_read() -> None:
    joined = Joined.v311(8883)

    assert len(types(joined)) == 6


def websocket(talk: Talk, asked: bytes = b"", answered: bytes = b"") -> Talk:
    talk.client(asked or request())
    talk.server(answered or response())
    talk.client(frame(wire(connect()), key=MASK))
    talk.server(frame(wire(CONNACK)))
    return talk


def without(head: bytes) -> bytes:
    return head.replace(b"Sec-WebSocket-Protocol: mqtt\r\n", b"")


ANONYMOUS = without(request()).replace(b"GET /mqtt", b"GET /ws")


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        pytest.param(request(), response(), id="mqtt, asked and answered"),
        pytest.param(
            request().replace(b": mqtt", b": mqttv3.1"), response().replace(b": mqtt", b": mqttv3.1"), id="old"
        ),
        pytest.param(request(), without(response()), id="mqtt asked, nothing selected"),
        pytest.param(without(request()), without(response()), id="no subprotocol, but the path says mqtt"),
        pytest.param(ANONYMOUS, without(response()), id="neither subprotocol nor path, but a CONNECT"),
        pytest.param(
            request().replace(b": mqtt", b": chat"), response().replace(b": mqtt", b": chat"),
            id="another subprotocol, but the path says mqtt",
        ),
        pytest.param(
            ANONYMOUS.replace(b"Host", b"Sec-WebSocket-Protocol: chat\r\nHost"),
            response().replace(b": mqtt", b": chat"), id="another subprotocol, but a CONNECT",
        ),
    ],
)  # fmt: skip
def test_websocket_by_its_names_or_its_first_message(asked: bytes, answered: bytes) -> None:
    talk = websocket(Talk(port=8080).handshake(), asked, answered)
    dissector = Dissector()

    events = read(talk.tape, dissector=dissector)

    assert [event.type for event in only(events, PacketEvent)] == ["connect", "connack"]
    assert dissector.other_flows == 0
    connection = only(events, ConnectionOpened)[0].connection
    assert (connection.transport, connection.roles_known) == ("websocket", True)
    assert connection.details["path"] == ("/ws" if b"/ws" in asked else "/mqtt")
    assert connection.details["host"] == "broker"


def anonymous(*messages: tuple[str, bytes]) -> Talk:
    """A WebSocket that does not name MQTT, with messages of the client (C) and the server (S)."""
    talk = Talk(port=8080).handshake()
    talk.client(ANONYMOUS)
    talk.server(without(response()))
    for who, data in messages:
        if who == "C":
            talk.client(frame(data, key=MASK))
        else:
            talk.server(frame(data))
    talk.close()
    return talk


@pytest.mark.parametrize(
    "messages",
    [
        [("C", b"hello")],
        [("C", wire(connect())[:4]), ("C", b"hello, world")],
        [("C", wire(connect())[:7])],
        [("S", wire(CONNACK)), ("C", wire(connect()))],
        [],
    ],
)
def test_a_websocket_for_something_else(messages: list[tuple[str, bytes]]) -> None:
    dissector = Dissector()

    assert read(anonymous(*messages).tape, dissector=dissector) == []
    assert dissector.other_flows == 1


@pytest.mark.parametrize("at", [1, 2, 5, 8, 20])
def test_a_connect_in_several_frames_of_a_websocket_without_names(at: int) -> None:
    data = wire(connect())
    talk = anonymous(("C", b""), ("C", data[:at]), ("C", data[at:]), ("S", wire(CONNACK)))
    (opened,) = only(read(talk.tape), ConnectionOpened)

    assert types(talk) == ["connect", "connack"]
    assert opened.connection.websocket is not None
    problems = cast(list[dict[str, object]], opened.connection.websocket["problems"])
    assert [problem["reason"] for problem in problems] == ["subprotocol_not_offered", "subprotocol_missing"]


REFUSED = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize(
    ("before", "asked", "answered", "ports"),
    [
        pytest.param(None, ANONYMOUS, without(response()), {8080: "ws"}, id="a port that the user names"),
        pytest.param((HTTP, HTTP_ANSWER), b"", b"", {8080: "ws"}, id="behind plain HTTP on a port that the user names"),
        pytest.param((request(), REFUSED), b"", b"", {}, id="a refused upgrade may be tried again"),
    ],
)
def test_a_websocket_that_is_found(
    before: tuple[bytes, bytes] | None, asked: bytes, answered: bytes, ports: dict[int, str]
) -> None:
    talk = Talk(port=8080).handshake()
    if before:
        talk.client(before[0])
        talk.server(before[1])

    assert types(websocket(talk, asked, answered), Options(ports=ports)) == ["connect", "connack"]


@pytest.mark.parametrize(
    ("asked", "answered", "ports"),
    [
        pytest.param(HTTP, HTTP_ANSWER, {8080: "ws"}, id="plain HTTP on a port named for WebSocket"),
        pytest.param(request().replace(b"mqtt", b"chat"), REFUSED, {}, id="a refused upgrade to something else"),
    ],
)
def test_what_is_no_connection(asked: bytes, answered: bytes, ports: dict[int, str]) -> None:
    talk = Talk(port=8080).handshake()
    talk.client(asked)
    talk.server(answered)
    talk.close()
    dissector = Dissector(Options(ports=ports))

    assert read(talk.tape, dissector=dissector) == []
    assert dissector.other_flows == 1


def test_a_refused_upgrade_to_mqtt_is_a_connection_with_its_status() -> None:
    talk = Talk(port=8080).handshake()
    talk.client(request())
    talk.server(REFUSED.replace(b"401 Unauthorized", b"404 Not Found"))
    talk.close()
    (opened,) = [event for event in read(talk.tape) if isinstance(event, ConnectionOpened)]

    assert (opened.connection.transport, opened.connection.details["status"]) == ("websocket", 404)
    assert opened.connection.client_side.packets == 0


def test_a_status_is_forgotten_if_the_next_upgrade_is_accepted() -> None:
    talk = Talk(port=8080).handshake()
    talk.client(request())
    talk.server(REFUSED)
    opened = next(event for event in read(websocket(talk).tape) if isinstance(event, ConnectionOpened))

    assert "status" not in opened.connection.details


def test_a_websocket_joined_in_the_middle_is_read_on_a_port_that_the_user_names() -> None:
    talk = Talk(port=8080)
    talk.client(frame(wire(PUBLISH_1, PINGREQ), key=MASK))
    talk.server(frame(wire(PUBACK_3, PINGRESP)))

    assert types(talk) == []
    events = talk.events(Options(ports={8080: "ws"}))
    assert sorted(event.type for event in only(events, PacketEvent)) == ["pingreq", "pingresp", "puback", "publish"]
    connection = only(events, ConnectionOpened)[0].connection
    assert (connection.transport, connection.roles_known, connection.server) == ("websocket", False, "192.0.2.2:8080")


def test_a_websocket_without_handshake_but_with_upgrade_is_not_joined() -> None:
    talk = websocket(Talk(port=8080, client_port=80))

    events = only(talk.events(), PacketEvent)

    assert [(event.type, event.frame) for event in events] == [("connect", 3), ("connack", 4)]
    assert events[0].connection.roles_evidence == "HTTP upgrade"


def test_a_websocket_of_which_only_the_client_was_captured_is_read() -> None:
    talk = Talk(port=8080).handshake()
    talk.client(request())
    talk.client(frame(wire(connect(), PINGREQ), key=MASK))

    events = talk.events()

    assert [event.type for event in only(events, PacketEvent)] == ["connect", "pingreq"]
    assert only(events, ConnectionOpened)[0].connection.details["subprotocol"] is None


@pytest.mark.parametrize(("port", "named"), [(1883, "ws"), (8080, "ws"), (9000, "tls")])
@pytest.mark.parametrize("joined", [False, True])
def test_plain_mqtt_on_a_port_named_for_something_else_is_read_and_counted(port: int, named: str, joined: bool) -> None:
    if joined:
        talk = Joined.v311(port)
    else:
        talk = Talk(port=port).handshake().tell("> connect; < connack")
    dissector = Dissector(Options(ports={port: named}))

    events = read(talk.tape, dissector=dissector)

    assert len(only(events, PacketEvent)) == (6 if joined else 2)
    assert dissector.named_otherwise == {(port, named, "mqtt"): 1}


@pytest.mark.parametrize(("port", "named"), [(8080, "ws"), (1883, "mqtt")])
def test_what_is_spoken_as_named_is_not_counted(port: int, named: str) -> None:
    talk = websocket(Talk(port=port).handshake())
    dissector = Dissector(Options(ports={port: named}))

    assert len(only(read(talk.tape, dissector=dissector), PacketEvent)) == 2
    assert dissector.named_otherwise == {}


def test_an_answer_to_the_upgrade_that_comes_late_belongs_to_the_connection() -> None:
    talk = Talk(port=80).handshake()
    talk.client(request())
    answer = response()
    begin = talk.position["server"]
    talk.lose("server", len(answer))
    talk.client(frame(wire(connect()), key=MASK))
    talk.server(frame(wire(CONNACK)))
    for _ in range(20):
        talk.client(frame(wire(publish(payload=bytes(2_000))), key=MASK))
    behind, talk.position["server"] = talk.position["server"], begin
    talk.server(answer)
    talk.position["server"] = behind
    talk.client(frame(wire(PINGREQ), key=MASK))

    (opened,) = only(events := talk.events(), ConnectionOpened)

    assert opened.connection.details["path"] == "/mqtt"
    texts = [event.type for event in only(events, PacketEvent)]
    assert sorted(texts) == ["connack", "connect", "pingreq", *["publish"] * 20]


@pytest.mark.parametrize(
    ("answers", "packets", "unparsed"),
    [
        ([HTTP_ANSWER], 0, [len(HTTP_ANSWER)]),
        ([HTTP_ANSWER, CONNACK], 0, [len(HTTP_ANSWER), 4]),
        ([CONNACK, HTTP_ANSWER], 1, []),
    ],
    ids=["HTTP", "and more", "after MQTT"],
)
def test_an_answer_in_another_protocol_is_not_read_as_packets(
    answers: list[bytes], packets: int, unparsed: list[int]
) -> None:
    talk = Talk().handshake()
    talk.client(connect())
    for answer in answers:
        talk.server(answer)
    events = talk.events()
    left = only(events, UnparsedEvent)

    assert sum(event.direction.name == "SERVER_TO_CLIENT" for event in only(events, PacketEvent)) == packets
    assert [event.unparsed.length for event in left if event.unparsed.reason == "not_mqtt"] == unparsed


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-a\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"])
def test_a_client_of_another_protocol_is_not_read_as_packets(sent: bytes) -> None:
    talk = Talk().handshake()
    talk.client(sent)
    talk.client(sent)
    talk.server(HTTP_ANSWER)
    talk.close()
    events = talk.events()

    assert not only(events, MalformedEvent)
    assert [(event.unparsed.reason, event.unparsed.length) for event in only(events, UnparsedEvent)] == [
        ("not_mqtt", len(sent)), ("not_mqtt", len(sent)), ("not_mqtt", len(HTTP_ANSWER)),
    ]  # fmt: skip


def test_text_of_a_client_that_has_sent_packets_is_malformed() -> None:
    talk = Talk().handshake()
    talk.client(connect())
    talk.server(CONNACK)
    talk.client(b"GET / HTTP/1.1\r\n\r\n")
    talk.close()

    assert not [event for event in only(talk.events(), UnparsedEvent) if event.unparsed.reason == "not_mqtt"]

"""What a flow is taken for, who is its client, and which version it speaks."""

from __future__ import annotations

import pytest

from mqttscope.dissect import Dissector, Options
from mqttscope.dissect.dialogue import LOOKS, MAX_UNDECIDED_BYTES, NOTHING, UNDECIDED, Dialogue
from mqttscope.events import ConnectionOpened, GapEvent, MalformedEvent, PacketEvent
from mqttscope.mqtt import Disconnect, Properties, Publish
from tests.dissect.talk import (
    CONNACK,
    PINGREQ,
    PINGRESP,
    PUBACK_3,
    PUBLISH_1,
    SUBACK,
    SUBACK_5,
    SUBSCRIBE,
    SUBSCRIBE_5,
    V3_1,
    V3_1_1,
    V5,
    Talk,
    connect,
    names,
    only,
    publish,
    read,
    wire,
)
from tests.net.framing import frame, request, response
from tests.net.hellos import ALPN_OFFER, SNI, VERSIONS, client_hello, record, server_hello

MASK = b"\x01\x02\x03\x04"
HELLO = record(22, client_hello(SNI, VERSIONS))
MQTT_HELLO = record(22, client_hello(SNI, ALPN_OFFER, VERSIONS))
HTTP = b"GET /index.html HTTP/1.1\r\nHost: a\r\n\r\n"
HTTP_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def dialogue_of(talk: Talk, dissector: Dissector) -> Dialogue | None:
    entry = dissector.flows.direction(talk.keys["client"])
    assert entry is not None
    context = entry[0].context
    assert context is None or isinstance(context, Dialogue)
    return context


def types(talk: Talk, options: Options | None = None) -> list[str]:
    return [event.type for event in only(talk.events(options), PacketEvent)]


@pytest.mark.parametrize("port", [1883, 1884, 80, 443, 8883, 22], ids=lambda port: f"port {port}")
@pytest.mark.parametrize(
    ("level", "version"), [(3, V3_1), (4, V3_1_1), (5, V5)], ids=["MQTT 3.1", "MQTT 3.1.1", "MQTT 5.0"]
)
def test_a_connect_is_mqtt_on_any_port(port: int, level: int, version: object) -> None:
    talk = Talk(port=port).handshake()
    talk.client(connect(level))
    talk.server(CONNACK)

    events = talk.events()

    assert names(events)[0] == "ConnectionOpened"
    connection = only(events, PacketEvent)[0].connection
    assert (connection.version, connection.version_known, connection.version_evidence) == (version, True, "CONNECT")
    assert (connection.client, connection.server) == ("192.0.2.4:50000", f"192.0.2.2:{port}")
    assert (connection.roles_known, connection.roles_evidence) == (True, "TCP handshake")
    assert (connection.handshake_seen, connection.transport, connection.frame) == (True, "tcp", 1)


def test_a_connect_byte_by_byte_is_mqtt_on_any_port() -> None:
    talk = Talk(port=9999).handshake()
    raw = wire(connect(5))
    for at in range(len(raw)):
        talk.client(raw[at : at + 1])

    (event,) = only(talk.events(), PacketEvent)

    assert (event.type, event.frame) == ("connect", 3 + len(raw))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param({}, [], id="an unknown port is not read"),
        pytest.param({4000: "mqtt"}, ["publish"], id="a port that the user names is read"),
        pytest.param({50_000: "mqtt"}, ["publish"], id="the client's port may be the one named"),
    ],
)
def test_without_connect_the_port_decides(said: dict[int, str], expected: list[str]) -> None:
    talk = Talk(port=4000).handshake()
    talk.client(PUBLISH_1)

    assert types(talk, Options(ports=said)) == expected


def test_on_the_port_of_mqtt_what_is_no_connect_is_read_as_mqtt() -> None:
    talk = Talk().handshake()
    talk.client(PUBLISH_1)
    talk.server(PUBACK_3)

    events = talk.events()

    assert [event.type for event in only(events, PacketEvent)] == ["publish", "puback"]
    assert only(events, ConnectionOpened)[0].connection.roles_known


def test_without_detection_only_named_and_well_known_ports_are_looked_at() -> None:
    options = Options(ports={7000: "mqtt"}, detect=False)
    found = {}
    for port in (1883, 7000, 9999):
        talk = Talk(port=port).handshake()
        talk.client(connect())
        found[port] = types(talk, options)

    assert found == {1883: ["connect"], 7000: ["connect"], 9999: []}


def test_the_side_that_sends_connect_is_the_client_whoever_opened_the_connection() -> None:
    talk = Talk(port=7777).handshake()
    talk.server(connect())
    talk.client(CONNACK)

    events = only(talk.events(), PacketEvent)

    connection = events[0].connection
    assert (connection.client, connection.server) == ("192.0.2.2:7777", "192.0.2.4:50000")
    assert (connection.roles_known, connection.roles_evidence) == (True, "CONNECT")
    assert [event.direction for event in events] == ["client_to_server", "server_to_client"]


class Joined:
    """Conversations that begin in the middle: no handshake, no CONNECT."""

    @staticmethod
    def v311(port: int) -> Talk:
        talk = Talk(port=port)
        talk.client(PUBLISH_1, SUBSCRIBE)
        talk.server(PUBACK_3, SUBACK)
        talk.client(PINGREQ)
        talk.server(PINGRESP)
        return talk

    @staticmethod
    def v5(port: int) -> Talk:
        talk = Talk(port=port)
        talk.client(publish("t", topic_alias=1), SUBSCRIBE_5, version=V5)
        talk.server(SUBACK_5, PINGRESP, version=V5)
        talk.client(PINGREQ, publish("", topic_alias=1), version=V5)
        return talk


@pytest.mark.parametrize("port", [1883, 9999], ids=["a known port", "an unknown port"])
@pytest.mark.parametrize(
    ("begin", "version", "evidence", "packets"),
    [
        pytest.param(
            Joined.v311, V3_1_1, "well formed in 3.1.1 only",
            ["publish", "subscribe", "puback", "suback", "pingreq", "pingresp"], id="3.1.1",
        ),
        pytest.param(
            Joined.v5, V5, "a PUBLISH with well-formed properties",
            ["publish", "subscribe", "suback", "pingresp", "pingreq", "publish"], id="5.0",
        ),
    ],
)  # fmt: skip
def test_joined_in_the_middle_version_and_roles_are_assumed_with_evidence(
    port: int, begin: object, version: object, evidence: str, packets: list[str]
) -> None:
    events = only(begin(port).events(), PacketEvent)  # type: ignore[operator]

    assert sorted(event.type for event in events) == sorted(packets)
    connection = events[0].connection
    assert (connection.version, connection.version_known) == (version, False)
    assert connection.version_evidence.endswith(evidence)
    assert (connection.roles_known, connection.roles_evidence) == (False, "packet types")
    assert (connection.client, connection.server) == ("192.0.2.4:50000", f"192.0.2.2:{port}")
    assert connection.handshake_seen is False


def test_joined_with_the_higher_port_as_server_packet_types_tell() -> None:
    talk = Talk(port=60_000, client_port=40_000)
    talk.client(SUBSCRIBE, PINGREQ)
    talk.server(SUBACK, PINGRESP)

    connection = only(talk.events(), PacketEvent)[0].connection

    assert (connection.client, connection.server) == ("192.0.2.4:40000", "192.0.2.2:60000")
    assert (connection.roles_known, connection.roles_evidence) == (False, "packet types")


def test_joined_where_packets_tell_nothing_the_port_tells_who_serves() -> None:
    talk = Talk(port=1883, client_port=1200)
    talk.client(PUBLISH_1)
    talk.server(PUBACK_3)

    connection = only(talk.events(), ConnectionOpened)[0].connection

    assert (connection.client, connection.server) == ("192.0.2.4:1200", "192.0.2.2:1883")
    assert (connection.roles_known, connection.roles_evidence) == (False, "port")


def test_joined_inside_a_payload_its_bytes_do_not_tell_who_is_who() -> None:
    talk = Talk(port=1883)
    talk.server(b"\x82\x02not a packet" + wire(PUBLISH_1, PUBLISH_1))

    connection = only(talk.events(), ConnectionOpened)[0].connection

    assert (connection.server, connection.roles_evidence) == ("192.0.2.2:1883", "port")


def test_a_connect_without_handshake_says_all_there_is_to_know() -> None:
    talk = Talk(port=9999)
    talk.ack("client")
    talk.client(connect(5))
    talk.server(CONNACK, version=V5)

    events = only(talk.events(), PacketEvent)

    assert [(event.type, event.frame) for event in events] == [("connect", 2), ("connack", 3)]
    connection = events[0].connection
    assert (connection.roles_known, connection.roles_evidence, connection.handshake_seen) == (True, "CONNECT", False)


def test_the_first_bytes_lost_the_rest_is_found_on_an_unknown_port() -> None:
    talk = Talk(port=9999).handshake()
    talk.lose("client", 20)
    talk.server(CONNACK, PUBLISH_1)
    talk.tape.wait(3)
    talk.client(PUBACK_3, PINGREQ)
    talk.server(PINGRESP)

    events = talk.events()

    assert [event.length for event in only(events, GapEvent)] == [20]
    assert [event.type for event in only(events, PacketEvent) if event.direction == "client_to_server"] == [
        "puback",
        "pingreq",
    ]
    assert len(only(events, PacketEvent)) == 5
    connection = only(events, ConnectionOpened)[0].connection
    assert connection.roles_evidence == "TCP handshake"
    assert connection.client_side.gapped
    assert not connection.server_side.gapped


def test_the_user_says_the_version_of_a_connection_that_was_joined() -> None:
    events = only(Joined.v311(1883).events(Options(version=V3_1)), PacketEvent)

    connection = events[0].connection
    assert (connection.version, connection.version_known, connection.version_evidence) == (V3_1, True, "given")


def test_a_connect_overrules_the_version_that_the_user_said() -> None:
    talk = Talk().handshake()
    talk.client(connect(5))
    talk.server(CONNACK, version=V5)

    events = only(talk.events(Options(version=V3_1_1)), PacketEvent)

    assert [event.type for event in events] == ["connect", "connack"]
    assert events[0].connection.version is V5
    assert events[0].connection.version_evidence == "CONNECT"


def test_what_a_later_packet_tells_of_the_version_overrules_what_was_assumed() -> None:
    talk = Talk()
    talk.client(SUBSCRIBE, PINGREQ)
    talk.server(SUBACK, PINGRESP)
    talk.server(Publish(topic_name="a", payload=b"text"))

    connection = only(talk.events(), PacketEvent)[0].connection

    assert (connection.version, connection.version_known) == (V3_1_1, False)


def test_a_connect_that_breaks_off_inside_still_says_the_version() -> None:
    talk = Talk().handshake()
    raw = wire(connect(5, "dev"))
    overrun = raw[:-5] + b"\0\x20dev"
    talk.client(overrun)
    talk.server(b"\x20\x03\0\x81\0")

    events = talk.events()

    (bad,) = only(events, MalformedEvent)
    (good,) = only(events, PacketEvent)
    assert (bad.type, bad.malformed.complete) == ("connect", False)
    assert (good.type, good.connection.version, good.connection.version_known) == ("connack", V5, True)


def test_a_connect_of_an_unknown_level_leaves_the_version_open_for_the_answer() -> None:
    talk = Talk().handshake()
    talk.client(connect(6))
    talk.server(b"\x20\x03\0\x84\0")

    events = talk.events()

    assert only(events, MalformedEvent)[0].malformed.reason == "protocol_version_unknown"
    connack = only(events, PacketEvent)[0]
    assert (connack.type, connack.connection.version, connack.connection.version_known) == ("connack", V5, False)
    assert connack.connection.version_evidence == "a CONNACK that is well formed in 5.0 only"


@pytest.mark.parametrize("port", [21, 22, 25, 80, 443, 9999], ids=lambda port: f"port {port}")
@pytest.mark.parametrize(
    ("client", "server"),
    [
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", b"SSH-2.0-OpenSSH_9.2\r\n", id="SSH"),
        pytest.param(HTTP, HTTP_ANSWER, id="HTTP"),
        pytest.param(HELLO, record(22, server_hello()), id="TLS"),
        pytest.param(b"EHLO a\r\n", b"220 mail ESMTP\r\n", id="SMTP"),
        pytest.param(b"\0\0\0\x55\xffSMB", b"\0\0\0\x55\xffSMB", id="SMB"),
    ],
)
@pytest.mark.parametrize("first", ["client", "server"], ids=["client first", "server first"])
def test_other_protocols_are_ignored_and_forgotten_at_once(port: int, client: bytes, server: bytes, first: str) -> None:
    talk = Talk(port=port).handshake()
    dissector = Dissector()
    if first == "client":
        talk.client(client)
        talk.server(server)
    else:
        talk.server(server)
        talk.client(client)

    events = [event for segment in talk.tape.segments for event in dissector.feed(segment)]

    assert events == []
    assert dialogue_of(talk, dissector) is None
    assert dissector.other_flows == 1
    assert (dissector.connections, dissector.packets) == (0, 0)


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


def test_a_server_that_only_sends_is_given_up_at_the_limit() -> None:
    talk = Talk(port=9999).handshake()
    dissector = Dissector()
    for _ in range(20):
        talk.server(b"x" * 1000)
    kept = []
    for segment in talk.tape.segments:
        list(dissector.feed(segment))
        dialogue = dialogue_of(talk, dissector)
        kept.append(-1 if dialogue is None else dialogue.waiting_bytes)

    assert kept[-1] == -1
    assert 1000 < max(kept) < MAX_UNDECIDED_BYTES


def test_tiny_pieces_and_gaps_are_bounded_while_nothing_is_decided() -> None:
    pieces, gaps = Talk(port=9999).handshake(), Talk(port=9999).handshake()
    for _ in range(2000):
        pieces.server(b"x")
        gaps.server(b"", missing=1000)
    most = {}
    for name, talk in (("pieces", pieces), ("gaps", gaps)):
        dissector = Dissector()
        most[name] = 0
        for segment in talk.tape.segments:
            list(dissector.feed(segment))
            dialogue = dialogue_of(talk, dissector)
            most[name] = max(most[name], len(dialogue.waiting) if dialogue else 0)
        assert dialogue_of(talk, dissector) is None

    assert 200 < most["pieces"] < 1000
    assert 10 < most["gaps"] < 100


def test_a_long_undecided_beginning_is_not_looked_at_again_for_every_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    decide = Dialogue._decide

    def counting(self: Dialogue, options: Options, *, final: bool = False) -> None:
        nonlocal looks
        looks += 1
        decide(self, options, final=final)

    monkeypatch.setattr(Dialogue, "_decide", counting)
    talk = Talk(port=9999).handshake()
    for _ in range(900):
        talk.server(b"x")
    dissector = Dissector()
    for segment in talk.tape.segments:
        list(dissector.feed(segment))

    dialogue = dialogue_of(talk, dissector)
    assert dialogue is not None
    assert dialogue.phase == UNDECIDED
    assert LOOKS <= looks < LOOKS + 20


def test_headers_alone_on_the_port_of_mqtt_are_a_connection_full_of_gaps() -> None:
    talk = Talk().handshake()
    for _ in range(100):
        talk.client(b"", missing=50)
    talk.close()

    events = talk.events()

    assert sum(event.length for event in only(events, GapEvent)) == 5000
    assert names(events).count("ConnectionOpened") == names(events).count("ConnectionClosed") == 1
    assert not only(events, PacketEvent)


@pytest.mark.parametrize(
    ("port", "hello", "listed"),
    [
        pytest.param(8883, HELLO, True, id="the port of MQTT over TLS"),
        pytest.param(1883, HELLO, True, id="TLS on the port of plain MQTT"),
        pytest.param(443, MQTT_HELLO, True, id="ALPN says mqtt"),
        pytest.param(443, HELLO, False, id="nothing says MQTT"),
        pytest.param(8443, HELLO, True, id="the user names the port"),
    ],
)
def test_tls_that_goes_with_mqtt_is_listed(port: int, hello: bytes, listed: bool) -> None:
    talk = Talk(port=port).handshake()
    talk.client(hello)
    talk.server(record(22, server_hello()))
    talk.client(record(23, b"secret"))
    talk.close()
    dissector = Dissector(Options(ports={8443: "tls"}))

    events = read(talk.tape, dissector=dissector)

    assert names(events) == (["ConnectionOpened", "ConnectionClosed"] if listed else [])
    assert dissector.other_tls == ({} if listed else {f"192.0.2.2:{port}": 1})
    if listed:
        connection = only(events, ConnectionOpened)[0].connection
        assert connection.transport == "tls"
        assert connection.details["server_name"] == "broker.example"
        assert (connection.closed_how, connection.closed_by) == ("fin", "client")
        assert connection.version_known is False


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
    ("asked", "answered", "found"),
    [
        pytest.param(request(), response(), True, id="mqtt, asked and answered"),
        pytest.param(
            request().replace(b": mqtt", b": mqttv3.1"), response().replace(b": mqtt", b": mqttv3.1"), True, id="old"
        ),
        pytest.param(request(), without(response()), True, id="mqtt asked, nothing selected"),
        pytest.param(without(request()), without(response()), True, id="no subprotocol, but the path says mqtt"),
        pytest.param(ANONYMOUS, without(response()), False, id="neither subprotocol nor path"),
        pytest.param(
            request().replace(b": mqtt", b": chat"), response().replace(b": mqtt", b": chat"), True,
            id="another subprotocol, but the path says mqtt",
        ),
        pytest.param(
            ANONYMOUS.replace(b"Host", b"Sec-WebSocket-Protocol: chat\r\nHost"),
            response().replace(b": mqtt", b": chat"), False, id="another subprotocol",
        ),
    ],
)  # fmt: skip
def test_websocket_by_its_names(asked: bytes, answered: bytes, found: bool) -> None:
    talk = websocket(Talk(port=8080).handshake(), asked, answered)
    dissector = Dissector()

    events = read(talk.tape, dissector=dissector)

    assert [event.type for event in only(events, PacketEvent)] == (["connect", "connack"] if found else [])
    assert dissector.other_flows == (0 if found else 1)
    if found:
        connection = only(events, ConnectionOpened)[0].connection
        assert (connection.transport, connection.roles_known) == ("websocket", True)
        assert connection.details["path"] == "/mqtt"
        assert connection.details["host"] == "broker"


def test_a_websocket_on_a_port_that_the_user_names_needs_no_names() -> None:
    talk = websocket(Talk(port=8080).handshake(), ANONYMOUS, without(response()))

    assert types(talk, Options(ports={8080: "ws"})) == ["connect", "connack"]


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


def test_plain_http_on_a_port_named_for_websocket_is_no_connection() -> None:
    talk = Talk(port=8080).handshake()
    talk.client(HTTP)
    talk.server(HTTP_ANSWER)
    talk.close()

    assert talk.events(Options(ports={8080: "ws"})) == []


def test_a_websocket_behind_plain_http_is_found_on_a_port_that_the_user_names() -> None:
    talk = Talk(port=8080).handshake()
    talk.client(HTTP)
    talk.server(HTTP_ANSWER)

    assert types(websocket(talk), Options(ports={8080: "ws"})) == ["connect", "connack"]


def test_a_refused_upgrade_may_be_tried_again() -> None:
    talk = Talk(port=8080).handshake()
    talk.client(request())
    talk.server(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")

    assert types(websocket(talk)) == ["connect", "connack"]


def test_a_refused_upgrade_is_another_flow() -> None:
    talk = Talk(port=8080).handshake()
    talk.client(request())
    talk.server(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
    talk.close()
    dissector = Dissector()

    assert read(talk.tape, dissector=dissector) == []
    assert dissector.other_flows == 1


def test_a_websocket_of_which_only_the_client_was_captured_is_read() -> None:
    talk = Talk(port=8080).handshake()
    talk.client(request())
    talk.client(frame(wire(connect(), PINGREQ), key=MASK))

    events = talk.events()

    assert [event.type for event in only(events, PacketEvent)] == ["connect", "pingreq"]
    assert only(events, ConnectionOpened)[0].connection.details["subprotocol"] is None


@pytest.mark.parametrize(
    ("said", "packets"),
    [("mqtt", ["publish", "puback"]), ("ws", []), ("tls", [])],
    ids=["read as MQTT", "read as WebSocket", "listed as TLS"],
)
def test_the_user_may_say_what_a_port_speaks(said: str, packets: list[str]) -> None:
    talk = Talk(port=5000).handshake()
    talk.client(PUBLISH_1)
    talk.server(PUBACK_3)

    events = talk.events(Options(ports={5000: said}))

    assert [event.type for event in only(events, PacketEvent)] == packets


def test_undecided_beginnings_are_decided_by_the_end_of_the_capture() -> None:
    known, unknown = Talk().handshake(), Talk(port=9999).handshake()
    for talk in (known, unknown):
        talk.client(b"\x10\x0c\0\x04MQ")

    assert names(known.events()) == ["ConnectionOpened", "UnparsedEvent", "ConnectionClosed"]
    assert names(unknown.events()) == []


def test_the_end_of_the_initiators_stream_decides_too() -> None:
    talk = Talk().handshake()
    talk.client(b"\x10\x0c\0\x04MQ")
    talk.fin("client")

    events = talk.events()

    (bad,) = only(events, MalformedEvent)
    assert (bad.malformed.reason, bad.frame) == ("truncated", 5)


def test_a_flow_without_any_data_is_nothing() -> None:
    talk = Talk(port=9999).handshake()
    talk.close()
    dissector = Dissector()

    assert read(talk.tape, dissector=dissector) == []
    assert dissector.other_flows == 1
    assert NOTHING == "ignored"


def test_disconnect_by_the_server_does_not_confuse_roles_of_a_joined_connection() -> None:
    talk = Talk()
    talk.server(Disconnect(0x8B, Properties()), version=V5)
    talk.fin("server")

    (event,) = only(talk.events(), PacketEvent)

    assert (event.type, event.direction, event.connection.version) == ("disconnect", "server_to_client", V5)

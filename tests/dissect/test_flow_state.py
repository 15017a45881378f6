"""Protocol, client and version of a flow, and its phases."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mqttscope.dissect import Dissector, Options
from mqttscope.dissect.flow_state import (
    IGNORED,
    LOOKS,
    MAX_UNDECIDED_BYTES,
    MQTT,
    SEARCHING,
    TLS,
    TRANSITIONS,
    UNDECIDED,
    WEBSOCKET,
    FlowPhase,
    FlowState,
    FlowTrigger,
    begins_with_packet,
    client_speaks,
    looks_like_mqtt,
    may_start_packet,
    starts_with_connect,
)
from mqttscope.events import ConnectionOpened, GapEvent, MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.mqtt import Auth, Disconnect, Unsuback, Unsubscribe
from mqttscope.net.frame import Plaintext
from tests.dissect.scenes import (
    HELLO,
    HTTP,
    HTTP_ANSWER,
    MQTT_HELLO,
    SCENE,
    check_scene,
    dialogue_of,
    opened,
    types,
    websocket,
)
from tests.dissect.talk import (
    CONNACK,
    PINGREQ,
    PINGRESP,
    PUBACK_3,
    PUBLISH_1,
    START,
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
from tests.each import each
from tests.mqtt.octets import framed, string
from tests.net.framing import request, response
from tests.net.hellos import record, server_hello
from tests.net.test_proxy_protocol import BINARY, LOCAL, TEXT
from tests.tables import cases_of

LONG = "x" * 20_000


@pytest.mark.parametrize(
    ("head", "answer"),
    [
        pytest.param(b"", None, id="nothing yet"),
        pytest.param(b"\x10", None, id="one byte"),
        pytest.param(b"\x10\x0c\0\x04MQ", None, id="half of the name"),
        pytest.param(b"\x10\x0c\0\x06MQIs", None, id="half of the old name"),
        pytest.param(b"\x10\x8c", None, id="half of the length"),
        pytest.param(b"\x10\x0c\0\x04MQTT", True, id="the name"),
        pytest.param(wire(connect(3)), True, id="3.1"),
        pytest.param(wire(connect(4)), True, id="3.1.1"),
        pytest.param(wire(connect(5)), True, id="5.0"),
        pytest.param(wire(connect(5, LONG)), True, id="a length of three bytes"),
        pytest.param(framed(0x1F, string("MQTT"), b"\x04"), True, id="wrong flags"),
        pytest.param(framed(0x10, string("mqtt"), b"\x04"), True, id="a name in lower case"),
        pytest.param(b"\x10\xff\xff\xff\x7f\0\x04MQTT", True, id="a length of four bytes"),
        pytest.param(b"\x10\x0c\0\x04HTTP", False, id="another name"),
        pytest.param(b"\x10\x0c\0\x05MQTT", False, id="a wrong length of the name"),
        pytest.param(wire(PUBLISH_1), False, id="PUBLISH"),
        pytest.param(b"GET / HTTP/1.1\r\n", False, id="HTTP"),
        pytest.param(b"SSH-2.0-x\r\n", False, id="SSH"),
        pytest.param(b"\x16\x03\x01\0\xc8\x01", False, id="TLS"),
    ],
)
def test_starts_with_connect(head: bytes, answer: bool | None) -> None:
    assert starts_with_connect(head) is answer


def test_no_prefix_of_a_connect_is_refused_and_more_bytes_change_no_answer() -> None:
    for level in (3, 4, 5):
        whole = wire(connect(level, LONG))
        answers = [starts_with_connect(whole[:length]) for length in range(16)]

        assert False not in answers
        assert answers == sorted(answers, key=bool)
        assert answers[-1] is True


@pytest.mark.parametrize(
    ("first", "second", "answer"),
    [
        pytest.param(wire(PUBLISH_1, PUBLISH_1), wire(PUBACK_3), True, id="two packets answered by one"),
        pytest.param(wire(PINGREQ), wire(PINGRESP, PINGRESP), True, id="the server shows two"),
        pytest.param(wire(SUBSCRIBE_5, PINGREQ, version=V5), wire(SUBACK_5, version=V5), True, id="5.0"),
        pytest.param(wire(PUBLISH_1), wire(PUBACK_3), False, id="one packet each may be chance"),
        pytest.param(wire(PUBLISH_1, PUBLISH_1), b"", False, id="one direction alone"),
        pytest.param(b"", b"", False, id="nothing"),
        pytest.param(wire(PUBLISH_1, PUBLISH_1), b"HTTP/1.1 200 OK\r\n", False, id="answered by something else"),
        pytest.param(b"0" * 100, b"0" * 100, False, id="text that looks like PUBLISH"),
        pytest.param(b"\0" * 100, b"\0" * 100, False, id="zeros"),
        pytest.param(b"SSH-2.0-a\r\n", b"SSH-2.0-b\r\n", False, id="SSH"),
        pytest.param(
            wire(PUBLISH_1, PUBLISH_1)[:-1], wire(PUBACK_3), False, id="the second packet is not complete yet"
        ),
    ],
)
def test_looks_like_mqtt(first: bytes, second: bytes, answer: bool) -> None:
    assert looks_like_mqtt(first, second) is answer


@pytest.mark.parametrize(
    ("head", "begins", "may"),
    [
        pytest.param(b"", False, True, id="nothing"),
        pytest.param(wire(PUBLISH_1), True, True, id="a packet"),
        pytest.param(wire(PUBLISH_1)[:5], False, True, id="a part of one"),
        pytest.param(b"\x30", False, True, id="its first byte"),
        pytest.param(b"HTTP/1.1", False, False, id="HTTP"),
        pytest.param(b"SSH-2.0", False, False, id="SSH"),
        pytest.param(b"\x17\x03\x03\0\x20", False, False, id="a TLS record"),
        pytest.param(b"\0\0\0\0", False, False, id="zeros"),
        pytest.param(wire(Auth(0x18), version=V5), True, True, id="AUTH exists in 5.0"),
    ],
)
def test_whether_a_packet_begins(head: bytes, begins: bool, may: bool) -> None:
    assert (begins_with_packet(head), may_start_packet(head)) == (begins, may)


@pytest.mark.parametrize(
    ("head", "client"),
    [
        pytest.param(wire(connect()), True, id="CONNECT"),
        pytest.param(wire(SUBSCRIBE), True, id="SUBSCRIBE"),
        pytest.param(wire(Unsubscribe(1, topic_filters=["a"])), True, id="UNSUBSCRIBE"),
        pytest.param(wire(PINGREQ), True, id="PINGREQ"),
        pytest.param(wire(CONNACK), False, id="CONNACK"),
        pytest.param(wire(SUBACK), False, id="SUBACK"),
        pytest.param(wire(Unsuback(1)), False, id="UNSUBACK"),
        pytest.param(wire(PINGRESP), False, id="PINGRESP"),
        pytest.param(wire(PUBLISH_1, PUBACK_3), None, id="PUBLISH and PUBACK go both ways"),
        pytest.param(wire(Disconnect(), version=V5), None, id="DISCONNECT goes both ways in 5.0"),
        pytest.param(wire(PUBLISH_1, publish(payload=LONG.encode()), PINGREQ), True, id="after long packets"),
        pytest.param(wire(PUBLISH_1, PINGRESP), False, id="after others, by a server"),
        pytest.param(b"\x30\xff\xff\xff\xff", None, id="a length that never ends"),
        pytest.param(b"\x30\xff", None, id="half a length"),
        pytest.param(b"", None, id="nothing"),
    ],
)
def test_client_speaks(head: bytes, client: bool | None) -> None:
    assert client_speaks(head) is client


BEGINNINGS = """
the side that sends CONNECT is the client, whoever opened the connection
    7777 | handshake; < connect; > connack | opened tcp; > connect 4; < connack 5; closed capture_end by nobody |
    3.1.1 by CONNECT; .2:7777 to .4:50000; by CONNECT; connected as dev
what is no CONNECT is read as MQTT on its port
    1883 | handshake; > publish; < puback | opened tcp; > publish a/b 4; < puback 5; closed capture_end by nobody |
    3.1.1 guessed by a PUBLISH that is well formed in 3.1.1 only; .4:50000 to .2:1883; by TCP handshake; opening
a CONNECT of an unknown level leaves the version open for the answer
    1883 | handshake; > connect protocol_level=6; < raw 20030084 00 |
    opened tcp; > connect protocol_version_unknown 4; < connack 5; closed capture_end by nobody |
    5.0 guessed by a CONNACK that is well formed in 5.0 only; .4:50000 to .2:1883; by TCP handshake; refused as dev
a CONNECT that breaks off inside still says the version
    1883 | handshake; > raw 101000044d5154540502000000 0020646576; < raw 2003008100 |
    opened tcp; > connect field_overrun unfinished 4; < connack 5; closed capture_end by nobody |
    5.0 by CONNECT; .4:50000 to .2:1883; by TCP handshake; refused
the end of the capture decides an undecided beginning
    1883 | handshake; > raw 100c00044d51 |
    opened tcp; > unparsed 6 capture_end 4 in connect; closed capture_end by nobody |
    3.1.1 guessed by none; .4:50000 to .2:1883; by TCP handshake; opening; client gapped
the end of the initiator's stream decides too
    1883 | handshake; > raw 100c00044d51; fin client |
    opened tcp; > connect truncated unfinished 5; ending 5; closed fin by client |
    3.1.1 guessed by none; .4:50000 to .2:1883; by TCP handshake; opening
"""


@pytest.mark.parametrize(("setting", "story", "expected", "known"), cases_of(BEGINNINGS, *SCENE))
def test_what_a_beginning_tells(setting: str, story: str, expected: list[str], known: list[str]) -> None:
    check_scene(setting, story, expected, known)


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
    ("texts", "expected"),
    [
        pytest.param({}, [], id="an unknown port is not read"),
        pytest.param({4000: "mqtt"}, ["publish", "puback"], id="a port that the user names is read"),
        pytest.param({50_000: "mqtt"}, ["publish", "puback"], id="the client's port may be the one named"),
        pytest.param({4000: "ws"}, [], id="read as WebSocket"),
        pytest.param({4000: "tls"}, [], id="listed as TLS"),
    ],
)
def test_without_connect_the_port_decides(texts: dict[int, str], expected: list[str]) -> None:
    talk = Talk(port=4000).handshake().tell("> publish; < puback")

    assert types(talk, Options(ports=texts)) == expected


def test_without_detection_only_named_and_well_known_ports_are_looked_at() -> None:
    options = Options(ports={7000: "mqtt"}, detect=False)
    texts = {}
    for port in (1883, 7000, 9999):
        talk = Talk(port=port).handshake().tell("> connect")
        texts[port] = types(talk, options)

    assert texts == {1883: ["connect"], 7000: ["connect"], 9999: []}


def test_a_connect_overrules_the_version_that_the_user_said() -> None:
    talk = Talk().handshake().tell("> connect 5.0; < connack", version=V5)

    events = only(talk.events(Options(version=V3_1_1)), PacketEvent)

    assert [event.type for event in events] == ["connect", "connack"]
    assert events[0].connection.version is V5
    assert events[0].connection.version_evidence == "CONNECT"


@each("port", [21, 22, 25, 80, 443, 9999], ids=lambda port: f"port {port}")
@each(
    "client, server",
    [
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", b"SSH-2.0-OpenSSH_9.2\r\n", id="SSH"),
        pytest.param(HTTP, HTTP_ANSWER, id="HTTP"),
        pytest.param(HELLO, record(22, server_hello()), id="TLS"),
        pytest.param(b"EHLO a\r\n", b"220 mail ESMTP\r\n", id="SMTP"),
        pytest.param(b"\0\0\0\x55\xffSMB", b"\0\0\0\x55\xffSMB", id="SMB"),
    ],
)
@each("first", ["client", "server"], ids=["client first", "server first"])
def test_other_protocols_are_ignored_and_forgotten_at_once(port: int, client: bytes, server: bytes, first: str) -> None:
    talk = Talk(port=port).handshake()
    dissector = Dissector()
    for who in ("client", "server") if first == "client" else ("server", "client"):
        talk.client(client) if who == "client" else talk.server(server)

    events = [event for segment in talk.tape.segments for event in dissector.feed(segment)]

    assert events == []
    assert dialogue_of(talk, dissector) is None
    assert dissector.other_flows == 1
    assert (dissector.connections, dissector.packets) == (0, 0)


@pytest.mark.parametrize(
    ("times", "data", "missing", "expected", "least", "most"),
    [
        pytest.param(20, b"x" * 1000, 0, "waiting_bytes", 1000, MAX_UNDECIDED_BYTES, id="bytes"),
        pytest.param(2000, b"x", 0, "waiting", 200, 1000, id="tiny pieces"),
        pytest.param(2000, b"", 1000, "waiting", 10, 100, id="gaps"),
    ],
)
def test_what_is_kept_is_bounded_while_nothing_is_decided(
    times: int, data: bytes, missing: int, expected: str, least: int, most: int
) -> None:
    talk = Talk(port=9999).handshake()
    for _ in range(times):
        talk.server(data, missing=missing)
    dissector = Dissector()
    numbers = [0]
    for segment in talk.tape.segments:
        list(dissector.feed(segment))
        if dialogue := dialogue_of(talk, dissector):
            held = getattr(dialogue, expected)
            numbers.append(held if isinstance(held, int) else len(held))

    assert dialogue_of(talk, dissector) is None
    assert least < max(numbers) < most


def test_a_long_undecided_beginning_is_not_looked_at_again_for_every_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    decide = FlowState._decide

    def counting(self: FlowState, options: Options, *, final: bool = False) -> None:
        nonlocal looks
        looks += 1
        decide(self, options, final=final)

    monkeypatch.setattr(FlowState, "_decide", counting)
    talk = Talk(port=9999).handshake()
    for _ in range(900):
        talk.server(b"x")
    dissector = Dissector()
    for segment in talk.tape.segments:
        list(dissector.feed(segment))

    dialogue = dialogue_of(talk, dissector)
    assert dialogue is not None
    assert dialogue.phase is UNDECIDED
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


@pytest.mark.parametrize("data", [b"", TEXT, b"\x10\x0c\0\x04MQ"], ids=["nothing", "PROXY protocol", "half a CONNECT"])
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "at the end of the capture"])
def test_a_flow_without_anything_that_shows_mqtt_is_nothing(data: bytes, closed: bool) -> None:
    talk = Talk(port=9999).handshake()
    if data:
        talk.client(data)
    if closed:
        talk.close()
    dissector = Dissector()

    assert read(talk.tape, dissector=dissector) == []
    assert dissector.other_flows == 1


@pytest.mark.parametrize("pieces", [1, 5, 200])
@pytest.mark.parametrize("header", [TEXT, BINARY, LOCAL])
def test_a_proxy_protocol_header_is_told_and_what_is_behind_it_is_read(header: bytes, pieces: int) -> None:
    talk = Talk(port=9999).handshake()
    data = header + wire(connect(), PINGREQ)
    for start in range(0, len(data), pieces):
        talk.client(data[start : start + pieces])
    talk.tell("< connack; close")

    events = talk.events()

    assert [type(event).__name__ for event in events][:2] == ["ConnectionOpened", "UnparsedEvent"]
    (unparsed_event,) = only(events, UnparsedEvent)
    assert (unparsed_event.unparsed.reason, unparsed_event.unparsed.raw, unparsed_event.direction) == (
        "proxy_header",
        header,
        "client_to_server",
    )
    assert [event.type for event in only(events, PacketEvent)] == ["connect", "pingreq", "connack"]
    connection = unparsed_event.connection
    assert not connection.client_side.gapped
    expected = None if header == LOCAL else {"client": "10.0.0.4:51234", "server": "10.0.0.2:1883"}
    assert connection.details.get("proxy") == expected


@pytest.mark.parametrize("header", [TEXT, BINARY])
@pytest.mark.parametrize("then", ["close", "gap", "end"])
def test_a_proxy_protocol_header_that_is_cut_is_not_read_as_packets(header: bytes, then: str) -> None:
    talk = Talk().handshake()
    talk.client(header[:-3])
    if then == "gap":
        talk.lose("client", 3)
        talk.client(wire(connect(), PINGREQ))
    if then != "end":
        talk.close()
    events = talk.events()
    left = [event.unparsed for event in only(events, UnparsedEvent)]

    assert [(part.reason, part.raw) for part in left] == [("proxy_header", header[:-3])]
    assert not only(events, MalformedEvent)
    assert [event.type for event in only(events, PacketEvent)] == (["connect", "pingreq"] if then == "gap" else [])


def test_a_proxy_protocol_header_before_tls_and_websocket() -> None:
    for rest, transport in ((HELLO, "tls"), (request(), "websocket")):
        talk = Talk(port=8883).handshake()
        talk.client(TEXT + rest)
        talk.server(response() if transport == "websocket" else b"")
        talk.close()

        (opened,) = only(talk.events(), ConnectionOpened)

        assert (opened.connection.transport, "proxy" in opened.connection.details) == (transport, True)


def gap() -> Talk:
    """Bytes are lost, and packets found after them."""
    talk = opened().tell("lose client 9; > publish; +10")
    for _ in range(3):
        talk.client(PINGREQ)
    return talk


def joined() -> Talk:
    """A capture that began later than the connection."""
    talk = Talk()
    for _ in range(2):
        talk.tell("> publish; < puback")
    talk.client(PINGREQ)
    return talk


def said(port: int, *parts: tuple[str, bytes]) -> Callable[[], Talk]:
    """A connection on a port, its bytes given."""

    def talk() -> Talk:
        new_talk = Talk(port=port).handshake()
        for who, data in parts:
            (new_talk.client if who == "C" else new_talk.server)(data)
        new_talk.close()
        return new_talk

    return talk


def ignored_reset() -> Talk:
    """Both sides continue after a reset."""
    talk = opened().tell("reset client")
    for _ in range(3):
        talk.tell("> publish; < puback")
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
    """Transitions between the phases of flows."""
    result: Moves = []
    move = FlowState.move

    def noted(self: FlowState, trigger: FlowTrigger) -> None:
        before = self.phase
        move(self, trigger)
        result.append((before, self.phase))

    monkeypatch.setattr(FlowState, "move", noted)
    return result


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
    (flow,) = dissector.flows.flows.values()
    for who, data in (("client", wire(connect())), ("server", wire(CONNACK))):
        list(dissector.plaintext(Plaintext(flow.identity, who == "client", data, 0, 9, START, "a.pcap")))
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

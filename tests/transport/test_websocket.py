"""Both roles against each other, and against what the reader of captures makes of them."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttscope.net.http_upgrade import Problem, Upgrade
from mqttscope.net.websocket import CLOSE, PING, PONG, TEXT, ControlFrame, WebSocket
from mqttscope.transport import websocket
from tests.net import framing, heads
from tests.net.framing import CLIENT, SERVER

KEY = b"the sample nonce"
CLIENT_KEY = bytes(range(1, 5))


def handshake(**options: object) -> websocket.ClientHandshake:
    return websocket.ClientHandshake("broker:9001", "/mqtt?x=1", KEY, **options)  # type: ignore[arg-type]


def ends() -> tuple[websocket.Framing, websocket.Framing]:
    """A client and a server."""
    return websocket.Framing(CLIENT, Random(1).randbytes), websocket.Framing(SERVER, Random(2).randbytes)


def answered(received: websocket.WebSocketInput) -> ControlFrame:
    """The control frame that a client answers with."""
    (answer,) = framing.opened().feed(CLIENT, received.answer)
    assert isinstance(answer, ControlFrame)
    return answer


def test_the_handshakes_of_both_roles_fit_and_captures_show_nothing_wrong() -> None:
    client, server, watching = handshake(), websocket.ServerHandshake(), WebSocket()
    assert server.feed(client.request + b"early") == b"early"
    assert client.feed(server.answer + b"behind") == b"behind"

    assert (client.subprotocol, server.subprotocol, server.refused) == ("mqtt", "mqtt", "")
    assert server.request is not None
    assert (server.request.path, server.request.host) == ("/mqtt?x=1", "broker:9001")
    watching.feed(CLIENT, client.request)
    (upgrade,) = watching.feed(SERVER, server.answer)
    assert isinstance(upgrade, Upgrade)
    assert (upgrade.accepted, upgrade.problems, upgrade.subprotocol) == (True, [], "mqtt")


def test_handshakes_come_byte_by_byte_too() -> None:
    client, server = handshake(), websocket.ServerHandshake()
    assert [server.feed(client.request[at : at + 1]) for at in range(len(client.request))][-2:] == [None, b""]
    assert [client.feed(server.answer[at : at + 1]) for at in range(len(server.answer))][-2:] == [None, b""]


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [(["mqttv3.1"], "mqttv3.1"), (["mqttv3.1", "mqtt"], "mqtt"), (["other", "mqtt"], "mqtt")],
)
def test_a_server_chooses_mqtt(offered: list[str], chosen: str) -> None:
    client, server = handshake(subprotocols=offered), websocket.ServerHandshake()
    server.feed(client.request)
    assert client.feed(server.answer) == b""
    assert (client.subprotocol, server.subprotocol) == (chosen, chosen)


def test_a_key_has_16_bytes_and_a_mask_4() -> None:
    with pytest.raises(ValueError, match="16 bytes, not 3"):
        websocket.ClientHandshake("broker", "/", b"key")
    with pytest.raises(ValueError, match="4 bytes, not 2"):
        websocket.frame(b"x", mask=b"ab")


def answer(changes: dict[str, str | None], first: str = "HTTP/1.1 101 Switching Protocols") -> bytes:
    """A good answer to `handshake`, changed."""
    server = websocket.ServerHandshake()
    server.feed(handshake().request)
    fields = dict(line.split(": ") for line in server.answer.decode().split("\r\n")[1:] if line)
    return heads.head(first, fields, changes)


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (answer({}, "HTTP/1.1 404 Not Found"), "it answers 404 Not Found to the request for /mqtt"),
        (answer({}, "HTTP/1.1 799 What"), "it answers 799 to the request for /mqtt"),
        (answer({"Upgrade": None}), "the response has no Upgrade: websocket"),
        (answer({"Upgrade": "h2c"}), "the server switches to h2c"),
        (answer({"Connection": "close"}), "the response has no Connection: Upgrade"),
        (answer({"Sec-WebSocket-Accept": None}), "the response has no Sec-WebSocket-Accept"),
        (answer({"Sec-WebSocket-Accept": "x"}), "Sec-WebSocket-Accept is 1 characters, the key asks for '"),
        (answer({"Sec-WebSocket-Protocol": None}), "the response selects no subprotocol"),
        (answer({"Sec-WebSocket-Protocol": "chat"}), "the response selects 1 other (offered: mqtt)"),
        (answer({"Sec-WebSocket-Protocol": "mqttv3.1"}), "the response selects mqttv3.1 (offered: mqtt)"),
        (
            answer({"Sec-WebSocket-Extensions": "permessage-deflate"}),
            "the response uses 'permessage-deflate', which was not offered",
        ),
        (b"\x20\x02\0\0", "it does not speak HTTP"),
        (b"HTTP/2", "it does not speak HTTP"),
        (b"HTTP/1.1 abc\r\n\r\n", "it does not speak HTTP"),
        (b"HTTP/1.1 101 " + bytes([120]) * 70_000, "its HTTP head is longer than 65,536 bytes"),
        (answer({"Sec-WebSocket-Protocol": "?"}).replace(b": ?", b": \xff"), "the response selects"),
    ],
)
def test_what_is_wrong_with_an_answer_is_said(expected: bytes, text: str) -> None:
    with pytest.raises(websocket.WebSocketError) as caught:
        handshake().feed(expected)
    assert str(caught.value).startswith(text)
    str(caught.value).encode()


@pytest.mark.parametrize(
    ("expected", "status", "text"),
    [
        (heads.request({"Sec-WebSocket-Protocol": None}), 400, "the request offers no subprotocol"),
        (heads.request({"Sec-WebSocket-Protocol": "chat, x"}), 400, "the request offers 2 others"),
        (heads.request({"Sec-WebSocket-Key": None}), 400, "the request has no Sec-WebSocket-Key"),
        (heads.request({"Sec-WebSocket-Version": "8"}), 426, "Sec-WebSocket-Version is '8'"),
        (heads.request({"Upgrade": None}), 400, "the request has no Upgrade: websocket"),
        (heads.request({"Host": None}), 400, "the request has no Host"),
        (heads.request({}, "POST /mqtt HTTP/1.1"), 400, "the method is 'POST'"),
        (heads.request({}, "GET /mqtt HTTP/1.0"), 400, "the request is HTTP/1.0"),
        (heads.request({}, "GET /mqtt"), 400, "its first line is not a request of HTTP/1.x"),
        (b"\x10\x0c\0\x04MQTT", 400, "it does not speak HTTP"),
        (b"GET " + b"x" * 70_000, 400, "its HTTP head is longer than 65,536 bytes"),
    ],
)
def test_a_server_refuses(expected: bytes, status: int, text: str) -> None:
    server = websocket.ServerHandshake()
    assert server.feed(expected) == b""
    assert (server.refused, server.subprotocol) == (text, None)
    head, _, body = server.answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"Sec-WebSocket-Version: 13" in head
    assert f"Content-Length: {len(body)}".encode() in head
    with pytest.raises(websocket.WebSocketError, match=f"it answers {status} "):
        handshake().feed(server.answer)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536, 200_000])
@pytest.mark.parametrize("is_client", [True, False])
def test_frames_are_as_an_independent_writer_makes_them(size: int, is_client: bool) -> None:
    payload = Random(size).randbytes(size)
    key = CLIENT_KEY if is_client else None
    raw = websocket.frame(payload, mask=key)
    assert raw == framing.frame(payload, key=key)
    watching = framing.opened()
    assert framing.application(watching.feed(is_client, raw), is_client) == payload


messages = st.lists(st.tuples(st.booleans(), st.binary(max_size=300)), max_size=8)


@given(messages, st.randoms(use_true_random=False))
def test_bytes_arrive_as_they_were_sent_however_they_are_cut(
    messages_sent: list[tuple[bool, bytes]], random: Random
) -> None:
    client, server = ends()
    watching = framing.opened()
    sent: dict[bool, bytes] = {CLIENT: b"", SERVER: b""}
    got: dict[bool, bytes] = {CLIENT: b"", SERVER: b""}
    for from_client, data in messages_sent:
        here, there = (client, server) if from_client else (server, client)
        stream = here.send(data)
        assert framing.problems(watching.feed(from_client, stream)) == []
        sent[from_client] += data
        cuts = sorted(random.sample(range(len(stream) + 1), 2))
        for start, stop in itertools.pairwise([0, *cuts, len(stream)]):
            received = there.receive(stream[start:stop])
            assert (received.answer, received.ended) == (b"", "")
            got[from_client] += received.data
    assert got == sent


@given(st.binary(max_size=400), st.booleans())
def test_anything_at_all_is_taken_and_failure_is_final(data: bytes, is_client: bool) -> None:
    end = websocket.Framing(is_client, Random(1).randbytes)
    received = end.receive(data)
    assert (received.ended != "") is end.ended
    if end.ended:
        assert end.closed
        assert end.receive(data).data == end.send(b"more") == end.close() == b""


def test_fragments_and_controls_between_them() -> None:
    client, _ = ends()
    stream = (
        framing.frame(b"he", first=0x02)
        + framing.frame(b"are you there", first=0x89)
        + framing.frame(b"ll", first=0x00)
        + framing.frame(b"", first=0x8A)
        + framing.frame(b"o", first=0x80)
    )
    received = client.receive(stream)

    assert received.data == b"hello"
    assert [control.opcode for control in received.controls] == [PING, PONG]
    assert answered(received) == ControlFrame(CLIENT, PONG, b"are you there")


def test_the_close_frame_is_answered_with_the_same_status() -> None:
    client, server = ends()
    received = server.receive(client.send(b"last") + client.close(1001, "gone") + client.send(b"never"))
    assert (received.data, received.ended, received.detail) == (b"last", "fin", "close frame 1001: gone")
    back = client.receive(received.answer)
    assert (back.ended, back.answer, back.detail) == ("fin", b"", "close frame 1001")
    assert (client.close(), server.send(b"x")) == (b"", b"")


@pytest.mark.parametrize(
    ("payload", "status"), [(b"", None), (b"\x03\xe8", 1000), (b"\x03\xed", 1002), (b"x", 1002), (b"\0\0", 1002)]
)
def test_a_close_frame_may_say_nothing_or_nonsense(payload: bytes, status: int | None) -> None:
    client, _ = ends()
    received = client.receive(framing.frame(payload, first=0x88))
    assert received.ended == "fin"
    close = answered(received)
    assert (close.opcode, close.code) == (CLOSE, status)


def test_a_reason_is_cut_where_a_character_ends() -> None:
    client, server = ends()
    received = server.receive(client.close(1000, "ü" * 200))
    assert received.detail == "close frame 1000: " + "ü" * 61


def test_no_pong_behind_the_close_frame() -> None:
    client, server = ends()
    server.close()
    assert server.receive(websocket.frame(b"?", PING, CLIENT_KEY)).answer == b""
    assert server.receive(client.send(b"still read")).data == b"still read"


@pytest.mark.parametrize(
    ("stream", "status", "expected"),
    [
        (framing.frame(b"x", key=CLIENT_KEY), 1002, "a server's frame is masked"),
        (framing.frame(b"x", first=0x80 | TEXT), 1003, "a text message carries MQTT"),
        (framing.frame(b"x", first=0xC2), 1002, "the reserved bits are 100"),
        (framing.frame(b"x", first=0x83), 1002, "the opcode is 3"),
        (framing.frame(b"x", first=0x80), 1002, "no message is in progress"),
        (framing.frame(b"x" * 126, first=0x89), 1002, "the payload of a frame with opcode 9 has 126 bytes"),
        (framing.frame(b"", length=b"\x7f" + b"\xff" * 8), 1009, "the length is 18446744073709551615"),
    ],
)
def test_a_broken_protocol_ends_it(stream: bytes, status: int, expected: str) -> None:
    client, _ = ends()
    received = client.receive(framing.frame(b"good") + stream)
    assert (received.data, received.ended) == (b"good", "failed")
    assert received.detail == expected
    assert answered(received).code == status


def test_a_client_that_does_not_mask_is_refused() -> None:
    _, server = ends()
    assert server.receive(framing.frame(b"x")).detail == "a client's frame is not masked"


@pytest.mark.parametrize("size", [100, 101])
@pytest.mark.parametrize("cut", [0, 2, 30, 102, 103])
def test_the_limit_does_not_depend_on_how_bytes_come(size: int, cut: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "MAX_FRAME_BYTES", 100)
    client = websocket.Framing(CLIENT, Random(1).randbytes)
    stream = framing.frame(bytes(size))
    received = [client.receive(stream[:cut]), client.receive(stream[cut:])]
    assert [web_socket_input.ended for web_socket_input in received if web_socket_input.ended] == (
        ["failed"] if size > 100 else []
    )


def test_what_is_not_opened_has_problems_in_captures_too() -> None:
    """The oracle of these tests sees what is wrong."""
    watching = framing.opened()
    assert any(isinstance(part, Problem) for part in watching.feed(CLIENT, framing.frame(b"x")))

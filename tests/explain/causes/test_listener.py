"""Clients that speak to the wrong port."""

from __future__ import annotations

from mqttscope.explain import Cause, Certainty
from tests.dissect.talk import CONNACK, Talk, Tape, connect
from tests.each import each
from tests.explain.running import ending, explained, of_segments
from tests.lint.lint_help import steps_of
from tests.net.hellos import message, record, server_hello

BAD_GATEWAY = '@1 > connect 3.1.1 client=c2; @1 < raw "HTTP/1.1 502 Bad Gateway\\r\\n\\r\\n"; @1 < fin'
HELLO = "raw 16 03 01002f0100002b0303" + " 11" * 32 + " 000004130113020100"


@each(
    "answer, protocol",
    [
        ('raw "HTTP/1.1 400 Bad Request\\r\\n\\r\\n"', "HTTP"),
        ("raw 15 03 0300020228", "TLS"),
        ('raw "220 mail.example ESMTP ready for everything that is a mail\\r\\n"', "FTP or SMTP"),
    ],
)
def test_a_server_that_answers_in_another_protocol(answer: str, protocol: str) -> None:
    explanation = ending(f"> connect 3.1.1; < {answer}; < fin")

    assert (explanation.cause, explanation.first.certainty) == (Cause.WRONG_LISTENER, Certainty.CERTAIN)
    assert explanation.first.headline.startswith(f"The server answers in {protocol}")


def test_tls_to_a_port_that_does_not_answer_in_it() -> None:
    talk = Talk(port=1883).handshake()
    talk.client(bytes.fromhex(HELLO.removeprefix("raw")))
    talk.fin("server")
    (explanation,) = of_segments(talk.tape.segments)

    assert (explanation.cause, explanation.first.certainty) == (Cause.WRONG_LISTENER, Certainty.LIKELY)


@each(
    "text, certainty",
    [
        (f"silent > {HELLO}; +9 > fin", Certainty.HYPOTHESIS),
        (f"silent > {HELLO}; < ack; +9 > reset", Certainty.HYPOTHESIS),
        (f"@1 opened client=c2; silent > {HELLO}; < ack; +9 > fin", Certainty.LIKELY),
        # It did not wait, or nothing acknowledged its hello.
        (f"silent > {HELLO}; > fin", None),
        (f"@1 opened client=c2; silent > {HELLO}; +9 > reset", None),
    ],
)
def test_a_client_that_gives_tls_up_after_no_answer(text: str, certainty: Certainty | None) -> None:
    end = next(end for end in explained(*steps_of(text)) if end.transport == "tls")

    assert (end.cause is Cause.WRONG_LISTENER) is (certainty is not None)
    assert certainty is None or end.first.certainty is certainty


def test_a_port_that_speaks_mqtt_with_others_is_not_the_wrong_one() -> None:
    explanations = explained(*steps_of(f"opened; {BAD_GATEWAY}; < pingresp"))

    assert (explanations[1].cause, explanations[1].first.certainty) == (Cause.WRONG_LISTENER, Certainty.LIKELY)
    assert "on a port on which it speaks MQTT with others" in explanations[1].first.headline


def test_a_port_that_answers_others_in_tls_is_not_a_plain_one() -> None:
    tape = Tape()
    secure, silent = Talk(tape, port=1883).handshake(), Talk(tape, port=1883, client_port=50_009).handshake()
    for talk in (secure, silent):
        talk.client(bytes.fromhex(HELLO.removeprefix("raw")))
    secure.server(record(22, message(2, server_hello())))
    secure.fin("server")
    silent.fin("server")
    explanations = of_segments(tape.segments)

    assert Cause.WRONG_LISTENER not in [candidate.cause for end in explanations for candidate in end.candidates]


UPGRADE = (
    'silent > raw "GET /mqtt HTTP/1.1\\r\\nHost: a\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n'
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\nSec-WebSocket-Version: 13\\r\\n"
    'Sec-WebSocket-Protocol: mqtt\\r\\n\\r\\n"'
)


@each(
    "status, cause",
    [
        (401, Cause.BAD_CREDENTIALS),
        (403, Cause.NOT_AUTHORIZED),
        (404, Cause.WRONG_PATH),
        (503, Cause.SERVER_UNAVAILABLE),
        (400, Cause.CONNECT_REFUSED),
    ],
)
def test_a_websocket_that_is_refused_with_a_status(status: int, cause: Cause) -> None:
    explanation = ending(f'{UPGRADE}; silent < raw "HTTP/1.1 {status} No\\r\\nContent-Length: 0\\r\\n\\r\\n"; < fin')

    assert (explanation.cause, explanation.first.certainty) == (cause, Certainty.CERTAIN)
    assert f"HTTP status {status}" in explanation.first.headline


def test_a_wrong_path_where_others_are_served_at_the_right_one() -> None:
    refused = f'@1 {UPGRADE}; @1 silent < raw "HTTP/1.1 404 No\\r\\nContent-Length: 0\\r\\n\\r\\n"; @1 < fin'
    explanations = explained(*steps_of(f"upgraded; > frame connect; < frame connack; {refused}"))

    assert (explanations[1].cause, explanations[1].first.certainty) == (Cause.WRONG_PATH, Certainty.CERTAIN)
    assert "was accepted with this path: it is not wrong for every client" in repr(explanations[1].first.reasons)

    explanations = explained(
        *steps_of(f"upgraded; > frame connect; < frame connack; {refused.replace('/mqtt', '/wrong?token=secret')}")
    )
    assert "there is nothing at the path /wrong;" in explanations[1].first.headline
    assert explanations[1].first.headline.endswith("got in with /mqtt).")
    assert explanations[1].first.advice == ("Set the path of the URL to /mqtt.",)
    assert "secret" not in repr(explanations[1].first)


UNNAMED = "upgraded offered=none selected=none"
ANSWERED = "> frame connect; < frame connack"


@each(
    "text, fault",
    [
        (f"{UNNAMED}; < fin", "the request offers no subprotocol"),
        ("upgraded offered=mqttv3.1 selected=none; > frame connect; < fin", "the request offers mqttv3.1"),
        ("upgraded selected=none; > fin", "the response selects no subprotocol"),
        ("upgraded; > frame text connect; < fin", "a text message carries MQTT"),
        (f"upgraded; {ANSWERED}; silent > raw 82 02 c000; < fin", "a client's frame is not masked"),
    ],
)
def test_a_websocket_that_is_used_in_a_wrong_way(text: str, fault: str) -> None:
    explanation = ending(text)

    assert (explanation.cause, explanation.first.certainty) == (Cause.PROTOCOL_VIOLATION, Certainty.LIKELY)
    assert f"had used WebSocket in a wrong way: {fault}" in explanation.first.headline


@each(
    "text, cause, certainty, headline",
    [
        (
            f"upgraded; {ANSWERED}; > frame text pingreq; silent < frame close raw 03eb; > fin",
            Cause.PROTOCOL_VIOLATION,
            Certainty.CERTAIN,
            "The broker closed the WebSocket with status 1003 (unsupported data): a text message carries MQTT.",
        ),
        (
            f"upgraded; {ANSWERED}; +5 silent < frame close raw 03f1; < fin",
            Cause.PACKET_TOO_LARGE,
            Certainty.CERTAIN,
            "The broker closed the WebSocket with status 1009 (message too big).",
        ),
        (
            f"upgraded; {ANSWERED}; +5 silent < frame close raw 03f4; < fin",
            Cause.SERVER_RESTART,
            Certainty.CERTAIN,
            "The broker closed the WebSocket with status 1012 (service restart).",
        ),
        # The broker answers with the same status, and closes the transport first.
        (
            f"upgraded; {ANSWERED}; +5 silent > frame close raw 0fa1; silent < frame close raw 0fa1; < fin",
            Cause.CLIENT_DISCONNECT,
            Certainty.CERTAIN,
            "The client closed the WebSocket with status 4001.",
        ),
        (
            f"upgraded; {ANSWERED}; +5 silent > frame close raw 03e8; silent < frame close raw 03e8; < fin",
            Cause.CLIENT_CLOSED,
            Certainty.LIKELY,
            "The client closed the connection without a DISCONNECT.",
        ),
        # What answers a Close frame in a wrong way is not the cause of it.
        (
            f"upgraded; {ANSWERED}; +5 silent < frame close raw 03e8; silent > raw 88 02 03e8; < fin",
            Cause.SERVER_CLOSED,
            Certainty.HYPOTHESIS,
            "The broker closed the connection, and nothing in the capture says why.",
        ),
    ],
)
def test_the_close_frame_of_a_websocket(text: str, cause: Cause, certainty: Certainty, headline: str) -> None:
    explanation = ending(text)

    assert (explanation.cause, explanation.first.certainty, explanation.first.headline) == (cause, certainty, headline)
    assert any("sent a Close frame with status" in reason.text for reason in explanation.first.reasons)


PINGED = f"upgraded; {ANSWERED}; +5 silent < frame ping raw 61"


@each(
    "text, certainty",
    [
        (f"{PINGED}; +1 silent < fin", Certainty.LIKELY),
        (f"{PINGED}; +9 > frame pingreq; < frame pingresp; +1 silent < frame close raw 03f3; < fin", Certainty.LIKELY),
        (f"{PINGED}; +5 silent < frame ping raw 62; silent < frame ping raw 63; +5 < fin", Certainty.LIKELY),
        (f"{PINGED}{3 * '; silent < frame ping raw 62'}; +5 < fin", Certainty.HYPOTHESIS),
        # Too early, answered, answered late, or closed by the other side.
        (f"{PINGED}; +0.9 silent < fin", None),
        (f"{PINGED}; silent > frame pong raw 61; +9 < fin", None),
        (f"{PINGED}; silent < frame ping raw 62; +2 silent > frame pong raw 62; +9 < fin", None),
        (f"{PINGED}; +9 > fin", None),
    ],
)
def test_a_ping_of_a_websocket_without_a_pong(text: str, certainty: Certainty | None) -> None:
    first = ending(text).first

    assert ("did not answer a WebSocket Ping" in first.headline) is (certainty is not None)
    assert certainty is None or (first.cause, first.certainty) == (Cause.PROTOCOL_VIOLATION, certainty)


@each("accept", ["", "Sec-WebSocket-Accept: AAAA\\r\\n"])
def test_a_client_that_minds_the_response_to_its_request_for_a_websocket(accept: str) -> None:
    answer = f"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n{accept}"
    first = ending(f'{UPGRADE}; silent < raw "{answer}Sec-WebSocket-Protocol: mqtt\\r\\n\\r\\n"; > fin').first

    assert (first.cause, first.certainty) == (Cause.PROTOCOL_VIOLATION, Certainty.LIKELY)
    assert first.headline.count("Sec-WebSocket-Accept")
    assert first.advice[0].startswith("Look what answers the request: a server has to send Sec-WebSocket-Accept")


def test_the_reason_of_a_close_frame_without_its_secrets() -> None:
    reason = b"token=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJwdW1wIn0.abcdef0123456789"
    for text, shown in ((b"bye", "bye"), (reason, "token=")):
        explanation = ending(f"upgraded; {ANSWERED}; +5 silent < frame close raw 03f3{text.hex()}; < fin")
        (reported_text,) = [each.text for each in explanation.first.reasons if "Close frame" in each.text]
        assert reported_text.startswith(
            f"the broker sent a Close frame with status 1011 (internal error), and the reason “{shown}"
        )
        assert "abcdef" not in reported_text


@each("selected", ["none", "mqtt"])
def test_a_subprotocol_that_the_sides_did_not_agree_on(selected: str) -> None:
    explanation = ending(f"upgraded offered=mqttv3.1 selected={selected}; > fin")

    assert (explanation.cause, explanation.first.certainty) == (Cause.PROTOCOL_VIOLATION, Certainty.LIKELY)
    assert "agreed on no subprotocol of WebSocket: the request offers mqttv3.1" in explanation.first.headline
    assert explanation.first.advice[0].startswith("Let the client offer mqtt ")


@each(
    "text",
    [
        "upgraded; > frame connect; < fin",
        "upgraded offered=mqttv3.1 selected=none; +2 > fin",
        "upgraded offered=mqttv3.1 selected=none; > frame connect 3.1; > fin",
        # It is old, and the right one in its version.
        "upgraded offered=mqttv3.1 selected=mqttv3.1; > frame connect 3.1; < fin",
        # The other side has used the connection since, or closed long after it.
        f"upgraded selected=none; {ANSWERED}; > fin",
        f"{UNNAMED}; {ANSWERED}; < fin",
        "upgraded; > frame text connect; < frame connack; > frame text pingreq; < fin",
        f"upgraded; {ANSWERED}; > frame text pingreq; +2 < fin",
        # No answer is right where nothing was offered.
        f"{UNNAMED}; > fin",
        # The server serves another client that does the same.
        f"{UNNAMED}; < fin; @1 {UNNAMED}; @1 > frame connect; @1 < frame connack",
    ],
)
def test_a_fault_of_a_websocket_that_is_not_the_cause(text: str) -> None:
    assert Cause.PROTOCOL_VIOLATION not in [candidate.cause for candidate in ending(text).candidates]


@each(
    "before, end, cause, certainty",
    [
        ("opened; ", "< fin", Cause.WRONG_LISTENER, Certainty.LIKELY),
        ("opened; ", "< reset", Cause.WRONG_LISTENER, Certainty.LIKELY),
        ("@2 opened; ", "< fin", Cause.WRONG_LISTENER, Certainty.LIKELY),
        ("", "< fin", Cause.WRONG_LISTENER, Certainty.HYPOTHESIS),
        ("opened; ", "> fin", Cause.CLIENT_CLOSED, Certainty.LIKELY),
    ],
)
def test_a_request_for_a_websocket_to_a_port_for_plain_mqtt(
    before: str, end: str, cause: Cause, certainty: Certainty
) -> None:
    explanations = explained(*steps_of(f"{before}@1 {UPGRADE}; @1 {end}"))
    explanation = next(each for each in explanations if each.transport == "websocket")

    assert (explanation.cause, explanation.first.certainty) == (cause, certainty)


HEADER = 'silent > raw "PROXY TCP4 10.0.0.4 10.0.0.2 51234 1883\\r\\n"'


@each(
    "text, certainty",
    [
        (f"opened; @1 {HEADER}; @1 < fin", Certainty.LIKELY),
        (f"opened; @1 {HEADER}; @1 > connect client=c2; @1 < fin", Certainty.LIKELY),
        (f"opened; @1 {HEADER}; +2 @1 < fin", Certainty.HYPOTHESIS),
        (f"@1 {HEADER}; @1 < fin", Certainty.HYPOTHESIS),
        # The broker expects such headers, or answers, or did not close.
        (f"@2 {HEADER}; @2 opened client=c3; opened; @1 {HEADER}; @1 < fin", None),
        (f"opened; @1 {HEADER}; @1 > connect client=c2; @1 < connack code=0x87; @1 < fin", None),
        (f"opened; @1 {HEADER}; @1 > fin", None),
        # One without a header where others have one.
        (f"@2 {HEADER}; @2 opened client=c3; @1 > connect client=c2; @1 < fin", Certainty.HYPOTHESIS),
        (f"@2 {HEADER}; @2 opened client=c3; opened; @1 > connect client=c2; @1 < fin", None),
    ],
)
def test_a_proxy_protocol_header_that_the_broker_does_not_expect(text: str, certainty: Certainty | None) -> None:
    explanations = explained(*steps_of(text))
    ended = next(end for end in explanations if end.ended_how == "fin")
    headers = [candidate for candidate in ended.candidates if candidate.cause is Cause.WRONG_LISTENER]

    assert [header.certainty for header in headers] == ([] if certainty is None else [certainty])
    assert certainty is not Certainty.LIKELY or ended.cause is Cause.WRONG_LISTENER


@each("command, then, is_check", [("20", "", True), ("21", "", False), ("20", "@1 > connect client=c2; ", False)])
def test_a_health_check_of_a_load_balancer(command: str, then: str, is_check: bool) -> None:
    end = ending(f"@1 silent > raw 0d0a0d0a000d0a515549540a{command}000000; {then}@1 < fin")
    headers = [cause for cause in end.candidates if cause.cause is Cause.WRONG_LISTENER]

    assert len(headers) == 1
    assert (
        "after a health check of a load balancer (PROXY protocol, command LOCAL)" in headers[0].headline
    ) is is_check


@each("is_served, certainty", [(True, Certainty.CERTAIN), (False, Certainty.LIKELY)])
def test_a_request_of_http_on_a_port_for_mqtt(is_served: bool, certainty: Certainty) -> None:
    tape = Tape()
    if is_served:
        served = Talk(tape, client_port=40_000).handshake()
        served.client(connect())
        served.server(CONNACK)
    talk = Talk(tape).handshake()
    talk.client(b"GET /health HTTP/1.1\r\nHost: broker\r\n\r\n")
    talk.close("server")
    end = of_segments(tape.segments)[-1]

    assert (end.cause, end.first.certainty) == (Cause.WRONG_LISTENER, certainty)
    assert "The client sent an HTTP request (GET) to port 1883" in end.first.headline


@each(
    "sent, answer, headline",
    [
        ('"GET / HTTP/1.1\\r\\n\\r\\n"', '; < raw "HTTP/1.1 400 Bad Request\\r\\n\\r\\n"',
         "sent an HTTP request (GET) to port 1883, and the server answered in HTTP: neither side spoke MQTT"),
        ('"POST /a HTTP/1.1\\r\\n\\r\\nabc"', "; < reset", "an HTTP request (POST) to port 1883, which most"),
        ('"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n"', "", "The client sent bytes of HTTP to port 1883, which most"),
        ('"SSH-2.0-OpenSSH_9.2\\r\\n"', "", "The client sent bytes of SSH to port 1883, which most"),
        ('"GET / HTTP/1.1\\r\\n\\r\\n"', "; < raw d0 00", "and the server did not answer in HTTP."),
    ],
)  # fmt: skip
def test_a_client_of_another_protocol(sent: str, answer: str, headline: str) -> None:
    end = ending(f"silent > raw {sent}{answer}; < fin")

    assert end.cause is Cause.WRONG_LISTENER
    assert headline in end.first.headline
    assert not any("malformed" in moment.what for moment in end.timeline)


V2 = "0d0a0d0a000d0a515549540a 21 11 000c 0a000009"


@each(
    "text, is_quiet",
    [
        (f"{HEADER}; > fin", True),
        (f"{HEADER}; > reset", True),
        (f"silent > raw {V2}; > fin", True),
        ('silent > raw "PROXY TCP4 10.0.0.9 10.0."; > fin', True),
        (f"{HEADER}; < fin", False),
        (f"{HEADER}; > connect; > fin", False),
        (f"{HEADER}; lost > connect; > fin", False),
        ("> raw 10 05 00; > fin", False),
    ],
)
def test_a_connection_with_a_proxy_header_alone_is_a_health_check(text: str, is_quiet: bool) -> None:
    end = ending(text)

    assert (end.cause is Cause.NO_MQTT) is is_quiet
    assert ("of a load balancer and no MQTT, as health checks do." in end.first.headline) is is_quiet


@each("data", [b"GET me a coffee", b"\x47\x05hello"])
def test_bytes_that_are_no_request_of_http(data: bytes) -> None:
    talk = Talk().handshake()
    talk.client(data)
    talk.close("server")

    assert of_segments(talk.tape.segments)[0].cause is not Cause.WRONG_LISTENER

"""Clients that speak to the wrong port."""

from __future__ import annotations

from mqttscope.explain import Cause, Certainty
from tests.dissect.talk import Talk, Tape
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
    one = ending(f"> connect 3.1.1; < {answer}; < fin")

    assert (one.cause, one.first.certainty) == (Cause.WRONG_LISTENER, Certainty.CERTAIN)
    assert one.first.headline.startswith(f"The server answers in {protocol}")


def test_tls_to_a_port_that_does_not_answer_in_it() -> None:
    talk = Talk(port=1883).handshake()
    talk.client(bytes.fromhex(HELLO.removeprefix("raw")))
    talk.fin("server")
    (one,) = of_segments(talk.tape.segments)

    assert (one.cause, one.first.certainty) == (Cause.WRONG_LISTENER, Certainty.LIKELY)


def test_a_client_that_gives_tls_up_itself_proves_nothing() -> None:
    assert ending(f"silent > {HELLO}; > fin").cause is Cause.UNREADABLE


def test_a_port_that_speaks_mqtt_with_others_is_not_the_wrong_one() -> None:
    found = explained(*steps_of(f"opened; {BAD_GATEWAY}; < pingresp"))

    assert (found[1].cause, found[1].first.certainty) == (Cause.WRONG_LISTENER, Certainty.LIKELY)
    assert "on a port on which it speaks MQTT with others" in found[1].first.headline


def test_a_port_that_answers_others_in_tls_is_not_a_plain_one() -> None:
    tape = Tape()
    secure, silent = Talk(tape, port=1883).handshake(), Talk(tape, port=1883, client_port=50_009).handshake()
    for talk in (secure, silent):
        talk.client(bytes.fromhex(HELLO.removeprefix("raw")))
    secure.server(record(22, message(2, server_hello())))
    secure.fin("server")
    silent.fin("server")
    found = of_segments(tape.segments)

    assert Cause.WRONG_LISTENER not in [one.cause for end in found for one in end.candidates]


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
    one = ending(f'{UPGRADE}; silent < raw "HTTP/1.1 {status} No\\r\\nContent-Length: 0\\r\\n\\r\\n"; < fin')

    assert (one.cause, one.first.certainty) == (cause, Certainty.CERTAIN)
    assert f"HTTP status {status}" in one.first.headline


def test_a_wrong_path_where_others_are_served_at_the_right_one() -> None:
    refused = f'@1 {UPGRADE}; @1 silent < raw "HTTP/1.1 404 No\\r\\nContent-Length: 0\\r\\n\\r\\n"; @1 < fin'
    found = explained(*steps_of(f"upgraded; > frame connect; < frame connack; {refused}"))

    assert (found[1].cause, found[1].first.certainty) == (Cause.WRONG_PATH, Certainty.CERTAIN)


UNNAMED = "upgraded offered=none selected=none"
ANSWERED = "> frame connect; < frame connack"


@each(
    "text, fault",
    [
        (f"{UNNAMED}; < fin", "the request offers no subprotocol"),
        ("upgraded offered=mqttv3.1 selected=none; > frame connect; < fin", "the request offers mqttv3.1"),
        ("upgraded selected=none; > fin", "the response selects no subprotocol"),
        ("upgraded; > frame text connect; < fin", "a text message carries MQTT"),
        (f"upgraded; {ANSWERED}; > frame text pingreq; silent < frame close raw 03eb; > fin", "a text message carries"),
        (f"upgraded; {ANSWERED}; silent > raw 82 02 c000; < fin", "a client's frame is not masked"),
    ],
)
def test_a_websocket_that_is_used_in_a_wrong_way(text: str, fault: str) -> None:
    one = ending(text)

    assert (one.cause, one.first.certainty) == (Cause.PROTOCOL_VIOLATION, Certainty.LIKELY)
    assert f"had used WebSocket in a wrong way: {fault}" in one.first.headline


@each("selected", ["none", "mqtt"])
def test_a_subprotocol_that_the_sides_did_not_agree_on(selected: str) -> None:
    one = ending(f"upgraded offered=mqttv3.1 selected={selected}; > fin")

    assert (one.cause, one.first.certainty) == (Cause.PROTOCOL_VIOLATION, Certainty.LIKELY)
    assert "agreed on no subprotocol of WebSocket: the request offers mqttv3.1" in one.first.headline
    assert one.first.advice[0].startswith("Let the client offer mqtt ")


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
    assert Cause.PROTOCOL_VIOLATION not in [one.cause for one in ending(text).candidates]


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
    found = explained(*steps_of(f"{before}@1 {UPGRADE}; @1 {end}"))
    one = next(each for each in found if each.transport == "websocket")

    assert (one.cause, one.first.certainty) == (cause, certainty)


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
    found = explained(*steps_of(text))
    ended = next(end for end in found if end.ended_how == "fin")
    headers = [one for one in ended.candidates if one.cause is Cause.WRONG_LISTENER]

    assert [one.certainty for one in headers] == ([] if certainty is None else [certainty])
    assert certainty is not Certainty.LIKELY or ended.cause is Cause.WRONG_LISTENER

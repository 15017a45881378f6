"""HTTP requests without their secrets."""

from __future__ import annotations

from mqttscope.redact.text import public_details, without_http_secrets


def test_what_is_known_of_a_transport_loses_what_may_be_a_token() -> None:
    details = {
        "path": "/mqtt?t=s3cret", "host": "broker.example:8080", "subprotocol": "mqtt",
        "extensions": ["permessage-deflate; client_max_window_bits=12", "x s3cret"], "version": "TLS 1.3",
    }  # fmt: skip
    shown = public_details({"websocket": details, "server_name": "h"})
    assert shown == {
        "server_name": "h",
        "websocket": details
        | {"path": "/mqtt?t=***", "extensions": ["permessage-deflate; client_max_window_bits=12", "***"]},
    }
    assert details["path"] == "/mqtt?t=s3cret"
    assert public_details({"host": "h\r\nCookie: a", "subprotocol": "bearer eyJ"}) == {
        "host": "***",
        "subprotocol": "***",
    }


def test_the_head_of_a_request_keeps_its_length_and_loses_its_tokens() -> None:
    head = (
        b"GET /mqtt?token=abc&x HTTP/1.1\r\nHost: h\r\nauthorization: Bearer s3cret\r\nCookie: a=b\r\n"
        b"Sec-WebSocket-Protocol: mqtt, bearer.s3cret, mq"
    )
    assert without_http_secrets(head) == (
        b"GET /mqtt?token=***&* HTTP/1.1\r\nHost: h\r\nauthorization: *************\r\nCookie: ***\r\n"
        b"Sec-WebSocket-Protocol: mqtt, *************, mq"
    )
    for stop in range(len(head)):
        shown = without_http_secrets(head[:stop])
        assert len(shown) == stop
        assert b"s3c" not in shown


def test_a_path_that_is_encoded_loses_its_tokens_wherever_the_head_is_cut() -> None:
    for path in ("/m%3Ftoken%3Ds3cret", "/m%253Ftoken%253Ds3cret", "/m;s3cret", "http://me:s3cret@h/m", "/m#s3cret"):
        head = f"GET {path} HTTP/1.1\r\nHost: h".encode()
        for stop in range(len(head)):
            shown = without_http_secrets(head[:stop])
            assert len(shown) == stop
            assert b"s3" not in shown
        assert without_http_secrets(head).endswith(b" HTTP/1.1\r\nHost: h")
        assert "s3" not in str(public_details({"path": path}))


def test_a_request_line_without_its_beginning_shows_no_rest_of_a_token() -> None:
    assert without_http_secrets(b"al_secret HTTP/1.1\r\nHost: h") == b"********* HTTP/1.1\r\nHost: h"
    assert without_http_secrets(b"GET al_secret?a HTTP/1.1\r\nHost: h") == b"GET *********?* HTTP/1.1\r\nHost: h"
    assert without_http_secrets(b"HTTP/1.1 200 All is well\r\nA: b") == b"HTTP/1.1 200 All is well\r\nA: b"

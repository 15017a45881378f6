"""Addresses and HTTP requests without their secrets."""

from __future__ import annotations

import pytest

from mqttscope.redact.text import public_details, without_http_secrets, without_query_values, without_secrets


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("mqtt://host:1883", "mqtt://host:1883"),
        ("mqtt://me@host", "mqtt://me@host"),
        ("mqtt://me:s3cret@host:1883", "mqtt://me:***@host:1883"),
        ("mqtt://me:s3/cr?e:t@host", "mqtt://me:***@host"),
        ("mqtt://me:s3@cret@host", "mqtt://me:***@host"),
        ("s3://AKIA123:s+cr/et=@bucket/key cannot be read", "s3://AKIA123:***@bucket/key cannot be read"),
        ("Error: 'ws://h:80/mqtt?token=s3cret&x=1' has more", "Error: 'ws://h:80/mqtt?token=***&x=***' has more"),
        ("ws://h/mqtt?s3cret", "ws://h/mqtt?***"),
        ("ws://h/mqtt#s3cret", "ws://h/mqtt#***"),
        ("h:80/mqtt?token=s3cret is not a URL", "h:80/mqtt?token=*** is not a URL"),
        ("me:s3cret@host", "me:***@host"),
        ("at 12:30 me@example.org wrote a=b", "at 12:30 me@example.org wrote a=b"),
        ("--filter 'qos == 1 and topic == \"a\"'", "--filter 'qos == 1 and topic == \"a\"'"),
        ("a.pcap: offset 7: cut", "a.pcap: offset 7: cut"),
        ("http://[::1]:80/", "http://[::1]:80/"),
    ],
)
def test_a_text_loses_the_secrets_of_its_addresses(text: str, wanted: str) -> None:
    assert without_secrets(text) == wanted


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/mqtt", "/mqtt"),
        ("/mqtt?", "/mqtt?"),
        ("/mqtt?token=s3cret&flag", "/mqtt?token=***&***"),
        ("/mqtt;token=s3cret", "/mqtt;***"),
        ("/mqttXtoken=s3cret/a", "/mqttXtoken=***/a"),
    ],
)
def test_a_path_loses_what_its_query_says(path: str, wanted: str) -> None:
    assert without_query_values(path) == wanted


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
        b"GET /mqtt?token=***&x HTTP/1.1\r\nHost: h\r\nauthorization: *************\r\nCookie: ***\r\n"
        b"Sec-WebSocket-Protocol: mqtt, *************, mq"
    )
    for stop in range(len(head)):
        shown = without_http_secrets(head[:stop])
        assert len(shown) == stop
        assert b"s3c" not in shown

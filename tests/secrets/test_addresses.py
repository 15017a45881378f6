"""Addresses without their secrets, as they stand and as they read when they are decoded; and HTTP requests."""

from __future__ import annotations

import pytest

from mqttscope.secrets import addresses
from tests.each import each


@each(
    "text, wanted",
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
        ("cannot connect to ws://h:1/p;token=s3cret: refused", "cannot connect to ws://h:1/p;***: refused"),
        ("ws://h/p;s3cret is wrong", "ws://h/p;*** is wrong"),
        ("'ws://h/x%3Ftoken%3Ds3cret' has more", "'ws://h/x%3Ftoken%3D***' has more"),
        ("ws://h/x%253Ftoken%253Ds3cret%2526b", "ws://h/x%253Ftoken%253D***%2526***"),
        ("s3://me%3As3cret%40bucket/a b", "s3://me%3A***%40bucket/a b"),
        ("https://h/x.pcap?sig=s3cret: matches no file", "https://h/x.pcap?sig=***: matches no file"),
        ("https://h/x.pcap%3Fs3cret", "https://h/x.pcap%3F***"),
        ("s3://bucket/date=2026-01-02/a;b.pcap", "s3://bucket/date=2026-01-02/a;b.pcap"),
        ("is 100% of %41 or %zz", "is 100% of %41 or %zz"),
    ],
)
def test_a_text_loses_the_secrets_of_its_addresses(text: str, wanted: str) -> None:
    assert addresses.without_secrets(text) == wanted


@each(
    "path, wanted",
    [
        ("/mqtt", "/mqtt"),
        ("/mqtt?", "/mqtt?"),
        ("/mqtt?token=s3cret&flag", "/mqtt?token=***&***"),
        ("/mqtt;token=s3cret", "/mqtt;***"),
        ("/mqttXtoken=s3cret/a", "/mqttXtoken=***/a"),
        ("/mqtt;s3cret/a?x", "/mqtt;***/a?***"),
        ("/mqtt#s3cret?a=b", "/mqtt#***"),
        ("/mqtt?s3cret?a=b", "/mqtt?***?a=***"),
        ("/mqtt?c2VjcmV0==", "/mqtt?***"),
        ("//me:s3cret@h/mqtt", "//***@h/mqtt"),
        ("http://me:s3/cr@h/mqtt", "http://***@h/mqtt"),
        ("/me:s3cret@h", "/***@h"),
        ("/mqtt%3Ftoken%3Ds3cret", "/mqtt%3Ftoken%3D***"),
        ("/mqtt%3ftoken%3ds3cret%26s3cret", "/mqtt%3ftoken%3d***%26***"),
        ("/mqtt%253Ftoken%253Ds3cret", "/mqtt%253Ftoken%253D***"),
        ("/mqtt%25%33Ftoken=s3cret", "/mqtt%25%33Ftoken=***"),
        ("/mqtt%3Btoken%3Ds3%2Fcret/a", "/mqtt%3B***/a"),
        ("/mqtt%23s3cret", "/mqtt%23***"),
        ("/%2Fme%3As3cret%40h", "/***%40h"),
        ("/m%C3%A9%20t%00?a%20b=s3cret", "/m%C3%A9%20t%00?a%20b=***"),
        ("/100%/%zz", "/100%/%zz"),
        ("/mqtt/token/s3cret", "/mqtt/token/***"),
        ("/auth/s3cret/mqtt", "/auth/***/mqtt"),
        ("/mqtt/API-Key:s3cret", "/mqtt/API-Key:***"),
        ("/monkey/business", "/monkey/business"),
        ("s3cret&x=1", "***"),
        ("s3cret?a=b", "***?a=***"),
        ("s3cret/mqtt", "***"),
        ("wss://h:443/mqtt", "wss://h:443/mqtt"),
        ("", ""),
    ],
)
def test_a_path_loses_what_its_query_says(path: str, wanted: str) -> None:
    assert addresses.without_query_values(path) == wanted


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("a.pcap", "a.pcap"),
        ("/captures/me:pw@h?sig=1;a=b#c%3Fd.pcap", "/captures/me:pw@h?sig=1;a=b#c%3Fd.pcap"),
        ("file:///captures/a?sig=1#c.pcap", "file:///captures/a?sig=1#c.pcap"),
        ("s3://bucket/date=2026-01-02/a@b;c.pcap", "s3://bucket/date=2026-01-02/a@b;c.pcap"),
        ("hdfs://node:8020/a@b.pcap", "hdfs://node:8020/a@b.pcap"),
        ("s3://me:s3cret@bucket/x.pcap", "s3://***@bucket/x.pcap"),
        ("s3://me:s3/cr?e=t@bucket/x.pcap", "s3://***@bucket/x.pcap"),
        ("https://s3cret@h/x.pcap", "https://***@h/x.pcap"),
        ("https://me%3As3cret%40h/x.pcap", "https://***%40h/x.pcap"),
        ("https://h/x.pcap?sig=s3cret&s3cret", "https://h/x.pcap?sig=***&***"),
        ("https://h/x.pcap%253Fsig%253Ds3cret", "https://h/x.pcap%253Fsig%253D***"),
        ("https://h/x;token=s3cret/y.pcap#s3cret", "https://h/x;token=***/y.pcap#***"),
    ],
)
def test_a_capture_is_called_as_its_url_without_secrets(name: str, wanted: str) -> None:
    assert addresses.public_name(name) == wanted
    assert addresses.public_name(wanted) == wanted


def test_a_text_of_percent_signs_is_read_in_a_moment() -> None:
    text = "/" + "%25" * 20_000 + "41?a"
    assert addresses.without_query_values(text).endswith("?***")
    assert addresses.without_secrets(f"ws://h{text}").endswith("?***")


def test_what_is_known_of_a_transport_loses_what_may_be_a_token() -> None:
    details = {
        "path": "/mqtt?t=s3cret", "host": "broker.example:8080", "subprotocol": "mqtt",
        "extensions": ["permessage-deflate; client_max_window_bits=12", "x s3cret"], "version": "TLS 1.3",
    }  # fmt: skip
    shown = addresses.public_details({"websocket": details, "server_name": "h"})
    assert shown == {
        "server_name": "h",
        "websocket": details
        | {"path": "/mqtt?t=***", "extensions": ["permessage-deflate; client_max_window_bits=12", "***"]},
    }
    assert details["path"] == "/mqtt?t=s3cret"
    assert addresses.public_details({"host": "h\r\nCookie: a", "subprotocol": "bearer eyJ"}) == {
        "host": "***",
        "subprotocol": "***",
    }


def test_the_head_of_a_request_keeps_its_length_and_loses_its_tokens() -> None:
    head = (
        b"GET /mqtt?token=abc&x HTTP/1.1\r\nHost: h\r\nauthorization: Bearer s3cret\r\nCookie: a=b\r\n"
        b"Sec-WebSocket-Protocol: mqtt, bearer.s3cret, mq"
    )
    assert addresses.without_http_secrets(head) == (
        b"GET /mqtt?token=***&* HTTP/1.1\r\nHost: h\r\nauthorization: *************\r\nCookie: ***\r\n"
        b"Sec-WebSocket-Protocol: mqtt, *************, mq"
    )
    for stop in range(len(head)):
        shown = addresses.without_http_secrets(head[:stop])
        assert len(shown) == stop
        assert b"s3c" not in shown


def test_a_path_that_is_encoded_loses_its_tokens_wherever_the_head_is_cut() -> None:
    for path in ("/m%3Ftoken%3Ds3cret", "/m%253Ftoken%253Ds3cret", "/m;s3cret", "http://me:s3cret@h/m", "/m#s3cret"):
        head = f"GET {path} HTTP/1.1\r\nHost: h".encode()
        for stop in range(len(head)):
            shown = addresses.without_http_secrets(head[:stop])
            assert len(shown) == stop
            assert b"s3" not in shown
        assert addresses.without_http_secrets(head).endswith(b" HTTP/1.1\r\nHost: h")
        assert "s3" not in str(addresses.public_details({"path": path}))


def test_a_request_line_without_its_beginning_shows_no_rest_of_a_token() -> None:
    assert addresses.without_http_secrets(b"al_secret HTTP/1.1\r\nHost: h") == b"********* HTTP/1.1\r\nHost: h"
    assert (
        addresses.without_http_secrets(b"GET al_secret?a HTTP/1.1\r\nHost: h") == b"GET *********?* HTTP/1.1\r\nHost: h"
    )
    assert addresses.without_http_secrets(b"HTTP/1.1 200 All is well\r\nA: b") == b"HTTP/1.1 200 All is well\r\nA: b"

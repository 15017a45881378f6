from __future__ import annotations

from collections.abc import Callable

import pytest

from mqttscope.transport.target import (
    AddressError,
    BrokerUrl,
    loopback,
    parse_broker,
    parse_listen,
    parse_upstream,
    shown,
)
from tests.each import each


@pytest.mark.parametrize(
    ("text", "expected", "written"),
    [
        ("mqtt://broker", BrokerUrl("mqtt", "broker", 1883), "mqtt://broker:1883"),
        ("mqtts://broker", BrokerUrl("mqtts", "broker", 8883), "mqtts://broker:8883"),
        ("ws://broker:9001/", BrokerUrl("ws", "broker", 9001), "ws://broker:9001"),
        ("WSS://Broker", BrokerUrl("wss", "broker", 443), "wss://broker:443"),
        ("mqtt://[::1]:1885", BrokerUrl("mqtt", "::1", 1885), "mqtt://[::1]:1885"),
    ],
)
def test_where_the_broker_is_of_an_address(text: str, expected: BrokerUrl, written: str) -> None:
    url = parse_upstream(text)

    assert url == expected
    assert str(url) == written
    assert (url.tls, url.websocket) == (url.scheme in ("mqtts", "wss"), url.scheme in ("ws", "wss"))


def test_addresses_are_shown_as_they_are_written() -> None:
    assert shown("192.0.2.1", 1883) == "192.0.2.1:1883"
    assert shown("2001:db8::1", 1883) == "[2001:db8::1]:1883"


@each(
    "text, expected",
    [
        ("127.0.0.1:1884", ("127.0.0.1", 1884)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:65535", ("::1", 65535)),
        ("*:1884", ("", 1884)),
    ],
)
def test_where_to_listen(text: str, expected: tuple[str, int]) -> None:
    assert parse_listen(text) == expected


@each(
    "text, expected",
    [
        ("mqtt://broker", BrokerUrl("mqtt", "broker", 1883)),
        ("mqtt://broker/", BrokerUrl("mqtt", "broker", 1883)),
        ("MQTTS://Broker:8884", BrokerUrl("mqtts", "broker", 8884)),
        ("mqtt://[::1]", BrokerUrl("mqtt", "::1", 1883)),
        ("mqtt://me@broker", BrokerUrl("mqtt", "broker", 1883, "me")),
        ("mqtts://me%40work@broker", BrokerUrl("mqtts", "broker", 8883, "me@work")),
        ("mqtt://@broker", BrokerUrl("mqtt", "broker", 1883)),
        ("ws://broker", BrokerUrl("ws", "broker", 80, None, "/mqtt")),
        ("ws://broker:9001/", BrokerUrl("ws", "broker", 9001, None, "/")),
        ("wss://broker/a/b", BrokerUrl("wss", "broker", 443, None, "/a/b")),
        ("wss://broker?token=a%20b&c", BrokerUrl("wss", "broker", 443, None, "/mqtt?token=a%20b&c")),
        ("wss://broker/p?X-Amz-Signature=1/2", BrokerUrl("wss", "broker", 443, None, "/p?X-Amz-Signature=1/2")),
        ("ws://broker/größe", BrokerUrl("ws", "broker", 80, None, "/gr%C3%B6%C3%9Fe")),
    ],
)
def test_where_the_broker_is(text: str, expected: BrokerUrl) -> None:
    assert parse_broker(text) == expected


NOWHERE_TO_LISTEN = {
    "1884": "'1884' is not HOST:PORT, such as 127.0.0.1:1884",
    "": "'' is not HOST:PORT",
    ":1884": "':1884' has no host; *:1884 listens on every address, 127.0.0.1:1884 only on this host",
    "::1:1884": "'::1:1884': an IPv6 address goes into brackets, such as [::1]:1884",
    "host:65536": "'65536' is not a port (0 to 65535, 0 for any free one)",
    "host:": "'' is not a port",
    "host:mqtt": "'mqtt' is not a port",
    "host:-1": "'-1' is not a port",
    "host:１": "'１' is not a port",
    "a" * 70 + ".b:5": "'aaaa",
}
NO_UPSTREAM = {
    "broker:1883": "'broker:1883' is not a URL; mqtt://broker:1883 is one",
    "http://broker": "http:// is not one of mqtt://, mqtts://, ws://, wss://",
    "mqtt://": "'mqtt://' has no host",
    "mqtt://:1883": "'mqtt://:1883' has no host",
    "mqtt://broker:99999": "'mqtt://broker:99999': Port out of range",
    "mqtt://user:hunter2": "'mqtt://user:***': host and port cannot be read",
    "ws://broker/x%3Ftoken%3Dhunter2": "'ws://broker/x%3Ftoken%3D***' has more than a host and a port",
    "ws://broker/x;hunter2": "'ws://broker/x;***' has more",
    "broker/x;token=hunter2": "'broker/x;***' is not a URL; mqtt://broker/x;*** is one",
    "mqtt://broker:0": "no broker can be reached at port 0",
    "mqtt://user:secret@broker": "user name and password come from the clients",
    "mqtt://broker/topic": "'mqtt://broker/topic' has more than a host and a port: MQTT has no paths",
    "ws://broker/mqtt": "'ws://broker/mqtt' has more than a host and a port: clients choose the WebSocket path",
    "mqtt://[::1": "'mqtt://[::1': ",
}
NO_BROKER = {
    "broker": "'broker' is not a URL; mqtt://broker is one",
    "http://broker": "http:// is not one of mqtt://, mqtts://, ws://, wss://",
    "mqtt://me:hunter2@broker": "a password does not belong in a URL; secrets come from the environment or a",
    "mqtt://me:@broker": "a password does not belong in a URL",
    "mqtt://broker/topic": "mqtt:// takes a host and a port: MQTT has no paths; ws:// and wss:// have",
    "mqtt://broker?x": "mqtt:// takes a host and a port",
    "ws://broker/mqtt#x": "the URL of a broker has no fragment (#...)",
    "ws://broker/a b": "a WebSocket path must not contain spaces or control characters",
    "mqtt://": "'mqtt://' has no host",
    "mqtt://broker:0": "no broker can be reached at port 0",
}


@each("parse, texts", [(parse_listen, NOWHERE_TO_LISTEN), (parse_upstream, NO_UPSTREAM), (parse_broker, NO_BROKER)])
def test_what_is_no_address(parse: Callable[[str], object], texts: dict[str, str]) -> None:
    for text, shown_text in texts.items():
        with pytest.raises(AddressError) as caught:
            parse(text)
        assert str(caught.value).startswith(shown_text), text
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "me:hunter2@broker",
        "mqtt://me:hunter2@broker",
        "mqtt://me:hunter2@broker:99999",
        "mqtt://me:hunt/hunter2@broker",
        "mqtt://me:hunter2@",
        "http://me:hunter2@broker",
        "me:hunter2@broker://x",
        "mqtt://hunter2[@broker",
    ],
)
def test_no_error_repeats_a_password(text: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse_broker(text)
    assert "hunt" not in str(caught.value)


def test_targets_are_shown_without_users_and_queries() -> None:
    assert str(parse_broker("wss://me@broker/p?token=secret")) == "wss://broker:443/p"
    assert str(parse_broker("ws://broker/p;token=hunter2")) == "ws://broker:80/p;***"
    assert str(parse_broker("ws://broker/p%3Ftoken%3Dhunter2")) == "ws://broker:80/p%3Ftoken%3D***"
    assert str(parse_broker("mqtt://me@[::1]")) == "mqtt://[::1]:1883"


def test_the_usual_port_is_not_named_to_http() -> None:
    assert parse_broker("ws://broker").authority == "broker"
    assert parse_broker("wss://[::1]").authority == "[::1]"
    assert parse_broker("ws://broker:9001").authority == "broker:9001"


def test_what_a_target_speaks() -> None:
    assert [(url.tls, url.websocket) for url in map(parse_broker, ("mqtt://b", "mqtts://b", "ws://b", "wss://b"))] == [
        (False, False), (True, False), (False, True), (True, True)
    ]  # fmt: skip


def test_loopback_is_asked_of_addresses() -> None:
    assert loopback(["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "::1%lo"])
    # Connecting to the unspecified addresses leads to this host.
    assert loopback(["0.0.0.0", "::"])
    assert not loopback([])
    assert not loopback(["127.0.0.1", "192.0.2.1"])
    assert not loopback(["::ffff:192.0.2.1"])
    with pytest.raises(ValueError, match="localhost"):
        loopback(["localhost"])

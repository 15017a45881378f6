from __future__ import annotations

import pytest

from mqttscope.transport.address import AddressError, Upstream, parse_listen, parse_upstream, shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:1884", ("127.0.0.1", 1884)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:65535", ("::1", 65535)),
        ("*:1884", ("", 1884)),
    ],
)
def test_where_to_listen(text: str, expected: tuple[str, int]) -> None:
    assert parse_listen(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1884", "'1884' is not HOST:PORT, such as 127.0.0.1:1884"),
        ("", "'' is not HOST:PORT"),
        (":1884", "':1884' names no host; *:1884 listens on every address, 127.0.0.1:1884 on this host's"),
        ("::1:1884", "'::1:1884': an IPv6 address goes into brackets, such as [::1]:1884"),
        ("host:65536", "'65536' is not a port (0 to 65535, 0 for any free one)"),
        ("host:", "'' is not a port"),
        ("host:mqtt", "'mqtt' is not a port"),
        ("host:-1", "'-1' is not a port"),
        ("host:１", "'１' is not a port"),
        ("a" * 70 + ".b:5", "'aaaa"),
    ],
)
def test_nowhere_to_listen(text: str, said: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse_listen(text)
    assert str(caught.value).startswith(said)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected", "written"),
    [
        ("mqtt://broker", Upstream("mqtt", "broker", 1883), "mqtt://broker:1883"),
        ("mqtts://broker", Upstream("mqtts", "broker", 8883), "mqtts://broker:8883"),
        ("ws://broker:9001/", Upstream("ws", "broker", 9001), "ws://broker:9001"),
        ("WSS://Broker", Upstream("wss", "broker", 443), "wss://broker:443"),
        ("mqtt://[::1]:1885", Upstream("mqtt", "::1", 1885), "mqtt://[::1]:1885"),
    ],
)
def test_where_the_broker_is(text: str, expected: Upstream, written: str) -> None:
    found = parse_upstream(text)

    assert found == expected
    assert str(found) == written
    assert (found.tls, found.websocket) == (found.scheme in ("mqtts", "wss"), found.scheme in ("ws", "wss"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("broker:1883", "'broker:1883' is not a URL; mqtt://broker:1883 is one"),
        ("http://broker", "http:// is not one of mqtt://, mqtts://, ws://, wss://"),
        ("mqtt://", "'mqtt://' names no host"),
        ("mqtt://:1883", "'mqtt://:1883' names no host"),
        ("mqtt://broker:99999", "'mqtt://broker:99999': Port out of range"),
        ("mqtt://user:hunter2", "'mqtt://user:***': host and port cannot be read"),
        ("ws://broker/x%3Ftoken%3Dhunter2", "'ws://broker/x%3Ftoken%3D***' has more than a host and a port"),
        ("ws://broker/x;hunter2", "'ws://broker/x;***' has more"),
        ("broker/x;token=hunter2", "'broker/x;***' is not a URL; mqtt://broker/x;*** is one"),
        ("mqtt://broker:0", "nobody can be reached at port 0"),
        ("mqtt://user:secret@broker", "user name and password come from the clients"),
        ("mqtt://broker/topic", "'mqtt://broker/topic' has more than a host and a port: MQTT has no paths"),
        ("ws://broker/mqtt", "'ws://broker/mqtt' has more than a host and a port: clients name the path"),
        ("mqtt://[::1", "'mqtt://[::1': "),
    ],
)
def test_no_broker(text: str, said: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse_upstream(text)
    assert str(caught.value).startswith(said)


def test_addresses_are_shown_as_they_are_written() -> None:
    assert shown("192.0.2.1", 1883) == "192.0.2.1:1883"
    assert shown("2001:db8::1", 1883) == "[2001:db8::1]:1883"

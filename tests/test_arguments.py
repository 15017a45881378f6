"""Arguments of proxies, replays and stand-ins that cannot be meant are refused when these are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import mqttscope
from tests.cli.running import capture
from tests.each import each

URL = "mqtt://127.0.0.1:9"
QOS = capture("v311-qos")
WRONG: Any = object()
"""What no argument can be."""
PROXY: list[tuple[dict[str, Any], str]] = [
    ({"upstream": None}, "upstream is None, which is no text: it is a URL, such as mqtt://"),
    ({"upstream": 5}, "upstream is 5"),
    ({"listen": 5}, "listen is 5, which is no text: it is HOST:PORT"),
    ({"max_connections": "x"}, "max_connections is 'x': it is a whole number from 1 on"),
    ({"max_connections": -1}, "max_connections is -1"),
    ({"max_connections": True}, "max_connections is True"),
    ({"connect_timeout": "x"}, "connect_timeout is 'x': it is a number of seconds from 0 on"),
    ({"connect_timeout": float("nan")}, "connect_timeout is nan"),
    ({"client_timeout": float("inf")}, "client_timeout is inf"),
    ({"policy": 5}, "policy is 5: it is a Policy of mqttscope.lint.gate"),
    ({"baseline": "x.json"}, "baseline is 'x.json': it is a Baseline of mqttscope.lint.gate"),
    ({"max_packet": 0}, "max_packet is 0: it is a whole number from 1 on"),
    ({"ca": "nofile"}, r"ca is for a broker with TLS \(mqtts://, wss://\), not for mqtt://127.0.0.1:9"),
    ({"insecure": True}, "insecure is for a broker with TLS"),
    ({"upstream": "mqtts://127.0.0.1:9", "ca": 5}, "ca is 5: it is the name of a file"),
    ({"upstream": "mqtts://127.0.0.1:9", "key": "k.pem"}, "key needs cert"),
    ({"listen_key": "k.pem"}, "listen_key needs listen_cert"),
    ({"listen_cert": 5}, "listen_cert is 5: it is the name of a file"),
    ({"rules": [int]}, "is no rule"),
]
REPLAY: list[tuple[dict[str, Any], str]] = [
    ({"broker": None}, "broker is None, which is no text: it is a URL"),
    ({"end": 5}, "end is 5, which is no text: it is a time, such as"),
    ({"start": 5}, "start is 5"),
    ({"patience": -1}, "patience is -1: it is a number of seconds from 0 on"),
    ({"connect_timeout": "x"}, "connect_timeout is 'x'"),
    ({"cert": "c.pem"}, "cert is for a broker with TLS"),
]
STAND_IN: list[tuple[dict[str, Any], str]] = [
    ({"listen": None}, "listen is None"),
    ({"match": "zz"}, "match is 'zz', which is none of auto, client, order"),
    ({"unexpected": "zz"}, "unexpected is 'zz', which is none of answer, ignore, close"),
    ({"patience": "x"}, "patience is 'x'"),
    ({"start": 5}, "start is 5"),
    ({"listen_key": "k.pem"}, "listen_key needs listen_cert"),
]


@each("options, said", PROXY)
def test_a_proxy_is_not_made_of_nonsense(options: dict[str, Any], said: str) -> None:
    with pytest.raises(mqttscope.ArgumentError, match=said):
        mqttscope.Proxy(**{"upstream": URL, **options})


@each("options, said", REPLAY)
def test_nor_is_a_replay(options: dict[str, Any], said: str) -> None:
    with pytest.raises(mqttscope.ArgumentError, match=said):
        mqttscope.Replay(QOS, **{"broker": URL, **options})


@each("options, said", STAND_IN)
def test_nor_is_a_stand_in(options: dict[str, Any], said: str) -> None:
    with pytest.raises(mqttscope.ArgumentError, match=said):
        mqttscope.StandIn(QOS, **options)


def not_started() -> list[Callable[[], object]]:
    """Questions before a start, which have no answer."""
    proxy, twin = mqttscope.Proxy(URL), mqttscope.AsyncProxy(URL)
    stand_in, other = mqttscope.StandIn(QOS), mqttscope.AsyncStandIn(QOS)
    made: list[Any] = [proxy, twin, stand_in, other, mqttscope.Traffic(proxy)]
    asked = [
        lambda one=one, name=name: getattr(one, name)
        for one in made
        for name in ("port", "url", "address")
        if hasattr(type(one), name)
    ]
    return [*asked, stand_in.close, lambda: stand_in.served, lambda: other.served, lambda: proxy.write("x.pcapng")]


@each("ask", not_started(), ids=lambda one: repr(one))
def test_what_was_not_started_says_so(ask: Callable[[], object]) -> None:
    with pytest.raises(mqttscope.InvalidStateError, match="was not started") as caught:
        ask()
    assert isinstance(caught.value, mqttscope.MqttscopeError)
    assert isinstance(caught.value, RuntimeError)


def test_a_file_that_is_no_capture_is_named() -> None:
    for make in (mqttscope.StandIn, lambda name: mqttscope.Replay(name, broker=URL)):
        with pytest.raises(mqttscope.NothingRecordedError, match=r"test_arguments\.py: .*(format|capture)"):
            make(__file__)

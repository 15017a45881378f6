"""Arguments of proxies, replays and stand-ins that cannot be meant are refused when these are made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import mqttscope
from mqttscope.arguments import read_endpoint
from mqttscope.lint.rule import Rule
from tests.cli.running import capture
from tests.each import each

Wrong = list[tuple[dict[str, Any], str]]
"""Arguments, and what is said of them."""
URL = "mqtt://127.0.0.1:9"
QOS = capture("v311-qos")
PROXY: Wrong = [
    ({"upstream": None}, "upstream must be a str .a URL, such as mqtt://"),
    ({"upstream": 5}, "upstream must be .*, not 5"),
    ({"listen": 5}, "listen must be a str .HOST:PORT"),
    ({"max_connections": "x"}, "max_connections must be a whole number of at least 1"),
    ({"max_connections": -1}, "max_connections must be .*, not -1"),
    ({"max_connections": True}, "max_connections must be .*, not True"),
    ({"connect_timeout": "x"}, "connect_timeout must be a number of seconds of at least 0"),
    ({"connect_timeout": float("nan")}, "connect_timeout must be .*, not nan"),
    ({"client_timeout": float("inf")}, "client_timeout must be .*, not inf"),
    ({"policy": 5}, "policy must be a Policy of mqttscope.lint.gate"),
    ({"baseline": "x.json"}, "baseline must be a FindingBaseline of mqttscope.lint.gate"),
    ({"max_packet": 0}, "max_packet must be a whole number of at least 1"),
    ({"ca": "nofile"}, r"ca is for a broker with TLS \(mqtts://, wss://\), not for mqtt://127.0.0.1:9"),
    ({"insecure": True}, "insecure is for a broker with TLS"),
    ({"upstream": "mqtts://127.0.0.1:9", "ca": 5}, "ca must be a file name"),
    ({"upstream": "mqtts://127.0.0.1:9", "key": "k.pem"}, "key needs cert"),
    ({"listen_key": "k.pem"}, "listen_key needs listen_cert"),
    ({"listen_cert": 5}, "listen_cert must be a file name"),
    ({"rules": [int]}, "is not a rule"),
    ({"insecure": "no"}, "insecure must be True or False"),
    ({"upstream": "mqtts://127.0.0.1:9", "ca": ""}, "ca must be a file name"),
    ({"select": []}, r"select=\[\]: no rule is left"),
    ({"select": 5}, "select takes a list of codes, prefixes or names of rules"),
    ({"extend_select": [5]}, "extend_select takes a list"),
    ({"ignore": b"PUB"}, "ignore takes a list"),
]
REPLAY: Wrong = [
    ({"broker": None}, "broker must be a str .a URL"),
    ({"end": 5}, "end must be a str .a time, such as"),
    ({"start": 5}, "start must be .*, not 5"),
    ({"patience": -1}, "patience must be a number of seconds of at least 0"),
    ({"connect_timeout": "x"}, "connect_timeout must be .*, not 'x'"),
    ({"cert": "c.pem"}, "cert is for a broker with TLS"),
    ({"pace": True}, "True is not recorded, asap, causal, or a factor"),
    ({"pace": None}, "None is not recorded, asap, causal, or a factor"),
    ({"pace": float("nan")}, "a pace of nan is not above 0 and finite"),
    ({"pace": -1}, "a pace of -1 is not above 0"),
    ({"clients": 5}, "clients must be a list of globs of Client Identifiers"),
    ({"clients": [5]}, r"clients must be .*, not \[5\]"),
    ({"clients": b"dev"}, "clients must be .*, not b'dev'"),
    ({"user_name": 5}, "user_name must be a str"),
    ({"password": 5}, "password is neither text nor bytes"),
    ({"user_name": "a" * 65_536}, "a user name has at most 65,535 bytes"),
    ({"user_name": "a\0b"}, "a user name has at most 65,535 bytes"),
    ({"password": b"x" * 65_536}, "a password has at most 65,535 bytes"),
    ({"record": 5}, "record must be the path of a file"),
    ({"record": ""}, "record must be the path of a file"),
    ({"allow_remote": "no"}, "allow_remote must be True or False"),
    ({"insecure": 1}, "insecure must be True or False"),
    ({"version": 5}, "version must be a str .3.1, 3.1.1 or 5.0"),
    ({"patience": float("nan")}, "patience must be .*, not nan"),
]
STAND_IN: Wrong = [
    ({"listen": None}, "listen must be .*, not None"),
    ({"patience": "x"}, "patience must be .*, not 'x'"),
    ({"start": 5}, "start must be .*, not 5"),
    ({"listen_key": "k.pem"}, "listen_key needs listen_cert"),
    ({"clients": 5}, "clients must be .*, not 5"),
    ({"repeat": "no"}, "repeat must be True or False"),
    ({"websocket": 1}, "websocket must be True or False"),
    ({"version": 3.1}, "version must be a str"),
    ({"listen_cert": ""}, "listen_cert must be a file name"),
    ({"listen_cert": "\0"}, r"listen_cert must be a file name"),
]
READING: Wrong = [
    ({"version": 5}, "version must be a str .3.1, 3.1.1 or 5.0"),
    ({"version": 5.0}, "version must be a str"),
    ({"version": True}, "version must be .*, not True"),
    ({"version": b"5.0"}, "version must be .*, not b'5.0'"),
    ({"version": ""}, "'' is not an MQTT version"),
    ({"version": "6"}, "'6' is not an MQTT version"),
    ({"filter": 5}, "filter takes an expression as str, .*, not 5"),
    ({"keys": 5}, "keys must be the path of a file, as str or PathLike, not 5"),
    ({"keys": ""}, "keys must be the path of a file, as str or PathLike, not ''"),
    ({"ports": None}, "ports takes a list, as .*, not None"),
    ({"ports": 1884}, r"ports are a list, as \[1884\]"),
    ({"ports": "1884"}, "ports are a list"),
    ({"ports": ["80:http"]}, "'http' is not one of mqtt, ws, tls"),
    ({"ports": {70_000: "ws"}}, "'70000' is not a port"),
    ({"ports": b"18"}, "ports takes a list"),
    ({"ports": [0]}, "'0' is not a port"),
    ({"ports": [65_536]}, "'65536' is not a port"),
    ({"ports": [1884.5]}, "is not a port"),
    ({"ports": [True]}, "'True' is not a port"),
    ({"ports": {8080: "udp"}}, "'udp' is not one of mqtt, ws, tls"),
    ({"deduplicate": "no"}, "deduplicate must be True or False"),
    ({"verify_checksums": "no"}, "verify_checksums must be True or False"),
    ({"raise_errors": 1}, "raise_errors must be True or False"),
    ({"show_secrets": "false"}, "show_secrets must be True or False"),
]
"""What `open` and `lint` do not take."""
OF_OPEN: Wrong = [
    ({"payload_limit": -1}, "payload_limit must be a number of bytes, not -1"),
    ({"payload_limit": "64"}, "payload_limit must be a number of bytes, not '64'"),
    ({"payload_limit": None}, "payload_limit must be a number of bytes, not None"),
    ({"payload_limit": True}, "payload_limit must be a number of bytes"),
]
OF_LINT: Wrong = [
    ({"select": []}, r"select=\[\]: no rule is left"),
    ({"select": 5}, "select takes a list of codes, .*, not 5"),
    ({"select": [None]}, r"select takes a list of codes, .*, not \[None\]"),
    ({"extend_select": b"PUB"}, "extend_select takes a list"),
    ({"ignore": None}, "ignore takes a list of codes, .*, not None"),
    ({"ignore": ["PUB", 5]}, "ignore takes a list"),
    ({"ignore": "ALL"}, "no rule is left to check with"),
    ({"rules": None}, "rules takes a list of classes or instances of rules, not None"),
    ({"rules": "OWN"}, "rules takes a list of classes or instances of rules, not 'OWN'"),
    ({"rules": Rule}, "rules takes a list of classes"),
    ({"profile": 5}, "profile must be the path of a file"),
    ({"profile": ""}, "profile must be the path of a file"),
    ({"complete": "10.0.0.2:1883"}, "complete takes a list of servers"),
    ({"complete": 5}, "complete takes a list of servers"),
    ({"complete": ["10.0.0.2"]}, "complete contains '10.0.0.2': it is not HOST:PORT"),
    ({"complete": ["localhost:1883"]}, "complete contains .*: 'localhost' is not an IP address"),
    ({"complete": [None]}, "complete contains None"),
]
OF_DECODE: Wrong = [
    ({"version": 4}, "version must be a str .3.1, 3.1.1 or 5.0"),
    ({"version": "4"}, "'4' is not an MQTT version"),
    ({"sender": "broker"}, "'broker' is neither client nor server"),
    ({"sender": ["client"]}, "is neither client nor server"),
    ({"payload_limit": "x"}, "payload_limit must be a number of bytes, not 'x'"),
    ({"show_secrets": "no"}, "show_secrets must be True or False"),
]
OF_INGEST: Wrong = [
    ({"lake": None}, "lake must be the path of a folder, or a URL in an object store"),
    ({"lake": ""}, "lake must be the path of a folder"),
    ({"group": None}, "group must be a str .the name of a site"),
    ({"settings": "region"}, "settings must be a mapping of texts"),
    ({"settings": {"region": 5}}, "settings must be a mapping of texts"),
    ({"lake_settings": [("region", "x")]}, "lake_settings must be "),
    ({"payload_limit": "64"}, "payload_limit must be a number of bytes"),
    ({"payload_limit": -1}, "payload_limit must be a number of bytes"),
    ({"version": 5}, "version must be a str"),
    ({"select": []}, r"select=\[\]: no rule is left"),
    ({"complete": ["zz"]}, "complete contains 'zz'"),
    ({"rules": None}, "rules takes a list"),
    ({"profile": 5}, "profile must be the path of a file"),
    ({"ports": ["x"]}, "'x' is not a port"),
]
OF_LAKE: Wrong = [
    ({"path": None}, "path must be the path of a folder, or a URL in an object store"),
    ({"path": ""}, "path must be the path of a folder"),
    ({"path": b"lake"}, "path must be the path of a folder"),
    ({"generation": "3"}, "generation must be a whole number, not"),
    ({"generation": True}, "generation must be .*, not True"),
    ({"generation": 1.0}, "generation must be .*, not 1.0"),
    ({"settings": 5}, "settings must be a mapping of texts"),
]
QUESTIONS: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("packets", (5,), {}, "type must be a str .the name of a packet type"),
    ("packets", (["publish"],), {}, r"type must be .*, not \['publish'\]"),
    ("packets", ("",), {}, "'' is not a packet type"),
    ("packets", (), {"topic": 5}, "topic must be .*, not 5"),
    ("packets", (), {"topic": "a/#/b"}, "'a/#/b' is not a Topic Filter, so no topic matches it: # must be the last"),
    ("packets", (), {"payload": 5}, "payload must be .*, not 5"),
    ("packets", (), {"direction": "up"}, "direction must be one of client_to_server, server_to_client"),
    ("packets", (), {"client_identifier": 5}, "client_identifier must be .*, not 5"),
    ("packets", (), {"where": 5}, "where must be a function of a packet, not 5"),
    ("expect", (), {"timeout": "5"}, "timeout must be a number of seconds of at least 0"),
    ("expect", (), {"timeout": -1}, "timeout must be .*, not -1"),
    ("expect", (), {"timeout": float("nan")}, "timeout must be .*, not nan"),
    ("expect", (), {"timeout": float("inf")}, "timeout must be .*, not inf"),
    ("expect", (), {"timeout": None}, "timeout must be .*, not None"),
    ("expect", (), {"timeout": True}, "timeout must be .*, not True"),
    ("expect", (), {"count": "1"}, "count must be a whole number"),
    ("expect", (), {"count": 1.0}, "count must be .*, not 1.0"),
    ("expect", (), {"count": True}, "count must be .*, not True"),
    ("expect", (), {"count": 0}, r"count is 0: absent\(\) is for"),
    ("expect", (), {"count": -1}, "count must be .*, not -1"),
    ("expect", ("publsh",), {}, "'publsh' is not a packet type"),
    ("absent", (5,), {}, "type must be .*, not 5"),
    ("absent", ("publsh",), {}, "'publsh' is not a packet type"),
    *(
        (name, ("publish",), {"direction": "client"}, "direction must be .*, not 'client'")
        for name in ("absent", "expect")
    ),
    ("never", (), {}, "needs the code, prefix or name of a rule"),
    ("never", (5,), {}, "never takes a list of codes"),
    ("assert_conformant", (), {"fail_on": "fatal"}, "fail_on must be .*, not 'fatal'"),
    ("assert_conformant", (), {"fail_on": ""}, "fail_on must be .*, not ''"),
    ("assert_conformant", (), {"min_confidence": 5}, "min_confidence must be .*, not 5"),
    ("assert_conformant", (), {"min_confidence": ""}, "min_confidence must be .*, not ''"),
    ("assert_conformant", (), {"ignore": 5}, "ignore takes a list"),
    ("assert_conformant", (), {"require_packets": "5"}, "require_packets must be a whole number of at least 0"),
    ("assert_conformant", (), {"require_packets": -1}, "require_packets must be .*, not -1"),
    ("assert_conformant", (), {"require_packets": float("nan")}, "require_packets must be .*, not nan"),
    ("assert_conformant", (), {"require_packets": None}, "require_packets must be .*, not None"),
]
"""Questions about the traffic of a test that have no answer."""


OF_REPORT: Wrong = [
    (options, text)
    for name, _, options, text in QUESTIONS
    if name == "assert_conformant" and "require_packets" not in options
]
CALLS: list[tuple[Callable[..., object], Wrong]] = [
    (partial(mqttscope.open, QOS), [*READING, *OF_OPEN]),
    (mqttscope.open(QOS).to_arrow, [({"payload_limit": "x"}, "payload_limit must be a number of bytes, not 'x'")]),
    (partial(mqttscope.lint, QOS), [*READING, *OF_LINT]),
    (partial(mqttscope.decode, b"\xc0\0"), OF_DECODE),
    (partial(mqttscope.lake.open, path=QOS.parent), OF_LAKE),
    (partial(mqttscope.Proxy, upstream=URL), PROXY),
    (partial(mqttscope.Replay, QOS, broker=URL), REPLAY),
    (partial(mqttscope.StandIn, QOS), STAND_IN),
    (mqttscope.Proxy(URL).report, OF_REPORT),
]


@each("call, options, expected", [(call, *row) for call, rows in CALLS for row in rows])
def test_nonsense_is_refused(call: Callable[..., object], options: dict[str, Any], expected: str) -> None:
    with pytest.raises(mqttscope.ArgumentError, match=expected):
        call(**options)


@each("options, expected", OF_INGEST)
def test_nothing_is_written_where_nonsense_is_ingested(options: dict[str, Any], expected: str, tmp_path: Path) -> None:
    with pytest.raises(mqttscope.ArgumentError, match=expected):
        mqttscope.lake.ingest(QOS, **{"lake": tmp_path / "lake", **options})
    assert not list(tmp_path.iterdir())


@each("captures", [(5,), (None,), (b"a.pcap",), (["a.pcap", "b.pcap"],), (QOS, 5)])
def test_captures_have_names(captures: tuple[Any, ...]) -> None:
    for use in (mqttscope.open, mqttscope.lint, partial(mqttscope.lake.ingest, lake="lake")):
        with pytest.raises(TypeError, match="captures are named by str or PathLike, not by "):
            use(*captures)


@each("name, words, options, expected", QUESTIONS)
def test_questions_about_traffic_are_checked(
    name: str, words: tuple[Any, ...], options: dict[str, Any], expected: str
) -> None:
    proxy = mqttscope.Proxy(URL)
    for traffic in (mqttscope.Traffic(QOS), mqttscope.Traffic(proxy)):
        with pytest.raises(mqttscope.ArgumentError, match=expected):
            getattr(traffic, name)(*words, **options)


@each("source", [5, None, b"a.pcap", object()])
def test_traffic_is_of_a_proxy_or_of_captures(source: Any) -> None:
    with pytest.raises(mqttscope.ArgumentError, match="must be a Proxy, a capture, or a list of captures"):
        mqttscope.Traffic(source)


@each("path", [5, None, "", b"x.pcapng"])
def test_a_recording_is_written_to_a_path(path: Any) -> None:
    with pytest.raises(mqttscope.ArgumentError, match="path must be the path of a file"):
        mqttscope.Proxy(URL).write(path)


@each("timeout", ["5", -1, float("nan"), float("inf"), True])
def test_a_stand_in_is_waited_for_in_seconds(timeout: Any) -> None:
    stand_in, other = mqttscope.StandIn(QOS), mqttscope.AsyncStandIn(QOS)
    for ask in (stand_in.wait, stand_in.finish):
        with pytest.raises(mqttscope.ArgumentError, match=f"timeout must be .*, not {timeout!r}"):
            ask(timeout)
    for later in (other.wait, other.finish):
        with pytest.raises(mqttscope.ArgumentError, match=f"timeout must be .*, not {timeout!r}"):
            asyncio.run(later(timeout))


@each(
    "columns, expected",
    [(5, "columns must be a list"), ("topic", "columns are a list"), (["x"], "column 'x' does not exist")],
)
def test_columns_of_a_lake_are_a_list_of_names(columns: Any, expected: str, tmp_path: Path) -> None:
    mqttscope.lake.ingest(QOS, lake=tmp_path / "lake", ignore="ALL")
    with mqttscope.lake.open(tmp_path / "lake") as lake:
        for rows in (lake.packets, lake.session_activity):
            with pytest.raises(mqttscope.ArgumentError, match=expected):
                rows.to_arrow(columns)
        with pytest.raises(mqttscope.ArgumentError, match="query must be a str"):
            lake.sql(5)  # type: ignore[arg-type]


def not_started() -> list[Callable[[], object]]:
    """Questions before a start, which have no answer."""
    proxy, twin = mqttscope.Proxy(URL), mqttscope.AsyncProxy(URL)
    stand_in, other = mqttscope.StandIn(QOS), mqttscope.AsyncStandIn(QOS)
    result: list[Any] = [proxy, twin, stand_in, other, mqttscope.Traffic(proxy)]
    asked = [
        lambda each=each, name=name: getattr(each, name)
        for each in result
        for name in ("port", "url", "address")
        if hasattr(type(each), name)
    ]
    return [*asked, stand_in.close, lambda: stand_in.served, lambda: other.served, lambda: proxy.write("x.pcapng")]


@each("ask", not_started(), ids=lambda each: repr(each))
def test_what_was_not_started_says_so(ask: Callable[[], object]) -> None:
    with pytest.raises(mqttscope.InvalidStateError, match="was not started") as caught:
        ask()
    assert isinstance(caught.value, mqttscope.MqttscopeError)
    assert isinstance(caught.value, RuntimeError)


def test_a_file_that_is_no_capture_is_named() -> None:
    for make in (mqttscope.StandIn, lambda name: mqttscope.Replay(name, broker=URL)):
        with pytest.raises(mqttscope.NothingRecordedError, match=r"test_arguments\.py: .*(format|capture)"):
            make(__file__)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("10.0.0.2:1883", "10.0.0.2:1883"),
        ("[fd00::1]:1883", "[fd00::1]:1883"),
        ("[FD00:0:0::1]:01883", "[fd00::1]:1883"),
    ],
)
def test_an_endpoint_is_read_as_it_is_written_elsewhere(written: str, read: str) -> None:
    assert read_endpoint(written) == read


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("10.0.0.2", "not HOST:PORT"),
        ("10.0.0.2:", "port from 1 to 65535"),
        ("10.0.0.2:0", "port from 1 to 65535"),
        ("10.0.0.2:65536", "port from 1 to 65535"),
        ("10.0.0.2:mqtt", "port from 1 to 65535"),
        ("fd00::1:1883", "write an IPv6 address in brackets"),
        ("[fe80::1%eth0]:1883", "not an IP address"),
        ("[10.0.0.2]:1883", "not an IP address"),
        ("broker.example:1883", "not an IP address: captures contain no host names"),
        (":1883", "not an IP address"),
    ],
)
def test_what_is_no_endpoint_says_why(written: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_endpoint(written)

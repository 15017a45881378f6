"""Values of options that several commands share."""

from __future__ import annotations

import click
import pytest

from mqttscope.cli.options import Port, ProtocolOptions, Version
from mqttscope.dev.generate import command_names, find_command
from mqttscope.mqtt.constants import ProtocolVersion
from tests.cli.running import capture, inspected, invoke
from tests.each import each


@each(
    "text, wanted",
    [("1", (1, "mqtt")), ("65535:mqtt", (65535, "mqtt")), ("8883:tls", (8883, "tls")), ("1884:", (1884, "mqtt"))],
)
def test_port(text: str, wanted: tuple[int, str]) -> None:
    assert Port().convert(text, None, None) == wanted


@pytest.mark.parametrize(
    "text", ["0", "65536", "-1", "99999999999999999999", "", "ws", "1884:http", "1884:ws:tls", "²", "٣"]
)
def test_what_is_no_port_is_named(text: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        Port().convert(text, None, None)

    number, _, protocol = text.partition(":")
    assert caught.value.message in (
        f"{number!r} is not a port (1 to 65535)",
        f"{protocol!r} is not one of mqtt, ws, tls",
    )


@each(
    "words, expected",
    [
        (("inspect", "--port", "http"), "Invalid value for '--port': 'http' is not"),
        (("stats", "--port", "1883:http"), "Invalid value for '--port': 'http' is not"),
        (("inspect", "--connection", "1/2"), "'1/2' is not the number of a connection: 0, 1, 2 and so on"),
        (("lint", "--connection", "-1"), "'-1' is not the number of a connection"),
        (("explain", "--connection", ""), "'' is not the number of a connection"),
        (("lint", "--select", ""), "'--select': the value is empty"),
        (("lint", "--ignore", " ,"), "'--ignore': the value is empty"),
        (("inspect", "-o", ""), "'--output' / '-o': the name of the file is empty"),
        (("inspect", "-w", ""), "'--write' / '-w': the name of the file is empty"),
        (("lint", "-o", "sarif="), "--output sarif=: no file after the ="),
        (("mutate", "-o", ""), "'--output' / '-o': the name of the file is empty"),
        (("replay", "--keylog", ""), "'--keylog': the name of the file is empty"),
    ],
)
def test_a_value_that_names_nothing_is_a_usage_error(words: tuple[str, ...], expected: str) -> None:
    command, *options = words
    done = invoke(command, capture("v5-qos"), *options)

    assert (done.code, done.out) == (2, b"")
    assert expected in done.err


@each("command, form", [("inspect", "jsonl"), ("lint", "json"), ("explain", "json"), ("stats", "json")])
def test_connections_that_are_not_there_are_named(command: str, form: str) -> None:
    for more in ((), ("--format", form)):
        done = invoke(command, capture("v5-qos"), "--connection", "0", "--connection", "99", *more)
        assert "connection 99 does not exist" in done.err


@each("text, wanted", [("auto", None), ("3.1", ProtocolVersion.V3_1), (None, None)])
def test_version(text: str | None, wanted: ProtocolVersion | None) -> None:
    assert Version().convert(text, None, None) == wanted


@pytest.mark.parametrize("text", ["6.0", "3.1.1.1", "five"])
def test_what_is_no_version_is_named(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not an MQTT version"):
        Version().convert(text, None, None)


def test_options_become_those_of_the_dissector() -> None:
    options = ProtocolOptions(ports=((1884, "mqtt"), (8080, "ws")), mqtt_version=ProtocolVersion.V5).dissection()

    assert options.ports == {1884: "mqtt", 8080: "ws"}
    assert options.version is ProtocolVersion.V5


def test_port_finds_mqtt_that_was_joined_in_the_middle() -> None:
    path = capture("strange-port-joined")
    ports = {line["server"].rpartition(":")[2] for line in inspected(path).packets}
    (port,) = ports

    named = inspected(path, "--port", port, "--port", "4711:ws")
    assert {line["roles_evidence"] for line in named.of("connection_opened")} <= {"port", "packet types"}
    assert len(named.packets) >= len(inspected(path).packets)


def test_the_user_says_the_version_where_no_connect_was_captured() -> None:
    path = capture("joined-v5")

    for name in ("3.1.1", "5.0"):
        done = invoke("inspect", "--format", "jsonl", "--mqtt-version", name, path)
        lines = [line for line in done.lines if "version" in line]
        assert {line["version"] for line in lines} == {name}
        assert all(line["version_known"] for line in lines)


def test_a_captured_connect_goes_before_the_version_that_the_user_says() -> None:
    lines = inspected("--mqtt-version", "3.1", capture("v5-qos")).packets

    assert {line["version"] for line in lines} == {"5.0"}


@each("names", command_names())
def test_a_letter_means_the_same_in_every_command(names: tuple[str, ...]) -> None:
    letters = {"--write": "-w", "--output": "-o"}
    for option in (param for param in find_command(*names).params if isinstance(param, click.Option)):
        for long, short in letters.items():
            assert (long in option.opts) is (short in option.opts), f"{names}: {option.opts}"

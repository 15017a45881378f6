"""Single bytes as packets."""

from __future__ import annotations

import json

import pytest

import mqttscope
from tests.cli.running import invoke
from tests.each import each

CONNECT = "10 16 00 04 4d 51 54 54 04 c2 00 3c 00 02 64 31 00 01 75 00 03 70 77 64"


@each(
    "data, options",
    [
        ("30 07 00 03 61 2f 62 68 69", []),
        ("30 07 00 03 61 2f 62 68 69", ["--mqtt-version", "3.1"]),
        ("20 02 00 00 d0 00", ["--from", "server"]),
        ("36 00", []),
        ("30 10 00", []),
        ("ff ff ff ff ff ff", []),
        (CONNECT, []),
        (CONNECT, ["--show-secrets"]),
        (f"{CONNECT} 20 02 00 00 e0 00", []),
    ],
)
def test_the_json_form_is_the_line_of_the_command(data: str, options: list[str]) -> None:
    texts = dict(zip(options[::2], options[1::2], strict=False))
    lines = [json.loads(line) for line in invoke("decode", data, "--format", "jsonl", *options).out.splitlines()]
    packets = mqttscope.decode(
        bytes.fromhex(data),
        version=texts.get("--mqtt-version"),
        sender=texts.get("--from"),
        show_secrets="--show-secrets" in options,
    )

    assert [packet.to_dict() for packet in packets] == lines
    assert [packet.kind for packet in packets] == [line["event"] for line in lines]
    assert {(packet.frame, packet.connection, packet.timestamp_ns, packet.time) for packet in packets} == {(None,) * 4}


def test_fields_are_those_of_packets_in_captures() -> None:
    packet, ping = mqttscope.decode(bytearray.fromhex("3007 0003 612f62 6869 c000"), version="3.1.1", sender="client")

    assert (packet.type, packet.topic, packet.payload, packet.version) == ("publish", "a/b", b"hi", "3.1.1")
    assert (packet.direction, packet.number, ping.number, ping.type) == ("client_to_server", 0, 1, "pingreq")
    (guessed,) = mqttscope.decode(b"\xc0\0")
    assert guessed.direction is None


def test_secrets_are_hidden_unless_they_are_asked_for() -> None:
    (hidden,), (shown,) = (mqttscope.decode(bytes.fromhex(CONNECT), show_secrets=number) for number in (False, True))

    assert b"pwd" not in hidden.raw
    assert "pwd" not in repr(hidden)
    assert b"pwd" in shown.raw
    assert "b'pwd'" in repr(shown)


def test_what_cannot_be_meant_is_refused() -> None:
    assert mqttscope.decode(b"") == []
    with pytest.raises(TypeError, match=r"decode takes bytes, not str; bytes\.fromhex reads"):
        mqttscope.decode("c000")  # type: ignore[arg-type]

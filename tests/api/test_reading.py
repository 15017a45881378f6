"""Keys, programs and ports of captures, as the library says what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

import mqttscope
from mqttscope.api.reading import CaptureReading, ReadingError, read_port, read_ports, read_version, select
from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.errors import ArgumentError
from mqttscope.mqtt.constants import ProtocolVersion
from tests import tools
from tests.capture.test_tls import converse
from tests.cli.running import capture, invoke
from tests.dissect.secure import Secure, write
from tests.dissect.talk import Talk
from tests.each import each


@pytest.mark.tshark
def test_keys_open_tls(tmp_path: Path) -> None:
    secure, talk = Secure(), Talk(port=8883).handshake()
    converse(secure.connection(talk))
    talk.close()
    path = write(talk.tape, tmp_path / "a.pcapng")

    packets = list(mqttscope.open(path, keys=secure.keylog))
    assert [packet.type for packet in packets][:3] == ["connect", "connack", "subscribe"]
    assert mqttscope.lint(path, keys=secure.keylog).packets == len(packets)
    closed = mqttscope.open(path)
    assert list(closed) == []
    assert [summary.transport for summary in closed.connections()] == ["tls"]


@pytest.mark.tshark
def test_checksums_that_are_not_verified_are_not_verified_before_tls_is_decrypted_either(tmp_path: Path) -> None:
    secure, talk = Secure(), Talk(port=8883).handshake()
    converse(secure.connection(talk))
    path = write(talk.tape, tmp_path / "a.pcapng")
    whole = len(list(mqttscope.open(path, keys=secure.keylog)))
    data = bytearray(path.read_bytes())
    last = max(data.find(segment.payload) for segment in talk.tape.segments if segment.payload)
    data[last - 4 : last - 2] = b"\x12\x34"  # the checksum, before the urgent pointer
    path.write_bytes(data)

    assert len(list(mqttscope.open(path, keys=secure.keylog))) < whole
    assert len(list(mqttscope.open(path, keys=secure.keylog, verify_checksums=False))) == whole
    shown = []
    for options in ((), ("--dont-verify-checksums",)):
        done = invoke("inspect", path, "--keylog", secure.keylog, "--format", "jsonl", *options)
        shown.append(sum(line["event"] == "packet" for line in done.lines))
    assert shown[0] < shown[1] == whole


@pytest.mark.parametrize(
    ("content", "note"),
    [
        ("", "key log {} contains no keys: no TLS record was decrypted"),
        ("# SSL/TLS secrets log file\r\n\n  # another\n", "key log {} contains no keys: no TLS record was decrypted"),
        (f"CLIENT_RANDOM {'0' * 64} {'1' * 96}\n", "no TLS record could be decrypted with the keys in {}"),
    ],
)
def test_keys_that_open_nothing_are_a_note(content: str, note: str, tmp_path: Path) -> None:
    if content.startswith("CLIENT"):
        tools.program("tshark")
    keys = tmp_path / "keys"
    keys.write_text(content)
    captures = mqttscope.open(capture("v5-qos"), keys=keys)

    assert len(list(captures)) == 24
    assert captures.notes == [note.format(keys)]


def test_keys_that_cannot_be_used_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ReadingError, match=r"^key log .*: Is a directory$"):
        CaptureReading([str(capture("tls-13"))], keylog=str(tmp_path))


def test_captures_that_overlap_are_a_note(tmp_path: Path) -> None:
    again = tmp_path / "again.pcapng"
    again.write_bytes(capture("v5-qos").read_bytes())
    captures = mqttscope.open(capture("v5-qos"), again)

    assert list(captures)
    assert "overlaps in time with an earlier capture" in captures.notes[0]


@each(
    "text, expected",
    [("1884", (1884, "mqtt")), ("8080:ws", (8080, "ws")), ("8080:websocket", (8080, "ws")), ("1:mqtts", (1, "tls"))],
)
def test_ports(text: str, expected: tuple[int, str]) -> None:
    assert read_port(text) == expected
    assert read_ports([text]) == dict([expected]) == read_ports(dict([expected]))


@each("text", ["", "0", "65536", "x", "1884:http", ":ws", "१"])
def test_what_is_no_port(text: str) -> None:
    with pytest.raises(ArgumentError):
        read_port(text)


def test_versions() -> None:
    assert [read_version(text) for text in (None, "auto", "5.0", "3.1.1")] == [
        None, None, ProtocolVersion.V5, ProtocolVersion.V3_1_1,
    ]  # fmt: skip
    with pytest.raises(ArgumentError):
        read_version("5.1")


def test_no_more_packets_than_the_limit_come_through() -> None:
    events = dissect(open_capture([str(capture("v5-qos"))]))

    assert sum(type(event).__name__ == "PacketEvent" for event in select(events, None, (), 3)) == 3

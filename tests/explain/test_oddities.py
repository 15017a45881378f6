"""Unusual forms of packets, and the lengths that packets announce."""

from __future__ import annotations

from dataclasses import replace

from mqttscope.explain.oddities import announced, oddity, old_refusal, unusual
from mqttscope.lint.examples import make_connect
from mqttscope.mqtt import Malformed, ProtocolVersion
from mqttscope.mqtt.codec import decode
from mqttscope.mqtt.parts import Will
from tests.each import each

V3_1_1, V5 = ProtocolVersion.V3_1_1, ProtocolVersion.V5


@each(
    "raw, version, text",
    [
        (b"\x30\x03\x00\x01a", V3_1_1, ""),
        (b"\x30\x83\x00\x00\x01a", V3_1_1, "PUBLISH with a Remaining Length in 2 bytes, which needs fewer"),
        (b"\x3a\x05\x00\x01a\x00\x07", V3_1_1, "PUBLISH with DUP"),
        (b"\x40\x02\x00\x07", V5, ""),
        (b"\x40\x03\x00\x07\x10", V5, "PUBACK of 5 bytes, with a Reason Code"),
    ],
)
def test_forms_that_some_receivers_do_not_expect(raw: bytes, version: ProtocolVersion, text: str) -> None:
    packet = decode(raw, version)

    assert not isinstance(packet, Malformed)
    assert oddity(packet) == text


@each(
    "changes, starts",
    [
        ({}, []),
        ({"protocol_level": 0x84}, ["its protocol level has the bridge bit"]),
        ({"will": Will(will_topic="w", will_payload=b"x", will_retain=True)}, ["its will is retained"]),
        ({"will": Will(will_topic="w", will_payload=b"x")}, []),
        ({"keep_alive": 60 << 8}, ["its Keep Alive of 15,360 s would be 60 s"]),
        ({"keep_alive": 61 << 8}, []),
    ],
)
def test_features_of_a_connect_that_some_brokers_refuse(changes: dict[str, object], starts: list[str]) -> None:
    connect = replace(make_connect(V3_1_1), **changes)  # type: ignore[arg-type]
    rows = list(unusual(connect))

    assert len(rows) == len(starts)
    assert all(text.startswith(start) for (text, _), start in zip(rows, starts, strict=True))


@each(
    "raw, size",
    [
        (b"", 0),
        (b"\x30", 0),
        (b"\x30\x05", 7),
        (b"\x30\xff\x7f", 3 + 16_383),
        (b"\x30\xff\xff", 0),
        (b"\x30\xff\xff\xff\xff", 0),
    ],
)
def test_the_length_that_a_fixed_header_announces(raw: bytes, size: int) -> None:
    assert announced(raw) == size


@each(
    "raw, code",
    [
        (b"\x20\x02\x00\x05", 5),
        (b"\x20\x02\x00\x00", 0),
        (b"\x20\x02\x00\x06", 0),
        (b"\x20\x02\x01\x05", 0),
        (b"\x20\x03\x00\x05\x00", 0),
    ],
)
def test_the_code_of_a_connack_of_an_older_version(raw: bytes, code: int) -> None:
    assert old_refusal(raw) == code

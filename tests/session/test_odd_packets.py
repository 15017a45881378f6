"""Packets that break rules change the state as far as they can."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import (
    Connect,
    Malformed,
    MalformedReason,
    Pubcomp,
    Pubrec,
    Subscribe,
    decode,
)
from tests.mqtt.octets import framed, string
from tests.session.story import C2S, S2C, V3_1, V3_1_1, V5, Story, connack, connect, fresh, publish


def test_a_second_connect_is_what_counts_from_then_on() -> None:
    story = Story(("C", connect(client_identifier="a", keep_alive=1)), ("S", connack()), ("C", publish(1, 1)))

    connection = story.tell(("C", connect(4, client_identifier="b", keep_alive=2)))

    assert (connection.connect_packet, connection.client_identifier, connection.keep_alive) == (3, "b", 2)
    assert (connection.version, connection.version_known, connection.phase) == (V3_1_1, True, "connecting")
    assert connection.session_expiry_interval is None
    assert connection.client_side.in_flight == 1


@pytest.mark.parametrize(
    ("level", "version", "known", "evidence"),
    [
        (3, V3_1, True, "CONNECT"),
        (4, V3_1_1, True, "CONNECT"),
        (5, V5, True, "CONNECT"),
        (0x83, V3_1, True, "CONNECT"),
        (0x84, V3_1_1, True, "CONNECT"),
        (6, V3_1_1, False, "a CONNECT with unknown protocol level 6"),
        (0, V3_1_1, False, "a CONNECT with unknown protocol level 0"),
    ],
)
def test_the_protocol_level_says_the_version(level: int, version: object, known: bool, evidence: str) -> None:
    connection = fresh()
    revision = connection.revision

    connection.identify(Connect(protocol_level=level, client_identifier="x"))

    assert (connection.version, connection.version_known, connection.version_evidence) == (version, known, evidence)
    assert connection.client_identifier == "x"
    assert connection.revision > revision


def test_a_connect_without_level_says_nothing_of_the_version() -> None:
    connection = fresh(V5)

    connection.identify(Connect(protocol_level=None))  # type: ignore[arg-type]

    assert (connection.version, connection.version_known, connection.version_evidence) == (V5, False, "none")


def test_an_assumed_version_carries_its_evidence() -> None:
    connection = fresh()

    connection.assume_version(V5, "a PUBLISH with well-formed properties")
    assert (connection.version, connection.version_known) == (V5, False)

    connection.assume_version(V3_1, "given", known=True)
    assert (connection.version, connection.version_known, connection.version_evidence) == (V3_1, True, "given")
    assert connection.revision == 2


def malformed(raw: bytes, version: object = V3_1_1) -> Malformed:
    made = decode(raw, version)  # type: ignore[arg-type]
    assert isinstance(made, Malformed)
    return made


def test_a_publish_with_qos_3_is_an_exchange_all_the_same() -> None:
    found = malformed(framed(0x36, string("a"), b"\0\x07", b"x"))
    assert (found.reason, found.complete) == (MalformedReason.QOS_INVALID, True)
    connection = fresh(V3_1_1)

    assert found.packet is not None
    connection.apply(found.packet, C2S, 0, 1, 0)

    assert connection.client_side.exchanges[7].qos == 3
    connection.apply(Pubrec(7), S2C, 1, 2, 0)
    connection.apply(Pubcomp(7), S2C, 2, 3, 0)
    assert connection.client_side.in_flight == 0


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(framed(0x80, b"\0\x05", string("a"), b"\x01"), id="SUBSCRIBE with wrong flags"),
        pytest.param(framed(0x82, b"\0\x05", string("a"), b"\x03"), id="SUBSCRIBE with QoS 3"),
        pytest.param(framed(0x82, b"\0\x05", string(b"\xff"), b"\x00"), id="SUBSCRIBE with ill-formed UTF-8"),
    ],
)
def test_a_subscribe_that_is_wrong_in_a_value_waits_for_its_answer(raw: bytes) -> None:
    found = malformed(raw)
    assert found.complete
    assert isinstance(found.packet, Subscribe)
    connection = fresh(V3_1_1)

    connection.apply(found.packet, C2S, 0, 1, 0)

    assert connection.client_side.exchanges[5].kind == "subscribe"


def test_a_connect_that_is_wrong_in_a_flag_opens_the_connection() -> None:
    found = malformed(framed(0x10, string("MQTT"), b"\x04\x03\0\x0a", string("dev")))
    assert found.reason is MalformedReason.CONNECT_FLAGS_RESERVED
    connection = fresh()

    assert found.packet is not None
    connection.identify(found.packet)
    connection.apply(found.packet, C2S, 0, 1, 0)

    assert (connection.phase, connection.client_identifier, connection.keep_alive) == ("connecting", "dev", 10)
    assert (connection.version, connection.version_known) == (V3_1_1, True)

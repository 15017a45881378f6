"""Packets as plain JSON values: names, forms of text and binary, limits, secrets."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from mqttscope.mqtt import Connack, Connect, ControlPacket, Malformed, Properties, ProtocolVersion, Publish, decode
from mqttscope.mqtt.view import (
    PAYLOAD_LIMIT,
    binary,
    malformed_view,
    printable,
    properties_view,
    secret,
    text,
    utf8,
    view,
)
from tests.mqtt.case import V3_1, V3_1_1, V5, VERSIONS
from tests.mqtt.cases import CASES, LONG
from tests.mqtt.checks import broken
from tests.packets import packet
from tests.tables import cases_of

SHOWN = """
a PUBLISH of 5.0
    5.0 | publish - data qos=1 id=10 topic_alias=1 user_property=k:v |
    {"dup": false, "qos": 1, "retain": false, "topic_name": "", "packet_identifier": 10, "properties":
      {"topic_alias": 1, "user_property": [{"name": "k", "value": "v"}]}, "payload": {"length": 4, "text": "data"}}
a PUBLISH of 3.1.1
    3.1.1 | publish t 0x00ff retain |
    {"dup": false, "qos": 0, "retain": true, "topic_name": "t", "packet_identifier": null, "payload": {"length": 2,
      "hex": "00ff"}}
a PUBLISH whose payload was captured in part
    3.1.1 | publish t dat missing=7 |
    {"dup": false, "qos": 0, "retain": false, "topic_name": "t", "packet_identifier": null, "payload": {"length": 10,
      "text": "dat", "truncated": true}}
a CONNECT of 5.0 with a will
    5.0 | connect 5.0 client=c keep_alive=5 will=w will_payload=x will_qos=1 will_retain will.will_delay_interval=0
      user_name=u password=secret properties |
    {"protocol_name": "MQTT", "protocol_level": 5, "clean_start": true, "keep_alive": 5, "properties": {},
      "client_identifier": "c", "will": {"will_topic": "w", "will_payload": {"length": 1, "text": "x"}, "will_qos": 1,
      "will_retain": true, "properties": {"will_delay_interval": 0}}, "user_name": "u", "password": {"length": 6,
      "redacted": true}}
a CONNECT of 3.1.1 with nothing optional and odd flags
    3.1.1 | connect 3.1.1 client=- keep_alive=0 connect_flags=0xc2 |
    {"protocol_name": "MQTT", "protocol_level": 4, "connect_flags": 194, "clean_start": true, "keep_alive": 0,
      "client_identifier": "", "will": null, "user_name": null, "password": null}
a CONNACK of 3.1.1
    3.1.1 | connack present code=5 |
    {"session_present": true, "reason_code": 5, "reason": "Connection Refused, not authorized"}
a PUBACK that leaves out what it means
    5.0 | puback 1 | {"packet_identifier": 1, "reason_code": 0, "reason": "Success", "properties": {}}
a PUBACK of 3.1.1
    3.1.1 | puback 1 | {"packet_identifier": 1}
a PUBREL with DUP
    3.1 | pubrel 1 header_flags=0xa | {"packet_identifier": 1, "header_flags": 10}
a SUBSCRIBE of 3.1.1
    3.1.1 | subscribe 1 a/#:1 b:2,reserved=0x80 |
    {"packet_identifier": 1, "subscriptions": [{"topic_filter": "a/#", "maximum_qos": 1}, {"topic_filter": "b",
      "maximum_qos": 2, "reserved": 128}]}
a SUBSCRIBE of 5.0
    5.0 | subscribe 1 a:0,no_local,retain_handling=2 subscription_identifier=7 |
    {"packet_identifier": 1, "properties": {"subscription_identifier": [7]}, "subscriptions": [{"topic_filter": "a",
      "maximum_qos": 0, "no_local": true, "retain_as_published": false, "retain_handling": 2}]}
a SUBACK
    5.0 | suback 1 0 0x87 properties |
    {"packet_identifier": 1, "properties": {}, "reason_codes": [0, 135], "reasons": ["Granted QoS 0", "Not authorized"]}
an UNSUBSCRIBE
    3.1.1 | unsubscribe 1 a b | {"packet_identifier": 1, "topic_filters": ["a", "b"]}
an UNSUBACK of 3.1.1
    3.1.1 | unsuback 1 | {"packet_identifier": 1}
a PINGREQ
    5.0 | pingreq | {}
a DISCONNECT of 3.1.1
    3.1.1 | disconnect | {}
a DISCONNECT of 5.0
    5.0 | disconnect code=0 | {"reason_code": 0, "reason": "Normal disconnection", "properties": {}}
an AUTH
    5.0 | auth code=0x18 authentication_method=m authentication_data=0x00 |
    {"reason_code": 24, "reason": "Continue authentication", "properties": {"authentication_method": "m",
      "authentication_data": {"length": 1, "redacted": true}}}
"""


@pytest.mark.parametrize(("version", "argument", "shown"), cases_of(SHOWN, VERSIONS.__getitem__, packet, json.loads))
def test_a_packet_is_shown_by_the_names_of_the_specification(
    version: ProtocolVersion, argument: ControlPacket, shown: dict[str, Any]
) -> None:
    document = view(argument, version)

    assert document == shown
    assert list(document) == list(shown)


def test_the_reserved_byte_of_a_connack_of_3_1_is_shown() -> None:
    document = view(Connack(acknowledge_flags=0x5A, session_present=None), V3_1)

    assert list(document.items()) == [
        ("acknowledge_flags", 0x5A), ("session_present", None), ("reason_code", 0), ("reason", "Connection Accepted"),
    ]  # fmt: skip


def test_every_row_of_the_table_is_plain_json_with_text_that_can_be_written() -> None:
    for row in CASES:
        if row not in LONG:
            actual_packet = decode(row.raw, row.version)
            if isinstance(actual_packet, Malformed):
                json.dumps(malformed_view(actual_packet), ensure_ascii=False).encode()
                found_packet, only = actual_packet.packet, actual_packet.fields_read
                if found_packet is None:
                    continue
                json.dumps(view(found_packet, row.version, only=only), ensure_ascii=False).encode()
            else:
                json.dumps(view(actual_packet, row.version), ensure_ascii=False).encode()


class TestBinary:
    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            (b"", ""),
            (b"a\tb\r\n", "a\tb\r\n"),
            ("ä€\U0001f41f".encode(), "ä€\U0001f41f"),
            (b"\x00", None),
            (b"\x1b[31m", None),
            (b"\x7f", None),
            ("\x85".encode(), None),
            ("\u2028".encode(), "\u2028"),
            (b"\xff", None),
        ],
    )
    def test_what_counts_as_text(self, value: bytes, shown: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
        for first_bytes in (0, 1, 64):
            monkeypatch.setattr(sys.modules["mqttscope.mqtt.view"], "_FIRST_BYTES", first_bytes)
            assert printable(value) == shown

    def test_below_at_and_above_the_limit(self) -> None:
        assert binary(b"abcd", 4) == {"length": 4, "text": "abcd"}
        assert binary(b"abcde", 4) == {"length": 5, "text": "abcd", "truncated": True}
        assert binary(b"\xff\xff\xff", 2) == {"length": 3, "hex": "ffff", "truncated": True}
        assert binary(b"\xff", 2) == {"length": 1, "hex": "ff"}
        assert PAYLOAD_LIMIT == 65_536

    def test_a_character_that_the_limit_cuts_is_left_out(self) -> None:
        assert binary("aä€".encode(), 4) == {"length": 6, "text": "aä", "truncated": True}

    def test_missing_bytes_count_and_are_said(self) -> None:
        assert binary(b"ab", missing=3) == {"length": 5, "text": "ab", "truncated": True}
        assert binary(b"abc", 2, missing=3) == {"length": 6, "text": "ab", "truncated": True}

    def test_a_publish_above_the_limit(self) -> None:
        assert view(Publish(topic_name="t", payload=b"x" * 5), V3_1_1, limit=3)["payload"] == {
            "length": 5,
            "text": "xxx",
            "truncated": True,
        }


def test_text_that_is_not_valid_utf_8_is_shown_as_its_bytes() -> None:
    assert text("ä") == "ä"
    assert text("a\udcc3(") == {"length": 3, "hex": "61c328"}


def test_a_password_is_shown_only_when_secrets_are_asked_for() -> None:
    packet = Connect(user_name="u", password=b"pw")

    assert view(packet, V3_1_1)["password"] == {"length": 2, "redacted": True}
    assert view(packet, V3_1_1, show_secrets=True)["password"] == {"length": 2, "text": "pw"}
    assert secret(None, 10, show=True) is None


def test_a_property_that_is_repeated_against_the_rules_becomes_a_list() -> None:
    block = Properties.of([(0x23, 1), (0x23, 2), (0x23, 3), (0x7E, b"\x01"), (0x03, "a\udcff"), (0x26, b"raw")])

    assert properties_view(block) == {
        "topic_alias": [1, 2, 3],
        "unknown_0x7e": {"length": 1, "hex": "01"},
        "content_type": {"length": 2, "hex": "61ff"},
        "user_property": [{"length": 3, "text": "raw"}],
    }
    assert properties_view(None) == {}


class TestMalformed:
    def test_the_fault_its_place_and_the_bytes(self) -> None:
        malformed = broken("30 05 00 ff 61 62 63")

        assert malformed_view(malformed) == {
            "reason": "field_overrun",
            "offset": 2,
            "field": "topic_name",
            "detail": "needs 257 bytes, 5 left",
            "reason_code": 129,
            "raw": "300500ff616263",
        }

    def test_further_faults_missing_bytes_and_the_limit(self) -> None:
        malformed = broken("36 20 00 02 61 ff 00 01", V3_1_1)
        shown = malformed_view(malformed, limit=3)
        assert shown["missing"] == 26
        assert (shown["raw"], shown["truncated"], shown["field"]) == ("362000", True, None)
        assert [row["reason"] for row in shown["faults"]] == ["qos_invalid", "utf8_ill_formed", "truncated"]
        assert [row["field"] for row in shown["faults"]] == ["qos", "topic_name", None]

    def test_only_the_fields_that_were_read_are_shown(self) -> None:
        malformed = broken("32 04 00 01 ff 00")

        assert malformed.packet is not None
        assert view(malformed.packet, V3_1_1, only=malformed.fields_read) == {
            "dup": False,
            "qos": 1,
            "retain": False,
            "topic_name": {"length": 1, "hex": "ff"},
        }

    def test_a_cut_acknowledgement_does_not_claim_success(self) -> None:
        malformed = broken("40 10 00 01", V5)

        assert malformed.packet is not None
        assert view(malformed.packet, V5, only=malformed.fields_read) == {"packet_identifier": 1}

    def test_a_complete_publish_with_a_fault_in_a_value_is_shown_whole(self) -> None:
        malformed = broken("36 06 00 01 74 00 01 70", V3_1_1)

        assert malformed.packet is not None
        assert view(malformed.packet, V3_1_1, only=malformed.fields_read)["payload"] == {"length": 1, "text": "p"}


@pytest.mark.parametrize(
    ("expected", "shown"),
    [
        ("plain", "plain"),
        ("a\udcffé", "a\\xffé"),
        ("\ud800", "\\xed\\xa0\\x80"),
        ("\ud800\udcff", "\\xed\\xa0\\x80\\xed\\xb3\\xbf"),
    ],
)
def test_text_that_can_be_encoded(expected: str, shown: str) -> None:
    assert utf8(expected) == shown

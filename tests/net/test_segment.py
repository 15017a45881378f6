from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttscope.net import segment
from tests.each import each


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 0, 0),
        (10, 30, 20),
        (30, 10, -20),
        (segment.MODULUS - 10, 10, 20),
        (10, segment.MODULUS - 10, -20),
        (segment.MODULUS - 1, 0, 1),
        (0, segment.MODULUS - 1, -1),
        (0, 2**31 - 1, 2**31 - 1),
        (0, 2**31, -(2**31)),
        (2**31, 0, -(2**31)),
        (2**31 - 1, segment.MODULUS - 1, -(2**31)),
        (segment.MODULUS - 1, 2**31 - 2, 2**31 - 1),
    ],
)
def test_distance_is_signed_and_wraps(start: int, end: int, expected: int) -> None:
    assert segment.distance(start, end) == expected


@pytest.mark.parametrize(
    ("sequence", "count", "expected"),
    [
        (0, 0, 0),
        (segment.MODULUS - 10, 20, 10),
        (10, -20, segment.MODULUS - 10),
        (5, segment.MODULUS, 5),
        (segment.MODULUS - 1, 1, 0),
        (0, 5 * segment.MODULUS + 3, 3),
    ],
)
def test_advance_wraps(sequence: int, count: int, expected: int) -> None:
    assert segment.advance(sequence, count) == expected


@given(st.integers(0, segment.MODULUS - 1), st.integers(-(2**31), 2**31 - 1))
def test_distance_undoes_advance(sequence: int, count: int) -> None:
    assert segment.distance(sequence, segment.advance(sequence, count)) == count


SKIPPED = {"not_ip": 7, "mqtt_sn": 3, "not_tcp": 40, "gtp_u_version_2": 1_200, "wlan_encrypted": 1, "truncated": 2}


def test_ordinary_frames_need_no_word() -> None:
    assert segment.not_read({"not_ip": 1, "not_tcp": 2}) == {}
    assert segment.unread_sentence({"not_ip": 1, "not_tcp": 2}) is None
    assert segment.unread_sentence({}) is None


def test_frames_are_named_in_one_line_with_what_reads_them() -> None:
    assert segment.unread_sentence(SKIPPED) == (
        "not read: 1,200 frames of GTP-U version 2 (--via tshark reads them),"
        " 1 frame of encrypted 802.11 (--via tshark reads it with keys in the profile of Wireshark),"
        " 3 frames of MQTT-SN over UDP (not MQTT; nothing here reads it),"
        " 2 frames cut inside their headers by the snap length"
    )


def test_what_tshark_has_looked_at_is_not_offered_to_it() -> None:
    assert segment.unread_sentence(SKIPPED, by_tshark=True) == (
        "not read: 1,200 frames of GTP-U version 2,"
        " 1 frame of encrypted 802.11 (tshark reads it with keys in the profile of Wireshark),"
        " 3 frames of MQTT-SN over UDP (not MQTT; nothing here reads it),"
        " 2 frames cut inside their headers by the snap length"
    )


def test_commands_without_the_option_name_another() -> None:
    assert segment.unread_sentence({"gtp_u": 2}, offer=segment.OFFER_ELSEWHERE) == (
        "not read: 2 frames of GTP-U with unknown content (mqttscope inspect --via tshark reads them)"
    )


def test_counts_by_reason_and_by_coarse_reason() -> None:
    assert segment.not_read(SKIPPED) == {"gtp_u_version_2": 1_200, "wlan_encrypted": 1, "mqtt_sn": 3, "truncated": 2}
    assert segment.unread_groups(SKIPPED) == {"not_ip": 8, "not_tcp": 1_243, "truncated": 2}


@each("name", segment.UNREAD)
def test_every_reason_can_be_said(name: str) -> None:
    one = segment.unread(name)
    assert one is segment.unread(name)
    assert one.reason == name
    assert segment.UNREAD[name].words in one.detail
    assert segment.UNREAD[name].reader in (segment.READS, segment.WITH_KEYS, segment.NOTHING)
    assert segment.UNREAD[name].group in ("not_ip", "not_tcp", "malformed", "truncated", "unsupported_link_type")
    assert segment.UNREAD[name].words in (segment.unread_sentence({name: 1}) or "")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("10.0.0.2:1883", "10.0.0.2:1883"),
        ("[fd00::1]:1883", "[fd00::1]:1883"),
        ("[FD00:0:0::1]:01883", "[fd00::1]:1883"),
    ],
)
def test_an_endpoint_is_read_as_it_is_written_elsewhere(written: str, read: str) -> None:
    assert segment.read_endpoint(written) == read


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("10.0.0.2", "not HOST:PORT"),
        ("10.0.0.2:", "port from 1 to 65535"),
        ("10.0.0.2:0", "port from 1 to 65535"),
        ("10.0.0.2:65536", "port from 1 to 65535"),
        ("10.0.0.2:mqtt", "port from 1 to 65535"),
        ("fd00::1:1883", "stands in brackets"),
        ("[fe80::1%eth0]:1883", "not an IP address"),
        ("[10.0.0.2]:1883", "not an IP address"),
        ("broker.example:1883", "not an IP address: captures have no names of hosts"),
        (":1883", "not an IP address"),
    ],
)
def test_what_is_no_endpoint_says_why(written: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        segment.read_endpoint(written)

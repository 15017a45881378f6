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
    assert segment.notable_reasons({"not_ip": 1, "not_tcp": 2}) == {}


def test_counts_by_reason() -> None:
    assert segment.notable_reasons(SKIPPED) == {
        "gtp_u_version_2": 1_200,
        "wlan_encrypted": 1,
        "mqtt_sn": 3,
        "truncated": 2,
    }


@each("name", segment.UNREAD)
def test_every_reason_can_be_said(name: str) -> None:
    not_segment = segment.unread(name)
    assert not_segment is segment.unread(name)
    assert not_segment.reason == name
    assert segment.UNREAD[name].words in not_segment.detail
    assert segment.UNREAD[name].reader in (segment.READS, segment.WITH_KEYS, segment.NOTHING)
    assert segment.UNREAD[name].group in ("not_ip", "not_tcp", "malformed", "truncated", "unsupported_link_type")

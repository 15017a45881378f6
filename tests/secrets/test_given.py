"""Bytes that a user gives to be explained: the fault is shown, and what a repaired reading calls a secret is not."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Connect, Properties, ProtocolVersion, Publish, Will, encode
from mqttscope.secrets.given import MAX_REPAIRED, hidden_in_given
from mqttscope.secrets.packets import covered

V3, V5 = ProtocolVersion.V3_1_1, ProtocolVersion.V5
LOGIN = encode(Connect(client_identifier="dev1", user_name="ford", password=b"hush!"), V3)
WITH_WILL = encode(
    Connect(
        client_identifier="dev1", user_name="ford", password=b"hush!", will=Will(will_topic="gone", will_payload=b"bye")
    ),
    V3,
)
OF_5 = encode(
    Connect(
        protocol_level=5, client_identifier="dev1", user_name="ford", password=b"hush!",
        properties=Properties(authentication_method="SCRAM", authentication_data=b"swordfish"),
    ),
    V5,
)  # fmt: skip


def shown(raw: bytes, version: ProtocolVersion = V3) -> bytes:
    return covered(raw, hidden_in_given(raw, version))


def swapped(raw: bytes, at: int) -> bytes:
    return raw[:at] + raw[at + 1 : at + 2] + raw[at : at + 1] + raw[at + 2 :]


@pytest.mark.parametrize("raw", [LOGIN, WITH_WILL, OF_5], ids=["login", "will", "5.0"])
def test_a_length_whose_bytes_are_swapped(raw: bytes) -> None:
    """Wherever it is: all is shown but the secrets."""
    names = (b"MQTT", b"dev1", b"gone", b"bye", b"ford", b"hush!")
    for at in (raw.index(name) - 2 for name in names if name in raw):
        damaged = swapped(raw, at)
        assert shown(damaged) == damaged.replace(b"hush!", b"*****").replace(b"swordfish", b"*" * 9), at


@pytest.mark.parametrize("raw", [LOGIN, WITH_WILL, OF_5], ids=["login", "will", "5.0"])
@pytest.mark.parametrize("length", [0, 1, 5, 100, 127])
def test_a_remaining_length_that_is_wrong(raw: bytes, length: int) -> None:
    damaged = raw[:1] + bytes((length,)) + raw[2:]
    assert shown(damaged) == damaged.replace(b"hush!", b"*****").replace(b"swordfish", b"*" * 9)


def test_a_length_that_is_one_too_short_or_too_long() -> None:
    for wrong in (3, 5):
        damaged = LOGIN.replace(b"\0\4dev1", bytes((0, wrong)) + b"dev1")
        assert b"hush" not in shown(damaged)
        assert b"ford" in shown(damaged)


def test_what_follows_a_connect_may_be_whole() -> None:
    damaged = swapped(LOGIN, LOGIN.index(b"dev1") - 2) + b"\xc0\0"
    assert shown(damaged) == damaged.replace(b"hush!", b"*****")


def test_without_a_reading_that_fits_the_fault_is_shown() -> None:
    damaged = swapped(swapped(LOGIN, LOGIN.index(b"dev1") - 2), LOGIN.index(b"ford") - 2)[:-1]
    at = damaged.index(b"dev1")
    assert shown(damaged)[:at] == damaged[:at]
    assert shown(damaged)[at:] == b"*" * (len(damaged) - at)


def test_a_publish_has_no_password() -> None:
    raw = encode(Publish(topic_name="a/b", payload=b'{"password":"hush!","a":1}'), V3)
    assert shown(raw[:-1]) == raw[:-1].replace(b"hush!", b"*****")
    assert shown(b"\x30\x7f\xff\xff" + raw[4:]) == b"\x30\x7f\xff\xff" + raw[4:].replace(b"hush!", b"*****")


def test_authentication_data_of_other_packets() -> None:
    assert b"hush" not in shown(bytes.fromhex("f0121810150005534352414d1600ff") + b"hush!", V5)


@pytest.mark.parametrize(("size", "fits"), [(MAX_REPAIRED, True), (MAX_REPAIRED + 1, False)])
def test_how_long_a_connect_is_repaired(size: int, fits: bool) -> None:
    bare = encode(Connect(client_identifier="dev1", user_name="x" * 200, password=b"hush!"), V3)
    filler = "x" * (size - len(bare) + 200)
    raw = encode(Connect(client_identifier="dev1", user_name=filler, password=b"hush!"), V3)
    damaged = swapped(raw, raw.index(b"dev1") - 2)
    assert len(damaged) == size
    assert b"hush" not in shown(damaged)
    assert (filler[:100].encode() in shown(damaged)) is fits


def test_bytes_of_any_kind_are_taken() -> None:
    for raw in (
        b"",
        b"\x10",
        b"MQTT",
        b"\0\4MQTT",
        b"\x10\xff\xff\xff\xff",
        b"\xf0",
        b"\x10\2\0\4MQTT\5\xff\0\0\xff\xff",
    ):
        assert len(shown(raw)) == len(raw)

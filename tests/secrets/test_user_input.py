"""Bytes that a user gives to be explained: the fault is shown, and what a repaired reading calls a secret is not."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Connect, Properties, ProtocolVersion, Publish, Will, encode
from mqttscope.secrets.packets import covered
from mqttscope.secrets.user_input import hidden_in_user_input

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


def shown(raw: bytes) -> bytes:
    hidden = hidden_in_user_input(raw)
    assert hidden is not None
    return covered(raw, hidden)


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


def test_a_publish_has_no_password() -> None:
    raw = encode(Publish(topic_name="a/b", payload=b'{"password":"hush!","a":1}'), V3)
    assert shown(raw[:-1]) == raw[:-1].replace(b"hush!", b"*****")
    longer = raw.replace(b"\0\3a/b", b"\7\3a/b")
    assert shown(longer) == longer.replace(b"hush!", b"*****")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x10",
        swapped(swapped(LOGIN, LOGIN.index(b"dev1") - 2), LOGIN.index(b"ford") - 2)[:-1],
        LOGIN[3:],
        LOGIN.replace(b"MQTT", b"MQTU"),
        b"\x12" + LOGIN[1:],
        b"\x30" + LOGIN[1:],
        b"\x30\x7f\xff\xffcut",
        b"\x30\x02\xff",
        b"\x36\x03\0\1a",
        b"\xc0\0\xc0\1",
        bytes.fromhex("f0121810150005534352414d1600ff") + b"hush!",
        bytes.fromhex("100200044d51545405ff0000ffff"),
    ],
)
def test_bytes_that_no_reading_fits_are_taken_as_in_captures(raw: bytes) -> None:
    assert hidden_in_user_input(raw) is None

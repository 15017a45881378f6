"""Credentials in the texts of packets: which forms count, that prose does not, and that every output hides them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mqttscope.mqtt import (
    Connack,
    Connect,
    Disconnect,
    Malformed,
    Properties,
    ProtocolVersion,
    Puback,
    Publish,
    Subscribe,
    Subscription,
    decode,
    encode,
)
from mqttscope.secrets.credentials import (
    credential_bytes,
    credentials_in,
    hidden_credentials,
    starred,
    without_property_credentials,
)
from mqttscope.secrets.forms import without
from mqttscope.secrets.packets import hidden_in_packet
from mqttscope.secrets.values import public, without_tokens_of
from tests.cli.made import client, opened, server, write_capture
from tests.cli.running import invoke

V5 = ProtocolVersion.V5


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password=hunter2", "password=*******"),
        ("f/password=hunter2/x", "f/password=*********"),
        ("dev?token=S3cr3t&x=1", "dev?token=******&x=1"),
        ("db_password = 'a b' wrong", "db_password = '***' wrong"),
        ('password="a b"', 'password="***"'),
        ("api_key: 9f8e7d6c", "api_key: ********"),
        ("password: CorrectHorse", "password: ************"),
        ("Authorization: Bearer abcdef", "Authorization: Bearer ******"),
        ("authorization=basic dTpw", "authorization=basic ****"),
        ("bearer abc123 refused", "bearer ****** refused"),
        ("Basic dXNlcjpzZWNyZXQ= refused", "Basic **************** refused"),
        ("https%3A%2F%2Fuser%3Apw%40host", "https%3A***************%40host"),
        ('#{<<"password">> => <<"ab">>}', '#{<<"password">> => <<"**">>}'),
        ('[{password,"ab"}]', '[{password,"**"}]'),
        ("https://user:pw@host/p?sig=ABC", "https://user:**@host/p?sig=***"),
        ("see https://host/?a=1 and secret=x1", "see https://host/?a=* and secret=**"),
        ("passwd=ü", "passwd=**"),
        ("passwd=\udcff", "passwd=*"),
    ],
)
def test_credentials_are_starred_in_the_length_of_their_bytes(text: str, shown: str) -> None:
    assert starred(text) == shown
    raw = text.encode("utf-8", "surrogateescape")
    covered = bytearray(raw)
    for start, end in credential_bytes(raw):
        covered[start:end] = b"*" * (end - start)
    assert bytes(covered).decode() == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rs-1",
        "plant/7/temperature",
        "urn:dev:mac:0024befffe804ff1",
        "bad user name or password",
        "invalid token: expired",
        "password: too short",
        "token: a1",
        "bearer token expired",
        "basic authentication required",
        "key: value",
        "qos=1",
        "a=b;c=d",
        "author=John",
        "monkey=banana",
        "http://host:1883/path",
        "mqtt://broker.example:8883",
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert credentials_in(text) == []
    assert starred(text) is text


def test_what_is_said_instead_has_the_length() -> None:
    text = "secret=abc, token=defg"
    assert without(text, hidden_credentials(text)) == "secret=***(3 characters), token=***(4 characters)"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("a?password=hunter22", "a?password=***(8 characters)"),
        ("token='***(8 characters)'", "token='***(8 characters)'"),
        ("token='***(8 characters)hunter22'", "token='***(25 characters)'"),
    ],
)
def test_a_replacement_is_not_replaced_again(text: str, hidden: str) -> None:
    once = without(text, hidden_credentials(text))

    assert once == hidden
    assert without(once, hidden_credentials(once)) == hidden


def test_properties_without_any_are_themselves() -> None:
    plain = Properties(reason_string="token: expired", user_property=[("hint", "a=b")])
    assert without_property_credentials(plain) is plain
    assert without_property_credentials(None) is None
    shown = without_property_credentials(
        Properties(user_property=[("password", "swordfish"), ("note", "pwd=swordfish")])
    )
    assert shown == Properties(user_property=[("password", "*********"), ("note", "pwd=*********")])
    shown = without_property_credentials(
        Properties(user_property=[("pin", "1234"), ("auth", "Zq99a8f3"), ("pin", "13"), ("auth", "WPA2-PSK")])
    )
    assert shown == Properties(
        user_property=[("pin", "****"), ("auth", "********"), ("pin", "13"), ("auth", "WPA2-PSK")]
    )


@pytest.mark.parametrize(
    "name", ["reason_string", "server_reference", "response_information", "assigned_client_identifier"]
)
def test_packets_have_asterisks_in_values_and_bytes(name: str) -> None:
    block = Properties(
        **{name: "password=hunter2", "user_property": [("api_key: 9f8e7d6c", "x"), ("token", "swordfish")]}
    )
    packet = decode(encode(Connack(reason_code=0x87, properties=block), V5), V5)
    assert not isinstance(packet, Malformed)
    hidden = hidden_in_packet(packet, V5)
    shown = public(packet, hidden)

    for secret in (b"hunter2", b"9f8e7d6c", b"swordfish"):
        assert secret not in shown.raw
    assert len(shown.raw) == len(packet.raw)
    again = decode(shown.raw, V5)
    assert not isinstance(again, Malformed)
    assert again.properties == shown.properties == without_tokens_of(packet).properties  # type: ignore[attr-defined]
    assert getattr(again.properties, name) == "password=*******"  # type: ignore[attr-defined]


def test_authentication_data_and_a_reason_string_are_both_hidden() -> None:
    block = Properties(authentication_method="m", authentication_data=b"swordfish", reason_string="pwd=hunter2")
    packet = decode(encode(Disconnect(reason_code=0x87), V5), V5)
    assert not isinstance(packet, Malformed)
    assert hidden_in_packet(packet, V5) == []
    packet = decode(encode(Connack(reason_code=0x87, properties=block), V5), V5)
    assert not isinstance(packet, Malformed)
    shown = public(packet, hidden_in_packet(packet, V5))

    assert b"swordfish" not in shown.raw
    assert b"hunter2" not in shown.raw
    assert "swordfish" not in repr(shown)
    assert "hunter2" not in repr(shown)


def test_what_a_client_asks_with_stays() -> None:
    packet = decode(encode(Connect(client_identifier="a", properties=Properties(user_property=[("a", "b")])), V5), V5)
    assert not isinstance(packet, Malformed)
    assert hidden_in_packet(packet, V5) == []


def test_long_values_are_hidden_to_their_end() -> None:
    text = "x" * 4_000 + " password=" + "a1" * 5_000 + " end"
    assert starred(text) == "x" * 4_000 + " password=" + "*" * 10_000 + " end"


def test_a_long_text_takes_no_time() -> None:
    for text in ("token_" * 10_000 + "=:", "password:" * 7_000, "a://b?" * 10_000 + "=", "bearer " * 9_000):
        began = time.process_time()
        credentials_in(text)
        assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "words",
    [
        *(("inspect", "--format", form) for form in ("text", "tree", "ladder", "csv", "jsonl")),
        *(("lint", "--select", "ALL", "--format", form) for form in ("full", "json", "markdown")),
        *(("explain", "--format", form) for form in ("text", "json", "markdown")),
        ("triage",),
    ],
    ids=" ".join,
)
def test_no_output_has_them(words: tuple[str, ...], tmp_path: Path) -> None:
    refused = Properties(reason_string="api_key: Xyzzy5Plugh, see https://u:Xyzzy5Plugh@host/?sig=Xyzzy5Plugh")
    capture = write_capture(
        tmp_path / "a.pcapng",
        *opened(client_identifier="dev?token=Xyzzy5Plugh"),
        client(b"\x36\x1f\0\1a\0\1" + b'{"password":"Xyzzy5Plugh"}'),
        client(Subscribe(2, None, [Subscription("f/password=Xyzzy5Plugh")])),
        client(Publish(topic_name="f/password=Xyzzy5Plugh", qos=1, packet_identifier=1, payload=b"x")),
        server(Puback(1, 0x87, Properties(reason_string="password=Xyzzy5Plugh"))),
        server(Disconnect(0x98, refused)),
    )
    done = invoke(*words, str(capture))

    assert done.text
    assert "Xyzzy" not in done.text
    assert b"Xyzzy".hex() not in done.text
    if words[0] == "inspect":
        assert "Xyzzy" in invoke(*words, str(capture), "--show-secrets").text

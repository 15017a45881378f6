"""Packets without their secrets: of the same form and lengths, with nothing hidden left in them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttscope.mqtt import (
    Auth,
    Connect,
    ControlPacket,
    Malformed,
    Properties,
    ProtocolVersion,
    Publish,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
    decode,
    encode,
)
from mqttscope.secrets.packets import BROKEN, SUSPECT, hidden_in_damaged, hidden_in_packet, names_hidden
from mqttscope.secrets.values import (
    public,
    public_damaged,
    starred_texts,
    without_names_of,
    without_tokens_of,
)
from tests.each import each
from tests.mqtt.case import V3_1_1, V5, Case
from tests.mqtt.cases import GOOD, MALFORMED, ids

SECRET = b"Xyzzy-Plugh"
TOKEN = b'{"password":"Xyzzy-Plugh","t":21.5}'


def read(packet: ControlPacket, version: ProtocolVersion = V5) -> ControlPacket:
    """A packet with its bytes."""
    actual_packet = decode(encode(packet, version), version)
    assert not isinstance(actual_packet, Malformed)
    return actual_packet


def made_public(packet: ControlPacket, version: ProtocolVersion = V5, doubt: int = 0) -> ControlPacket:
    return public(packet, hidden_in_packet(packet, version, doubt))


def test_a_password_is_stars_in_the_field_and_in_the_bytes() -> None:
    packet = read(Connect(client_identifier="c", user_name="ford", password=SECRET), V3_1_1)
    control_packet = made_public(packet, V3_1_1)

    assert isinstance(control_packet, Connect)
    assert control_packet.password == b"*" * len(SECRET)
    assert control_packet.raw == packet.raw.replace(SECRET, b"*" * len(SECRET))
    assert replace(control_packet, password=SECRET, raw=packet.raw) == packet
    assert packet.password == SECRET, "the packet itself is not changed"


def test_an_empty_password_is_none_that_could_be_hidden_and_an_absent_one_stays_absent() -> None:
    empty = read(Connect(client_identifier="c", user_name="ford", password=b""), V3_1_1)
    absent = read(Connect(client_identifier="c", user_name="ford"), V3_1_1)

    assert made_public(empty, V3_1_1) == empty
    assert made_public(absent, V3_1_1) == absent


def test_authentication_data_alone_is_hidden_of_a_property_block() -> None:
    block = Properties(authentication_method="PLAIN", authentication_data=SECRET, reason_string="why")
    packet = read(Auth(reason_code=0x18, properties=block))
    control_packet = made_public(packet)

    assert isinstance(control_packet, Auth)
    assert control_packet.properties == Properties(
        authentication_method="PLAIN", authentication_data=b"*" * len(SECRET), reason_string="why"
    )
    assert SECRET not in control_packet.raw
    assert len(control_packet.raw) == len(packet.raw)


STARS = TOKEN.replace(SECRET, b"*" * len(SECRET))


@each(
    "packet, shown",
    [
        (Publish(topic_name="a", payload=TOKEN), Publish(topic_name="a", payload=STARS)),
        (Connect(client_identifier="c", will=Will("w", TOKEN)), Connect(client_identifier="c", will=Will("w", STARS))),
        (Publish(topic_name="a", payload=b'{"t":21.5}'), None),
        (Connect(client_identifier="c", will=Will("w", b"gone")), None),
        (Connect(client_identifier="c"), None),
        (Subscribe(1, subscriptions=[Subscription("a", 0)]), None),
    ],
)
def test_credentials_of_payloads_and_wills_are_stars(packet: ControlPacket, shown: ControlPacket | None) -> None:
    assert without_tokens_of(packet) == (packet if shown is None else shown)
    assert (without_tokens_of(packet) is packet) is (shown is None)
    for version in (V3_1_1, V5):
        whole = read(replace(packet, protocol_level=version) if isinstance(packet, Connect) else packet, version)
        control_packet = made_public(whole, version)
        assert replace(control_packet, raw=whole.raw) == replace(without_tokens_of(whole), raw=whole.raw)
        assert control_packet.raw == whole.raw.replace(SECRET, b"*" * len(SECRET))


@each("doubt", [0, SUSPECT, BROKEN])
@each("row", GOOD, ids=ids(GOOD))
def test_the_bytes_have_the_same_length_and_differ_in_hidden_places_alone(row: Case, doubt: int) -> None:
    packet = decode(row.raw, row.version)
    assert not isinstance(packet, Malformed)
    hidden = hidden_in_packet(packet, row.version, doubt)
    control_packet = public(packet, hidden)

    assert type(control_packet) is type(packet)
    assert len(control_packet.raw) == len(packet.raw)
    expected = bytearray(packet.raw)
    for first, end in hidden:
        expected[first:end] = b"*" * len(expected[first:end])
    assert control_packet.raw == expected
    if not hidden:
        assert control_packet == packet


@each("row", MALFORMED, ids=ids(MALFORMED))
def test_of_a_damaged_packet_only_what_is_visible_is_left(row: Case) -> None:
    damaged = decode(row.raw, row.version)
    assert isinstance(damaged, Malformed)
    hidden = hidden_in_damaged(damaged.raw, row.version)
    malformed = public_damaged(damaged, hidden, row.version)

    assert len(malformed.raw) == len(damaged.raw)
    unchanged = {field.name for field in fields(damaged)} - {"raw", "packet"}
    assert all(getattr(malformed, name) == getattr(damaged, name) for name in unchanged)
    assert (malformed.packet is None) is (damaged.packet is None)
    if malformed.packet is not None:
        assert malformed.packet.raw == malformed.raw
    if hidden == [(0, len(damaged.raw))]:
        assert set(malformed.raw) <= {ord("*")}


def damaged(packet: ControlPacket) -> Malformed:
    """A packet with wrong flags in its first byte, of which everything can be read."""
    actual_packet = decode(encode(replace(packet, header_flags=5), V5), V5)
    assert isinstance(actual_packet, Malformed)
    assert actual_packet.packet is not None
    assert actual_packet.complete
    return actual_packet


def test_what_is_hidden_in_part_is_hidden_completely_in_its_own_form() -> None:
    rows = [Subscription("plant/a", 1), Subscription("b", 2, no_local=True)]
    given_packet = damaged(Subscribe(7, Properties(user_property=[("key", "value")]), rows))
    malformed = public_damaged(given_packet, [(0, len(given_packet.raw))], V5)

    assert malformed.raw == b"*" * len(given_packet.raw)
    assert malformed.packet == Subscribe(
        7,
        Properties(user_property=[("***", "*****")]),
        [Subscription("*" * 7, 1), Subscription("*", 2, no_local=True)],
        header_flags=5,
    )


def test_a_damaged_connect_keeps_the_fields_of_which_nothing_is_hidden() -> None:
    will = Will("w", b"gone", properties=Properties(content_type="text"))
    connect = Connect(
        protocol_level=5, client_identifier="dev", user_name="ford", password=SECRET, will=will, properties=Properties()
    )
    given_packet = damaged(connect)
    start = given_packet.raw.index(b"w") - 1
    control_packet = public_damaged(given_packet, [(start, len(given_packet.raw))], V5).packet

    assert isinstance(control_packet, Connect)
    assert (control_packet.client_identifier, control_packet.user_name, control_packet.password) == (
        "dev",
        "****",
        b"*" * len(SECRET),
    )
    assert control_packet.will == Will("*", b"****", properties=Properties(content_type="****"))
    assert SECRET not in control_packet.raw


@given(st.binary(max_size=60))
def test_a_packet_without_credentials_is_the_same_object(payload: bytes) -> None:
    packet = Publish(topic_name="a", payload=payload)
    control_packet = without_tokens_of(packet)

    assert isinstance(control_packet, Publish)
    assert len(control_packet.payload) == len(payload)
    assert (control_packet is packet) is (control_packet.payload == payload)


def test_a_will_that_is_hidden_among_the_bytes_is_hidden_in_the_field() -> None:
    """Before 5.0 a password without a user name leaves in doubt which field is which."""
    packet = read(
        Connect(client_identifier="c", will=Will(will_topic="w", will_payload=SECRET), password=b"p" * 9), V3_1_1
    )
    control_packet = made_public(packet, V3_1_1)

    assert isinstance(control_packet, Connect)
    assert control_packet.will is not None
    assert control_packet.will.will_payload == b"*" * len(SECRET)
    assert SECRET not in control_packet.raw


NAMED = "f/token=Xyzzy-Plugh"


@pytest.mark.parametrize(
    "packet",
    [
        Publish(topic_name=NAMED, payload=b"x"),
        Subscribe(1, None, [Subscription("a"), Subscription(NAMED)]),
        Unsubscribe(1, None, ["a", NAMED]),
        Connect(client_identifier=NAMED, will=Will("a", b"x")),
        Connect(client_identifier="a", will=Will(NAMED, b"x")),
        Connect(client_identifier="a", user_name=NAMED),
    ],
    ids=["publish", "subscribe", "unsubscribe", "client identifier", "will", "user name"],
)
def test_credentials_in_names_are_hidden_in_fields_and_bytes(packet: ControlPacket) -> None:
    control_packet = read(packet)
    shown = without_names_of(control_packet)
    covered_bytes = bytearray(control_packet.raw)
    for start, end in names_hidden(control_packet.raw, V5):
        covered_bytes[start:end] = b"*" * (end - start)

    assert b"Xyzzy" not in covered_bytes
    assert b"f/token=***********" in covered_bytes
    assert "f/token=***********" in repr(replace(shown, raw=b""))
    assert "Xyzzy" not in repr(replace(shown, raw=b""))
    assert replace(shown, raw=b"") == replace(decode(bytes(covered_bytes), V5), raw=b"")


@each("case", GOOD, ids=ids(GOOD))
def test_names_without_credentials_stay(case: Case) -> None:
    packet = decode(case.raw, case.version)
    assert not isinstance(packet, Malformed)
    assert without_names_of(packet) is packet


def test_texts_of_rows_show_no_credentials() -> None:
    @dataclass
    class Row:
        topic: str
        count: int

    assert starred_texts({"rows": [Row("a/token=hush", 1)], NAMED: ("b", None)}) == {
        "rows": [Row("a/token=****", 1)],
        "f/token=***********": ("b", None),
    }

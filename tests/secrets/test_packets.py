"""Where secrets stand in the bytes of packets, in whole ones and in broken ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttscope.mqtt import Auth, Malformed, Properties, ProtocolVersion, decode, encode
from mqttscope.mqtt.stream import Unparsed
from mqttscope.mqtt.view import view
from mqttscope.secrets import packets
from mqttscope.secrets.forms import joined
from mqttscope.secrets.values import public_damaged, without_tokens_of
from tests.each import each
from tests.mqtt.case import V3_1_1, V5, parse

LOGIN = "10 17 00 04 4d 51 54 54 04 c2 00 00 00 01 63 00 01 75 00 05 68 75 73 68 21"
"""CONNECT with the password ``hush!``."""
HIDDEN = "68 75 73 68 21"


def shown(text: str, version: ProtocolVersion = V3_1_1, doubt: int = packets.CLEAR) -> str:
    """The bytes in hexadecimal, two asterisks for each that is hidden."""
    raw = parse(text)
    hidden = packets.hidden_in_damaged(raw, version, doubt) if isinstance(decode(raw, version), Malformed) else None
    if hidden is None:
        return packets.covered(raw, [(at, end) for at, end in [(0, 0)]]).hex(" ")
    return " ".join(
        "**" if any(first <= at < behind for first, behind in hidden) else f"{byte:02x}" for at, byte in enumerate(raw)
    )


@pytest.mark.parametrize("held", [b"password=hush!", parse(LOGIN)])
def test_texts_and_packets_in_a_proxy_header_are_hidden(held: bytes) -> None:
    raw = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0" + bytes([len(held)]) + held
    hidden = packets.hidden_in_unparsed(Unparsed("proxy_header", len(raw), raw), V3_1_1)

    shown = packets.covered(raw, hidden)
    assert shown.endswith(b"*****")
    assert shown.startswith(raw[:24])


def test_a_second_authentication_method_may_be_authentication_data() -> None:
    raw = encode(Auth(0x18, Properties(authentication_method="SCRAM", authentication_data=b"hush!")), V5)
    damaged = raw.replace(b"\x16\0", b"\x15\0")

    assert packets.redacted(damaged, V5) == damaged.replace(b"hush!", b"*****")
    packet = decode(damaged, V5)
    assert not isinstance(packet, Malformed)
    assert "hush!" not in repr(without_tokens_of(packet).properties)  # type: ignore[attr-defined]


def test_of_a_whole_connect_the_password_alone_is_hidden() -> None:
    assert packets.redacted(parse(LOGIN), V3_1_1) == parse(LOGIN).replace(b"hush!", b"*****")


@each(
    "text, wanted",
    [
        pytest.param(
            LOGIN.replace("10 17", "10 18"),
            "10 18 00 04 4d 51 54 54 04 c2 00 00 00 01 63 00 01 ** ** ** ** ** ** ** **",
            id="cut",
        ),
        pytest.param(
            LOGIN.replace("00 05 68", "00 25 68"),
            "10 17 00 04 4d 51 54 54 04 c2 00 00 00 01 63 00 01 ** ** ** ** ** ** ** **",
            id="a password too long: the user name may be one",
        ),
        pytest.param(
            LOGIN.replace("00 01 75", "00 11 75"),
            "10 17 00 04 4d 51 54 54 04 c2 00 00 00 01 ** ** ** ** ** ** ** ** ** ** **",
            id="a user name too long: the client identifier may be a password",
        ),
        pytest.param(
            LOGIN.replace("04 c2", "04 c3"),
            "10 17 00 04 4d 51 54 54 04 c3 00 00 00 01 63 00 01 ** ** ** ** ** ** ** **",
            id="flags that say what none may say",
        ),
        pytest.param(
            LOGIN.replace("04 c2", "04 02"),
            "10 17 00 04 4d 51 54 54 04 02 00 00 00 01 63 ** ** ** ** ** ** ** ** ** **",
            id="not announced",
        ),
        pytest.param(
            LOGIN.replace("54 54 04 c2", "54 54 09 c2"),
            "10 17 00 04 4d 51 54 54 09 c2 00 00 00 01 63 00 01 75 00 05 ** ** ** ** **",
            id="an unknown level, and all in its place",
        ),
        pytest.param(
            LOGIN.replace("54 54 04 c2", "54 54 09 04"),
            "10 17 00 04 4d 51 54 54 09 04 00 00 00 01 63 00 01 ** ** ** ** ** ** ** **",
            id="flags that call a user name and a password a will",
        ),
        pytest.param(
            LOGIN.replace("10 17", "10 27").replace("04 c2", "04 04"),
            "10 27 00 04 4d 51 54 54 04 04 00 00 00 01 63 00 01 ** ** ** ** ** ** ** **",
            id="the same in a packet that is cut",
        ),
        pytest.param(
            "10 1f 00 0c 68 75 73 68 68 75 73 68 68 75 73 68 04 02 00 00 00 01 63",
            "10 1f" + " **" * 21,
            id="a long name that is none",
        ),
        pytest.param(LOGIN.replace("00 04 4d 51", "00 0c 4d 51"), "10 17" + " **" * 23, id="a name that is none"),
        pytest.param(LOGIN.replace("10 17", "10 ff ff ff ff"), "10 ff" + " **" * 26, id="a length of five bytes"),
    ],
)
def test_of_a_broken_connect_what_may_be_a_password_is_hidden(text: str, wanted: str) -> None:
    assert shown(text) == wanted


def test_that_a_client_identifier_is_one_is_shown_by_what_follows_it() -> None:
    assert packets.is_identified(parse(LOGIN.replace("00 05 68", "00 25 68")))
    assert not packets.is_identified(parse(LOGIN.replace("00 01 75", "00 11 75")))
    assert not packets.is_identified(b"\x10")


def test_a_connect_in_another_packet_is_found_by_its_name() -> None:
    inside = "30 17" + LOGIN[5:]
    packet = decode(parse(inside))
    assert not isinstance(packet, Malformed)
    assert packets.hidden_in_packet(packet, V3_1_1) == [(8, 25)]
    assert HIDDEN not in shown("82 17" + LOGIN[5:])
    assert shown("30 05 00 01 61 62 63", doubt=packets.BROKEN) == "30 05 00 01 61 62 63"


class TestAuthenticationData:
    CONNECT = "10 1b 00 04 4d 51 54 54 05 02 00 3c 0b 15 00 01 6d 16 00 04 68 75 73 68 00 03 61 62 63"
    CONNACK = "20 0e 00 00 0b 15 00 01 6d 16 00 04 68 75 73 68"
    AUTH = "f0 0d 18 0b 15 00 01 6d 16 00 04 68 75 73 68"

    @pytest.mark.parametrize("raw", [CONNECT, CONNACK, AUTH], ids=["connect", "connack", "auth"])
    def test_it_is_hidden_like_a_password(self, raw: str) -> None:
        packet = decode(parse(raw), V5)
        assert not isinstance(packet, Malformed)

        assert view(packet, V5)["properties"]["authentication_data"] == {"length": 4, "redacted": True}
        assert packets.redacted(parse(raw), V5) == parse(raw).replace(b"hush", b"****")

    @each(
        "raw",
        [
            AUTH.replace("f0 0d", "f0 0f"),
            AUTH.replace("16 00 04", "16 00 09"),
            AUTH.replace("16 00 04", "09 00 04"),
            AUTH.replace("16 00 04", "12 00 04"),
            AUTH.replace("18 0b", "18 07"),
            AUTH.replace("f0 0d", "f1 0d"),
            AUTH.replace("f0 0d", "72 0d"),
            AUTH.replace("f0 0d", "a2 0d"),
            CONNACK.replace("16 00 04", "16 00 44"),
            CONNACK.replace("0b 15", "5b 15"),
            "e0 09 00 07 16 00 04 68 75 73 68",
            CONNECT.replace("05 02", "05 c2"),
            CONNECT.replace("0b 15", "7b 15"),
        ],
    )
    @each("version", ProtocolVersion)
    def test_so_it_is_in_what_is_malformed_in_whatever_version(self, raw: str, version: ProtocolVersion) -> None:
        assert isinstance(decode(parse(raw), V5), Malformed)
        assert b"hush" not in packets.redacted(parse(raw), version)
        assert len(packets.redacted(parse(raw), version)) == len(parse(raw))

    def test_a_text_before_the_fault_may_have_swallowed_some_of_it(self) -> None:
        assert b"hush" not in packets.redacted(parse("f0 0c 18 0a 15 00 05 6d 68 75 73 68 6b 61"), V5)

    def test_what_is_wrong_with_a_disconnect_is_still_seen(self) -> None:
        assert shown("e0 09 00 07 16 00 04 68 75 73 68", V5) == "e0 09 00 07 16 00 04 ** ** ** **"


class TestOtherPackets:
    @pytest.mark.parametrize(
        ("text", "wanted"),
        [
            pytest.param("30 05 00 ff 61 62 63", "30 05 00 ff ** ** **", id="a topic too long"),
            pytest.param("40 03 00 01 61", "40 03 00 01 **", id="a PUBACK too long"),
            pytest.param("82 06 00 01 00 01 61 03", "82 06 00 01 00 01 61 03", id="a QoS of 3"),
            pytest.param("82 06 00 01 00 01 61", "82 06 00 01 00 01 61", id="cut"),
            pytest.param("00 03 61 62 63", "00 03 ** ** **", id="a reserved type"),
            pytest.param("c0 00 61", "c0 00 **", id="bytes after it"),
            pytest.param("68 03 61 62 63", "68 03 61 62 **", id="what only looks like a PUBREL"),
        ],
    )
    def test_what_stands_behind_the_first_fault_of_the_layout_is_hidden(self, text: str, wanted: str) -> None:
        assert shown(text) == wanted

    def test_whole_packets_that_a_wrong_length_swallowed_are_shown(self) -> None:
        swallowed = "61 30 10 00 09 73 65 6e 73 6f 72 73 2f 37 00 6d 6f 72 65"
        assert shown(swallowed, V5) == swallowed
        assert shown("61 07 40 02 00 09 c0 00", V5) == "61 07 40 02 00 09 c0 00"
        # Further after, what stands before them is hidden; what does not fill the packet explains nothing.
        assert shown("61 09 61 62 63 64 65 40 02 00 09", V5) == "61 09 ** ** ** ** ** 40 02 00 09"
        assert shown("61 08 40 02 00 09 c0 00 68", V5) == "61 08" + " **" * 7

    def test_secrets_in_swallowed_packets_are_none_the_less(self) -> None:
        inside = packets.redacted(parse("61 " + TestAuthenticationData.AUTH), V5)
        assert b"hush" not in inside

    def test_in_doubt_all_but_the_fixed_header_is(self) -> None:
        assert shown("82 06 00 01 00 01 61 03", doubt=packets.SUSPECT) == "82 06 ** ** ** ** ** **"

    def test_the_rest_of_a_connect_may_be_a_payload(self) -> None:
        packet = decode(parse("30 06 00 01 61 62 63 64"))
        assert not isinstance(packet, Malformed)
        assert packets.hidden_in_packet(packet, V3_1_1, packets.SUSPECT) == []
        assert packets.hidden_in_packet(packet, V3_1_1, packets.BROKEN) == [(2, 8)]

    def test_tokens_of_http_are_hidden_in_whatever_packet_they_are_found(self) -> None:
        raw = b"GET /mqtt?token=abcdef HTTP/1.1\r\nCookie: id=12345678\r\n"
        assert b"abcdef" not in packets.redacted(raw, V3_1_1, packets.SUSPECT)
        assert b"345678" not in packets.redacted(b"\x30\x40\x00\x01a\r\nCookie: id=12345678", V3_1_1)


def test_a_field_of_which_a_part_is_hidden_is_not_visible() -> None:
    raw = parse(LOGIN.replace("00 05 68", "00 25 68"))
    packet = decode(raw)
    assert isinstance(packet, Malformed)
    hidden = packets.hidden_in_damaged(raw, V3_1_1)
    assert "user_name" in packet.fields_read
    assert "user_name" not in packets.visible_fields(packet.fields_read, raw, V3_1_1, hidden)
    assert "client_identifier" in packets.visible_fields(packet.fields_read, raw, V3_1_1, hidden)
    assert packets.visible_fields(["a"], raw, V3_1_1, []) == ("a",)


def test_ranges_are_put_together() -> None:
    assert joined([(5, 7), (1, 2), (2, 3), (6, 9), (4, 4)]) == [(1, 3), (5, 9)]


def test_no_bytes_are_no_secret() -> None:
    for raw in (b"", b"\x10", b"\x10\xff", b"\x00", b"\xf0\x80"):
        for version in ProtocolVersion:
            for doubt in (packets.CLEAR, packets.SUSPECT, packets.BROKEN):
                assert len(packets.redacted(raw, version, doubt)) == len(raw)


@given(
    st.binary(max_size=80),
    st.sampled_from(
        ["", "10 20 00 04 4d 51 54 54 05", "20 10", "f0 12 18 10 16 00", "16 00", "30 10 00 04 4d 51 54 54"]
    ),
    st.sampled_from(list(ProtocolVersion)),
    st.sampled_from([packets.CLEAR, packets.SUSPECT, packets.BROKEN]),
)
def test_whatever_the_bytes_are_the_rest_of_them_stays(
    tail: bytes, head: str, version: ProtocolVersion, doubt: int
) -> None:
    raw = parse(head) + tail
    hidden = packets.hidden_in_damaged(raw, version, doubt)
    assert hidden == joined(hidden)
    assert all(0 <= start < end <= len(raw) for start, end in hidden)
    assert packets.covered(raw, hidden)[:1] == raw[:1]
    assert len(packets.redacted(raw, version, doubt)) == len(raw)
    assert packets.is_identified(raw) in (True, False)
    packet = decode(raw, version) if raw else None
    if isinstance(packet, Malformed):
        assert set(packets.visible_fields(packet.fields_read, raw, version, hidden)) <= set(packet.fields_read)


class TestBeginning:
    """Of what has come of a packet secrets alone are hidden: its rest decides what it is."""

    @pytest.mark.parametrize(
        ("text", "wanted"),
        [
            pytest.param(LOGIN, [(20, 25)], id="whole"),
            pytest.param(LOGIN[: 3 * 22], [(20, 22)], id="cut in the password"),
            pytest.param(LOGIN[: 3 * 17], [], id="cut in the user name"),
            pytest.param(LOGIN + " 82 06 00 01 00 01 61 00", [(20, 25)], id="another packet after it"),
            pytest.param(LOGIN.replace("00 01 75", "00 71 75"), [(17, 25)], id="broken already"),
            pytest.param("20 02 00 00 90 03 00 01 00", [], id="a CONNACK without properties"),
            pytest.param(TestAuthenticationData.AUTH, [(11, 15)], id="AUTH"),
            pytest.param(TestAuthenticationData.AUTH[: 3 * 13], [(11, 13)], id="cut in Authentication Data"),
            pytest.param(TestAuthenticationData.CONNECT[: 3 * 22], [(20, 22)], id="cut there in a CONNECT"),
            pytest.param("82", [], id="one byte"),
        ],
    )
    def test_secrets_alone_are_hidden(self, text: str, wanted: list[tuple[int, int]]) -> None:
        assert packets.hidden_in_beginning(parse(text)) == wanted

    @pytest.mark.parametrize("text", [LOGIN, TestAuthenticationData.CONNECT, TestAuthenticationData.AUTH])
    def test_what_is_read_later_has_the_same_layout(self, text: str) -> None:
        whole = parse(text)
        for stop in range(1, len(whole) + 1):
            raw = packets.covered(whole[:stop], packets.hidden_in_beginning(whole[:stop])) + whole[stop:]
            assert not isinstance(decode(raw, V5), Malformed), stop


PAYLOAD = b'{"t":21.5,"password":"hush!1"}'
PAIR = b"\x26\x00\x08password\x00\x06hush!1"


def framed(first: int, body: bytes, announced: int | None = None) -> bytes:
    return bytes((first, len(body) if announced is None else announced)) + body


@each(
    "raw, version",
    [
        pytest.param(framed(0x36, b"\0\1a" + PAYLOAD), V3_1_1, id="QoS 3"),
        pytest.param(framed(0x30, b"\0\2a\0" + PAYLOAD), V3_1_1, id="a topic with a zero"),
        pytest.param(framed(0x30, b"\0\2a\xff" + PAYLOAD), V5, id="a topic that is not UTF-8"),
        pytest.param(framed(0x30, b"\0\1a" + PAYLOAD, 100), V3_1_1, id="the end is missing"),
        pytest.param(framed(0x30, b"\0\1a\x15" + PAIR + b"\x99x"), V5, id="a wrong property after it"),
        pytest.param(framed(0x30, b"\0\1a\x13" + PAIR, 100), V5, id="a User Property at the end"),
        pytest.param(framed(0x82, b"\0\1\x13" + PAIR + b"\0\1a\xff"), V5, id="wrong options"),
        pytest.param(framed(0x82, b"\0\1\0\0\x0fpassword=hush!1\xff"), V5, id="a Topic Filter"),
        pytest.param(framed(0x40, b"\0\1\x87\x12\x1f\0\x0fpassword=hush!1"), V3_1_1, id="a PUBACK of 5.0"),
        pytest.param(framed(0xE0, b"\x87\x12\x1f\0\x0fpassword=hush!1"), V3_1_1, id="a DISCONNECT of 5.0"),
        pytest.param(framed(0x20, b"\0\x87\x12\x1f\0\x0fpassword=hush!1"), V3_1_1, id="a CONNACK of 5.0"),
    ],
)
def test_damaged_packets_show_no_credentials(raw: bytes, version: ProtocolVersion) -> None:
    packet = decode(raw, version)
    assert isinstance(packet, Malformed)
    assert b"hush!1" not in packets.covered(raw, packets.hidden_in_damaged(raw, version))
    assert b"hush!1" not in repr(public_damaged(packet, packets.hidden_in_damaged(raw, version), version)).encode()


def test_nothing_else_of_them_is_hidden_and_what_follows_is_not_in_doubt() -> None:
    raw = framed(0x36, b"\0\1a\0\1" + PAYLOAD)
    assert packets.redacted(raw, V3_1_1) == raw.replace(b"hush!1", b"******")
    assert packets.doubted_in_damaged(raw, V3_1_1) == []
    plain = framed(0x36, b'\0\1a\0\1{"t":21.5}')
    assert packets.redacted(plain, V3_1_1) == plain


def test_the_beginning_of_a_packet_keeps_its_topic() -> None:
    raw = framed(0x30, b"\0\x0fpassword=hush!2\x13" + PAIR + PAYLOAD)
    assert packets.covered(raw, packets.credentials_in_beginning(raw)) == raw.replace(b"hush!1", b"******")
    assert packets.credentials_in_beginning(raw[:1]) == []

"""The data types: borders, cuts at every length, and what is written for values no reader would give."""

from __future__ import annotations

from typing import Any

import pytest

from mqttscope.mqtt import MalformedReason, wire
from mqttscope.mqtt.wire import LayoutFault, WireType
from tests.each import each
from tests.mqtt.octets import string, varint

R = MalformedReason

BORDERS = (0, 127, 128, 16383, 16384, 2097151, 2097152, 268435455)
VALUES: list[tuple[WireType[Any], Any, bytes]] = [
    (wire.U8, 0, b"\0"),
    (wire.U8, 255, b"\xff"),
    (wire.U16, 0, b"\0\0"),
    (wire.U16, 258, b"\x01\x02"),
    (wire.U16, 65535, b"\xff\xff"),
    (wire.U32, 1, b"\0\0\0\x01"),
    (wire.U32, 0xFFFFFFFF, b"\xff\xff\xff\xff"),
    *(
        (wire.VARIABLE_BYTE_INTEGER, number, varint(number))
        for number in (0, 127, 128, 16383, 16384, 2097151, 2097152, 268435455)
    ),
    (wire.UTF8, "", b"\0\0"),
    (wire.UTF8, "a/b", b"\0\x03a/b"),
    (wire.UTF8, "ä€\U0001f41f", string("ä€\U0001f41f")),
    (wire.UTF8, "x" * 65535, string("x" * 65535)),
    (wire.UTF8, "\ufeff\uffff\x01", string("\ufeff\uffff\x01")),
    (wire.BINARY, b"", b"\0\0"),
    (wire.BINARY, b"\0\xff", b"\0\x02\0\xff"),
    (wire.UTF8_PAIR, ("", ""), b"\0\0\0\0"),
    (wire.UTF8_PAIR, ("k", "v"), b"\0\x01k\0\x01v"),
]
NAMES = [f"{kind.name} {str(value)[:12]}" for kind, value, _ in VALUES]


@each("kind, value, raw", VALUES, ids=NAMES)
def test_a_value_is_read_between_others_and_written_as_it_was(kind: WireType[Any], value: Any, raw: bytes) -> None:
    assert kind.read(b"\xaa" + raw + b"\xbb", 1, len(raw) + 2) == (value, len(raw) + 1)
    assert kind.write(value) == raw


@each("kind, value, raw", VALUES, ids=NAMES)
def test_a_value_that_is_cut_is_an_overrun_and_not_a_wish_for_more(kind: WireType[Any], value: Any, raw: bytes) -> None:
    for size in range(min(len(raw), 20)):
        with pytest.raises(LayoutFault) as caught:
            kind.read(raw, 0, size)
        assert caught.value.reason is R.FIELD_OVERRUN
        assert caught.value.resume is None
        assert 0 <= caught.value.offset <= size


@pytest.mark.parametrize(
    ("raw", "offset", "text"),
    [
        (b"a\xc3\x28", 1, "a\udcc3("),
        (b"\xed\xa0\x80", 0, "\udced\udca0\udc80"),
        (b"\xc0\xaf", 0, "\udcc0\udcaf"),
        (b"ok\xff", 2, "ok\udcff"),
        (b"\xf4\x90\x80\x80", 0, "\udcf4\udc90\udc80\udc80"),
        (b"cut\xe2\x82", 3, "cut\udce2\udc82"),
    ],
    ids=["no continuation", "a surrogate", "overlong", "no start byte", "above U+10FFFF", "cut character"],
)
def test_ill_formed_text_survives_and_reading_can_go_on(raw: bytes, offset: int, text: str) -> None:
    whole = string(raw)
    with pytest.raises(LayoutFault) as caught:
        wire.read_utf8(whole + b"x", 0, len(whole) + 1)

    assert caught.value.reason is R.UTF8_ILL_FORMED
    assert (caught.value.offset, caught.value.value, caught.value.resume) == (2 + offset, text, len(whole))
    assert wire.write_utf8(text) == whole


def test_u_0000_is_found_where_it_is() -> None:
    with pytest.raises(LayoutFault) as caught:
        wire.read_utf8(string("ä\0b"), 0, 6)

    assert caught.value.reason is R.UTF8_NULL_CHARACTER
    assert (caught.value.offset, caught.value.value, caught.value.resume) == (4, "ä\0b", 6)


def test_a_surrogate_that_no_decoder_made_is_written_as_three_bytes() -> None:
    assert wire.write_utf8("\ud800") == b"\0\x03\xed\xa0\x80"


@pytest.mark.parametrize(
    ("raw", "value", "offset"),
    [
        (string(b"\xff") + string("v"), ("\udcff", "v"), 2),
        (string("k") + string(b"\xfe"), ("k", "\udcfe"), 5),
        (string(b"\xff") + string(b"\xfe"), ("\udcff", "\udcfe"), 2),
    ],
    ids=["in the name", "in the value", "in both"],
)
def test_a_pair_with_ill_formed_text_tells_the_first_fault_and_keeps_both(
    raw: bytes, value: tuple[str, str], offset: int
) -> None:
    with pytest.raises(LayoutFault) as caught:
        wire.read_utf8_pair(raw, 0, len(raw))

    assert (caught.value.value, caught.value.offset, caught.value.resume) == (value, offset, len(raw))


@pytest.mark.parametrize("raw", [b"\x80\x80\x80\x80\x01", b"\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x80"])
def test_a_variable_byte_integer_never_has_five_bytes(raw: bytes) -> None:
    with pytest.raises(LayoutFault) as caught:
        wire.read_variable_byte_integer(raw, 0, len(raw))

    assert caught.value.reason is R.VARIABLE_BYTE_INTEGER_TOO_LONG
    assert caught.value.resume is None


@pytest.mark.parametrize(("raw", "value"), [(b"\x80\0", 0), (b"\xff\x80\0", 127), (b"\x80\x80\x80\0", 0)])
def test_a_variable_byte_integer_in_more_bytes_than_it_needs_keeps_its_value(raw: bytes, value: int) -> None:
    with pytest.raises(LayoutFault) as caught:
        wire.read_variable_byte_integer(raw, 0, len(raw))

    assert caught.value.reason is R.VARIABLE_BYTE_INTEGER_NOT_MINIMAL
    assert (caught.value.value, caught.value.resume) == (value, len(raw))
    assert wire.write_variable_byte_integer(value, length=len(raw)) == raw


def test_a_variable_byte_integer_above_the_maximum_is_written_as_told() -> None:
    assert wire.MAX_VARIABLE_BYTE_INTEGER == 128**4 - 1
    assert wire.write_variable_byte_integer(128**4) == b"\x80\x80\x80\x80\x01"


def test_numbers_too_large_keep_their_low_bits() -> None:
    assert wire.write_u8(0x1FF) == b"\xff"
    assert wire.write_u16(0x12345) == b"\x23\x45"
    assert wire.write_u32(0x123456789) == b"\x23\x45\x67\x89"


def test_the_rest_of_a_packet_may_be_empty() -> None:
    assert wire.REST.read(b"ab", 2, 2) == (b"", 2)
    assert wire.REST.read(b"ab", 0, 1) == (b"a", 1)
    assert wire.REST.write(b"ab") == b"ab"

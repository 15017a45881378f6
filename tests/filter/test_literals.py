"""How values are written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttscope.filter.literals import address, binary_text, duration, integer, moment, network, size
from mqttscope.filter.literals import text as literal_text
from mqttscope.filter.parser import FilterError, Token, tokenize


def fail(message: str, position: int, length: int, hint: str = "") -> FilterError:
    return FilterError(message, position, length, hint=hint)


@pytest.mark.parametrize(
    ("written", "value"),
    [("0", 0), ("42", 42), ("-1", -1), ("+7", 7), ("0xff", 255), ("0XFF", 255), ("1_000", 1000), ("010", None),
     ("1.5", None), ("", None), ("9" * 5_000, None)],
)  # fmt: skip
def test_whole_numbers(written: str, value: int | None) -> None:
    assert integer(written) == value


@pytest.mark.parametrize(
    ("written", "value"),
    [("10B", 10), ("10KB", 10_000), ("10kb", 10_000), ("10KiB", 10_240), ("1.5KiB", 1536), ("0.1B", 0.1),
     ("2MB", 2_000_000), ("1MiB", 1_048_576), ("1GB", 10**9), ("1GiB", 2**30), ("10", None), ("10XB", None),
     ("KB", None), ("1KB2", None)],
)  # fmt: skip
def test_sizes(written: str, value: float | None) -> None:
    assert size(written) == value


@pytest.mark.parametrize(
    ("written", "value"),
    [("1ns", 1), ("1us", 1_000), ("1µs", 1_000), ("1ms", 1_000_000), ("1s", 10**9), ("1m", 60 * 10**9),
     ("1min", 60 * 10**9), ("1h", 3_600 * 10**9), ("1d", 86_400 * 10**9), ("1h30m", 5_400 * 10**9),
     ("1.5s", 1_500_000_000), ("1m30.5s", 90_500_000_000), ("0.1ns", 0.1), ("1", None), ("1x", None), ("s", None),
     ("1s2", None), ("1sx", None), ("-1s", None)],
)  # fmt: skip
def test_durations(written: str, value: float | None) -> None:
    assert duration(written) == value


@given(
    st.integers(0, 7 * 10**15),
    st.integers(-14 * 60, 14 * 60),
)
def test_times_agree_with_the_standard_library(microseconds: int, minutes: int) -> None:
    zone = timezone(timedelta(minutes=minutes))
    written = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)).astimezone(zone).isoformat()
    expected = microseconds * 1_000
    assert moment(Token("atom", written, 0), fail) == (expected, False)
    assert moment(Token("string", f'"{written.replace("T", " ")}"', 0), fail) == (expected, False)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1970-01-01T00:00Z", 0),
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("1970-01-01T00:00:00.000000001Z", 1),
        ("1970-01-01t01:00:00+0100", 0),
        ("1969-12-31T23:30:00-00:30", 0),
    ],
)
def test_times_of_less_usual_forms(written: str, value: int) -> None:
    assert moment(Token("atom", written, 0), fail) == (value, False)


@pytest.mark.parametrize("written", ["2026-02-30T00:00:00Z", "2026-01-01T25:00:00Z", "2026-01-01T00:00:00.0123456789Z"])
def test_times_that_do_not_exist_are_refused(written: str) -> None:
    with pytest.raises(FilterError):
        moment(Token("atom", written, 0), fail)


def test_relative_times_are_told_from_absolute_ones() -> None:
    assert moment(Token("atom", "+1m30s", 0), fail) == (90 * 10**9, True)
    assert moment(Token("string", '"+2s"', 0), fail) == (2 * 10**9, True)


@given(st.binary(max_size=30))
def test_any_bytes_can_be_written_with_escapes(value: bytes) -> None:
    written = '"' + "".join(f"\\x{byte:02x}" for byte in value) + '"'
    assert binary_text(Token("string", written, 0), fail) == value
    assert literal_text(Token("string", written, 0), fail) == value.decode("utf-8", "surrogateescape")


@given(st.text(alphabet=st.characters(exclude_categories=[]), max_size=20))
def test_any_text_survives_quoting(value: str) -> None:
    written = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    (token, end) = tokenize(written)
    assert (token.kind, token.text, end.kind) == ("string", written, "end")
    raw = binary_text(token, fail)
    try:
        assert raw == value.encode()
    except UnicodeEncodeError:  # a lone surrogate stands for the byte that it escapes
        assert raw == literal_text(token, fail).encode("utf-8", "surrogateescape")


def test_addresses_have_one_form() -> None:
    assert address("2001:DB8:0:0::1") == "2001:db8::1"
    assert address("broker.example") == "broker.example"
    assert str(network("10.1.2.3/8")) == "10.0.0.0/8"
    assert network("10.0.0.0/40") is None
    assert network("10.0.0.0") is None

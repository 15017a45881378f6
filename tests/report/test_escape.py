from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from mqttscope.report.escape import cells, cut, elide, escape, escape_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("plant/temp", "plant/temp", id="plain text stays"),
        pytest.param("größe 日本 😀", "größe 日本 😀", id="letters of other scripts stay"),
        pytest.param("a\nb\tc\r", "a\\nb\\tc\\r", id="line ends and tabs are named"),
        pytest.param("\x1b[31m", "\\x1b[31m", id="an escape sequence is not obeyed"),
        pytest.param("\x00\x7f", "\\x00\\x7f", id="NUL and DEL"),
        pytest.param("\x85\x9b31m", "\\u0085\\u009b31m", id="C1 controls, CSI in one byte among them"),
        pytest.param("a\u202etxt.exe", "a\\u202etxt.exe", id="right-to-left override"),
        pytest.param("\u2066x\u2069", "\\u2066x\\u2069", id="bidirectional isolates"),
        pytest.param("a\u2028b\u2029", "a\\u2028b\\u2029", id="line and paragraph separators"),
        pytest.param("a\u200bb\ufeff", "a\\u200bb\\ufeff", id="zero width space and byte order mark"),
        pytest.param("a\u00a0b\u3000", "a\\u00a0b\\u3000", id="blanks that are no blanks"),
        pytest.param("\U000e0041", "\\U000e0041", id="tag characters"),
        pytest.param("❤\ufe0f", "❤\\ufe0f", id="variation selectors change widths"),
        pytest.param("\udc80\udcff", "\\x80\\xff", id="bytes that were no UTF-8"),
        pytest.param("\ud800", "\\ud800", id="a lone surrogate"),
        pytest.param("C:\\new", "C:\\new", id="backslashes of the data stay"),
    ],
)
def test_what_a_terminal_would_obey_becomes_visible(text: str, expected: str) -> None:
    assert escape(text) == expected


def test_without_unicode_everything_is_ascii() -> None:
    assert escape("größe 😀", ascii_only=True) == "gr\\u00f6\\u00dfe \\U0001f600"


def test_bytes_are_text_where_they_can_be() -> None:
    assert escape_bytes(b"t\xc3\xa9\xff\x00") == "té\\xff\\x00"


@given(st.text(st.characters(), max_size=60))
@settings(max_examples=300, derandomize=True)
def test_nothing_escaped_is_a_control_or_format_character(text: str) -> None:
    safe = escape(text)
    assert not [char for char in safe if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    assert cells(safe) == cell_len(safe)


@given(st.text(st.characters(), max_size=60), st.integers(1, 40))
@settings(max_examples=300, derandomize=True)
def test_cut_and_elided_text_fits(text: str, width: int) -> None:
    safe = escape(text)
    assert cell_len(cut(safe, width)) <= width
    assert cell_len(elide(safe, width)) <= width
    if cell_len(safe) <= width:
        assert cut(safe, width) == elide(safe, width) == safe


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("0123456789", 10, "0123456789"),
        ("0123456789", 7, "0123…89"),
        ("0123456789", 3, "01…"),
        ("日本語日本語", 7, "日本…語"),
    ],
)
def test_names_lose_their_middle(text: str, width: int, expected: str) -> None:
    assert elide(text, width) == expected


def test_what_this_program_writes_takes_one_column_each() -> None:
    assert [cell_len(text) for text in "→…"] == [1, 1]


@given(st.text(st.sampled_from("ab→…é漢\u0301"), max_size=20))
def test_columns_are_those_of_the_terminal(text: str) -> None:
    assert cells(text) == cell_len(text)

from __future__ import annotations

import re

import pytest

from mqttscope.report.base import View
from mqttscope.report.style import STYLES, Painter, Wrapped, encoded

ANSI = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("style", [name for name, look in STYLES.items() if look])
def test_colour_adds_nothing_but_ansi_sequences(style: str) -> None:
    painted = Painter(View(colour=True)).paint("text", style)
    assert painted != "text"
    assert ANSI.sub("", painted) == "text"
    assert painted.endswith("\x1b[0m")
    assert Painter(View(colour=False)).paint("text", style) == "text"


def test_a_line_is_cut_with_an_ellipsis_and_takes_no_more() -> None:
    line = Painter(View(width=12)).line()
    for text in ("12345", "67890", "abc", "def"):
        line.add(text)
    assert str(line) == "1234567890a…"
    assert line.used == 12


def test_a_line_without_limit_takes_everything() -> None:
    line = Painter(View(width=0)).line()
    line.add("x" * 100_000)
    assert len(str(line)) == 100_000


def test_wide_characters_count_twice() -> None:
    line = Painter(View(width=8)).line()
    line.add("日本語日本語")
    assert str(line) == "日本語…"


def test_wrapped_text_goes_on_indented_and_ends_at_last() -> None:
    line = Painter(View(width=20)).line()
    line.add("03:04:05 ")
    text = Wrapped(line, most=3)
    text.add("a fault that takes many words to tell, more than there is room for here")
    assert text.texts() == ["03:04:05 a fault", "    that takes many", "    words to tell, …"]


def test_wrapped_text_that_is_cut_at_the_last_column_ends_with_an_ellipsis() -> None:
    for words in ("one two three", "one two", "one twoo three"):
        text = Wrapped(Painter(View(width=8)).line(), most=1, indent=0)
        text.add("x")
        text.add(f"yz {words}")
        (line,) = text.texts()
        assert line == "xyz one…"
    text = Wrapped(Painter(View(width=8)).line(), most=2, indent=0)
    text.add("aaa bbb ccc ddd eee")
    assert text.texts() == ["aaa bbb", "ccc ddd…"]


@pytest.mark.parametrize("colour", [False, True])
def test_text_in_the_last_column_gives_way_when_more_comes(colour: bool) -> None:
    line = Painter(View(width=8, colour=colour)).line()
    line.add("abcd", "error")
    line.add("efgh", "error")
    assert "abcdefgh" in str(line).replace("\x1b[0m\x1b[31m", "")
    line.add("")
    line.add("i")
    line.add("j")
    assert "abcdefg…" in str(line).replace("\x1b[0m\x1b[31m", "")
    assert line.used == 8


def test_what_is_written_is_utf_8_even_with_surrogates() -> None:
    assert encoded(["ä", "\ud800"]) == b"\xc3\xa4\n?\n"

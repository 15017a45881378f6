"""Names from the wire are text in a table, whatever is in them, and never longer than a reader can use."""

from __future__ import annotations

from mqttscope.report.html.pieces import LONGEST, amounts, between, header, legend, paragraph, part, short, table
from mqttscope.report.sections import Cell
from tests.report.fleet.samples import HOSTILE, LONG
from tests.report.html.reader import read


def test_a_table_holds_text() -> None:
    text = table([HOSTILE, LONG], [Cell(HOSTILE, lambda row: row, "name"), Cell("length", lambda row: str(len(row)))])
    reader = read(text.encode())

    assert reader.tags == {"div", "table", "thead", "tbody", "tr", "th", "td"}
    assert reader.attributes == {"class"}
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert all(len(text) <= 6 * LONGEST for text in reader.texts)


def test_long_names_keep_both_ends() -> None:
    assert short(f"begin{'x' * 999}end").startswith("begin")
    assert short(f"begin{'x' * 999}end").endswith("end")


def test_sentences_and_amounts_are_text_too() -> None:
    for text in (
        paragraph(HOSTILE),
        header(HOSTILE, HOSTILE),
        amounts([HOSTILE]),
        legend(["infos"], lambda _: HOSTILE),
    ):
        assert "script" not in read(text.encode()).tags
        assert "\\u202e" in text
    assert paragraph("") == ""


def test_a_range_of_time_has_its_date_once() -> None:
    first = 1_767_323_045_123_456_789
    assert between(first, first + 3_600 * 10**9) == "2026-01-02 03:04:05 to 04:04:05 UTC"
    assert between(first, first + 86_400 * 10**9) == "2026-01-02 03:04:05 to 2026-01-03 03:04:05 UTC"
    assert between(None, None) == ""


def test_a_part_without_content_is_none() -> None:
    assert part("title", "", before="legend") == []
    assert part("a < b", "plot", before="legend", after="note", level=3) == [
        "<section><h3>a &lt; b</h3>", "legend", "plot", "note", "</section>",
    ]  # fmt: skip

"""Names from the wire are text in a table, whatever is in them, and never longer than a reader can use."""

from __future__ import annotations

from mqttscope.report.html.pieces import LONGEST, Cell, amounts, doubt, fitting, legend, note, part, short, table
from tests.report.fleet.samples import HOSTILE, LONG
from tests.report.html.reader import read


def test_a_table_holds_text() -> None:
    made = table([HOSTILE, LONG], [Cell(HOSTILE, lambda row: row, "name"), Cell("length", lambda row: str(len(row)))])
    reader = read(made.encode())

    assert reader.tags == {"div", "table", "thead", "tbody", "tr", "th", "td"}
    assert reader.attributes == {"class"}
    assert "\u202e" not in made
    assert "\x1b" not in made
    assert all(len(one) <= 6 * LONGEST for one in reader.said)


def test_long_names_keep_both_ends() -> None:
    assert short(f"begin{'x' * 999}end").startswith("begin")
    assert short(f"begin{'x' * 999}end").endswith("end")
    assert fitting("日" * 40, 32) == f"{'日' * 15}…"
    assert fitting("<b>", 32) == "&lt;b&gt;"


def test_sentences_and_amounts_are_text_too() -> None:
    for made in (note(HOSTILE), doubt(HOSTILE), amounts([HOSTILE]), legend(["infos"], lambda _: HOSTILE)):
        assert "script" not in read(made.encode()).tags
        assert "\\u202e" in made
    assert note("") == doubt("") == ""


def test_a_part_without_content_is_none() -> None:
    assert part("title", "", before="legend") == []
    assert part("a < b", "plot", before="legend", after="note", level=3) == [
        "<h3>a &lt; b</h3>", "legend", "plot", "note",
    ]  # fmt: skip

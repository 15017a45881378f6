"""Tables for a browser hold what those for a terminal hold, as text, and without credentials in names."""

from __future__ import annotations

from mqttscope.report.html.sheet import HtmlTables
from mqttscope.report.page import PageColumn
from tests.report.fleet.samples import HOSTILE
from tests.report.html.reader import read

TOKEN = "pump?api_key=dozjgNryP4J3jVmNHl0w5N"


def test_a_table_has_its_columns_but_for_empty_ones() -> None:
    sheet = HtmlTables()
    sheet.title(HOSTILE)
    sheet.table(
        PageColumn("client", [HOSTILE, TOKEN]),
        [
            PageColumn("packets", ["1,000", "20"]),
            PageColumn("nothing", ["", ""]),
            PageColumn("", shares=[0.5, 0.0]),
            PageColumn("end", ["DISCONNECT", ""], right=False),
        ],
    )
    page = "".join(sheet.parts)
    reader = read(page.encode())

    assert reader.tags == {"h2", "div", "table", "thead", "tbody", "tr", "th", "td", "svg", "rect"}
    words = ("client", "packets", "nothing", "end", "1,000", "DISCONNECT")
    assert [text for text in reader.texts if text in words] == [
        "client", "packets", "end", "1,000", "DISCONNECT",
    ]  # fmt: skip
    assert page.count("<rect") == 1
    assert "dozjgNryP4J3" not in page
    assert "\u202e" not in page


def test_lines_have_the_weight_that_they_have_on_a_terminal() -> None:
    sheet = HtmlTables()
    for style in ("bold", "", "dim", "yellow"):
        sheet.line(["a < b", "c"], style)
        sheet.line([], style)

    assert sheet.parts == [
        '<ul class="amounts"><li>a &lt; b</li><li>c</li></ul>',
        "<p>a &lt; b · c</p>",
        '<p class="note">a &lt; b · c</p>',
        '<p class="doubt">a &lt; b · c</p>',
    ]

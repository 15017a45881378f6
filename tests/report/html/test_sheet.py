"""Tables for a browser hold what those for a terminal hold, as text, and without credentials in names."""

from __future__ import annotations

from mqttscope.report.html.sheet import Sheet, share_bar
from mqttscope.report.page import Column
from tests.report.fleet.samples import HOSTILE
from tests.report.html.reader import read

TOKEN = "pump?api_key=dozjgNryP4J3jVmNHl0w5N"


def test_a_table_has_its_columns_but_for_empty_ones() -> None:
    sheet = Sheet()
    sheet.title(HOSTILE)
    sheet.table(
        Column("client", [HOSTILE, TOKEN]),
        [
            Column("packets", ["1,000", "20"]),
            Column("nothing", ["", ""]),
            Column("", shares=[0.5, 0.0]),
            Column("end", ["DISCONNECT", ""], right=False),
        ],
    )
    page = "".join(sheet.parts)
    reader = read(page.encode())

    assert reader.tags == {"h2", "div", "table", "thead", "tbody", "tr", "th", "td", "svg", "rect"}
    assert [one for one in reader.said if one in ("client", "packets", "nothing", "end", "1,000", "DISCONNECT")] == [
        "client", "packets", "end", "1,000", "DISCONNECT",
    ]  # fmt: skip
    assert page.count("<rect") == 1
    assert "dozjgNryP4J3" not in page
    assert "\u202e" not in page


def test_lines_have_the_weight_that_they_have_on_a_terminal() -> None:
    sheet = Sheet()
    for style in ("bold", "", "dim", "yellow"):
        sheet.line(["a < b", "c"], style)
        sheet.line([], style)

    assert sheet.parts == [
        '<ul class="amounts"><li>a &lt; b</li><li>c</li></ul>',
        "<p>a &lt; b · c</p>",
        '<p class="note">a &lt; b · c</p>',
        '<p class="doubt">a &lt; b · c</p>',
    ]


def test_bars_stay_in_their_room() -> None:
    assert 'width="50.0"' in share_bar(0.5)
    assert 'width="0.5"' in share_bar(0.000001)
    assert 'width="100.0"' in share_bar(7.0)
    assert "<rect" not in share_bar(0.0)

"""Sections are declared once: a terminal cuts and colours them, a page escapes them."""

from __future__ import annotations

from mqttscope.report.base import View
from mqttscope.report.html.sheet import HtmlTables
from mqttscope.report.page import Page
from mqttscope.report.sections import Cell, Document, Section, value
from tests.report.fleet.samples import HOSTILE, NOW

SECTION = Section("Devices", "devices", [
    Cell("device", "name", "name"), Cell("sent", "count"), Cell("p50", "latency.p50_ns", "duration"),
    Cell("seen", "seen_ns", "time"), Cell("topics", lambda row: HOSTILE, "text", widest=12),
    Cell("", lambda row: row["count"], "share", 1),
], "device", lambda report: [([f"{report['all']} in all"], "dim")])  # fmt: skip
REPORT: Document = {
    "all": 7,
    "devices": {
        "rows": [
            {"name": HOSTILE, "count": 1_234, "latency": {"p50_ns": 850_000}, "seen_ns": NOW},
            {"name": "b", "count": 0, "latency": None, "seen_ns": None},
        ],
        "total": 3,
    },
}


def drawn(**view: object) -> str:
    page = Page(View(**view))  # type: ignore[arg-type]
    SECTION.write(page, REPORT)
    return page.encoded().decode()


def test_values_have_paths() -> None:
    assert value({"a": {"b": 3}}, "a.b") == 3
    assert value({"a": None}, "a.b") is None
    assert value(NOW, "real") == NOW


def test_a_terminal_shows_a_section() -> None:
    lines = drawn(width=120).splitlines()

    assert lines[1:3] == ["Devices", "7 in all"]
    assert lines[3].split() == ["device", "sent", "p50", "seen", "topics"]
    assert "1,234  850 µs  2026-01-02 03:04:05  <script>ale…" in lines[5]
    assert lines[-1] == "… and 1 device more (--top N shows N)"
    assert drawn(width=120, unicode=False).isascii()


def test_a_page_shows_all_of_it() -> None:
    sheet = HtmlTables()
    SECTION.write(sheet, REPORT)
    markup = "".join(sheet.parts)

    assert markup.startswith('<h2>Devices</h2><p class="note">7 in all</p>')
    assert markup.count("&lt;script&gt;alert(&#x27;&amp;&quot;1&#x27;)&lt;/script&gt;\\x1b[31m\\u202e\\n") == 3
    assert '<td class="number">850 µs</td>' in markup
    assert markup.endswith('<p class="note">… and 1 device more (--top N shows N)</p>')


def test_a_section_without_rows_and_lines_is_left_out() -> None:
    sheet = HtmlTables()
    Section("Devices", "devices", SECTION.cells).write(sheet, {"devices": []})
    assert sheet.parts == []
    Section("Devices", before=lambda report: [(["none"], "")]).write(sheet, {})
    assert sheet.parts == ["<h2>Devices</h2>", "<p>none</p>"]

"""The frame of a page: nothing but its own script runs, and no name gets out of its rows."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import orjson
import pytest

from mqttscope.report.html.page import ROWS_TOGETHER, PageWriter, card, document, inert, policy, script, style
from mqttscope.report.html.pieces import safe
from tests.cli.running import capture, invoke
from tests.each import each
from tests.report.browser import elements, printed
from tests.report.html.reader import documents, read, rows
from tests.secrets.sinks import Text

OWNS = "document.documentElement.dataset.owned='1'"
HOSTILE = (
    f"</script><script>{OWNS}</script>",
    f'<img src=x onerror="{OWNS}">',
    f"<!--<script>{OWNS}//",
    f"]]><svg onload={OWNS}>",
    f"javascript:{OWNS}",
    '"\'`\\" } ${' + OWNS + "}",
    "a\u2028b\u2029c\u0085d",
    "\u202eevil\u2066\u200b\u00ad\ufeff",
    "\x00\x01\x1b[31m\x7f\x9f",
    "&lt;b&gt; &amp; &#60;",
    "x\u0301\u0302\u0303\u0304\u0305\u0306\ufe0f",
)
"""What nobody should call a topic."""


def hashed(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def written(count: int = 3) -> bytes:
    sink = Text()
    page = PageWriter(sink, "rows", 10)
    for at in range(count):
        text = HOSTILE[at % len(HOSTILE)]
        page.row(card("", f"<h3>{safe(text)}</h3>", f"<pre>{safe(text)}</pre>"), orjson.dumps({"at": at, "text": text}))
    page.close(HOSTILE[0], ["<h1>A page</h1>"], "Rows")
    return sink.whole()


def test_the_policy_knows_what_is_in_the_page() -> None:
    page = written().decode()
    policies = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)

    assert policies == [policy()]
    allowed = dict(word.split(" ", 1) for word in policies[0].split("; "))
    assert allowed == {
        "default-src": "'none'", "script-src": hashed(script()), "style-src": hashed(style()), "base-uri": "'none'",
        "form-action": "'none'",
    }  # fmt: skip
    assert page.index("Content-Security-Policy") < page.index("<style>") < page.index("<script")
    (run,) = re.findall(r"<script>(.*?)</script>", page, re.S)
    assert hashed(run) in policies[0]
    assert policies[0] in document("title", []).decode()


def test_style_and_script_ask_for_nothing_and_cannot_end_early() -> None:
    for text in (style(), script()):
        assert "</" not in text
        assert "<!--" not in text
        assert not re.search(r"https?:(?!//www\.w3\.org/2000/svg)|url\(|@import|\bimport\b|fetch|XMLHttp", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval|new Function|\.style\b", script())


def test_nothing_of_a_row_is_markup() -> None:
    reader = read(written(len(HOSTILE)))

    assert reader.tags == {"html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "section", "noscript",
                           "article", "div", "pre", "details", "summary", "code", "script"}  # fmt: skip
    assert not {name for name in reader.attributes if name.startswith("on") or name in ("src", "href", "style")}


@pytest.mark.parametrize("text", HOSTILE)
def test_json_means_the_same_and_holds_no_markup(text: str) -> None:
    data = orjson.dumps({text: [text]})
    raw = inert(data)

    assert json.loads(raw) == json.loads(data)
    assert not set(raw) & set(b"<>&\x7f")
    assert raw.decode().isprintable()


@pytest.mark.parametrize("count", [0, 1, ROWS_TOGETHER, 2 * ROWS_TOGETHER + 1])
def test_rows_come_in_blocks(count: int) -> None:
    page = written(count)

    assert [row["at"] for row in documents(page)] == list(range(count))
    assert len(rows(page)) == count
    assert page.count(b"<noscript") == -(-count // ROWS_TOGETHER)
    assert (b'id="list"' in page) is (count > 0)


def test_the_worst_rows_come_first_and_the_answer_before_them() -> None:
    sink = Text()
    page = PageWriter(sink, "rows", 10)
    for rank in (2, 0, 1, 0):
        page.row(card("", "a\nb", folded=rank == 2), b"%d" % rank, connection=7, rank=rank)
    assert sink.whole() == b""
    page.close("title", ["<h1>The answer</h1>"], "Rows")
    text = sink.whole().decode()

    assert documents(sink.whole()) == [0, 0, 1, 2]
    assert text.index("The answer") < text.index("<noscript")
    assert rows(sink.whole())[0].startswith('<article data-c="7" class="card ">a&#10;b<')
    assert rows(sink.whole())[3].startswith('<details data-c="7" class="card "><summary>a&#10;b</summary>')


def test_large_rows_end_a_block() -> None:
    sink = Text()
    page = PageWriter(sink, "rows", 10)
    for _ in range(4):
        page.row(("<p>", "</p>"), orjson.dumps("x" * 600_000))
    page.close("large", [], "Rows")
    assert sink.whole().count(b"<noscript") == 2


@pytest.mark.long
def test_a_browser_runs_nothing_of_it(tmp_path: Path) -> None:
    """Not in the blocks, not in the title; and would something get out of its text, the policy stops it."""
    page = written(len(HOSTILE))
    through = page.replace(b"<h1>", f"<script>{OWNS}</script>{HOSTILE[1]}<h1>".encode())
    assert "data-owned" not in elements(through, tmp_path)
    assert "data-owned" in elements(through, tmp_path, act="0"), "without the policy it would run"
    assert "data-owned" not in elements(page, tmp_path, act="0"), "and of the page alone nothing would, without it"


@pytest.mark.long
@each(
    "words, most, expected",
    [
        (("inspect", "v5-qos"), 5, ("Packets", "UNSUBACK", "CLOSED")),
        (("lint", "planted-violations"), 14, ("Findings", "PUB101", "Instead,")),
        (("stats", "mixed-versions"), 5, ("Statistics", "Clients", "watch-3.1.1")),
        (("explain", "link-lost-keep-alive"), 3, ("Explanation", "Afterwards", "FIN")),
    ],
)
def test_pages_are_made_for_paper(words: tuple[str, str], most: int, expected: tuple[str, ...], tmp_path: Path) -> None:
    """All of it within the sheets, without what can only be clicked; light, also where the screen is dark."""
    command, name = words
    sheets = printed(invoke(command, capture(name), "--format", "html").out, tmp_path)

    assert 1 < sheets.pages <= most
    for word in expected:
        assert word in sheets.text
    # Nothing of a table is cut at an edge of the paper.
    beyond = [word for word, left, right in sheets.words if left < 0.01 or right > 0.99]
    assert not beyond
    assert not {"▸", "▾", "next", "previous"} & {word for word, _, _ in sheets.words}


def test_paper_is_light() -> None:
    rules = style()
    dark, paper = rules.index("prefers-color-scheme"), rules.index("@media print")

    assert rules[:dark].endswith("@media screen and (")
    assert "color-scheme:light}" in rules[paper:]

"""Markdown in which nothing captured has a meaning."""

from __future__ import annotations

import html
import re
from dataclasses import replace

from markdown_it import MarkdownIt

from mqttscope.lint.finding import Severity
from mqttscope.report.findings.markdown import MAX_BYTES, MAX_SHOWN, safe
from tests.report.findings.samples import (
    HOSTILE,
    HOSTILE_TEXT,
    IN_BASELINE,
    MADE,
    NOTHING,
    idle,
    many,
    summary,
    written,
)


def rendered(text: str) -> str:
    """The page as a site shows it, with HTML passed on."""
    return str(MarkdownIt("commonmark", {"html": True}).enable("table").render(text))


def test_a_table_then_the_findings() -> None:
    text = written("markdown", [MADE, MADE, (MADE, IN_BASELINE), replace(MADE, rule="ENC101")])
    times = "2 times from 2026-01-02T03&#58;04:05.000Z to 2026-01-02T03&#58;04:05.000Z, last in frame 118"

    assert text.startswith("### mqttscope: no findings\n\n| rule | severity |")
    assert "| CON212 second-connect | 🔴 error | 1 | 2 | 1 | 1 |" in text
    assert "<details><summary><b>CON212</b> second-connect (1)</summary>" in text
    assert f"(dev1)<br>{times}\n" in text
    page = rendered(text)
    assert page.count("<tr>") == 3
    assert "Password without User Name [3.1.1 MQTT-3.1.2-22]<br>capture.pcap, frame 118, " in page
    assert "Instead, open a new TCP connection for another CONNECT." in page


def test_notes_are_one_line_for_each_rule_unless_it_is_verbose() -> None:
    note = replace(MADE, severity=Severity.INFO, rule="OPS212", slug="ping-without-idle", message="pings early")
    text = written("markdown", [note, MADE, note, replace(note, rule="ACK206", slug="resend")], every=True)

    assert text.count("<details>") == 1
    assert text.index("<details>") < text.index("* **OPS212** ping") < text.index("* **ACK206** resend: ")
    (line,) = [line for line in text.splitlines() if line.startswith("* **OPS212** ping-without-idle: pings early ")]
    assert line.endswith(", capture.pcap, frame 118, 10.0.0.4:51234 → 10.0.0.2:1883 (dev1) (and 1 more)")
    assert "<details><summary><b>OPS212</b>" in written("markdown", [note], verbose=True)


def test_the_end_is_said() -> None:
    assert written("markdown", []) == "### mqttscope: no findings\n\n* no findings by 3 rules\n"
    assert written("markdown", [], idle()) == f"### mqttscope: nothing to judge\n\n* {safe(NOTHING)}\n"
    assert written("markdown", [], summary()).count("\n* ") == 6


def test_the_page_is_never_too_long() -> None:
    long = replace(MADE, message="*" * 900)
    text = written("markdown", [replace(long, rule=f"ABC1{n:02}") for n in range(99) for _ in range(MAX_SHOWN)])

    assert len(text.encode()) <= MAX_BYTES + 100
    assert re.search(r"Details of \d+ rules are left out\.", text)


def test_hostile_text_means_nothing() -> None:
    page = rendered(written("markdown", [*many(), HOSTILE], summary()))

    assert "<b onclick" not in page
    assert "evil.example" in page
    assert "<a " not in page
    assert "<code>code</code>" not in page
    assert "<h1>" not in page
    text = written("markdown", [HOSTILE])
    assert not re.search(r"(?<![\w&])[@#]\w", text.replace("###", ""))
    assert all(line.isprintable() for line in text.split("\n"))


def test_safe_text_is_shown_as_it_is() -> None:
    plain = "".join(char for char in HOSTILE_TEXT if char.isascii() and char.isprintable()).strip()
    page = rendered(f"x {safe(plain)}").strip()

    assert html.unescape(page.removeprefix("<p>x ").removesuffix("</p>")) == plain
    assert safe("- x") == "&#45; x"
    assert safe("10.0.0.4:51234") == "10.0.0.4:51234"
    assert safe("http://a :smile: www.b") == "http&#58;//a &#58;smile: www&#46;b"

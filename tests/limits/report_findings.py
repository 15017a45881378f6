"""Inputs at the limits of the package report.findings."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

from mqttscope.lint.catalogue import all_statements
from mqttscope.lint.finding import Finding, Severity
from mqttscope.lint.gate import BaselineEntry
from mqttscope.lint.quality import QualityLevel, Shortfall
from mqttscope.report.base import View
from mqttscope.report.findings import base
from mqttscope.report.style import Painter
from tests.limits.report import filled, more, notes
from tests.report.findings.samples import AT_THE_END, MADE, clean, summary, written
from tests.report.findings.test_full import publish, shown, shown_ranked
from tests.report.findings.test_junit import failed, parsed
from tests.report.html.reader import documents

PAINTER = Painter(View(width=0))


def flow(client: str) -> str:
    """A client in the flow of a finding."""
    return base.flow(replace(MADE, client_identifier=client), PAINTER).partition("(")[2].rstrip(")")


def message(text: str) -> str:
    """A message."""
    return base.message(replace(MADE, message=text), PAINTER)


def idle(count: int) -> tuple[str, str, list[str]]:
    """The fifth capture and notes on further ones: without packets, with too few, and not good enough."""
    names = [f"{at}.pcap" for at in range(count)]
    shortfalls = base.shortfall_sentences(QualityLevel.COMPLETE, [Shortfall(name, ("a",)) for name in names])
    few = base.too_little(dict.fromkeys(names, 2), 3, alone=False)
    return base.no_packet_in(names).partition("3.pcap")[2], few.partition("3.pcap has 2")[2], shortfalls[4:]


def lists(count: int) -> list[str]:
    """Notes on rules without evidence and on fixed findings."""
    fixed = BaselineEntry("f" * 32, "CON212", "", "", "", "", "")
    withheld = Counter({f"ABC1{at:02}": 1 for at in range(count)})
    texts = [text for text, _ in base.sentences(summary(withheld=withheld, fixed=[fixed] * count))]
    return re.findall(r", (\d+ more)", " ".join(texts))


def sentence(words: int) -> tuple[int, str]:
    """Number of lines of a sentence with a word on each, and the last line."""
    return filled(base.lines(clean(nothing=" ".join(["x" * 15] * words), packets=0), Painter(View(width=20))))


# full


def last_row(end: int) -> str:
    """The last row that is shown around a field which ends at some byte."""
    dump = shown(publish(bytes(5_000), "payload", 3_990, end - 3_990))[1]
    return [line.split()[0] for line in dump if re.match("  0...  ", line)][-1]


def marked(length: int) -> tuple[int, str]:
    """Bytes of a field that have carets, and what stands beside them."""
    dump = "\n".join(shown(publish(bytes(5_000), "payload", 10, length))[1])
    return sum((len(carets) + 1) // 3 for carets in re.findall(r"\^+", dump)), re.findall("payload.*", dump)[0]


def held(*sizes: int) -> tuple[int, int]:
    """Lines that begin a warning, of warnings with packets of these sizes, and those that speak of the limit."""
    warning = replace(AT_THE_END, severity=Severity.WARNING)
    lines = shown_ranked(*(replace(warning, raw=bytes(size)) for size in sizes))
    return sum(line.startswith("warning[") for line in lines), sum(line.startswith("limit: ") for line in lines)


# html, junit, markdown, shown


def clients(count: int) -> list[Finding]:
    """Findings of as many clients."""
    return [replace(MADE, client_identifier=f"dev{at}") for at in range(count)]


def page(count: int) -> tuple[int, list[str]]:
    """Findings that a page lists."""
    markup = written("html", clients(count), every=True)
    return len(documents(markup.encode())), notes(markup)


def clients_of_page(count: int) -> tuple[str, bool]:
    """Clients of the rule, and whether some are others."""
    markup = written("html", clients(count), every=True)
    return re.findall('<td class="number">(.*?)</td>', markup)[2], "(other clients)" in markup


def case_findings(count: int) -> tuple[int, list[str]]:
    """Findings that a case lists."""
    text = failed(parsed([MADE] * count))[2]
    return text.count("frame 118"), more(text)


def markdown(*findings: Finding, **options: Any) -> tuple[int, int, list[str]]:
    """Findings and statements that are shown, and the notes on others."""
    text = written("markdown", findings, every=True, **options)
    return text.count("\n* Password"), text.count("\n> **"), [line for line in text.splitlines() if "more" in line]


def with_statements(count: int) -> Finding:
    """A finding that breaks as many."""
    return replace(MADE, statements=tuple(all_statements())[:count])


def details(size: int) -> tuple[bool, bool]:
    """Whether a page of as many bytes has details, and whether it says that it has none."""
    short = len(written("markdown", [replace(MADE, message="x")]).encode())
    text = written("markdown", [replace(MADE, message="x" * (size - short))])
    return "<details>" in text, "Details of 1 rule is left out." in text


def clients_in_table(count: int) -> str:
    """Number of clients in the table of rules."""
    text = written("markdown", clients(count), every=True)
    return text.split("| CON212 ")[1].split("|")[4].strip()

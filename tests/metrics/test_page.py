"""The document of facts, and the page: secrets, size, hostile text."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from mqttscope.explain import Cause
from mqttscope.metrics.monitor import LiveMonitor
from mqttscope.metrics.page import MAX_FINDING_ROWS, facts_document, live_page
from mqttscope.mqtt import Publish
from tests.metrics.test_facts import ended
from tests.report.driven import tab
from tests.report.findings.samples import MADE
from tests.report.make import START_NS, Talk

SECOND = 1_000_000_000
SECRET = "password=hunter2hunter2"
HOSTILE = "</script><script>alert(1)</script>\u202e\x1b[31m\x00\udc80"


def document(monitor: LiveMonitor) -> dict[str, Any]:
    """The document as the script of the page reads it."""
    facts: dict[str, Any] = json.loads(facts_document(monitor))
    return facts


def busy(clients: int, suffix: str = "") -> LiveMonitor:
    """A monitor after an hour of clients in trouble."""
    monitor = LiveMonitor("lo")
    monitor.pass_time(START_NS)
    for number in range(clients):
        name = f"c{number}{suffix}"
        talk = Talk(number=number, identifier=name)
        monitor.facts.feed(talk.opened())
        monitor.facts.feed(talk.say(Publish(topic_name=f"t/{name}", payload=b"1")))
        monitor.facts.end(ended(name, Cause.KEEP_ALIVE, number, START_NS + number))
        monitor.finding(replace(MADE, rule=f"X{number:05}", message=f"of {name}", client_identifier=name))
    for second in range(3_600):
        monitor.pass_time(START_NS + second * SECOND)
    return monitor


def test_what_the_page_shows() -> None:
    facts = document(busy(2))

    assert [(row["client"], row["cause"], row["count"]) for row in facts["troubles"]] == [
        ("c1", "Keep Alive ran out", 1), ("c0", "Keep Alive ran out", 1),
    ]  # fmt: skip
    assert [row["rule"] for row in facts["findings"]] == ["X00001", "X00000"]
    assert facts["severities"] == {"error": 2, "warning": 0, "info": 0}
    assert facts["ends"] == [{"title": "Keep Alive ran out", "count": 2}]
    assert {row["name"] for row in facts["topics"]} == {"t/c0", "t/c1"}
    history = facts["history"]
    assert sum(history["packets"]) == facts["packets"] == 2
    assert {len(column) for column in history.values() if isinstance(column, list)} == {225}
    assert history["interval_ns"] == 16 * SECOND


def test_no_secret_is_in_the_document() -> None:
    monitor = busy(3, f" {SECRET}")
    monitor.facts.errors = [f"cannot read http://u:{SECRET}@h/"]
    text = facts_document(monitor)

    assert b"hunter2" not in text
    assert b"***" in text


def test_hostile_text_is_escaped_in_the_document_and_never_markup_in_the_page() -> None:
    text = facts_document(busy(1, HOSTILE)).decode()
    assert not any(character in text for character in "\u202e\x1b\x00\udc80")
    script = live_page()[0].decode().rpartition("<script>")[2]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval|Function\(", script)


def test_the_size_of_the_document_has_a_limit() -> None:
    long = "n" * 5_000
    assert len(facts_document(busy(600, long))) < 200_000
    assert len(document(busy(60))["findings"]) == MAX_FINDING_ROWS


def test_the_most_severe_findings_are_shown_first() -> None:
    monitor = busy(1)
    for number in range(MAX_FINDING_ROWS + 1):
        monitor.finding(replace(MADE, rule=f"Y{number:05}", severity=type(MADE.severity).INFO))
    assert document(monitor)["findings"][0]["rule"] == "X00000"


def test_the_page_runs_its_own_script_alone() -> None:
    page, policy = live_page()
    for tag, kind in (("script", "script-src"), ("style", "style-src")):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", page.decode(), re.DOTALL)
        digest = b64encode(sha256(content.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy
    assert "connect-src 'self'" in policy
    assert not re.search(rb"https?://(?!www\.w3\.org/2000/svg)", page)


@pytest.mark.long
def test_a_browser_shows_hostile_names_as_text_on_a_telephone_and_on_a_wall(tmp_path: Path) -> None:
    from tests.metrics.readers import served  # needs prometheus-client

    with served(busy(9, HOSTILE)) as server, tab(tmp_path) as page:
        for width in (390, 1_280, 1_920):
            page.call(
                "Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=width < 500
            )
            address = f"http://127.0.0.1:{server.addresses[0][1]}/"
            page.call("Page.navigate", url=address)
            page.wait("document.querySelectorAll('article').length == 9", 20)
            assert page.value("document.scripts.length") == 1
            assert "<script>alert(1)</script>" in page.value("document.querySelector('article h3').textContent")
            assert page.value("document.documentElement.scrollWidth <= innerWidth")
            assert page.value("document.querySelectorAll('#history svg').length") == 6
        assert {url.removeprefix(address) for url in page.requests} == {"", "facts.json"}
        server.close()
        page.wait("!document.getElementById('state').hidden", 20)
        assert page.value("document.getElementById('state').textContent").startswith("No answer for ")

"""The page that runs mqttscope in a browser: the reports of the command, from a file that stays where it is."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests import tools
from tests.cli.running import capture
from tests.conftest import ROOT
from tests.report.driven import Tab, tab

pytestmark = pytest.mark.long
CAPTURES = ("v5-qos", "broker-restarts", "deviations-rabbitmq", "example-length-repaired", "websocket-split")
TEXT, REPORT, MESSAGES, STATE = (
    f"document.getElementById('{name}')" for name in ("text", "report", "messages", "state")
)
READING = {"COLUMNS": "100", "NO_COLOR": "1"}


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Requests are not shown."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the page, from a server of this machine."""
    tools.program("npm")
    folder = tmp_path_factory.mktemp("page") / "page"
    done = subprocess.run(
        [sys.executable, ROOT / ".ci" / "make_browser_page.py", folder], capture_output=True, text=True, check=False
    )
    if done.returncode:
        tools.missing(done.stderr.strip())
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def page(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with tab(tmp_path_factory.mktemp("profile")) as actual_page:
        actual_page.call("Page.navigate", url=f"{address}index.html")
        actual_page.wait("document.body && document.body.dataset.ready")
        yield actual_page


def command(folder: Path, *words: str) -> str:
    """Standard output of the command in a folder."""
    done = subprocess.run(
        [sys.executable, "-m", "mqttscope", *words],
        cwd=folder,
        env=os.environ | READING,
        capture_output=True,
        check=False,
    )
    return done.stdout.decode()


def opened(page: Tab, path: Path) -> str:
    """Choose a capture; the text of the first look."""
    page.value("document.body.dataset.shown = ''")
    page.choose("#file", path)
    page.wait("document.body.dataset.shown == 'triage'")
    return str(page.value(f"{TEXT}.textContent"))


def report(page: Tab, name: str) -> None:
    """Choose a report, and wait for it."""
    page.value(f"document.querySelector('[data-report={name}]').click()")
    page.wait(f"document.body.dataset.shown == '{name}'")


@pytest.mark.parametrize("name", CAPTURES)
def test_reports_are_those_of_the_command(name: str, page: Tab, tmp_path: Path) -> None:
    path = capture(name)
    folder = path.parent

    assert opened(page, path) == command(folder, "triage", path.name)
    for words in (("explain",), ("lint", "--no-config")):
        report(page, words[0])
        target = tmp_path / "report.html"
        command(folder, *words, path.name, "--format", "html", "--output", str(target))
        assert page.value(f"{REPORT}.srcdoc") == target.read_text()
    report(page, "packets")
    assert page.value(f"{TEXT}.textContent") == command(folder, "inspect", path.name, "--limit", "2000")


def test_packets_are_filtered_and_mistakes_are_shown(page: Tab) -> None:
    path = capture("v5-qos")
    opened(page, path)
    report(page, "packets")
    for expression in ("type == publish", "type =="):
        page.value(f"document.body.dataset.shown = ''; document.getElementById('expression').value = '{expression}'")
        page.value("document.getElementById('filter').requestSubmit()")
        page.wait("document.body.dataset.shown == 'packets'")
        expected = command(path.parent, "inspect", path.name, "--limit", "2000", "--filter", expression)
        assert page.value(f"{TEXT}.textContent") == expected
    assert "--filter" in page.value(f"{MESSAGES}.textContent")
    page.value("document.getElementById('expression').value = ''")


def test_files_with_other_contents_and_hostile_names(page: Tab, tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("no capture")
    opened(page, other)
    assert "is not a capture file" in page.value(f"{MESSAGES}.textContent")

    hostile = tmp_path / "--help<img src=x onerror=alert(1)>'.pcapng"
    hostile.write_bytes(capture("v5-qos").read_bytes())
    assert "--help<img" in opened(page, hostile)
    assert page.value("document.querySelectorAll('img').length") == 0


def test_a_report_can_be_cancelled(page: Tab) -> None:
    opened(page, capture("v5-qos"))
    page.value("document.querySelector('[data-report=explain]').click(); document.getElementById('cancel').click()")
    assert page.value(f"{STATE}.textContent") == "Cancelled. Choose a report again."
    report(page, "explain")
    assert page.value(f"{REPORT}.srcdoc.length") > 1_000


def test_the_page_asks_for_its_own_files_alone(page: Tab, address: str) -> None:
    opened(page, capture("v5-qos"))
    assert page.requests
    assert all(request.startswith((address, "blob:", "about:", "data:")) for request in page.requests)
    denied = "fetch('https://example.com/').then(() => 'sent', () => 'denied')"
    assert page.value(denied) == "denied"
    other_port = f"fetch('{address[:-1].rsplit(':', 1)[0]}:1/').then(() => 'sent', (error) => String(error))"
    assert "TypeError" in page.value(other_port)

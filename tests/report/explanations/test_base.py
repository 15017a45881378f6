"""Formats by name, and the end of reports."""

from __future__ import annotations

from collections import Counter

import pytest

from mqttscope.explain.model import Cause, Totals
from mqttscope.report.base import View
from mqttscope.report.explanations.base import FORMATS, make_reporter, verdict
from tests.report.explanations.samples import Pages, report


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_writes_every_capture_with_trouble(form: str) -> None:
    for name in ("broker-restarts", "refused-connects", "half-open", "session-taken-over"):
        assert report(form, name)


@pytest.mark.parametrize("form", FORMATS)
def test_a_run_without_connections_says_so(form: str) -> None:
    pages = Pages()
    make_reporter(form, pages, View(width=0)).close(Totals())

    assert pages.text


def test_the_end_in_sentences() -> None:
    trouble = Totals(5, 2, 1, 1, {"keep_alive": 1}, {"clients": 3})

    assert verdict(None, Counter(), "") == []
    assert verdict(Totals(), Counter(), "") == ["No MQTT connection to explain."]
    assert verdict(Totals(3, 2, 1), Counter(), "") == [
        (
            "No connection ended in trouble: 2 connections ended with DISCONNECT; 1 connection is still open where the"
            " capture ends."
        ),
        "To see why a message did not arrive, add --message TOPIC.",
    ]
    assert verdict(Totals(3, 3, empty=2), Counter(), "")[0] == (
        "No connection ended in trouble: 1 connection ended with DISCONNECT; 2 connections ended without MQTT from"
        " either side."
    )
    remarked = Totals(4, 1, unreadable=3, remarks=["heuristic: it leaves."])
    assert verdict(remarked, Counter(), "")[:2] == [
        (
            "No connection is known to have ended in trouble: 1 connection ended with DISCONNECT; 3 TLS connections"
            " could not be read."
        ),
        "heuristic: it leaves.",
    ]
    assert verdict(trouble, Counter({Cause.KEEP_ALIVE: 1}), "") == [
        "1 connection of 5 ended in trouble: 1 × Keep Alive ran out.",
        (
            "Of the others 2 connections ended with DISCONNECT; 1 connection is still open where the capture ends; 1"
            " TLS connection could not be read."
        ),
        "limit: no room for more clients; 3 were dropped, so evidence may be missing",
    ]
    assert verdict(trouble, Counter(), "client x")[0] == "Nothing to explain: client x."

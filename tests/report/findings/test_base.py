"""What the formats share: words for places and statements."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from mqttscope.lint.finding import Confidence, Severity
from mqttscope.report.base import View
from mqttscope.report.findings.base import MAX_MESSAGE, cited, counted, flow, message, place
from mqttscope.report.style import Painter
from tests.report.findings.samples import AT_THE_END, MADE, clean, summary

PAINTER = Painter(View(width=0))
ASCII = Painter(View(width=0, unicode=False))


def test_a_place_names_capture_frame_and_flow() -> None:
    assert place(MADE, PAINTER) == "capture.pcap: frame 118, 10.0.0.4:51234 → 10.0.0.2:1883 (dev1)"


def test_the_arrow_leaves_the_one_to_blame() -> None:
    by_server = replace(MADE, direction="server_to_client", client_identifier=None)

    assert flow(by_server, PAINTER) == "10.0.0.4:51234 ← 10.0.0.2:1883"
    assert flow(by_server, ASCII) == "10.0.0.4:51234 <- 10.0.0.2:1883"
    assert flow(AT_THE_END, PAINTER) == "10.0.0.4:51234 – 10.0.0.2:1883 (dev1)"


def test_statements_name_their_version_once() -> None:
    assert cited(replace(MADE, statements=("5.0 MQTT-1.5.4-1", "5.0 V5-X", "3.1 Y"))) == "5.0 MQTT-1.5.4-1, V5-X, 3.1 Y"
    assert cited(replace(MADE, statements=())) == ""


def test_counts_in_words() -> None:
    assert counted(Counter({Severity.ERROR: 1, Severity.INFO: 2})) == "1 error, 2 notes"
    assert counted(Counter()) == "no findings"


def test_counts_say_how_many_make_the_run_fail() -> None:
    counts = Counter({Severity.ERROR: 3, Severity.WARNING: 1, Severity.INFO: 2})

    assert counted(counts, Counter({Severity.ERROR: 2})) == "3 errors (2 count), 1 warning, 2 notes"
    assert counted(counts, Counter()) == "3 errors (0 count), 1 warning, 2 notes"
    by_warning = counted(counts, Counter({Severity.ERROR: 3, Severity.WARNING: 1}), Severity.WARNING)
    assert by_warning == "3 errors (3 count), 1 warning (1 counts), 2 notes"
    assert counted(Counter(), Counter()) == "no findings"


def test_a_message_as_long_as_a_topic_is_elided() -> None:
    assert len(message(replace(MADE, message="x" * 65_000), PAINTER)) == MAX_MESSAGE


def test_what_makes_a_run_fail() -> None:
    end = clean()

    assert end.breaks(Severity.ERROR, Confidence.CERTAIN)
    assert not end.breaks(Severity.ERROR, Confidence.LIKELY)
    assert not end.breaks(Severity.WARNING, Confidence.CERTAIN)
    end.fail_on, end.fail_confidence = Severity.INFO, Confidence.HEURISTIC
    assert end.breaks(Severity.INFO, Confidence.HEURISTIC)
    assert not end.failed
    end.nothing = "nothing to judge"
    assert end.failed
    end.nothing = ""
    assert not end.failed
    assert summary().failed

"""The last lines of a report."""

from __future__ import annotations

from collections import Counter

from mqttscope.lint.finding import Severity
from mqttscope.lint.gate import Entry
from mqttscope.lint.quality import Quality
from mqttscope.report.base import View
from mqttscope.report.findings.ending import lines, sentences
from mqttscope.report.style import Painter
from tests.report.findings.samples import clean, summary


def test_everything_is_said() -> None:
    told = [one for one, _ in sentences(summary())]

    assert told[0].split("; ") == [
        "2 errors, 1 warning, 3 notes by 3 rules",
        "5 suppressed (4 by the baseline, 1 by the configuration)",
        "profile Example broker",
    ]
    assert told[1:] == [
        "7 possible findings not shown: the capture lacks what they need: CON212 (5), PUB209 (2)",
        "quality of the capture: 1 connection joined after the CONNECT; 700 bytes lost; 1 capture not read to the end",
        "fixed since the baseline: CON212 dev\x1b (--update-baseline takes it out)",
        "rules that failed, so that findings may be missing: ENC101",
        "a capture could not be read to its end: findings may be missing",
    ]


def test_a_clean_run_is_one_line() -> None:
    assert lines(clean(), Painter(View(width=0))) == ["no findings by 3 rules"]


def test_nothing_to_judge_takes_the_place_of_no_findings() -> None:
    end = clean()
    end.nothing, end.packets = "nothing to judge: no MQTT packet in what was read", 0

    assert lines(end, Painter(View(width=0))) == [end.nothing]


def test_too_little_is_said_beside_what_was_found() -> None:
    end = clean()
    end.nothing, end.packets, end.counts = "too little to judge", 5, Counter({Severity.ERROR: 1})

    assert lines(end, Painter(View(width=0))) == ["too little to judge", "1 error by 3 rules"]


def test_where_nothing_could_be_read_only_standard_error_speaks() -> None:
    end = clean()
    end.truncated, end.packets, end.quality = True, 0, Quality(errors=["gone.pcap"])

    assert lines(end, Painter(View(width=0))) == []
    assert sentences(end) == [("nothing could be read: gone.pcap", "error")]


def test_what_is_hidden_is_counted() -> None:
    end = clean()
    end.counts = end.hidden = Counter({Severity.INFO: 4})
    assert lines(end, Painter(View(width=0))) == ["4 notes by 3 rules; 4 not shown (--min-severity)"]

    end.failing, end.fail_on, end.hidden_failing = Counter({Severity.INFO: 4}), Severity.INFO, 4
    assert lines(end, Painter(View(width=0))) == [
        "4 notes (4 count) by 3 rules; 4 not shown (--min-severity, of which 4 count)"
    ]


def test_long_lists_are_counted() -> None:
    entry = Entry("f" * 32, "CON212", "", "", "", "", "")
    told = sentences(summary(withheld=Counter({f"ABC1{n:02}": 1 for n in range(13)}), fixed=[entry] * 12))

    assert told[1][0].endswith("ABC109 (1), 3 more")
    assert "CON212, 2 more (" in told[3][0]


def test_lines_are_safe_and_fit() -> None:
    for width in (40, 80):
        for line in lines(summary(), Painter(View(width=width))):
            assert line.isprintable()
            assert len(line) <= width

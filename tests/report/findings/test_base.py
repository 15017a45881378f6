"""What the formats share: words for places and statements, and the last lines of a report."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.quality import QualityLevel, Shortfall
from mqttscope.lint.rule import Timing
from mqttscope.report.base import View
from mqttscope.report.findings import base
from mqttscope.report.findings.base import RunSummary
from mqttscope.report.style import Painter
from tests.each import each
from tests.report.findings.samples import AT_THE_END, MADE, NOTHING, clean, idle, summary, unreadable

PAINTER = Painter(View(width=0))
ASCII = Painter(View(width=0, unicode=False))


def test_a_place_names_capture_frame_and_flow_and_the_arrow_leaves_the_one_to_blame() -> None:
    by_server = replace(MADE, direction="server_to_client", client_identifier=None)

    assert base.place(MADE, PAINTER) == "capture.pcap: frame 118, 10.0.0.4:51234 → 10.0.0.2:1883 (dev1)"
    assert base.flow(by_server, PAINTER) == "10.0.0.4:51234 ← 10.0.0.2:1883"
    assert base.flow(by_server, ASCII) == "10.0.0.4:51234 <- 10.0.0.2:1883"
    assert base.flow(AT_THE_END, PAINTER) == "10.0.0.4:51234 – 10.0.0.2:1883 (dev1)"


def test_statements_name_their_version_once() -> None:
    several = replace(MADE, statements=("5.0 MQTT-1.5.4-1", "5.0 V5-X", "3.1 Y"))
    assert base.cited(several) == "5.0 MQTT-1.5.4-1, V5-X, 3.1 Y"
    assert base.cited(replace(MADE, statements=("5.0 A", "sparkplug 3.0 tck-id-b"))) == "5.0 A, sparkplug 3.0 tck-id-b"
    assert base.cited(replace(MADE, statements=())) == ""


def test_counts_in_words_say_how_many_make_the_run_fail() -> None:
    counts = Counter({Severity.ERROR: 3, Severity.WARNING: 1, Severity.INFO: 2})

    assert base.counted(Counter({Severity.ERROR: 1, Severity.INFO: 2})) == "1 error, 2 notes"
    assert base.counted(counts, Counter({Severity.ERROR: 2})) == "3 errors (2 fail the run), 1 warning, 2 notes"
    assert base.counted(counts, Counter()) == "3 errors (0 fail the run), 1 warning, 2 notes"
    by_warning = base.counted(counts, Counter({Severity.ERROR: 3, Severity.WARNING: 1}), Severity.WARNING)
    assert by_warning == "3 errors (3 fail the run), 1 warning (1 fails the run), 2 notes"
    assert base.counted(Counter()) == base.counted(Counter(), Counter()) == "no findings"


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


def test_everything_is_said() -> None:
    texts = [text for text, _ in base.sentences(summary())]

    assert texts[0].split("; ") == [
        "2 errors, 1 warning, 3 notes by 3 rules",
        "5 suppressed (4 by the baseline, 1 by the configuration)",
        "profile Example broker",
    ]
    assert texts[1:] == [
        "7 possible findings not shown: the capture lacks what they need: CON212 (5), PUB209 (2)",
        "quality of the capture: 1 connection joined after the CONNECT; 700 bytes lost; 1 capture not read to the end",
        "fixed since the baseline: CON212 dev\x1b (--update-baseline removes it)",
        "rules that failed, so that findings may be missing: ENC101",
        "a capture could not be read to its end: findings may be missing",
    ]


ERROR, NOTES = Counter({Severity.ERROR: 1}), Counter({Severity.INFO: 4})
ONE, MANY = "1 rule about missing packets judged nothing", "12 rules about missing packets judged nothing"
SHORT = "no connection lasts as long as"
HINT, TEN = " (--timing test shortens them)", ", ".join(f"ACK{number}" for number in range(500, 510))
HIDDEN = clean(counts=NOTES, hidden=NOTES)
COUNTING = clean(counts=NOTES, hidden=NOTES, failing=NOTES, fail_on=Severity.INFO, hidden_failing=4)


@each(
    "end, expected",
    [
        (clean(), ["no findings by 3 rules"]),
        (idle(), [NOTHING]),
        (clean(nothing="too little to judge", packets=5, counts=ERROR), ["too little to judge", "1 error by 3 rules"]),
        (HIDDEN, ["4 notes by 3 rules; 4 not shown (--min-severity)"]),
        (COUNTING, ["4 notes (4 fail the run) by 3 rules; 4 not shown (--min-severity, 4 of them fail the run)"]),
        (unreadable(), []),
        (
            clean(pending=Counter(ACK515=2)),
            ["no findings by 3 rules", f"{ONE} (ACK515): {SHORT} its time-out{HINT}"],
        ),
        (
            clean(pending=Counter({f"ACK{number}": 1 for number in range(500, 512)}), timing=Timing.TEST),
            ["no findings by 3 rules; timing test", f"{MANY} ({TEN}, 2 more): {SHORT} their time-outs"],
        ),
    ],
)
def test_the_last_lines(end: RunSummary, expected: list[str]) -> None:
    assert base.lines(end, PAINTER) == expected


def test_where_nothing_could_be_read_only_standard_error_speaks() -> None:
    assert base.sentences(unreadable()) == [("nothing could be read: gone.pcap", "error")]


def test_captures_that_are_not_good_enough_are_errors_of_the_run() -> None:
    end = clean()
    assert not end.failed
    end.required_quality = QualityLevel.COMPLETE
    assert not end.failed
    end.shortfalls = [Shortfall("x.pcap", ("a", "b"))]
    assert end.failed
    assert base.sentences(end)[1:] == [("x.pcap is not complete: a; b", "error")]


def test_too_few_packets_are_told_by_capture() -> None:
    assert base.too_little({}, 3, alone=False) == ""
    assert base.too_little({"a": 0}, 1, alone=True) == base.no_packet_in(["a"])
    assert base.too_little({"a": 1}, 3, alone=True) == "too little to judge: 1 MQTT packet, 3 are required"
    several = "too little to judge: 3 MQTT packets are required of each capture, a has 1"
    assert base.too_little({"a": 1}, 3, alone=False) == several


def test_lines_are_safe_and_fit() -> None:
    for width in (40, 80):
        for line in base.lines(summary(), Painter(View(width=width))):
            assert line.isprintable()
            assert len(line) <= width

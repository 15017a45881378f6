"""Findings in full."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqttscope.lint.finding import Confidence, Related
from tests.report.findings.samples import AT_THE_END, HOSTILE, IN_BASELINE, MADE, SECRET, many, real, summary, written
from tests.report.test_harmless import ANSI, check


def test_a_finding_in_full() -> None:
    related = (Related("the first CONNECT", 2, 30, MADE.timestamp_ns - 20_000_000),)
    text = written("full", [replace(MADE, related=related, confidence=Confidence.LIKELY)], width=100)

    assert text.splitlines() == [
        "error[CON212]: Password without User Name  (second-connect)",
        "  capture.pcap: frame 118, 10.0.0.4:51234 → 10.0.0.2:1883 (dev1)",
        "  03:04:05.000000 #3 dev1   → CONNECT    3.1.1, clean session, keep alive 60 s, password (14 bytes)",
        "  0000  10 20 00 04 4d 51 54 54 04 42 00 3c 00 04 64 65  . ..MQTT.B.<..de",
        "  0010  76 31 00 0e ** ** ** ** ** ** ** ** ** ** ** **  v1..************",
        "              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ password",
        "  0020  ** **                                            **",
        "        ^^^^^",
        "  see the first CONNECT: frame 30, packet 2, 20.0 ms before",
        "  breaks 3.1.1 MQTT-3.1.2-22 (section 3.1.2.9): User Name Flag 0: Password Flag is 0 too.",
        "  likely: it holds unless something happened that the capture does not show",
        "  Instead, open a new TCP connection for another CONNECT.",
        "",
        "no findings by 3 rules",
    ]


def test_advice_is_given_once_per_rule() -> None:
    assert written("full", [MADE, MADE, *real("PUB209")]).count("  Instead, ") == 2


def test_the_reason_code_of_5_0_is_named() -> None:
    assert "  reason code 0x9B QoS not supported\n" in written("full", real("PUB209"))


def test_a_finding_about_the_end_of_a_connection_has_no_bytes() -> None:
    lines = written("full", [AT_THE_END]).splitlines()

    assert lines[0].startswith("error[CON212]: no answer came")
    assert lines[2].startswith("  breaks ")


def test_suppressed_findings_are_not_shown() -> None:
    assert written("full", [(MADE, IN_BASELINE)]) == "no findings by 3 rules\n"


def test_passwords_are_hidden_unless_asked_for() -> None:
    assert SECRET.decode() not in written("full", [MADE]).replace("\n", "")
    assert "hunter2" in written("full", [MADE], show_secrets=True)


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("unicode", [False, True])
@pytest.mark.parametrize("width", [0, 40, 60, 80, 200])
def test_lines_fit_and_are_harmless(width: int, unicode: bool, colour: bool) -> None:
    text = written("full", many(), summary(), width=width, unicode=unicode, colour=colour)

    check(text.split("\n"), width, unicode=unicode)


def test_colour_changes_nothing_but_colour() -> None:
    plain = written("full", many(), summary(), width=80)

    assert ANSI.sub("", written("full", many(), summary(), width=80, colour=True)) == plain


def test_a_hostile_finding_ends_in_a_few_lines() -> None:
    assert len(written("full", [HOSTILE], width=80).splitlines()) < 60

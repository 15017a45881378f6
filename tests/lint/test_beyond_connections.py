"""Rules that look beyond one connection, where captures are several, many, or end too early."""

from __future__ import annotations

from dataclasses import replace

from mqttscope.dissect import dissect_segments
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import closes, on, opened, segments
from mqttscope.lint.finding import Confidence, Finding, Severity
from mqttscope.lint.rule import Rule
from mqttscope.mqtt.properties import Properties
from mqttscope.net.frame import CaptureDrops
from mqttscope.net.segment import Segment
from tests.each import each
from tests.lint.lint_help import lint, linted

SESSIONS = ("PUB311", "ACK311", "ACK312", "ACK313", "ACK314", "ALS305", *(f"SES30{digit}" for digit in range(3, 8)))
SERVERS = (
    *("RET405", "RET406", "RET407", "RET408", "RET409", "RET410", "RET411", "DLV416"),
    *("WIL404", "WIL405", "WIL406", "WIL407", "WIL408", "CON426", "CON432"),
)
RULES = {code: all_rules()[code] for code in (*SESSIONS, *SERVERS)}


@each("rule", RULES.values(), ids=RULES)
def test_nothing_is_an_error_that_rests_on_another_capture(rule: type[Rule]) -> None:
    """Each connection in a file of its own: they may be of different servers with one address."""
    for example in rule.bad:
        captured = [replace(segment, capture=_file(segment)) for segment in segments(example)]
        if len({_file(segment) for segment in captured}) == 1:
            assert rule.code == "PUB311", "it looks at one connection as well"
            continue

        for finding in lint([rule()], captured):
            assert finding.severity is not Severity.ERROR, example.title


def _file(segment: Segment) -> str:
    """A name that both directions of a connection have in common: the port of its client."""
    ports = {int.from_bytes(segment.key[place : place + 2], "big") for place in range(len(segment.key) - 1)}
    return f"{max(ports & set(range(51_234, 51_240)))}.pcap"


@each("rule", RULES.values(), ids=RULES)
def test_nothing_is_found_twice_where_a_capture_is_read_twice(rule: type[Rule]) -> None:
    """Time runs backwards between them, so that nothing of the first holds in the second."""
    good = rule.good[0]
    first = segments(good)
    second = [replace(segment, frame=segment.frame + len(first)) for segment in segments(good)]

    assert lint([rule()], [*first, *second]) == []


@each("rule", RULES.values(), ids=RULES)
def test_nothing_is_found_where_a_good_capture_ends_anywhere(rule: type[Rule]) -> None:
    for example in rule.good:
        captured = segments(example)
        for length in range(0, len(captured), 3):
            assert lint([rule()], captured[:length]) == [], example.title


def judged(rule: type[Rule], captured: list[Segment], *, dropped: bool = False) -> list[Finding]:
    """What is found where the user says that the captures hold every connection of the server."""
    linter = Linter([rule()], strict=True, complete=frozenset({"10.0.0.2:1883"}))
    if dropped:
        linter.feed(CaptureDrops("example", 0, 10, 3))
    return [finding for event in dissect_segments(captured) for finding in linter.feed(event)]


@each("rule", RULES.values(), ids=RULES)
def test_what_is_likely_is_certain_where_every_connection_was_captured(rule: type[Rule]) -> None:
    for example in rule.bad:
        before, after = lint([rule()], segments(example)), judged(rule, segments(example))
        assert [finding.fingerprint for finding in before] == [finding.fingerprint for finding in after]
        for was, now in zip(before, after, strict=True):
            is_sure = was.confidence is not Confidence.HEURISTIC
            assert now.confidence is (Confidence.CERTAIN if is_sure else Confidence.HEURISTIC), example.title


def test_rules_that_are_likely_at_most_have_findings_that_become_certain() -> None:
    for rule in (rule_class for rule_class in RULES.values() if rule_class.confidence is Confidence.LIKELY):
        findings = [finding for bad in rule.bad for finding in judged(rule, segments(bad))]
        assert any(finding.confidence is Confidence.CERTAIN for finding in findings), rule.code


@each("rule", RULES.values(), ids=RULES)
def test_frames_that_were_dropped_belie_that_every_connection_was_captured(rule: type[Rule]) -> None:
    for example in rule.bad:
        for finding in judged(rule, segments(example), dropped=True):
            assert finding.confidence is Confidence.HEURISTIC


def test_other_servers_and_rules_of_one_connection_stay_as_they_are() -> None:
    elsewhere = [replace(conversation, server="10.0.0.3:1883") for conversation in RULES["SES307"].bad]
    narrow = all_rules()["ACK203"]

    assert {finding.confidence for bad in elsewhere for finding in judged(RULES["SES307"], segments(bad))} == {
        Confidence.LIKELY
    }
    for bad in narrow.bad:
        assert judged(narrow, segments(bad)) == lint([narrow()], segments(bad))


def test_the_linter_says_which_of_the_servers_it_has_met() -> None:
    linter = Linter([], complete=frozenset({"10.0.0.2:1883", "10.0.0.9:1883"}))
    for event in dissect_segments(segments(RULES["SES307"].bad[0])):
        linter.feed(event)

    assert linter.met == {"10.0.0.2:1883"}


def test_a_note_about_a_lost_session_is_never_more_than_a_guess() -> None:
    expiry = Properties(session_expiry_interval=3_600)
    again = on(1, *opened(clean_start=False, connect=expiry))
    (finding,) = linted(*opened(connect=expiry), closes("client"), *again, codes=["SES303"])

    assert (finding.severity, finding.confidence) == (Severity.INFO, Confidence.HEURISTIC)

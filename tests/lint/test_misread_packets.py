"""Sides that are read at wrong places: one finding for the fault, and none for what nobody sent."""

from __future__ import annotations

from mqttscope.dissect import dissect_segments
from mqttscope.events import MalformedEvent
from mqttscope.lint.catalogue import all_rules, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Confidence, Finding, Severity
from tests.each import each
from tests.lint.lint_help import linted, steps_of, talked

HEAD = '30 13 0003 612f62 "12345678901234"'
SHORT = f'30 13 0003 612f62 "1234" {HEAD}'
MIDDLE = '30 13 0003 612f62 "1234" 4002 0007 "5678901234"'
INSIDE = f'30 13 0003 612f62 "1234" {HEAD} "5678901234"'
JOINT = "opened 3.1.1; < publish x qos=1 id=7"


def errors(*lines: str) -> list[Finding]:
    """The errors of a conversation."""
    return [finding for finding in linted(*steps_of(*lines)) if finding.severity is Severity.ERROR]


@each(
    "sent, message",
    [
        (SHORT, "a PUBLISH of the client is shorter than it announces: after 11 of its 21 bytes a PUBLISH begins"),
        (f"{SHORT} {HEAD}", "a PUBLISH of the client is shorter than it announces"),
        (MIDDLE, "the client wrote a PUBACK into the middle of a PUBLISH, after 11 of its bytes"),
        (f"{HEAD} {MIDDLE} {HEAD}", "the client wrote a PUBACK into the middle of a PUBLISH"),
        (INSIDE, "the client wrote a PUBLISH into the middle of a PUBLISH, after 11 of its bytes"),
        ('30 13 0013 612f 30 13 0003 612f62 "1" 00 "2345678901234"', "after 6 of its 21 bytes a PUBLISH begins"),
    ],
)
@each("last", ["< fin; > fin", "> fin; < fin"])
def test_the_fault_stands_for_what_is_read_out_of_its_bytes(sent: str, message: str, last: str) -> None:
    (finding,) = errors(JOINT, f"> raw {sent}", last)

    assert message in finding.message
    assert (finding.rule, finding.confidence, finding.blamed) == ("ENC107", Confidence.CERTAIN, "client")


def test_faults_of_the_other_side_are_judged_as_ever() -> None:
    findings = errors(JOINT, f"> raw {SHORT} {HEAD}", "< raw 36 08 0003 612f62 0001 78", "< fin")

    assert {(finding.rule, finding.blamed) for finding in findings} == {("ENC107", "client"), ("PUB101", "server")}


@each("rest", ["ff ff", "36 09 0003 612f62 0001 7878"])
def test_bytes_that_no_reading_fills_are_judged_as_they_are(rest: str) -> None:
    findings = errors(JOINT, f"> raw {SHORT} {rest}", "< fin")

    assert not any("read at wrong places" in finding.message for finding in findings)
    assert findings


@each(
    "line",
    [
        f"> raw {HEAD} 36 08 0003 612f62 0001 78 {HEAD}",  # QoS 3
        f"> raw {HEAD} 60 02 0007 {HEAD}",  # flags of a PUBREL
        f"> raw {HEAD} 20 02 0000 {HEAD}",  # CONNACK of a client
        f"> raw {HEAD} 30 05 0003 610062 {HEAD}",
    ],
)
def test_a_fault_among_whole_packets_stays_certain(line: str) -> None:
    findings = errors(JOINT, line, "< fin")

    assert findings
    assert all(finding.confidence is Confidence.CERTAIN for finding in findings)
    assert not any("read at wrong places" in finding.message for finding in findings)


def test_what_comes_after_the_bytes_that_are_explained_is_likely() -> None:
    findings = errors(JOINT, f"> raw {SHORT} {HEAD}", f"> raw {HEAD} 30 05 0003 610062", "> fin")

    assert [finding.rule for finding in findings][:1] == ["ENC107"]
    assert {finding.confidence for finding in findings[1:]} <= {Confidence.LIKELY}


def test_a_wrong_length_is_a_finding_of_its_own_and_what_follows_none() -> None:
    wrong = f'30 0131 0003 612f62 "{300 * "D"}"'

    assert [finding.rule for finding in errors(JOINT, f"> raw {wrong} {HEAD}", "< fin")] == ["ENC107"]
    assert len(errors(JOINT, f"> raw {wrong} ff ff", "< fin")) > 1


def test_nothing_is_read_again_where_the_capture_lacks_bytes() -> None:
    lines = (JOINT, "lost > publish a", f"> raw {SHORT}", "< fin")

    assert not any("read at wrong places" in finding.message for finding in errors(*lines))


def test_the_place_is_kept_with_the_connection() -> None:
    linter = Linter([usual_rule(rule) for rule in all_rules().values()], strict=True)
    places = []
    for event in dissect_segments(talked(*steps_of(JOINT, f"> raw {SHORT} {HEAD}", "> pingreq"))):
        linter.feed(event)
        if isinstance(event, MalformedEvent) and event.connection.history is not None:
            places += [event.connection.history.client.misread, event.connection.history.server.misread]

    assert places == [71, -1]

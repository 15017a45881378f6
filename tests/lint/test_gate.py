"""The gate: what is wanted, what counts, what is shown, what is suppressed, and what is one finding of the run."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import date

import pytest

from mqttscope import filter as filters
from mqttscope.dissect import dissect_segments
from mqttscope.lint.catalogue import all_rules, usual_rule
from mqttscope.lint.examples import opened
from mqttscope.lint.finding import Confidence, Finding, Severity
from mqttscope.lint.gate import (
    IN_BASELINE,
    BaselineError,
    FindingBaseline,
    FindingSelection,
    Gate,
    GateVerdict,
    Pattern,
    Policy,
    Suppression,
    Suppressions,
    client_key,
)
from mqttscope.mqtt import Connect, Publish
from tests.dissect.talk import Talk
from tests.each import each
from tests.lint.lint_help import linted, qos_findings

CODES = frozenset({"PUB209"})


@pytest.mark.parametrize(
    ("pattern", "covered"),
    [
        (Pattern(CODES), True),
        (Pattern(frozenset({"PUB101"})), False),
        (Pattern(CODES, client="dev*"), True),
        (Pattern(CODES, client="dev"), False),
        (Pattern(CODES, topic="plant/#"), True),
        (Pattern(CODES, topic="plant/+"), False),
        (Pattern(CODES, client="dev1", topic="plant/+/temp"), True),
        (Pattern(CODES, client="dev2", topic="plant/+/temp"), False),
    ],
)
def test_rule_client_and_topic_have_to_fit(pattern: Pattern, covered: bool) -> None:
    assert pattern.covers(qos_findings("plant/1/temp")[0]) is covered


def test_the_last_day_still_counts() -> None:
    finding = qos_findings("a")[0]
    pattern = Pattern(CODES, reason="known", expires=date(2027, 3, 31))

    suppression = Suppressions([pattern], date(2027, 3, 31)).find(finding)
    assert suppression == Suppression("configuration", "known", "2027-03-31")

    late = Suppressions([pattern], date(2027, 4, 1))
    assert late.find(finding) is None
    assert late.expired() == [pattern]


def test_one_that_silenced_nothing_is_told() -> None:
    used, unused = Pattern(CODES), Pattern(CODES, client="nobody")
    suppressions = Suppressions([unused, used])
    suppressions.find(qos_findings("a")[0])

    assert suppressions.unused() == [unused]


def made(findings: list[Finding]) -> FindingBaseline:
    baseline = FindingBaseline()
    for finding in findings:
        baseline.add(finding)
    return FindingBaseline.loads(baseline.dumps())


@each(
    "expected, known",
    [
        (qos_findings("meter/18/power", "meter/9/power"), True),
        (qos_findings("meter/17/power", client_identifier="dev2"), False),
        (qos_findings("meter/17/voltage"), False),
    ],
    ids=["a new capture of the same device", "another device", "another topic"],
)
def test_what_a_baseline_knows(expected: list[Finding], *, known: bool) -> None:
    baseline = made(qos_findings("meter/17/power"))

    assert {baseline.contains(finding) for finding in expected} == {known}


def test_fixed_is_what_did_not_come_again_from_a_client_that_was_captured() -> None:
    baseline = made([*qos_findings("a"), *qos_findings("b"), *qos_findings("c", client_identifier="dev2")])
    baseline.contains(qos_findings("a")[0])

    assert [baseline_entry.topic for baseline_entry in baseline.fixed({"PUB209"}, {"dev1"})] == ["b"]
    assert baseline.fixed({"PUB101"}, {"dev1"}) == []
    # What has no client is fixed where connections without one were captured.
    (entry,) = baseline.fixed({"PUB209"}, {"dev1"})
    entry.client = ""
    assert baseline.fixed({"PUB209"}, {"dev1"}) == []
    assert baseline.fixed({"PUB209"}, {""}) == [entry]


def test_an_update_takes_out_only_what_was_looked_at() -> None:
    findings = {name: qos_findings(name)[0] for name in ("again", "silenced", "fixed")}
    other = qos_findings("other client", client_identifier="dev2")
    baseline = made([*findings.values(), *other])
    for name in ("again", "silenced"):
        baseline.contains(findings[name])
    finding_baseline = made([findings["again"], *qos_findings("new")])

    after = baseline.updated(finding_baseline, {"PUB209"}, {"dev1"})
    assert {baseline_entry.topic for baseline_entry in after.entries.values()} == {"again", "new", "other client"}
    after = baseline.updated(finding_baseline, {"PUB101"}, {"dev1", "dev2"})
    assert {baseline_entry.topic for baseline_entry in after.entries.values()} == {
        "again",
        "fixed",
        "new",
        "other client",
    }


def test_the_file_is_sorted_one_finding_per_line_and_without_times() -> None:
    findings = qos_findings("b", "a")
    text = made(findings).dumps()

    assert text == made(findings[::-1]).dumps()
    assert [line.count("fingerprint") for line in text.splitlines()] == [0, 1, 1, 0]
    assert set(json.loads(text)["findings"][0]) == {
        "fingerprint", "rule", "client", "topic", "packet_type", "direction", "field",
    }  # fmt: skip


def test_the_file_tells_no_secrets_and_an_empty_one_is_json() -> None:
    findings = qos_findings("home/jane.doe@example.org/lamp", client_identifier="AKIAIOSFODNN7EXAMPLE")
    baseline = made(findings)

    assert "jane" not in baseline.dumps()
    assert "IOSFODNN" not in baseline.dumps()
    assert baseline.contains(findings[0])
    assert client_key("AKIAIOSFODNN7EXAMPLE") == next(iter(baseline.entries.values())).client
    empty = FindingBaseline().dumps()
    assert json.loads(empty)["findings"] == []
    assert FindingBaseline.loads(empty).entries == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ("[]", "no list of findings"),
        ("[" * 100_000, "nested too deeply"),
        ('{"schema": 1, "findings": [' + "[" * 900 + "]" * 900 + "]}", "not a finding"),
        ('{"schema": 2, "findings": []}', "schema 2"),
        ('{"schema": 1, "findings": [1]}', "not a finding"),
        ('{"schema": 1, "findings": [{"rule": "PUB209"}]}', "without fingerprint"),
        ('{"schema": 1, "findings": [{"rule": 3, "fingerprint": "x"}]}', "not a finding"),
    ],
)
def test_what_is_no_baseline_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(BaselineError, match=why):
        FindingBaseline.loads(text)


(ERROR,) = qos_findings("a")
LIKELY = replace(ERROR, confidence=Confidence.LIKELY)
WARNING = replace(ERROR, severity=Severity.WARNING)


def note(name: str) -> Finding:
    """The note that a client with this name gives."""
    (finding,) = linted(*opened(client_identifier=name), codes=("CON108",))
    return finding


def noted(*names: str, policy: Policy | None = None) -> tuple[Gate, list[GateVerdict]]:
    """A gate that has judged the notes of clients with these names, and what it said of them."""
    gate = Gate(policy or Policy(), rules=[usual_rule(rule) for rule in all_rules().values()])
    return gate, [gate.judge(note(name)) for name in names]


@each(
    "policy, counting",
    [
        (Policy(), [True, False, False]),
        (Policy(fail_on=Severity.WARNING), [True, False, True]),
        (Policy(fail_confidence=Confidence.LIKELY), [True, True, False]),
        (Policy(fail_on=Severity.INFO, fail_confidence=Confidence.HEURISTIC), [True, True, True]),
    ],
)
def test_the_policy_says_what_counts(policy: Policy, counting: list[bool]) -> None:
    gate = Gate(policy)
    verdicts = [gate.judge(finding) for finding in (ERROR, LIKELY, WARNING)]

    assert [verdict.counts for verdict in verdicts] == counting
    assert all(verdict.shown for verdict in verdicts)
    assert gate.counts == Counter({Severity.ERROR: 2, Severity.WARNING: 1})
    assert gate.failing.total() == sum(counting)


def test_what_is_not_sure_enough_was_not_found() -> None:
    gate = Gate(Policy(fail_confidence=Confidence.HEURISTIC, min_confidence=Confidence.CERTAIN))

    assert not gate.judge(LIKELY).shown
    assert not gate.counts


def test_what_is_not_severe_enough_is_hidden_and_still_counts() -> None:
    gate = Gate(Policy(fail_on=Severity.WARNING, min_severity=Severity.ERROR))

    assert gate.judge(ERROR).shown
    hidden = gate.judge(WARNING)
    assert (hidden.shown, hidden.counts) == (False, True)
    assert (gate.hidden, gate.hidden_failing) == ({Severity.WARNING: 1}, 1)
    assert gate.failing.total() == 2


def test_suppressed_findings_do_not_count() -> None:
    pattern = Pattern(frozenset({"PUB209"}), reason="known", expires=date(2999, 1, 1))
    gate = Gate(Policy(suppressions=Suppressions([pattern])))
    verdict = gate.judge(ERROR)

    assert verdict.suppression is not None
    assert (verdict.suppression.reason, verdict.counts, verdict.shown) == ("known", False, True)
    assert (gate.suppressed, gate.counts.total(), gate.failing.total()) == ({"configuration": 1}, 0, 0)


def test_the_baseline_silences_and_a_new_one_takes_what_is_found() -> None:
    known = FindingBaseline()
    known.add(ERROR)
    gate = Gate(Policy(), known, updating=True)
    other = replace(ERROR, fingerprint="0" * 32)

    assert gate.judge(ERROR).suppression is IN_BASELINE
    assert gate.judge(other).counts
    assert gate.new_baseline.entries.keys() == {ERROR.fingerprint, other.fingerprint}


def test_an_update_keeps_what_is_known_and_not_sure_enough() -> None:
    known = FindingBaseline()
    known.add(LIKELY)
    gate = Gate(Policy(min_confidence=Confidence.CERTAIN), known, updating=True)
    gate.judge(LIKELY)
    gate.judge(replace(LIKELY, fingerprint="0" * 32))

    assert gate.new_baseline.entries.keys() == {LIKELY.fingerprint}


def test_notes_of_many_clients_are_one_finding_of_the_run() -> None:
    gate, verdicts = noted(*(f"pump-{number}" for number in (1, 2, 3, 4, 5, 2, 1)))

    assert not any(gate_verdict.shown for gate_verdict in verdicts)
    assert [gate_verdict.repeated for gate_verdict in verdicts] == [False] + [True] * 6
    assert gate.counts == {Severity.INFO: 1}
    ((finding, verdict),) = gate.summed_up()
    assert (finding.rule, finding.clients, verdict.shown, verdict.counts) == ("CON108", 5, True, False)
    assert "5 clients have Client Identifiers" in finding.message
    assert finding.message.endswith(": 'pump-1', 'pump-2', 'pump-3' and 2 more")
    assert finding.frame == note("pump-1").frame
    assert gate.summed_up() == []


def test_the_note_of_one_client_stays_as_it_is() -> None:
    gate, _ = noted("pump-1", "pump-1")

    assert [finding for finding, _ in gate.summed_up()] == [note("pump-1")]


def test_two_clients_are_both_named_and_the_order_changes_no_fingerprint() -> None:
    findings = [noted(*names)[0].summed_up()[0][0] for names in (("a-1", "b-2"), ("b-2", "a-1"))]

    assert findings[0].message.endswith(": 'a-1' and 'b-2'")
    assert findings[1].message.endswith(": 'b-2' and 'a-1'")
    assert findings[0].fingerprint == findings[1].fingerprint != note("a-1").fingerprint


def test_errors_of_the_same_rule_are_not_folded() -> None:
    gate, _ = noted()
    error = replace(note("pump-1"), severity=Severity.ERROR)

    assert gate.judge(error).counts
    assert gate.judge(error).counts
    assert (gate.failing.total(), gate.summed_up()) == (2, [])


def test_a_suppressed_note_is_no_part_of_the_sum() -> None:
    pattern = Pattern(frozenset({"CON108"}), client="pump-1", reason="known")
    gate, verdicts = noted("pump-1", "pump-2", policy=Policy(suppressions=Suppressions([pattern])))

    assert verdicts[0].suppression is not None
    assert [finding.client_identifier for finding, _ in gate.summed_up()] == ["pump-2"]


def test_the_first_note_counts_for_all_and_hidden_notes_are_no_finding_of_the_end() -> None:
    gate, verdicts = noted("a-1", "b-1", policy=Policy(fail_on=Severity.INFO))
    assert all(verdict.counts for verdict in verdicts)
    assert gate.failing == {Severity.INFO: 1}

    gate, _ = noted("a-1", policy=Policy(min_severity=Severity.WARNING))
    assert gate.summed_up() == []
    assert gate.hidden == {Severity.INFO: 1}


def taken(selection: FindingSelection[str]) -> list[list[str]]:
    """What is given out at each event, where each has one finding named by what happens."""
    talk = Talk().handshake()
    talk.client(Connect(client_identifier="pump-1"))
    talk.client(Publish(topic_name="a", payload=b"b"))
    text_lists = []
    for event in dissect_segments(talk.tape.segments):
        name = getattr(getattr(event, "packet", None), "packet_type", type(event).__name__)
        text_lists.append(selection.take(event, [str(name)]))
    return text_lists


def test_what_waits_for_the_client_comes_where_it_is_known() -> None:
    selection = FindingSelection[str](clients=("pump-*",))

    assert taken(selection) == [[], ["ConnectionOpened", "1"], ["3"], ["ConnectionClosed"]]
    assert (selection.events, selection.packets, selection.left_out) == (4, 2, 0)
    assert selection.spoken == {"a.pcap"}


def test_room_for_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttscope.lint.gate.MAX_WAITING", 0)
    cut, roomy = FindingSelection[str](clients=("*",)), FindingSelection[str](clients=("*",), most=5)

    assert taken(cut)[1] == ["1"]
    assert cut.left_out == 1
    assert taken(roomy)[1] == ["ConnectionOpened", "1"]
    assert roomy.left_out == 0


def test_a_filter_and_connections_and_other_clients() -> None:
    assert taken(FindingSelection(wanted=filters.compile("publish"))) == [[], [], ["3"], []]
    assert not any(taken(FindingSelection(connections=(1,))))
    assert FindingSelection[str](connections=(3,)).missing(1) == "no connection 3: the only one is number 0"
    others = FindingSelection[str](clients=("valve",))
    assert not any(taken(others))
    assert others.missing(1) == "no packet of a client 'valve'"


@pytest.mark.parametrize(
    ("expression", "of_the_run"),
    [("publish", False), ("connection == 1", True), ("not (qos > 0 or packet < 3)", True), ("time < +3s", True)],
)
def test_filters_that_ask_for_what_only_the_run_knows(expression: str, of_the_run: bool) -> None:
    assert filters.compile(expression).is_of_the_run is of_the_run

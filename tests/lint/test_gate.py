"""The gate: what counts, what is shown, what is suppressed, and what is one finding of the run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import date

import pytest

from mqttscope.lint import gate as gates
from mqttscope.lint.baseline import Baseline
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.finding import Confidence, Finding, Severity
from mqttscope.lint.gate import IN_BASELINE, Gate, Policy
from mqttscope.lint.suppress import Pattern, Suppressions
from tests.lint.lint_help import linted, opened, qos_findings

(ERROR,) = qos_findings("a")
LIKELY = replace(ERROR, confidence=Confidence.LIKELY)
WARNING = replace(ERROR, severity=Severity.WARNING)


def note(name: str) -> Finding:
    """The note that a client with this name gives."""
    (found,) = linted(*opened(client_identifier=name), codes=("CON108",))
    return found


def with_all_rules(policy: Policy | None = None) -> Gate:
    return Gate(policy or Policy(), rules=[rule() for rule in all_rules().values()])


def test_what_is_severe_and_sure_enough_counts() -> None:
    gate = Gate(Policy())
    verdicts = [gate.judge(one) for one in (ERROR, LIKELY, WARNING)]

    assert [one.counts for one in verdicts] == [True, False, False]
    assert all(one.shown for one in verdicts)
    assert gate.counts == Counter({Severity.ERROR: 2, Severity.WARNING: 1})
    assert gate.failing == Counter({Severity.ERROR: 1})


@pytest.mark.parametrize(
    ("policy", "counting"),
    [
        (Policy(fail_on=Severity.WARNING), [True, False, True]),
        (Policy(fail_confidence=Confidence.LIKELY), [True, True, False]),
        (Policy(fail_on=Severity.INFO, fail_confidence=Confidence.HEURISTIC), [True, True, True]),
    ],
)
def test_the_policy_says_what_counts(policy: Policy, counting: list[bool]) -> None:
    gate = Gate(policy)

    assert [gate.judge(one).counts for one in (ERROR, LIKELY, WARNING)] == counting
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
    known = Baseline()
    known.add(ERROR)
    gate = Gate(Policy(), known, updating=True)
    other = replace(ERROR, fingerprint="0" * 32)

    assert gate.judge(ERROR).suppression is IN_BASELINE
    assert gate.judge(other).counts
    assert gate.made.entries.keys() == {ERROR.fingerprint, other.fingerprint}


def test_an_update_keeps_what_is_known_and_not_sure_enough() -> None:
    known = Baseline()
    known.add(LIKELY)
    gate = Gate(Policy(min_confidence=Confidence.CERTAIN), known, updating=True)
    gate.judge(LIKELY)
    gate.judge(replace(LIKELY, fingerprint="0" * 32))

    assert gate.made.entries.keys() == {LIKELY.fingerprint}


def test_notes_of_many_clients_are_one_finding_of_the_run() -> None:
    gate = with_all_rules()
    names = [f"pump-{number}" for number in (1, 2, 3, 4, 5, 2, 1)]
    verdicts = [gate.judge(note(name)) for name in names]

    assert not any(one.shown for one in verdicts)
    assert [one.repeated for one in verdicts] == [False] + [True] * 6
    assert gate.counts == {Severity.INFO: 1}
    ((found, verdict),) = gate.summed_up()
    assert (found.rule, found.clients, verdict.shown, verdict.counts) == ("CON108", 5, True, False)
    assert "5 clients have Client Identifiers" in found.message
    assert found.message.endswith(": 'pump-1', 'pump-2', 'pump-3' and 2 more")
    assert found.frame == note("pump-1").frame
    assert gate.summed_up() == []


def test_the_note_of_one_client_stays_as_it_is() -> None:
    gate = with_all_rules()
    made = note("pump-1")
    gate.judge(made)
    gate.judge(made)

    assert [one for one, _ in gate.summed_up()] == [made]


def test_two_clients_are_both_named_and_the_order_changes_no_fingerprint() -> None:
    found = []
    for names in (("a-1", "b-2"), ("b-2", "a-1")):
        gate = with_all_rules()
        for name in names:
            gate.judge(note(name))
        found.append(gate.summed_up()[0][0])

    assert found[0].message.endswith(": 'a-1' and 'b-2'")
    assert found[1].message.endswith(": 'b-2' and 'a-1'")
    assert found[0].fingerprint == found[1].fingerprint != note("a-1").fingerprint


def test_errors_of_the_same_rule_are_not_folded() -> None:
    gate = with_all_rules()
    made = replace(note("pump-1"), severity=Severity.ERROR)

    assert gate.judge(made).counts
    assert gate.judge(made).counts
    assert (gate.failing.total(), gate.summed_up()) == (2, [])


def test_a_suppressed_note_is_no_part_of_the_sum() -> None:
    pattern = Pattern(frozenset({"CON108"}), client="pump-1", reason="known")
    gate = with_all_rules(Policy(suppressions=Suppressions([pattern])))

    assert gate.judge(note("pump-1")).suppression is not None
    gate.judge(note("pump-2"))
    assert [one.client_identifier for one, _ in gate.summed_up()] == ["pump-2"]


def test_the_first_note_counts_for_all() -> None:
    gate = with_all_rules(Policy(fail_on=Severity.INFO))
    verdicts = [gate.judge(note(name)) for name in ("a-1", "b-1")]

    assert all(one.counts for one in verdicts)
    assert gate.failing == {Severity.INFO: 1}


def test_hidden_notes_are_no_finding_of_the_end() -> None:
    gate = with_all_rules(Policy(min_severity=Severity.WARNING))
    gate.judge(note("a-1"))

    assert gate.summed_up() == []
    assert gate.hidden == {Severity.INFO: 1}


def test_clients_are_told_apart_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "MAX_CLIENTS", 2)
    gate = with_all_rules()
    for name in ("a-1", "b-1", "c-1", "d-1"):
        gate.judge(note(name))

    message = gate.summed_up()[0][0].message
    assert "more than 2 clients" in message
    assert message.endswith("'a-1', 'b-1' and others")

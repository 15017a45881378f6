"""The true cause comes first, for every end that a capture of the project says the truth about."""

from __future__ import annotations

import tomllib

import pytest

from mqttscope.explain import Cause
from mqttscope.explain.model import QUIET
from tests.conftest import ROOT
from tests.each import each
from tests.explain.running import capture, explain

TRUTH = {
    path.parent.name: {
        row["connection"]: row["cause"] for row in tomllib.loads(path.read_text("utf-8")).get("explain", ())
    }
    for path in sorted((ROOT / "captures").glob("*/about.toml"))
}
NOT_SHOWN = {
    "server-side-only": "it has the direction of the broker alone, and the client's DISCONNECT is in the other"
}
"""Captures with ends that look like trouble, because the capture lacks what would say that they are none."""


@each("name", [name for name in TRUTH if name not in NOT_SHOWN])
def test_the_true_cause_comes_first_with_evidence_and_advice_and_nothing_else_is_trouble(name: str) -> None:
    explanations = [explanation for explanation in explain(capture(name)) if not explanation.is_quiet]

    assert {explanation.connection: str(explanation.cause) for explanation in explanations} == TRUTH[name]
    for explanation in explanations:
        assert explanation.first.reasons
        assert explanation.first.advice
        assert explanation.first.headline.endswith(".")
        assert explanation.timeline or str(explanation.cause) == "not_listening"
        assert [moment.timestamp_ns for moment in explanation.timeline] == sorted(
            moment.timestamp_ns for moment in explanation.timeline
        )
        assert all(reason.frame is None or reason.frame > 0 for reason in explanation.first.reasons)


@pytest.mark.parametrize("name", NOT_SHOWN)
def test_what_the_capture_does_not_show_is_at_most_a_hypothesis(name: str) -> None:
    pairs = {(str(explanation.cause), str(explanation.first.certainty)) for explanation in explain(capture(name))}

    assert pairs == {("not_shown", "certain") if name == "server-side-only" else ("server_closed", "hypothesis")}


def test_every_cause_of_the_truth_is_one() -> None:
    causes = {cause for truth in TRUTH.values() for cause in truth.values()}
    assert set() < causes <= set(map(str, set(Cause) - QUIET))

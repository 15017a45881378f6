"""Profiles: those that come with the program, and those of users."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from mqttscope.lint.profile import ProfileError, limit_rules, load, names, parse, rules_of
from tests.lint.lint_help import lint, steps_of, talked

HERE = Path()


@pytest.mark.parametrize("name", names())
def test_a_profile_of_ours_is_dated_sourced_and_complete(name: str) -> None:
    profile = load(name, HERE)

    assert profile.title
    assert profile.dated >= date(2026, 1, 1)
    assert profile.sources
    assert all(source.startswith("https://") for source in profile.sources)
    assert {key for rule in rules_of(profile) for key in rule.settings} - {"profile"} >= set(profile.limits)


def test_every_limit_has_one_rule_and_only_those_of_named_limits_run() -> None:
    rules = limit_rules()
    assert rules["maximum_qos"].code == "PRF101"
    assert {rule.code[:3] for rule in rules.values()} == {"PRF", "SPB"}

    text = 'title = "Ours"\ndated = 2026-11-21\n[limits]\nmaximum_qos = 1\n'
    (rule,) = rules_of(parse(text, "ours", "ours.toml"))
    assert (rule.code, rule.set) == ("PRF101", {"maximum_qos": 1, "profile": "Ours (2026-11-21)"})
    assert "aws-iot-core" in names()


def test_a_role_of_sparkplug_enables_the_rules_that_assume_it() -> None:
    conversation = talked(*steps_of("opened; > subscribe 1 spBv1.0/#:0; < suback 1 0; > disconnect; > fin"))
    for name, codes in (("sparkplug-edge", ["SPB218"]), ("sparkplug-host", ["SPB219", "SPB228"])):
        findings = lint(rules_of(load(name, HERE)), conversation)
        assert [finding.rule for finding in findings] == codes
        assert all("has a" in finding.message for finding in findings)


def test_a_file_is_found_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "ours.toml").write_text("dated = 2026-11-21\n[limits]\nmaximum_qos = 1\n", "utf-8")

    assert load("ours.toml", tmp_path).title == "ours"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("aws-iot", "did you mean aws-iot-core"),
        ("nothing-like-it-at-all", "there are apsaramq"),
        ("missing.toml", "No such file"),
    ],
)
def test_a_missing_profile_gets_help(name: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=why):
        load(name, tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[", "not TOML"),
        ("dated = 2026-11-21", "has no limits"),
        ("[limits]\nmaximum_qos = 1", "dated is not a date"),
        ("dated = 2026-11-21\nsources = 1\n[limits]\nmaximum_qos = 1", "sources"),
        ("dated = 2026-11-21\nlimit = 1\n[limits]\nmaximum_qos = 1", "limit is an unknown key"),
        ("dated = 2026-11-21\n[limits]\nmax_qos = 1", "did you mean maximum_qos"),
        ('dated = 2026-11-21\n[limits]\nmaximum_qos = "1"', "must be like 2"),
        ("dated = 2026-11-21\n[limits]\nretain_available = 0", "must be like True"),
        ("dated = 2026-11-21\n[limits]\nminimum_keep_alive = 0x" + "f" * 5000, "more than 15 digits"),
        ("title = 0x" + "f" * 5000 + "\ndated = 2026-11-21\n[limits]\nmaximum_qos = 1", "title is not a string"),
        ("dated = " + "[" * 100_000, "nested too deeply"),
    ],
)
def test_a_wrong_profile_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ProfileError, match=why):
        parse(text, "x", "x.toml")

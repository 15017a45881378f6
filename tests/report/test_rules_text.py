"""Rules for people, and their examples as `inspect` shows them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mqttscope.lint.catalogue import all_rules, coverage, find
from mqttscope.lint.examples import expected
from mqttscope.lint.rule import Rule
from mqttscope.report.base import View
from mqttscope.report.escape import cells
from mqttscope.report.jsonl import dumps
from mqttscope.report.rules_text import COVERAGE, RulesText, render, rules_view, wrap_painted
from mqttscope.report.style import Painter
from tests.each import each, some
from tests.report.test_harmless import ANSI, check


def plain(shown: dict[str, Any]) -> Any:
    return json.loads(dumps(shown))


def test_all_rules() -> None:
    shown = plain(rules_view(all_rules().values(), examples=False))

    assert shown["schema"] == 1
    assert [rule["code"] for rule in shown["rules"]] == list(all_rules())
    assert len({tuple(rule) for rule in shown["rules"]}) == 1


def test_one_rule_with_its_examples() -> None:
    (rule,) = plain(rules_view([find("CON212")], examples=True))["rules"]

    assert rule["slug"] == "second-connect"
    assert rule["versions"] == ["3.1", "3.1.1", "5.0"]
    assert rule["summary"] == "A client sends CONNECT twice on one connection."
    assert len(rule["why"]) == 1
    assert rule["instead"] == "Instead, open a new TCP connection for another CONNECT."
    assert rule["default"] is True
    assert rule["reason_code"] == 0x82
    assert rule["statements"][0]["identifier"] == "MQTT-3.1.0-2"
    assert rule["statements"][0]["partly"] is True
    bad = rule["examples"]["bad"][0]
    assert bad["lines"][-1].endswith("^ CON212 error: second CONNECT on one connection")


def test_coverage() -> None:
    shown = plain(COVERAGE.view(coverage()))
    row = next(row for row in shown["coverage"] if row["identifier"] == "MQTT-3.1.0-2" and row["version"] == "5.0")

    assert "CON212" in row["partly"]
    for version, counts in shown["totals"].items():
        wanted = [row for row in shown["coverage"] if row["version"] == version]
        assert counts["statements"] == len(wanted) == sum(counts.values()) - counts["statements"]


RULES = list(all_rules().values())


def text(width: int = 0, **view: Any) -> RulesText:
    return RulesText(View(width=width, **view))


def test_the_table_has_every_rule_by_area_and_a_narrow_one_leaves_columns_out() -> None:
    lines = text().table(RULES)

    assert [line.split()[0] for line in lines if not line.startswith("──")] == list(all_rules())
    assert lines.count("── topic alias") <= 1
    practice = next(rule for rule in RULES if rule.is_practice())
    assert text().table([practice])[0].endswith("(off unless selected)")
    reported_text = "A client sends CONNECT twice on one connection."
    assert text().table([find("CON212")])[1:] == [
        f"CON212 second-connect error   certain   3.1, 3.1.1, 5.0 {reported_text}"
    ]
    assert text(90).table([find("CON212")])[1:] == [f"CON212 second-connect error   {reported_text}"]


def test_a_severity_that_may_be_lower_is_said_to_be_the_highest() -> None:
    rows = text(90).table([find(code) for code in ("CON108", "CON212", "SEC101", "SES303")])

    shown = {row.split()[0]: row for row in rows if not row.startswith("──")}
    assert shown["CON108"].startswith("CON108 client-id-length")
    assert " at most error " in shown["CON108"]
    assert " error         " in shown["CON212"]
    assert " at most warning " in shown["SEC101"]
    assert " at most error " in shown["SES303"]


def test_an_explanation_has_everything() -> None:
    lines = text(100).explain(find("PUB209"))

    assert lines[0] == "PUB209 qos-exceeds-maximum  at most error"
    assert lines[2] == "reason code 0x9B QoS not supported · needs the CONNECT and the answer to it · since 1.0.0"
    assert "Instead, wait for the CONNACK and publish with at most its Maximum QoS." in lines
    assert "── statements" in lines
    assert "── found: QoS 2 with maximum 1" in lines
    assert "── fine: the highest supported QoS" in lines


def test_settings_are_shown() -> None:
    with_settings = [rule for rule in RULES if rule.settings]
    for rule in with_settings[:3]:
        lines = text().explain(rule)
        at = lines.index(f"── settings, in [rules.{rule.code}]")
        name, value = next(iter(rule.settings.items()))
        assert lines[at + 1] == f"  {name} = {value!r}"


def test_coverage_names_rules_or_says_why_not() -> None:
    lines = text().coverage(coverage())

    assert lines[0] == "── MQTT 5.0"
    (row,) = [line for line in lines if line.startswith("MQTT-2.2.1-2 ") and "invisible" in line]
    assert "two extra bytes" in row
    assert "── Sparkplug 3.0" in lines
    assert lines[-2].startswith("MQTT 3.1.1: ")
    assert lines[-1].startswith("Sparkplug 3.0: 299 statements: ")


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("unicode", [False, True])
@pytest.mark.parametrize("width", [0, 40, 80, 160])
def test_lines_fit_and_are_harmless(width: int, unicode: bool, colour: bool) -> None:
    rules_text = text(width, unicode=unicode, colour=colour)
    for lines in (rules_text.table(RULES), rules_text.coverage(coverage()), rules_text.explain(find("ENC101"))):
        check(lines, width, unicode=unicode)


def test_colour_changes_nothing_but_colour() -> None:
    colour = text(80, colour=True)

    assert [ANSI.sub("", line).rstrip() for line in colour.table(RULES)] == text(80).table(RULES)
    assert [ANSI.sub("", line).rstrip() for line in colour.coverage(coverage())] == text(80).coverage(coverage())


def test_the_finding_is_under_its_packet() -> None:
    rule = find("PUB209")

    assert render(rule, rule.bad[0], View(width=100)) == [
        "    0.000000 #0 c1     → broker CONNECT    5.0, clean start, keep alive 60 s",
        "    0.010001 #0 c1     ← broker CONNACK    Success  10.0 ms  [maximum qos 1]",
        "    0.020002 #0 c1     → broker PUBLISH    q2 id=1 a  (empty)",
        "              ^ PUB209 error: PUBLISH 'a' has QoS 2, the server's Maximum QoS is 1 (qos)",
    ]


@each("rule", all_rules().values(), ids=all_rules())
@pytest.mark.long
def test_every_example_is_shown_with_its_findings(rule: type[Rule]) -> None:
    for example in (*rule.good, *rule.bad):
        lines = render(rule, example, View(width=100))
        check(lines, 100)
        assert lines
        shown = sum(line.startswith(" " * 14 + f"^ {rule.code} ") for line in lines)
        # What a rule finds in several places of a packet is one finding where it counts alike.
        packets = {packet for packet, _ in expected(example)}
        assert len(packets) <= shown <= len(expected(example))


def test_examples_are_wrapped_and_lose_nothing() -> None:
    rule = find("PRP106")
    example = next(conversation for conversation in rule.bad if conversation.title == "boolean properties of a CONNACK")
    wide, lines = render(rule, example, View(width=0)), render(rule, example, View(width=100))

    assert max(map(len, lines)) <= 100 < max(map(len, wide))
    assert " ".join(" ".join(lines).split()) == " ".join(" ".join(wide).split())
    assert "[maximum qos 2, retain available 2," in lines[1]
    assert lines[2:4] == [
        " " * 16 + "wildcard subscription available 2, subscription identifier available 2,",
        " " * 16 + "shared subscription available 2, receive maximum 0]",
    ]


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("width", some([40, 80]))
def test_all_examples_fit_into_the_width(width: int, colour: bool) -> None:
    for rule in RULES[::5]:
        for example in (*rule.good, *rule.bad):
            for line in render(rule, example, View(width=width, colour=colour)):
                assert cells(ANSI.sub("", line)) <= width
                assert ANSI.findall(line)[-1:] in ([], ["\x1b[0m"]), "a style ends with its line"


def test_a_style_continues_in_the_next_line() -> None:
    red, end = "\x1b[31m", "\x1b[0m"
    painter = Painter(View(width=24, colour=True))

    assert wrap_painted(f"{red}one two three{end} four five six", painter) == [
        f"{red}one two three{end} four five",
        "      six",
    ]
    assert wrap_painted(f"zero {red}one two three four five{end} six", painter) == [
        f"zero {red}one two three four{end}",
        f"      {red}five{end} six",
    ]
    assert wrap_painted(red + "x" * 30 + end, painter) == [red + "x" * 24 + end, f"      {red}{'x' * 6}{end}"]

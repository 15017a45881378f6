"""The base of rules: what is derived from a class, and what a finding of it cites.  Laws of all: test_catalogue.py."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, opened
from mqttscope.lint.finding import Report, Scope, Severity
from mqttscope.lint.rule import (
    PRACTICE,
    RULES,
    SPARKPLUG,
    V3_1_1,
    V5,
    Findings,
    Needs,
    Rule,
    Timing,
    WrongReturnError,
    failure_text,
    packet_name,
    reports_of,
)
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Pingreq, Publish
from tests.each import each
from tests.lint.lint_help import lint, talked


class Cites(Rule):
    code = "TST117"
    severity = Severity.ERROR
    versions = (V5,)
    looks_at = Publish
    statements: ClassVar[dict[Any, dict[str, str]]] = {
        V5: {"A": "", "B": "server publish", "C": "publish.topic_name", "D": "connect", "E": "client"}
    }

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        return self.report("topic_name", "")


def test_statements_follow_version_side_packet_and_field() -> None:
    (finding,) = lint([Cites()], talked(*opened(), client(Publish(topic_name="a"))))

    assert finding.statements == ("5.0 A", "5.0 C", "5.0 E")


class CitesTwoStandards(Cites):
    code = "TST118"
    statements: ClassVar[dict[Any, dict[str, str]]] = {
        V5: {"A": ""},
        SPARKPLUG: {"tck-id-b": "publish", "tck-id-c": "connect"},
    }


class CitesInPart(Cites):
    code = "TST119"
    statements: ClassVar[dict[Any, dict[str, str]]] = {}
    also: ClassVar[dict[Any, tuple[str, ...]]] = {SPARKPLUG: ("tck-id-d",)}


class CitesInReport(Cites):
    code = "TST120"

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        return self.report("topic_name", "", statements=("tck-id-e", "F"))


@each(
    "rule, cited",
    [
        (CitesTwoStandards, ("5.0 A", "sparkplug 3.0 tck-id-b")),
        (CitesInPart, ("sparkplug 3.0 tck-id-d",)),
        (CitesInReport, ("sparkplug 3.0 tck-id-e", "5.0 F")),
    ],
)
def test_a_statement_of_another_standard_has_its_name(rule: type[Rule], cited: tuple[str, ...]) -> None:
    (finding,) = lint([rule()], talked(*opened(), client(Publish(topic_name="a"))))

    assert finding.statements == cited


class Plain(Rule):
    """What  it
    finds.

    Why.

    Instead, this.
    """

    code = "TST101"
    severity = Severity.WARNING
    statements: ClassVar[dict[Any, dict[str, str]]] = {
        V5: {"all": "", "side": "server", "type": "publish", "any": "client any, server connack", "deep": "any.a.b"}
    }
    settings: ClassVar[dict[str, int | float | str | list[str]]] = {"limit": 1, "names": ["a"]}


def made(base: type[Rule] = Plain, *, name: str = "Made", **values: Any) -> type[Rule]:
    """A rule like another one, but for these values."""
    return type(name, (base,), values)


@pytest.mark.parametrize(
    ("sender", "packet_type", "field", "cited"),
    [
        ("client", "publish", "topic_name", ["all", "type", "any"]),
        ("server", "publish", "", ["all", "side", "type"]),
        ("server", "connack", "", ["all", "side", "any"]),
        ("client", None, "", ["all", "any"]),
        ("server", None, "", ["all", "side"]),
        ("server", "connect", "a.b", ["all", "side", "deep"]),
        ("server", "connect", "a[3].b.c", ["all", "side", "deep"]),
        ("server", "connect", "a.bc", ["all", "side"]),
        ("server", "connect", "a", ["all", "side"]),
    ],
)
def test_where_a_statement_applies(sender: str, packet_type: str | None, field: str, cited: list[str]) -> None:
    assert Plain().statements_for(V5, sender, packet_type, field) == cited
    assert Plain().statements_for(V3_1_1, sender, packet_type, field) == []


@pytest.mark.parametrize(
    ("digit", "scope"),
    [("1", Scope.PACKET), ("2", Scope.CONNECTION), ("3", Scope.SESSION), ("4", Scope.BROKER), ("5", Scope.CONNECTION)],
)
def test_the_first_digit_of_the_code_says_how_far_one_has_to_look(digit: str, scope: Scope) -> None:
    assert made(code=f"TST{digit}00").scope is scope


def test_the_slug_is_the_name_of_the_class_unless_given() -> None:
    assert Plain.slug == "plain"
    assert made(name="Qos2DeliveredTwice", code="TST102").slug == "qos2-delivered-twice"
    assert made(code="TST103", slug="clean-start-0").slug == "clean-start-0"


def test_only_rules_of_their_folder_with_codes_of_their_own_can_be_selected() -> None:
    class Base(Rule):
        pass

    assert not hasattr(Base, "slug")
    assert made(__module__="elsewhere").slug == "plain"
    own = made(code="TST198")
    assert "TST198" not in RULES
    assert own not in RULES.values()


def test_a_code_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = made(Rule, __module__="mqttscope.lint.rules.a.first")
    monkeypatch.setitem(RULES, "TST199", first)

    with pytest.raises(TypeError, match="TST199 is the code of two rules"):
        made(Rule, code="TST199", __module__="mqttscope.lint.rules.a.second")
    assert RULES["TST199"] is first
    # A module that is read again defines its rule again.
    again = made(Rule, code="TST199", __module__=first.__module__)
    assert RULES["TST199"] is again
    # A file may have several rules, each with its code.
    with pytest.raises(TypeError, match="TST199 is the code of two rules"):
        made(Rule, name="Other", code="TST199", __module__=first.__module__)
    assert RULES["TST199"] is again


def test_settings_are_those_of_the_class_unless_given() -> None:
    assert Plain().set == {"limit": 1, "names": ["a"]}
    assert Plain({"limit": 5}).set == {"limit": 5, "names": ["a"]}
    assert Plain.settings == {"limit": 1, "names": ["a"]}


@pytest.mark.parametrize(
    ("annotation", "looked_at"),
    [
        (Publish, Publish),
        (Publish | Pingreq, (Publish, Pingreq)),
        (ControlPacket, ControlPacket),
        ("Publish", ()),
        (Any, ()),
    ],
)
def test_a_rule_looks_at_what_the_annotation_of_its_check_names(annotation: Any, looked_at: Any) -> None:
    def check(self: Rule, packet: Any, at: RuleContext) -> Findings:
        return None

    check.__annotations__ = {"packet": annotation}

    assert made(check=check).looks_at == looked_at
    assert made(check=check, looks_at=Pingreq).looks_at is Pingreq


def test_a_rule_implements_what_it_overrides_and_inherits_what_is_overridden() -> None:
    assert not Plain.implements("check")
    assert Cites.implements("check")
    assert made(Cites).implements("check")
    assert not Cites.implements("check_close")


def test_needs_of_the_whole_are_those_of_both_sides() -> None:
    assert Needs.WHOLE == Needs.WHOLE_SENDER | Needs.WHOLE_RECEIVER
    assert Needs.BOTH_DIRECTIONS not in Needs.WHOLE
    assert not Needs.NOTHING


def test_what_is_told_of_a_rule() -> None:
    assert (packet_name(Pingreq()), packet_name(Publish())) == ("PINGREQ", "PUBLISH")
    assert Plain.paragraphs() == ["What it finds.", "Why.", "Instead, this."]
    assert made(Rule).paragraphs() == [""]
    # The worst severity is the first of several.
    assert Plain.worst() is Severity.WARNING
    assert made(severities=(Severity.ERROR, Severity.INFO)).worst() is Severity.ERROR


def test_code_is_marked_for_markdown_only() -> None:
    rules = [rule for rule in all_rules().values() if "``" in (rule.__doc__ or "")]

    assert rules
    for rule in rules:
        marked = rule.paragraphs(marked=True)
        assert any("``" in paragraph for paragraph in marked)
        assert rule.paragraphs() == [paragraph.replace("``", "") for paragraph in marked]


@pytest.mark.parametrize("family", [*PRACTICE, "TST"])
def test_rules_of_practice_are_those_of_their_families(family: str) -> None:
    assert made(code=f"{family}100").is_practice() is (family in PRACTICE)


def test_what_a_check_may_return() -> None:
    report = Report("topic_name", "wrong", related=(), span=(0, 2), statements=("5.0 A",))

    assert list(reports_of(Plain(), None)) == list(reports_of(Plain(), [])) == []
    assert list(reports_of(Plain(), report)) == list(reports_of(Plain(), (report,))) == [report]


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (True, "returned a value of the type bool; it has to return a report"),
        ("wrong", "returned a value of the type str;"),
        ({"field": "wrong"}, "returned a value of the type dict;"),
        (("topic_name", "wrong"), "returned a tuple with a str in it;"),
        ([None], "returned a list with a NoneType in it;"),
        (Report("", 5), "returned a report with invalid message: 5"),  # type: ignore[arg-type]
        (Report("", "", statements=(5,)), r"returned a report with invalid statements: \(5,\)"),  # type: ignore[arg-type]
    ],
)
def test_what_no_check_may_return(expected: object, text: str) -> None:
    with pytest.raises(WrongReturnError, match=f"a check of TST101 {text}"):
        list(reports_of(Plain(), expected))


def test_what_a_rule_has_raised_is_told_with_its_file_where_it_is_made_elsewhere() -> None:
    def result(rule: type) -> str:
        try:
            made(code="nothing")
        except TypeError as error:
            return failure_text(rule, error)
        return ""

    assert result(Plain).startswith("TypeError: 'nothing' is not a rule code")
    assert "test_rule.py, line " in result(Plain)

    line = Cites.check.__code__.co_firstlineno
    assert failure_text(Cites, ValueError("odd")) == f"ValueError: odd ({__file__}, line {line})"
    assert failure_text(Plain, ValueError("odd")) == f"ValueError: odd ({__name__})"
    assert "test_rule.py" not in result(Rule)


@each(
    "code, brief",
    [
        ("DLV410", {"timeout": 1}),
        ("AUT507", {"timeout": 1, "close_timeout": 1}),
        ("SES303", {"tolerance": 2}),
        ("RET411", {"grace": 1, "window": 2}),
        ("RET202", {"window": 1}),
        ("DLV205", {"window": 60}),
        ("CON530", {"timeout": 60}),
        ("KAL503", {"tolerance_percent": 10, "grace": 5}),
    ],
)
def test_rules_wait_less_for_a_test_suite(code: str, brief: dict[str, int]) -> None:
    """Some times are not those that a rule waits for a network: how far it looks back, what a program may choose."""
    rule = all_rules()[code]

    assert rule(None, Timing.TEST).set == {**rule.settings, **brief}
    assert rule(None).set == rule.settings
    name = next(iter(brief))
    assert rule({name: 7}, Timing.TEST).set == {**rule.settings, **brief, name: 7}


def test_the_times_of_rules_made_elsewhere_are_left_alone() -> None:
    own = made(code="OWN217", settings={"timeout": 30})

    assert own(None, Timing.TEST).set == {"timeout": 30}

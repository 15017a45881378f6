"""Pages made of the rules: one each, their index, and the conformance table."""

from __future__ import annotations

from pathlib import PurePosixPath

from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.examples import Conversation
from mqttscope.lint.rule import Rule
from mqttscope.lint.statements import STATES, Coverage, coverage, totals
from mqttscope.mqtt.constants import REASON_CODES
from mqttscope.report.base import View
from mqttscope.report.example import render
from mqttscope.report.explain import CONFIDENCES, SCOPES, area, cited, markdown, needs, switched, versions

FOLDER = PurePosixPath("docs/rules")
CONFORMANCE = PurePosixPath("docs/conformance.md")
WIDTH = 100
MADE = "Generated from the rules with `make generate`."
_STATES = {
    "checked": "checked by a rule",
    "partly": "seen in part",
    "planned": "planned",
    "invisible": "not visible on the wire",
    "open": "open",
}


def pages() -> dict[PurePosixPath, str]:
    """All pages by path, relative to the project."""
    rules = all_rules()
    made = {FOLDER / f"{code}.md": page(rule) for code, rule in rules.items()}
    made[FOLDER / "README.md"] = index(list(rules.values()))
    made[CONFORMANCE] = conformance(coverage())
    return made


def page(rule: type[Rule]) -> str:
    """The page of a rule."""
    what, *why, instead = rule.paragraphs()
    facts = [
        ("severity", rule.severity + switched(rule)),
        ("confidence", CONFIDENCES[rule.confidence]),
        ("versions", versions(rule)),
        ("looks at", SCOPES[rule.scope]),
    ]
    if rule.reason_code is not None:
        facts.append(("reason code", f"0x{rule.reason_code:02X} {REASON_CODES.get(rule.reason_code, '')}".rstrip()))
    if needs(rule):
        facts.append(("needs", ", ".join(needs(rule))))
    facts.append(("since", rule.since))
    out = [f"# {rule.code} {rule.slug}", "", markdown(what), "", "| | |", "|---|---|"]
    out += [f"| {name} | {told} |" for name, told in facts]
    for paragraph in why:
        out += ["", markdown(paragraph)]
    out += ["", markdown(instead)]
    statements = list(cited(rule))
    if statements:
        out += ["", "## Statements", "", "| statement | section | says | where |", "|---|---|---|---|"]
    for one in statements:
        known = one.statement
        where = "in part" if one.partly else markdown(one.where) or "everywhere"
        out.append(f"| {known.key} | {known.section} | {markdown(known.summary)} | {where} |")
    if rule.settings:
        out += ["", "## Settings", "", "```toml", f"[rules.{rule.code}]"]
        out += [f"{name} = {_toml(value)}" for name, value in rule.settings.items()]
        out.append("```")
    out += ["", "## Found", *(line for one in rule.bad for line in _example(rule, one))]
    out += ["", "## Fine", *(line for one in rule.good for line in _example(rule, one))]
    out += ["", f"[All rules](README.md) · [conformance](../conformance.md) · {MADE}"]
    return "\n".join(out) + "\n"


def _example(rule: type[Rule], one: Conversation) -> list[str]:
    settings = ", ".join(f"`{name} = {_toml(value)}`" for name, value in one.settings.items())
    title = markdown(one.title) + (f" ({settings})" if settings else "")
    return ["", f"{title[:1].upper()}{title[1:]}:", "", "```text", *render(rule, one, View(width=WIDTH)), "```"]


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return str(value)


def index(rules: list[type[Rule]]) -> str:
    """The list of all rules, by area."""
    out = ["# Rules", "", f"{len(rules)} rules. {MADE} `mqttscope rules CODE` shows the same in the terminal."]
    before = ""
    for rule in rules:
        if area(rule) != before:
            before = area(rule)
            out += ["", f"## {before.capitalize()}{switched(rule)}", ""]
            out += ["| code | name | severity | confidence | versions | finds |", "|---|---|---|---|---|---|"]
        out.append(
            f"| [{rule.code}]({rule.code}.md) | {rule.slug} | {rule.severity} | {rule.confidence} | {versions(rule)} "
            f"| {markdown(rule.paragraphs()[0])} |"
        )
    return "\n".join(out) + "\n"


def conformance(rows: list[Coverage]) -> str:
    """Every statement with its rules, or why there are none."""
    out = [
        "# Conformance",
        "",
        "Every normative statement of MQTT 5.0 and 3.1.1 in the project's own words, with the rules that check it,",
        "or why none does. Statements that have no number in the standards have identifiers of this project (`V5-…`,",
        "`V311-…`).",
        f"{MADE}",
        "",
        f"| version | statements | {' | '.join(_STATES[state] for state in STATES)} |",
        f"|---|---:|{'---:|' * len(STATES)}",
    ]
    for version, counts in totals(rows).items():
        numbers = " | ".join(str(counts[state]) for state in STATES)
        out.append(f"| {version} | {counts.total()} | {numbers} |")
    before = ""
    for row in rows:
        known = row.statement
        if known.version != before:
            before = known.version
            out += [
                "",
                f"## MQTT {before}",
                "",
                "| statement | section | binds | says | rules |",
                "|---|---|---|---|---|",
            ]
        out.append(
            f"| {known.identifier} | {known.section} | {known.who} | {markdown(known.summary)} | {_rules(row)} |"
        )
    return "\n".join(out) + "\n"


def _rules(row: Coverage) -> str:
    named = [f"[{code}](rules/{code}.md)" for code in row.rules]
    named += [f"[{code}](rules/{code}.md) in part" for code in row.partly]
    if named:
        return ", ".join(named)
    return f"– {_STATES[row.state]}: {markdown(row.why)}" if row.state in ("invisible", "open") else f"– {row.why}"

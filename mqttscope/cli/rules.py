"""``mqttscope rules``: list and explain the rules, and show which statement is checked by which."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mqttscope.cli.options import colour_option

if TYPE_CHECKING:
    from mqttscope.lint.rule import Rule
    from mqttscope.lint.statements import Coverage


@click.command(
    epilog="""\b
Examples:
  mqttscope rules PUB TOP
  mqttscope rules CON212
  mqttscope rules --coverage --format json | jq '.totals'
"""
)
@click.argument("names", nargs=-1, metavar="[CODE...]")
@click.option(
    "--coverage", is_flag=True, help="List every statement of MQTT 5.0 and 3.1.1 with its rules, or why it has none."
)
@click.option("--format", "format_", type=click.Choice(("text", "json")), default="text", show_default=True)
@colour_option
def command(names: tuple[str, ...], coverage: bool, format_: str, colour: bool | None) -> int:
    """List the rules of the linter, or explain rules by code or name, such as CON212 or second-connect.

    A prefix (PUB, PUB1) lists the rules that begin with it. --coverage lists the statements that these rules cite.
    """
    from mqttscope.cli.output import Output, make_view
    from mqttscope.report.style import encoded

    rules, whole = named(names)
    sink = Output()
    if format_ == "json":
        from mqttscope.report.findings.json import line
        from mqttscope.report.rules_text import coverage_view, rules_view

        shown = coverage_view(statements(names, rules)) if coverage else rules_view(rules, examples=whole)
        sink.write(line(shown) + b"\n")
    else:
        from mqttscope.report.rules_text import RulesText

        view = make_view(colour=colour, time_format="relative", payload="auto", payload_limit=64, show_secrets=False)
        text = RulesText(view)
        if coverage:
            lines = text.coverage(statements(names, rules))
        elif whole:
            lines = []
            for rule in rules:
                lines += [*([""] if lines else ()), *text.explain(rule)]
        else:
            lines = text.table(rules)
        sink.write(encoded(lines))
    sink.flush()
    return 0


def named(names: tuple[str, ...]) -> tuple[list[type[Rule]], bool]:
    """The rules with these codes, prefixes or names, and whether each was named whole; all where there are none."""
    from mqttscope.lint.catalogue import UnknownRuleError, all_rules, expand

    rules = all_rules()
    if not names:
        return list(rules.values()), False
    try:
        found = [expand(name) for name in names]
    except UnknownRuleError as error:
        raise click.UsageError(str(error)) from None
    wanted = {code for codes in found for code in codes}
    whole = all(
        len(codes) == 1 and name.lower() in (codes[0].lower(), rules[codes[0]].slug)
        for name, codes in zip(names, found, strict=True)
    )
    return [rule for code, rule in rules.items() if code in wanted], whole


def statements(names: tuple[str, ...], rules: list[type[Rule]]) -> list[Coverage]:
    """Statements with their rules; where rules are named, those that they cite."""
    from mqttscope.lint.statements import coverage

    rows = coverage()
    if not names:
        return rows
    wanted = {rule.code for rule in rules}
    return [row for row in rows if wanted & {*row.rules, *row.partly}]

"""``mqttscope rules``: list and explain the rules, and show which statement is checked by which."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mqttscope.cli.command import OUTPUT, SELECTION, argument, make_command, option, options
from mqttscope.cli.options import colour_option

if TYPE_CHECKING:
    from mqttscope.lint.catalogue import Coverage
    from mqttscope.lint.rule import Rule


@options
class RulesOptions:
    """The options of ``rules``."""

    names: tuple[str, ...] = argument("[CODE...]", nargs=-1)
    coverage: bool = option(
        SELECTION, "--coverage", is_flag=True,
        help="List every statement of MQTT 5.0 and 3.1.1 with its rules, or why it has none.",
    )  # fmt: skip
    form: str = option(
        OUTPUT, "--format", type=click.Choice(("text", "json")), default="text", show_default=True,
        help="Format of the list.",
    )  # fmt: skip
    colour: bool | None = colour_option()


@make_command(
    RulesOptions,
    epilog="""\b
Examples:
  mqttscope rules PUB TOP
  mqttscope rules CON212
  mqttscope rules --coverage --format json | jq '.totals'
""",
)
def command(given: RulesOptions) -> int:
    """List the rules of the linter, or explain single ones.

    CODE is the code or the name of a rule, such as CON212 or second-connect, which is explained, or a prefix (PUB,
    PUB1), which lists the rules that begin with it. With --coverage the statements that these rules cite are listed.
    """
    from mqttscope.cli.output import Output, make_view
    from mqttscope.report.style import encoded

    rules, whole = named(given.names)
    sink = Output()
    if given.form == "json":
        from mqttscope.report.findings.json import line
        from mqttscope.report.rules_text import coverage_view, rules_view

        shown = coverage_view(statements(given.names, rules)) if given.coverage else rules_view(rules, examples=whole)
        sink.write(line(shown) + b"\n")
    else:
        from mqttscope.report.rules_text import RulesText

        view = make_view(
            colour=given.colour, time_format="relative", payload="auto", payload_limit=64, show_secrets=False
        )
        text = RulesText(view)
        if given.coverage:
            lines = text.coverage(statements(given.names, rules))
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
    """The rules with these codes, prefixes or names, and whether each was named in full; all where there are none."""
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
    from mqttscope.lint.catalogue import coverage

    rows = coverage()
    if not names:
        return rows
    wanted = {rule.code for rule in rules}
    return [row for row in rows if wanted & {*row.rules, *row.partly}]

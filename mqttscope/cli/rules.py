"""``mqttscope rules``: list and explain the rules, and show which rules check which statement."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mqttscope.cli.command import OUTPUT, SELECTION, argument, group, make_command, option, options
from mqttscope.cli.completing import rule_codes
from mqttscope.cli.errors import ErrorTranslation
from mqttscope.cli.main import EXIT_CLEAN, EXIT_FINDINGS
from mqttscope.cli.options import ConfigurationOptions, colour_option

if TYPE_CHECKING:
    from mqttscope.lint.catalogue import Coverage
    from mqttscope.lint.rule import Rule


@options
class RulesOptions:
    """The options of ``rules``."""

    names: tuple[str, ...] = argument("[CODE...]", nargs=-1, shell_complete=rule_codes)
    coverage: bool = option(
        SELECTION, "--coverage", is_flag=True,
        help="List every statement of MQTT 5.0 and 3.1.1 with its rules, or the reason why no rule checks it.",
    )  # fmt: skip
    tested: tuple[str, ...] = option(
        SELECTION, "--test", multiple=True, metavar="FILE",
        help="Test the examples of the rules in this Python file; may be repeated.",
    )  # fmt: skip
    configuration: ConfigurationOptions = group(ConfigurationOptions)
    form: str = option(
        OUTPUT, "--format", type=click.Choice(("text", "json")), default="text", show_default=True,
        help="Format of the list.",
    )  # fmt: skip
    colour: bool | None = colour_option()

    def __post_init__(self) -> None:
        if self.tested and (self.names or self.coverage or self.form != "text"):
            raise click.UsageError("--test FILE cannot be combined with CODE, --coverage or --format")


@make_command(
    RulesOptions,
    epilog="""\b
Examples:
  mqttscope rules PUB TOP
  mqttscope rules CON212
  mqttscope rules --coverage --format json | jq '.totals'
  mqttscope rules --test rules/ours.py

Exit code 1 when an example of --test fails.
""",
)
def command(args: RulesOptions) -> int:
    """List the rules of the linter, or explain individual ones.

    CODE is the code or name of a rule to explain, such as CON212 or second-connect, or a prefix of the codes to list,
    such as PUB or PUB1. With --coverage, the statements that these rules cite are listed.
    """
    from mqttscope.cli.linting_settings import load_own
    from mqttscope.lint.examples import ExampleError

    if args.tested:
        return run_tests([Path(path) for path in args.tested])
    load_own(args.configuration)
    rules, whole = named(args.names)
    with ErrorTranslation(click.UsageError, ExampleError):
        show(args, rules, whole=whole)
    return 0


def show(args: RulesOptions, rules: list[type[Rule]], *, whole: bool) -> None:
    """Write rules in the selected format; ``whole``: each with its explanation and examples."""
    from mqttscope.cli.output import Output, make_view
    from mqttscope.report.style import encoded

    sink = Output()
    if args.form == "json":
        from mqttscope.report.findings.json import line
        from mqttscope.report.rules_text import COVERAGE, rules_view

        shown = COVERAGE.view(statements(args.names, rules)) if args.coverage else rules_view(rules, examples=whole)
        sink.write(line(shown) + b"\n")
    else:
        from mqttscope.report.rules_text import RulesText

        view = make_view(colour=args.colour, time_format="relative", payload="auto", payload_limit=64)
        text = RulesText(view)
        if args.coverage:
            lines = text.coverage(statements(args.names, rules))
        elif whole:
            lines = []
            for rule in rules:
                lines += [*([""] if lines else ()), *text.explain(rule)]
        else:
            lines = text.table(rules)
        sink.write(encoded(lines))
    sink.flush()


def run_tests(files: list[Path]) -> int:
    """Test the examples of the rules in files, and report failures; returns the exit code."""
    from mqttscope.cli.output import Output
    from mqttscope.cli.own_rules import use_own_rules
    from mqttscope.lint.catalogue import all_rules
    from mqttscope.lint.examples import ExampleError
    from mqttscope.lint.rule_check import faults_of_examples
    from mqttscope.report.escape import escape
    from mqttscope.report.numbers import plural
    from mqttscope.report.style import encoded

    sink, failed = Output(), 0
    own = use_own_rules(files, packages=False)
    everything = list(all_rules().values())
    for rule in own:
        try:
            faults = [f"it has no {kind} examples" for kind in ("bad", "good") if not getattr(rule, kind)]
            faults += faults_of_examples(rule, everything)
            number = f"{plural(len(rule.bad), 'bad example')}, {plural(len(rule.good), 'good example')}"
        except ExampleError as error:
            faults, number = [str(error)], "an example cannot be read"
        failed += bool(faults)
        lines = [
            f"{rule.code} {rule.slug}: {number}{': failed' if faults else ''}",
            *(f"  {fault}" for fault in faults),
        ]
        sink.write(encoded(list(map(escape, lines))))
    sink.write(encoded([f"{plural(len(own), 'rule')}, {failed} failed"]))
    sink.flush()
    return EXIT_FINDINGS if failed else EXIT_CLEAN


def named(names: tuple[str, ...]) -> tuple[list[type[Rule]], bool]:
    """Rules with these codes, prefixes or names, and whether each name was complete; all rules without names."""
    from mqttscope.lint.catalogue import UnknownRuleError, all_rules, expand

    rules = all_rules()
    if not names:
        return list(rules.values()), False
    with ErrorTranslation(click.UsageError, UnknownRuleError):
        expanded = [expand(name) for name in names]
    wanted = {code for codes in expanded for code in codes}
    whole = all(
        len(codes) == 1 and name.lower() in (codes[0].lower(), rules[codes[0]].slug)
        for name, codes in zip(names, expanded, strict=True)
    )
    return [rule for code, rule in rules.items() if code in wanted], whole


def statements(names: tuple[str, ...], rules: list[type[Rule]]) -> list[Coverage]:
    """Statements with their rules; with names, only the statements that the named rules cite."""
    from mqttscope.lint.catalogue import coverage

    rows = coverage()
    if not names:
        return rows
    wanted = {rule.code for rule in rules}
    return [row for row in rows if wanted & {*row.rules, *row.partly}]

"""Options of every command that lints: which rules, what counts, and where settings come from."""

from __future__ import annotations

from typing import Any

import click

from mqttscope.cli.command import FAILING, OUTPUT, RULES, group, option, options

FORMATS = ("full", "concise", "json", "jsonl", "sarif", "junit", "github", "gitlab", "markdown")
COUNTED = ("full", "concise", "json", "jsonl")
"""Formats that ``--statistics`` has; the first two are the same table."""
SEVERITIES = ("error", "warning", "info")
CONFIDENCES = ("certain", "likely", "heuristic")


def comma_list(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Names with commas between them, the option given once or more."""
    return tuple(name.strip() for one in value for name in one.split(",") if name.strip())


def _codes(name: str, text: str) -> Any:
    variable = f"MQTTSCOPE_{name.replace('-', '_').upper()}"
    return option(RULES, f"--{name}", multiple=True, callback=comma_list, metavar="CODES", envvar=variable, help=text)


def _level(name: str, words: tuple[str, ...], text: str) -> Any:
    variable = f"MQTTSCOPE_{name.replace('-', '_').upper()}"
    return option(FAILING, f"--{name}", type=click.Choice(words), envvar=variable, help=text)


def profile_option(**settings: Any) -> Any:
    """``--profile``."""
    return option(
        RULES, "--profile", metavar="NAME|FILE", help="Check the limits of this broker or service too.", **settings
    )


def format_option() -> Any:
    """``--format`` of commands whose report are the findings."""
    return option(
        OUTPUT, "--format", type=click.Choice(FORMATS), metavar="FORMAT", envvar="MQTTSCOPE_FORMAT",
        help=f"Format of findings: {', '.join(FORMATS)}. [default: full]",
    )  # fmt: skip


def outputs_option(text: str = "Write findings to this file; FORMAT=FILE adds a further format.") -> Any:
    """``--output`` that may be given for several formats."""
    return option(OUTPUT, "--output", "-o", multiple=True, metavar="[FORMAT=]FILE", help=text)


@options
class RuleOptions:
    """Which rules are checked."""

    select: tuple[str, ...] = _codes(
        "select", "Check only these rules: PUB101, PUB, ALL. [default: those of the standards]"
    )
    extend_select: tuple[str, ...] = _codes("extend-select", "Check these rules as well.")
    ignore: tuple[str, ...] = _codes("ignore", "Do not check these rules.")


@options
class ConfigurationOptions:
    """Where settings come from."""

    config: str | None = option(
        RULES, "--config", metavar="FILE", envvar="MQTTSCOPE_CONFIG",
        help="Configuration file. [default: the nearest one upwards]",
    )  # fmt: skip
    no_config: bool = option(RULES, "--no-config", is_flag=True, help="Use no configuration file.")


@options
class JudgingOptions:
    """How to lint."""

    rules: RuleOptions = group(RuleOptions)
    profile: str | None = profile_option(envvar="MQTTSCOPE_PROFILE")
    configuration: ConfigurationOptions = group(ConfigurationOptions)
    fail_on: str | None = _level("fail-on", SEVERITIES, "Lowest severity that fails the run. [default: error]")
    fail_confidence: str | None = _level(
        "fail-confidence", CONFIDENCES, "Lowest confidence that fails the run. [default: certain]"
    )
    min_severity: str | None = _level(
        "min-severity", SEVERITIES, "Lowest severity that is shown; does not change the exit code. [default: info]"
    )
    min_confidence: str | None = _level(
        "min-confidence", CONFIDENCES, "Lowest confidence that is reported at all. [default: heuristic]"
    )
    baseline: str | None = option(
        FAILING, "--baseline", metavar="FILE", envvar="MQTTSCOPE_BASELINE",
        help="File of known findings, which do not fail the run.",
    )  # fmt: skip
    exit_zero: bool | None = option(
        FAILING, "--exit-zero", is_flag=True, default=None, help="Exit with code 0, whatever is found."
    )


OF_LINT = (
    "select", "extend_select", "ignore", "profile", "config", "no_config", "fail_on", "fail_confidence",
    "min_severity", "min_confidence", "baseline", "exit_zero",
)  # fmt: skip
"""Names of these options: other commands take them too, and leave it to ``lint --help`` to explain them."""

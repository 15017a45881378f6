"""Options of every command that lints: which rules, what counts, and where settings come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
FORMATS = ("full", "concise", "json", "jsonl", "sarif", "junit", "github", "gitlab", "markdown")
COUNTED = ("full", "concise", "json", "jsonl")
"""Formats that ``--statistics`` has; the first two are the same table."""
SEVERITIES = ("error", "warning", "info")
CONFIDENCES = ("certain", "likely", "heuristic")


def comma_list(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Names with commas between them, the option given once or more."""
    return tuple(name.strip() for one in value for name in one.split(",") if name.strip())


def codes_option(name: str, text: str) -> Callable[[F], F]:
    """An option that takes rule codes, prefixes or names."""
    return click.option(
        f"--{name}",
        multiple=True,
        callback=comma_list,
        metavar="CODES",
        envvar=f"MQTTSCOPE_{name.replace('-', '_').upper()}",
        help=text,
    )


def level_option(name: str, words: tuple[str, ...], text: str, metavar: str | None = None) -> Callable[[F], F]:
    """An option that takes a severity or a confidence."""
    variable = f"MQTTSCOPE_{name.replace('-', '_').upper()}"
    return click.option(
        f"--{name}", type=click.Choice(words), metavar=metavar or f"[{'|'.join(words)}]", envvar=variable, help=text
    )


def judging_settings(command: F) -> F:
    """Further options of commands that lint beside their own work: what is known, and where settings come from."""
    for decorate in reversed(
        (
            click.option(
                "--baseline",
                metavar="FILE",
                envvar="MQTTSCOPE_BASELINE",
                help="File of known findings, which do not count.",
            ),
            click.option(
                "--profile", metavar="NAME|FILE", envvar="MQTTSCOPE_PROFILE", help="Limits of a broker or service."
            ),
            click.option("--exit-zero", is_flag=True, default=None, help="Exit code 0 whatever is found."),
            click.option(
                "--config",
                metavar="FILE",
                envvar="MQTTSCOPE_CONFIG",
                help="Configuration file. [default: search upwards]",
            ),
            click.option("--no-config", is_flag=True, help="Use no configuration file."),
        )
    ):
        command = decorate(command)
    return command


OF_LINT = {
    "select",
    "extend_select",
    "ignore",
    "fail_on",
    "fail_confidence",
    "min_confidence",
    "min_severity",
    "baseline",
    "profile",
    "exit_zero",
    "config",
    "no_config",
}
"""Names of the options that other commands take over from this one."""


def judging(command: F) -> F:
    """Options of every command that lints: which rules, and what counts."""
    for decorate in reversed(
        (
            codes_option("select", "Only these rules: PUB101, PUB, ALL. [default: those of the standards]"),
            codes_option("extend-select", "These rules as well."),
            codes_option("ignore", "Not these rules."),
            level_option("fail-on", SEVERITIES, "Lowest severity that fails. [default: error]"),
            level_option("fail-confidence", CONFIDENCES, "Lowest confidence that fails. [default: certain]"),
            level_option("min-confidence", CONFIDENCES, "Lowest confidence that is shown. [default: heuristic]"),
            level_option(
                "min-severity", SEVERITIES, "Lowest severity that is shown; changes no exit code.", "SEVERITY"
            ),
        )
    ):
        command = decorate(command)
    return command

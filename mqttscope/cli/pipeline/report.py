"""``mqttscope pipeline report``: the health of a fleet, from a lake.

`read_time` reads the times of its options: dates and times in UTC, or how long before the end of the captures.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from mqttscope.cli.command import OUTPUT, SELECTION, group, make_command, option, options
from mqttscope.cli.errors import ErrorTranslation
from mqttscope.cli.options import colour_option
from mqttscope.cli.pipeline.asking import AskOptions, Steps, asked, lake_of

if TYPE_CHECKING:
    from mqttscope.report.fleet.model import Asked, FleetReport


@options
class ReportOptions:
    """The options of ``pipeline report``."""

    asking: AskOptions = group(AskOptions)
    since: str | None = option(
        SELECTION, "--since", metavar="TIME",
        help="Only what was captured from this time on: 2026-01-31, 2026-01-31T12:00Z, or 24h before the end.",
    )  # fmt: skip
    until: str | None = option(SELECTION, "--until", metavar="TIME", help="Only what was captured before this time.")
    client: tuple[str, ...] = option(
        SELECTION, "--client", multiple=True, metavar="PATTERN", help="Only Client Identifiers like this: pump-*."
    )
    topic: tuple[str, ...] = option(
        SELECTION, "--topic", multiple=True, metavar="FILTER", help="Only topics that this Topic Filter matches."
    )
    server: tuple[str, ...] = option(
        SELECTION, "--server", multiple=True, metavar="PATTERN",
        help="Only servers with an endpoint like this: 10.0.0.2:*.",
    )  # fmt: skip
    rules: tuple[str, ...] = option(
        SELECTION, "--rule", multiple=True, metavar="CODES", help="Only findings of these rules: PUB,ALS202."
    )
    group_by: tuple[str, ...] = option(
        OUTPUT, "--group-by", multiple=True, metavar="NAME",
        help="User Property of CONNECT that groups clients. [default: firmware, fw, version and the like]",
    )  # fmt: skip
    form: str | None = option(
        OUTPUT, "--format", type=click.Choice(("text", "json", "html")),
        help="Format of the report. [default: by the name of --output, else text]",
    )  # fmt: skip
    output: str | None = option(
        OUTPUT, "--output", "-o", metavar="FILE", type=click.Path(dir_okay=False),
        help="Write the report to this file. [default: standard output]",
    )  # fmt: skip
    top: int = option(
        OUTPUT, "--top", type=click.IntRange(1, 10_000), default=10, show_default=True, metavar="N",
        help="Show at most this many rows of each list.",
    )  # fmt: skip
    colour: bool | None = colour_option()

    def __post_init__(self) -> None:
        from mqttscope.cli.output import is_terminal

        if self.format == "html" and self.output is None and is_terminal():
            raise click.UsageError("a page of HTML is for a file: name it with --output")

    @property
    def format(self) -> str:
        """The format: the user's choice, else the one that the name of the file implies."""
        ending = os.path.splitext(self.output or "")[1].lower()
        return self.form or {".html": "html", ".htm": "html", ".json": "json"}.get(ending, "text")


@make_command(
    ReportOptions,
    name="report",
    epilog="""\b
Examples:
  mqttscope pipeline report --lake lake
  mqttscope pipeline report --lake lake --since 7d --client 'pump-*' --rule PUB,FLW
  mqttscope pipeline report --lake lake --output fleet.html
  mqttscope pipeline report --lake lake --format json | jq '.latency.end_to_end'
""",
)
def command(given: ReportOptions) -> int:
    """Report on the health of a fleet: broken rules, latencies, topics, retained messages, reconnect storms.

    Each option that restricts the report may be given several times: rows that fit one of the values count. The
    report also says what the captures lack. docs/reports.md explains every part.
    """
    from mqttscope.cli.output import Output

    output = given.output
    manifest = lake_of(given.asking.place)
    question = _asked(manifest.last_ns, given)
    steps = Steps()
    try:
        with asked(given.asking, manifest, steps) as engine:
            from mqttscope.analysis.fleet import fleet_report

            report = fleet_report(engine, question, progress=steps)
    finally:
        steps.clear()
    data = _rendered(report, given)
    if output is None:
        Output().write_all(data)
    else:
        _write(output, data)
    return 0


def _asked(last_ns: int | None, given: ReportOptions) -> Asked:
    from mqttscope.mqtt.topics import FILTER_PROBLEMS, topic_filter_problem
    from mqttscope.mqtt.view import utf8
    from mqttscope.report.fleet.model import PROPERTIES, Asked

    for name, values in (("client", given.client), ("server", given.server), ("rule", given.rules)):
        if "" in values:
            raise click.UsageError(f"--{name}: an empty pattern fits nothing")
    named = {"client": given.client, "server": given.server, "topic": given.topic, "group-by": given.group_by}
    for name, values in named.items():
        for one in values:
            if utf8(one) != one:
                # Texts of lakes are Unicode, and so is the report that repeats the conditions.
                raise click.UsageError(f"--{name}: {utf8(one)} is not UTF-8, or the locale is not (LC_ALL, PYTHONUTF8)")
    times: dict[str, int | None] = {"since": None, "until": None}
    for name, told in (("since", given.since), ("until", given.until)):
        if told is not None:
            with ErrorTranslation(click.UsageError, ValueError, before=f"--{name}: "):
                times[name] = read_time(told, last_ns)
    if times["since"] is not None and times["until"] is not None and times["since"] >= times["until"]:
        raise click.UsageError("--since is not before --until")
    for one in given.topic:
        problem = topic_filter_problem(one)
        if problem is not None:
            raise click.UsageError(f"--topic: {one!r} is not a Topic Filter: {FILTER_PROBLEMS[problem]}")
    codes = [code.strip() for one in given.rules for code in one.split(",") if code.strip()]
    _known_rules(codes)
    lists = {"client": list(given.client), "topic": list(given.topic), "server": list(given.server), "rule": codes}
    return Asked(times["since"], times["until"], **lists, top=given.top, group_by=list(given.group_by or PROPERTIES))


def _known_rules(codes: list[str]) -> None:
    from mqttscope.lint.catalogue import all_rules

    rules = all_rules()
    slugs = {rule.slug for rule in rules.values()}
    for one in codes:
        if one.lower() not in slugs and not any(code.startswith(one.upper()) for code in rules):
            raise click.UsageError(f"--rule: no rule has the slug {one!r} or a code that begins with it")


def _rendered(report: FleetReport, given: ReportOptions) -> bytes:
    from mqttscope.cli.output import make_view
    from mqttscope.secrets.values import starred_texts

    report = starred_texts(report)
    if given.format == "html":
        from mqttscope.report.fleet.html import render as page

        return page(report)
    if given.format == "json":
        from mqttscope.report.fleet.text import document
        from mqttscope.report.jsonl import dumps, harmless

        return harmless(dumps(document(report))) + b"\n"
    from mqttscope.report.base import View
    from mqttscope.report.fleet.text import render

    view = make_view(colour=given.colour, payload="none", payload_limit=0)
    return render(report, view if given.output is None else View(width=0))


def _write(path: str, data: bytes) -> None:
    """Write a file completely or not at all."""
    from mqttscope.capture.write import write_file
    from mqttscope.cli.output import CannotWriteError

    with ErrorTranslation(CannotWriteError, OSError, before=f"--output: {path}: "):
        write_file(path, data)


UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SECOND_NS = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_time(told: str, last_ns: int | None) -> int:
    """Nanoseconds since 1970 of ``2026-01-31``, ``2026-01-31T12:00:00Z`` or ``24h``; `ValueError` with a reason.

    Without a time zone it is UTC.  A length counts back from ``last_ns``, the end of the captures: the clock of today
    says nothing about them.
    """
    length = re.fullmatch(r"(\d{1,9})([smhdw])", told.strip())
    if length is not None:
        if last_ns is None:
            raise ValueError("nothing was captured, so there is no end to count back from")
        return max(0, last_ns - int(length[1]) * UNITS[length[2]] * _SECOND_NS)
    try:
        found = datetime.fromisoformat(told.strip())
    except ValueError:
        raise ValueError(f"{told!r} is not a time: 2026-01-31, 2026-01-31T12:00:00Z, or 24h before the end") from None
    found = found.replace(tzinfo=UTC) if found.tzinfo is None else found
    since = found - _EPOCH
    return (since.days * 86_400 + since.seconds) * _SECOND_NS + since.microseconds * 1_000

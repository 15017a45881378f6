"""``mqttscope pipeline report``: report on the health of a fleet from a lake."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from mqttscope.cli.command import OUTPUT, SELECTION, group, make_command, option, options
from mqttscope.cli.errors import ErrorTranslation
from mqttscope.cli.options import colour_option
from mqttscope.cli.pipeline.asking import AskOptions, Steps, manifests_of, open_engine
from mqttscope.cli.pipeline.common import read_time

if TYPE_CHECKING:
    from mqttscope.report.fleet.model import FleetReport, ReportQuery


@options
class ReportOptions:
    """The options of ``pipeline report``."""

    asking: AskOptions = group(AskOptions)
    since: str | None = option(
        SELECTION, "--since", metavar="TIME",
        help="Only traffic from this time on: 2026-01-31, 2026-01-31T12:00Z, or 24h before the end of the lake.",
    )  # fmt: skip
    until: str | None = option(SELECTION, "--until", metavar="TIME", help="Only traffic before this time.")
    client: tuple[str, ...] = option(
        SELECTION, "--client", multiple=True, metavar="PATTERN", help="Only matching Client Identifiers: pump-*."
    )
    topic: tuple[str, ...] = option(
        SELECTION, "--topic", multiple=True, metavar="FILTER", help="Only topics that match this Topic Filter."
    )
    server: tuple[str, ...] = option(
        SELECTION, "--server", multiple=True, metavar="PATTERN",
        help="Only servers with a matching endpoint: 10.0.0.2:*.",
    )  # fmt: skip
    rules: tuple[str, ...] = option(
        SELECTION, "--rule", multiple=True, metavar="CODES", help="Only findings of these rules: PUB,ALS202."
    )
    group_by: tuple[str, ...] = option(
        OUTPUT, "--group-by", multiple=True, metavar="NAME",
        help="User Property of CONNECT to group clients by. [default: firmware, fw, version and similar names]",
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
            raise click.UsageError("--format html needs --output FILE on a terminal")

    @property
    def format(self) -> str:
        """Format according to --format, or to the name of the output."""
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
def command(args: ReportOptions) -> int:
    """Report on the health of a fleet: broken rules, latencies, topics, retained messages, reconnect storms.

    Each option that restricts the report may be repeated, to include rows that match any of its values. The report also
    shows the gaps of the captures. docs/reports.md explains every part.
    """
    from mqttscope.cli.output import Output

    output = args.output
    manifests = manifests_of(args.asking)
    question = _asked(max((each.last_ns for each in manifests if each.last_ns is not None), default=None), args)
    steps = Steps()
    try:
        with open_engine(args.asking, manifests, steps) as engine:
            from mqttscope.analysis.fleet import fleet_report

            report = fleet_report(engine, question, progress=steps)
    finally:
        steps.clear()
    data = _rendered(report, args)
    if output is None:
        Output().write_all(data)
    else:
        _write(output, data)
    return 0


def _asked(last_ns: int | None, args: ReportOptions) -> ReportQuery:
    from mqttscope.mqtt.topics import FILTER_PROBLEMS, topic_filter_problem
    from mqttscope.mqtt.view import utf8
    from mqttscope.report.fleet.model import PROPERTIES, ReportQuery

    for name, values in (("client", args.client), ("server", args.server), ("rule", args.rules)):
        if "" in values:
            raise click.UsageError(f"--{name}: an empty pattern matches nothing")
    named = {"client": args.client, "server": args.server, "topic": args.topic, "group-by": args.group_by}
    for name, values in named.items():
        for value in values:
            if utf8(value) != value:
                # Lakes contain Unicode only, and so does the report, which repeats the conditions.
                raise click.UsageError(
                    f"--{name}: {utf8(value)} is not UTF-8, or the locale is not (LC_ALL, PYTHONUTF8)"
                )
    times: dict[str, int | None] = {"since": None, "until": None}
    for name, text in (("since", args.since), ("until", args.until)):
        if text is not None:
            with ErrorTranslation(click.UsageError, ValueError, before=f"--{name}: "):
                times[name] = read_time(text, last_ns)
    if times["since"] is not None and times["until"] is not None and times["since"] >= times["until"]:
        raise click.UsageError("--since is not before --until")
    for value in args.topic:
        problem = topic_filter_problem(value)
        if problem is not None:
            raise click.UsageError(f"--topic: {value!r} is not a Topic Filter: {FILTER_PROBLEMS[problem]}")
    codes = [code.strip() for rule in args.rules for code in rule.split(",") if code.strip()]
    _known_rules(codes)
    lists = {"client": list(args.client), "topic": list(args.topic), "server": list(args.server), "rule": codes}
    return ReportQuery(
        times["since"], times["until"], **lists, top=args.top, group_by=list(args.group_by or PROPERTIES)
    )


def _known_rules(codes: list[str]) -> None:
    from mqttscope.lint.catalogue import all_rules

    rules = all_rules()
    slugs = {rule.slug for rule in rules.values()}
    for rule_code in codes:
        if rule_code.lower() not in slugs and not any(code.startswith(rule_code.upper()) for code in rules):
            raise click.UsageError(f"--rule: no rule has the slug {rule_code!r} or a code that begins with it")


def _rendered(report: FleetReport, args: ReportOptions) -> bytes:
    from mqttscope.cli.output import make_view
    from mqttscope.secrets.values import starred_texts

    report = starred_texts(report)
    if args.format == "html":
        from mqttscope.report.fleet.html import render as page

        return page(report)
    if args.format == "json":
        from mqttscope.report.fleet.text import document
        from mqttscope.report.jsonl import dumps, harmless

        return harmless(dumps(document(report))) + b"\n"
    from mqttscope.report.base import View
    from mqttscope.report.fleet.text import render

    view = make_view(colour=args.colour, payload="none", payload_limit=0)
    return render(report, view if args.output is None else View(width=0))


def _write(path: str, data: bytes) -> None:
    """Write a file atomically."""
    from mqttscope.capture.write import write_file
    from mqttscope.cli.output import CannotWriteError

    with ErrorTranslation(CannotWriteError, OSError, before=f"--output: {path}: "):
        write_file(path, data)

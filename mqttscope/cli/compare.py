"""``mqttscope compare``: two captures by meaning."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from mqttscope.cli import options as shared
from mqttscope.cli.command import (
    COMPARING,
    OUTPUT,
    SELECTION,
    argument,
    group,
    make_command,
    on_command_line,
    option,
    options,
)
from mqttscope.cli.main import EXIT_CLEAN, EXIT_FINDINGS, EXIT_UNREADABLE

if TYPE_CHECKING:
    from mqttscope.events import Event
    from mqttscope.replay.verify.captures import Settings

# `replay.verify.captures` has the same, and takes a while to import.
IGNORABLE = ("payload", "properties", "qos", "retain", "answers", "order", "close")
COUNTABLE = ("packet-identifier", "topic-alias", "dup", "reason-string", "ping")
FORMS_BY_NAME = {
    ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl", ".txt": "text", ".log": "text", ".md": "text",
}  # fmt: skip
"""Formats by the names of outputs; the lines of text can be read as Markdown."""
STDIN = "-"


def _filters(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    from mqttscope.mqtt.topics import FILTER_PROBLEMS, topic_filter_problem

    for one in value:
        problem = topic_filter_problem(one)
        if problem is not None:
            told = FILTER_PROBLEMS[problem]
            raise click.BadParameter(f"{one!r} is no Topic Filter: {told}", context, parameter)
    return value


@options
class CompareOptions:
    """The options of ``compare``."""

    a: str = argument("A", type=click.Path(allow_dash=True, readable=False))
    b: str = argument("B", type=click.Path(allow_dash=True, readable=False))
    protocol: shared.ProtocolOptions = group(shared.ProtocolOptions)
    files: shared.FileOptions = group(shared.FileOptions)
    clients: tuple[str, ...] = option(
        SELECTION, "--client", multiple=True, metavar="ID", help="Compare only these clients (* for any characters)."
    )
    ignored_topics: tuple[str, ...] = option(
        COMPARING, "--ignore-topic", multiple=True, metavar="FILTER", callback=_filters,
        help="Leave out messages whose topic matches this Topic Filter; may be repeated.",
    )  # fmt: skip
    ignore: tuple[str, ...] = option(
        COMPARING, "--ignore", multiple=True, metavar="WHAT", callback=shared.comma_words, listed=IGNORABLE,
        help=f"Do not compare this: {', '.join(IGNORABLE)}.",
    )  # fmt: skip
    count: tuple[str, ...] = option(
        COMPARING, "--count", multiple=True, metavar="WHAT", callback=shared.comma_words, listed=COUNTABLE,
        help=f"Compare this as well: {', '.join(COUNTABLE)}.",
    )  # fmt: skip
    tolerance: float | None = option(
        COMPARING, "--timing", type=click.FloatRange(0), callback=shared.finite, metavar="SECONDS",
        help="Compare times since the start of the connection, which may differ by this much.",
    )  # fmt: skip
    pairing: str = option(
        COMPARING, "--pair-by", type=click.Choice(("client", "topics")), default="client", show_default=True,
        help="Pair connections by Client Identifier and order, or by their topics.",
    )  # fmt: skip
    form: str = option(
        OUTPUT, "--format", type=click.Choice(("text", "json", "jsonl")), default="text", show_default=True,
        help="Format of the report.",
    )  # fmt: skip
    output: str | None = option(
        OUTPUT, "--output", "-o", metavar="FILE",
        help="Write the report to this file; FILE.json and FILE.jsonl in these formats. [default: standard output]",
    )  # fmt: skip
    limit: int | None = option(
        OUTPUT, "--limit", type=click.IntRange(0), metavar="N",
        help="Show at most N differences; the exit code counts all. [default: 200 lines of text, all as JSON]",
    )  # fmt: skip
    show_secrets: bool = option(OUTPUT, "--show-secrets", is_flag=True, help="Show passwords and tokens.")
    colour: bool | None = shared.colour_option()

    def __post_init__(self) -> None:
        from mqttscope.cli.output import REPORT, refuse_inputs, refuse_name

        if "form" not in dict(on_command_line()):
            object.__setattr__(self, "form", self._form_of_output())
        if self.a == self.b == STDIN:
            raise click.UsageError("standard input can be only one of the two captures")
        if self.output is not None:
            refuse_inputs(self.output, (self.a, self.b))
            refuse_name(self.output, "--output", REPORT)

    def _form_of_output(self) -> str:
        """The format that the name of the output says; a usage error for one that there is not."""
        from mqttscope.cli.output import REPORT_NAMES

        suffix = os.path.splitext(self.output or "")[1].lower()
        if suffix in REPORT_NAMES and suffix not in FORMS_BY_NAME:
            raise click.UsageError(
                f"--output: {self.output} is named like a format that compare does not write; it writes text, .json"
                " and .jsonl"
            )
        return FORMS_BY_NAME.get(suffix, self.form)

    def settings(self) -> Settings:
        """What counts."""
        from mqttscope.replay.verify.captures import Settings

        return Settings(
            ignore=frozenset(self.ignore),
            count=frozenset(self.count),
            ignored_topics=self.ignored_topics,
            clients=self.clients,
            tolerance_ns=None if self.tolerance is None else int(self.tolerance * 1e9),
            by_topics=self.pairing == "topics",
        )


@make_command(
    CompareOptions,
    epilog="""\b
Examples:
  mqttscope compare before.pcapng after.pcapng
  mqttscope compare before.pcapng after.pcapng --ignore payload --ignore-topic 'debug/#'
  mqttscope compare before.pcapng after.pcapng --client 'pump-*' --timing 0.5 --format jsonl

Exit codes: 0 the captures mean the same, 1 they differ, 2 usage, 3 a capture cannot be read or holds no MQTT.
""",
)
def command(given: CompareOptions) -> int:
    """Compare two captures by meaning: what one has and the other lacks, by client, topic and packet.

    A and B are files, globs, directories, or - for standard input. Connections of one Client Identifier are compared in
    their order. Times, packet identifiers, topic aliases and the cut into TCP segments do not count.
    """
    from mqttscope.cli.output import FileSink, Output, make_view, warn, warn_all
    from mqttscope.mqtt.view import utf8
    from mqttscope.mqtt.wire import counted
    from mqttscope.replay.verify.captures import Comparison, TooMuchKeptError
    from mqttscope.report.compare import CompareJson, CompareText

    view = make_view(colour=given.colour, show_secrets=given.show_secrets)
    if given.output is not None:
        view.width, view.colour, view.unicode = 0, bool(given.colour), True
    sink: Any = Output() if given.output is None else FileSink(given.output, (given.a, given.b))
    report: CompareText | CompareJson
    if given.form == "text":
        report = CompareText(sink, view, most=given.limit)
    else:
        report = CompareJson(sink, view, document=given.form == "json", most=given.limit)
    comparison = Comparison(given.settings())
    first = _Side(given, given.a)
    sides = [first, _Side(given, given.b, first)]
    complete = True
    try:
        for side, event in _alternating(*sides):
            for difference in comparison.feed(side, event):
                report.feed(difference)
        for difference in comparison.finish():
            report.feed(difference)
    except TooMuchKeptError as error:
        complete = False
        warn(f"{error}; select clients with --client, or compare shorter captures")
    except KeyboardInterrupt:
        report.close(comparison, (given.a, given.b), complete=False)
        sink.flush()
        raise
    advice = [one for side in sides for one in side.advice()]
    warn_all(advice)
    empty = [side.path for side in sides if not side.run.dissector.connections]
    counts = comparison.counts
    complete = complete and not any(side.run.watch.errors for side in sides)
    if empty:
        return EXIT_UNREADABLE
    for one, readable in zip(sides, comparison.readable, strict=True):
        if not readable and complete:
            found = counted(one.run.dissector.connections, "connection")
            warn(f"{utf8(one.path)}: no packet can be read in {found}: they are encrypted, or empty")
            return EXIT_UNREADABLE
    if not sum(counts.connections):
        warn(f"no connection of {' or '.join(given.clients) or 'any client'} can be compared")
        return EXIT_UNREADABLE
    report.close(comparison, (given.a, given.b), complete=complete)
    sink.flush()
    if not complete:
        return EXIT_UNREADABLE
    return EXIT_FINDINGS if counts.differences else EXIT_CLEAN


class _Side:
    """One of the captures."""

    def __init__(self, given: CompareOptions, path: str, other: _Side | None = None) -> None:
        from mqttscope.cli.capture_run import CaptureRun

        self.path = path
        self.run: CaptureRun = CaptureRun(
            (path,), given.files, given.protocol, progress=True if other is None else other.run.watch
        )

    def advice(self) -> Iterator[str]:
        """The messages at the end, with the name of the capture."""
        from mqttscope.mqtt.view import utf8

        for sentence in filter(None, (self.run.nothing_found(), *self.run.of_captures())):
            yield f"{utf8(self.path)}: {sentence}"


def _alternating(*sides: _Side) -> Iterator[tuple[int, Event]]:
    """The events of both captures; the next one is of that which is less far from its beginning.

    So connections that stand for each other end at about the same time, and need not be kept for long.
    """
    sources = [side.run.events() for side in sides]
    begun: list[int | None] = [None] * len(sides)
    passed = [0] * len(sides)
    running = set(range(len(sides)))
    while running:
        side = min(running, key=lambda one: (passed[one], one))
        event = next(sources[side], None)
        if event is None:
            running.discard(side)
            continue
        now = getattr(event, "timestamp_ns", None)
        if isinstance(now, int) and now:
            first = begun[side]
            if first is None:
                begun[side] = first = now
            passed[side] = max(passed[side], now - first)
        yield side, event

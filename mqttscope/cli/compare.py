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
    from mqttscope.replay.verify.captures import ComparisonSettings

# Repeated from `replay.verify.captures`, which is slow to import.
IGNORABLE = ("payload", "properties", "qos", "retain", "answers", "order", "close")
COUNTABLE = ("packet-identifier", "topic-alias", "dup", "reason-string", "ping")
FORMS_BY_NAME = {
    ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl", ".txt": "text", ".log": "text", ".md": "text",
}  # fmt: skip
"""Formats by suffix of the output; text is also valid Markdown."""
STDIN = "-"


def _filters(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    from mqttscope.mqtt.topics import FILTER_PROBLEMS, topic_filter_problem

    for topic_filter in value:
        problem = topic_filter_problem(topic_filter)
        if problem is not None:
            reason = FILTER_PROBLEMS[problem]
            raise click.BadParameter(f"{topic_filter!r} is not a Topic Filter: {reason}", context, parameter)
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
        help="Ignore messages to topics that match this Topic Filter; may be repeated.",
    )  # fmt: skip
    ignore: tuple[str, ...] = option(
        COMPARING, "--ignore", multiple=True, metavar="WHAT", callback=shared.comma_words, listed=IGNORABLE,
        help=f"Do not compare these: {', '.join(IGNORABLE)}.",
    )  # fmt: skip
    count: tuple[str, ...] = option(
        COMPARING, "--count", multiple=True, metavar="WHAT", callback=shared.comma_words, listed=COUNTABLE,
        help=f"Also compare these: {', '.join(COUNTABLE)}.",
    )  # fmt: skip
    tolerance: float | None = option(
        COMPARING, "--timing", type=click.FloatRange(0), callback=shared.finite, metavar="SECONDS",
        help="Also compare times since the start of the connection, with this tolerance.",
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
        help="Write the report to this file; its suffix .json or .jsonl sets the format. [default: standard output]",
    )  # fmt: skip
    limit: int | None = option(
        OUTPUT, "--limit", type=click.IntRange(0), metavar="N",
        help="Show at most N differences; does not change the exit code. [default: 200 lines of text, all in JSON]",
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
        """Format according to the name of the output; a usage error for an unsupported format."""
        from mqttscope.cli.output import REPORT_NAMES

        suffix = os.path.splitext(self.output or "")[1].lower()
        if suffix in REPORT_NAMES and suffix not in FORMS_BY_NAME:
            raise click.UsageError(
                f"--output: {self.output} has the suffix of an unsupported format; compare writes text, .json and"
                " .jsonl"
            )
        return FORMS_BY_NAME.get(suffix, self.form)

    def settings(self) -> ComparisonSettings:
        """Settings of the comparison, from the options."""
        from mqttscope.replay.verify.captures import ComparisonSettings

        return ComparisonSettings(
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
def command(args: CompareOptions) -> int:
    """Compare two captures by meaning, and list their differences by client, topic and packet.

    A and B are files, globs, directories, or - for standard input. Connections with the same Client Identifier are
    paired in order. Times, packet identifiers, topic aliases and TCP segmentation are ignored.
    """
    from mqttscope.cli.output import FileSink, Output, make_view, warn, warn_all
    from mqttscope.mqtt.view import utf8
    from mqttscope.mqtt.wire import counted
    from mqttscope.replay.verify.captures import CaptureComparison, TooMuchKeptError
    from mqttscope.report.compare import CompareJson, CompareText

    view = make_view(colour=args.colour, show_secrets=args.show_secrets)
    if args.output is not None:
        view.width, view.colour, view.unicode = 0, bool(args.colour), True
    sink: Any = Output() if args.output is None else FileSink(args.output, (args.a, args.b))
    report: CompareText | CompareJson
    if args.form == "text":
        report = CompareText(sink, view, most=args.limit)
    else:
        report = CompareJson(sink, view, document=args.form == "json", most=args.limit)
    comparison = CaptureComparison(args.settings())
    first = _ComparedCapture(args, args.a)
    sides = [first, _ComparedCapture(args, args.b, first)]
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
        report.close(comparison, (args.a, args.b), complete=False)
        sink.flush()
        raise
    advice = [sentence for side in sides for sentence in side.advice()]
    warn_all(advice)
    empty = [side.path for side in sides if not side.run.dissector.connections]
    counts = comparison.counts
    complete = complete and not any(side.run.watch.errors for side in sides)
    if empty:
        return EXIT_UNREADABLE
    for compared, readable in zip(sides, comparison.readable, strict=True):
        if not readable and complete:
            connections = counted(compared.run.dissector.connections, "connection")
            warn(f"{utf8(compared.path)}: no packet can be read in {connections}: they are encrypted, or empty")
            return EXIT_UNREADABLE
    if not sum(counts.connections):
        warn(f"no connection of {' or '.join(args.clients) or 'any client'} can be compared")
        return EXIT_UNREADABLE
    report.close(comparison, (args.a, args.b), complete=complete)
    sink.flush()
    if not complete:
        return EXIT_UNREADABLE
    return EXIT_FINDINGS if counts.differences else EXIT_CLEAN


class _ComparedCapture:
    """One of the captures."""

    def __init__(self, args: CompareOptions, path: str, other: _ComparedCapture | None = None) -> None:
        from mqttscope.cli.capture_run import CaptureRun

        self.path = path
        self.run: CaptureRun = CaptureRun(
            (path,), args.files, args.protocol, progress=True if other is None else other.run.watch
        )

    def advice(self) -> Iterator[str]:
        """Final messages, prefixed with the name of the capture."""
        from mqttscope.mqtt.view import utf8

        for sentence in filter(None, (self.run.nothing_found(), *self.run.of_captures())):
            yield f"{utf8(self.path)}: {sentence}"


def _alternating(*sides: _ComparedCapture) -> Iterator[tuple[int, Event]]:
    """Merge the events of both captures by time since the start of each capture.

    Paired connections then end at about the same time, and are kept in memory only briefly.
    """
    sources = [side.run.events() for side in sides]
    begun: list[int | None] = [None] * len(sides)
    passed = [0] * len(sides)
    running = set(range(len(sides)))
    while running:
        side = min(running, key=lambda candidate: (passed[candidate], candidate))
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

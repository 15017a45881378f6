"""``mqttscope explain``: why connections ended, and why messages did not arrive."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mqttscope.cli.command import OUTPUT, SELECTION, group, make_command, on_command_line, option, options
from mqttscope.cli.errors import ErrorTranslation
from mqttscope.cli.main import EXIT_UNREADABLE
from mqttscope.cli.options import (
    ConnectionNumber,
    FileOptions,
    ProtocolOptions,
    all_frames_option,
    captures_argument,
    colour_option,
)
from mqttscope.mqtt.wire import counted

if TYPE_CHECKING:
    from mqttscope.events import Event
    from mqttscope.explain import Explanation
    from mqttscope.explain.broker_log import BrokerLog
    from mqttscope.explain.model import NodeAnswer
    from mqttscope.lint.rule import Rule


@options
class ExplainOptions:
    """The options of ``explain``."""

    captures: tuple[str, ...] = captures_argument()
    protocol: ProtocolOptions = group(ProtocolOptions)
    files: FileOptions = group(FileOptions)
    clients: tuple[str, ...] = option(
        SELECTION, "--client", multiple=True, metavar="ID",
        help="All connections of these clients, and the messages they missed (* for any characters).",
    )  # fmt: skip
    connection: tuple[int, ...] = option(
        SELECTION, "--connection", type=ConnectionNumber(), metavar="N", multiple=True,
        help="The connection with this number, however it ended; may be repeated.",
    )  # fmt: skip
    every: bool = option(SELECTION, "--all", is_flag=True, help="All connections, including those without problems.")
    message: str | None = option(
        SELECTION, "--message", metavar="TOPIC",
        help="Explain messages to this topic that did not arrive, rather than ended connections.",
    )  # fmt: skip
    broker_log: str | None = option(
        SELECTION, "--broker-log", metavar="FILE", type=click.Path(exists=True, dir_okay=False, readable=True),
        help="Log of the broker (mosquitto, EMQX, HiveMQ, NATS): confirm or contradict causes with its lines.",
    )  # fmt: skip
    profile: str | None = option(
        SELECTION, "--profile", metavar="NAME|FILE", help="Consider the limits of this broker or service as causes.",
    )  # fmt: skip
    form: str = option(
        OUTPUT, "--format", type=click.Choice(("text", "json", "markdown", "html", "pcapng")), default="text",
        show_default=True, help="Format of the report; pcapng is a copy of the captures with comments on frames.",
    )  # fmt: skip
    time_format: str = option(
        OUTPUT, "--time", type=click.Choice(("iso", "local", "epoch", "relative")), default="iso", show_default=True,
        help="Times in UTC, local time, seconds since 1970, or since the first time shown.",
    )  # fmt: skip
    output: str | None = option(
        OUTPUT, "--output", "-o", metavar="FILE",
        help="Write the report to this file, FILE.html as a page, FILE.pcapng as a copy. [default: standard output]",
    )  # fmt: skip
    all_frames: bool = all_frames_option()
    colour: bool | None = colour_option()

    def __post_init__(self) -> None:
        from mqttscope.cli.annotating import PCAPNG, is_copy
        from mqttscope.cli.output import HTML, is_page, refuse_report
        from mqttscope.mqtt.topics import FILTER_PROBLEMS, topic_filter_problem

        if self.message is not None:
            problem = topic_filter_problem(self.message)
            if problem is not None:
                raise click.UsageError(f"--message: {self.message!r} is not a Topic Filter: {FILTER_PROBLEMS[problem]}")
            if self.every or self.connection:
                raise click.UsageError("--message can be combined with --client, but not with --connection or --all")
        if "form" not in dict(on_command_line()):
            if is_page(self.output):
                object.__setattr__(self, "form", HTML)
            elif is_copy(self.output):
                object.__setattr__(self, "form", PCAPNG)
        if self.form != "text" and "time_format" in dict(on_command_line()):
            raise click.UsageError(f"--time is for text: --format {self.form} has times in UTC")
        if self.form != PCAPNG:
            if self.all_frames:
                raise click.UsageError("--all-frames is for a copy of the captures: --output FILE.pcapng")
            refuse_report(self.form, self.output, self.captures)
        elif self.output is None:
            raise click.UsageError("--format pcapng writes a copy of the captures: --output FILE.pcapng")

    def asked(self) -> str:
        """Selected connections in words; empty for the default, all trouble."""
        if self.every:
            return "all connections"
        parts = [f"connection {', '.join(map(str, self.connection))}"] if self.connection else []
        parts += [f"client {', '.join(self.clients)}"] if self.clients else []
        return " and ".join(parts)

    def is_of(self, client_identifier: str) -> bool:
        """Whether a client is selected, by its Client Identifier or by the name shown for it."""
        return any(fnmatchcase(client_identifier, pattern) for pattern in self.clients)


@make_command(
    ExplainOptions,
    epilog="""\b
Examples:
  mqttscope explain site.pcapng
  mqttscope explain site.pcapng --client 'pump-*' --format markdown
  mqttscope explain site.pcapng --message plant/7/alarm
  mqttscope explain site.pcapng --output why.html
  mqttscope explain site.pcapng --output annotated.pcapng

Exit code 3 when a capture could not be read to its end, or holds no MQTT.
""",
)
def command(args: ExplainOptions) -> int:
    """Explain why connections ended, and why messages did not arrive: causes with evidence, and what to change.

    The default is every connection that did not end with a DISCONNECT of the client. CAPTURE is a file, a glob, a
    directory, or - for standard input.
    """
    from mqttscope.cli.annotating import PCAPNG, AnnotatedCopy
    from mqttscope.cli.capture_run import CaptureRun
    from mqttscope.cli.configuration import warn_of_configuration
    from mqttscope.cli.explaining import watched_events
    from mqttscope.cli.output import HTML, make_view
    from mqttscope.explain import Explainer
    from mqttscope.explain.edge_nodes import NodeWatch
    from mqttscope.explain.explainer import REMARKED, is_used
    from mqttscope.explain.fates import Trace
    from mqttscope.lint.catalogue import select, usual_rule
    from mqttscope.lint.engine import Linter
    from mqttscope.report.explanations.base import make_reporter

    warn_of_configuration()
    view = make_view(colour=args.colour, time_format=args.time_format, payload="none", payload_limit=0)
    run = CaptureRun(args.captures, args.files, args.protocol)
    copy = None
    if args.form == PCAPNG and args.output is not None:
        copy = AnnotatedCopy(args.output, args.captures, all_frames=args.all_frames)
    file = run.file(view, args.output, colour=args.colour) if copy is None else copy
    sink = run.sink(file)
    reporter = make_reporter(args.form, sink, view, every=bool(args.asked()))
    log = None if args.broker_log is None else read_broker_log(args.broker_log)
    explainer = Explainer(log=log)
    # For selected clients, missed messages are reported as well.
    shape = args.message or ("#" if args.clients else None)
    messages = None
    if shape is not None:
        from mqttscope.explain.message_report import MessageReport
        from mqttscope.explain.messages import MessageWatch

        messages = MessageWatch(shape)
    choice, linter, nodes = ExplanationSelection(args), None, None
    if args.message is None:
        selected = filter(is_used, select(extended=REMARKED).values())
        rules = [*map(usual_rule, selected), *rules_of_profile(args.profile)]
        nodes = NodeWatch()
        linter = Linter([*rules, nodes.observer], together=run.reading.deduplicate)

    def end(explanation: Explanation) -> None:
        if messages is not None:
            messages.note_end(explanation)
        if nodes is not None:
            nodes.note_end(explanation)
        if args.message is None and choice.takes(explanation):
            reporter.feed(explanation)

    def feed(event: Event) -> None:
        if copy is not None:
            copy.note(event)
        if args.clients:
            choice.note(event)
        for explanation in explainer.feed(event, [] if linter is None else linter.feed(event)):
            end(explanation)

    with run.until_interrupted():
        if messages is None:
            for event in watched_events(run, explainer.watch, feed):
                feed(event)
        else:
            segments = run.dissector.clock.follow(run.segments(explainer.watch.frames))
            for event in run.events(explainer.watch.segments(messages.pauses.segments(segments))):
                messages.feed(event)
                feed(event)
    for explanation in explainer.close():
        end(explanation)
    for sentence in [] if log is None else log.summary():
        click.echo(sentence, err=True)
    trace = None
    if messages is not None:
        trace = MessageReport(messages).trace(args.is_of if args.clients else None, missed=args.message is None)
        if args.clients and run.dissector.connections:
            trace.remarks[:0] = choice.absent()
            if not choice.chosen:
                trace = Trace([], list(choice.absent()))
        if args.message is not None:
            trace.remarks[:0] = [row.sentence for row in explainer.totals.unresolved]
            trace.remarks += explainer.assigned.sentences()
    answers = () if nodes is None else tuple(filter(choice.takes_node, nodes.answers()))
    if nodes is not None and answers:
        trace = trace or Trace([], [])
        trace.nodes, trace.remarks = answers, [*trace.remarks, *nodes.remarks()]
    if trace is not None:
        reporter.trace(trace)
    if args.form in (HTML, PCAPNG) and file is not None and run.read_nothing:
        file.leave()
    else:
        reporter.close(explainer.totals if args.message is None else None, asked=args.asked())
        sink.flush()
    if file is not None:
        file.close()
    code = run.end(connections=args.connection, matched=bool(choice.shown))
    return code if run.dissector.connections else EXIT_UNREADABLE


def rules_of_profile(name: str | None) -> list[Rule]:
    """Rules that check the limits of a profile."""
    if name is None:
        return []
    from mqttscope.lint.profile import ProfileError, load, rules_of

    with ErrorTranslation(click.UsageError, ProfileError):
        return rules_of(load(name, Path.cwd()))


def read_broker_log(path: str) -> BrokerLog:
    """Read a broker log."""
    from mqttscope.explain.broker_log import BrokerLog, iterate

    try:
        with Path(path).open("rb") as lines:
            return BrokerLog.of(iterate(lines))
    except OSError as error:
        raise click.UsageError(f"--broker-log: {path} cannot be read: {error.strerror}") from error


class ExplanationSelection:
    """Explanations that the user selected."""

    def __init__(self, args: ExplainOptions) -> None:
        self.args = args
        self.shown = 0
        self.chosen: set[int] = set()
        """Connections of the selected clients."""
        self._near: dict[str, list[str]] = {name: [] for name in args.clients}
        """Most similar Client Identifiers, by selected names without a connection."""
        self._nameless = 0
        """Number of connections with an unknown Client Identifier."""

    def note(self, event: Event) -> None:
        """Note the client of a closed connection."""
        from mqttscope.events import ConnectionClosed

        if not isinstance(event, ConnectionClosed):
            return
        from mqttscope.explain import describe

        connection = event.connection
        identifier = connection.client_identifier or ""
        names = identifier, describe.name(identifier) if identifier else connection.client
        if any(map(self.args.is_of, names)):
            self.chosen.add(connection.number)
        self._nameless += not identifier
        for wanted, near in list(self._near.items()):
            if any(fnmatchcase(name, wanted) for name in names):
                del self._near[wanted]
            elif identifier:
                close = {name.casefold(): name for name in (*near, names[1])}
                self._near[wanted] = [close[name] for name in get_close_matches(wanted.casefold(), close, 3, 0.5)]

    def absent(self) -> Iterator[str]:
        """Selected clients that the capture lacks, with the most similar ones."""
        for wanted, near in self._near.items():
            like = f"; similar: {', '.join(near)}" if near else ""
            unknown = f" ({counted(self._nameless, 'connection')} without a known client)" if self._nameless else ""
            yield f"The capture contains no client {wanted}{unknown}{like}."

    def takes(self, explanation: Explanation) -> bool:
        """Whether to show an explanation."""
        args = self.args
        if args.connection and explanation.connection not in args.connection:
            return False
        if args.clients and explanation.connection not in self.chosen:
            return False
        is_shown = bool(args.asked()) or not explanation.is_quiet
        self.shown += is_shown
        return is_shown

    def takes_node(self, answer: NodeAnswer) -> bool:
        """Whether to show an answer about an edge node."""
        chosen = self.chosen if self.args.clients else set(self.args.connection)
        return (not chosen and not self.args.clients) or not chosen.isdisjoint(answer.connections)

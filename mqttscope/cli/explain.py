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
from mqttscope.cli.options import ConnectionNumber, FileOptions, ProtocolOptions, captures_argument, colour_option
from mqttscope.mqtt.wire import counted

if TYPE_CHECKING:
    from mqttscope.events import Event
    from mqttscope.explain import Explanation
    from mqttscope.explain.broker_log import BrokerLog
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
    every: bool = option(SELECTION, "--all", is_flag=True, help="All connections, also those without problems.")
    message: str | None = option(
        SELECTION, "--message", metavar="TOPIC",
        help="Why messages to this topic or Topic Filter did not arrive, instead of ends.",
    )  # fmt: skip
    broker_log: str | None = option(
        SELECTION, "--broker-log", metavar="FILE", type=click.Path(exists=True, dir_okay=False, readable=True),
        help="Log of the broker (mosquitto, EMQX, HiveMQ, NATS): confirm or contradict causes with its lines.",
    )  # fmt: skip
    profile: str | None = option(
        SELECTION, "--profile", metavar="NAME|FILE", help="Look for ends after what this broker or service refuses.",
    )  # fmt: skip
    form: str = option(
        OUTPUT, "--format", type=click.Choice(("text", "json", "markdown", "html")), default="text", show_default=True,
        help="Format of the report.",
    )  # fmt: skip
    time_format: str = option(
        OUTPUT, "--time", type=click.Choice(("iso", "local", "epoch", "relative")), default="iso", show_default=True,
        help="Times in UTC, local time, seconds since 1970, or since the first time shown.",
    )  # fmt: skip
    output: str | None = option(
        OUTPUT, "--output", "-o", metavar="FILE",
        help="Write the report to this file, FILE.html as a page. [default: standard output]",
    )  # fmt: skip
    colour: bool | None = colour_option()

    def __post_init__(self) -> None:
        from mqttscope.cli.output import HTML, is_page, refuse_report
        from mqttscope.mqtt.topics import FILTER_PROBLEMS, topic_filter_problem

        if self.message is not None:
            problem = topic_filter_problem(self.message)
            if problem is not None:
                raise click.UsageError(f"--message: {self.message!r} is no Topic Filter: {FILTER_PROBLEMS[problem]}")
            if self.every or self.connection:
                raise click.UsageError("--message goes with --client alone, not with --connection or --all")
        if is_page(self.output) and "form" not in dict(on_command_line()):
            object.__setattr__(self, "form", HTML)
        if self.form != "text" and "time_format" in dict(on_command_line()):
            raise click.UsageError(f"--time is for text: --format {self.form} has times in UTC")
        refuse_report(self.form, self.output, self.captures)

    def asked(self) -> str:
        """Which connections were asked for, in words; empty where all trouble is."""
        if self.every:
            return "all connections"
        parts = [f"connection {', '.join(map(str, self.connection))}"] if self.connection else []
        parts += [f"client {', '.join(self.clients)}"] if self.clients else []
        return " and ".join(parts)

    def is_of(self, client_identifier: str) -> bool:
        """Whether a client was asked for, by its Client Identifier or how that is shown."""
        return any(fnmatchcase(client_identifier, one) for one in self.clients)


@make_command(
    ExplainOptions,
    epilog="""\b
Examples:
  mqttscope explain site.pcapng
  mqttscope explain site.pcapng --client 'pump-*' --format markdown
  mqttscope explain site.pcapng --message plant/7/alarm
  mqttscope explain site.pcapng --output why.html

Exit code 3 when a capture could not be read to its end, or holds no MQTT.
""",
)
def command(given: ExplainOptions) -> int:
    """Explain why connections ended, and why messages did not arrive: causes with evidence, and what to change.

    Without --client, --connection or --all, every end other than a DISCONNECT of the client is explained. CAPTURE is a
    file, a glob, a directory, or - for standard input.
    """
    from mqttscope.cli.capture_run import CaptureRun
    from mqttscope.cli.configuration import warn_of_configuration
    from mqttscope.cli.output import HTML, make_view
    from mqttscope.explain import Explainer
    from mqttscope.explain.fates import Trace
    from mqttscope.lint.catalogue import select, usual_rule
    from mqttscope.lint.engine import Linter
    from mqttscope.report.explanations.base import make_reporter

    warn_of_configuration()
    view = make_view(colour=given.colour, time_format=given.time_format, payload="none", payload_limit=0)
    run = CaptureRun(given.captures, given.files, given.protocol)
    file = run.file(view, given.output, colour=given.colour)
    sink = run.sink(file)
    reporter = make_reporter(given.form, sink, view, every=bool(given.asked()))
    log = None if given.broker_log is None else read_broker_log(given.broker_log)
    explainer = Explainer(log=log)
    # Clients that were asked for have their missed messages told with their ends.
    shape = given.message or ("#" if given.clients else None)
    messages = None
    if shape is not None:
        from mqttscope.explain.messages import MessageWatch

        messages = MessageWatch(shape)
    choice, linter = Choice(given), None
    if given.message is None:
        rules = [*(usual_rule(rule) for rule in select().values()), *rules_of_profile(given.profile)]
        linter = Linter(rules, together=run.reading.deduplicate)
    segments = run.dissector.clock.follow(run.segments(explainer.watch.frames))
    with run.until_interrupted():
        for event in run.events(explainer.watch.segments(segments)):
            if messages is not None:
                messages.feed(event)
            if given.clients:
                choice.note(event)
            if given.message is not None:
                continue
            for one in explainer.feed(event, [] if linter is None else linter.feed(event)):
                if choice.takes(one):
                    reporter.feed(one)
    for one in filter(choice.takes, explainer.close()):
        reporter.feed(one)
    for told in [] if log is None else log.summary():
        click.echo(told, err=True)
    if messages is not None:
        trace = messages.trace(given.is_of if given.clients else None, missed=given.message is None)
        if given.clients and run.dissector.connections:
            trace.told[:0] = choice.absent()
            if not choice.chosen:
                trace = Trace([], list(choice.absent()))
        reporter.trace(trace)
    if given.form == HTML and file is not None and run.read_nothing:
        file.leave()
    else:
        reporter.close(explainer.totals if given.message is None else None, asked=given.asked())
        sink.flush()
    if file is not None:
        file.close()
    code = run.end(connections=given.connection, matched=bool(choice.shown))
    return code if run.dissector.connections else EXIT_UNREADABLE


def rules_of_profile(name: str | None) -> list[Rule]:
    """The rules that check the limits of a profile."""
    if name is None:
        return []
    from mqttscope.lint.profile import ProfileError, load, rules_of

    with ErrorTranslation(click.UsageError, ProfileError):
        return rules_of(load(name, Path.cwd()))


def read_broker_log(path: str) -> BrokerLog:
    """The lines of a broker's log about its clients."""
    from mqttscope.explain.broker_log import BrokerLog, iterate

    try:
        with Path(path).open("rb") as lines:
            return BrokerLog.of(iterate(lines))
    except OSError as error:
        raise click.UsageError(f"--broker-log: {path} cannot be read: {error.strerror}") from error


class Choice:
    """The explanations that the user asked for."""

    def __init__(self, given: ExplainOptions) -> None:
        self.given = given
        self.shown = 0
        self.chosen: set[int] = set()
        """Connections of the clients that were asked for."""
        self._near: dict[str, list[str]] = {name: [] for name in given.clients}
        """The nearest Client Identifiers, by the names that were asked for and have no connection yet."""
        self._nameless = 0
        """Connections whose Client Identifier is not known."""

    def note(self, event: Event) -> None:
        """Look whose connection has ended."""
        from mqttscope.events import ConnectionClosed

        if not isinstance(event, ConnectionClosed):
            return
        from mqttscope.explain import describe

        connection = event.connection
        identifier = connection.client_identifier or ""
        names = identifier, describe.name(identifier) if identifier else connection.client
        if any(map(self.given.is_of, names)):
            self.chosen.add(connection.number)
        self._nameless += not identifier
        for wanted, near in list(self._near.items()):
            if any(fnmatchcase(name, wanted) for name in names):
                del self._near[wanted]
            elif identifier:
                close = {name.casefold(): name for name in (*near, names[1])}
                self._near[wanted] = [close[name] for name in get_close_matches(wanted.casefold(), close, 3, 0.5)]

    def absent(self) -> Iterator[str]:
        """The clients that were asked for and are not in the capture, with the nearest ones."""
        for wanted, near in self._near.items():
            like = f"; the nearest: {', '.join(near)}" if near else ""
            unknown = f" ({counted(self._nameless, 'connection')} without a known client)" if self._nameless else ""
            yield f"No client {wanted} is in the capture{unknown}{like}."

    def takes(self, found: Explanation) -> bool:
        """Whether to show an explanation."""
        given = self.given
        if given.connection and found.connection not in given.connection:
            return False
        if given.clients and found.connection not in self.chosen:
            return False
        taken = bool(given.asked()) or not found.is_quiet
        self.shown += taken
        return taken

"""Options of commands that take part in traffic, and the groups of options that they share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mqttscope import arguments
from mqttscope.cli import options as shared
from mqttscope.cli.command import (
    BROKER,
    CASES,
    CHANGES,
    END,
    LISTENING,
    OUTPUT,
    PLAYING,
    SELECTION,
    TLS,
    group,
    on_command_line,
    option,
    options,
)
from mqttscope.cli.errors import CommandFailedError, ErrorTranslation
from mqttscope.cli.metrics import MetricsOptions
from mqttscope.errors import ArgumentError

if TYPE_CHECKING:
    import ssl

    from mqttscope.mqtt.constants import ProtocolVersion
    from mqttscope.replay.drivers.run import Pace
    from mqttscope.report.base import View
    from mqttscope.transport.target import BrokerUrl

PACES = ("recorded", "asap", "causal")
PASSWORD_VARIABLE = "MQTTSCOPE_PASSWORD"


def refuse_capture_name(write: str | None) -> None:
    """Raise a usage error if the file of ``--write`` is not named like a pcapng file."""
    if write not in (None, "-"):
        from mqttscope.cli.output import CAPTURE, refuse_name

        refuse_name(write, "--write", CAPTURE)


def target_of(url: str, label: str) -> BrokerUrl:
    """Parse the URL of a broker; a usage error begins with ``label``."""
    from mqttscope.transport.target import AddressError, parse_broker

    with ErrorTranslation(click.UsageError, AddressError, before=f"{label}: "):
        return parse_broker(url)


@options
class TlsOptions:
    """TLS options for connecting to a broker."""

    ca: str | None = option(
        TLS, "--ca", metavar="FILE", help="CA certificates to verify the broker. [default: the system's]"
    )
    cert: str | None = option(TLS, "--cert", metavar="FILE", help="Client certificate for the broker (PEM).")
    key: str | None = option(
        TLS, "--key", metavar="FILE", help="Key of the client certificate, if it is in a separate file."
    )
    insecure: bool = option(
        TLS, "--insecure", is_flag=True, help="Do not verify the broker's certificate and host name."
    )

    def __post_init__(self) -> None:
        with ErrorTranslation(click.UsageError, ArgumentError):
            arguments.tls_pair("--cert", "--key", (self.cert, self.key))

    def refuse_plain(self, target: BrokerUrl, what: str, server_name: str | None = None) -> None:
        """Raise a usage error for options that need TLS if the target does not use TLS."""
        tls_values = {"--ca": self.ca, "--cert": self.cert, "--insecure": self.insecure, "--server-name": server_name}
        with ErrorTranslation(click.UsageError, ArgumentError):
            arguments.only_with_tls(target, what, tls_values, tls=target.tls)

    def context(self, target: BrokerUrl) -> ssl.SSLContext | None:
        """TLS context for connecting to a target; ``None`` without TLS."""
        from mqttscope.cli.output import warn
        from mqttscope.transport.tls import TlsError, upstream_context

        if not target.tls:
            return None
        with ErrorTranslation(click.UsageError, TlsError):
            context = upstream_context(self.ca, self.cert, self.key, insecure=self.insecure)
        if self.insecure:
            warn(f"--insecure: the certificate of {target} is not verified")
        return context


@options
class ConnectOptions:
    """Credentials, timeout and TLS for connecting to a broker."""

    user: str | None = option(
        BROKER, "--user", metavar="NAME", envvar="MQTTSCOPE_USER",
        help="User name to send instead of the recorded names.",
    )  # fmt: skip
    password_file: str | None = option(
        BROKER, "--password-file", metavar="FILE",
        help="File with the password or token to send. [default: $MQTTSCOPE_PASSWORD]",
    )  # fmt: skip
    connect_timeout: float = shared.positive_option(
        BROKER, "--connect-timeout", "Give up connecting after this time.", default=10.0, show_default=True
    )
    tls: TlsOptions = group(TlsOptions)
    server_name: str | None = option(
        TLS, "--server-name", metavar="NAME", help="Host name for SNI and certificate verification. [default: the host]"
    )

    def password(self) -> bytes | None:
        """Password from the file or the environment, without a final line end."""
        path = self.password_file
        if path is None:
            return os.environb.get(PASSWORD_VARIABLE.encode()) or None
        with ErrorTranslation(
            CommandFailedError, OSError, ValueError, before=f"cannot read the password from {path}: "
        ):
            return Path(path).read_bytes().removesuffix(b"\n").removesuffix(b"\r")


@options
class ListenOptions:
    """Address to listen on, and its TLS certificate."""

    listen: str = option(
        LISTENING, "--listen", metavar="HOST:PORT", default="127.0.0.1:1884", show_default=True,
        help="Address to listen on; * is any address.",
    )  # fmt: skip
    ready_file: str | None = option(
        LISTENING, "--ready-file", metavar="FILE", help="Write the address to this file once clients can connect."
    )
    listen_cert: str | None = option(
        TLS, "--listen-cert", metavar="FILE", help="Speak TLS with clients, with this certificate (PEM)."
    )
    listen_key: str | None = option(
        TLS, "--listen-key", metavar="FILE", help="Key of this certificate, if it is in a separate file."
    )

    def __post_init__(self) -> None:
        with ErrorTranslation(click.UsageError, ArgumentError):
            arguments.tls_pair("--listen-cert", "--listen-key", (self.listen_cert, self.listen_key))

    def address(self) -> tuple[str, int]:
        """Host and port."""
        from mqttscope.transport.target import AddressError, parse_listen

        with ErrorTranslation(click.UsageError, AddressError):
            return parse_listen(self.listen)

    def refusing(self) -> ErrorTranslation:
        """A context that reports why listening on this address failed, and what may help."""
        import errno

        from mqttscope.transport.link import reason
        from mqttscope.transport.target import shown

        host, port = self.address()
        known = {
            errno.EADDRINUSE: f"port {port} is in use",
            errno.EACCES: f"no permission for port {port}; ports from 1024 on do not need it",
            errno.EADDRNOTAVAIL: f"{shown(host, port)} is not an address of this host",
        }

        def why(error: Any) -> str:
            return known.get(error.errno) or reason(error)

        return ErrorTranslation(CommandFailedError, OSError, before=f"cannot listen on {self.listen}: ", text=why)

    def write_address(self, address: str) -> None:
        """Write the listening address to the ready file atomically."""
        from mqttscope.capture.write import write_file

        if self.ready_file is not None:
            with ErrorTranslation(CommandFailedError, OSError, before=f"cannot write {self.ready_file}: "):
                write_file(self.ready_file, f"{address}\n".encode())

    def context(self) -> ssl.SSLContext | None:
        """TLS context for clients; ``None`` without a certificate."""
        from mqttscope.transport.tls import TlsError, listen_context

        if not self.listen_cert:
            return None
        with ErrorTranslation(click.UsageError, TlsError):
            return listen_context(self.listen_cert, self.listen_key)


class PaceType(shared.Word):
    """``recorded``, ``asap``, ``causal``, or a speed factor such as ``2x``."""

    name = "recorded|Nx|asap|causal"

    def parse(self, text: str) -> str | float:
        """Parse a word, or a factor above 0."""
        if text in PACES:
            return text
        number = text.removesuffix("x").removesuffix("X")
        try:
            speed = float(number)
        except ValueError:
            speed = 0.0
        if not 1e-6 <= speed <= 1e6 or number == text:
            raise ValueError(f"{text!r} is not one of {', '.join(PACES)}, nor a speed such as 2x or 0.5x")
        return speed


@options
class PaceOptions:
    """Speed of a replay."""

    pace: str | float = option(
        PLAYING, "--pace", type=PaceType(), default="recorded", show_default=True, metavar="PACE",
        help="Speed: recorded, a factor such as 2x, asap, or causal (each packet after the packets it depends on).",
    )  # fmt: skip

    def read(self) -> Pace:
        from mqttscope.api.recorded import read_pace

        return read_pace(self.pace)


@options
class RecordedOptions:
    """Part of a recording to play, and names to change in it."""

    clients: tuple[str, ...] = option(
        SELECTION, "--client", multiple=True, metavar="ID", help="Play only these clients (* for any characters)."
    )
    expression: str | None = option(
        SELECTION, "--filter", "-f", metavar="EXPR",
        help="Play only packets that match (docs/filters.md), and packets that these need.",
    )  # fmt: skip
    start: str | None = option(
        SELECTION, "--start", metavar="TIME",
        help="Start at this time of the recording: 2026-01-02T03:04:05Z, or 90s from its start.",
    )  # fmt: skip
    end: str | None = option(SELECTION, "--end", metavar="TIME", help="End at this time of the recording.")
    topics: tuple[str, ...] = option(
        CHANGES, "--map-topic", multiple=True, metavar="FROM=TO", help="Rename topics: 'plant/#=lab/#'."
    )
    names: tuple[str, ...] = option(
        CHANGES, "--map-client", multiple=True, metavar="FROM=TO", help="Rename clients: 'dev-*=test-*'."
    )


@options
class ChangeOptions:
    """Further changes to a recording."""

    settings: tuple[str, ...] = option(
        CHANGES, "--set", multiple=True, metavar="PATH=VALUE", help="Change a field: connect.keep_alive=30."
    )
    unset: tuple[str, ...] = option(
        CHANGES, "--unset", multiple=True, metavar="PATH", help="Leave out this field or property."
    )
    convert: ProtocolVersion | None = option(
        CHANGES, "--convert", type=shared.Version(), metavar="3.1.1|5.0",
        help="Convert to this version of MQTT, if that is possible without loss.",
    )  # fmt: skip
    lossy: bool = option(
        CHANGES, "--lossy", is_flag=True, help="With --convert 3.1.1: drop whatever 3.1.1 cannot express."
    )
    copies: int = option(
        CHANGES, "--clients", type=click.IntRange(1, 100_000), default=1, show_default=True, metavar="K",
        help="Play each recorded client K times in parallel.",
    )  # fmt: skip
    topic_template: str | None = option(
        CHANGES, "--topic-template", metavar="TEXT", help="Topic template for the copies. [default: {topic}]"
    )

    def __post_init__(self) -> None:
        if self.lossy and (self.convert is None or self.convert.text != "3.1.1"):
            raise click.UsageError("--lossy needs --convert 3.1.1; no other conversion loses anything")


@options
class RunOptions:
    """Outputs of a live run: a recording, findings, a report."""

    lint: bool = option(OUTPUT, "--lint", is_flag=True, help="Lint the live traffic, with the options of lint.")
    judging: shared.JudgingOptions = group(
        shared.JudgingOptions,
        shown={"exit_zero": "Exit with code 0 despite differences and findings; errors still fail the run."},
    )
    write: str | None = option(
        OUTPUT, "--write", "-w", metavar="FILE", help="Record the live traffic in this pcapng file."
    )
    form: str = option(
        OUTPUT, "--format", type=click.Choice(("text", "jsonl")), default="text", show_default=True,
        help="Format of the report.",
    )  # fmt: skip
    output: str | None = option(
        OUTPUT, "--output", "-o", metavar="FILE", help="Write the report to this file. [default: standard output]"
    )
    colour: bool | None = shared.colour_option()

    def __post_init__(self) -> None:
        for name, path in (("output", self.output), ("write", self.write)):
            if path == "":
                raise click.UsageError(f"--{name} needs a file name")
        refuse_capture_name(self.write)

    def refuse_inputs(self, captures: tuple[str, ...]) -> None:
        """Raise a usage error if the report would overwrite an input capture or the recording."""
        from mqttscope.cli.output import refuse_inputs

        if self.output is not None:
            refuse_inputs(self.output, captures, {"the file of --write": self.write})

    def view(self) -> View:
        """View for the report."""
        from mqttscope.cli.output import make_view

        colour = self.colour if self.output is None else False
        return make_view(colour=colour, time_format="relative")


class MappedPort(shared.Word):
    """``1883=1884``."""

    name = "RECORDED=LIVE"

    def parse(self, text: str) -> tuple[int, int]:
        """Parse two ports."""
        numbers = text.split("=")
        if len(numbers) != 2 or not all(
            port.isascii() and port.isdigit() and 0 < int(port) < 65_536 for port in numbers
        ):
            raise ValueError(f"{text!r} is not RECORDED=LIVE, such as 1883=1884")
        return int(numbers[0]), int(numbers[1])


@options
class ReplayOptions:
    """The options of ``replay``."""

    captures: tuple[str, ...] = shared.captures_argument()
    broker: str = option(
        BROKER, "--broker", metavar="URL", required=True, envvar="MQTTSCOPE_BROKER",
        help="Broker to connect to: mqtt://, mqtts://, ws://, wss://[USER@]HOST[:PORT].",
    )  # fmt: skip
    ports_map: tuple[tuple[int, int], ...] = option(
        BROKER, "--map-port", type=MappedPort(), multiple=True,
        help="Play connections recorded on port RECORDED against port LIVE.",
    )  # fmt: skip
    connect: ConnectOptions = group(ConnectOptions)
    ports: tuple[tuple[int, str], ...] = shared.ports_option()
    files: shared.FileOptions = group(shared.FileOptions)
    recorded: RecordedOptions = group(RecordedOptions)
    changes: ChangeOptions = group(ChangeOptions)
    timing: PaceOptions = group(PaceOptions)
    max_gap: float | None = shared.positive_option(PLAYING, "--max-gap", "Maximum length of recorded silences.")
    rate: float | None = shared.positive_option(PLAYING, "--rate", "Send at most N messages per second.", metavar="N")
    patience: float = shared.positive_option(
        PLAYING, "--wait", "Timeout for each answer of the broker.", default=5.0, show_default=True
    )
    faithful: bool = option(
        PLAYING, "--faithful", is_flag=True,
        help="Send the recorded bytes in recorded order, whatever the broker answers.",
    )  # fmt: skip
    dry_run: bool = option(PLAYING, "--dry-run", is_flag=True, help="Print what would be sent, and send nothing.")
    yes: bool = option(PLAYING, "--yes", "-y", is_flag=True, help="Do not ask before sending to another host.")
    verify: bool = option(
        OUTPUT, "--verify", is_flag=True, help="Compare with the recording; exit code 1 if the live run differs."
    )
    run: RunOptions = group(RunOptions)

    def __post_init__(self) -> None:
        self.run.refuse_inputs(self.captures)


@options
class ServeOptions:
    """The options of ``serve``."""

    captures: tuple[str, ...] = shared.captures_argument()
    listening: ListenOptions = group(ListenOptions)
    websocket: bool = option(LISTENING, "--websocket", is_flag=True, help="Speak WebSocket with devices.")
    ports: tuple[tuple[int, str], ...] = shared.ports_option()
    dont_verify_checksums: bool = shared.checksums_option()
    files: shared.FileOptions = group(shared.FileOptions)
    recorded: RecordedOptions = group(RecordedOptions)
    timing: PaceOptions = group(PaceOptions)
    patience: float = shared.positive_option(
        PLAYING, "--wait", "Maximum wait for a late device before a delivery.", default=5.0, show_default=True
    )
    repeat: bool = option(
        PLAYING, "--repeat", is_flag=True,
        help="Start over when all connections of a client have been played; run until stopped.",
    )  # fmt: skip
    duration: float | None = shared.positive_option(END, "--duration", "Stop after this time.")
    verify: bool = option(
        OUTPUT, "--verify", is_flag=True,
        help="Compare the device with the recording; exit code 1 if it differs.",
    )  # fmt: skip
    run: RunOptions = group(RunOptions)

    def __post_init__(self) -> None:
        if self.run.write == "-":
            raise click.UsageError("--write needs a file name; /dev/stdout is standard output")
        self.run.refuse_inputs(self.captures)


@options
class ProxyOptions:
    """The options of ``proxy``."""

    listening: ListenOptions = group(ListenOptions)
    max_connections: int = option(
        LISTENING, "--max-connections", type=click.IntRange(1), default=1000, show_default=True, metavar="N",
        help="Maximum number of clients at the same time.",
    )  # fmt: skip
    max_packet: int = option(
        LISTENING, "--max-packet", type=shared.PacketSize(), default=1 << 20, metavar="BYTES",
        help="Maximum size of packets to lint; larger packets are only forwarded. [default: 1M]",
    )  # fmt: skip
    upstream: str = option(
        BROKER, "--upstream", metavar="URL", required=True,
        help="Broker to forward to: mqtt://, mqtts://, ws://, wss://HOST[:PORT].",
    )  # fmt: skip
    connect_timeout: float | None = option(
        BROKER, "--connect-timeout", type=click.FloatRange(0), callback=shared.finite, metavar="SECONDS",
        help="Timeout for the broker [default: 10] and for a client's CONNECT [default: 30]; 0: no timeout.",
    )  # fmt: skip
    tls: TlsOptions = group(TlsOptions)
    lint: bool = option(OUTPUT, "--lint/--no-lint", default=True, show_default=True, help="Lint the traffic.")
    judging: shared.JudgingOptions = group(shared.JudgingOptions)
    form: str | None = shared.format_option()
    outputs: tuple[str, ...] = shared.outputs_option()
    metrics: MetricsOptions = group(MetricsOptions)
    write: str | None = option(OUTPUT, "--write", "-w", metavar="FILE", help="Record the traffic in this pcapng file.")
    show: bool = option(OUTPUT, "--show/--quiet", default=False, help="Show packets as they pass. [default: quiet]")
    colour: bool | None = shared.colour_option()
    stop_on_finding: bool = option(
        END, "--stop-on-finding", is_flag=True, help="Stop at the first finding that fails the run."
    )
    duration: float | None = shared.positive_option(END, "--duration", "Stop after this time.")

    def __post_init__(self) -> None:
        if self.write in ("", "-"):
            raise click.UsageError("--write needs a file name; /dev/stdout is standard output")
        refuse_capture_name(self.write)
        if self.stop_on_finding and not self.lint:
            raise click.UsageError("--stop-on-finding needs the linter")


@options
class MutateOptions:
    """The options of ``mutate``."""

    captures: tuple[str, ...] = shared.captures_argument(required=False, metavar="[CAPTURE...]")
    broker: tuple[str, ...] = option(
        BROKER, "--broker", multiple=True, metavar="[NAME=]URL", envvar="MQTTSCOPE_BROKER",
        help="Broker to test: mqtt://, mqtts://, ws://, wss://[USER@]HOST[:PORT]; may be repeated.",
    )  # fmt: skip
    allowed: tuple[str, ...] = option(
        BROKER, "--yes-i-may-test", multiple=True, metavar="HOST", help="Allow testing a broker on this other host."
    )
    spawn: str | None = option(
        BROKER, "--spawn", metavar="COMMAND", help="Start the broker with this command, and again after a crash."
    )
    pid: int | None = option(
        BROKER, "--broker-pid", type=click.IntRange(1), metavar="PID", help="Process ID of the broker to monitor."
    )
    connect: ConnectOptions = group(ConnectOptions, shown={})
    ports: tuple[tuple[int, str], ...] = shared.ports_option()
    files: shared.FileOptions = group(shared.FileOptions)
    expression: str | None = option(
        SELECTION, "--filter", "-f", metavar="EXPR",
        help="Mutate only connections with a packet that matches (docs/filters.md).",
    )  # fmt: skip
    pattern: str = option(
        CASES, "--mutation", default="*", metavar="PATTERN",
        help="Only these mutations: publish.topic_name, '*:utf8-*'.",
    )  # fmt: skip
    seed: int = option(
        CASES, "--seed", type=click.IntRange(0), default=1, show_default=True, metavar="N",
        help="Seed of all random choices.",
    )  # fmt: skip
    limit: int | None = option(
        CASES, "--cases", type=click.IntRange(1), metavar="N", help="Play N cases. [default: one per mutation]"
    )
    number: int | None = option(
        CASES, "--case", type=click.IntRange(0), metavar="K", help="Play only the case with this number."
    )
    side: str | None = option(
        CASES, "--side", type=click.Choice(("client", "server")),
        help="Sender of the mutated packets, with --list and --write. [default: client]",
    )  # fmt: skip
    seconds: float | None = shared.positive_option(CASES, "--duration", "Start no case after this time.")
    patience: float = shared.positive_option(
        CASES, "--wait", "Timeout for a reaction of the broker.", default=1.0, show_default=True
    )
    longest: float = shared.positive_option(
        CASES, "--longest", "Skip cases that need a pause longer than this.", default=10.0, show_default=True
    )
    rate: float | None = shared.positive_option(CASES, "--rate", "Start at most N cases per second.", metavar="N")
    jobs: int = option(
        CASES, "--jobs", type=click.IntRange(1, 64), default=1, show_default=True, metavar="N",
        help="Play N cases at the same time; cases that seem to deviate are repeated alone.",
    )  # fmt: skip
    listing: bool = option(
        OUTPUT, "--list", is_flag=True, help="List the mutations and the statements that they break, then exit."
    )
    write: str | None = option(
        OUTPUT, "--write", "-w", metavar="FILE", help="Write the mutated flows to this pcapng file; test no broker."
    )
    folder: str | None = option(
        OUTPUT, "--reduce", metavar="FOLDER",
        help="Reduce failing cases and write them to this folder; needs a single broker.",
    )  # fmt: skip
    form: str = option(
        OUTPUT, "--format", type=click.Choice(("text", "json", "jsonl", "junit", "sarif", "markdown", "html")),
        default="text", show_default=True, help="Format of the report.",
    )  # fmt: skip
    output: str | None = option(
        OUTPUT, "--output", "-o", metavar="FILE", help="Write the report to this file. [default: standard output]"
    )
    show_secrets: bool = option(OUTPUT, "--show-secrets", is_flag=True, help="Show passwords in the report.")
    colour: bool | None = shared.colour_option()

    def __post_init__(self) -> None:
        """Refuse options that exclude each other; no option is silently ignored."""
        if not self.listing and not self.captures:
            raise click.UsageError("Missing argument 'CAPTURE...'.")
        for name, path in (("write", self.write), ("output", self.output), ("reduce", self.folder)):
            if path == "":
                raise click.UsageError(f"--{name} needs a file or folder name")
        self._check_pattern()
        if self.listing:
            self._check_list()
            return
        if self.number is not None and self.limit is not None:
            raise click.UsageError("--case plays one case, --cases plays N: give one of them")
        if bool(self.brokers()) == (self.write is not None):
            raise click.UsageError("use one of --broker URL, --write FILE and --list")
        if self.write is None:
            self._check_brokers()
        else:
            self._check_write(self.write)
        if self.output is not None:
            from mqttscope.cli.output import refuse_inputs

            refuse_inputs(self.output, self.captures, {"the file of --write": self.write})

    def brokers(self) -> tuple[str, ...]:
        """Brokers to test; with ``--write``, a broker from the environment is ignored."""
        return self.broker if self.write is None or "broker" in dict(on_command_line()) else ()

    def _check_pattern(self) -> None:
        from mqttscope.mqtt.view import utf8
        from mqttscope.mutate import select

        side = self.side or "client"
        if not select(self.pattern, sender=side):
            raise click.UsageError(f"--mutation: no mutation of a {side} matches '{utf8(self.pattern)}'")

    def _check_list(self) -> None:
        of_list = {"listing", "pattern", "side", "form", "output", "colour"}
        idle = next((spelled for name, spelled in on_command_line() if name not in of_list), None)
        if idle is not None:
            raise click.UsageError(f"--list only shows mutations: {idle} has no effect there")
        if self.form not in PROGRAMS and self.form != "text":
            raise click.UsageError(f"--list has the formats text, json and jsonl, not {self.form}")

    def _check_write(self, target: str) -> None:
        from mqttscope.cli.output import refuse_inputs

        if target == "-":
            raise click.UsageError("--write needs a file name; /dev/stdout is standard output")
        idle = next((spelled for name, spelled in on_command_line() if name in _OF_BROKERS), None)
        if idle is not None:
            raise click.UsageError(f"{idle} needs a broker, and --write does not use one")
        if self.form not in PROGRAMS and self.form != "text":
            raise click.UsageError(
                f"--format {self.form} is for results of brokers; with --write, json and jsonl list the written flows"
            )
        if self.output is not None and self.form == "text":
            raise click.UsageError("--output with --write is for the list of flows: add --format json or jsonl")
        refuse_capture_name(target)
        refuse_inputs(target, self.captures, option="--write")

    def _check_brokers(self) -> None:
        if self.side == "server":
            raise click.UsageError("--side server needs --list or --write: a broker receives packets of clients")
        if self.spawn is not None:
            _check_command(self.spawn)
        if self.spawn and self.pid:
            raise click.UsageError("--spawn starts a broker, --broker-pid names a running one: use one of them")
        if len(self.broker) > 1 and (self.spawn or self.pid or self.folder):
            raise click.UsageError("--spawn, --broker-pid and --reduce are for one broker: give one --broker")
        if self.folder is not None and os.path.lexists(self.folder) and not os.path.isdir(self.folder):
            raise click.UsageError(f"--reduce: {self.folder} is not a folder")


PROGRAMS = ("json", "jsonl")
"""Formats for programs: lists of mutations and of written flows."""
_OF_BROKERS = frozenset(
    {"spawn", "pid", "folder", "patience", "longest", "rate", "jobs", "allowed", "show_secrets"}
    | {"ca", "cert", "key", "server_name", "insecure", "user", "password_file", "connect_timeout"}
)


def _check_command(command: str) -> None:
    import shlex

    try:
        words = shlex.split(command)
    except ValueError as error:
        raise click.UsageError(f"--spawn: {command}: {str(error).lower()}") from None
    if not words:
        raise click.UsageError("--spawn needs the command that starts the broker")

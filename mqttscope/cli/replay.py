"""``mqttscope replay``: play recorded connections against a broker, and compare what it answers."""

from __future__ import annotations

from typing import Any

import click

from mqttscope.cli.lint_options import OF_LINT, judging, judging_settings
from mqttscope.cli.options import CAPTURES, Port, Version, colour_option, finite, front_end

FORMATS = ("text", "jsonl")
PACES = ("recorded", "asap", "causal")
TURNS, COPIES = click.IntRange(1, 1_000_000), click.IntRange(1, 100_000)


class PaceType(click.ParamType):  # type: ignore[type-arg]
    """``recorded``, ``asap``, ``causal``, or how many times as fast: ``2x``."""

    name = "recorded|Nx|asap|causal"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | float:
        """A word, or a number above 0."""
        if value in PACES or isinstance(value, float):
            return value  # type: ignore[no-any-return]
        number = str(value).removesuffix("x").removesuffix("X")
        try:
            speed = float(number)
        except ValueError:
            speed = 0.0
        if not 1e-6 <= speed <= 1e6 or number == value:
            self.fail(f"{value!r} is not one of {', '.join(PACES)}, nor a speed such as 2x or 0.5x", param, ctx)
        return speed


class MappedPort(click.ParamType):  # type: ignore[type-arg]
    """``1883=1884``."""

    name = "RECORDED=LIVE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        """Two ports."""
        if isinstance(value, tuple):
            return value
        numbers = str(value).split("=")
        if len(numbers) != 2 or not all(one.isascii() and one.isdigit() and 0 < int(one) < 65_536 for one in numbers):
            self.fail(f"{value!r} is not RECORDED=LIVE, such as 1883=1884", param, ctx)
        return int(numbers[0]), int(numbers[1])


def limiting(command: Any) -> Any:
    """The option that keeps reports short."""
    return click.option(
        "--limit",
        type=click.IntRange(min=0),
        default=200,
        show_default=True,
        metavar="N",
        help="Show N differences and N findings as text.",
    )(command)


def take_over_lint(command: click.Command) -> None:
    """Hide the options of lint, which explains them, but for the one that means more here."""
    for parameter in command.params:
        if not isinstance(parameter, click.Option) or parameter.name not in OF_LINT:
            continue
        if parameter.name == "exit_zero":
            parameter.help = "Differences and findings do not change the exit code; errors do."
        else:
            parameter.hidden = True


def selecting(command: Any) -> Any:
    """Options that say what of a recording is played, and under which names."""
    for decorate in reversed(
        (
            click.option(
                "--client", "clients", multiple=True, metavar="ID", help="Only these clients (* for any characters)."
            ),
            click.option(
                "--filter", "-f", "expression", metavar="EXPR", help="Only packets that match, and what they need."
            ),
            click.option(
                "--start", metavar="TIME", help="Begin here: 2026-01-02T03:04:05Z, or 90s after the beginning."
            ),
            click.option("--end", metavar="TIME", help="End here."),
            click.option(
                "--map-topic", "topics", multiple=True, metavar="FROM=TO", help="Rename topics: 'plant/#=lab/#'."
            ),
            click.option(
                "--map-client", "names", multiple=True, metavar="FROM=TO", help="Rename clients: 'dev-*=test-*'."
            ),
        )
    ):
        command = decorate(command)
    return command


def connecting(command: Any) -> Any:
    """Options that say how to reach a broker, and as whom."""
    for decorate in reversed(
        (
            click.option("--ca", metavar="FILE", help="CA certificates for the broker. [default: the system's]"),
            click.option("--cert", metavar="FILE", help="Client certificate to show to the broker (PEM)."),
            click.option("--key", metavar="FILE", help="Its key, where it is in another file."),
            click.option(
                "--server-name", metavar="NAME", help="Name for SNI and in the certificate. [default: the host]"
            ),
            click.option("--insecure", is_flag=True, help="Check neither the broker's certificate nor its host name."),
            click.option(
                "--user", metavar="NAME", envvar="MQTTSCOPE_USER", help="User name instead of the recorded ones."
            ),
            click.option("--password-file", metavar="FILE", help="Password or token. [default: $MQTTSCOPE_PASSWORD]"),
            click.option(
                "--connect-timeout",
                type=click.FloatRange(0, min_open=True),
                callback=finite,
                default=10.0,
                show_default=True,
                metavar="SECONDS",
                help="Longest time to connect.",
            ),
        )
    ):
        command = decorate(command)
    return command


@click.command(
    epilog="""\b
Examples:
  mqttscope replay site.pcapng --broker mqtt://127.0.0.1:1883 --pace causal --verify
  mqttscope replay site.pcapng --broker mqtts://test.example --dry-run --map-topic 'plant/#=lab/#'
"""
)
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...", type=CAPTURES)
@click.option(
    "--broker",
    metavar="URL",
    required=True,
    envvar="MQTTSCOPE_BROKER",
    help="mqtt://, mqtts://, ws://, wss://[USER@]HOST[:PORT].",
)
@click.option(
    "--map-port",
    "ports_map",
    type=MappedPort(),
    multiple=True,
    help="Play connections to port RECORDED against port LIVE.",
)
@connecting
@click.option(
    "--pace", type=PaceType(), default="recorded", show_default=True, help="How fast, and what waits for what."
)
@click.option(
    "--max-gap",
    type=click.FloatRange(0, min_open=True),
    callback=finite,
    metavar="SECONDS",
    help="Shorten recorded silences to this length.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    callback=finite,
    metavar="N",
    help="At most N messages per second.",
)
@click.option(
    "--wait",
    "patience",
    type=click.FloatRange(0, min_open=True),
    callback=finite,
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How long the broker has for each answer.",
)
@click.option(
    "--faithful", is_flag=True, help="Send the recorded bytes in recorded order, whatever the broker answers."
)
@selecting
@click.option("--set", "settings", multiple=True, metavar="PATH=VALUE", help="Change a field: connect.keep_alive=30.")
@click.option("--unset", multiple=True, metavar="PATH", help="Leave a field or property out.")
@click.option("--convert", type=Version(), metavar="3.1.1|5.0", help="Speak this version, where nothing is lost.")
@click.option("--lossy", is_flag=True, help="With --convert 3.1.1: leave out what 3.1.1 cannot say.")
@click.option("--loop", type=TURNS, default=1, show_default=True, metavar="N", help="Play the recording N times.")
@click.option(
    "--clients",
    "copies",
    type=COPIES,
    default=1,
    show_default=True,
    metavar="K",
    help="Play K copies of each client.",
)
@click.option("--client-template", metavar="TEXT", help="Names of the copies. [default: {client}-{n}]")
@click.option("--topic-template", metavar="TEXT", help="Topics of the copies. [default: {topic}]")
@click.option("--verify", is_flag=True, help="Compare with the recording; exit code 1 where it differs.")
@click.option("--write", "-w", metavar="FILE", help="Record the live run into a pcapng file.")
@click.option("--lint", is_flag=True, help="Lint the live run, with the options of lint.")
@judging
@judging_settings
@click.option(
    "--format", "format_", type=click.Choice(FORMATS), default="text", show_default=True, help="Format of the report."
)
@click.option("--output", "-o", metavar="FILE", help="Write the report to this file.")
@limiting
@click.option("--dry-run", is_flag=True, help="Print what would be done.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before sending to another host.")
@click.option("--port", "ports", type=Port(), metavar="PORT[:mqtt|ws|tls]", multiple=True, help="MQTT was spoken here.")
@click.option("--keylog", metavar="FILE", help="Keys of TLS sessions. [default: $SSLKEYLOGFILE]")
@front_end
@colour_option
def command(**given: Any) -> int:
    """Play the client side of recorded connections against a broker, within its limits."""
    from mqttscope.cli.replaying import run

    return run(given)


take_over_lint(command)

"""``mqttscope mutate``: mutated flows for a broker, with the specification as the judge."""

from __future__ import annotations

from typing import Any

import click

from mqttscope.cli.options import CAPTURES, Port, colour_option, finite, front_end
from mqttscope.cli.replay import connecting

FORMATS = ("text", "json", "jsonl", "junit", "sarif", "markdown", "html")


def _positive(help_: str, **more: Any) -> dict[str, Any]:
    return {
        "type": click.FloatRange(0, min_open=True),
        "callback": finite,
        "metavar": "SECONDS",
        "help": help_,
        **more,
    }


@click.command(
    epilog="""\b
Examples:
  mqttscope mutate site.pcapng --broker mqtt://127.0.0.1 --mutation 'publish,subscribe'
  mqttscope mutate site.pcapng --broker mqtt://127.0.0.1:1899 --spawn 'mosquitto -p 1899'
  mqttscope mutate --list --mutation '*:utf8-*'

As in replay: --ca, --cert, --key, --server-name, --insecure, --user, --password-file.
"""
)
@click.argument("captures", nargs=-1, metavar="[CAPTURE...]", type=CAPTURES)
@click.option(
    "--broker", metavar="[NAME=]URL", envvar="MQTTSCOPE_BROKER", help="mqtt://, mqtts://, ws://, wss://[USER@]HOST."
)
@click.option("--matrix", multiple=True, metavar="[NAME=]URL", help="Another broker; not with --reduce.")
@click.option(
    "--together",
    is_flag=True,
    help="Run against all brokers at the same time; no two URLs may lead to the same broker.",
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of all choices.")
@click.option("--cases", "limit", type=click.IntRange(1), metavar="N", help="Play N cases. [default: each mutation]")
@click.option("--duration", "seconds", **_positive("Start no case after SECONDS."))
@click.option("--case", "number", type=click.IntRange(0), metavar="K", help="Play only this case.")
@click.option(
    "--mutation",
    "pattern",
    default="*",
    metavar="PATTERN",
    help="Only these: publish.topic_name, '*:utf8-*'.",
)
@click.option("--filter", "-f", "expression", metavar="EXPR", help="Only connections with a packet that matches.")
@click.option("--list", "listing", is_flag=True, help="Show the mutations, and what they break.")
@click.option("--write", "-w", metavar="FILE", help="Write the flows to a pcapng file; no broker.")
@click.option("--side", type=click.Choice(("client", "server")), help="Mutate this side, for --list and --write.")
@click.option("--spawn", metavar="COMMAND", help="Start the broker, and again after a crash.")
@click.option(
    "--broker-pid",
    "pid",
    type=click.IntRange(1),
    metavar="PID",
    help="Process of the broker, to watch.",
)
@click.option("--reduce", "folder", metavar="FOLDER", help="Reduce failing cases; not with --matrix.")
@click.option("--wait", "patience", **_positive("How long the broker has to react.", default=1.0, show_default=True))
@click.option(
    "--longest", **_positive("Skip cases that need a pause longer than this.", default=10.0, show_default=True)
)
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    callback=finite,
    metavar="N",
    help="Start at most N cases per second.",
)
@click.option("--yes-i-may-test", "allowed", multiple=True, metavar="HOST", help="Allow a broker on this other host.")
@connecting
@click.option(
    "--format", "format_", type=click.Choice(FORMATS), default="text", show_default=True, help="Format of the report."
)
@click.option("--output", "-o", metavar="FILE", help="Write the report to this file.")
@click.option("--show-secrets", is_flag=True, help="Show passwords in the report.")
@click.option("--port", "ports", type=Port(), metavar="PORT[:mqtt|ws|tls]", multiple=True, help="MQTT was spoken here.")
@click.option("--keylog", metavar="FILE", help="Keys of TLS sessions. [default: $SSLKEYLOGFILE]")
@front_end
@colour_option
def command(**given: Any) -> int:
    """Send mutated flows to a broker, and judge its answers by the specification."""
    from mqttscope.cli.mutating import run

    return run(given)


_OF_REPLAY = {"ca", "cert", "key", "server_name", "insecure", "user", "password_file", "connect_timeout"}
for _parameter in command.params:
    # They are explained by replay, whose they are.
    if isinstance(_parameter, click.Option) and _parameter.name in _OF_REPLAY:
        _parameter.hidden = True

"""``mqttscope serve``: play the broker of recorded connections to a device, and compare what the device does."""

from __future__ import annotations

from typing import Any

import click

from mqttscope.cli.lint_options import judging, judging_settings
from mqttscope.cli.options import CAPTURES, Port, Version, colour_option, finite, front_end, max_packet_option
from mqttscope.cli.replay import FORMATS, PaceType, limiting, selecting, take_over_lint

MATCHES = ("auto", "client", "order")
UNEXPECTED = ("answer", "ignore", "close")


@click.command(
    epilog="""\b
Examples:
  mqttscope serve site.pcapng --listen 127.0.0.1:1884 --client 'sensor-*' --verify
  mqttscope serve site.pcapng --listen '*:1884' --pace causal --lint --duration 600

Exit code 1 for a difference or a finding that counts, 3 when it cannot listen, read or write.
"""
)
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...", type=CAPTURES)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:1884",
    show_default=True,
    help="Address for devices; * is any address.",
)
@click.option("--listen-cert", metavar="FILE", help="Speak TLS with devices, with this certificate (PEM).")
@click.option("--listen-key", metavar="FILE", help="Its key, where it is in another file.")
@click.option("--websocket", is_flag=True, help="Devices speak WebSocket.")
@click.option(
    "--match",
    type=click.Choice(MATCHES),
    default="auto",
    show_default=True,
    help="Choose recorded connections by client, in order, or both.",
)
@click.option(
    "--pace",
    type=PaceType(),
    default="recorded",
    show_default=True,
    help="How fast, and what waits for what.",
)
@click.option(
    "--wait",
    "patience",
    type=click.FloatRange(0, min_open=True),
    callback=finite,
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How long deliveries wait for a device that is late.",
)
@click.option(
    "--unexpected",
    type=click.Choice(UNEXPECTED),
    default="answer",
    show_default=True,
    help="What to do with packets that are not in the recording.",
)
@click.option("--repeat", is_flag=True, help="Start over when all connections of a client have been played.")
@click.option("--keep-running", is_flag=True, help="Continue when everything has been played.")
@max_packet_option("A larger packet ends its connection.")
@selecting
@click.option("--verify", is_flag=True, help="Compare what the device does with the recording.")
@click.option("--write", "-w", metavar="FILE", help="Record the run into a pcapng file.")
@click.option("--lint", is_flag=True, help="Lint the live traffic, with the options of lint.")
@judging
@judging_settings
@click.option(
    "--format", "format_", type=click.Choice(FORMATS), default="text", show_default=True, help="Format of the report."
)
@click.option("--output", "-o", metavar="FILE", help="Write the report to this file.")
@limiting
@click.option("--ready-file", metavar="FILE", help="Write the address into this file once devices can connect.")
@click.option(
    "--duration",
    type=click.FloatRange(0, min_open=True),
    callback=finite,
    metavar="SECONDS",
    help="End after this time.",
)
@click.option("--port", "ports", type=Port(), metavar="PORT[:mqtt|ws|tls]", multiple=True, help="MQTT was spoken here.")
@click.option(
    "--mqtt-version", type=Version(), default="auto", metavar="auto|3.1|3.1.1|5.0", help="Version where unknown."
)
@click.option("--keylog", metavar="FILE", help="Keys of TLS sessions. [default: $SSLKEYLOGFILE]")
@front_end
@colour_option
def command(**given: Any) -> int:
    """Play the broker of recorded connections to devices.

    Each device gets the recorded connection of its Client Identifier; answers fit its packets, and its limits are
    obeyed.
    """
    from mqttscope.cli.serving import run

    return run(given)


take_over_lint(command)

"""``mqttscope proxy``: forward MQTT connections to a broker, record and lint them."""

from __future__ import annotations

from typing import Any

import click

from mqttscope.cli.lint_options import CONFIDENCES, FORMATS, SEVERITIES, codes_option, judging_settings, level_option
from mqttscope.cli.options import colour_option, finite, max_packet_option


@click.command(
    epilog="""\b
Examples:
  mqttscope proxy --listen 127.0.0.1:1884 --upstream mqtt://broker:1883 --write device.pcapng
  mqttscope proxy --listen '*:1884' --upstream mqtts://broker.example --ca ca.pem --stop-on-finding

Exit code 1 when a finding counts, 3 when the proxy could not listen or write, or never reached the
broker.
"""
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:1884",
    show_default=True,
    help="Address for clients; * is any address.",
)
@click.option(
    "--upstream", metavar="URL", required=True, help="The broker: mqtt://, mqtts://, ws://, wss://HOST[:PORT]."
)
@click.option("--write", "-w", metavar="FILE", help="Record the traffic into a pcapng file.")
@click.option("--listen-cert", metavar="FILE", help="Speak TLS with clients, with this certificate (PEM).")
@click.option("--listen-key", metavar="FILE", help="Its key, where it is in another file.")
@click.option("--ca", metavar="FILE", help="CA certificates for the broker. [default: the system's]")
@click.option("--cert", metavar="FILE", help="Client certificate to show to the broker (PEM).")
@click.option("--key", metavar="FILE", help="Its key, where it is in another file.")
@click.option("--insecure", is_flag=True, help="Check neither the broker's certificate nor its host name.")
@click.option("--lint/--no-lint", default=True, show_default=True, help="Lint the traffic.")
@click.option("--stop-on-finding", is_flag=True, help="End with the first finding that counts.")
@codes_option("select", "Only these rules: PUB101, PUB, ALL.")
@codes_option("extend-select", "These rules as well.")
@codes_option("ignore", "Not these rules.")
@level_option("fail-on", SEVERITIES, "Lowest severity that fails. [default: error]")
@level_option("fail-confidence", CONFIDENCES, "Lowest confidence that fails. [default: certain]")
@level_option("min-confidence", CONFIDENCES, "Lowest confidence that is shown. [default: heuristic]")
@level_option("min-severity", SEVERITIES, "Lowest severity that is shown; changes no exit code.", "SEVERITY")
@click.option(
    "--format",
    "format_",
    type=click.Choice(FORMATS),
    metavar="FORMAT",
    envvar="MQTTSCOPE_FORMAT",
    help=f"{', '.join(FORMATS)}. [default: full]",
)
@click.option(
    "--output",
    "-o",
    multiple=True,
    metavar="[FORMAT=]FILE",
    help="Write to this file; FORMAT=FILE adds a further format.",
)
@judging_settings
@click.option(
    "--duration",
    type=click.FloatRange(0, min_open=True),
    callback=finite,
    metavar="SECONDS",
    help="End after this time.",
)
@click.option("--count", type=click.IntRange(1), metavar="PACKETS", help="End after this many packets.")
@click.option("--show/--quiet", default=False, help="Show packets as they pass. [default: quiet]")
@click.option("--ready-file", metavar="FILE", help="Write the address into this file once clients can connect.")
@click.option(
    "--max-connections",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    metavar="N",
    help="Clients served at the same time.",
)
@click.option(
    "--connect-timeout",
    type=click.FloatRange(0),
    callback=finite,
    metavar="SECONDS",
    help="Limit for the broker (10) and for a CONNECT (30); 0: none.",
)
@max_packet_option("Larger packets are forwarded but not judged.")
@colour_option
def command(**given: Any) -> int:
    """Forward MQTT connections to a broker, record and lint their traffic. Needs no capture privileges."""
    from mqttscope.cli.proxying import run

    return run(given)

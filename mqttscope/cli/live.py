"""Commands with a broker or a device at the other end: ``replay``, ``serve``, ``mutate`` and ``proxy``.

The run of each is in a module of its own, which is imported when the command runs: that takes a third of a second.
"""

from __future__ import annotations

from mqttscope.cli.command import make_command
from mqttscope.cli.live_options import MutateOptions, ProxyOptions, ReplayOptions, ServeOptions


@make_command(
    ReplayOptions,
    epilog="""\b
Examples:
  mqttscope replay site.pcapng --broker mqtt://127.0.0.1:1883 --pace causal --verify
  mqttscope replay site.pcapng --broker mqtts://test.example --dry-run --map-topic 'plant/#=lab/#'
""",
)
def replay(given: ReplayOptions) -> int:
    """Play the client side of recorded connections against a broker, within its limits.

    CAPTURE is a file, a glob, a directory, or - for standard input.
    """
    from mqttscope.cli.replaying import run

    return run(given)


@make_command(
    ServeOptions,
    epilog="""\b
Examples:
  mqttscope serve site.pcapng --listen 127.0.0.1:1884 --client 'sensor-*' --verify
  mqttscope serve site.pcapng --listen '*:1884' --pace causal --lint --duration 600

Exit code 1 for a difference or a finding that counts, 3 when it cannot listen, read or write.
""",
)
def serve(given: ServeOptions) -> int:
    """Play the broker of recorded connections to devices.

    CAPTURE is a file, a glob, a directory, or - for standard input. Each device gets the recorded connection of its
    Client Identifier. Answers fit the packets of the device, and its limits are obeyed.
    """
    from mqttscope.cli.serving import run

    return run(given)


@make_command(
    MutateOptions,
    epilog="""\b
Examples:
  mqttscope mutate site.pcapng --broker mqtt://127.0.0.1 --mutation 'publish,subscribe'
  mqttscope mutate site.pcapng --broker mqtt://127.0.0.1:1899 --spawn 'mosquitto -p 1899'
  mqttscope mutate --list --mutation '*:utf8-*'

As in replay: --ca, --cert, --key, --server-name, --insecure, --user, --password-file, --connect-timeout.
""",
)
def mutate(given: MutateOptions) -> int:
    """Send mutated flows to a broker, and judge its answers by the specification.

    CAPTURE is a file, a glob, a directory, or - for standard input: its connections are mutated.
    """
    from mqttscope.cli.mutating import run

    return run(given)


@make_command(
    ProxyOptions,
    epilog="""\b
Examples:
  mqttscope proxy --listen 127.0.0.1:1884 --upstream mqtt://broker:1883 --write device.pcapng
  mqttscope proxy --listen '*:1884' --upstream mqtts://broker.example --ca ca.pem --stop-on-finding

Exit code 1 when a finding counts, 3 when the proxy could not listen or write, or never reached the
broker.
""",
)
def proxy(given: ProxyOptions) -> int:
    """Forward MQTT connections to a broker, and record and lint their traffic. Needs no capture privileges."""
    from mqttscope.cli.proxying import run

    return run(given)

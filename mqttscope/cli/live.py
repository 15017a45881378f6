"""Commands that talk to a broker or a device: ``replay``, ``serve``, ``mutate`` and ``proxy``.

Each imports its run from a separate module only when it runs, because the import takes a third of a second.
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
def replay(args: ReplayOptions) -> int:
    """Play the client side of recorded connections against a broker, within the limits of the broker.

    CAPTURE is a file, a glob, a directory, or - for standard input.
    """
    from mqttscope.cli.replaying import run

    return run(args)


@make_command(
    ServeOptions,
    epilog="""\b
Examples:
  mqttscope serve site.pcapng --listen 127.0.0.1:1884 --client 'sensor-*' --verify
  mqttscope serve site.pcapng --listen '*:1884' --pace causal --lint --duration 600

Exit code 1 for a difference or a finding that fails the run, 3 when it cannot listen, read or write.
""",
)
def serve(args: ServeOptions) -> int:
    """Stand in for the recorded broker: answer devices as the broker did.

    CAPTURE is a file, a glob, a directory, or - for standard input. Each device gets the recorded connection of its
    Client Identifier. Answers are adapted to the packets and the limits of the device.
    """
    from mqttscope.cli.serving import run

    return run(args)


@make_command(
    MutateOptions,
    epilog="""\b
Examples:
  mqttscope mutate site.pcapng --broker mqtt://127.0.0.1 --mutation 'publish,subscribe'
  mqttscope mutate site.pcapng --broker mqtt://127.0.0.1:1899 --spawn 'mosquitto -p 1899'
  mqttscope mutate --list --mutation '*:utf8-*'

These options of mqttscope replay work here too: --ca, --cert, --key, --server-name, --insecure, --user,
--password-file, --connect-timeout.
""",
)
def mutate(args: MutateOptions) -> int:
    """Send mutated flows to a broker, and judge its answers by the specification.

    CAPTURE is a file, a glob, a directory, or - for standard input. It provides the connections to mutate.
    """
    from mqttscope.cli.mutating import run

    return run(args)


@make_command(
    ProxyOptions,
    epilog="""\b
Examples:
  mqttscope proxy --listen 127.0.0.1:1884 --upstream mqtt://broker:1883 --write device.pcapng
  mqttscope proxy --listen '*:1884' --upstream mqtts://broker.example --ca ca.pem --stop-on-finding

Exit code 1 when a finding fails the run, 3 when the proxy could not listen or write, or never reached the broker.
""",
)
def proxy(args: ProxyOptions) -> int:
    """Forward MQTT connections to a broker, and record and lint their traffic. Needs no capture privileges."""
    from mqttscope.cli.proxying import run

    return run(args)

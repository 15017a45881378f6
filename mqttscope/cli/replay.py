"""``mqttscope replay``: play recorded connections against a broker, and compare what it answers."""

from __future__ import annotations

from mqttscope.cli.command import make_command
from mqttscope.cli.live_options import ReplayOptions


@make_command(
    ReplayOptions,
    epilog="""\b
Examples:
  mqttscope replay site.pcapng --broker mqtt://127.0.0.1:1883 --pace causal --verify
  mqttscope replay site.pcapng --broker mqtts://test.example --dry-run --map-topic 'plant/#=lab/#'
""",
)
def command(given: ReplayOptions) -> int:
    """Play the client side of recorded connections against a broker, within its limits.

    CAPTURE is a file, a glob, a directory, or - for standard input.
    """
    from mqttscope.cli.replaying import run

    return run(given)

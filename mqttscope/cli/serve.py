"""``mqttscope serve``: play the broker of recorded connections to a device, and compare what the device does."""

from __future__ import annotations

from mqttscope.cli.command import make_command
from mqttscope.cli.live_options import ServeOptions


@make_command(
    ServeOptions,
    epilog="""\b
Examples:
  mqttscope serve site.pcapng --listen 127.0.0.1:1884 --client 'sensor-*' --verify
  mqttscope serve site.pcapng --listen '*:1884' --pace causal --lint --duration 600

Exit code 1 for a difference or a finding that counts, 3 when it cannot listen, read or write.
""",
)
def command(given: ServeOptions) -> int:
    """Play the broker of recorded connections to devices.

    CAPTURE is a file, a glob, a directory, or - for standard input. Each device gets the recorded connection of its
    Client Identifier. Answers fit the packets of the device, and its limits are obeyed.
    """
    from mqttscope.cli.serving import run

    return run(given)

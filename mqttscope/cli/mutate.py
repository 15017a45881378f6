"""``mqttscope mutate``: mutated flows for a broker, with the specification as the judge."""

from __future__ import annotations

from mqttscope.cli.command import make_command
from mqttscope.cli.live_options import MutateOptions


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
def command(given: MutateOptions) -> int:
    """Send mutated flows to a broker, and judge its answers by the specification.

    CAPTURE is a file, a glob, a directory, or - for standard input: its connections are mutated.
    """
    from mqttscope.cli.mutating import run

    return run(given)

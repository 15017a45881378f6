"""``mqttscope proxy``: forward MQTT connections to a broker, record and lint them."""

from __future__ import annotations

from mqttscope.cli.command import make_command
from mqttscope.cli.live_options import ProxyOptions


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
def command(given: ProxyOptions) -> int:
    """Forward MQTT connections to a broker, and record and lint their traffic. Needs no capture privileges."""
    from mqttscope.cli.proxying import run

    return run(given)

"""User settings for the dissection of a capture."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.stream import MAX_PACKET_BYTES

MQTT: Final = "mqtt"
WEBSOCKET: Final = "ws"
TLS: Final = "tls"

WELL_KNOWN_PORTS: Final[dict[int, str]] = {1883: MQTT, 8883: TLS}
"""Ports that IANA assigned to MQTT.  The bytes still decide: TLS on 1883 is recognised as TLS."""


@dataclass(slots=True)
class Options:
    """Settings of a dissector."""

    ports: dict[int, str] = field(default_factory=dict)
    """Ports that the user names, with their protocol: ``mqtt``, ``ws`` or ``tls``."""
    version: ProtocolVersion | None = None
    """Version of connections without a captured CONNECT; ``None`` detects it."""
    max_packet_bytes: int = MAX_PACKET_BYTES
    """Longer packets are skipped and reported."""
    decrypting: bool = False
    """Whether TLS is decrypted: TLS flows are kept even without a sign of MQTT."""
    detect: bool = True
    """Whether to look for MQTT on every port, not only on named and well-known ports."""
    verify_checksums: bool = field(default=True, repr=False)
    """Whether segments with a wrong checksum may be damaged.  Not in ``repr``, which identifies lakes of 1.0.0."""
    count_by_connection: bool = False
    """Whether to number the packets of each connection from 0 instead of all packets of the run: such numbers do not
    depend on other captured connections."""

    def protocol_of(self, first: int, second: int) -> tuple[str | None, int | None]:
        """The protocol of a flow by its ports, and the server's port, as far as they are known.

        Ports named by the user go before well-known ports, and the second port (the responder's) before the first.
        """
        for table in (self.ports, WELL_KNOWN_PORTS):
            for port in (second, first):
                if port in table:
                    return table[port], port
        return None, None

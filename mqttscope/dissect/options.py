"""What the user may say about a capture before it is dissected."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.stream import MAX_PACKET_BYTES

MQTT: Final = "mqtt"
WEBSOCKET: Final = "ws"
TLS: Final = "tls"

WELL_KNOWN_PORTS: Final[dict[int, str]] = {1883: MQTT, 8883: TLS}
"""Ports that IANA assigned to MQTT.  What is found there is still looked at: TLS on 1883 is seen as TLS."""


@dataclass(slots=True)
class Options:
    """How to dissect."""

    ports: dict[int, str] = field(default_factory=dict)
    """Ports that the user names, with what is spoken there: ``mqtt``, ``ws`` or ``tls``."""
    version: ProtocolVersion | None = None
    """Version of connections whose CONNECT was not captured; ``None`` finds it out."""
    max_packet_bytes: int = MAX_PACKET_BYTES
    """Longer packets are passed over and reported."""
    decrypting: bool = False
    """Somebody decrypts: flows of TLS are kept in view even where nothing says yet that they carry MQTT."""
    detect: bool = True
    """Look for MQTT on every port, not only on those named and well known."""
    verify_checksums: bool = field(default=True, repr=False)
    """Segments whose checksum is wrong may be damaged.  Not in ``repr``, which tells lakes of 1.0.0 apart."""
    count_by_connection: bool = False
    """Number the packets of each connection from 0 instead of those of the run: such numbers do not depend on what
    else was captured."""

    def protocol_of(self, first: int, second: int) -> tuple[str | None, int | None]:
        """What the ports of a flow say: the protocol and the server's port, as far as they are known.

        The user's word goes before the well-known ports, and the second port (the responder's) before the first.
        """
        for table in (self.ports, WELL_KNOWN_PORTS):
            for port in (second, first):
                if port in table:
                    return table[port], port
        return None, None

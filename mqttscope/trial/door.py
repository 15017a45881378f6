"""How the broker is reached: the same way for every connection of a run."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.transport.client import Address, connect
from mqttscope.transport.link import Link, Listener
from mqttscope.transport.target import Target


@dataclass(slots=True)
class Door:
    """Where connections go, and as whom."""

    target: Target
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    addresses: Sequence[Address] | None = None
    """What the host was resolved to; those that were looked at are those that are connected to."""
    user_name: str | None = None
    """Replaces the recorded ones."""
    password: bytes | None = None
    connect_timeout_s: float = 5.0

    async def open(self, listener: Listener, version: ProtocolVersion, *, timeout_s: float | None = None) -> Link:
        """A new connection; `LinkError` where there is none."""
        return await connect(
            self.target,
            listener,
            tls=self.tls,
            server_name=self.server_name,
            timeout_s=timeout_s or self.connect_timeout_s,
            addresses=self.addresses,
            subprotocol="mqttv3.1" if version == ProtocolVersion.V3_1 else "mqtt",
        )

"""TCP segments as frames that tshark can read, whatever they came in: plain IPv4, one pair of addresses per connection.

Each connection gets a client address of its own and all servers the same address and port.  So tshark need not be told
ports, and ports that are used again, VLANs, tunnels and IP fragments do not concern it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from mqttscope.net.frame import Frame
from mqttscope.net.segment import ACK, MASK, PSH, SYN, Segment

LINK_TYPE_RAW = 101
"""Frames begin with the IP header."""
SERVER_PORT = 443
MAX_PAYLOAD = 32 * 1024
"""Payload of one frame: a segment that the network card put together may be longer than an IPv4 datagram can be."""
MAX_CONNECTIONS = 1 << 24
"""So many have addresses of their own."""

_CLIENT_PORT = 49_152
_SERVER = bytes((192, 0, 2, 1))
_PREFERENCES_OFF = ("ip.check_checksum:FALSE", "tcp.check_checksum:FALSE")
ARGUMENTS = tuple(word for preference in _PREFERENCES_OFF for word in ("-o", preference))
"""For tshark: the frames have no checksums."""
_HEADERS = struct.Struct("!BBHIBBH4s4sHHIIBBHI")


def frames(segment: Segment, connection: int, *, from_client: bool) -> Iterator[Frame]:
    """Frames with the payload of a segment; none for one without.

    ``connection``: a number that no other connection has which the same tshark knows.
    """
    client = (0x0A000000 | connection % MAX_CONNECTIONS).to_bytes(4, "big")
    addresses = (client, _SERVER) if from_client else (_SERVER, client)
    ports = (_CLIENT_PORT, SERVER_PORT) if from_client else (SERVER_PORT, _CLIENT_PORT)
    first = segment.sequence + bool(segment.flags & SYN)
    payload, whole = segment.payload, len(segment.payload) + segment.missing
    for start in range(0, len(payload), MAX_PAYLOAD):
        part = payload[start : start + MAX_PAYLOAD]
        length = min(whole - start, MAX_PAYLOAD)
        head = _HEADERS.pack(
            0x45, 0, 40 + length, 0, 64, 6, 0, *addresses,
            *ports, (first + start) & MASK, segment.acknowledgment, 0x50, PSH | ACK, 0xFFFF, 0,
        )  # fmt: skip
        yield Frame(segment.frame, segment.timestamp_ns, LINK_TYPE_RAW, head + part, 40 + length, segment.capture)

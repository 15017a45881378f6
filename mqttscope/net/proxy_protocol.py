"""The PROXY protocol: a header that load balancers put before the bytes of a connection, with the client's address.

Versions 1 and 2 (https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt, sections 2.1 and 2.2).
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final

from mqttscope.net.segment import endpoints

MAX_LINE: Final = 107
"""Longest header of version 1, its end of line included."""
SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
"""First bytes of a header of version 2."""
MIN_SIGN: Final = 5
"""Minimum number of bytes that show that a stream begins with a header."""
_WORD: Final = b"PROXY "
_LINE: Final = re.compile(rb"PROXY TCP[46] (\S+) (\S+) (\d{1,5}) (\d{1,5})\r\n")
_ADDRESS_LENGTHS: Final = {0x11: 4, 0x21: 16}
"""Family and protocol of version 2 for TCP over IPv4 and IPv6."""


def header_length(head: bytes) -> int | None:
    """Length of the header of a stream, 0 without a header; ``None`` while more bytes are needed."""
    if head.startswith(_WORD):
        end = head.find(b"\r\n", 0, MAX_LINE)
        return end + 2 if end >= 0 else None if len(head) < MAX_LINE else 0
    if head.startswith(SIGNATURE):
        if len(head) < 16:
            return None
        if head[12] >> 4 != 2:
            return 0
        length = 16 + int.from_bytes(head[14:16], "big")
        return length if len(head) >= length else None
    return None if head and any(start.startswith(head) for start in (_WORD, SIGNATURE)) else 0


def is_health_check(header: bytes) -> bool:
    """Whether a header has the command LOCAL: the load balancer connects for itself, such as for a health check."""
    return header.startswith(SIGNATURE) and header[12:13] == b"\x20"


def parse_endpoints(header: bytes) -> tuple[str, str] | None:
    """Client and server in the header (``10.0.0.4:51234``); ``None`` without TCP endpoints."""
    line = _LINE.fullmatch(header)
    if line is None:
        size = _ADDRESS_LENGTHS.get(header[13]) if header.startswith(SIGNATURE) and len(header) >= 16 else None
        if size is None or len(header) < 20 + 2 * size or not header[12] & 1:
            return None
        return endpoints(header[16 : 20 + 2 * size])
    source, destination, *numbers = (part.decode("ascii", "replace") for part in line.groups())
    try:
        shown = [ip_address(source), ip_address(destination)]
    except ValueError:
        return None
    names = [f"[{address}]" if address.version == 6 else str(address) for address in shown]
    return f"{names[0]}:{int(numbers[0])}", f"{names[1]}:{int(numbers[1])}"

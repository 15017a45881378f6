"""Inputs at the limits of the package net."""

from __future__ import annotations

from mqttscope.net.headers import walk
from mqttscope.net.segment import NotSegment
from tests.net.octets import frame, ip4, tcp


def tunnels(count: int) -> str:
    """What is found in as many tunnels of GRE, one in the other."""
    packet = ip4(tcp())
    for _ in range(count):
        packet = ip4(b"\0\0\x08\0" + packet, 47)
    found = walk(frame(packet, 228))
    return found.detail if isinstance(found, NotSegment) else "TCP"

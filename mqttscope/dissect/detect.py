"""Recognising what a flow speaks from its first bytes, whatever its port."""

from __future__ import annotations

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.resync import count_packets, plausible_header

VERSIONS = (ProtocolVersion.V5, ProtocolVersion.V3_1_1)
MIN_RUN = 2
"""Packets in a row that one direction must show when nothing but plausibility speaks for MQTT."""


def starts_with_connect(head: bytes) -> bool | None:
    """Whether a stream begins with a CONNECT, however broken its flags are; ``None`` while too little is known."""
    if not head:
        return None
    if head[0] >> 4 != 1:
        return False
    at = 1
    while at < len(head) and head[at] & 0x80 and at < 4:
        at += 1
    name = head[at + 1 : at + 9]
    for wanted in (b"\x00\x04MQTT", b"\x00\x06MQIsdp"):
        if name[: len(wanted)].lower() == wanted.lower():
            return True
        if len(name) < len(wanted) and wanted.startswith(name):
            return None
    return False


def looks_like_mqtt(first: bytes, second: bytes) -> bool:
    """Whether the beginnings of both directions of a flow joined in the middle look like MQTT packets.

    Both directions must begin with a packet, and together they must hold more than chance gives.
    """
    one, other = count_packets(first, VERSIONS), count_packets(second, VERSIONS)
    return bool(one and other) and max(one, other) >= MIN_RUN


def begins_with_packet(head: bytes) -> bool:
    """Whether a sensible packet lies at the beginning."""
    return count_packets(head, VERSIONS) > 0


def may_start_packet(head: bytes) -> bool:
    """Whether a packet of any version may begin here, by its fixed header; also while nothing is there."""
    return not head or any(plausible_header(head, 0, len(head), version) for version in VERSIONS)


def client_speaks(data: bytes) -> bool | None:
    """Whether packets that only one side may send show who this is: True client, False server, None unknown."""
    position = 0
    while position < len(data):
        kind = data[position] >> 4
        if kind in (1, 8, 10, 12):
            return True
        if kind in (2, 9, 11, 13):
            return False
        at, length, shift = position + 1, 0, 0
        while at < len(data) and shift < 28:
            length |= (data[at] & 0x7F) << shift
            shift += 7
            at += 1
            if data[at - 1] < 0x80:
                break
        position = at + length
    return None

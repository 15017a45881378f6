"""Packets in the words of `mqttscope.lint.conversation_text`, such as ``publish a/b hot qos=1 id=3``."""

from __future__ import annotations

import re
from typing import Any

from mqttscope.lint.conversation_text import parse_packet
from mqttscope.mqtt import ControlPacket, ProtocolVersion
from tests.tables import steps

WORD = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^\s"])+')
SIDES = {">": "client", "<": "server"}


def octets(text: str) -> bytes:
    """Bytes in hexadecimal, of which a group may be repeated: ``30 ff*3``."""
    groups = (group.partition("*") for group in text.split())
    return b"".join(bytes.fromhex(group) * int(times or 1) for group, _, times in groups)


def packet(text: str, version: ProtocolVersion = ProtocolVersion.V5, **defaults: Any) -> ControlPacket:
    """One packet; a CONNECT is of this version and has these fields unless it says so."""
    return parse_packet(WORD.findall(text), version, **defaults)


def told(
    text: str, version: ProtocolVersion = ProtocolVersion.V5, **defaults: Any
) -> list[tuple[str, list[ControlPacket | bytes]]]:
    """What sides say one after the other, such as ``> connect; < connack & publish a; > raw c0``."""
    rows = []
    for step in steps(text):
        result: list[ControlPacket | bytes] = []
        for part in step[1:].split(" & "):
            kind, _, digits = part.strip().partition(" ")
            result.append(octets(digits) if kind == "raw" else packet(part, version, **defaults))
        rows.append((SIDES[step[0]], result))
    return rows

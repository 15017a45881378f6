"""Finding packets where framing is unknown: after a gap, after a broken length, in the middle of a connection."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from mqttscope.mqtt.codec import NEED_MORE, TOO_LONG, decode, packet_end, well_formed
from mqttscope.mqtt.constants import RESERVED, V5, PacketType, ProtocolVersion
from mqttscope.mqtt.declare import PACKETS, ControlPacket
from mqttscope.mqtt.packets import FIXED_LENGTHS, Publish

MAX_BELIEVED: Final = 65_536
"""Maximum length of a CONNECT or PUBLISH that a search accepts."""
MAX_BELIEVED_OTHER: Final = 4_096
"""Maximum length of any other packet that a search accepts."""

_STARTS: Final = re.compile(rb"[\x10\x20\x30-\x35\x38-\x3d\x40\x50\x62\x70\x82\x90\xa2\xb0\xc0\xd0\xe0\xf0]")
"""First bytes that the table of fixed header flags allows."""
_NAMES: Final = (b"\0\x04MQ", b"\0\x06MQ")
_PUBLISH: Final = PacketType.PUBLISH
_AUTH: Final = PacketType.AUTH
_MAY_BE_LONG: Final = (PacketType.CONNECT, PacketType.PUBLISH)
_WITH_A_TOPIC: Final = (PacketType.PUBLISH, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE)
_TAKEN: Final = 0
_REFUSED: Final = -1


def find_packets(
    data: bytes, start: int, versions: Sequence[ProtocolVersion], *, final: bool = False, alone: bool = True
) -> tuple[int, int]:
    """First position at or after ``start`` where plausible packets begin: ``(position, needed)``.

    ``needed`` is 0 when packets begin at ``position``; otherwise packets cannot begin before it, and ``data`` must be
    ``needed`` bytes long before the next call can decide.  Two plausible packets in a row are accepted; when the data
    are ``final``, also a single packet that ends with them, if ``alone`` allows it.  The result depends on the bytes
    alone: a position is skipped only when no further bytes could make it a packet.
    """
    end = len(data)
    match = _STARTS.search(data, start)
    while match is not None:
        position = match.start()
        needed = 0
        for version in versions:
            verdict = _judge(data, position, end, version, final=final, alone=alone)
            if verdict == _TAKEN:
                return position, 0
            if verdict != _REFUSED:
                needed = min(needed, verdict) if needed else verdict
        if needed:
            return position, needed
        match = _STARTS.search(data, position + 1)
    return end, end + 1


def _judge(data: bytes, at: int, end: int, version: ProtocolVersion, *, final: bool, alone: bool) -> int:
    """Whether packets begin here: ``_TAKEN``, ``_REFUSED``, or the length of data that a decision needs."""
    for second in (False, True):
        if at >= end:
            if final:
                return _TAKEN if alone else _REFUSED
            return end + 1
        if not plausible_header(data, at, end, version):
            return _REFUSED
        body, stop = packet_end(data, at, end)
        if body == NEED_MORE:
            return _REFUSED if final else end + 1
        kind = data[at] >> 4
        if kind == PacketType.CONNECT and not any(name.startswith(data[body : body + 4]) for name in _NAMES):
            return _REFUSED
        if kind == PacketType.PUBLISH:
            verdict = _topic(data, body, end)
            if verdict == _REFUSED or (verdict != _TAKEN and final):
                return _REFUSED
            if verdict != _TAKEN or (second and data[body : body + 2] != b"\0\0"):
                return verdict
        if stop - at > (MAX_BELIEVED if kind in _MAY_BE_LONG else MAX_BELIEVED_OTHER):
            return _REFUSED
        if stop > end:
            return _REFUSED if final else stop
        packet = well_formed(data[at:stop], body - at, version)
        if packet is None or not _is_plausible(packet):
            return _REFUSED
        at = stop
    return _TAKEN


def _topic(data: bytes, body: int, end: int) -> int:
    """`_judge` for the topic of a PUBLISH, whether or not its payload has arrived."""
    text = body + 2
    if text > end:
        return text
    after = text + (data[body] << 8 | data[body + 1])
    if after > end:
        return after
    try:
        topic = data[text:after].decode()
    except UnicodeDecodeError:
        return _REFUSED
    return _TAKEN if _good_topic(topic) or not topic else _REFUSED


def count_packets(data: bytes, versions: Sequence[ProtocolVersion]) -> int:
    """Number of plausible packets at the start of ``data``, in the version that fits best; the last may be cut."""
    best = 0
    for version in versions:
        good = position = 0
        while position < len(data) and plausible_header(data, position, len(data), version):
            body, stop = packet_end(data, position, len(data))
            if body <= 0 or stop > len(data):
                break
            packet = well_formed(data[position:stop], body - position, version)
            if packet is None or not _is_plausible(packet):
                good = 0
                break
            good += 1
            position = stop
        best = max(best, good)
    return best


def _is_plausible(packet: ControlPacket) -> bool:
    """Whether the content of a decoded packet is plausible: chance matches are mostly empty or odd."""
    if isinstance(packet, Publish):
        topic = packet.topic_name
        if not topic:
            return packet.properties is not None and packet.properties.topic_alias is not None
        return _good_topic(topic) and packet.packet_identifier != 0
    return getattr(packet, "packet_identifier", 1) != 0


def _good_topic(topic: str) -> bool:
    return topic.isprintable() and "#" not in topic and "+" not in topic


def plausible_header(data: bytes, position: int, end: int, version: ProtocolVersion) -> bool:
    """Whether type, flags and length may be a fixed header of this version."""
    first = data[position]
    kind, flags = first >> 4, first & 15
    if kind == RESERVED or (kind == _AUTH and version != V5):
        return False
    if kind == _PUBLISH:
        if flags & 6 == 6:
            return False
    elif flags != PACKETS[kind].fixed_flags:
        return False
    body, stop = packet_end(data, position, end)
    if body == TOO_LONG:
        return False
    if body == NEED_MORE:
        return True
    length = stop - body
    low, high = FIXED_LENGTHS.get((kind, version), (0, 1 << 28))
    if not low <= length <= high:
        return False
    if length < 3 and kind in _WITH_A_TOPIC:
        return False
    if kind == _PUBLISH and body + 2 <= end:
        return (data[body] << 8 | data[body + 1]) + 2 <= length
    return True


def evidence(raw: bytes) -> tuple[ProtocolVersion, str] | None:
    """Version of one packet of a connection without CONNECT, and the reason; ``None`` if the packet fits both versions.

    Without a CONNECT, 3.1 looks like 3.1.1: the result for both is 3.1.1.
    """
    kind = PacketType(raw[0] >> 4) if raw[0] >> 4 else None
    if kind is None or kind in (PacketType.PINGREQ, PacketType.PINGRESP):
        return None
    name = f"{'an' if kind.name[0] in 'AU' else 'a'} {kind.name}"
    five = decode(raw, ProtocolVersion.V5)
    three = decode(raw, ProtocolVersion.V3_1_1)
    if isinstance(five, ControlPacket):
        if not isinstance(three, ControlPacket):
            return ProtocolVersion.V5, f"{name} that is well formed in 5.0 only"
        if isinstance(five, Publish) and five.properties is not None:
            if five.properties:
                return ProtocolVersion.V5, "a PUBLISH with well-formed properties"
            return ProtocolVersion.V5, "a PUBLISH with an empty property block"
        return None
    if isinstance(three, ControlPacket):
        return ProtocolVersion.V3_1_1, f"{name} that is well formed in 3.1.1 only"
    return None

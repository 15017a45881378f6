"""Secrets in bytes that the user enters for decoding: fewer bytes are hidden than in captures, to show the fault.

A damaged CONNECT is read again as if one length were wrong: the Remaining Length, or the length of one field, corrected
so that all other fields fit.  Only Passwords and Authentication Data of these readings are hidden.  In a single packet
of a type without a password, only credentials with a known form or name are hidden.  All other bytes are treated as in
captures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from mqttscope.mqtt.codec import decode, packet_end
from mqttscope.mqtt.constants import RESERVED, PacketType, ProtocolVersion
from mqttscope.mqtt.declare import PACKETS, Malformed
from mqttscope.mqtt.packets import BRIDGE_LEVELS
from mqttscope.mqtt.properties import WILL
from mqttscope.secrets.forms import joined, token_ranges
from mqttscope.secrets.packets import (
    PASSWORD_FLAG,
    UNCLEAN,
    PropertyBlock,
    Ranges,
    are_flags,
    holds_connect,
    holds_secrets,
    is_clean,
)

MAX_REPAIRED: Final = 4_096
"""Maximum size of a CONNECT that is read in several ways."""
_CONNECT: Final = PacketType.CONNECT << 4
_NAME = re.compile(rb"MQTT|MQIsdp")
_LEVELS: Final = (*ProtocolVersion, *BRIDGE_LEVELS)
_TEXTS: Final = ("client_identifier", "will_topic", "user_name")


def hidden_in_user_input(raw: bytes) -> Ranges | None:
    """Hidden ranges of a damaged packet; ``None`` if no reading fits the bytes."""
    if not raw or len(raw) > MAX_REPAIRED:
        return None
    if raw[0] == _CONNECT:
        # The name follows a fixed header of two to five bytes and two bytes of length.
        name = next((hit for at in range(4, 8) if (hit := _NAME.match(raw, at))), None)
        readings = [] if name is None else [*_readings(raw, name.end())]
        return joined(place for reading in readings for place in reading) if readings else None
    return joined(token_ranges(raw)) if _is_one_without_secrets(raw) else None


def _is_one_without_secrets(raw: bytes) -> bool:
    """Whether bytes are one packet without a password, complete or cut after its topic."""
    kind = raw[0] >> 4
    body, end = packet_end(raw, 0, len(raw))
    if body <= 0 or end < len(raw) or holds_secrets(raw) or holds_connect(raw) or kind == RESERVED:
        return False
    if kind != PacketType.PUBLISH:
        return end == len(raw) and raw[0] & 15 == PACKETS[kind].fixed_flags
    topic_end = body + 2 + int.from_bytes(raw[body : body + 2], "big")
    return raw[0] & 6 != 6 and (end == len(raw) or (topic_end <= len(raw) and is_clean(raw[body + 2 : topic_end])))


def _readings(raw: bytes, name_end: int) -> Iterator[Ranges]:
    """Secret ranges in each reading of a CONNECT that fits all fields; ``name_end`` is after the protocol name."""
    at, length = name_end + 4, len(raw)
    if at > length or raw[name_end] not in _LEVELS or not are_flags(raw[name_end + 1], raw[name_end]):
        return
    flags, five, hidden = raw[name_end + 1], raw[name_end] == ProtocolVersion.V5, list[tuple[int, int]]()
    if five:
        block = PropertyBlock(raw, at, length, PacketType.CONNECT)
        if block.trusted is not None:
            return
        hidden, at = block.hidden, block.end
    names = ["client_identifier", *(["will_topic", "will_payload"] if flags & 4 else [])]
    names += [*(["user_name"] if flags & 0x80 else []), *(["password"] if flags & PASSWORD_FLAG else [])]
    for wrong in range(-1, len(names)):
        yield from _with_one_wrong(raw, at, names, wrong, five, hidden)


def _with_one_wrong(raw: bytes, at: int, names: list[str], wrong: int, five: bool, hidden: Ranges) -> Iterator[Ranges]:
    """Readings with a corrected length of the field ``wrong``; -1 for no correction."""
    before = _fields(raw, at, names[: max(0, wrong)], five)
    if before is None:
        return
    start, found_before = before
    if wrong < 0:
        whole = _fields(raw, at, names, five)
        if whole is not None and _ends(raw, whole[0]):
            yield [*hidden, *whole[1]]
        return
    if names[wrong] == "will_topic" and five:
        block = PropertyBlock(raw, start, len(raw), WILL)
        if block.trusted is not None:
            return
        found_before, start = [*found_before, *block.hidden], block.end
    most = len(raw) - start - 2
    if names[wrong] in _TEXTS:
        most = _clean_bytes(raw[start + 2 :])
    for size in range(most + 1):
        rest = _fields(raw, start + 2 + size, names[wrong + 1 :], five)
        if rest is not None and _ends(raw, rest[0]):
            own = [(start + 2, start + 2 + size)] if names[wrong] == "password" else []
            yield [*hidden, *found_before, *own, *rest[1]]


def _fields(raw: bytes, at: int, names: list[str], five: bool) -> tuple[int, Ranges] | None:
    """End of some fields, and their secret ranges; ``None`` if the fields do not fit."""
    hidden: Ranges = []
    for name in names:
        if name == "will_topic" and five:
            block = PropertyBlock(raw, at, len(raw), WILL)
            if block.trusted is not None:
                return None
            hidden += block.hidden
            at = block.end
        end = at + 2 + int.from_bytes(raw[at : at + 2], "big")
        if at + 2 > len(raw) or end > len(raw) or (name in _TEXTS and not is_clean(raw[at + 2 : end])):
            return None
        if name == "password":
            hidden.append((at + 2, end))
        elif name == "will_payload":
            hidden += token_ranges(raw[:end], at + 2)
        at = end
    return at, hidden


def _clean_bytes(raw: bytes) -> int:
    """Number of bytes at the beginning that may be text."""
    unclean = UNCLEAN.search(raw)
    text = raw if unclean is None else raw[: unclean.start()]
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(text)


def _ends(raw: bytes, at: int) -> bool:
    """Whether the bytes end at an offset, or only whole packets follow."""
    while at < len(raw):
        body, end = packet_end(raw, at, len(raw))
        if body <= 0 or end > len(raw) or isinstance(decode(raw[at:end], ProtocolVersion.V5), Malformed):
            return False
        at = end
    return True

"""What to hide in bytes that a user gives to be explained: less than in captures, since the user asks about the fault.

A damaged CONNECT is read once more as if one of its lengths were right: with another Remaining Length, or with the
length of one field such that all others fit.  What these readings call Password or Authentication Data is hidden, and
nothing else.  If no reading fits, all is shown up to the length that is wrong.  Bytes without a CONNECT and without a
packet that carries Authentication Data have credentials by form and name alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from mqttscope.mqtt.codec import decode, packet_end
from mqttscope.mqtt.constants import MalformedReason, PacketType, ProtocolVersion
from mqttscope.mqtt.declare import Malformed
from mqttscope.mqtt.packets import BRIDGE_LEVELS
from mqttscope.mqtt.properties import WILL
from mqttscope.secrets.forms import joined, token_ranges
from mqttscope.secrets.packets import (
    PASSWORD_FLAG,
    UNCLEAN,
    PropertyBlock,
    Ranges,
    hidden_in_damaged,
    holds_secrets,
    is_clean,
)

MAX_REPAIRED: Final = 4_096
"""Bytes of the longest CONNECT that is read in other ways."""
_NAME = re.compile(rb"MQTT|MQIsdp", re.IGNORECASE)
_LEVELS: Final = (*ProtocolVersion, *BRIDGE_LEVELS)
_TEXTS: Final = ("client_identifier", "will_topic", "user_name")


def hidden_in_given(raw: bytes, version: ProtocolVersion) -> Ranges:
    """Ranges of bytes, of which at least one packet is damaged, that are not shown."""
    name = _NAME.search(raw, 0, 64)
    if name is not None and len(raw) <= MAX_REPAIRED:
        readings = [*_readings(raw, name.end())]
        if readings:
            return joined([*(one for reading in readings for one in reading), *token_ranges(raw[: name.start()])])
    if name is None and not holds_secrets(raw):
        return joined(token_ranges(raw))
    hidden = hidden_in_damaged(raw, version)
    shown = _up_to_fault(raw, version)
    return [(max(start, shown), end) for start, end in hidden if end > shown]


def _up_to_fault(raw: bytes, version: ProtocolVersion) -> int:
    """The place after the first length that is wrong, if nothing secret can stand before it."""
    end = packet_end(raw, 0, len(raw))[1]
    found = decode(raw[: end if 0 < end <= len(raw) else len(raw)], version)
    if not isinstance(found, Malformed) or found.faults[0].reason is not MalformedReason.FIELD_OVERRUN:
        return 0
    fault = found.faults[0]
    return fault.offset + 2 if fault.field in ("protocol_name", *_TEXTS, "will.will_topic", "will.will_payload") else 0


def _readings(raw: bytes, name_end: int) -> Iterator[Ranges]:
    """What is secret in each reading of a CONNECT whose protocol name ends there, in which all fields fit."""
    at, length = name_end + 4, len(raw)
    if at > length or raw[name_end] not in _LEVELS:
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
    """The readings in which the length of one field is another one; -1 for none."""
    before = _fields(raw, at, names[: max(0, wrong)], five)
    if before is None:
        return
    start, found = before
    if wrong < 0:
        whole = _fields(raw, at, names, five)
        if whole is not None and _ends(raw, whole[0]):
            yield [*hidden, *whole[1]]
        return
    if names[wrong] == "will_topic" and five:
        block = PropertyBlock(raw, start, len(raw), WILL)
        if block.trusted is not None:
            return
        found, start = [*found, *block.hidden], block.end
    most = len(raw) - start - 2
    if names[wrong] in _TEXTS:
        most = _clean_bytes(raw[start + 2 :])
    for size in range(most + 1):
        rest = _fields(raw, start + 2 + size, names[wrong + 1 :], five)
        if rest is not None and _ends(raw, rest[0]):
            own = [(start + 2, start + 2 + size)] if names[wrong] == "password" else []
            yield [*hidden, *found, *own, *rest[1]]


def _fields(raw: bytes, at: int, names: list[str], five: bool) -> tuple[int, Ranges] | None:
    """Where some fields end, and what is secret in them; ``None`` if they do not fit."""
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
    """How many bytes at the beginning may be a text."""
    unclean = UNCLEAN.search(raw)
    text = raw if unclean is None else raw[: unclean.start()]
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(text)


def _ends(raw: bytes, at: int) -> bool:
    """Whether the bytes end here, or whole packets follow."""
    while at < len(raw):
        body, end = packet_end(raw, at, len(raw))
        if body <= 0 or end > len(raw) or isinstance(decode(raw[at:end], ProtocolVersion.V5), Malformed):
            return False
        at = end
    return True

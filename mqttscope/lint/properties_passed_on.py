"""What a server changed in the properties of a message that it has to pass on unaltered (5.0 3.3.2.3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mqttscope.lint.context import RuleContext
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.message_model import Messages, Sent, Told, told
from mqttscope.mqtt import ProtocolVersion, Publish

USER_PROPERTY = 0x26
SINGLE = {
    0x01: "payload_format_indicator",
    0x03: "content_type",
    0x08: "response_topic",
    0x09: "correlation_data",
}
"""Properties that a message has once."""
MARK = "\ufeff"
"""The character that some decoders take for a byte order mark and drop (5.0 1.5.4)."""


@dataclass(slots=True)
class Altered:
    """The properties of a message as published and as delivered."""

    sent: Sent
    before: Told
    after: Told
    is_sure: bool
    """Whether the delivery is of this message, as far as payloads can tell."""

    def changes(self) -> Iterator[tuple[str, str]]:
        """Names of single properties with what happened to them: ``added``, ``removed``, ``changed``."""
        for number, name in SINGLE.items():
            one, other = _single(self.before, number), _single(self.after, number)
            if one == other or is_unmarked(one, other):
                continue
            yield name, "added" if one in (None, 0) else "removed" if other in (None, 0) else "changed"

    def user_properties(self) -> tuple[list[Any], list[Any]]:
        """The User Properties as published and as delivered, in order."""
        return _pairs(self.before), _pairs(self.after)

    def unmarked(self) -> Iterator[str]:
        """Names of properties that differ by U+FEFF alone."""
        for number, name in SINGLE.items():
            if is_unmarked(_single(self.before, number), _single(self.after, number)):
                yield name
        one, other = self.user_properties()
        if one != other and _plain(one) == _plain(other):
            yield "user_property"


def altered(packet: Publish, at: RuleContext) -> Altered | None:
    """The difference between a delivery and the message that it is of; ``None`` where there is none for certain.

    Only the first copy that a client gets counts: others may come from bridges, which may lose properties.
    """
    if packet.dup:
        return None
    found = at.model(Messages).pairing(packet, at)
    if found is None:
        return None
    block = packet.properties
    sent = found.candidates[-1]
    if not sent.told and not block:
        return None
    after = told(block) if block else ()
    if after is None or found.owner in sent.copies:
        return None
    before = sent.told
    for one in found.candidates:
        if one.version is not ProtocolVersion.V5 or one.told is None or one.crowded:
            return None
        if one.told == after or (one is not sent and _sorted(one.told) != _sorted(sent.told or ())):
            return None
    if before is None or _sorted(before) == _sorted(after):
        return None
    return Altered(sent, before, after, found.sole is not None and not found.retained)


def altered_expiry(packet: Publish, at: RuleContext) -> tuple[Sent, str, bool] | None:
    """What is wrong with the Message Expiry Interval of a delivery however long it waited (5.0 3.3.2.3.3).

    The message, a sentence, and whether the delivery is of this message as far as payloads can tell; ``None`` where it
    may be right: it is there and not more than the one published, or a message without one has the same content.
    """
    found = None if packet.dup or packet.retain else at.model(Messages).pairing(packet, at)
    if found is None or found.retained or found.owner in found.candidates[-1].copies:
        return None
    expiries = [one.expiry for one in found.candidates if one.version is ProtocolVersion.V5]
    known = [expiry for expiry in expiries if expiry is not None]
    if len(known) < len(found.candidates):
        return None
    got = None if packet.properties is None else packet.properties.message_expiry_interval
    if got is not None and got <= max(known):
        return None
    told = "is missing" if got is None else f"is {got:,} s"
    sent = found.candidates[-1]
    return sent, f"{told}, and the message was published with {max(known):,} s", found.sole is not None


def doubt_of(difference: Altered, *, added: bool) -> dict[str, Any]:
    """Severity and confidence of a report: an error where something of this very message is lost or changed."""
    if added:
        return {"severity": Severity.WARNING}
    if not difference.is_sure:
        return {"severity": Severity.WARNING, "confidence": Confidence.HEURISTIC}
    return {}


def is_unmarked(one: Any, other: Any) -> bool:
    """Whether a text differs from another by U+FEFF alone, of which it has more."""
    if not (isinstance(one, str) and isinstance(other, str)):
        return False
    return len(one) > len(other) and one.replace(MARK, "") == other.replace(MARK, "")


def _single(block: Told, number: int) -> Any:
    for one, value in block:
        if one == number:
            return value
    return 0 if number == 0x01 else None


def _pairs(block: Told) -> list[Any]:
    return [value for number, value in block if number == USER_PROPERTY]


def _plain(pairs: list[Any]) -> list[tuple[str, ...]]:
    return [tuple(text.replace(MARK, "") for text in pair) for pair in pairs]


def _sorted(block: Told) -> tuple[Any, ...]:
    """What counts of a block: single properties by number, User Properties in their order."""
    return (*(_single(block, number) for number in SINGLE), *_pairs(block))

"""Changes by a server in the properties that it has to forward unaltered (5.0 3.3.2.3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mqttscope.lint.context import RuleContext
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.message_model import ForwardedProperties, Messages, PublishedMessage, forwarded_properties
from mqttscope.mqtt import ProtocolVersion, Publish

USER_PROPERTY = 0x26
SINGLE = {
    0x01: "payload_format_indicator",
    0x03: "content_type",
    0x08: "response_topic",
    0x09: "correlation_data",
}
"""Properties that a message can have only once."""
MARK = "\ufeff"
"""The character that some decoders remove as a byte order mark (5.0 1.5.4)."""


@dataclass(slots=True)
class PropertyDifference:
    """The properties of a message as published and as delivered."""

    sent: PublishedMessage
    before: ForwardedProperties
    after: ForwardedProperties
    is_sure: bool
    """Whether the payload proves that the delivery is of this message."""

    def changes(self) -> Iterator[tuple[str, str]]:
        """Names of single properties with the change: ``added``, ``removed``, ``changed``."""
        for number, name in SINGLE.items():
            before, after = _single(self.before, number), _single(self.after, number)
            if before == after or is_unmarked(before, after):
                continue
            yield name, "added" if before in (None, 0) else "removed" if after in (None, 0) else "changed"

    def user_properties(self) -> tuple[list[Any], list[Any]]:
        """The User Properties as published and as delivered, in order."""
        return _pairs(self.before), _pairs(self.after)

    def unmarked(self) -> Iterator[str]:
        """Names of properties that differ only in U+FEFF."""
        for number, name in SINGLE.items():
            if is_unmarked(_single(self.before, number), _single(self.after, number)):
                yield name
        before, after = self.user_properties()
        if before != after and _plain(before) == _plain(after):
            yield "user_property"


def property_difference(packet: Publish, at: RuleContext) -> PropertyDifference | None:
    """The properties that a delivery changed; ``None`` if it certainly changed nothing, or if that is unknown.

    Only the first copy for a client is compared: later copies may come from bridges, which may lose properties.
    """
    if packet.dup:
        return None
    pairing = at.model(Messages).pairing(packet, at)
    if pairing is None:
        return None
    block = packet.properties
    sent = pairing.candidates[-1]
    if not sent.forwarded and not block:
        return None
    after = forwarded_properties(block) if block else ()
    if after is None or pairing.owner in sent.copies:
        return None
    before = sent.forwarded
    for candidate in pairing.candidates:
        if candidate.version is not ProtocolVersion.V5 or candidate.forwarded is None or candidate.crowded:
            return None
        if candidate.forwarded == after or (
            candidate is not sent and _sorted(candidate.forwarded) != _sorted(before or ())
        ):
            return None
    if before is None or _sorted(before) == _sorted(after):
        return None
    return PropertyDifference(sent, before, after, pairing.sole is not None and not pairing.retained)


def expiry_difference(packet: Publish, at: RuleContext) -> tuple[PublishedMessage, str, bool] | None:
    """A Message Expiry Interval that is wrong however long the message waited (5.0 3.3.2.3.3).

    Returns the message, a sentence, and whether the payload proves that the delivery is of this message.  ``None`` if
    the interval may be right: not above the published one, or another message with this content lacks the interval.
    """
    pairing = None if packet.dup or packet.retain else at.model(Messages).pairing(packet, at)
    if pairing is None or pairing.retained or pairing.owner in pairing.candidates[-1].copies:
        return None
    expiries = [candidate.expiry for candidate in pairing.candidates if candidate.version is ProtocolVersion.V5]
    known = [expiry for expiry in expiries if expiry is not None]
    if len(known) < len(pairing.candidates):
        return None
    got = None if packet.properties is None else packet.properties.message_expiry_interval
    if got is not None and got <= max(known):
        return None
    difference = "is missing" if got is None else f"is {got:,} s"
    sent = pairing.candidates[-1]
    return sent, f"{difference}, and the message was published with {max(known):,} s", pairing.sole is not None


def doubt_of(difference: PropertyDifference, *, added: bool) -> dict[str, Any]:
    """Severity and confidence of a report: an error only if something of this very message is lost or changed."""
    if added:
        return {"severity": Severity.WARNING}
    if not difference.is_sure:
        return {"severity": Severity.WARNING, "confidence": Confidence.HEURISTIC}
    return {}


def is_unmarked(before: Any, after: Any) -> bool:
    """Whether the texts differ only in extra U+FEFF."""
    if not (isinstance(before, str) and isinstance(after, str)):
        return False
    return len(before) > len(after) and before.replace(MARK, "") == after.replace(MARK, "")


def _single(block: ForwardedProperties, number: int) -> Any:
    for identifier, value in block:
        if identifier == number:
            return value
    return 0 if number == 0x01 else None


def _pairs(block: ForwardedProperties) -> list[Any]:
    return [value for number, value in block if number == USER_PROPERTY]


def _plain(pairs: list[Any]) -> list[tuple[str, ...]]:
    return [tuple(text.replace(MARK, "") for text in pair) for pair in pairs]


def _sorted(block: ForwardedProperties) -> tuple[Any, ...]:
    """The comparable content: single properties by number, User Properties in order."""
    return (*(_single(block, number) for number in SINGLE), *_pairs(block))

"""Answers that a broker gave more often than it was asked.

Whoever sends a packet again is answered again: a PUBLISH with DUP, a PUBREL, on the same connection or on the next one
of the session.  So each connection is counted by itself, and as many answers are right as there were packets that ask
for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import (
    Connack,
    Connect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from mqttscope.replay.script import Entry, Script

_ASKS: dict[type[ControlPacket], type[ControlPacket]] = {
    Connect: Connack,
    Subscribe: Suback,
    Unsubscribe: Unsuback,
    Pubrel: Pubcomp,
    Pubrec: Pubrel,
    Pingreq: Pingresp,
}
"""What a packet of a client asks for; of a PUBLISH it depends on the QoS."""
_ANSWERS = (Connack, Suback, Unsuback, Puback, Pubrec, Pubcomp, Pubrel, Pingresp)
_DUP = 0x08

Key = tuple[type[ControlPacket], int | None]
"""Type of the answer and its packet identifier."""


@dataclass(slots=True)
class _Asked:
    request: Entry
    """The last one that asked."""
    times: int = 1
    answered: int = 0


@dataclass(slots=True, frozen=True)
class Repeated:
    """An answer that was given before."""

    entry: Entry
    request: Entry
    """What it answers: the last packet that asked for it."""
    asked: bool
    """Whether that was sent again as well, so that another answer is right."""


def repeated(script: Script) -> Iterator[Repeated]:
    """The answers of the broker that came once more for the same packet.

    An answer to what the connection does not show at all is none of them.
    """
    asked: dict[Key, _Asked] = {}
    for entry in script.entries:
        packet = entry.packet
        if isinstance(packet, Malformed):
            continue
        if entry.from_client:
            _ask(asked, entry, packet)
        elif isinstance(packet, Publish):
            if not packet.dup:
                # A new message under an identifier that an earlier one had.
                asked.pop((Pubrel, packet.packet_identifier), None)
        elif isinstance(packet, _ANSWERS):
            found = asked.get(_key(type(packet), packet))
            if found is None:
                if isinstance(packet, Pubrel):
                    # Of a message of an earlier connection, sent again on this one.
                    asked[_key(Pubrel, packet)] = _Asked(entry, answered=1)
            elif found.answered < found.times:
                found.answered += 1
                if found.answered > 1 and hasattr(packet, "packet_identifier"):
                    yield Repeated(entry, found.request, asked=True)
            else:
                yield Repeated(entry, found.request, asked=_sent_again(entry, script.version))


def _ask(asked: dict[Key, _Asked], entry: Entry, packet: ControlPacket) -> None:
    wanted: type[ControlPacket] | None = _ASKS.get(type(packet))
    again = isinstance(packet, Connect | Pingreq | Pubrel | Pubrec)
    if isinstance(packet, Publish) and packet.qos:
        wanted, again = (Puback if packet.qos == 1 else Pubrec), packet.dup
        if not packet.dup:
            # A new exchange: nothing of an earlier one under the same identifier counts.
            asked.pop((Pubcomp, packet.packet_identifier), None)
    if wanted is None:
        return
    key = _key(wanted, packet)
    before = asked.get(key) if again else None
    if before is None:
        asked[key] = _Asked(entry)
    else:
        before.request, before.times = entry, before.times + 1


def _key(wanted: type[ControlPacket], packet: ControlPacket) -> Key:
    return wanted, getattr(packet, "packet_identifier", None)


def _sent_again(entry: Entry, version: ProtocolVersion) -> bool:
    """Whether it says so itself: in 3.1 a PUBREL has the DUP flag (3.1 section 2.1)."""
    return (
        version == ProtocolVersion.V3_1 and isinstance(entry.packet, Pubrel) and bool(entry.raw and entry.raw[0] & _DUP)
    )

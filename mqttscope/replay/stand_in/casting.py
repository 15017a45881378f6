"""Which recorded connection an incoming one plays."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Connect
from mqttscope.replay.script import Script


class Match(StrEnum):
    """By what a recorded connection is found."""

    AUTO = "auto"
    """By Client Identifier; for one that the recording does not have, in order."""
    CLIENT = "client"
    ORDER = "order"


@dataclass(slots=True)
class Casting:
    """Recorded connections, and which of them have been given away."""

    scripts: Sequence[Script]
    match: Match = Match.AUTO
    repeat: bool = False
    """Begin again with the connections of a client when all have been played."""
    _free: deque[Script] = field(default_factory=deque)
    _known: set[str | None] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._free.extend(self.scripts)
        self._known = {said_identifier(script) for script in self.scripts}

    @property
    def free(self) -> list[Script]:
        """Connections that nobody has played yet."""
        return list(self._free)

    def choose(self, first: ControlPacket | Malformed) -> Script | None:
        """The recorded connection for one that begins with this packet; ``None`` when there is none (left)."""
        name = identifier_of(first)
        if self.match is not Match.ORDER and name in self._known:
            found = self._of(name, first)
            if found is None and self.repeat:
                self._free.extend(one for one in self.scripts if said_identifier(one) == name)
                found = self._of(name, first)
            return self._take(found)
        if self.match is Match.CLIENT:
            return None
        if not self._free and self.repeat:
            self._free.extend(self.scripts)
        return self._take(self._free[0] if self._free else None)

    def _of(self, name: str | None, first: ControlPacket | Malformed) -> Script | None:
        """The next of a client; of those whose CONNECT cannot be read, the one with the same bytes."""
        mine = [one for one in self._free if said_identifier(one) == name]
        return next((one for one in mine if one.entries[0].raw == first.raw), None) if name is None else _first(mine)

    def _take(self, found: Script | None) -> Script | None:
        if found is not None:
            self._free.remove(found)
        return found


def _first(scripts: list[Script]) -> Script | None:
    return scripts[0] if scripts else None


def identifier_of(packet: ControlPacket | Malformed) -> str | None:
    """The Client Identifier in a CONNECT; ``None`` where it cannot be read."""
    if isinstance(packet, Malformed):
        inner = packet.packet
        return inner.client_identifier if isinstance(inner, Connect) else None
    return packet.client_identifier if isinstance(packet, Connect) else None


def said_identifier(script: Script) -> str | None:
    """The Client Identifier that a recorded client introduced itself with, which may be empty."""
    first = next((one for one in script.entries if one.from_client), None)
    return None if first is None else identifier_of(first.packet)

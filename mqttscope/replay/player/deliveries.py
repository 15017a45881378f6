"""Which recorded delivery a live one corresponds to: the first with the same topic and payload that is still open."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from mqttscope.mqtt.packets import Publish
from mqttscope.replay.script import Entry


class Deliveries:
    """The messages that the recorded server sent on one connection."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._open: dict[tuple[str | None, bytes], deque[Entry]] = {}
        for entry in entries:
            if not entry.from_client and isinstance(entry.packet, Publish) and entry.resends is None:
                self._open.setdefault((entry.topic, entry.packet.payload), deque()).append(entry)

    def match(self, topic: str | None, packet: Publish) -> Entry | None:
        """The recorded delivery that this live one is; ``None`` when the recording has none, or no more of it."""
        waiting = self._open.get((topic, packet.payload))
        return waiting.popleft() if waiting else None

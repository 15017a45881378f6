"""Intervals without an MQTT packet of a server to any client."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field

MAX_SERVERS = 256
"""Maximum number of servers with remembered packets."""
MAX_HUSHES = 64
"""Maximum number of intervals of a server that are remembered."""
LEAST_HUSH_NS = 5_000_000_000
"""Minimum duration of an interval that is remembered."""


@dataclass(slots=True, frozen=True)
class Hush:
    """An interval between two packets of a server."""

    from_ns: int
    from_frame: int
    until_ns: int
    """Time of the next packet, or of the query without such a packet."""
    until_frame: int = 0
    """Frame of the next packet; 0 without such a packet."""


@dataclass(slots=True)
class Voice:
    """The last packet of a server."""

    last_ns: int
    frame: int
    hushes: deque[Hush] = field(default_factory=deque)


class Voices:
    """Feed it each packet of a server, and everything that may hide one; it bounds what it remembers."""

    def __init__(self) -> None:
        self.servers: OrderedDict[str, Voice] = OrderedDict()
        self.dropped: Counter[str] = Counter()
        """Number of discarded rows by table."""

    def spoke(self, server: str, timestamp_ns: int, frame: int) -> None:
        """A packet of a server, or lost or unreadable bytes."""
        voice = self.servers.get(server)
        if voice is None:
            if len(self.servers) >= MAX_SERVERS:
                self.servers.popitem(last=False)
                self.dropped["servers"] += 1
            self.servers[server] = Voice(timestamp_ns, frame)
            return
        if timestamp_ns <= voice.last_ns:
            return
        if timestamp_ns - voice.last_ns >= LEAST_HUSH_NS:
            voice.hushes.append(Hush(voice.last_ns, voice.frame, timestamp_ns, frame))
            if len(voice.hushes) > MAX_HUSHES:
                voice.hushes.popleft()
        voice.last_ns, voice.frame = timestamp_ns, frame

    def hush(self, server: str, at_ns: int, now_ns: int) -> Hush | None:
        """The interval that contains a time; it may still last."""
        voice = self.servers.get(server)
        if voice is None:
            return None
        if at_ns >= voice.last_ns:
            hush = Hush(voice.last_ns, voice.frame, now_ns)
            return hush if now_ns - voice.last_ns >= LEAST_HUSH_NS else None
        return next((hush for hush in reversed(voice.hushes) if hush.from_ns <= at_ns <= hush.until_ns), None)

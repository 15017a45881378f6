"""Messages that a client publishes again as soon as it receives them: a loop through its own subscription.

Evidence is a message that the broker delivered before the client ever published it, and that the client then published
after each further delivery of it, within half a second.  A client that repeats a value of its own published it first,
or got it as a retained message, which counts as no delivery.  If other clients publish the same value, there are more
deliveries than publications.

A bridge publishes a message first, too, and then once more for each copy that comes back.  So a message of its own
counts if each further publication comes so soon after a delivery that no program repeats a value at that rate.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from mqttscope.explain.model import Moment

MAX_ECHOES = 16
"""Maximum number of messages of a connection that are compared: the last ones."""
ECHO_NS = 500_000_000
"""Maximum time from a delivery to the publication that it causes."""
OWN_NS = 5_000_000
"""The maximum for a message that the client published first."""
LEAST_ECHOES = 20
"""Minimum number of publications of one message that show a loop."""
PART = 10
"""Divisor of the publications for the deliveries that may come in addition, from other clients."""
LOOP_NS = 1_000_000_000
"""Maximum mean time between two of these publications."""
Key = tuple[str, int]
"""Topic as on the wire, and CRC-32 of the payload."""


@dataclass(slots=True)
class Echo:
    """A message that came from the broker and that the client published."""

    delivered_ns: int
    """Time of a delivery without a publication after it; 0 without one."""
    deliveries: int = 1
    count: int = 0
    """Publications of the client after a delivery."""
    first: Moment | None = None
    """The first of these publications."""
    last_ns: int = 0


@dataclass(slots=True)
class Echoes:
    """The last messages of one connection, in both directions."""

    delivered: OrderedDict[Key, Echo] = field(default_factory=OrderedDict)
    own: OrderedDict[Key, Echo] = field(default_factory=OrderedDict)
    """Messages that the client published first."""
    loop: Echo | None = None
    """The message with the most publications."""

    def receive(self, key: Key, timestamp_ns: int) -> None:
        """The broker has delivered a message."""
        echo = self.own.get(key) or self.delivered.get(key)
        if echo is None:
            self.delivered[key] = Echo(timestamp_ns)
            if len(self.delivered) > MAX_ECHOES:
                self.delivered.popitem(last=False)
            return
        echo.delivered_ns = timestamp_ns
        echo.deliveries += 1
        if key in self.delivered:
            self.delivered.move_to_end(key)

    def publish(self, key: Key, moment: Moment) -> None:
        """The client has published a message."""
        echo, timestamp_ns = self.delivered.get(key), moment.timestamp_ns
        if echo is None:
            echo = self.own.get(key)
            if echo is None or not echo.delivered_ns or timestamp_ns - echo.delivered_ns > OWN_NS:
                self.own[key] = Echo(0, 0)
                self.own.move_to_end(key)
                if len(self.own) > MAX_ECHOES:
                    self.own.popitem(last=False)
                return
        if not echo.delivered_ns or timestamp_ns - echo.delivered_ns > ECHO_NS:
            return
        echo.delivered_ns = 0
        echo.count += 1
        echo.last_ns = timestamp_ns
        echo.first = echo.first or moment
        if self.loop is None or echo.count > self.loop.count:
            self.loop = echo

    @property
    def proven(self) -> Echo | None:
        """The message that circulates; ``None`` without one."""
        loop = self.loop
        if loop is None or loop.count < LEAST_ECHOES or loop.deliveries > loop.count + loop.count // PART + 1:
            return None
        lasted_ns = loop.last_ns - (0 if loop.first is None else loop.first.timestamp_ns)
        return loop if lasted_ns <= (loop.count - 1) * LOOP_NS else None

"""Messages that circulate between brokers, for `explain --message` (the rule OPS230)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import cast

from mqttscope.events import PacketEvent
from mqttscope.explain import describe
from mqttscope.explain.fates import SECOND, Subscriber
from mqttscope.lint.rules.practice_operation.message_loop import Loop, Loops, MessageLoop
from mqttscope.mqtt import packets
from mqttscope.mqtt.topics import matches
from mqttscope.session.connection import C2S

MAX_FOLLOWED = 1_000
"""Maximum number of connections of bridges and of clients with No Local that are followed, the latest ones."""
MAX_LOOPS = 10
"""Maximum number of loops that are reported."""


class LoopWatch:
    """Follows messages to clients to which a broker does not send by itself what they have published."""

    def __init__(self) -> None:
        self._followed: OrderedDict[int, Loops] = OrderedDict()
        """By connection: those whose CONNECT has the bridge bit from there on, others from a message on."""
        self._found: dict[tuple[int, str], tuple[str, Loop, int]] = {}
        """Client, loop and frame of the last round that is needed for a report, by connection and topic."""
        self._forgotten = self._left_out = 0

    def begin(self, number: int) -> None:
        """Follow the messages of a connection."""
        if number not in self._followed:
            if len(self._followed) >= MAX_FOLLOWED:
                self._followed.popitem(last=False)
                self._forgotten += 1
            self._followed[number] = Loops()

    def feed(self, event: PacketEvent, found: packets.Publish, client: Subscriber) -> None:
        """Take a message that the client sent or was sent."""
        number, topic = event.connection.number, event.topic or ""
        if any(one.no_local and matches(one.plain_filter, topic) for one in client.filters.values()):
            self.begin(number)
        loops = self._followed.get(number)
        if loops is None or found.dup:
            return
        rounds, pause_ns = _setting("rounds"), _setting("seconds") * SECOND
        loop = loops.feed(topic, found.payload, event.timestamp_ns, pause_ns, from_client=event.direction is C2S)
        if loop.rounds < rounds or (number, topic) in self._found:
            return
        if len(self._found) < MAX_LOOPS:
            self._found[number, topic] = client.name, loop, event.frame
        elif loop.rounds == rounds:
            self._left_out += 1

    def sentences(self) -> Iterator[str]:
        """One sentence for each loop."""
        for (number, topic), (name, loop, frame) in self._found.items():
            yield (
                f"The same message to {describe.name(topic)} came back to {name} (#{number}) {loop.rounds:,} times"
                f" within {describe.span(loop.last_ns - loop.began_ns)} (frame {frame}), and its broker does not send"
                " it what it published itself: most probably the message circulates between brokers. Forward each topic"
                " in one direction only."
            )
        if self._left_out:
            yield f"limit: {MAX_LOOPS:,} messages that circulate are shown; further ones: {self._left_out:,}."
        if self._forgotten:
            yield f"limit: {MAX_FOLLOWED:,} connections of bridges are followed; forgotten: {self._forgotten:,}."


def _setting(name: str) -> int:
    """A threshold of the rule."""
    return cast(int, MessageLoop.settings[name])

"""How long a server is given for what a replay waits for: less for what did not come before.

A server that denies reading delivers nothing of a subscription, and each message of it would be waited for in full.  So
it is remembered by connection and Topic Filter what was waited for in vain: the next time has a quarter of it, and more
and more of the messages behind are no longer waited for at all.  One that does come makes an end of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from mqttscope.mqtt.packets import Publish, Subscribe
from mqttscope.mqtt.topics import compile_filter, parse_shared
from mqttscope.replay.order import Step
from mqttscope.replay.script import Entry, Script

LESS = 4
"""By what the time is divided each time that it passed in vain; as much grows what is not waited for."""

Hope = tuple[int, str]
"""A connection, by the index of its script, and the Topic Filter that messages are awaited on."""


@dataclass(slots=True)
class Patience:
    """What is known of the server's silence."""

    scripts: Sequence[Script]
    seconds: float
    """For what it has not failed to send before."""
    vain: dict[Hope, int] = field(default_factory=dict)
    """How often in a row messages were waited for."""
    learned: dict[Hope, int] = field(default_factory=dict)
    """Messages that were not waited for in full, since earlier ones had not come."""
    _awaited: dict[Entry, Hope] | None = None
    _behind: dict[Hope, list[Entry]] = field(default_factory=dict)

    def for_steps(self, blocking: Iterable[Step]) -> float:
        """How many seconds the server has for these milestones."""
        return max(
            (self.seconds / LESS ** self.vain.get(self._hope(one) or (-1, ""), 0) for one in blocking), default=0
        )

    def passed(self, missed: Iterable[Step]) -> list[Entry]:
        """Time has passed in vain for these; returns further ones that are not to be waited for."""
        given_up: list[Entry] = []
        last: dict[Hope, Entry] = {}
        for one in missed:
            hope = self._hope(one)
            if hope is not None and isinstance(one, Entry):
                if hope in self.vain:
                    self.learned[hope] = self.learned.get(hope, 0) + 1
                last[hope] = one
        for hope, entry in last.items():
            times = self.vain[hope] = self.vain.get(hope, 0) + 1
            if times > 1:
                behind = [one for one in self._behind[hope] if one.place > entry.place]
                given_up += behind[: LESS**times]
                self.learned[hope] = self.learned.get(hope, 0) + len(behind[: LESS**times])
        return given_up

    def came(self, entry: Entry) -> None:
        """The server has sent this one."""
        if self.vain:
            self.vain.pop(self._hope(entry) or (-1, ""), None)

    def awaited_on(self, entry: Entry) -> str:
        """The Topic Filter that a recorded message is awaited on."""
        hope = self._hope(entry)
        return hope[1] if hope else entry.topic or ""

    def _hope(self, step: Step) -> Hope | None:
        if not isinstance(step, Entry) or step.from_client or not isinstance(step.packet, Publish):
            return None
        if self._awaited is None:
            self._awaited = dict(self._all())
            for entry, hope in self._awaited.items():
                self._behind.setdefault(hope, []).append(entry)
        return self._awaited.get(step)

    def _all(self) -> Iterator[tuple[Entry, Hope]]:
        """Every delivery with what it is awaited on; where the recording has no such subscription, its topic."""
        asked: dict[str, dict[str, Callable[[str], bool]]] = {}
        for index, script in enumerate(self.scripts):
            mine = asked.setdefault(script.connection.client_identifier or f"\0{index}", {})
            for entry in script.entries:
                packet = entry.packet
                if isinstance(packet, Subscribe):
                    for row in packet.subscriptions:
                        shared = parse_shared(row.topic_filter) is not None
                        mine.setdefault(row.topic_filter, compile_filter(row.topic_filter, shared=shared))
                elif isinstance(packet, Publish) and not entry.from_client and entry.topic is not None:
                    topic = entry.topic
                    yield entry, (index, next((one for one, matches in mine.items() if matches(topic)), topic))

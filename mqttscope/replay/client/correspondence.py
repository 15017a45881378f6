"""What of the recorded server the live one has sent again, and what is no longer waited for."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from mqttscope.mqtt import packets
from mqttscope.mqtt.packets import Publish
from mqttscope.replay.live import ends_exchange
from mqttscope.replay.script import Entry, Script


class Deliveries:
    """The messages that the recorded server sent on one connection."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._open: dict[tuple[str | None, bytes], deque[Entry]] = {}
        for entry in entries:
            if not entry.from_client and isinstance(entry.packet, Publish) and entry.resends is None:
                self._open.setdefault((entry.topic, entry.packet.payload), deque()).append(entry)

    def match(self, topic: str | None, packet: Publish) -> Entry | None:
        """The recorded delivery that this live one is; ``None`` when the recording has none, or no more of it.

        It is the first with the same topic and payload that has not come yet.
        """
        waiting = self._open.get((topic, packet.payload))
        return waiting.popleft() if waiting else None


@dataclass(slots=True)
class Correspondence:
    """Finds the recorded packet for each packet of the live server, and keeps what has its counterpart."""

    script: Script
    """The recording."""
    fences: Collection[Entry] = frozenset()
    """Recorded packets after which a PINGREQ is sent, whose answer proves that the server has handled them."""
    answered: dict[Entry, list[Entry]] = field(default_factory=dict)
    """Recorded answers of both sides by what they answer."""
    came: set[Entry] = field(default_factory=set)
    """Recorded packets of the server that have their counterpart."""
    done: list[Entry] = field(default_factory=list)
    """Recorded packets of the server, and fences, that have their counterpart or never will; the caller empties it."""
    _fenced: dict[Entry, Entry] = field(default_factory=dict)
    """Live PINGREQs that are fences, with the recorded packet after which they were sent."""
    _deliveries: Deliveries = field(init=False)
    _next: deque[Entry] = field(init=False)
    """What the recorded server sent, up to what the live one said something else instead of."""
    _unasked: list[Entry] = field(init=False)
    """What the recorded server said that answers no packet identifier: AUTH and DISCONNECT."""

    def __post_init__(self) -> None:
        for entry in self.script.entries:
            if entry.answers is not None:
                self.answered.setdefault(entry.answers, []).append(entry)
        self._next = deque(self.awaited)
        self._unasked = [one for one in self.awaited if isinstance(one.packet, packets.Auth | packets.Disconnect)]
        self._deliveries = Deliveries(self.script.entries)

    @property
    def awaited(self) -> Iterator[Entry]:
        """What the recorded server sent."""
        return (one for one in self.script.entries if not one.from_client)

    def answers_of(self, source: Entry | None) -> Sequence[Entry]:
        """The recorded answers to a recorded packet; none where there is no such packet."""
        return self.answered.get(source, ()) if source is not None else ()

    def fence(self, ping: Entry, published: Entry) -> None:
        """Have the answer to a live PINGREQ prove that the server has handled a recorded packet."""
        self._fenced[ping] = published

    def answer(self, entry: Entry) -> None:
        """Find the recorded packet that a live answer corresponds to."""
        asked = entry.answers
        if asked is None:
            return
        fence = self._fenced.pop(asked, None)
        if fence is not None:
            self.done.append(fence)
        elif asked.source is not None:
            answers = self.answers_of(asked.source)
            self.match(entry, answers)
            if ends_exchange(entry.packet):
                # Nothing more comes of the exchange, whatever came of the recorded one.
                self.done += answers

    def delivery(self, entry: Entry, packet: Publish) -> None:
        """Find the recorded delivery that a live one corresponds to."""
        entry.source = self._deliveries.match(entry.topic, packet)
        if entry.source is not None:
            self.came.add(entry.source)
            self.done.append(entry.source)
            if packet.qos < 2:
                self.done += self.answers_of(entry.source)

    def unasked(self, entry: Entry) -> None:
        """Find the recorded AUTH or DISCONNECT for a live one: they have no identifier, and come one by one."""
        self.match(entry, self._unasked)

    def match(self, entry: Entry, candidates: Iterable[Entry]) -> None:
        """Let a live packet correspond to the first of these that is of its type and has no counterpart."""
        for one in candidates:
            if one.type == entry.type and one not in self.came:
                self.came.add(one)
                entry.source = one
                self.done.append(one)
                return

    def replaced(self) -> None:
        """The server has said something else: who waits for what was recorded next waits no longer."""
        while self._next and self._next[0] in self.came:
            self._next.popleft()
        if self._next:
            self.done.append(self._next.popleft())

    def skipped(self, entry: Entry) -> None:
        """A recorded packet of the client is not sent: nothing comes of it."""
        self.done += self.answers_of(entry)
        if entry in self.fences:
            self.done.append(entry)

    def await_nothing(self) -> None:
        """What the server was recorded to send is not to be waited for any longer."""
        self.done += self.awaited

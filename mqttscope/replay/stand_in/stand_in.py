"""The server of one connection: packets of the device in, what the recorded server said to them out.

Answers come as recorded, readdressed to the device's packet identifiers.  What the server said by itself comes when
the device has done what came before it in the recording.
"""

from __future__ import annotations

import copy
from collections import deque
from dataclasses import dataclass, field

from mqttscope.mqtt import packets
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import V5
from mqttscope.mqtt.declare import Malformed
from mqttscope.mqtt.properties import Properties
from mqttscope.mqtt.topics import matches
from mqttscope.replay.player import reactions
from mqttscope.replay.player.actions import Kind
from mqttscope.replay.script import Ending, Entry
from mqttscope.replay.stand_in import deliver
from mqttscope.replay.stand_in.actions import Action, Close, Send, Wait
from mqttscope.replay.stand_in.connection_matching import Unfinished
from mqttscope.replay.stand_in.responder import Responder

SESSION_TAKEN_OVER, KEEP_ALIVE_TIMEOUT = 0x8E, 0x8D
_LATER = 1 << 62


@dataclass(slots=True, kw_only=True)
class StandIn(Responder):
    """One connection, from CONNECT to its end."""

    taken_over: bool = False
    """Whether the recorded server ended the connection because the client had connected anew."""
    held: list[Entry] = field(default_factory=list)
    """Deliveries for whose topic the device has no subscription."""
    _due: tuple[Entry | None, int] | None = None
    """When the next step is due, once it may happen."""
    _passed: int = -1
    """Steps up to this place wait no longer for anything."""
    _pushed: bool = False
    """The recorded end of the connection is due now."""
    _filters: list[tuple[int, str, int | None]] = field(default_factory=list)
    """Recorded subscriptions of the client: place, Topic Filter, Subscription Identifier."""

    def __post_init__(self) -> None:
        super(StandIn, self).__post_init__()
        for script in (*self.earlier, self.script):
            for entry in script.entries:
                if entry.from_client and isinstance(entry.packet, packets.Subscribe):
                    block = entry.packet.properties
                    numbers = [] if block is None else block.all(deliver.SUBSCRIPTION)
                    number = numbers[0] if numbers else None
                    self._filters += [(entry.place, one.topic_filter, number) for one in entry.packet.subscriptions]

    @property
    def exhausted(self) -> bool:
        """Whether the recording has nothing more for either side, though it does not show the end."""
        part = self.part
        nothing = not (part.steps or self.queue or self.owed or part.next_needed)
        return self.over or (nothing and self.script.ending.how == "open" and bool(self.script.entries))

    def perform(self, now_ns: int, horizon: int = _LATER) -> Action:
        """Do what is next, or say what it waits for.

        ``horizon``: what came behind this place of the recording waits for other connections.
        """
        if self.over:
            return Wait()
        answer = self.answer(now_ns)
        if answer is not None:
            return answer
        if self.end is not None and not self.queue:
            self.over = True
            return self.end
        times = [self.queue[0].due_ns] if self.queue else []
        if self.end is None:
            if self.keep_alive_ns:
                if now_ns >= self.heard_ns + self.keep_alive_ns:
                    self._timed_out(now_ns)
                    return self.perform(now_ns, horizon)
                times.append(self.heard_ns + self.keep_alive_ns)
            if self.accepted or (self.script.connack is None and self.connect is None):
                action = self._next(now_ns, horizon)
                if not isinstance(action, Wait):
                    return action
                if action.until_ns is not None:
                    times.append(action.until_ns)
        return Wait(min(times, default=None))

    def take_over(self, now_ns: int) -> None:
        """The client has connected anew: this connection ends (5.0 MQTT-3.1.4-3)."""
        if self.over or self.end is not None:
            return
        if self.taken_over:
            self._push()
        else:
            self.end_with(SESSION_TAKEN_OVER, "the client has connected anew", now_ns)

    def ended(self, ending: Ending) -> None:
        """The connection is gone."""
        super(StandIn, self).ended(ending)
        if self.over:
            left = [one for one in self.part.steps if isinstance(one.packet, packets.Publish)]
            self._skipped(len(left), "PUBLISH, since the connection had ended")
        self.over = True
        self._skipped(len(self.held), "PUBLISH held back: the device has not subscribed to its topic")

    def _skipped(self, count: int, text: str) -> None:
        for _ in range(count):
            self.note(Kind.SKIPPED, text)

    def _push(self) -> None:
        """Leave out what is left, but for the end."""
        self._pushed = True
        left = [one for one in self.part.steps if isinstance(one.packet, packets.Publish)]
        self._skipped(len(left), "PUBLISH, since the connection ended")
        self.part.steps = deque(one for one in self.part.steps if not isinstance(one.packet, packets.Publish))

    def _timed_out(self, now_ns: int) -> None:
        """The device has been silent for one and a half times its Keep Alive (5.0 3.1.2.10)."""
        if self.part.silence_ns:
            self._push()
            self._passed = _LATER
            self.heard_ns = now_ns
        else:
            self.end_with(KEEP_ALIVE_TIMEOUT, "the device was silent for more than 1.5 times its Keep Alive", now_ns)

    # What the server says by itself

    def _next(self, now_ns: int, horizon: int) -> Action:
        """The next step, or when it is due."""
        if self.owed:
            again = self._send_again(now_ns)
            if again is not None:
                return again
            return Wait()
        for entry in [one for one in self.held if self._covered(one)]:
            if self._blocked(entry):
                break
            self.held.remove(entry)
            sent = self._deliver(entry, now_ns)
            if sent is not None:
                return sent
        steps = self.part.steps
        while steps or self.part.ends:
            step = steps[0] if steps else None
            wait = self._wait(step, now_ns, horizon)
            if wait is not None:
                return wait
            self._due = None
            if step is None:
                self.end = Close(self.script.ending.how)
                self.over = True
                return self.end
            steps.popleft()
            sent = self._say(step, now_ns)
            if sent is not None:
                return sent
        return Wait()

    def _wait(self, entry: Entry | None, now_ns: int, horizon: int) -> Wait | None:
        """What a step waits for; ``None`` when it may happen now."""
        if self._pushed:
            return None
        script = self.script
        place, recorded_ns = script.ended_place, script.ending.timestamp_ns
        if entry is not None:
            place, recorded_ns = entry.place, entry.timestamp_ns
        last = entry is None or isinstance(entry.packet, packets.Disconnect)
        if last and self.part.silence_ns and self.keep_alive_ns:
            return Wait()
        before = [one.due_ns for one in self.queue if one.source is not None and one.source.place < place]
        if before:
            return Wait(max(before))
        late_ns = self.last_ns + max(0, recorded_ns - self.last_recorded_ns) + self.manner.patience_ns
        blocked = self.part.frontier < place or (horizon < place and not self._due)
        if blocked and place > self._passed:
            if last and self.part.frontier < place:
                # It was said because of what the recorded client did.
                return Wait()
            if now_ns < late_ns:
                return Wait(late_ns)
            for one in self.part.give_up(place):
                self.note(Kind.SKIPPED, f"waited in vain for {reactions.word(one.packet)} of the device")
            self._passed = place
        if self._due is None or self._due[0] is not entry:
            self._due = entry, self._due_ns(entry, recorded_ns, now_ns)
        due_ns = self._due[1] + (self.manner.patience_ns if last and self.taken_over else 0)
        if now_ns < due_ns:
            return Wait(due_ns)
        if entry is not None and self._blocked(entry):
            if now_ns < late_ns:
                return Wait(late_ns)
            self.note(Kind.SKIPPED, "PUBLISH, which waited in vain for room within the device's Receive Maximum")
            self.part.steps.popleft()
            self._due = None
            return Wait(now_ns)
        return None

    def _due_ns(self, entry: Entry | None, recorded_ns: int, now_ns: int) -> int:
        """As long behind what came before it on the connection as in the recording."""
        if self.manner.speed is None:
            return now_ns
        before_ns, live_ns = self.script.opened_ns, self.live.opened_ns
        entries = self.script.entries
        for index in range(len(entries) if entry is None else self.part.at[entry], 0, -1):
            one = entries[index - 1]
            if one in self.happened:
                before_ns, live_ns = one.timestamp_ns, self.happened[one]
                break
        return live_ns + int(max(0, recorded_ns - before_ns) / self.manner.speed)

    def _say(self, entry: Entry, now_ns: int) -> Send | None:
        packet = entry.packet
        if isinstance(packet, packets.Publish):
            return self._deliver(entry, now_ns)
        if isinstance(packet, packets.Disconnect):
            if self.version < V5:
                return None
            self.end = Close("reset" if self.script.ending.how == "reset" else "fin")
        elif isinstance(packet, Malformed):
            self.note(Kind.ADDED, "malformed packet, as recorded")
            return self.sent_as(packet, entry.raw, entry, now_ns)
        return self.send(packet, entry, now_ns)

    # Deliveries

    def _topic(self, entry: Entry) -> str:
        return self.substitutes.topics.get(entry.topic or "", entry.topic or "")

    def _recorded_filters(self, entry: Entry) -> list[tuple[str, int | None]]:
        topic = entry.topic or ""
        return [(one, number) for place, one, number in self._filters if place < entry.place and matches(one, topic)]

    def _covered(self, entry: Entry) -> bool:
        """Whether the device may get a delivery; what the recording explains by no subscription it may."""
        return next(self.session.covering(self._topic(entry)), None) is not None or not self._recorded_filters(entry)

    def _blocked(self, entry: Entry) -> bool:
        """Whether a delivery has to wait for acknowledgements of the device."""
        packet = entry.packet
        if not isinstance(packet, packets.Publish) or not packet.qos or self.room:
            return False
        granted = max((one.qos for one in self.session.covering(self._topic(entry))), default=packet.qos)
        return min(granted, packet.qos) > 0

    def _deliver(self, entry: Entry, now_ns: int) -> Send | None:
        """Send a recorded PUBLISH; ``None`` where it is held back or left out."""
        packet = entry.packet
        assert isinstance(packet, packets.Publish)
        if packet.dup and packet.qos:
            if entry.resends is not None:
                return self._resend(entry.resends, now_ns)
            if self._was_delivered(entry):
                self.note(Kind.SKIPPED, "PUBLISH sent again, which the device had acknowledged")
                return None
        if not self._covered(entry):
            self.held.append(entry)
            return None
        covering = list(self.session.covering(self._topic(entry)))
        fitted = deliver.fit(
            entry, self.connection, self.session, self.substitutes, self._recorded_filters(entry), covering
        )
        if fitted.refused:
            self.note(Kind.SKIPPED, fitted.refused)
            return None
        for text in fitted.notes:
            self.note(Kind.ADAPTED, text)
        made, raw = fitted.packet, fitted.raw
        if made.qos:
            identifier = self.free_identifier(made.packet_identifier)
            dup = made.dup and bool(self.connection.session_present)
            if identifier != made.packet_identifier or dup != made.dup:
                made = copy.copy(made)
                made.packet_identifier, made.dup = identifier, dup
                raw = encode(made, self.version)
        return self.sent_as(made, raw, entry, now_ns, fitted.topic)

    def _was_delivered(self, entry: Entry) -> bool:
        """Whether an earlier connection had the message, so that it was owed again if it was not acknowledged."""
        assert isinstance(entry.packet, packets.Publish)
        for script in self.earlier:
            for one in script.entries:
                same = isinstance(one.packet, packets.Publish) and one.packet.payload == entry.packet.payload
                if same and not one.from_client and one.topic == entry.topic:
                    return True
        return False

    def _resend(self, first: Entry, now_ns: int) -> Send | None:
        """Send a delivery again on its connection, where it is not acknowledged; 5.0 forbids that (MQTT-4.4.0-1)."""
        for one in self.session.unfinished.values():
            if one.entry.source is first and not one.released and self.version < V5:
                return self._again(one, first, now_ns)
        return None

    def _send_again(self, now_ns: int) -> Send | None:
        """What the session owes: PUBLISH with DUP, or PUBREL (5.0 MQTT-4.4.0-1); ``None`` while there is no room."""
        one = self.owed[0]
        assert isinstance(one.entry.packet, packets.Publish)
        identifier = one.entry.packet.packet_identifier
        assert identifier is not None
        if one.released:
            self.owed.popleft()
            self.note(Kind.SESSION, "PUBREL sent again, since the session goes on")
            send = self.send(packets.Pubrel(identifier), None, now_ns)
            send.entry.answers = one.entry
            return send
        if not self.room:
            return None
        self.owed.popleft()
        self.note(Kind.SESSION, "PUBLISH sent again, since the session goes on")
        wanted = one.entry.topic, one.entry.packet.payload
        for step in self.part.steps:
            # The recorded server may have done the same.
            redelivers = isinstance(step.packet, packets.Publish) and step.packet.dup
            if redelivers and (step.topic, step.packet.payload) == wanted:  # type: ignore[union-attr]
                self.part.steps.remove(step)
                return self._again(one, step, now_ns)
        return self._again(one, one.entry.source, now_ns)

    def _again(self, one: Unfinished, source: Entry | None, now_ns: int) -> Send:
        made = copy.copy(one.entry.packet)
        assert isinstance(made, packets.Publish)
        made.dup, made.raw = True, b""
        made.topic_name = one.entry.topic or made.topic_name
        if made.properties is not None:
            # Topic Aliases end with the connection (5.0 3.3.2.3.4).
            made.properties = Properties.of(item for item in made.properties.items if item[0] != deliver.ALIAS)
        first = one.entry.resends or one.entry
        send = self.sent_as(made, encode(made, self.version), source, now_ns, one.entry.topic)
        send.entry.resends = first
        return send

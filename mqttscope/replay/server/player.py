"""Plays the server side of one recorded connection for a device.  No I/O and no clock.

It takes packets of the device, and returns what the recorded server sent.  Answers are the recorded ones, with the
device's packet identifiers.  Other packets of the server (deliveries, DISCONNECT, the end of the connection) come when
the device has done what came before them in the recording.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field

from mqttscope.mqtt import packets
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import V5
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.properties import SUBSCRIPTION_IDENTIFIER
from mqttscope.mqtt.topics import matches
from mqttscope.replay.live import Close, LiveConnection, NoteKind, Send, UnfinishedMessage, packet_name, sent_again
from mqttscope.replay.script import Ending, Script, ScriptEntry
from mqttscope.replay.server import adapt
from mqttscope.replay.server.adapt import Substitutes
from mqttscope.replay.server.connection import DeviceConnection, ServerOptions, ServerSessions
from mqttscope.replay.server.recorded import LATER, ServerScript
from mqttscope.replay.server.responder import Responder

SESSION_TAKEN_OVER, KEEP_ALIVE_TIMEOUT = 0x8E, 0x8D


@dataclass(slots=True)
class ServerWait:
    """Nothing to do before the next packet of the device, or before this time."""

    until_ns: int | None = None


Action = Send | ServerWait | Close


@dataclass(slots=True, kw_only=True)
class ServerPlayer:
    """One connection, from CONNECT to its end.  The caller supplies all times, in nanoseconds."""

    script: Script
    """The recorded connection; an empty one if the recording has no match."""
    live: LiveConnection
    """The live connection."""
    sessions: ServerSessions
    options: ServerOptions
    earlier: Sequence[Script] = ()
    """Recorded connections of the same client before this one."""
    taken_over: InitVar[bool] = False
    """Whether the recorded server ended the connection because the client had connected again."""
    opened_ns: InitVar[int] = 0
    """Time when the device connected."""
    device: DeviceConnection = field(init=False)
    _responder: Responder = field(init=False)
    _steps: _ServerSteps = field(init=False)

    def __post_init__(self, taken_over: bool, opened_ns: int) -> None:
        device = self.device = DeviceConnection(
            live=self.live, recorded=ServerScript(self.script), options=self.options, heard_ns=opened_ns
        )
        substitutes, earlier = Substitutes(), self.earlier
        self._responder = Responder(device=device, sessions=self.sessions, substitutes=substitutes, earlier=earlier)
        self._steps = _ServerSteps(device=device, substitutes=substitutes, earlier=earlier, taken_over=taken_over)

    @property
    def exhausted(self) -> bool:
        """Whether the recording has nothing more for either side, and does not show the end."""
        device, recorded = self.device, self.device.recorded
        nothing = not (recorded.steps or device.queue or device.owed or recorded.next_needed)
        return device.over or (nothing and self.script.ending.how == "open" and bool(self.script.entries))

    def receive(self, packet: ControlPacket | Malformed, now_ns: int) -> None:
        self._responder.receive(packet, now_ns)

    def perform(self, now_ns: int, horizon: int = LATER) -> Action:
        """Perform the next step, or return what it waits for.

        ``horizon``: steps after this place of the recording wait for other connections.
        """
        device = self.device
        if device.over:
            return ServerWait()
        answer = device.answer(now_ns)
        if answer is not None:
            return answer
        if device.end is not None and not device.queue:
            device.over = True
            return device.end
        times = [device.queue[0].due_ns] if device.queue else []
        if device.end is None:
            if device.keep_alive_ns:
                if now_ns >= device.heard_ns + device.keep_alive_ns:
                    self._timed_out(now_ns)
                    return self.perform(now_ns, horizon)
                times.append(device.heard_ns + device.keep_alive_ns)
            if device.accepted or (self.script.connack is None and device.connect is None):
                action = self._steps.next(now_ns, horizon)
                if not isinstance(action, ServerWait):
                    return action
                if action.until_ns is not None:
                    times.append(action.until_ns)
        return ServerWait(min(times, default=None))

    def take_over(self, now_ns: int) -> None:
        """The client has connected again: end this connection (5.0 MQTT-3.1.4-3)."""
        if self.device.ending:
            return
        if self._steps.taken_over:
            self._steps.push()
        else:
            self.device.end_with(SESSION_TAKEN_OVER, "the client has connected again", now_ns)

    def ended(self, ending: Ending) -> None:
        self.device.ended(ending)
        self._steps.ended()
        self.device.over = True

    def _timed_out(self, now_ns: int) -> None:
        """The device has been silent for one and a half times its Keep Alive (5.0 3.1.2.10)."""
        device = self.device
        if device.recorded.silence_ns:
            self._steps.push()
            self._steps.wait_for_nothing()
            device.heard_ns = now_ns
        else:
            why = "the device was silent for more than 1.5 times its Keep Alive"
            device.end_with(KEEP_ALIVE_TIMEOUT, why, now_ns)


@dataclass(slots=True, kw_only=True)
class _ServerSteps:
    """Plays the steps that one recorded server took without a request."""

    device: DeviceConnection
    substitutes: Substitutes
    """Values that the device sent in place of the recorded client's."""
    earlier: Sequence[Script] = ()
    """Recorded connections of the same client before this one."""
    taken_over: bool = False
    """Whether the recorded server ended the connection because the client had connected again."""
    held: list[ScriptEntry] = field(default_factory=list)
    """Deliveries held back, since the device has not subscribed to their topic."""
    _due: tuple[ScriptEntry | None, int] | None = None
    """The next step and its due time."""
    _last_unawaited: int = -1
    """Steps up to this place no longer wait for anything."""
    _end_is_due: bool = False
    """Whether the recorded end of the connection is due now."""
    _filters: list[tuple[int, str, int | None]] = field(default_factory=list)
    """Recorded subscriptions of the client: place, Topic Filter, Subscription Identifier."""

    def __post_init__(self) -> None:
        for script in (*self.earlier, self.device.recorded.script):
            for entry in script.entries:
                if entry.from_client and isinstance(entry.packet, packets.Subscribe):
                    block = entry.packet.properties
                    number = None if block is None else block.first(SUBSCRIPTION_IDENTIFIER)
                    self._filters += [(entry.place, row.topic_filter, number) for row in entry.packet.subscriptions]

    def push(self) -> None:
        """Skip the remaining deliveries: the end of the connection is due now."""
        self._end_is_due = True
        self._leave_out("PUBLISH, since the connection ended")
        steps = self.device.recorded.steps
        self.device.recorded.steps = deque(step for step in steps if not isinstance(step.packet, packets.Publish))

    def wait_for_nothing(self) -> None:
        self._last_unawaited = LATER

    def ended(self) -> None:
        """The connection is gone: note the deliveries that were not made."""
        if self.device.over:
            self._leave_out("PUBLISH, since the connection had ended")
        self._skipped(len(self.held), "PUBLISH held back: the device has not subscribed to its topic")

    def _leave_out(self, text: str) -> None:
        remaining = [step for step in self.device.recorded.steps if isinstance(step.packet, packets.Publish)]
        self._skipped(len(remaining), text)

    def _skipped(self, count: int, text: str) -> None:
        for _ in range(count):
            self.device.note(NoteKind.SKIPPED, text)

    def next(self, now_ns: int, horizon: int) -> Action:
        """Perform the next step, or return when it is due.

        ``horizon``: steps after this place of the recording wait for other connections.
        """
        if self.device.owed:
            return self._send_again(now_ns) or ServerWait()
        for entry in [delivery for delivery in self.held if self._covered(delivery)]:
            if self._blocked(entry):
                break
            self.held.remove(entry)
            sent = self._deliver(entry, now_ns)
            if sent is not None:
                return sent
        steps = self.device.recorded.steps
        while steps or self.device.recorded.ends:
            step = steps[0] if steps else None
            wait = self._wait(step, now_ns, horizon)
            if wait is not None:
                return wait
            self._due = None
            if step is None:
                self.device.end = Close(self.device.recorded.script.ending.how)
                self.device.over = True
                return self.device.end
            steps.popleft()
            sent = self._send_step(step, now_ns)
            if sent is not None:
                return sent
        return ServerWait()

    def _wait(self, entry: ScriptEntry | None, now_ns: int, horizon: int) -> ServerWait | None:
        """Wait that a step requires; ``None`` if it may happen now."""
        if self._end_is_due:
            return None
        script = self.device.recorded.script
        place, recorded_ns = script.ended_place, script.ending.timestamp_ns
        if entry is not None:
            place, recorded_ns = entry.place, entry.timestamp_ns
        last = entry is None or isinstance(entry.packet, packets.Disconnect)
        if last and self.device.recorded.silence_ns and self.device.keep_alive_ns:
            return ServerWait()
        queue = [answer for answer in self.device.queue if answer.source is not None]
        before = [answer.due_ns for answer in queue if answer.source.place < place]  # type: ignore[union-attr]
        if before:
            return ServerWait(max(before))
        later_ns = max(0, recorded_ns - self.device.last_recorded_ns) + self.device.options.patience_ns
        late_ns = self.device.last_ns + later_ns
        blocked = self.device.recorded.frontier < place or (horizon < place and not self._due)
        if blocked and place > self._last_unawaited:
            if last and self.device.recorded.frontier < place:
                # The step was a reaction to something that the recorded client did.
                return ServerWait()
            if now_ns < late_ns:
                return ServerWait(late_ns)
            for request in self.device.recorded.give_up(place):
                self.device.note(NoteKind.SKIPPED, f"waited in vain for {packet_name(request.packet)} of the device")
            self._last_unawaited = place
        if self._due is None or self._due[0] is not entry:
            self._due = entry, self._due_ns(entry, recorded_ns, now_ns)
        due_ns = self._due[1] + (self.device.options.patience_ns if last and self.taken_over else 0)
        if now_ns < due_ns:
            return ServerWait(due_ns)
        if entry is not None and self._blocked(entry):
            if now_ns < late_ns:
                return ServerWait(late_ns)
            text = "PUBLISH, which waited in vain for room within the device's Receive Maximum"
            self.device.note(NoteKind.SKIPPED, text)
            self.device.recorded.steps.popleft()
            self._due = None
            return ServerWait(now_ns)
        return None

    def _due_ns(self, entry: ScriptEntry | None, recorded_ns: int, now_ns: int) -> int:
        """Due time of a step: as long after the packet before it on the connection as in the recording."""
        if self.device.options.speed is None:
            return now_ns
        before_ns, live_ns = self.device.recorded.script.opened_ns, self.device.live.script.opened_ns
        entries = self.device.recorded.script.entries
        for index in range(len(entries) if entry is None else self.device.recorded.at[entry], 0, -1):
            earlier = entries[index - 1]
            if earlier in self.device.happened:
                before_ns, live_ns = earlier.timestamp_ns, self.device.happened[earlier]
                break
        return live_ns + int(max(0, recorded_ns - before_ns) / self.device.options.speed)

    def _send_step(self, entry: ScriptEntry, now_ns: int) -> Send | None:
        packet = entry.packet
        if isinstance(packet, packets.Publish):
            return self._deliver(entry, now_ns)
        if isinstance(packet, packets.Disconnect):
            if self.device.version < V5:
                return None
            self.device.end = Close("reset" if self.device.recorded.script.ending.how == "reset" else "fin")
        elif isinstance(packet, Malformed):
            self.device.note(NoteKind.ADDED, "malformed packet, as recorded")
            return self.device.send_as(packet, entry.raw, entry, now_ns)
        return self.device.send(packet, entry, now_ns)

    def _topic(self, entry: ScriptEntry) -> str:
        return self.substitutes.topics.get(entry.topic or "", entry.topic or "")

    def _recorded_filters(self, entry: ScriptEntry) -> list[tuple[str, int | None]]:
        topic = entry.topic or ""
        earlier = (row for row in self._filters if row[0] < entry.place)
        return [(topic_filter, number) for _, topic_filter, number in earlier if matches(topic_filter, topic)]

    def _covered(self, entry: ScriptEntry) -> bool:
        """Whether the device may get a delivery: it has subscribed, or the recording shows no subscription for it."""
        subscription = next(self.device.session.covering(self._topic(entry)), None)
        return subscription is not None or not self._recorded_filters(entry)

    def _blocked(self, entry: ScriptEntry) -> bool:
        """Whether a delivery has to wait for the device's acknowledgements."""
        packet = entry.packet
        if not isinstance(packet, packets.Publish) or not packet.qos or self.device.has_room:
            return False
        granted = max((row.qos for row in self.device.session.covering(self._topic(entry))), default=packet.qos)
        return min(granted, packet.qos) > 0

    def _deliver(self, entry: ScriptEntry, now_ns: int) -> Send | None:
        """Send a recorded PUBLISH; ``None`` if it is held back or left out."""
        packet = entry.packet
        assert isinstance(packet, packets.Publish)
        if packet.dup and packet.qos:
            if entry.resends is not None:
                return self._resend(entry.resends, now_ns)
            if self._was_delivered(entry):
                self.device.note(NoteKind.SKIPPED, "PUBLISH sent again, which the device had acknowledged")
                return None
        if not self._covered(entry):
            self.held.append(entry)
            return None
        covering = list(self.device.session.covering(self._topic(entry)))
        fitted = adapt.fit(
            entry, self.device.state, self.device.session, self.substitutes, self._recorded_filters(entry), covering
        )
        if fitted.refused:
            self.device.note(NoteKind.SKIPPED, fitted.refused)
            return None
        for text in fitted.notes:
            self.device.note(NoteKind.ADAPTED, text)
        publish, raw = fitted.packet, fitted.raw
        if publish.qos:
            identifier = self.device.free_identifier(publish.packet_identifier)
            dup = publish.dup and bool(self.device.state.session_present)
            if identifier != publish.packet_identifier or dup != publish.dup:
                publish = copy.copy(publish)
                publish.packet_identifier, publish.dup = identifier, dup
                raw = encode(publish, self.device.version)
        return self.device.send_as(publish, raw, entry, now_ns, fitted.topic)

    def _was_delivered(self, entry: ScriptEntry) -> bool:
        """Whether an earlier connection delivered the message; without an acknowledgement the session owes it again."""
        assert isinstance(entry.packet, packets.Publish)
        for script in self.earlier:
            for delivery in script.entries:
                packet = delivery.packet
                is_equal = isinstance(packet, packets.Publish) and packet.payload == entry.packet.payload
                if is_equal and not delivery.from_client and delivery.topic == entry.topic:
                    return True
        return False

    def _resend(self, first: ScriptEntry, now_ns: int) -> Send | None:
        """Resend a delivery on its connection, if it is not acknowledged; 5.0 forbids that (MQTT-4.4.0-1)."""
        for message in self.device.session.unfinished.values():
            if message.entry.source is first and not message.released and self.device.version < V5:
                return self._resend_message(message, first, now_ns)
        return None

    def _send_again(self, now_ns: int) -> Send | None:
        """Resend what the session owes: PUBLISH with DUP, or PUBREL (5.0 MQTT-4.4.0-1); ``None`` without room."""
        message = self.device.owed[0]
        assert isinstance(message.entry.packet, packets.Publish)
        identifier = message.entry.packet.packet_identifier
        assert identifier is not None
        if message.released:
            self.device.owed.popleft()
            self.device.note(NoteKind.SESSION, "PUBREL sent again, since the session continues")
            send = self.device.send(packets.Pubrel(identifier), None, now_ns)
            send.entry.answers = message.entry
            return send
        if not self.device.has_room:
            return None
        self.device.owed.popleft()
        self.device.note(NoteKind.SESSION, "PUBLISH sent again, since the session continues")
        content = message.entry.topic, message.entry.packet.payload
        for step in self.device.recorded.steps:
            # The recorded server may have resent the message too.
            redelivers = isinstance(step.packet, packets.Publish) and step.packet.dup
            if redelivers and (step.topic, step.packet.payload) == content:  # type: ignore[union-attr]
                self.device.recorded.steps.remove(step)
                return self._resend_message(message, step, now_ns)
        return self._resend_message(message, message.entry.source, now_ns)

    def _resend_message(self, message: UnfinishedMessage, source: ScriptEntry | None, now_ns: int) -> Send:
        assert isinstance(message.entry.packet, packets.Publish)
        publish = sent_again(message.entry.packet, message.entry.topic)
        first = message.entry.resends or message.entry
        send = self.device.send_as(publish, encode(publish, self.device.version), source, now_ns, message.entry.topic)
        send.entry.resends = first
        return send

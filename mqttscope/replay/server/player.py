"""The server side of one recorded connection, played for a device.  No I/O and no clock.

Packets of the device go in, what the recorded server said to them comes out.  Answers come as recorded, readdressed to
the device's packet identifiers.  What the server said by itself (deliveries, DISCONNECT, the end of the connection)
comes when the device has done what came before it in the recording.
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
from mqttscope.replay.live import Close, LiveConnection, NoteKind, Send, Unfinished, packet_name, sent_again
from mqttscope.replay.script import Ending, Entry, Script
from mqttscope.replay.server import adapt
from mqttscope.replay.server.adapt import Substitutes
from mqttscope.replay.server.connection import DeviceConnection, ServerOptions, ServerSessions
from mqttscope.replay.server.recorded import LATER, ServerScript
from mqttscope.replay.server.responder import Responder

SESSION_TAKEN_OVER, KEEP_ALIVE_TIMEOUT = 0x8E, 0x8D


@dataclass(slots=True)
class Wait:
    """There is nothing to do before the device says something, or before this time."""

    until_ns: int | None = None


Action = Send | Wait | Close


@dataclass(slots=True, kw_only=True)
class ServerPlayer:
    """One connection, from CONNECT to its end.  Times are those that the caller gives, in nanoseconds."""

    script: Script
    """The recording; one without entries where there is none."""
    live: LiveConnection
    """What happens."""
    sessions: ServerSessions
    options: ServerOptions
    earlier: Sequence[Script] = ()
    """Recorded connections of the same client before this one."""
    taken_over: InitVar[bool] = False
    """Whether the recorded server ended the connection because the client had connected once more."""
    opened_ns: InitVar[int] = 0
    """When the device connected."""
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
        """Whether the recording has nothing more for either side, though it does not show the end."""
        device, recorded = self.device, self.device.recorded
        nothing = not (recorded.steps or device.queue or device.owed or recorded.next_needed)
        return device.over or (nothing and self.script.ending.how == "open" and bool(self.script.entries))

    def receive(self, packet: ControlPacket | Malformed, now_ns: int) -> None:
        self._responder.receive(packet, now_ns)

    def perform(self, now_ns: int, horizon: int = LATER) -> Action:
        """Do what is next, or say what it waits for.

        ``horizon``: what came after this place of the recording waits for other connections.
        """
        device = self.device
        if device.over:
            return Wait()
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
                if not isinstance(action, Wait):
                    return action
                if action.until_ns is not None:
                    times.append(action.until_ns)
        return Wait(min(times, default=None))

    def take_over(self, now_ns: int) -> None:
        """The client has connected once more: this connection ends (5.0 MQTT-3.1.4-3)."""
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
    """Plays what one recorded server did without being asked."""

    device: DeviceConnection
    substitutes: Substitutes
    """What the device said in the place of what the recorded client said."""
    earlier: Sequence[Script] = ()
    """Recorded connections of the same client before this one."""
    taken_over: bool = False
    """Whether the recorded server ended the connection because the client had connected once more."""
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
        for script in (*self.earlier, self.device.recorded.script):
            for entry in script.entries:
                if entry.from_client and isinstance(entry.packet, packets.Subscribe):
                    block = entry.packet.properties
                    number = None if block is None else block.first(SUBSCRIPTION_IDENTIFIER)
                    self._filters += [(entry.place, one.topic_filter, number) for one in entry.packet.subscriptions]

    def push(self) -> None:
        """Leave out what is left, but for the end, which is due now."""
        self._pushed = True
        self._leave_out("PUBLISH, since the connection ended")
        steps = self.device.recorded.steps
        self.device.recorded.steps = deque(one for one in steps if not isinstance(one.packet, packets.Publish))

    def wait_for_nothing(self) -> None:
        self._passed = LATER

    def ended(self) -> None:
        """The connection is gone, and with it what was not said yet."""
        if self.device.over:
            self._leave_out("PUBLISH, since the connection had ended")
        self._skipped(len(self.held), "PUBLISH held back: the device has not subscribed to its topic")

    def _leave_out(self, text: str) -> None:
        """Say of all deliveries that are left why they are not made."""
        left = [one for one in self.device.recorded.steps if isinstance(one.packet, packets.Publish)]
        self._skipped(len(left), text)

    def _skipped(self, count: int, text: str) -> None:
        for _ in range(count):
            self.device.note(NoteKind.SKIPPED, text)

    def next(self, now_ns: int, horizon: int) -> Action:
        """Do the next step, or say when it is due.

        ``horizon``: what came after this place of the recording waits for other connections.
        """
        if self.device.owed:
            return self._send_again(now_ns) or Wait()
        for entry in [one for one in self.held if self._covered(one)]:
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
            sent = self._say(step, now_ns)
            if sent is not None:
                return sent
        return Wait()

    def _wait(self, entry: Entry | None, now_ns: int, horizon: int) -> Wait | None:
        """What a step waits for; ``None`` when it may happen now."""
        if self._pushed:
            return None
        script = self.device.recorded.script
        place, recorded_ns = script.ended_place, script.ending.timestamp_ns
        if entry is not None:
            place, recorded_ns = entry.place, entry.timestamp_ns
        last = entry is None or isinstance(entry.packet, packets.Disconnect)
        if last and self.device.recorded.silence_ns and self.device.keep_alive_ns:
            return Wait()
        before = [one.due_ns for one in self.device.queue if one.source is not None and one.source.place < place]
        if before:
            return Wait(max(before))
        later_ns = max(0, recorded_ns - self.device.last_recorded_ns) + self.device.options.patience_ns
        late_ns = self.device.last_ns + later_ns
        blocked = self.device.recorded.frontier < place or (horizon < place and not self._due)
        if blocked and place > self._passed:
            if last and self.device.recorded.frontier < place:
                # It was said because of what the recorded client did.
                return Wait()
            if now_ns < late_ns:
                return Wait(late_ns)
            for one in self.device.recorded.give_up(place):
                self.device.note(NoteKind.SKIPPED, f"waited in vain for {packet_name(one.packet)} of the device")
            self._passed = place
        if self._due is None or self._due[0] is not entry:
            self._due = entry, self._due_ns(entry, recorded_ns, now_ns)
        due_ns = self._due[1] + (self.device.options.patience_ns if last and self.taken_over else 0)
        if now_ns < due_ns:
            return Wait(due_ns)
        if entry is not None and self._blocked(entry):
            if now_ns < late_ns:
                return Wait(late_ns)
            text = "PUBLISH, which waited in vain for room within the device's Receive Maximum"
            self.device.note(NoteKind.SKIPPED, text)
            self.device.recorded.steps.popleft()
            self._due = None
            return Wait(now_ns)
        return None

    def _due_ns(self, entry: Entry | None, recorded_ns: int, now_ns: int) -> int:
        """As long after what came before it on the connection as in the recording."""
        if self.device.options.speed is None:
            return now_ns
        before_ns, live_ns = self.device.recorded.script.opened_ns, self.device.live.script.opened_ns
        entries = self.device.recorded.script.entries
        for index in range(len(entries) if entry is None else self.device.recorded.at[entry], 0, -1):
            one = entries[index - 1]
            if one in self.device.happened:
                before_ns, live_ns = one.timestamp_ns, self.device.happened[one]
                break
        return live_ns + int(max(0, recorded_ns - before_ns) / self.device.options.speed)

    def _say(self, entry: Entry, now_ns: int) -> Send | None:
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

    def _topic(self, entry: Entry) -> str:
        return self.substitutes.topics.get(entry.topic or "", entry.topic or "")

    def _recorded_filters(self, entry: Entry) -> list[tuple[str, int | None]]:
        topic = entry.topic or ""
        return [(one, number) for place, one, number in self._filters if place < entry.place and matches(one, topic)]

    def _covered(self, entry: Entry) -> bool:
        """Whether the device may get a delivery; what the recording explains by no subscription it may."""
        asked = next(self.device.session.covering(self._topic(entry)), None)
        return asked is not None or not self._recorded_filters(entry)

    def _blocked(self, entry: Entry) -> bool:
        """Whether a delivery has to wait for acknowledgements of the device."""
        packet = entry.packet
        if not isinstance(packet, packets.Publish) or not packet.qos or self.device.has_room:
            return False
        granted = max((one.qos for one in self.device.session.covering(self._topic(entry))), default=packet.qos)
        return min(granted, packet.qos) > 0

    def _deliver(self, entry: Entry, now_ns: int) -> Send | None:
        """Send a recorded PUBLISH; ``None`` where it is held back or left out."""
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
        made, raw = fitted.packet, fitted.raw
        if made.qos:
            identifier = self.device.free_identifier(made.packet_identifier)
            dup = made.dup and bool(self.device.state.session_present)
            if identifier != made.packet_identifier or dup != made.dup:
                made = copy.copy(made)
                made.packet_identifier, made.dup = identifier, dup
                raw = encode(made, self.device.version)
        return self.device.send_as(made, raw, entry, now_ns, fitted.topic)

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
        for one in self.device.session.unfinished.values():
            if one.entry.source is first and not one.released and self.device.version < V5:
                return self._again(one, first, now_ns)
        return None

    def _send_again(self, now_ns: int) -> Send | None:
        """What the session owes: PUBLISH with DUP, or PUBREL (5.0 MQTT-4.4.0-1); ``None`` while there is no room."""
        one = self.device.owed[0]
        assert isinstance(one.entry.packet, packets.Publish)
        identifier = one.entry.packet.packet_identifier
        assert identifier is not None
        if one.released:
            self.device.owed.popleft()
            self.device.note(NoteKind.SESSION, "PUBREL sent again, since the session continues")
            send = self.device.send(packets.Pubrel(identifier), None, now_ns)
            send.entry.answers = one.entry
            return send
        if not self.device.has_room:
            return None
        self.device.owed.popleft()
        self.device.note(NoteKind.SESSION, "PUBLISH sent again, since the session continues")
        wanted = one.entry.topic, one.entry.packet.payload
        for step in self.device.recorded.steps:
            # The recorded server may have done the same.
            redelivers = isinstance(step.packet, packets.Publish) and step.packet.dup
            if redelivers and (step.topic, step.packet.payload) == wanted:  # type: ignore[union-attr]
                self.device.recorded.steps.remove(step)
                return self._again(one, step, now_ns)
        return self._again(one, one.entry.source, now_ns)

    def _again(self, one: Unfinished, source: Entry | None, now_ns: int) -> Send:
        assert isinstance(one.entry.packet, packets.Publish)
        made = sent_again(one.entry.packet, one.entry.topic)
        first = one.entry.resends or one.entry
        send = self.device.send_as(made, encode(made, self.device.version), source, now_ns, one.entry.topic)
        send.entry.resends = first
        return send

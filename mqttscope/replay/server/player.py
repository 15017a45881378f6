"""The server side of one recorded connection, played for a device.  No I/O and no clock.

Packets of the device go in, what the recorded server said to them comes out.  Answers come as recorded, readdressed to
the device's packet identifiers.  What the server said by itself comes when the device has done what came before it in
the recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field

from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.replay.live import LiveConnection
from mqttscope.replay.script import Ending, Script
from mqttscope.replay.server.adapt import Substitutes
from mqttscope.replay.server.connection import DeviceConnection, ServerOptions
from mqttscope.replay.server.responder import Responder
from mqttscope.replay.server.server_script import ServerScript
from mqttscope.replay.server.sessions import ServerSessions
from mqttscope.replay.server.steps import LATER, Action, ServerSteps, Wait

SESSION_TAKEN_OVER, KEEP_ALIVE_TIMEOUT = 0x8E, 0x8D


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
    _steps: ServerSteps = field(init=False)

    def __post_init__(self, taken_over: bool, opened_ns: int) -> None:
        device = self.device = DeviceConnection(
            live=self.live, recorded=ServerScript(self.script), options=self.options, heard_ns=opened_ns
        )
        substitutes, earlier = Substitutes(), self.earlier
        self._responder = Responder(device=device, sessions=self.sessions, substitutes=substitutes, earlier=earlier)
        self._steps = ServerSteps(device=device, substitutes=substitutes, earlier=earlier, taken_over=taken_over)

    @property
    def exhausted(self) -> bool:
        """Whether the recording has nothing more for either side, though it does not show the end."""
        device, recorded = self.device, self.device.recorded
        nothing = not (recorded.steps or device.queue or device.owed or recorded.next_needed)
        return device.over or (nothing and self.script.ending.how == "open" and bool(self.script.entries))

    def receive(self, packet: ControlPacket | Malformed, now_ns: int) -> None:
        """Take one packet of the device."""
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
        """The connection is gone."""
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

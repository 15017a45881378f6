"""Plays one case against a live broker and records the reaction.

`CaseRunner` plays the recorded connection up to the mutation as a client that obeys the protocol, then sends the
mutated flow.  A live broker numbers its packets differently and delivers in another order than the recorded one, so
`CaseAcknowledger` adapts the acknowledgements of the flow to the actual deliveries.

`RecordingListener` records the broker's side of the connection, and stops when the broker floods it.
`BrokerAnswers` contains the packets of the broker, and tracks which of them a step has consumed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field

from mqttscope.broker_test.conversation import Conversation
from mqttscope.broker_test.drivers.probe_client import BrokerAccess, PacketCollector
from mqttscope.broker_test.fit import recorded_failures
from mqttscope.broker_test.verdict import ANSWERS, Observation, expected_responses
from mqttscope.errors import MqttscopeError
from mqttscope.mqtt import packets
from mqttscope.mqtt.codec import decode, encode
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Connack, Publish
from mqttscope.mutate import Action, Demand, FlowStep, MutationCase
from mqttscope.replay.client import ClientOptions, ClientPlayer, ClientSessions
from mqttscope.replay.client.player import ClientWait, SkippedStep
from mqttscope.replay.live import LiveConnection, Send
from mqttscope.replay.script import Ending, Script, ScriptEntry
from mqttscope.session.connection import Connection

HOPELESS_S = 0.05
"""Timeout of each answer after one answer was missing."""
MAX_VAIN = 10
"""Maximum number of missing answers; after that, no answer is awaited."""
LONGEST_S = 60.0
"""Timeout of PINGRESP while the broker is still answering earlier packets."""
FREE_S = 0.2
"""Timeout of each answer in a case without a demanded reaction."""
SETTLE_S = 0.1
"""Time for a close after PINGRESP, in the first play of a case."""
CONTINUE_AUTHENTICATION = 0x18
_PING = b"\xc0\x00"

Supply = Callable[[str, bytes, int], Awaitable[bool]]
"""Publishes a message that another client published in the recording: topic, payload, QoS."""


class NotPlayedError(MqttscopeError):
    """The valid part of the flow did not reach the mutation; the message gives the reason."""


@dataclass(slots=True)
class PlayedCase:
    """Outcome of one play of a case."""

    conversation: Conversation
    seen: Observation
    meanwhile_result: float | None = None
    """Result of ``meanwhile``."""
    steps: list[FlowStep] = field(default_factory=list)
    """Steps that were actually taken, with the bytes that were actually sent."""


@dataclass(slots=True, eq=False)
class CaseRunner:
    """Plays one case on one connection, once."""

    case: MutationCase
    script: Script
    """The connection, adapted to the broker."""
    access: BrokerAccess
    patience_s: float
    supply: Supply | None = None
    meanwhile: Callable[[], Awaitable[float | None]] | None = None
    """Called after the last step, while the connection is still open."""
    raw: bool = False
    """Whether to send the bytes unchanged, without the player; for reduced cases."""
    thorough: bool = False
    """Whether to wait the full timeout for a close after PINGRESP."""
    resting: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    """Context entered for the wait after PINGRESP, when nothing more is sent."""
    conversation: Conversation = field(init=False)
    listener: RecordingListener = field(init=False)
    played: PlayedCase = field(init=False)
    _player: ClientPlayer | None = None
    _acks: CaseAcknowledger = field(init=False)
    _owed: dict[ScriptEntry, frozenset[PacketType]] = field(default_factory=dict)
    """Answers that the broker owes to the mutated packets."""
    _answers: BrokerAnswers = field(init=False)
    _seen: int = 0
    """Number of packets of the broker before the mutation."""
    _lacking: bool = False
    """Whether a recorded packet did not arrive before the mutation."""
    _missed: list[tuple[PacketType, int | None]] = field(default_factory=list)
    """Answers that did not arrive in time, with their expected Packet Identifiers."""
    _undelivered: bool = False
    """Whether a delivery did not arrive: the mutation may have changed the subscriptions."""
    _challenged: bool = True
    """Whether the last awaited AUTH arrived."""
    _deaf: bool = False

    def __post_init__(self) -> None:
        self.conversation = Conversation(self.script.version)
        self.listener = RecordingListener(self.conversation, self.on_packet)
        self._answers = BrokerAnswers(self.listener.packets)
        self._acks = CaseAcknowledger(self.script.version)
        seen = Observation(recorded_codes=recorded_failures(self.script), uses_login=self.access.user_name is not None)
        self.played = PlayedCase(self.conversation, seen)

    async def run(self) -> PlayedCase:
        """Play the case; raises `LinkError` without a connection, `NotPlayedError` if the mutation is not reached."""
        self.listener.link = link = await self.access.open(self.listener, self.script.version)
        self.conversation.opened_ns = time.time_ns()
        try:
            flow = self.case.flow
            at = 0 if self.raw else flow.at
            if at:
                await self._prefix(at)
            first = True
            for step in flow.steps[at:]:
                if step.mutated and first:
                    first, self._seen = False, self._answers.pass_over()
                if self.listener.ended_by or not await self._take_step(step):
                    break
            await self._observe()
            if self.meanwhile is not None:
                self.played.meanwhile_result = await self.meanwhile()
            self._disconnect()
        finally:
            link.abort()
            await link.closed.wait()
        self._complete_observation()
        return self.played

    # Before the mutation

    async def _prefix(self, at: int) -> None:
        """Play the steps before the mutation in the recorded order."""
        entries = self.script.entries[:at]
        recorded = Script(self.script.connection, entries, Ending("open"), self.script.opened_ns)
        live = Connection(self.script.connection.number, "", "", "", 0, 0, handshake_seen=True)
        self._player = player = ClientPlayer(
            recorded, LiveConnection(Script(live), plays_client=True), ClientSessions(), ClientOptions()
        )
        for packet in self.listener.packets:
            player.receive(packet, time.time_ns())
        for entry in entries:
            if self.listener.ended_by:
                break
            if entry.from_client:
                await self._play_until_sent(player, entry)
            elif isinstance(entry.packet, packets.Publish):
                await self._wait_for_delivery(player, entry)
            elif isinstance(entry.packet, packets.Auth):
                await self._wait_for_auth(entry)
            elif entry.answers is not None:
                came = await self._wait_for_entry(player, entry)
                if not came and isinstance(entry.packet, packets.Connack):
                    raise NotPlayedError("CONNECT was not answered")
        if self.listener.ended_by:
            raise NotPlayedError(f"the broker ended the connection before the mutation ({self.listener.ended_by})")
        # During an authentication the connection is not accepted yet.
        decided = any(isinstance(entry.packet, packets.Connack) for entry in entries)
        if not self._answers.accepted and (decided or self._answers.count(packets.Connack)):
            raise NotPlayedError("CONNECT was refused")
        for entry, packet in deliveries(player):
            self._acks.delivered(entry, packet)
        done = player.correspondence.done
        self._acks.without_pubrec |= {
            entry.answers
            for entry in entries
            if isinstance(entry.packet, packets.Pubrec) and entry.answers is not None and entry not in done
        }
        # Only the steps of the case acknowledge packets from here on.
        self._player = None

    async def _play_until_sent(self, player: ClientPlayer, entry: ScriptEntry) -> None:
        """Run the player until it has sent the entry or skipped it."""
        deadline = time.monotonic() + self.patience_s
        while entry in player.steps and not self.listener.ended_by:
            action = player.perform(time.time_ns())
            if isinstance(action, Send):
                self._send(action.data)
            elif isinstance(action, ClientWait):
                heard = len(self.listener.packets)
                left = deadline - time.monotonic()
                if not await self.listener.until(lambda heard=heard: len(self.listener.packets) > heard, left):  # type: ignore[misc]
                    raise NotPlayedError(f"{action.until} did not arrive in time")
            elif not isinstance(action, SkippedStep):
                return

    async def _wait_for_auth(self, entry: ScriptEntry) -> None:
        before = (step for step in self.script.entries if step.place <= entry.place and not step.from_client)
        wanted = sum(isinstance(step.packet, packets.Auth) for step in before)
        came = await self.listener.until(lambda: self._answers.count(packets.Auth) >= wanted, self.patience_s)
        if not came and not self.listener.ended_by:
            raise NotPlayedError("the broker sent no AUTH")

    async def _wait_for_delivery(self, player: ClientPlayer, entry: ScriptEntry) -> None:
        """Wait for a recorded delivery; a helper publishes the message unless the client did so itself."""
        if entry not in player.correspondence.done:
            await self._provide(entry)
            await self._wait_for_entry(player, entry)

    async def _wait_for_entry(self, player: ClientPlayer, entry: ScriptEntry) -> bool:
        """Wait for a recorded packet; only briefly if an earlier one did not arrive."""
        done, seconds = player.correspondence.done, HOPELESS_S if self._lacking else self.patience_s
        came = await self.listener.until(lambda: entry in done, seconds)
        self._lacking = self._lacking or not came
        return came

    async def _provide(self, entry: ScriptEntry) -> None:
        packet, topic = entry.packet, entry.topic
        assert isinstance(packet, packets.Publish)
        own = any(
            other.from_client and isinstance(other.packet, packets.Publish) and other.topic == topic
            and other.packet.payload == packet.payload and other.place < entry.place
            for other in self.script.entries
        )  # fmt: skip
        if not own and topic and not topic.startswith("$") and self.supply is not None:
            await self.supply(topic, packet.payload, packet.qos)

    # The mutation and the steps after it

    async def _take_step(self, step: FlowStep) -> bool:
        """Take one step; false if the remaining steps are pointless."""
        link, seen = self.listener.link, self.played.seen
        assert link is not None
        entry = self._entry(step)
        if step.action is Action.SEND:
            if not step.mutated and entry is not None and isinstance(entry.packet, packets.Disconnect):
                # The reaction to the mutation is visible only while the client stays.
                return False
            if not step.mutated and entry is not None and self._is_out_of_turn(entry):
                if self._answers.count(packets.Connack):
                    return True
                if (PacketType.CONNACK, None) not in self._missed:
                    self._missed.append((PacketType.CONNACK, None))
                return False
            data = self._acks.data(step, entry)
            if step.mutated and entry is not None:
                packet = decode(data, self.script.version)
                self._acks.own[entry] = getattr(packet, "packet_identifier", None)
                self._owed[entry] = expected_responses(packet)
            if data:
                self._send(data, mutated=step.mutated)
                self.played.steps.append(FlowStep(Action.SEND, data, step.entry, mutated=step.mutated))
                seen.client_left = seen.client_left or (step.mutated and data[:1] == b"\xe0")
            return True
        self.played.steps.append(step)
        if step.action is Action.AWAIT:
            await self._await(step, entry)
        elif step.action is Action.PAUSE:
            await self.listener.until_ended(step.nanoseconds / 1e9)
        elif step.action is Action.STOP_READING:
            self._deaf = True
            self.listener.stop_reading()
        else:
            seen.client_left = True
            how = "reset" if step.action is Action.RESET else "fin"
            self.conversation.add(True, b"", time.time_ns(), mutated=True, ends=how)
            if step.action is Action.HALF_CLOSE:
                link.half_close()
                return True
            if step.action is Action.RESET:
                link.abort()
            else:
                link.close()
                await self.listener.until_ended(self.patience_s)
            return False
        return True

    def _is_out_of_turn(self, entry: ScriptEntry) -> bool:
        """Whether an AUTH would break the protocol (5.0 4.12): the broker has not asked for it, or not let us in."""
        if not isinstance(entry.packet, packets.Auth):
            return False
        is_response = entry.packet.reason_code == CONTINUE_AUTHENTICATION
        return not (self._challenged if is_response else self._answers.accepted)

    def _entry(self, step: FlowStep) -> ScriptEntry | None:
        return None if step.entry is None or self.raw else self.script.entries[step.entry]

    async def _await(self, step: FlowStep, entry: ScriptEntry | None) -> None:
        if entry is not None and isinstance(entry.packet, packets.Publish):
            await self._provide(entry)
            seconds = HOPELESS_S if self._undelivered else self._patience()
            payload = entry.packet.payload
            await self.listener.until(lambda: self._answers.has_delivery(payload), seconds)
            came = self._answers.take_delivery(payload)
            self._undelivered = self._undelivered or came is None
            if came is not None:
                self._acks.delivered(entry, came)
            return
        kind = step.awaits
        if kind is PacketType.AUTH:
            await self._next_challenge()
            return
        if kind not in ANSWERS:
            # The broker chooses when to send PUBREL and DISCONNECT; a short wait is enough for packets on their way.
            if kind is not None:
                await self.listener.until(lambda: self._answers.has(kind), min(HOPELESS_S, self._patience()))
            return
        identifier, asked = step.packet_identifier, None if entry is None else entry.answers
        if asked is not None and asked in self._acks.without_pubrec:
            return
        if asked is not None and asked in self._acks.own:
            identifier = self._acks.own[asked]
            if kind not in self._owed[asked]:
                await self.listener.until(lambda: self._answers.has(kind, identifier), HOPELESS_S)
                return
        elif (
            asked is not None
            and isinstance(asked.packet, packets.Publish)
            and kind not in expected_responses(asked.packet)
        ):
            # The PUBLISH was sent at a lower QoS than recorded, because of the broker's Maximum QoS.
            self._acks.without_pubrec.add(asked)
            return
        seconds = self._patience()
        await asyncio.sleep(0)  # reads the packets that have arrived
        await self.listener.until(lambda: self._answers.has(kind, identifier), seconds)
        if self._answers.take(kind, identifier) is None and not self.listener.ended_by:
            self._missed.append((kind, identifier))
            if kind is PacketType.PUBREC and asked is not None:
                self._acks.without_pubrec.add(asked)

    async def _next_challenge(self) -> None:
        """Wait for the broker's AUTH, or for the CONNACK that ends the authentication."""
        answers, connacks = self._answers, self._answers.count(packets.Connack)
        await self.listener.until(
            lambda: answers.has(PacketType.AUTH) or answers.count(packets.Connack) > connacks, self._patience()
        )
        self._challenged = answers.take(PacketType.AUTH) is not None

    def _patience(self) -> float:
        if self._missed:  # late answers are counted at the end
            return HOPELESS_S if len(self._missed) < MAX_VAIN else 0.0
        # Without a demanded reaction, a missing answer proves nothing.
        return min(self.patience_s, FREE_S) if self.case.reaction.demand is Demand.ANY else self.patience_s

    async def _observe(self) -> None:
        seen, listener = self.played.seen, self.listener
        seen.waited_s = self.patience_s
        if listener.ended_by or self.case.reaction.demand is Demand.ANY:
            return
        if self._deaf or seen.client_left:
            await listener.until_ended(self.patience_s)
            return
        if not await listener.until(lambda: self._answers.accepted, self.patience_s):
            return
        before = self._answers.count(packets.Pingresp)
        self._send(_PING)
        seen.ping_answered = await listener.until_quiet(
            lambda: self._answers.count(packets.Pingresp) > before, self.patience_s, LONGEST_S
        )
        if seen.ping_answered and self.case.reaction.demand is not Demand.ACCEPT:
            if self.thorough:
                async with self.resting():
                    await listener.until_ended(self.patience_s)
            else:
                await listener.until_ended(SETTLE_S)
        if listener.ended_by:
            seen.ping_answered = None

    def _disconnect(self) -> None:
        """Send DISCONNECT if the broker still answers, so that no Will is published."""
        seen, link = self.played.seen, self.listener.link
        assert link is not None
        seen.ended = self.listener.ended_by
        if seen.ping_answered and not self.listener.ended_by:
            link.write(b"\xe0\x00")
            link.close()

    def _complete_observation(self) -> None:
        seen = self.played.seen
        seen.answers = self.listener.packets[self._seen :]
        seen.missing += (kind for kind, identifier in self._missed if self._answers.take(kind, identifier) is None)
        seen.accepted = self._answers.accepted
        seen.needs_authentication = not seen.accepted and self._answers.has(PacketType.AUTH)

    def _send(self, data: bytes, *, mutated: bool = False) -> None:
        link = self.listener.link
        assert link is not None
        self.conversation.add(True, data, time.time_ns(), mutated=mutated)
        link.write(data)

    def on_packet(self, packet: ControlPacket | Malformed) -> None:
        """Let the player, which exists only before the mutation, answer a packet of the broker."""
        player = self._player
        if player is not None and not player.over:
            now = time.time_ns()
            player.receive(packet, now)
            for send in player.react(now):
                self._send(send.data)


MAX_NOTED_BYTES = 64 * 1024
"""Maximum number of recorded bytes of a broker that floods the connection."""


class RecordingListener(PacketCollector):
    """A listener that records all bytes in a conversation, and passes packets on."""

    def __init__(self, conversation: Conversation, on_packet: Callable[[ControlPacket | Malformed], None]) -> None:
        super().__init__(conversation.version)
        self.conversation = conversation
        self._on_packet = on_packet

    def received(self, data: bytes) -> None:
        """Record bytes of the broker."""
        if not self.flooded:
            self.conversation.add(False, data, time.time_ns())
        super().received(data)

    def on_end(self, how: str, detail: str) -> None:
        super().on_end(how, detail)
        self.conversation.add(False, b"", time.time_ns(), ends="reset" if how == "reset" else "fin")

    def on_flood(self) -> None:
        """Stop reading after too many bytes or packets, and shorten the recorded conversation."""
        super().on_flood()
        self.conversation.shorten(MAX_NOTED_BYTES)

    def on_packet(self, packet: ControlPacket | Malformed) -> None:
        self._on_packet(packet)


class BrokerAnswers:
    """Packets of a broker in order; ``received`` grows while packets arrive.

    Each packet answers at most one packet of the client: the step that awaited it consumes it.
    """

    def __init__(self, received: Sequence[ControlPacket | Malformed]) -> None:
        self._received = received
        self._consumed: set[int] = set()
        self._first = 0
        """Index of the first packet that may be unconsumed; keeps searches linear for thousands of packets."""

    def pass_over(self) -> int:
        """Mark all received packets as consumed; returns their number."""
        self._first = len(self._received)
        return self._first

    def has(self, kind: PacketType, identifier: int | None = None) -> bool:
        """Whether there is an unconsumed packet of a type, optionally with this Packet Identifier."""
        return self._find(kind, identifier) is not None

    def take(self, kind: PacketType, identifier: int | None = None) -> ControlPacket | None:
        """Consume the first matching packet, or return ``None``."""
        return self._consume(self._find(kind, identifier))

    def has_delivery(self, payload: bytes) -> bool:
        return self._find(PacketType.PUBLISH, payload=payload) is not None

    def take_delivery(self, payload: bytes) -> Publish | None:
        packet = self._consume(self._find(PacketType.PUBLISH, payload=payload))
        return packet if isinstance(packet, Publish) else None

    def _find(self, kind: PacketType, identifier: int | None = None, payload: bytes | None = None) -> int | None:
        while self._first in self._consumed:
            self._consumed.discard(self._first)
            self._first += 1
        for place in range(self._first, len(self._received)):
            packet = self._received[place]
            if place in self._consumed or isinstance(packet, Malformed) or packet.packet_type != kind:
                continue
            if identifier not in (None, getattr(packet, "packet_identifier", None)):
                continue
            if payload is None or getattr(packet, "payload", None) == payload:
                return place
        return None

    def _consume(self, place: int | None) -> ControlPacket | None:
        if place is None:
            return None
        self._consumed.add(place)
        packet = self._received[place]
        assert not isinstance(packet, Malformed)
        return packet

    def count(self, kind: type[ControlPacket]) -> int:
        """Number of packets of a class, consumed or not."""
        return sum(isinstance(packet, kind) for packet in self._received)

    @property
    def accepted(self) -> bool:
        return any(isinstance(packet, Connack) and not packet.reason_code for packet in self._received)


@dataclass(slots=True)
class CaseAcknowledger:
    """Adapts recorded acknowledgements to the live deliveries and to the mutated packets of the client."""

    version: ProtocolVersion
    own: dict[ScriptEntry, int | None] = field(default_factory=dict)
    """Actual Packet Identifiers of mutated packets of the client; ``None`` if the mutation removed it."""
    without_pubrec: set[ScriptEntry] = field(default_factory=set)
    """QoS 2 messages of the client without a PUBREC, so that no PUBREL is sent."""
    _live: dict[ScriptEntry, packets.Publish] = field(default_factory=dict)

    def delivered(self, entry: ScriptEntry, packet: packets.Publish) -> None:
        """Note the live delivery that corresponds to a recorded one."""
        self._live[entry] = packet

    def data(self, step: FlowStep, entry: ScriptEntry | None) -> bytes:
        """The bytes to send in a step; empty to send nothing."""
        if entry is None or entry.answers is None or not isinstance(entry.packet, packets.Acknowledgement):
            return step.data
        if step.mutated:
            return self._with_live_identifier(step, entry)
        if entry.answers in self.without_pubrec:
            return b""
        came = self._live.get(entry.answers)
        if came is not None and came.qos != getattr(entry.answers.packet, "qos", None):
            return self._acknowledgement_at_other_qos(entry, came)
        return self._with_live_identifier(step, entry)

    def _acknowledgement_at_other_qos(self, entry: ScriptEntry, came: packets.Publish) -> bytes:
        """The acknowledgement of a message that this broker delivered at another QoS than recorded."""
        kind = {1: packets.Puback, 2: packets.Pubrec}.get(came.qos)
        if kind is None or not isinstance(entry.packet, packets.Puback | packets.Pubrec):
            return b""
        return encode(kind(packet_identifier=came.packet_identifier or 0), self.version)

    def _with_live_identifier(self, step: FlowStep, entry: ScriptEntry) -> bytes:
        """The bytes with the Packet Identifier of the live delivery."""
        answered = entry.answers
        assert answered is not None
        assert isinstance(entry.packet, packets.Acknowledgement)
        recorded = entry.packet.packet_identifier.to_bytes(2, "big")
        if answered.from_client:
            # A PUBREL, which belongs to the client's own PUBLISH.
            identifier = self.own.get(answered, entry.packet.packet_identifier)
        else:
            came = self._live.get(answered)
            identifier = None if came is None else came.packet_identifier
        if identifier is None:
            # No delivery needs an acknowledgement.
            return step.data if step.mutated else b""
        if step.data[2:4] == recorded and step.data[1:2] == entry.raw[1:2]:
            return step.data[:2] + identifier.to_bytes(2, "big") + step.data[4:]
        return step.data


def deliveries(player: ClientPlayer) -> list[tuple[ScriptEntry, packets.Publish]]:
    """Recorded deliveries that arrived, each with its live delivery."""
    return [
        (entry.source, entry.packet)
        for entry in player.live.script.entries
        if not entry.from_client and entry.source is not None and isinstance(entry.packet, packets.Publish)
    ]

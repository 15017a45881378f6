"""Plays one case against a live broker and observes how the broker reacts.

`CaseRunner` plays the recorded connection up to the mutation as a client that keeps the protocol, then sends the
mutated flow.  A live broker numbers its packets differently and delivers in another order than the recorded one, so
`CaseAcknowledger` adapts the acknowledgements of the flow to what was really delivered.

`RecordingListener` records the broker's side of the connection and stops listening when the broker floods it.
`BrokerAnswers` keeps what the broker sent, and which of it a step of the case has already waited for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field

from mqttscope.broker_test.conversation import Conversation
from mqttscope.broker_test.drivers.probe_client import BrokerAccess, PacketListener
from mqttscope.broker_test.fit import recorded_failures
from mqttscope.broker_test.verdict import ANSWERS, Observation, expected_responses
from mqttscope.errors import MqttscopeError
from mqttscope.mqtt import packets
from mqttscope.mqtt.codec import decode, encode
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Connack, Publish
from mqttscope.mutate import Action, Case, Demand, Step
from mqttscope.replay.client import ClientOptions, ClientPlayer, ClientSessions
from mqttscope.replay.client.player import Skip, Wait
from mqttscope.replay.live import LiveConnection, Send
from mqttscope.replay.script import Ending, Entry, Script
from mqttscope.session.connection import Connection

HOPELESS_S = 0.05
"""How long anything is waited for after an answer that did not come."""
MAX_VAIN = 10
"""Answers that are waited for in vain before nothing is waited for any more."""
LONGEST_S = 60.0
"""How long a broker may take to answer PINGREQ while it is still busy answering what came before."""
FREE_S = 0.2
"""How long anything is waited for in a case in which nothing is demanded."""
SETTLE_S = 0.1
"""How long a broker that has answered PINGREQ may take to close all the same, at the first look."""
CONTINUE_AUTHENTICATION = 0x18
_PING = b"\xc0\x00"

Supply = Callable[[str, bytes, int], Awaitable[bool]]
"""Publishes a message that others published in the recording: topic, payload, QoS."""


class NotPlayedError(MqttscopeError):
    """The valid part of the flow did not get as far as the mutation; the text says why."""


@dataclass(slots=True)
class Played:
    """What became of one case."""

    conversation: Conversation
    seen: Observation
    during: float | None = None
    """What ``meanwhile`` returned."""
    steps: list[Step] = field(default_factory=list)
    """What was really done, with the bytes that were really sent."""


@dataclass(slots=True, eq=False)
class CaseRunner:
    """One case at one connection.  Use once."""

    case: Case
    script: Script
    """The connection, fitted to the broker."""
    access: BrokerAccess
    patience_s: float
    supply: Supply | None = None
    meanwhile: Callable[[], Awaitable[float | None]] | None = None
    """Called after the last step, while the connection is still open."""
    raw: bool = False
    """Send the bytes as they are, without the player: for cases that were reduced."""
    thorough: bool = False
    """Wait for a close as long after PINGRESP as anywhere else."""
    resting: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    """Entered for that wait: all was answered, and nothing more is sent."""
    conversation: Conversation = field(init=False)
    listener: RecordingListener = field(init=False)
    played: Played = field(init=False)
    _player: ClientPlayer | None = None
    _acks: CaseAcknowledger = field(init=False)
    _owed: dict[Entry, frozenset[PacketType]] = field(default_factory=dict)
    """What the broker has to answer to mutated packets as they really are."""
    _answers: BrokerAnswers = field(init=False)
    _seen: int = 0
    """Packets of the broker before the mutation."""
    _lacking: bool = False
    """Something recorded did not come before the mutation."""
    _missed: list[tuple[PacketType, int | None]] = field(default_factory=list)
    """Answers that did not come in time, with the Packet Identifiers that they had to have."""
    _undelivered: bool = False
    """A delivery did not come: the mutation may have changed what the client is subscribed to."""
    _challenged: bool = True
    """The AUTH that was waited for last has come."""
    _deaf: bool = False

    def __post_init__(self) -> None:
        self.conversation = Conversation(self.script.version)
        self.listener = RecordingListener(self.conversation, self.took)
        self._answers = BrokerAnswers(self.listener.packets)
        self._acks = CaseAcknowledger(self.script.version)
        seen = Observation(recorded_codes=recorded_failures(self.script), login=self.access.user_name is not None)
        self.played = Played(self.conversation, seen)

    async def run(self) -> Played:
        """Play it; `LinkError` without a connection, `NotPlayedError` where the mutation was not reached."""
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
                if self.listener.how or not await self._do(step):
                    break
            await self._look()
            if self.meanwhile is not None:
                self.played.during = await self.meanwhile()
            self._leave()
        finally:
            link.abort()
            await link.closed.wait()
        self._sum_up()
        return self.played

    # Before the mutation

    async def _prefix(self, at: int) -> None:
        """Play what comes before the mutation, in the recorded order."""
        kept = self.script.entries[:at]
        recorded = Script(self.script.connection, kept, Ending("open"), self.script.opened_ns)
        live = Connection(self.script.connection.number, "", "", "", 0, 0, handshake_seen=True)
        self._player = player = ClientPlayer(
            recorded, LiveConnection(Script(live), plays_client=True), ClientSessions(), ClientOptions()
        )
        for packet in self.listener.packets:
            player.receive(packet, time.time_ns())
        for entry in kept:
            if self.listener.how:
                break
            if entry.from_client:
                await self._until_sent(player, entry)
            elif isinstance(entry.packet, packets.Publish):
                await self._delivered(player, entry)
            elif isinstance(entry.packet, packets.Auth):
                await self._until_challenged(entry)
            elif entry.answers is not None:
                came = await self._came(player, entry)
                if not came and isinstance(entry.packet, packets.Connack):
                    raise NotPlayedError("CONNECT was not answered")
        if self.listener.how:
            raise NotPlayedError(f"the broker ended the connection before the mutation ({self.listener.how})")
        # In the middle of an authentication nothing is decided yet.
        decided = any(isinstance(one.packet, packets.Connack) for one in kept)
        if not self._answers.accepted and (decided or self._answers.count(packets.Connack)):
            raise NotPlayedError("CONNECT was refused")
        for entry, packet in deliveries(player):
            self._acks.delivered(entry, packet)
        done = player.correspondence.done
        self._acks.without_pubrec |= {
            entry.answers
            for entry in kept
            if isinstance(entry.packet, packets.Pubrec) and entry.answers is not None and entry not in done
        }
        # From here on nothing is acknowledged but by the steps of the case.
        self._player = None

    async def _until_sent(self, player: ClientPlayer, entry: Entry) -> None:
        """Let the player continue until it has sent an entry, or left it out."""
        deadline = time.monotonic() + self.patience_s
        while entry in player.steps and not self.listener.how:
            action = player.perform(time.time_ns())
            if isinstance(action, Send):
                self._send(action.data)
            elif isinstance(action, Wait):
                heard = len(self.listener.packets)
                left = deadline - time.monotonic()
                if not await self.listener.until(lambda heard=heard: len(self.listener.packets) > heard, left):  # type: ignore[misc]
                    raise NotPlayedError(f"{action.until} was waited for in vain")
            elif not isinstance(action, Skip):
                return

    async def _until_challenged(self, entry: Entry) -> None:
        """Have the AUTH of a recorded authentication come."""
        before = (one for one in self.script.entries if one.place <= entry.place and not one.from_client)
        wanted = sum(isinstance(one.packet, packets.Auth) for one in before)
        came = await self.listener.until(lambda: self._answers.count(packets.Auth) >= wanted, self.patience_s)
        if not came and not self.listener.how:
            raise NotPlayedError("the broker sent no AUTH")

    async def _delivered(self, player: ClientPlayer, entry: Entry) -> None:
        """Have a recorded delivery come: by what the client has sent itself, or by a helper in the others' place."""
        if entry not in player.correspondence.done:
            await self._provide(entry)
            await self._came(player, entry)

    async def _came(self, player: ClientPlayer, entry: Entry) -> bool:
        """Wait for something recorded; where another broker left something out before, not for long."""
        done, seconds = player.correspondence.done, HOPELESS_S if self._lacking else self.patience_s
        came = await self.listener.until(lambda: entry in done, seconds)
        self._lacking = self._lacking or not came
        return came

    async def _provide(self, entry: Entry) -> None:
        packet, topic = entry.packet, entry.topic
        assert isinstance(packet, packets.Publish)
        own = any(
            one.from_client and isinstance(one.packet, packets.Publish) and one.topic == topic
            and one.packet.payload == packet.payload and one.place < entry.place
            for one in self.script.entries
        )  # fmt: skip
        if not own and topic and not topic.startswith("$") and self.supply is not None:
            await self.supply(topic, packet.payload, packet.qos)

    # The mutation and what follows it

    async def _do(self, step: Step) -> bool:
        """Do one step; false where what follows has no meaning any more."""
        link, seen = self.listener.link, self.played.seen
        assert link is not None
        entry = self._entry(step)
        if step.action is Action.SEND:
            if not step.mutated and entry is not None and isinstance(entry.packet, packets.Disconnect):
                # What the broker makes of the mutation shows only as long as nobody leaves.
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
                self.played.steps.append(Step(Action.SEND, data, step.entry, mutated=step.mutated))
                seen.left = seen.left or (step.mutated and data[:1] == b"\xe0")
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
            seen.left = True
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

    def _is_out_of_turn(self, entry: Entry) -> bool:
        """Whether an AUTH would break the protocol (5.0 4.12): the broker has not asked for it, or not let us in."""
        if not isinstance(entry.packet, packets.Auth):
            return False
        is_response = entry.packet.reason_code == CONTINUE_AUTHENTICATION
        return not (self._challenged if is_response else self._answers.accepted)

    def _entry(self, step: Step) -> Entry | None:
        return None if step.entry is None or self.raw else self.script.entries[step.entry]

    async def _await(self, step: Step, entry: Entry | None) -> None:
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
            # PUBREL and DISCONNECT come when the broker wants; a moment is enough for what is on its way.
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
            # It went at a lower QoS than it was recorded with, since the broker takes no higher one.
            self._acks.without_pubrec.add(asked)
            return
        seconds = self._patience()
        await asyncio.sleep(0)  # what has come is read, even where it is not waited for
        await self.listener.until(lambda: self._answers.has(kind, identifier), seconds)
        if self._answers.take(kind, identifier) is None and not self.listener.how:
            self._missed.append((kind, identifier))
            if kind is PacketType.PUBREC and asked is not None:
                self._acks.without_pubrec.add(asked)

    async def _next_challenge(self) -> None:
        """Wait for the broker's AUTH, or for the CONNACK that makes an end of it."""
        answers, connacks = self._answers, self._answers.count(packets.Connack)
        await self.listener.until(
            lambda: answers.has(PacketType.AUTH) or answers.count(packets.Connack) > connacks, self._patience()
        )
        self._challenged = answers.take(PacketType.AUTH) is not None

    def _patience(self) -> float:
        if self._missed:  # they may still come: in the end it is looked at again
            return HOPELESS_S if len(self._missed) < MAX_VAIN else 0.0
        # Where nothing is demanded, nothing has to be proven by waiting.
        return min(self.patience_s, FREE_S) if self.case.reaction.demand is Demand.ANY else self.patience_s

    async def _look(self) -> None:
        """See what the broker does after the last step."""
        seen, listener = self.played.seen, self.listener
        seen.waited_s = self.patience_s
        if listener.how or self.case.reaction.demand is Demand.ANY:
            return
        if self._deaf or seen.left:
            await listener.until_ended(self.patience_s)
            return
        if not await listener.until(lambda: self._answers.accepted, self.patience_s):
            return
        before = self._answers.count(packets.Pingresp)
        self._send(_PING)
        seen.fenced = await listener.until_quiet(
            lambda: self._answers.count(packets.Pingresp) > before, self.patience_s, LONGEST_S
        )
        if seen.fenced and self.case.reaction.demand is not Demand.ACCEPT:
            if self.thorough:
                async with self.resting():
                    await listener.until_ended(self.patience_s)
            else:
                await listener.until_ended(SETTLE_S)
        if listener.how:
            seen.fenced = None

    def _leave(self) -> None:
        """Say DISCONNECT where it is understood, so that no Will is published."""
        seen, link = self.played.seen, self.listener.link
        assert link is not None
        seen.ended = self.listener.how
        if seen.fenced and not self.listener.how:
            link.write(b"\xe0\x00")
            link.close()

    def _sum_up(self) -> None:
        seen = self.played.seen
        seen.answers = self.listener.packets[self._seen :]
        seen.missing += (kind for kind, identifier in self._missed if self._answers.take(kind, identifier) is None)
        seen.accepted = self._answers.accepted
        seen.asked = not seen.accepted and self._answers.has(PacketType.AUTH)

    def _send(self, data: bytes, *, mutated: bool = False) -> None:
        link = self.listener.link
        assert link is not None
        self.conversation.add(True, data, time.time_ns(), mutated=mutated)
        link.write(data)

    def took(self, packet: ControlPacket | Malformed) -> None:
        """A packet of the broker: before the mutation the player answers it."""
        player = self._player
        if player is not None and not player.over:
            now = time.time_ns()
            player.receive(packet, now)
            for send in player.react(now):
                self._send(send.data)


MAX_NOTED_BYTES = 64 * 1024
"""What is kept of the words of a broker that is not listened to any longer."""


class RecordingListener(PacketListener):
    """A listener that notes everything in a conversation, and hands packets on."""

    def __init__(self, conversation: Conversation, took: Callable[[ControlPacket | Malformed], None]) -> None:
        super().__init__(conversation.version)
        self.conversation = conversation
        self._took = took

    def received(self, data: bytes) -> None:
        """Bytes of the broker."""
        if not self.flooded:
            self.conversation.add(False, data, time.time_ns())
        super().received(data)

    def ended(self, how: str, detail: str) -> None:
        super().ended(how, detail)
        if self.how:
            self.conversation.add(False, b"", time.time_ns(), ends="reset" if how == "reset" else "fin")

    def drowned(self) -> None:
        """More came than is listened to: its beginning shows what it was."""
        super().drowned()
        self.conversation.shorten(MAX_NOTED_BYTES)

    def took(self, packet: ControlPacket | Malformed) -> None:
        self._took(packet)


class BrokerAnswers:
    """Packets of a broker in their order; ``received`` grows while they come.

    Each of them answers one packet of the client at most: who has waited for it takes it.
    """

    def __init__(self, received: Sequence[ControlPacket | Malformed]) -> None:
        self._received = received
        self._taken: set[int] = set()
        self._first = 0
        """All before this place are taken; what is sent by the thousand would take the square of it otherwise."""

    def pass_over(self) -> int:
        """Let nobody take what has come so far; returns how many that are."""
        self._first = len(self._received)
        return self._first

    def has(self, kind: PacketType, identifier: int | None = None) -> bool:
        """Whether there is a packet that nobody has taken; ``identifier``: only with this Packet Identifier."""
        return self._find(kind, identifier) is not None

    def take(self, kind: PacketType, identifier: int | None = None) -> ControlPacket | None:
        """The first one of these, which is nobody else's from now on; ``None`` where there is none."""
        return self._taken_from(self._find(kind, identifier))

    def has_delivery(self, payload: bytes) -> bool:
        return self._find(PacketType.PUBLISH, payload=payload) is not None

    def take_delivery(self, payload: bytes) -> Publish | None:
        found = self._taken_from(self._find(PacketType.PUBLISH, payload=payload))
        return found if isinstance(found, Publish) else None

    def _find(self, kind: PacketType, identifier: int | None = None, payload: bytes | None = None) -> int | None:
        while self._first in self._taken:
            self._taken.discard(self._first)
            self._first += 1
        for place in range(self._first, len(self._received)):
            packet = self._received[place]
            if place in self._taken or isinstance(packet, Malformed) or packet.packet_type != kind:
                continue
            if identifier not in (None, getattr(packet, "packet_identifier", None)):
                continue
            if payload is None or getattr(packet, "payload", None) == payload:
                return place
        return None

    def _taken_from(self, place: int | None) -> ControlPacket | None:
        if place is None:
            return None
        self._taken.add(place)
        packet = self._received[place]
        assert not isinstance(packet, Malformed)
        return packet

    def count(self, kind: type[ControlPacket]) -> int:
        """How many packets of a kind have come, taken or not."""
        return sum(isinstance(one, kind) for one in self._received)

    @property
    def accepted(self) -> bool:
        return any(isinstance(one, Connack) and not one.reason_code for one in self._received)


@dataclass(slots=True)
class CaseAcknowledger:
    """Live deliveries by the recorded ones that they stand for, and what the client's own packets have become."""

    version: ProtocolVersion
    own: dict[Entry, int | None] = field(default_factory=dict)
    """Packet Identifiers that mutated packets of the client really have; ``None`` where they have none any more."""
    without_pubrec: set[Entry] = field(default_factory=set)
    """Messages of the client at QoS 2 that got no PUBREC: their PUBREL would make no sense."""
    _live: dict[Entry, packets.Publish] = field(default_factory=dict)

    def delivered(self, entry: Entry, packet: packets.Publish) -> None:
        """A delivery came that stands for a recorded one."""
        self._live[entry] = packet

    def data(self, step: Step, entry: Entry | None) -> bytes:
        """The bytes to send in a step, empty for nothing."""
        if entry is None or entry.answers is None or not isinstance(entry.packet, packets.Acknowledgement):
            return step.data
        if step.mutated:
            return self._addressed(step, entry)
        if entry.answers in self.without_pubrec:
            return b""
        came = self._live.get(entry.answers)
        if came is not None and came.qos != getattr(entry.answers.packet, "qos", None):
            return self._at_other_qos(entry, came)
        return self._addressed(step, entry)

    def _at_other_qos(self, entry: Entry, came: packets.Publish) -> bytes:
        """What acknowledges a message that the recorded broker delivered at another QoS than this one."""
        kind = {1: packets.Puback, 2: packets.Pubrec}.get(came.qos)
        if kind is None or not isinstance(entry.packet, packets.Puback | packets.Pubrec):
            return b""
        return encode(kind(packet_identifier=came.packet_identifier or 0), self.version)

    def _addressed(self, step: Step, entry: Entry) -> bytes:
        """The bytes with the Packet Identifier of the live delivery."""
        answered = entry.answers
        assert answered is not None
        assert isinstance(entry.packet, packets.Acknowledgement)
        recorded = entry.packet.packet_identifier.to_bytes(2, "big")
        if answered.from_client:
            # A PUBREL: it goes with the client's own PUBLISH.
            identifier = self.own.get(answered, entry.packet.packet_identifier)
        else:
            came = self._live.get(answered)
            identifier = None if came is None else came.packet_identifier
        if identifier is None:
            # Nothing came that it could acknowledge.
            return step.data if step.mutated else b""
        if step.data[2:4] == recorded and step.data[1:2] == entry.raw[1:2]:
            return step.data[:2] + identifier.to_bytes(2, "big") + step.data[4:]
        return step.data


def deliveries(player: ClientPlayer) -> list[tuple[Entry, packets.Publish]]:
    """The recorded deliveries that a player has seen come, with the live ones that stand for them."""
    return [
        (one.source, one.packet)
        for one in player.live.script.entries
        if not one.from_client and one.source is not None and isinstance(one.packet, packets.Publish)
    ]

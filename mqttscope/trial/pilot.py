"""Plays one case: the recorded connection as a client that keeps the protocol, then the mutated flow, and looks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from mqttscope.mqtt import packets
from mqttscope.mqtt.codec import decode
from mqttscope.mqtt.constants import PacketType
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mutate import Action, Case, Demand, Step
from mqttscope.replay.player import Manner, Player, Sessions
from mqttscope.replay.player.actions import Send, Skip, Wait
from mqttscope.replay.script import Ending, Entry, Script
from mqttscope.session.connection import Connection
from mqttscope.trial.acknowledging import Acknowledging, deliveries
from mqttscope.trial.answers import Answers
from mqttscope.trial.conversation import Conversation
from mqttscope.trial.door import Door
from mqttscope.trial.fit import recorded_failures
from mqttscope.trial.heard import Heard
from mqttscope.trial.owed import ANSWERS, owed
from mqttscope.trial.verdict import Observation

HOPELESS_S = 0.05
"""How long anything is waited for behind an answer that did not come."""
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


class NotPlayedError(Exception):
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
class Pilot:
    """One case at one connection.  Use once."""

    case: Case
    script: Script
    """The connection, fitted to the broker."""
    door: Door
    patience_s: float
    supply: Supply | None = None
    meanwhile: Callable[[], Awaitable[float | None]] | None = None
    """Called behind the last step, while the connection is still open."""
    raw: bool = False
    """Send the bytes as they are, without the player: for cases that were reduced."""
    thorough: bool = False
    """Wait for a close as long behind PINGRESP as anywhere else."""
    conversation: Conversation = field(init=False)
    inbox: Heard = field(init=False)
    played: Played = field(init=False)
    _player: Player | None = None
    _acks: Acknowledging = field(init=False)
    _owed: dict[Entry, frozenset[PacketType]] = field(default_factory=dict)
    """What the broker has to answer to mutated packets as they really are."""
    _answers: Answers = field(init=False)
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
        self.inbox = Heard(self.conversation, self.took)
        self._answers = Answers(self.inbox.packets)
        self._acks = Acknowledging(self.script.version)
        seen = Observation(recorded_codes=recorded_failures(self.script), login=self.door.user_name is not None)
        self.played = Played(self.conversation, seen)

    async def run(self) -> Played:
        """Play it; `LinkError` without a connection, `NotPlayedError` where the mutation was not reached."""
        self.inbox.link = link = await self.door.open(self.inbox, self.script.version)
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
                if self.inbox.how or not await self._do(step):
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
        self._player = player = Player(recorded, Script(live), Sessions(), Manner(delay=0.0))
        for packet in self.inbox.packets:
            player.receive(packet, time.time_ns())
        for entry in kept:
            if self.inbox.how:
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
        if self.inbox.how:
            raise NotPlayedError(f"the broker ended the connection before the mutation ({self.inbox.how})")
        # In the middle of an authentication nothing is decided yet.
        decided = any(isinstance(one.packet, packets.Connack) for one in kept)
        if not self._answers.accepted and (decided or self._answers.count(packets.Connack)):
            raise NotPlayedError("CONNECT was refused")
        for entry, packet in deliveries(player):
            self._acks.delivered(entry, packet)
        self._acks.without_pubrec |= {
            entry.answers
            for entry in kept
            if isinstance(entry.packet, packets.Pubrec) and entry.answers is not None and entry not in player.done
        }
        # From here on nothing is acknowledged but by the steps of the case.
        self._player = None

    async def _until_sent(self, player: Player, entry: Entry) -> None:
        """Let the player go on until it has sent an entry, or left it out."""
        deadline = time.monotonic() + self.patience_s
        while entry in player.steps and not self.inbox.how:
            action = player.perform(time.time_ns())
            if isinstance(action, Send):
                self._send(action.data)
            elif isinstance(action, Wait):
                heard = len(self.inbox.packets)
                left = deadline - time.monotonic()
                if not await self.inbox.until(lambda heard=heard: len(self.inbox.packets) > heard, left):  # type: ignore[misc]
                    raise NotPlayedError(f"{action.until} was waited for in vain")
            elif not isinstance(action, Skip):
                return

    async def _until_challenged(self, entry: Entry) -> None:
        """Have the AUTH of a recorded authentication come."""
        wanted = sum(
            isinstance(one.packet, packets.Auth) and not one.from_client
            for one in self.script.entries
            if one.place <= entry.place
        )
        if (
            not await self.inbox.until(lambda: self._answers.count(packets.Auth) >= wanted, self.patience_s)
            and not self.inbox.how
        ):
            raise NotPlayedError("the broker sent no AUTH")

    async def _delivered(self, player: Player, entry: Entry) -> None:
        """Have a recorded delivery come: by what the client has sent itself, or by a helper in the others' place."""
        if entry in player.done:
            return
        await self._provide(entry)
        await self._came(player, entry)

    async def _came(self, player: Player, entry: Entry) -> bool:
        """Wait for something recorded; where another broker left something out before, not for long."""
        came = await self.inbox.until(lambda: entry in player.done, HOPELESS_S if self._lacking else self.patience_s)
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
        link, seen = self.inbox.link, self.played.seen
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
                self._owed[entry] = owed(packet)
            if data:
                self._send(data, mutated=step.mutated)
                self.played.steps.append(Step(Action.SEND, data, step.entry, mutated=step.mutated))
                seen.left = seen.left or (step.mutated and data[:1] == b"\xe0")
            return True
        self.played.steps.append(step)
        if step.action is Action.AWAIT:
            await self._await(step, entry)
        elif step.action is Action.PAUSE:
            await self.inbox.until_ended(step.nanoseconds / 1e9)
        elif step.action is Action.STOP_READING:
            self._deaf = True
            self.inbox.stop_reading()
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
                await self.inbox.until_ended(self.patience_s)
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
            await self.inbox.until(lambda: self._answers.has_delivery(payload), seconds)
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
                await self.inbox.until(lambda: self._answers.has(kind), min(HOPELESS_S, self._patience()))
            return
        identifier, asked = step.packet_identifier, None if entry is None else entry.answers
        if asked is not None and asked in self._acks.without_pubrec:
            return
        if asked is not None and asked in self._acks.own:
            identifier = self._acks.own[asked]
            if kind not in self._owed[asked]:
                await self.inbox.until(lambda: self._answers.has(kind, identifier), HOPELESS_S)
                return
        elif asked is not None and isinstance(asked.packet, packets.Publish) and kind not in owed(asked.packet):
            # It went at a lower QoS than it was recorded with, since the broker takes no higher one.
            self._acks.without_pubrec.add(asked)
            return
        seconds = self._patience()
        await asyncio.sleep(0)  # what has come is read, even where it is not waited for
        await self.inbox.until(lambda: self._answers.has(kind, identifier), seconds)
        if self._answers.take(kind, identifier) is None and not self.inbox.how:
            self._missed.append((kind, identifier))
            if kind is PacketType.PUBREC and asked is not None:
                self._acks.without_pubrec.add(asked)

    async def _next_challenge(self) -> None:
        """Wait for the broker's AUTH, or for the CONNACK that makes an end of it."""
        answers, connacks = self._answers, self._answers.count(packets.Connack)
        await self.inbox.until(
            lambda: answers.has(PacketType.AUTH) or answers.count(packets.Connack) > connacks, self._patience()
        )
        self._challenged = answers.take(PacketType.AUTH) is not None

    def _patience(self) -> float:
        if self._missed:  # they may still come: in the end it is looked at again
            return HOPELESS_S if len(self._missed) < MAX_VAIN else 0.0
        # Where nothing is demanded, nothing has to be proven by waiting.
        return min(self.patience_s, FREE_S) if self.case.reaction.demand is Demand.ANY else self.patience_s

    async def _look(self) -> None:
        """See what the broker does behind the last step."""
        seen, inbox = self.played.seen, self.inbox
        seen.waited_s = self.patience_s
        if inbox.how or self.case.reaction.demand is Demand.ANY:
            return
        if self._deaf or seen.left:
            await inbox.until_ended(self.patience_s)
            return
        if not await inbox.until(lambda: self._answers.accepted, self.patience_s):
            return
        before = self._answers.count(packets.Pingresp)
        self._send(_PING)
        seen.fenced = await inbox.until_quiet(
            lambda: self._answers.count(packets.Pingresp) > before, self.patience_s, LONGEST_S
        )
        if seen.fenced and self.case.reaction.demand is not Demand.ACCEPT:
            await inbox.until_ended(self.patience_s if self.thorough else SETTLE_S)
        if inbox.how:
            seen.fenced = None

    def _leave(self) -> None:
        """Say DISCONNECT where it is understood, so that no Will is published."""
        seen, link = self.played.seen, self.inbox.link
        assert link is not None
        seen.ended = self.inbox.how
        if seen.fenced and not self.inbox.how:
            link.write(b"\xe0\x00")
            link.close()

    def _sum_up(self) -> None:
        seen, inbox = self.played.seen, self.inbox
        seen.answers = inbox.packets[self._seen :]
        seen.missing += (kind for kind, identifier in self._missed if self._answers.take(kind, identifier) is None)
        seen.accepted = self._answers.accepted
        seen.asked = not seen.accepted and self._answers.has(PacketType.AUTH)
        seen.received_bytes = inbox.bytes

    def _send(self, data: bytes, *, mutated: bool = False) -> None:
        link = self.inbox.link
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

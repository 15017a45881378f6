"""The client side of one recorded connection, played against a live server.  No I/O and no clock.

Whoever drives it asks for the next step (`peek`), decides when it may happen, calls `perform`; gives it every packet
of the live server (`receive`); and sends the acknowledgements that follow from them (`react`).

Steps are what the client did of its own accord, in recorded order: CONNECT, PUBLISH, SUBSCRIBE, UNSUBSCRIBE, PINGREQ,
AUTH, DISCONNECT, and its end of the connection.  What a step waits for is said, never waited for here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import chain

from mqttscope.mqtt import packets
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import V3_1
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.replay.player import adapt, reactions
from mqttscope.replay.player.actions import Action, Close, Kind, Note, Send, Skip, Unfinished, Until, Wait
from mqttscope.replay.player.adapt import Fitted
from mqttscope.replay.player.live import Live
from mqttscope.replay.script import Ending, Entry
from mqttscope.session.connection_phase import CONNECTED
from mqttscope.session.inflight import MAX_PACKET_IDENTIFIERS

_ACKNOWLEDGEMENTS = (packets.Puback, packets.Pubrec, packets.Pubrel, packets.Pubcomp)
_REQUESTS = (packets.Subscribe, packets.Unsubscribe)


@dataclass(slots=True)
class Player(Live):
    """One connection, from CONNECT to its end."""

    steps: deque[Entry] = field(default_factory=deque)
    """What is left to do."""
    _fence: Entry | None = None
    """A live PUBLISH behind which a fence is due."""
    gave_up_connack: bool = False
    """Whether the answer to CONNECT was waited for in vain."""
    gave_up: Until | None = None
    """What a step of its own was waited for in vain."""
    _found: int = 0
    """The last packet identifier that was found in place of a recorded one."""
    _own: set[Entry] = field(default_factory=set)

    def __post_init__(self) -> None:
        super(Player, self).__post_init__()
        for entry in self.script.entries:
            if entry.from_client and (self.manner.faithful or not isinstance(entry.packet, _ACKNOWLEDGEMENTS)):
                self.steps.append(entry)
                self._own.add(entry)

    def peek(self) -> Entry | None:
        """The next recorded step; ``None`` when only the end of the connection is left."""
        return self.steps[0] if self.steps else None

    @property
    def urgent(self) -> bool:
        """Whether something is to be sent that is no recorded step and waits for no turn."""
        return bool(self.owed) or self._fence is not None

    def perform(self, now_ns: int) -> Action:
        """Do what is next, or say what it waits for."""
        if self._fence is not None:
            return self._send_fence(self._fence, now_ns)
        if self.owed:
            full = self._full() if isinstance(self.owed[0], packets.Publish) else None
            return self._send_owed(now_ns) if full is None else Wait(full)
        if self.reaction_due_ns is not None and (
            not self.steps or isinstance(self.steps[0].packet, packets.Disconnect)
        ):
            # The last word comes behind what was still to be acknowledged.
            return self.react_now(now_ns)
        if not self.steps:
            return self._end(now_ns)
        entry = self.steps[0]
        if self.manner.faithful or isinstance(entry.packet, Malformed):
            self.steps.popleft()
            return self.sent(entry.packet, entry.raw, entry, now_ns, entry.topic)
        waits = self._waits(entry)
        if waits is not None:
            return Wait(waits)
        self.steps.popleft()
        if isinstance(entry.packet, packets.Publish):
            return self._publish(entry, entry.packet, now_ns)
        return self._other(entry, now_ns)

    def give_up(self) -> Skip | Close:
        """Do not wait any longer for what `perform` waits for: leave the step out, or end."""
        if self.owed:
            self.owed.clear()
        if self.steps:
            entry = self.steps[0]
            why = self._waits(entry)
            self.gave_up_connack = self.gave_up_connack or why is Until.CONNACK
            self.gave_up = why or self.gave_up
            self.steps.popleft()
            return self._skip(entry, f"{reactions.word(entry.packet)}, which waited in vain for {why or 'its turn'}")
        self.over = True
        self.gave_up = Until.CLOSE
        return Close("fin")

    def ended(self, ending: Ending) -> None:
        """The connection is gone: what was not done yet will not be."""
        super(Player, self).ended(ending)
        why = self._why_not(ending)
        for entry in self.steps:
            self._skip(entry, f"{reactions.word(entry.packet)}, because {why}")
        self.steps.clear()
        self.owed.clear()
        self._fence = None

    def _why_not(self, ending: Ending) -> str:
        """Why what is left is not sent."""
        if ending.stopped:
            return "the replay was stopped"
        if ending.how == "refused":
            return "its connection was never opened"
        if self.refused:
            return "the broker had refused the connection"
        return "the connection had ended"

    def _waits(self, entry: Entry) -> Until | None:
        """What has to come from the server before a step."""
        packet = entry.packet
        if isinstance(packet, packets.Connect):
            return None
        is_auth = isinstance(packet, packets.Auth)
        if self.connack is None:
            recorded = self.recorded_connack
            # Where the recording does not show the CONNACK, it had come.
            if not is_auth if recorded is None else recorded.place < entry.place:
                return Until.CONNACK
        if isinstance(packet, packets.Publish):
            return self._full() if packet.qos and self.connection.maximum_qos else None
        if isinstance(packet, _REQUESTS):
            taken = len(self.connection.client_side.exchanges)
            return Until.PACKET_IDENTIFIER if taken >= MAX_PACKET_IDENTIFIERS else None
        if is_auth:
            earlier = (one for one in self.script.entries if one.place < entry.place and not one.from_client)
            return Until.AUTH if self.auths < sum(isinstance(one.packet, packets.Auth) for one in earlier) else None
        return None

    def _full(self) -> Until | None:
        """Whether no further message may be under way (5.0 3.3.4)."""
        side, recorded = self.connection.client_side, self.script.connection
        broken = recorded.client_side.in_flight_peak > recorded.server_side.receive_maximum
        if side.in_flight >= self.connection.server_side.receive_maximum and not broken:
            return Until.RECEIVE_MAXIMUM
        taken = len(side.exchanges) + len(self.session.unfinished)
        return Until.PACKET_IDENTIFIER if taken >= MAX_PACKET_IDENTIFIERS else None

    def _other(self, entry: Entry, now_ns: int) -> Send | Skip:
        packet = entry.packet
        if isinstance(packet, packets.Connect):
            manner = self.manner
            fitted = adapt.connect(entry, self.sessions.assigned, manner.user_name, manner.password)
            assert isinstance(fitted.packet, packets.Connect)
            self.session = self.sessions.of(fitted.packet.client_identifier)
            if fitted.packet.clean_start:
                self.session.clear()
            self.inherited = list(self.session.unfinished)
            return self._send(fitted, entry, now_ns)
        if isinstance(packet, packets.Subscribe):
            fitted = adapt.subscribe(entry, self.connection, self.script.connection)
        else:
            fitted = adapt.any_other(entry, self.connection, self.script.connection)
        if fitted.refused is not None:
            return self._skip(entry, fitted.refused.text)
        if isinstance(packet, _REQUESTS):
            self._identify(fitted, packet.packet_identifier)
        return self._send(fitted, entry, now_ns)

    def _publish(self, entry: Entry, packet: packets.Publish, now_ns: int) -> Send | Skip:
        identifier = None
        if packet.qos and packet.dup:
            identifier = self._waiting_identifier(entry.resends)
            if identifier is None and self._was_delivered(entry.resends):
                return self._skip(entry, "PUBLISH sent again, which the live server had acknowledged")
            if identifier is None:
                self.note(Note(Kind.ADAPTED, "DUP cleared: the live server has not had this message before"))
        fitted = adapt.publish(entry, self.connection, self.script.connection, dup=identifier is not None)
        if fitted.refused is not None:
            return self._skip(entry, fitted.refused.text)
        assert isinstance(fitted.packet, packets.Publish)
        if not fitted.packet.qos:
            identifier = None
        elif identifier is None:
            identifier = self._identify(fitted, packet.packet_identifier or 1)
        else:
            adapt.identified(fitted, identifier, self.version)
        send = self._send(fitted, entry, now_ns)
        if identifier is not None:
            self.session.unfinished.setdefault(identifier, Unfinished(send.entry))
        if entry in self.fences:
            self._fence = send.entry
        return send

    def _waiting_identifier(self, first: Entry | None) -> int | None:
        """The live identifier of a message that is sent again; ``None`` when the server does not wait for it."""
        if first is not None:
            for identifier, one in self.session.unfinished.items():
                if one.entry.source is first:
                    return identifier
        return None

    def _was_delivered(self, first: Entry | None) -> bool:
        """Whether the live server took over a message that the recorded client sends again: not if it forgot it."""
        resumed = bool(self.connection.session_present) or self.version == V3_1
        return first is not None and (first in self._own or resumed)

    def _identify(self, fitted: Fitted, wanted: int) -> int:
        """Give a packet its recorded identifier, or the next free one; returns it."""
        taken, owed = self.connection.client_side.exchanges, self.session.unfinished
        if wanted in taken or wanted in owed:
            # Behind the last one that was found: those before it are in use, where a client has only one for all.
            start = self._found
            rest = chain(range(start + 1, MAX_PACKET_IDENTIFIERS + 1), range(1, start + 1))
            wanted = self._found = next((one for one in rest if one not in taken and one not in owed), wanted)
            self.note(Note(Kind.ADAPTED, "another packet identifier, since the recorded one was in use"))
        adapt.identified(fitted, wanted, self.version)
        return wanted

    def _end(self, now_ns: int) -> Action:
        """What comes behind the last step."""
        ending, connection = self.script.ending, self.connection
        if self.left:
            self.over = True
            return Close("fin")
        if ending.how == "open" and connection.phase is CONNECTED and not self.manner.faithful:
            self.note(Note(Kind.ADDED, "DISCONNECT, since the recording ends before the connection does"))
            packet = packets.Disconnect()
            return self.sent(packet, encode(packet, self.version), None, now_ns)
        if ending.by == "server":
            return Wait(Until.CLOSE)
        self.over = True
        return Close("reset" if ending.how == "reset" else "fin")

    def _send_fence(self, published: Entry, now_ns: int) -> Send:
        self._fence = None
        self.note(Note(Kind.ADDED, "PINGREQ, to know that the server has handled what was sent before"))
        send = self.sent(packets.Pingreq(), b"\xc0\x00", None, now_ns)
        assert published.source is not None
        self.fenced[send.entry] = published.source
        return send

    def _send_owed(self, now_ns: int) -> Send:
        """Send again what the session owes (5.0 MQTT-4.4.0-1)."""
        packet: ControlPacket = self.owed.popleft()
        self.note(Note(Kind.SESSION, f"{reactions.word(packet)} sent again, since the session goes on"))
        kept = self.session.unfinished[packet.packet_identifier]  # type: ignore[attr-defined]
        if isinstance(packet, packets.Publish):
            send = self.sent(packet, encode(packet, self.version), kept.entry.source, now_ns, kept.entry.topic)
            kept.entry = send.entry
            return send
        send = self.sent(packet, encode(packet, self.version), None, now_ns)
        send.entry.answers = kept.entry
        return send

    def _send(self, fitted: Fitted, entry: Entry, now_ns: int) -> Send:
        for note in fitted.notes:
            self.note(note)
        return self.sent(fitted.packet, fitted.raw, entry, now_ns, entry.topic)

    def _skip(self, entry: Entry, text: str) -> Skip:
        note = Note(Kind.SKIPPED, text)
        self.note(note)
        self.skipped.add(entry)
        self.done += self.answered.get(entry, ())
        if entry in self.fences:
            self.done.append(entry)
        return Skip(entry, note)

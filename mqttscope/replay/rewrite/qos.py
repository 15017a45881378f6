"""Publishes the messages of clients with another QoS, and adapts packet identifiers and handshakes (5.0 4.3).

* QoS 0 has no packet identifier and no answers; repetitions of a message are dropped, since QoS 0 is sent once.
* From 2 to 1 a PUBREC becomes a PUBACK; PUBREL and PUBCOMP disappear.  From 1 to 2 the other way round.
* From 0 upwards a message gets a packet identifier that the client does not use, and the answers follow right after.

A message is delivered with at most the QoS that it is published with (5.0 3.8.4), so recorded deliveries of a lowered
message are lowered too.  They are never raised, since the subscriptions are not evaluated; a note reports
that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import cycle

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe, Unsubscribe
from mqttscope.replay.rewrite.links import Changes, drop, renumber, set_packet
from mqttscope.replay.script import Script, ScriptEntry, session_of
from mqttscope.session.inflight import MAX_PACKET_IDENTIFIERS

Message = tuple[str | None, bytes]


def change_qos(scripts: list[Script], qos: int, changes: Changes) -> bool:
    """Publish all messages of clients with this QoS, in copied scripts; returns whether there were any."""
    run = _QosChange(scripts, qos, changes)
    published = False
    for script in scripts:
        for entry in list(script.entries):
            if entry.from_client and isinstance(entry.packet, Publish):
                published = True
                run.publish(script, entry, entry.packet)
    run.deliveries()
    run.finish()
    return published


@dataclass(slots=True)
class _QosChange:
    scripts: list[Script]
    qos: int
    changes: Changes
    gone: dict[ScriptEntry, None] = field(default_factory=dict)
    behind: dict[ScriptEntry, list[ScriptEntry]] = field(default_factory=dict)
    """Entries to put in, by the entry that they follow."""
    answers: dict[ScriptEntry, list[tuple[Script, ScriptEntry]]] = field(default_factory=dict)
    identifiers: dict[str, Iterator[int]] = field(default_factory=dict)
    """Packet identifiers to use next, by session."""
    lowered: dict[Message, None] = field(default_factory=dict)
    raised: dict[Message, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for script in self.scripts:
            for entry in script.entries:
                if entry.answers is not None:
                    self.answers.setdefault(entry.answers, []).append((script, entry))

    def publish(self, script: Script, entry: ScriptEntry, packet: Publish) -> None:
        """Give a message of a client the new QoS."""
        message = entry.topic, packet.payload
        if packet.qos > self.qos:
            self.lower(script, entry, packet)
            self.lowered[message] = None
            self.changes.count("PUBLISH packet", f"lowered to QoS {self.qos}")
        elif packet.qos < self.qos:
            self.raise_(script, entry, packet)
            self.raised[message] = None
            self.changes.count("PUBLISH packet", f"raised to QoS {self.qos}")

    def lower(self, script: Script, entry: ScriptEntry, packet: Publish) -> None:
        if self.qos == 0:
            if entry.resends is not None:
                self.gone[entry] = None
                return
            self.gone.update((answer, None) for _, answer in self.answers.get(entry, ()))
            set_packet(entry, replace(packet, qos=0, dup=False, packet_identifier=None), script.version)
            return
        set_packet(entry, replace(packet, qos=self.qos), script.version)
        for owner, answer in self.answers.get(entry, ()):
            answered = answer.packet
            if isinstance(answered, Pubrec):
                puback = Puback(answered.packet_identifier, answered.reason_code, answered.properties)
                set_packet(answer, puback, owner.version)
            else:
                self.gone[answer] = None

    def raise_(self, script: Script, entry: ScriptEntry, packet: Publish) -> None:
        version = script.version
        if packet.qos == 0:
            identifier = next(self._identifiers(script))
            set_packet(entry, replace(packet, qos=self.qos, packet_identifier=identifier), version)
            if _ended_by_server(script, entry):
                return
            if self.qos == 1:
                self._insert(entry, entry, version, (False, Puback(identifier)))
            else:
                self._insert(entry, entry, version, (False, Pubrec(identifier)), *_end(identifier))
            return
        set_packet(entry, replace(packet, qos=2), version)
        for owner, answer in self.answers.get(entry, ()):
            answered = answer.packet
            if isinstance(answered, Puback):
                pubrec = Pubrec(answered.packet_identifier, answered.reason_code, answered.properties)
                set_packet(answer, pubrec, owner.version)
                # A PUBREC that refuses the message ends the exchange (5.0 4.3.3).
                if (answered.reason_code or 0) < 0x80:
                    self._insert(answer, entry, owner.version, *_end(answered.packet_identifier))

    def _insert(
        self,
        behind: ScriptEntry,
        answered: ScriptEntry,
        version: ProtocolVersion,
        *inserted: tuple[bool, ControlPacket],
    ) -> None:
        for from_client, packet in inserted:
            entry = ScriptEntry(
                from_client, packet, None, behind.timestamp_ns, behind.place, behind.frame, behind.capture, answered
            )
            set_packet(entry, packet, version)
            self.behind.setdefault(behind, []).append(entry)
        self.changes.count("acknowledgement", "put in", len(inserted))

    def _identifiers(self, script: Script) -> Iterator[int]:
        """Packet identifiers that the client of a session does not use; all in turn if it uses all."""
        session = session_of(script.connection)
        unused = self.identifiers.get(session)
        if unused is None:
            same_session = (other for other in self.scripts if session_of(other.connection) == session)
            used = {number for other in same_session for number in _used(other)}
            every = range(1, MAX_PACKET_IDENTIFIERS + 1)
            unused = self.identifiers[session] = cycle([number for number in every if number not in used] or every)
        return unused

    def deliveries(self) -> None:
        """Lower the deliveries of messages that were lowered."""
        for script in self.scripts:
            for entry in script.entries:
                packet = entry.packet
                if entry.from_client or not isinstance(packet, Publish):
                    continue
                message = entry.topic, packet.payload
                if packet.qos > self.qos and message in self.lowered:
                    self.lower(script, entry, packet)
                    self.changes.count("delivery", "expected with a lower QoS")
                elif message in self.raised:
                    self.changes.note("deliveries of messages with a raised QoS are still expected as recorded")

    def finish(self) -> None:
        for script in self.scripts:
            entries: list[ScriptEntry] = []
            for entry in script.entries:
                entries.append(entry)
                entries += self.behind.get(entry, ())
                if self._stray(entry):
                    self.gone[entry] = None
            script.entries = entries
        out = drop(self.scripts, self.gone)
        acknowledgements = sum(not isinstance(entry.packet, Publish) for entry in out)
        self.changes.count("acknowledgement", "dropped", acknowledgements)
        self.changes.count("repetition", "dropped: QoS 0 is sent once", len(out) - acknowledgements)
        if out or self.behind:
            renumber(self.scripts)

    def _stray(self, entry: ScriptEntry) -> bool:
        """Whether an entry belongs to a client's message from before the recording, or of an earlier connection."""
        if entry.answers is not None or not self.lowered:
            return False
        strays: tuple[type[ControlPacket], ...] = (Pubrel,)
        if not entry.from_client:
            strays = (Pubcomp, Pubrec, Puback) if self.qos == 0 else (Pubcomp, Pubrec)
        return self.qos < 2 and isinstance(entry.packet, strays)


def _end(identifier: int) -> tuple[tuple[bool, ControlPacket], tuple[bool, ControlPacket]]:
    return (True, Pubrel(identifier)), (False, Pubcomp(identifier))


def _ended_by_server(script: Script, entry: ScriptEntry) -> bool:
    """Whether the server ended the connection after an entry without sending anything else."""
    for other in script.entries:
        if other.place > entry.place and not other.from_client:
            return isinstance(other.packet, Disconnect)
    return script.ending.by == "server"


def _used(script: Script) -> Iterator[int]:
    for entry in script.entries:
        packet = entry.packet
        if not entry.from_client or isinstance(packet, Malformed):
            continue
        if isinstance(packet, Publish | Subscribe | Unsubscribe | Pubrel) and packet.packet_identifier is not None:
            yield packet.packet_identifier

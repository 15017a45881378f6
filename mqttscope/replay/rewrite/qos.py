"""Another QoS for what clients publish, with the consequences: packet identifiers and the handshake (5.0 4.3).

* QoS 0 has no packet identifier and no answers; a repetition of a message disappears, for QoS 0 is sent once.
* From 2 to 1 a PUBREC becomes a PUBACK; PUBREL and PUBCOMP disappear.  From 1 to 2 the other way round.
* From 0 upwards a packet identifier that the client does not use is taken, and the answers are put in right after.

A message that is recorded on its way to a subscriber as well is delivered with no higher QoS than it is published
with (5.0 3.8.4), so deliveries are lowered with it.  They are never raised: what a subscription would allow is not
worked out, and that is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import cycle

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe, Unsubscribe
from mqttscope.replay.rewrite.links import Changes, drop, renumber, say
from mqttscope.replay.script import Entry, Script, session_of
from mqttscope.session.inflight import MAX_PACKET_IDENTIFIERS

Message = tuple[str | None, bytes]


def change_qos(scripts: list[Script], qos: int, changes: Changes) -> bool:
    """Publish everything that clients publish with this QoS, in copied scripts; whether there was anything."""
    run = _Run(scripts, qos, changes)
    found = False
    for script in scripts:
        for entry in list(script.entries):
            if entry.from_client and isinstance(entry.packet, Publish):
                found = True
                run.publish(script, entry, entry.packet)
    run.deliveries()
    run.finish()
    return found


@dataclass(slots=True)
class _Run:
    scripts: list[Script]
    qos: int
    changes: Changes
    gone: dict[Entry, None] = field(default_factory=dict)
    behind: dict[Entry, list[Entry]] = field(default_factory=dict)
    """Entries to put in, by the one that they follow."""
    answers: dict[Entry, list[tuple[Script, Entry]]] = field(default_factory=dict)
    identifiers: dict[str, Iterator[int]] = field(default_factory=dict)
    """Packet identifiers to take next, by session."""
    lowered: dict[Message, None] = field(default_factory=dict)
    raised: dict[Message, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for script in self.scripts:
            for entry in script.entries:
                if entry.answers is not None:
                    self.answers.setdefault(entry.answers, []).append((script, entry))

    def publish(self, script: Script, entry: Entry, packet: Publish) -> None:
        """Give a message of a client the QoS."""
        message = entry.topic, packet.payload
        if packet.qos > self.qos:
            self.lower(script, entry, packet)
            self.lowered[message] = None
            self.changes.count("PUBLISH packet", f"lowered to QoS {self.qos}")
        elif packet.qos < self.qos:
            self.raise_(script, entry, packet)
            self.raised[message] = None
            self.changes.count("PUBLISH packet", f"raised to QoS {self.qos}")

    def lower(self, script: Script, entry: Entry, packet: Publish) -> None:
        """Publish or deliver with less."""
        if self.qos == 0:
            if entry.resends is not None:
                self.gone[entry] = None
                return
            self.gone.update((answer, None) for _, answer in self.answers.get(entry, ()))
            say(entry, replace(packet, qos=0, dup=False, packet_identifier=None), script.version)
            return
        say(entry, replace(packet, qos=self.qos), script.version)
        for where, answer in self.answers.get(entry, ()):
            said = answer.packet
            if isinstance(said, Pubrec):
                say(answer, Puback(said.packet_identifier, said.reason_code, said.properties), where.version)
            else:
                self.gone[answer] = None

    def raise_(self, script: Script, entry: Entry, packet: Publish) -> None:
        """Publish with more."""
        version = script.version
        if packet.qos == 0:
            identifier = next(self._identifiers(script))
            say(entry, replace(packet, qos=self.qos, packet_identifier=identifier), version)
            if _ended_by_server(script, entry):
                return
            if self.qos == 1:
                self._insert(entry, entry, version, (False, Puback(identifier)))
            else:
                self._insert(entry, entry, version, (False, Pubrec(identifier)), *_end(identifier))
            return
        say(entry, replace(packet, qos=2), version)
        for where, answer in self.answers.get(entry, ()):
            said = answer.packet
            if isinstance(said, Puback):
                say(answer, Pubrec(said.packet_identifier, said.reason_code, said.properties), where.version)
                # A PUBREC that refuses the message ends the exchange (5.0 4.3.3).
                if (said.reason_code or 0) < 0x80:
                    self._insert(answer, entry, where.version, *_end(said.packet_identifier))

    def _insert(
        self, behind: Entry, answered: Entry, version: ProtocolVersion, *said: tuple[bool, ControlPacket]
    ) -> None:
        for from_client, packet in said:
            made = Entry(
                from_client, packet, None, behind.timestamp_ns, behind.place, behind.frame, behind.capture, answered
            )
            say(made, packet, version)
            self.behind.setdefault(behind, []).append(made)
        self.changes.count("acknowledgement", "put in", len(said))

    def _identifiers(self, script: Script) -> Iterator[int]:
        """Packet identifiers that the client of a session does not use; all in turn where it uses all."""
        session = session_of(script.connection)
        found = self.identifiers.get(session)
        if found is None:
            mine = (other for other in self.scripts if session_of(other.connection) == session)
            used = {number for other in mine for number in _used(other)}
            every = range(1, MAX_PACKET_IDENTIFIERS + 1)
            found = self.identifiers[session] = cycle([one for one in every if one not in used] or every)
        return found

    def deliveries(self) -> None:
        """Lower what subscribers receive of messages that were lowered."""
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
        """Take out and put in."""
        for script in self.scripts:
            entries: list[Entry] = []
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

    def _stray(self, entry: Entry) -> bool:
        """Whether it belongs to a message of a client from before the recording, or of an earlier connection."""
        if entry.answers is not None or not self.lowered:
            return False
        strays: tuple[type[ControlPacket], ...] = (Pubrel,)
        if not entry.from_client:
            strays = (Pubcomp, Pubrec, Puback) if self.qos == 0 else (Pubcomp, Pubrec)
        return self.qos < 2 and isinstance(entry.packet, strays)


def _end(identifier: int) -> tuple[tuple[bool, ControlPacket], tuple[bool, ControlPacket]]:
    return (True, Pubrel(identifier)), (False, Pubcomp(identifier))


def _ended_by_server(script: Script, entry: Entry) -> bool:
    """Whether the server ended the connection instead of saying anything else after an entry."""
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

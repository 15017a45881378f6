"""Answers a device in the place of a broker: with recorded answers where there are any, with conforming ones elsewhere.

`Responder` answers one device.  `violation` and `refusal` find what a server must not tolerate: it ends the connection,
with the Reason Code for it (5.0 4.13, 3.1.1 4.8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import V3_1_1, V5, MalformedReason
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Acknowledgement
from mqttscope.mqtt.topics import topic_filter_problem
from mqttscope.replay.live import Close, NoteKind, packet_name, recorded_delay_ns
from mqttscope.replay.script import Entry, Script
from mqttscope.replay.server import adapt, connection
from mqttscope.replay.server.adapt import Substitutes
from mqttscope.replay.server.recorded import PacketMatcher
from mqttscope.session.connection import Connection

MAX_SESSION_BYTES = 16 * 1024 * 1024
"""Of messages of a device whose handshake is not complete."""
IDENTIFIER_REJECTED, QUOTA_EXCEEDED = 0x02, 0x97
TOPIC_FILTER_INVALID, TOPIC_NAME_INVALID = 0x8F, 0x90
RECEIVE_MAXIMUM_EXCEEDED, TOPIC_ALIAS_INVALID = 0x93, 0x94
RETAIN_NOT_SUPPORTED, QOS_NOT_SUPPORTED = 0x9A, 0x9B
_OF_SERVERS = (packets.Connack, packets.Suback, packets.Unsuback, packets.Pingresp)
_UNSUPPORTED = (MalformedReason.PROTOCOL_NAME_INVALID, MalformedReason.PROTOCOL_VERSION_UNKNOWN)


def violation(packet: ControlPacket | Malformed, topic: str | None, live: Connection) -> int | None:
    """Why the connection has to end, looked at after `DeviceConnection.take`; ``None`` where it continues.

    ``topic``: of a PUBLISH, its alias resolved.
    """
    if isinstance(packet, Malformed):
        return connection.MALFORMED
    if isinstance(packet, _OF_SERVERS) or (isinstance(packet, packets.Auth) and live.version < V5):
        return connection.PROTOCOL_ERROR
    server = live.server_side
    if server.maximum_packet_size is not None and len(packet.raw) > server.maximum_packet_size:
        return connection.PACKET_TOO_LARGE
    if isinstance(packet, packets.Publish):
        return _publish(packet, topic, live)
    if isinstance(packet, packets.Subscribe):
        filters = [one.topic_filter for one in packet.subscriptions]
        return connection.PROTOCOL_ERROR if not filters else _filters(filters, live)
    if isinstance(packet, packets.Unsubscribe):
        return connection.PROTOCOL_ERROR if not packet.topic_filters else _filters(packet.topic_filters, live)
    return None


def _publish(packet: packets.Publish, topic: str | None, live: Connection) -> int | None:
    server = live.server_side
    alias = None if packet.properties is None else packet.properties.topic_alias
    if alias is not None and not 0 < alias <= server.topic_alias_maximum:
        return TOPIC_ALIAS_INVALID
    if topic is None:
        return connection.PROTOCOL_ERROR
    if "+" in topic or "#" in topic:
        return TOPIC_NAME_INVALID
    if packet.qos > live.maximum_qos:
        return QOS_NOT_SUPPORTED
    if packet.retain and not live.retain_available:
        return RETAIN_NOT_SUPPORTED
    if packet.qos and packet.packet_identifier == 0:
        return connection.PROTOCOL_ERROR
    if packet.qos and live.client_side.in_flight > server.receive_maximum:
        return RECEIVE_MAXIMUM_EXCEEDED
    return None


def _filters(filters: list[str], live: Connection) -> int | None:
    problems = [topic_filter_problem(one, shared=live.version >= V5) for one in filters]
    return None if not any(problems) else TOPIC_FILTER_INVALID if live.version >= V5 else connection.PROTOCOL_ERROR


def refusal(packet: Malformed) -> int | None:
    """The CONNACK return code for a CONNECT that cannot be read; ``None`` where the connection is just closed."""
    if packet.reason in _UNSUPPORTED:
        return 0x01  # 3.1.1 MQTT-3.1.2-2; it is what clients of any version can read
    return None


@dataclass(slots=True, kw_only=True)
class Responder:
    """Answers what one device says."""

    device: connection.DeviceConnection
    sessions: connection.ServerSessions
    substitutes: Substitutes
    """Learns what the device says in the place of what the recorded client said."""
    earlier: Sequence[Script] = ()
    """Recorded connections of the same client before this one."""
    grants: adapt.Grants = field(init=False)
    _matcher: PacketMatcher = field(init=False)

    def __post_init__(self) -> None:
        script = self.device.recorded.script
        self._matcher = PacketMatcher(script.entries)
        self.grants = adapt.Grants.of(one for script in (*self.earlier, script) for one in script.entries)

    def receive(self, packet: ControlPacket | Malformed, now_ns: int) -> None:
        """Take one packet of the device."""
        ending = self.device.ending
        entry = self.device.take(packet, now_ns)
        if ending:
            return
        if isinstance(packet, Malformed):
            self._malformed(entry, packet, now_ns)
        elif isinstance(packet, packets.Connect) and packet is self.device.connect:
            self._connected(entry, packet, now_ns)
        elif self.device.connect is None:
            # 5.0 MQTT-3.1.0-1; there is no version to say it in.
            self.device.end_with(
                connection.PROTOCOL_ERROR, f"the first packet is {packet_name(packet)} and no CONNECT", now_ns
            )
        elif isinstance(packet, Acknowledgement):
            self._acknowledged(entry, packet, now_ns)
        elif isinstance(packet, packets.Disconnect):
            self._counterpart(entry, now_ns)
            self.device.end_after_due(now_ns)
        else:
            self._asked(entry, packet, now_ns)
            self._limit(now_ns)

    def _limit(self, now_ns: int) -> None:
        """End the connection of a device that wants more remembered than there is room for."""
        session = self.device.session
        if session.arrived_bytes > MAX_SESSION_BYTES:
            why = f"more than {MAX_SESSION_BYTES:,} bytes of messages that are not complete"
        elif len(session.subscriptions) > connection.MAX_SUBSCRIPTIONS:
            why = f"more than {connection.MAX_SUBSCRIPTIONS:,} subscriptions"
        else:
            return
        session.clear()
        self.device.end_with(QUOTA_EXCEEDED, why, now_ns)

    def _counterpart(self, entry: Entry, now_ns: int) -> bool:
        """Find the recorded packet that a packet is; returns whether both say the same."""
        found = self._matcher.find(entry.packet, entry.topic, self.device.recorded.next_needed)
        if found is None:
            return False
        entry.source = found.entry
        if found.alike or not self.device.recorded.ending_next:
            # The recorded server may have ended the connection because of what the device does not do.
            self.device.recorded.done.add(found.entry)
        self.device.mark(found.entry, now_ns)
        if self.substitutes.learn(found.entry, entry):
            text = f"what repeats the device: more than {adapt.MAX_SUBSTITUTES:,} of its messages differ"
            self.device.note(NoteKind.SKIPPED, text)
        return found.same

    def _malformed(self, entry: Entry, packet: Malformed, now_ns: int) -> None:
        known = self._counterpart(entry, now_ns)
        source = entry.source
        first = self.device.connect is None
        if source is not None and (known or source is self.device.recorded.needed[0]):
            # The recording says what comes of it.
            for one in self.device.recorded.answers.get(source, ()):
                if isinstance(one.packet, ControlPacket) and not one.from_client:
                    self.device.respond(one.packet, one, source, now_ns)
        elif first:
            code = refusal(packet)
            if code is not None:
                self.device.enqueue(packets.Connack(reason_code=code), None, 0, now_ns)
            self.device.end = Close("fin", f"a CONNECT that cannot be read: {packet.reason.replace('_', ' ')}")
        else:
            self.device.end_with(connection.MALFORMED, f"a malformed packet: {packet.reason.replace('_', ' ')}", now_ns)

    def _connected(self, entry: Entry, packet: packets.Connect, now_ns: int) -> None:
        """CONNECT: the session, and the recorded answer (5.0 3.1.4)."""
        self._counterpart(entry, now_ns)
        if not packet.client_identifier and not packet.clean_start and packet.version < V5:
            # 3.1.1 MQTT-3.1.3-8.
            self.device.enqueue(packets.Connack(reason_code=IDENTIFIER_REJECTED), None, 0, now_ns)
            return
        source = entry.source
        authenticating = packet.properties is not None and packet.properties.authentication_method is not None
        if authenticating and source is not None and self._continue(source, now_ns):
            return
        recorded = self.device.recorded.script.connack
        if recorded is None and source is not None and self.device.recorded.silent_to(source, packets.Connack):
            self.device.note(NoteKind.SKIPPED, "CONNACK, which the recorded server did not send either")
            return
        self._accept(recorded, source, now_ns)

    def _continue(self, request: Entry, now_ns: int) -> bool:
        """Answer CONNECT or AUTH as recorded, with AUTH or CONNACK (5.0 4.12); returns whether that was possible."""
        found = [one for one in self.device.recorded.answers.get(request, ()) if not one.from_client]
        for one in found:
            if isinstance(one.packet, packets.Connack):
                self._accept(one, request, now_ns)
            elif isinstance(one.packet, packets.Auth):
                self.device.respond(one.packet, one, request, now_ns)
        return bool(found)

    def _accept(self, recorded: Entry | None, request: Entry | None, now_ns: int) -> None:
        """CONNACK, and what the session owes after it."""
        connect, sessions = self.device.connect, self.sessions
        assert connect is not None
        before = recorded.packet if recorded is not None and isinstance(recorded.packet, packets.Connack) else None
        assigned = None
        if not connect.client_identifier and self.device.version >= V5:
            block = None if before is None else before.properties
            assigned = sessions.assign(None if block is None else block.assigned_client_identifier)
        present = False
        if before is None or not before.reason_code:
            self.device.session = sessions.of(assigned or connect.client_identifier or f"\0{id(self)}")
            resumed = sessions.resumed(connect)
            present = resumed
            if before is not None and self.device.version >= V3_1_1:
                present = not connect.clean_start and bool(before.session_present)
            if resumed and not present:
                text = "the device's session was forgotten, since the recorded server had none"
                self.device.note(NoteKind.SESSION, text)
            if not present:
                self.device.session.clear()
            self.device.owed.extend(self.device.session.unfinished.values())
        made = adapt.connack(before, connect, present=present, assigned=assigned)
        self.device.respond(made, recorded, request, now_ns)

    def _acknowledged(self, entry: Entry, packet: ControlPacket, now_ns: int) -> None:
        """PUBACK, PUBREC and PUBCOMP for deliveries, PUBREL for a message of the device (5.0 4.3)."""
        if isinstance(packet, packets.Pubrel):
            self._released(entry, packet, now_ns)
            return
        identifier: int = packet.packet_identifier  # type: ignore[attr-defined]
        owed = self.device.session.unfinished.get(identifier)
        delivery = None if owed is None else owed.entry.source
        for one in self.device.recorded.answers.get(delivery, ()) if delivery is not None else ():
            if one.from_client and type(one.packet) is type(packet) and one not in self.device.happened:
                entry.source = one
                self.device.mark(one, now_ns)
                break
        if entry.answers is None and owed is not None:
            entry.answers = owed.entry
        if not isinstance(packet, packets.Pubrec) or (packet.reason_code or 0) >= adapt.FAILURE:
            self.device.session.unfinished.pop(identifier, None)
        elif owed is None:
            code = adapt.NOT_FOUND if self.device.version >= V5 else None
            self.device.enqueue(packets.Pubrel(identifier, code), None, 0, now_ns)
        else:
            owed.released = True
            recorded = None if delivery is None else self.device.recorded.answered(delivery, packets.Pubrel)
            self._acknowledge(packets.Pubrel, identifier, recorded, delivery, now_ns)

    def _released(self, entry: Entry, packet: packets.Pubrel, now_ns: int) -> None:
        message = self.device.session.arrived.get(packet.packet_identifier)
        source = None if message is None else message.source
        if message is None:
            code = adapt.NOT_FOUND if self.device.version >= V5 else None
            self.device.enqueue(packets.Pubcomp(packet.packet_identifier, code), None, 0, now_ns)
            return
        entry.answers = entry.answers or message
        recorded = None
        if source is not None:
            answers = self.device.recorded.answers.get(source, ())
            asked = next((one for one in answers if isinstance(one.packet, packets.Pubrel)), None)
            entry.source = asked
            if asked is not None:
                self.device.mark(asked, now_ns)
            recorded = self.device.recorded.answered(source, packets.Pubcomp)
            if recorded is None and asked is not None and self.device.recorded.silent_to(asked, packets.Pubcomp):
                self.device.note(NoteKind.SKIPPED, "PUBCOMP, which the recorded server did not send either")
                return
        self._acknowledge(packets.Pubcomp, packet.packet_identifier, recorded, source, now_ns)

    def _acknowledge(
        self,
        kind: type[packets.Acknowledgement],
        identifier: int,
        recorded: Entry | None,
        about: Entry | None,
        now_ns: int,
    ) -> None:
        """Queue an acknowledgement; one that was recorded, with the delay that the recorded server took for it."""
        before = None if recorded is None or isinstance(recorded.packet, Malformed) else recorded.packet
        same = recorded if isinstance(before, kind) else None
        delay_ns = 0
        if same is not None and about is not None:
            delay_ns = recorded_delay_ns(same, self.device.recorded.answers.get(about, ()))
        made = adapt.acknowledgement(kind, identifier, before, self.device.state)
        self.device.enqueue(made, same, delay_ns, now_ns)

    def _asked(self, entry: Entry, packet: ControlPacket, now_ns: int) -> None:
        """PUBLISH, SUBSCRIBE, UNSUBSCRIBE, PINGREQ, AUTH, and what no client may send."""
        known = False
        again = entry.resends is not None or entry.source is not None
        if not again or entry.source not in self.device.recorded.own:
            known = self._counterpart(entry, now_ns)
        if not known:
            code = violation(packet, entry.topic, self.device.state)
            if code is None and isinstance(packet, packets.Connect):
                code = connection.PROTOCOL_ERROR  # 5.0 MQTT-3.1.0-2
            if code is not None:
                self.device.end_with(code, f"{packet_name(packet)} that breaks the protocol", now_ns)
                return
        if entry.source is None and not again and not isinstance(packet, packets.Pingreq):
            self.device.note(NoteKind.ADDED, f"{packet_name(packet)} of the device, which the recording does not have")
        if isinstance(packet, packets.Publish):
            self._published(entry, packet, now_ns)
        elif isinstance(packet, packets.Auth):
            if not (entry.source is not None and self._continue(entry.source, now_ns)) and not self.device.accepted:
                self._accept(None, None, now_ns)
        elif isinstance(packet, packets.Subscribe | packets.Unsubscribe | packets.Pingreq):
            self._requested(entry, packet, now_ns)

    def _silent(self, source: Entry | None, kinds: tuple[type[ControlPacket], ...]) -> bool:
        """Whether the recorded server gave no answer to this; that is noted."""
        if source is None or not self.device.recorded.silent_to(source, kinds):
            return False
        name = packet_name(source.packet)
        self.device.note(NoteKind.SKIPPED, f"answer to {name}, which the recorded server did not give either")
        return True

    def _published(self, entry: Entry, packet: packets.Publish, now_ns: int) -> None:
        identifier, source = packet.packet_identifier, entry.source
        if not packet.qos or identifier is None:
            return
        before = None if source is None else source.packet
        acked = isinstance(before, packets.Publish) and before.qos > 0
        kinds = (packets.Puback, packets.Pubrec)
        recorded = self.device.recorded.answered(source, kinds) if source is not None and acked else None
        if acked and self._silent(source, kinds):
            return
        kind = packets.Puback if packet.qos == 1 else packets.Pubrec
        self._acknowledge(kind, identifier, recorded, source, now_ns)

    def _requested(
        self, entry: Entry, packet: packets.Subscribe | packets.Unsubscribe | packets.Pingreq, now_ns: int
    ) -> None:
        source = entry.source
        kind = _ANSWERED_BY[type(packet)]
        if self._silent(source, (kind,)):
            return
        found = self.device.recorded.answered(source, kind) if source is not None else None
        recorded = None if source is None or found is None else (source.packet, found.packet)
        made: ControlPacket
        if isinstance(packet, packets.Subscribe):
            suback = adapt.suback(packet, recorded, self.grants, self.device.state)
            adapt.subscribe(self.device.session, packet, suback)
            made = suback
        elif isinstance(packet, packets.Unsubscribe):
            made = adapt.unsuback(packet, recorded, self.device.session, self.device.state)
            for name in packet.topic_filters:
                self.device.session.subscriptions.pop(name, None)
        else:
            made = packets.Pingresp()
        self.device.respond(made, found, source, now_ns)


_ANSWERED_BY: dict[type[ControlPacket], type[ControlPacket]] = {
    packets.Subscribe: packets.Suback,
    packets.Unsubscribe: packets.Unsuback,
    packets.Pingreq: packets.Pingresp,
}

"""Answers a device in place of the broker: with recorded answers if there are any, else with conforming ones.

`Responder` answers one device.  `violation` and `refusal` find faults that a server must not tolerate: it ends the
connection with the Reason Code for them (5.0 4.13, 3.1.1 4.8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import V3_1_1, V5, MalformedReason
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Acknowledgement
from mqttscope.mqtt.topics import topic_filter_problem
from mqttscope.replay.align import SERVER_KEYS, Counterparts
from mqttscope.replay.live import Close, NoteKind, packet_name, recorded_delay_ns
from mqttscope.replay.script import Script, ScriptEntry
from mqttscope.replay.server import adapt, connection
from mqttscope.replay.server.adapt import Substitutes
from mqttscope.session.connection import Connection

MAX_SESSION_BYTES = 16 * 1024 * 1024
"""Maximum size of a device's messages with an incomplete handshake."""
IDENTIFIER_REJECTED, QUOTA_EXCEEDED = 0x02, 0x97
TOPIC_FILTER_INVALID, TOPIC_NAME_INVALID = 0x8F, 0x90
RECEIVE_MAXIMUM_EXCEEDED, TOPIC_ALIAS_INVALID = 0x93, 0x94
RETAIN_NOT_SUPPORTED, QOS_NOT_SUPPORTED = 0x9A, 0x9B
_EQUAL, _SIMILAR = 0, 1
"""Levels of `SERVER_KEYS`: the same content, and at least the same topic or Topic Filters."""
_OF_SERVERS = (packets.Connack, packets.Suback, packets.Unsuback, packets.Pingresp)
_UNSUPPORTED = (MalformedReason.PROTOCOL_NAME_INVALID, MalformedReason.PROTOCOL_VERSION_UNKNOWN)


def violation(packet: ControlPacket | Malformed, topic: str | None, live: Connection) -> int | None:
    """Reason Code for ending the connection, checked after `DeviceConnection.receive`; ``None`` if it continues.

    ``topic``: topic of a PUBLISH, its alias resolved.
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
        filters = [subscription.topic_filter for subscription in packet.subscriptions]
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
    problems = [topic_filter_problem(topic_filter, shared=live.version >= V5) for topic_filter in filters]
    return None if not any(problems) else TOPIC_FILTER_INVALID if live.version >= V5 else connection.PROTOCOL_ERROR


def refusal(packet: Malformed) -> int | None:
    """CONNACK return code for a CONNECT that cannot be read; ``None`` if the connection is just closed."""
    if packet.reason in _UNSUPPORTED:
        return 0x01  # 3.1.1 MQTT-3.1.2-2; clients of any version can read it
    return None


@dataclass(slots=True, kw_only=True)
class Responder:
    """Answers the packets of one device."""

    device: connection.DeviceConnection
    sessions: connection.ServerSessions
    substitutes: Substitutes
    """Collects values that the device sends in place of the recorded client's."""
    earlier: Sequence[Script] = ()
    """Recorded connections of the same client before this one."""
    grants: adapt.Grants = field(init=False)
    _counterparts: Counterparts = field(init=False)

    def __post_init__(self) -> None:
        script = self.device.recorded.script
        self._counterparts = Counterparts((entry for entry in script.entries if entry.from_client), SERVER_KEYS)
        self.grants = adapt.Grants.of(entry for script in (*self.earlier, script) for entry in script.entries)

    def receive(self, packet: ControlPacket | Malformed, now_ns: int) -> None:
        """Process one packet of the device."""
        ending = self.device.ending
        entry = self.device.receive(packet, now_ns)
        if ending:
            return
        if isinstance(packet, Malformed):
            self._malformed(entry, packet, now_ns)
        elif isinstance(packet, packets.Connect) and packet is self.device.connect:
            self._connected(entry, packet, now_ns)
        elif self.device.connect is None:
            # 5.0 MQTT-3.1.0-1; without a known version no Reason Code can be sent.
            self.device.end_with(
                connection.PROTOCOL_ERROR, f"the first packet is {packet_name(packet)}, not CONNECT", now_ns
            )
        elif isinstance(packet, Acknowledgement):
            self._acknowledged(entry, packet, now_ns)
        elif isinstance(packet, packets.Disconnect):
            self._counterpart(entry, now_ns)
            self.device.end_after_due(now_ns)
        else:
            self._process_request(entry, packet, now_ns)
            self._limit(now_ns)

    def _limit(self, now_ns: int) -> None:
        """End the connection of a device that exceeds the limits of a session."""
        session = self.device.session
        if session.arrived_bytes > MAX_SESSION_BYTES:
            why = f"more than {MAX_SESSION_BYTES:,} bytes of messages that are not complete"
        elif len(session.subscriptions) > connection.MAX_SUBSCRIPTIONS:
            why = f"more than {connection.MAX_SUBSCRIPTIONS:,} subscriptions"
        else:
            return
        session.clear()
        self.device.end_with(QUOTA_EXCEEDED, why, now_ns)

    def _counterpart(self, entry: ScriptEntry, now_ns: int) -> bool:
        """Find the recorded packet that matches a packet; returns whether both have the same content."""
        match = self._counterparts.find(entry, self.device.recorded.next_needed)
        if match is None:
            return False
        entry.source, level = match
        if level <= _SIMILAR or not self.device.recorded.ending_next:
            # The recorded server may have ended the connection because of something that the device does not do.
            self.device.recorded.done.add(entry.source)
        self.device.mark(entry.source, now_ns)
        if self.substitutes.learn(entry.source, entry):
            text = f"values of the device in deliveries: more than {adapt.MAX_SUBSTITUTES:,} of its messages differ"
            self.device.note(NoteKind.SKIPPED, text)
        return level == _EQUAL

    def _malformed(self, entry: ScriptEntry, packet: Malformed, now_ns: int) -> None:
        is_same = self._counterpart(entry, now_ns)
        source = entry.source
        first = self.device.connect is None
        if source is not None and (is_same or source is self.device.recorded.needed[0]):
            # The recording shows the reaction to it.
            for answer in self.device.recorded.answers.get(source, ()):
                if isinstance(answer.packet, ControlPacket) and not answer.from_client:
                    self.device.respond(answer.packet, answer, source, now_ns)
        elif first:
            code = refusal(packet)
            if code is not None:
                self.device.enqueue(packets.Connack(reason_code=code), None, 0, now_ns)
            self.device.end = Close("fin", f"a CONNECT that cannot be read: {packet.reason.replace('_', ' ')}")
        else:
            self.device.end_with(connection.MALFORMED, f"a malformed packet: {packet.reason.replace('_', ' ')}", now_ns)

    def _connected(self, entry: ScriptEntry, packet: packets.Connect, now_ns: int) -> None:
        """Process CONNECT: find the session, and answer as recorded (5.0 3.1.4)."""
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

    def _continue(self, request: ScriptEntry, now_ns: int) -> bool:
        """Answer CONNECT or AUTH as recorded, with AUTH or CONNACK (5.0 4.12); returns whether that was possible."""
        answers = [answer for answer in self.device.recorded.answers.get(request, ()) if not answer.from_client]
        for answer in answers:
            if isinstance(answer.packet, packets.Connack):
                self._accept(answer, request, now_ns)
            elif isinstance(answer.packet, packets.Auth):
                self.device.respond(answer.packet, answer, request, now_ns)
        return bool(answers)

    def _accept(self, recorded: ScriptEntry | None, request: ScriptEntry | None, now_ns: int) -> None:
        """Queue CONNACK, and what the session resends after it."""
        connect, sessions = self.device.connect, self.sessions
        assert connect is not None
        before = recorded.packet if recorded is not None and isinstance(recorded.packet, packets.Connack) else None
        assigned = None
        if not connect.client_identifier and self.device.version >= V5:
            block = None if before is None else before.properties
            assigned = sessions.assign(None if block is None else block.assigned_client_identifier)
        present = False
        if before is None or not before.reason_code:
            self.device.session = sessions.session_of(assigned or connect.client_identifier or f"\0{id(self)}")
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
        connack = adapt.connack(before, connect, present=present, assigned=assigned)
        self.device.respond(connack, recorded, request, now_ns)

    def _acknowledged(self, entry: ScriptEntry, packet: ControlPacket, now_ns: int) -> None:
        """Process PUBACK, PUBREC and PUBCOMP for deliveries, PUBREL for a message of the device (5.0 4.3)."""
        if isinstance(packet, packets.Pubrel):
            self._released(entry, packet, now_ns)
            return
        identifier: int = packet.packet_identifier  # type: ignore[attr-defined]
        owed = self.device.session.unfinished.get(identifier)
        delivery = None if owed is None else owed.entry.source
        for answer in self.device.recorded.answers.get(delivery, ()) if delivery is not None else ():
            if answer.from_client and type(answer.packet) is type(packet) and answer not in self.device.happened:
                entry.source = answer
                self.device.mark(answer, now_ns)
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

    def _released(self, entry: ScriptEntry, packet: packets.Pubrel, now_ns: int) -> None:
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
            pubrel = next((answer for answer in answers if isinstance(answer.packet, packets.Pubrel)), None)
            entry.source = pubrel
            if pubrel is not None:
                self.device.mark(pubrel, now_ns)
            recorded = self.device.recorded.answered(source, packets.Pubcomp)
            if recorded is None and pubrel is not None and self.device.recorded.silent_to(pubrel, packets.Pubcomp):
                self.device.note(NoteKind.SKIPPED, "PUBCOMP, which the recorded server did not send either")
                return
        self._acknowledge(packets.Pubcomp, packet.packet_identifier, recorded, source, now_ns)

    def _acknowledge(
        self,
        kind: type[packets.Acknowledgement],
        identifier: int,
        recorded: ScriptEntry | None,
        message: ScriptEntry | None,
        now_ns: int,
    ) -> None:
        """Queue an acknowledgement; if it was recorded, with the recorded server's delay."""
        before = None if recorded is None or isinstance(recorded.packet, Malformed) else recorded.packet
        source = recorded if isinstance(before, kind) else None
        delay_ns = 0
        if source is not None and message is not None:
            delay_ns = recorded_delay_ns(source, self.device.recorded.answers.get(message, ()))
        packet = adapt.acknowledgement(kind, identifier, before, self.device.state)
        self.device.enqueue(packet, source, delay_ns, now_ns)

    def _process_request(self, entry: ScriptEntry, packet: ControlPacket, now_ns: int) -> None:
        """Process PUBLISH, SUBSCRIBE, UNSUBSCRIBE, PINGREQ, AUTH, and packets that no client may send."""
        is_same = False
        again = entry.resends is not None or entry.source is not None
        if not again or entry.source not in self.device.recorded.own:
            is_same = self._counterpart(entry, now_ns)
        if not is_same:
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

    def _is_unanswered(self, source: ScriptEntry | None, kinds: tuple[type[ControlPacket], ...]) -> bool:
        """Whether the recorded server did not answer this packet; notes that."""
        if source is None or not self.device.recorded.silent_to(source, kinds):
            return False
        name = packet_name(source.packet)
        self.device.note(NoteKind.SKIPPED, f"answer to {name}, which the recorded server did not give either")
        return True

    def _published(self, entry: ScriptEntry, packet: packets.Publish, now_ns: int) -> None:
        identifier, source = packet.packet_identifier, entry.source
        if not packet.qos or identifier is None:
            return
        before = None if source is None else source.packet
        acked = isinstance(before, packets.Publish) and before.qos > 0
        kinds = (packets.Puback, packets.Pubrec)
        recorded = self.device.recorded.answered(source, kinds) if source is not None and acked else None
        if acked and self._is_unanswered(source, kinds):
            return
        kind = packets.Puback if packet.qos == 1 else packets.Pubrec
        self._acknowledge(kind, identifier, recorded, source, now_ns)

    def _requested(
        self, entry: ScriptEntry, packet: packets.Subscribe | packets.Unsubscribe | packets.Pingreq, now_ns: int
    ) -> None:
        source = entry.source
        kind = _ANSWERED_BY[type(packet)]
        if self._is_unanswered(source, (kind,)):
            return
        answer = self.device.recorded.answered(source, kind) if source is not None else None
        recorded = None if source is None or answer is None else (source.packet, answer.packet)
        response: ControlPacket
        if isinstance(packet, packets.Subscribe):
            suback = adapt.suback(packet, recorded, self.grants, self.device.state)
            adapt.subscribe(self.device.session, packet, suback)
            response = suback
        elif isinstance(packet, packets.Unsubscribe):
            response = adapt.unsuback(packet, recorded, self.device.session, self.device.state)
            for name in packet.topic_filters:
                self.device.session.subscriptions.pop(name, None)
        else:
            response = packets.Pingresp()
        self.device.respond(response, answer, source, now_ns)


_ANSWERED_BY: dict[type[ControlPacket], type[ControlPacket]] = {
    packets.Subscribe: packets.Suback,
    packets.Unsubscribe: packets.Unsuback,
    packets.Pingreq: packets.Pingresp,
}

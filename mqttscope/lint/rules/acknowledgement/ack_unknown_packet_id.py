from mqttscope.events import MalformedEvent
from mqttscope.lint.examples import examples
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Confidence, Findings, Needs, Rule, RuleContext, Severity, packet_name
from mqttscope.lint.shared_checks import other_layout
from mqttscope.mqtt import ControlPacket, PacketType, Puback, Pubcomp, Pubrec, Pubrel, Suback, Unsuback


class AckUnknownPacketId(Rule):
    """An acknowledgement has a packet identifier that no unanswered packet has.

    The receiver cannot match it to a packet: it drops the acknowledgement, closes the connection, or waits forever for
    the right one.

    Instead, copy the packet identifier from the packet that you answer.
    """

    code = "ACK203"
    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    statements = {
        V5: {
            "MQTT-2.2.1-5": "puback,pubrec,pubrel,pubcomp",
            "MQTT-2.2.1-6": "suback,unsuback",
            "MQTT-3.8.4-2": "suback",
            "MQTT-3.10.4-5": "unsuback",
        },
        V3_1_1: {
            "MQTT-2.3.1-6": "puback,pubrec,pubrel",
            "MQTT-2.3.1-7": "suback,unsuback",
            "MQTT-3.8.4-2": "suback",
        },
    }
    also = {
        V5: ("MQTT-4.3.2-4", "MQTT-4.3.3-4", "MQTT-4.3.3-8", "MQTT-4.3.3-11"),
        V3_1_1: ("MQTT-3.10.4-4", "MQTT-4.3.2-2", "MQTT-4.3.3-2"),
        V3_1: ("V31-SUBACK-answer", "V31-UNSUBACK-answer"),
    }
    looks_at = (Puback, Pubrec, Pubrel, Pubcomp, Suback, Unsuback)
    signs = ("odd_answer",)
    needs = Needs.OPENING | Needs.WHOLE

    good = examples("""
        identifiers copied from the packets
            opened; > publish a qos=1 id=7; < puback 7; > subscribe 8 a:0; < suback 8 0
        the end of an exchange that began on an earlier connection
            opened resume < present; > pubrel 7; < pubcomp 7; < pubrel 3; > pubcomp 3
        MQTT 3.1.1 continues with PUBREL whatever the server remembers
            opened 3.1.1 resume; > pubrel 7; < pubcomp 7
        the PUBLISH is not in the capture
            opened 3.1.1; lost > publish a qos=1 id=7; < puback 7
        capture started in mid-connection
            midstream; < puback 7
    """)
    bad = examples("""
        PUBACK for another number
            opened; > publish a qos=1 id=7; < puback 8 !packet_identifier
        PUBREC in MQTT 3.1.1
            opened 3.1.1; < publish a qos=2 id=7; > pubrec 1792 !packet_identifier
        PUBREL and PUBCOMP without a PUBLISH
            opened; > pubrel 7 !packet_identifier; > pubcomp 9 !packet_identifier
        SUBACK for another number
            opened; > subscribe 7 a:0; < suback 8 0 !packet_identifier
        UNSUBACK in MQTT 3.1
            opened 3.1; < unsuback 2 !packet_identifier
        PUBCOMP for a QoS 1 message that was already acknowledged
            opened; > publish a qos=1 id=7; < puback 7; < pubcomp 7 !packet_identifier
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Look for a packet it may answer; other rules report second answers and answers of the wrong kind."""
        if isinstance(at.event, MalformedEvent) and other_layout(at.event.malformed, at.version) is None:
            return None  # bytes after a truncated packet can look like an acknowledgement
        identifier: int = packet.packet_identifier  # type: ignore[attr-defined]
        kind = packet.packet_type
        if kind == PacketType.PUBREL:
            if identifier in at.sender.exchanges or identifier in at.party.owes_pubrel or at.party.has_sent(identifier):
                return None
        elif identifier in at.receiver.exchanges or identifier in at.other.shared or _has_request(kind, identifier, at):
            return None
        if not at.party.in_step() or (kind <= PacketType.PUBCOMP and not _began_here(kind, at)):
            return None
        return self.report(
            "packet_identifier",
            f"{packet_name(packet)} with identifier {identifier} does not match any unanswered packet",
        )


def _has_request(kind: int, identifier: int, at: RuleContext) -> bool:
    """Whether this connection had a packet that this kind of acknowledgement answers."""
    if kind in (PacketType.SUBACK, PacketType.UNSUBACK):
        table = at.history.subscriptions
        name = "subscribe" if kind == PacketType.SUBACK else "unsubscribe"
        return not table.complete or table.request_for(identifier, name) is not None
    if kind == PacketType.PUBCOMP and (identifier in at.party.owes_pubcomp or identifier in at.party.pubrels_again):
        return True
    ended = at.other.ended.get(identifier)
    if ended is not None:
        return (kind == PacketType.PUBACK) == (ended.qos == 1)
    return at.other.has_sent(identifier)


def _began_here(kind: int, at: RuleContext) -> bool:
    """Whether the answered packet must have been sent on this connection."""
    connection = at.connection
    if connection.clean_start:
        return True
    if connection.session_present is not False:
        return False
    if not at.from_client:
        return True
    if at.version is V5:
        return kind != PacketType.PUBREL and not at.knew(at.history.connack_sent)  # else SES201 names the cause
        # 3.1.1 MQTT-4.4.0-1: with CleanSession 0 a client resends PUBREL, whatever the Session Present flag.
    return kind != PacketType.PUBREL

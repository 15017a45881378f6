from mqttscope.lint.finding import Confidence, Related, Severity
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, Needs, Rule, RuleContext, examples, packet_name
from mqttscope.mqtt import ControlPacket, PacketType, Puback, Pubcomp, Pubrec, Pubrel, Suback, Unsuback
from mqttscope.session.inflight import RECEIVED, RELEASED, SENT, Exchange


class AckWrongType(Rule):
    """An acknowledgement has the wrong type for the packet that it answers.

    PUBACK is for QoS 1, PUBREC for QoS 2, PUBREL for PUBREC, PUBCOMP for PUBREL, SUBACK for SUBSCRIBE, UNSUBACK for
    UNSUBSCRIBE.  The sender keeps waiting for the right one, or treats a QoS 2 message as delivered that may still be
    dropped or arrive twice.

    Instead, choose the answer by the QoS of the message, and send all four packets of a QoS 2 exchange.
    """

    code = "ACK204"
    severity = Severity.ERROR
    also = {
        V5: ("MQTT-3.3.4-1", "MQTT-4.3.2-4", "MQTT-4.3.3-8"),
        V3_1_1: ("MQTT-3.3.4-1", "MQTT-4.3.2-2"),
        V3_1: ("V31-PUBLISH-response",),
    }
    looks_at = (Puback, Pubrec, Pubrel, Pubcomp, Suback, Unsuback)
    signs = ("odd_answer",)
    needs = Needs.WHOLE

    good = examples("""
        the four steps of QoS 2
            opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7
        QoS 1, SUBSCRIBE and UNSUBSCRIBE
            opened 3.1.1; > publish a qos=1 id=1; > subscribe 2 a:0; > unsubscribe 3 a; < puback 1; < suback 2 0
            < unsuback 3
        a late second PUBACK arrives while the next message uses the identifier
            opened 3.1.1; > publish a qos=1 id=7; +20 > publish a dup qos=1 id=7; < puback 7; > publish b qos=2 id=7
            crossing < puback 7; < pubrec 7
        a second PUBREC, for a repeated PUBLISH
            opened 3.1.1; > publish a qos=2 id=7; +20 > publish a dup qos=2 id=7; < pubrec 7; > pubrel 7
            crossing < pubrec 7; > pubrel 7; < pubcomp 7; < pubcomp 7
        the PUBREC is not in the capture
            opened; > publish a qos=2 id=7; lost < pubrec 7; > pubrel 7; < pubcomp 7
    """)
    bad = examples("""
        PUBACK for QoS 2
            opened; > publish a qos=2 id=7; < puback 7 !
        PUBREC for QoS 1, in MQTT 3.1.1
            opened 3.1.1; < publish a qos=1 id=7; > pubrec 7 !
        PUBCOMP before PUBREL
            opened; > publish a qos=2 id=7; < pubrec 7; < pubcomp 7 !
        PUBREL before PUBREC
            opened; > publish a qos=2 id=7; > pubrel 7 !
        PUBREL for QoS 1, in MQTT 3.1
            opened 3.1; > publish a qos=1 id=7; > pubrel 7 !
        SUBACK for UNSUBSCRIBE
            opened 3.1.1; > unsubscribe 7 a; < suback 7 0 !
        UNSUBACK for a message
            opened; > publish a qos=1 id=7; < unsuback 7 0 !
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Compare with the packet that the exchange of this identifier waits for."""
        identifier: int = packet.packet_identifier  # type: ignore[attr-defined]
        kind = packet.packet_type
        if kind == PacketType.PUBREL:
            running = at.sender.exchanges.get(identifier)
            if running is None or identifier in at.party.owes_pubrel:
                return None
            if running.phase in (RECEIVED, RELEASED) or at.party.settled.get(identifier) == running.packet:
                return None
            wanted = _expected_answer(running)
        else:
            running = at.receiver.exchanges.get(identifier)
            if running is None:
                return None
            wanted = _expected_answer(running)
            again = kind == PacketType.PUBREC and running.qos == 2
            if again or (kind == PacketType.PUBCOMP and identifier in at.party.owes_pubcomp):
                return None
        if wanted == PacketType(kind).name or not at.party.in_step():
            return None
        if identifier in (at.party if kind == PacketType.PUBREL else at.other).shared:
            return None  # it belongs to the other exchange that used the identifier at that time
        before = at.other.ended.get(identifier)
        if before is not None and before.answers <= before.retransmissions:
            return None  # a message sent more than once may still be owed an answer
        sure = _has_arrived(running, kind, at)
        if not sure and _was_used_before(identifier, at):
            return None  # an answer to the exchange that used the identifier before
        began = running.kind.upper() + (f" of QoS {running.qos}" if running.kind == "publish" else "")
        text = f"{packet_name(packet)} with identifier {identifier} answers a {began}, which waits for {wanted}"
        first = Related.to(f"{running.kind.upper()} {identifier}", running)
        return self.report(
            "", text, confidence=None if sure else Confidence.LIKELY, related=(first,), statements=_cited(running, at)
        )


def _expected_answer(running: Exchange) -> str:
    """The packet that an exchange waits for from the other side."""
    if running.kind != "publish":
        return "SUBACK" if running.kind == "subscribe" else "UNSUBACK"
    if running.qos == 1:
        return "PUBACK"
    return {SENT: "PUBREC", RECEIVED: "PUBREL", RELEASED: "PUBCOMP"}[running.phase]


def _has_arrived(running: Exchange, kind: int, at: RuleContext) -> bool:
    """Whether the sender of the acknowledgement had received the packet that began the exchange."""
    if kind == PacketType.PUBREL:
        return True
    if running.kind == "publish":
        position = at.other.positions.get(running.packet_identifier, 0)
    else:
        request = at.history.subscriptions.request_for(running.packet_identifier, running.kind)
        position = 0 if request is None else request.position
    return 0 < position <= at.party.acknowledged


def _was_used_before(identifier: int, at: RuleContext) -> bool:
    request = at.history.subscriptions.requests.get(identifier)
    return identifier in at.other.ended or (request is not None and request.answers > 0)


def _cited(running: Exchange, at: RuleContext) -> tuple[str, ...]:
    if running.kind != "publish" or running.phase is not SENT:
        return ()
    if at.version is V5:
        return ("MQTT-3.3.4-1", "MQTT-4.3.2-4" if running.qos == 1 else "MQTT-4.3.3-8")
    if at.version is V3_1_1:
        return ("MQTT-3.3.4-1", "MQTT-4.3.2-2") if running.qos == 1 else ("MQTT-3.3.4-1",)
    return ("V31-PUBLISH-response",)

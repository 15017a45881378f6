"""ACK204."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, crossing, examples, lost, opened, server
from mqttscope.lint.finding import Confidence, Related, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Needs, Rule, packet_name
from mqttscope.mqtt.constants import PacketType
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import (
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from mqttscope.mqtt.parts import Subscription
from mqttscope.session.inflight import RECEIVED, RELEASED, SENT, Exchange


class AckWrongType(Rule):
    """An acknowledgement is of another kind than the packet that it answers asks for.

    PUBACK is for QoS 1, PUBREC for QoS 2, PUBREL for PUBREC, PUBCOMP for PUBREL, SUBACK for SUBSCRIBE, UNSUBACK for
    UNSUBSCRIBE.  The sender continues waiting for the right one, or takes a QoS 2 message for delivered that may be
    dropped or come twice.

    Instead, answer by the QoS of the message and follow all four steps of QoS 2.
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

    good = examples(
        lambda: [
            conversation(
                "the four steps of QoS 2",
                *opened(),
                client(Publish(qos=2, topic_name="a", packet_identifier=7)),
                server(Pubrec(packet_identifier=7)),
                client(Pubrel(packet_identifier=7)),
                server(Pubcomp(packet_identifier=7)),
            ),
            conversation(
                "QoS 1, SUBSCRIBE and UNSUBSCRIBE",
                *opened(V3_1_1),
                client(Publish(qos=1, topic_name="a", packet_identifier=1)),
                client(Subscribe(packet_identifier=2, subscriptions=[Subscription("a")])),
                client(Unsubscribe(packet_identifier=3, topic_filters=["a"])),
                server(Puback(packet_identifier=1)),
                server(Suback(packet_identifier=2, reason_codes=[0])),
                server(Unsuback(packet_identifier=3)),
            ),
            conversation(
                "a late second PUBACK meets the next message",
                *opened(V3_1_1),
                client(Publish(qos=1, topic_name="a", packet_identifier=7)),
                client(Publish(dup=True, qos=1, topic_name="a", packet_identifier=7), after=20),
                server(Puback(packet_identifier=7)),
                client(Publish(qos=2, topic_name="b", packet_identifier=7)),
                crossing(server(Puback(packet_identifier=7))),
                server(Pubrec(packet_identifier=7)),
            ),
            conversation(
                "a PUBREC again, to a repeated PUBLISH",
                *opened(V3_1_1),
                client(Publish(qos=2, topic_name="a", packet_identifier=7)),
                client(Publish(dup=True, qos=2, topic_name="a", packet_identifier=7), after=20),
                server(Pubrec(packet_identifier=7)),
                client(Pubrel(packet_identifier=7)),
                crossing(server(Pubrec(packet_identifier=7))),
                client(Pubrel(packet_identifier=7)),
                server(Pubcomp(packet_identifier=7)),
                server(Pubcomp(packet_identifier=7)),
            ),
            conversation(
                "the PUBREC is not in the capture",
                *opened(),
                client(Publish(qos=2, topic_name="a", packet_identifier=7)),
                lost(server(Pubrec(packet_identifier=7))),
                client(Pubrel(packet_identifier=7)),
                server(Pubcomp(packet_identifier=7)),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "PUBACK for QoS 2",
                *opened(),
                client(Publish(qos=2, topic_name="a", packet_identifier=7)),
                server(Puback(packet_identifier=7)).marked(""),
            ),
            conversation(
                "PUBREC for QoS 1, in MQTT 3.1.1",
                *opened(V3_1_1),
                server(Publish(qos=1, topic_name="a", packet_identifier=7)),
                client(Pubrec(packet_identifier=7)).marked(""),
            ),
            conversation(
                "PUBCOMP before PUBREL",
                *opened(),
                client(Publish(qos=2, topic_name="a", packet_identifier=7)),
                server(Pubrec(packet_identifier=7)),
                server(Pubcomp(packet_identifier=7)).marked(""),
            ),
            conversation(
                "PUBREL before PUBREC",
                *opened(),
                client(Publish(qos=2, topic_name="a", packet_identifier=7)),
                client(Pubrel(packet_identifier=7)).marked(""),
            ),
            conversation(
                "PUBREL for QoS 1, in MQTT 3.1",
                *opened(V3_1),
                client(Publish(qos=1, topic_name="a", packet_identifier=7)),
                client(Pubrel(packet_identifier=7)).marked(""),
            ),
            conversation(
                "SUBACK for UNSUBSCRIBE",
                *opened(V3_1_1),
                client(Unsubscribe(packet_identifier=7, topic_filters=["a"])),
                server(Suback(packet_identifier=7, reason_codes=[0])).marked(""),
            ),
            conversation(
                "UNSUBACK for a message",
                *opened(),
                client(Publish(qos=1, topic_name="a", packet_identifier=7)),
                server(Unsuback(packet_identifier=7, reason_codes=[0])).marked(""),
            ),
        ]
    )

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Compare with what the exchange of this identifier waits for."""
        identifier: int = packet.packet_identifier  # type: ignore[attr-defined]
        kind = packet.packet_type
        if kind == PacketType.PUBREL:
            running = at.sender.exchanges.get(identifier)
            if running is None or identifier in at.party.owes_pubrel:
                return None
            if running.phase in (RECEIVED, RELEASED) or at.party.settled.get(identifier) == running.packet:
                return None
            wanted = _wanted(running)
        else:
            running = at.receiver.exchanges.get(identifier)
            if running is None:
                return None
            wanted = _wanted(running)
            again = kind == PacketType.PUBREC and running.qos == 2
            if again or (kind == PacketType.PUBCOMP and identifier in at.party.owes_pubcomp):
                return None
        if wanted == PacketType(kind).name or not at.party.in_step():
            return None
        if identifier in (at.party if kind == PacketType.PUBREL else at.other).shared:
            return None  # it belongs to the other exchange that had the identifier at the same time
        before = at.other.ended.get(identifier)
        if before is not None and before.answers <= before.retransmissions:
            return None  # a message that was sent more than once may still have an answer due
        sure = _had(running, kind, at)
        if not sure and _earlier(identifier, at):
            return None  # an answer to the exchange that had the identifier before
        began = running.kind.upper() + (f" of QoS {running.qos}" if running.kind == "publish" else "")
        told = f"{packet_name(packet)} with identifier {identifier} answers a {began}, which waits for {wanted}"
        first = Related(f"{running.kind.upper()} {identifier}", running.packet, running.frame, running.timestamp_ns)
        return self.report(
            "", told, confidence=None if sure else Confidence.LIKELY, related=(first,), statements=_cited(running, at)
        )


def _wanted(running: Exchange) -> str:
    """The packet that an exchange waits for from the other side."""
    if running.kind != "publish":
        return "SUBACK" if running.kind == "subscribe" else "UNSUBACK"
    if running.qos == 1:
        return "PUBACK"
    return {SENT: "PUBREC", RECEIVED: "PUBREL", RELEASED: "PUBCOMP"}[running.phase]


def _had(running: Exchange, kind: int, at: RuleContext) -> bool:
    """Whether the one who answers had the packet that began the exchange."""
    if kind == PacketType.PUBREL:
        return True
    if running.kind == "publish":
        position = at.other.positions.get(running.packet_identifier, 0)
    else:
        request = at.history.subscriptions.request_for(running.packet_identifier, running.kind)
        position = 0 if request is None else request.position
    return 0 < position <= at.party.acknowledged


def _earlier(identifier: int, at: RuleContext) -> bool:
    """Whether the identifier had an exchange before."""
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

"""ACK210."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, lost, opened, server
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, Findings, Needs, Rule, packet_name
from mqttscope.mqtt.constants import PacketType
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from mqttscope.session.inflight import SENT


class DuplicateAck(Rule):
    """A PUBLISH or PUBREL is acknowledged twice although it was sent once.

    The identifier may be in use again by then, and the second acknowledgement ends the wrong exchange.  One
    acknowledgement for each time that a packet was sent is right.

    Instead, acknowledge each packet once, from one place in the program.
    """

    code = "ACK210"
    severity = Severity.WARNING
    confidence = Confidence.LIKELY
    looks_at = (Puback, Pubrec, Pubcomp)
    signs = ("odd_answer",)
    needs = Needs.WHOLE

    good = examples(
        lambda: [
            conversation(
                "one each",
                *opened(),
                client(Publish(qos=1, topic_name="a", packet_identifier=7)),
                server(Puback(packet_identifier=7)),
                client(Publish(qos=1, topic_name="a", packet_identifier=7)),
                server(Puback(packet_identifier=7)),
            ),
            conversation(
                "a repeated PUBLISH is acknowledged again",
                *opened(V3_1_1),
                client(Publish(qos=1, topic_name="a", packet_identifier=7)),
                client(Publish(dup=True, qos=1, topic_name="a", packet_identifier=7), after=20),
                server(Puback(packet_identifier=7), Puback(packet_identifier=7)),
            ),
            conversation(
                "every step of QoS 2 repeated",
                *opened(V3_1),
                client(Publish(qos=2, topic_name="a", packet_identifier=7)),
                client(Publish(dup=True, qos=2, topic_name="a", packet_identifier=7), after=20),
                server(Pubrec(packet_identifier=7), Pubrec(packet_identifier=7)),
                client(Pubrel(packet_identifier=7), Pubrel(packet_identifier=7)),
                server(Pubcomp(packet_identifier=7), Pubcomp(packet_identifier=7)),
            ),
            conversation(
                "the repeated PUBLISH is not in the capture",
                *opened(V3_1_1),
                client(Publish(qos=1, topic_name="a", packet_identifier=7)),
                lost(client(Publish(dup=True, qos=1, topic_name="a", packet_identifier=7), after=20)),
                server(Puback(packet_identifier=7), Puback(packet_identifier=7)),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "PUBACK",
                *opened(),
                client(Publish(qos=1, topic_name="a", packet_identifier=7)),
                server(Puback(packet_identifier=7)),
                server(Puback(packet_identifier=7)).marked("packet_identifier"),
            ),
            conversation(
                "PUBREC, at once and after the PUBCOMP",
                *opened(V3_1_1),
                server(Publish(qos=2, topic_name="a", packet_identifier=7)),
                client(Pubrec(packet_identifier=7)),
                client(Pubrec(packet_identifier=7)).marked("packet_identifier"),
                server(Pubrel(packet_identifier=7)),
                client(Pubcomp(packet_identifier=7)),
                client(Pubrec(packet_identifier=7)).marked("packet_identifier"),
            ),
            conversation(
                "PUBCOMP",
                *opened(),
                client(Publish(qos=2, topic_name="a", packet_identifier=7)),
                server(Pubrec(packet_identifier=7)),
                client(Pubrel(packet_identifier=7)),
                server(Pubcomp(packet_identifier=7)),
                server(Pubcomp(packet_identifier=7)).marked("packet_identifier"),
            ),
        ]
    )

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Look for an exchange that has had this acknowledgement as often as its packet was sent."""
        identifier: int = packet.packet_identifier  # type: ignore[attr-defined]
        kind = packet.packet_type
        running = at.receiver.exchanges.get(identifier)
        if kind == PacketType.PUBREC:
            again = _pubrec_again(identifier, at)
        elif running is not None:
            return None
        else:
            again = _answered(kind, identifier, at)
        if not again or identifier in at.other.shared or not at.party.in_step():
            return None
        asked = "PUBREL" if kind == PacketType.PUBCOMP else "PUBLISH"
        return self.report(
            "packet_identifier", f"{packet_name(packet)} with identifier {identifier} comes again for one {asked}"
        )


def _answered(kind: int, identifier: int, at: RuleContext) -> bool:
    """Whether PUBACK or PUBCOMP has ended the exchange before, as often as it was asked for."""
    ended = at.other.ended.get(identifier)
    if ended is None or ended.by != kind:
        return False
    if kind == PacketType.PUBCOMP:
        return identifier not in at.party.owes_pubcomp and identifier not in at.party.pubrels_again
    return ended.answers > ended.retransmissions


def _pubrec_again(identifier: int, at: RuleContext) -> bool:
    """Whether a PUBREC was sent before for a PUBLISH that was sent once."""
    if identifier in at.party.owes_pubrec:
        return False
    running = at.receiver.exchanges.get(identifier)
    if running is None:
        ended = at.other.ended.get(identifier)
        return ended is not None and ended.qos == 2 and ended.retransmissions == 0
    return running.qos == 2 and running.phase is not SENT and running.retransmissions == 0

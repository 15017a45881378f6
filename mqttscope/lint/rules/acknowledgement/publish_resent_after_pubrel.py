"""ACK207."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, lost, opened, server
from mqttscope.lint.finding import Confidence, Related, Severity
from mqttscope.lint.rule import V3_1_1, V5, Findings, Needs, Rule
from mqttscope.mqtt.packets import Pubcomp, Publish, Pubrec, Pubrel
from mqttscope.session.inflight import RELEASED


class PublishResentAfterPubrel(Rule):
    """A QoS 2 PUBLISH is sent again after its PUBREL.

    With the PUBREL the receiver may forget the packet identifier.  The repeated PUBLISH is then a new message to it,
    and QoS 2 has delivered twice.

    Instead, send only PUBREL again once it has been sent, until PUBCOMP comes.
    """

    code = "ACK207"
    severity = Severity.ERROR
    statements = {V5: {"MQTT-4.3.3-6": ""}, V3_1_1: {"MQTT-4.3.3-1": ""}}
    looks_at = Publish
    when = "dup"
    needs = Needs.WHOLE

    good = examples(
        lambda: [
            conversation(
                "PUBREL again after a reconnect",
                *opened(clean_start=False, session_present=True),
                client(Pubrel(packet_identifier=7)),
                server(Pubcomp(packet_identifier=7)),
            ),
            conversation(
                "PUBLISH again before the PUBREL",
                *opened(V3_1_1),
                client(Publish(qos=2, topic_name="a", packet_identifier=7)),
                server(Pubrec(packet_identifier=7)),
                client(Publish(dup=True, qos=2, topic_name="a", packet_identifier=7)),
                server(Pubrec(packet_identifier=7)),
                client(Pubrel(packet_identifier=7)),
                server(Pubcomp(packet_identifier=7)),
            ),
            conversation(
                "the PUBCOMP is not in the capture",
                *opened(V3_1_1),
                client(Publish(qos=2, topic_name="a", packet_identifier=7)),
                server(Pubrec(packet_identifier=7)),
                client(Pubrel(packet_identifier=7)),
                lost(server(Pubcomp(packet_identifier=7))),
                client(Publish(qos=2, topic_name="a", packet_identifier=7)),
                server(Pubrec(packet_identifier=7)),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "before the PUBCOMP",
                *opened(),
                client(Publish(qos=2, topic_name="a", packet_identifier=7)),
                server(Pubrec(packet_identifier=7)),
                client(Pubrel(packet_identifier=7)),
                client(Publish(dup=True, qos=2, topic_name="a", packet_identifier=7), after=20).marked(""),
            ),
            conversation(
                "from the server, in MQTT 3.1.1",
                *opened(V3_1_1),
                server(Publish(qos=2, topic_name="a", packet_identifier=7)),
                client(Pubrec(packet_identifier=7)),
                server(Pubrel(packet_identifier=7)),
                server(Publish(dup=True, qos=2, topic_name="a", packet_identifier=7), after=20).marked(""),
            ),
            conversation(
                "the PUBREL of an earlier connection first",
                *opened(clean_start=False, session_present=True),
                client(Pubrel(packet_identifier=7)),
                client(Publish(dup=True, qos=2, topic_name="a", packet_identifier=7)).marked(""),
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look for a PUBREL that waits for its PUBCOMP."""
        identifier = packet.packet_identifier
        if packet.qos != 2 or identifier is None or not at.party.in_step():
            return None
        running = at.sender.running(identifier, "publish")
        told = f"PUBLISH {at.topic!r} with identifier {identifier} is sent again after its PUBREL"
        if running is None:
            if identifier not in at.other.owes_pubcomp or at.party.has_sent(identifier):
                return None
            return self.report("", told, confidence=Confidence.LIKELY)
        if running.phase is not RELEASED or not at.party.repeats(packet, at.topic, running):
            return None
        first = Related("the first PUBLISH", running.packet, running.frame, running.timestamp_ns)
        return self.report("", told, related=(first,))

"""PUB102."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.lint.rules import may_be_3_1
from mqttscope.mqtt.packets import Disconnect, Puback, Publish


class DupOnQos0(Rule):
    """A PUBLISH with QoS 0 has the DUP flag set.

    Nothing of QoS 0 is ever sent again, so there is nothing that it could be a duplicate of.  Many receivers let it
    pass, others treat the packet as malformed and close the connection.

    Instead, clear DUP whenever QoS is 0, above all where a server passes a message on with a lower QoS.
    """

    code = "PUB102"
    severity = Severity.ERROR
    versions = (V3_1_1, V5)
    statements = {
        V5: {"MQTT-3.3.1-2": "", "MQTT-4.3.1-1": ""},
        V3_1_1: {"MQTT-3.3.1-2": "", "MQTT-4.3.1-1": ""},
    }
    also = {V3_1: ("V31-PUBLISH-dup-qos0-unused",)}
    looks_at = Publish
    when = "dup"

    good = examples(
        lambda: [
            conversation("DUP 0", *opened(), client(Publish(topic_name="a/b", payload=b"hi"))),
            conversation(
                "DUP belongs to QoS 1 and 2",
                *opened(V3_1_1, clean_start=False, session_present=True),
                client(Publish(dup=True, qos=1, topic_name="a/b", packet_identifier=1)),
                server(Puback(packet_identifier=1)),
            ),
            conversation("MQTT 3.1 does not use the bit", *opened(V3_1), client(Publish(dup=True, topic_name="a/b"))),
            conversation(
                "joined in the middle, perhaps of MQTT 3.1",
                client(Publish(dup=True, topic_name="a/b", payload=b"hello"), Disconnect()),
                version=V3_1,
                handshake=False,
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "DUP with QoS 0", *opened(), client(Publish(dup=True, topic_name="a/b", payload=b"hi")).marked("dup")
            ),
            conversation(
                "from the server, in MQTT 3.1.1",
                *opened(V3_1_1),
                server(Publish(dup=True, topic_name="a/b")).marked("dup"),
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """DUP is set: there must be a QoS."""
        if packet.qos or may_be_3_1(at):
            return None
        return self.report("dup", f"PUBLISH {at.topic!r} has DUP 1 with QoS 0")

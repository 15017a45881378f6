"""PUB101."""

from mqttscope.events import MalformedEvent
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, hexadecimal, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.declare import FaultReport
from mqttscope.mqtt.packets import Puback, Publish


class QosInvalid(Rule):
    """A PUBLISH has both QoS bits set, and there is no QoS 3.

    The receiver cannot know whether a packet identifier follows the topic, so it closes the connection as for any
    malformed packet.  What the packet seems to hold after its topic is a guess.

    Instead, send QoS 0, 1 or 2.
    """

    code = "PUB101"
    severity = Severity.ERROR
    reason_code = 0x81
    statements = {V5: {"MQTT-3.3.1-4": ""}, V3_1_1: {"MQTT-3.3.1-4": ""}, V3_1: {"V31-HEADER-qos3": ""}}
    malformed = (MalformedReason.QOS_INVALID,)

    good = examples(
        lambda: [
            conversation(
                "the highest QoS there is",
                *opened(),
                client(Publish(qos=1, topic_name="a/b", packet_identifier=10, payload=b"hi")),
                server(Puback(packet_identifier=10)),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "both bits set",
                *opened(),
                client(hexadecimal("36 0a 00 03 61 2f 62 00 0a 00 68 69")).marked("qos"),
            ),
            conversation(
                "from the server, in MQTT 3.1.1",
                *opened(V3_1_1),
                server(hexadecimal("37 09 00 03 61 2f 62 00 0a 68 69")).marked("qos"),
            ),
            conversation(
                "in MQTT 3.1", *opened(V3_1), client(hexadecimal("36 09 00 03 61 2f 62 00 0a 68 69")).marked("qos")
            ),
        ]
    )

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """Name the topic, which stands before what is in doubt."""
        assert isinstance(at.event, MalformedEvent)
        found = at.event.malformed
        topic = getattr(found.packet, "topic_name", None)
        name = "PUBLISH" if topic is None else f"PUBLISH {topic!r}"
        return self.report("qos", f"{name} has both QoS bits set (first byte 0x{found.raw[0]:02x}); there is no QoS 3")

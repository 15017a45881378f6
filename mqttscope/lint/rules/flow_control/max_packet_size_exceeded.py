"""FLW202."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, crossing, examples, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V5, Findings, Needs, Rule, packet_name
from mqttscope.lint.rules.flow_control.diagnostic_property_oversizes_packet import droppable
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Connack, Puback, Publish
from mqttscope.mqtt.properties import Properties


class MaxPacketSizeExceeded(Rule):
    """A packet is longer than the Maximum Packet Size of its receiver.

    The receiver closes the connection with 0x95 (Packet too large), and after the reconnect the same packet often comes
    again.  The size is that of the whole packet, with its first byte and the bytes of the Remaining Length.

    Instead, compare the whole encoded packet with the limit; a server drops a message that is too large for a client
    and continues with the next one.
    """

    code = "FLW202"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.INFO)
    reason_code = 0x95
    versions = (V5,)
    statements = {V5: {"MQTT-3.1.2-24": "server", "MQTT-3.2.2-15": "client"}}
    also = {V5: ("MQTT-3.1.2-25",)}
    looks_at = ControlPacket
    signs = ("oversized",)
    needs = Needs.OPENING

    good = examples(
        lambda: [
            conversation(
                "exactly the limit, both ways",
                *opened(connect=Properties(maximum_packet_size=20), connack=Properties(maximum_packet_size=30)),
                server(Publish(topic_name="a", payload=bytes(14))),
                client(Publish(qos=1, topic_name="a", packet_identifier=1, payload=bytes(22))),
                server(Puback(packet_identifier=1)),
            ),
            conversation("no limit", *opened(), client(Publish(topic_name="a", payload=bytes(100_000)))),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "from the server, by one byte",
                *opened(connect=Properties(maximum_packet_size=20)),
                server(Publish(topic_name="a", payload=bytes(15))).marked(""),
            ),
            conversation(
                "from the client",
                *opened(connack=Properties(maximum_packet_size=30)),
                client(Publish(topic_name="a", payload=bytes(200))).marked(""),
            ),
            conversation(
                "the CONNACK itself",
                opened(connect=Properties(maximum_packet_size=20))[0],
                server(Connack(properties=Properties(assigned_client_identifier="a-long-made-up-name"))).marked(""),
            ),
            conversation(
                "sent before the CONNACK had arrived",
                *opened(connack=Properties(maximum_packet_size=30)),
                crossing(client(Publish(topic_name="a", payload=bytes(200)))).marked(""),
            ),
        ]
    )

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Compare the length with the receiver's limit."""
        limit = at.receiver.maximum_packet_size
        if not limit:
            return None
        size = len(packet.raw) + packet.missing
        if size <= limit or droppable(packet, limit):
            return None
        severity, confidence = at.awareness()
        whose = "server" if at.from_client else "client"
        return self.report(
            "",
            f"{packet_name(packet)} is {size:,} bytes long, the {whose} accepts at most {limit:,}",
            severity=severity,
            confidence=confidence,
        )

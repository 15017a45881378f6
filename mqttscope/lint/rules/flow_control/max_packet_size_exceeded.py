from mqttscope.lint.rules import V5, Findings, RuleContext, examples, packet_name
from mqttscope.lint.rules.flow_control.diagnostic_property_oversizes_packet import droppable
from mqttscope.lint.shared_checks import AnnouncedLimitRule
from mqttscope.mqtt.declare import ControlPacket


class MaxPacketSizeExceeded(AnnouncedLimitRule):
    """A packet is longer than the Maximum Packet Size of its receiver.

    The receiver closes the connection with 0x95 (Packet too large), and after the reconnect the same packet often comes
    again.  The size is that of the whole packet, with its first byte and the bytes of the Remaining Length.

    Instead, compare the whole encoded packet with the limit; a server drops a message that is too large for a client
    and continues with the next one.
    """

    code = "FLW202"
    reason_code = 0x95
    statements = {V5: {"MQTT-3.1.2-24": "server", "MQTT-3.2.2-15": "client"}}
    also = {V5: ("MQTT-3.1.2-25",)}
    signs = ("oversized",)

    good = examples("""
        exactly the limit, both ways
            opened maximum_packet_size=20 < maximum_packet_size=30; < publish a 0x00*14; > publish a 0x00*22 qos=1 id=1
            < puback 1
        no limit
            opened; > publish a 0x00*100000
    """)
    bad = examples("""
        from the server, by one byte
            opened maximum_packet_size=20; < publish a 0x00*15 !
        from the client
            opened < maximum_packet_size=30; > publish a 0x00*200 !
        the CONNACK itself
            opened maximum_packet_size=20 < assigned_client_identifier=a-long-made-up-name !
        sent before the CONNACK had arrived
            opened < maximum_packet_size=30; crossing > publish a 0x00*200 !
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Compare the length with the receiver's limit."""
        limit = at.receiver.maximum_packet_size
        if not limit:
            return None
        size = len(packet.raw) + packet.missing
        if size <= limit or droppable(packet, limit):
            return None
        whose = "server" if at.from_client else "client"
        message = f"{packet_name(packet)} is {size:,} bytes long, the {whose} accepts at most {limit:,}"
        return self.ignored("", message, at)

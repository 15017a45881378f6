from mqttscope.lint.rules import V5, Confidence, Findings, RuleContext, examples, packet_name
from mqttscope.lint.rules.flow_control.diagnostic_property_oversizes_packet import droppable
from mqttscope.lint.shared_checks import AnnouncedLimitRule
from mqttscope.mqtt.codec import NEED_MORE, packet_end
from mqttscope.mqtt.constants import MalformedReason, PacketType
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.stream import Unparsed


class MaxPacketSizeExceeded(AnnouncedLimitRule):
    """A packet is larger than the Maximum Packet Size of its receiver.

    The receiver closes the connection with 0x95 (Packet too large), and the same packet is often sent again after the
    reconnect.  The size includes the whole packet with its first byte and its Remaining Length bytes.  A PUBLISH
    without its end is also reported.  If it was cut off, or fewer bytes than the limit were sent, its length may be
    wrong, and the finding is only likely.

    Instead, compare the size of the whole encoded packet with the limit; a server drops a message that is too large for
    a client and continues with the next one.
    """

    code = "FLW202"
    reason_code = 0x95
    statements = {V5: {"MQTT-3.1.2-24": "server", "MQTT-3.2.2-15": "client"}}
    also = {V5: ("MQTT-3.1.2-25",)}
    signs = ("oversized",)

    good = examples("""
        exactly the limit, in both directions
            opened maximum_packet_size=20 < maximum_packet_size=30; < publish a 0x00*14; > publish a 0x00*22 qos=1 id=1
            < puback 1
        no limit
            opened; > publish a 0x00*100000
        cut off, but within the limit
            opened < maximum_packet_size=66; > raw 30 40 0001 "a" 00*40; < reset
        cut off inside its length field
            opened < maximum_packet_size=30; > raw 30 80; < reset
        cut off after lost bytes, perhaps not a packet start
            opened < maximum_packet_size=30; > publish a; lost > publish a; > raw 30 40 0001 "a" 00*40; < reset
        no limit, cut off
            opened; > raw 30 40 0001 "a" 00*40; < reset
    """)
    bad = examples("""
        one byte too large, from the server
            opened maximum_packet_size=20; < publish a 0x00*15 !
        too large, from the client
            opened < maximum_packet_size=30; > publish a 0x00*200 !
        the CONNACK itself is too large
            opened maximum_packet_size=20 < assigned_client_identifier=a-long-made-up-name !
        sent before the CONNACK arrived
            opened < maximum_packet_size=30; crossing > publish a 0x00*200 !
        cut off by a reset from the server
            opened < maximum_packet_size=30; > raw 30 40 0001 "a" 00*40 !!; < disconnect code=0x95; < reset
        the client closes inside it
            opened < maximum_packet_size=30; > raw 30 40 0001 "a" 00*40 !; > fin
        cut off before the limit: the length may be wrong
            opened < maximum_packet_size=30; > raw 30 40 0001 "a" 00*9 !!; < reset
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Compare the length with the receiver's limit."""
        limit = at.receiver.maximum_packet_size
        if not limit:
            return None
        size = len(packet.raw) + packet.missing
        if size <= limit or droppable(packet, limit):
            return None
        receiver = "server" if at.from_client else "client"
        message = f"{packet_name(packet)} is {size:,} bytes long, the {receiver} accepts at most {limit:,}"
        return self.ignored("", message, at)

    def check_unparsed(self, unparsed: Unparsed, at: RuleContext) -> Findings:
        """Check the announced length of a PUBLISH that was cut off, or that is too long to decode."""
        if unparsed.missing or unparsed.packet_type != PacketType.PUBLISH:
            return None
        return self._check_length(unparsed.raw, unparsed.length, at)

    def check_damaged(self, malformed: Malformed, at: RuleContext) -> Findings:
        """Check the announced length of a PUBLISH that was unfinished when its sender closed."""
        if malformed.reason is not MalformedReason.TRUNCATED or malformed.packet_type != PacketType.PUBLISH:
            return None
        return self._check_length(malformed.raw, len(malformed.raw), at)

    def _check_length(self, raw: bytes, length: int, at: RuleContext) -> Findings:
        limit, (body, end) = at.receiver.maximum_packet_size, packet_end(raw, 0, len(raw))
        if not limit or body == NEED_MORE or end <= limit:
            return None
        connection = at.connection
        if connection.gaps or connection.discarded_segments or at.party.malformed or at.history.disordered:
            return None  # this may not be the start of a packet
        receiver = "server" if at.from_client else "client"
        message = (
            f"PUBLISH is {end:,} bytes long, the {receiver} accepts at most {limit:,}; {length:,} bytes of it were sent"
        )
        report = self.ignored("", message, at)
        if length <= limit and report.confidence is None:
            report.confidence = Confidence.LIKELY
        return report

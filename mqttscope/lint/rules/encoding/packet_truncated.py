from mqttscope.lint.rules import V3_1_1, V5, Confidence, Findings, RuleContext, examples, nothing_understood
from mqttscope.lint.shared_checks import MalformedRule
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.declare import FaultReport


class PacketTruncated(MalformedRule):
    """A field reaches past the end of its packet, or the sender closes the connection inside a packet.

    The Remaining Length says where the packet ends, and a field in it announces more bytes than are left: one of the
    two lengths is wrong, or text was counted in characters and not in bytes.  The receiver closes the connection.  A
    packet that the capture cut off is not meant: only a sender that closes in good order can leave one unfinished.
    Where the other side had closed before, or the capture lacks what it sent, it may have had no reason to send the
    rest: that is a guess.  A server need not send the rest to a client that has sent DISCONNECT.

    Instead, compute the Remaining Length from the encoded bytes of all fields, and send packets whole.
    """

    code = "ENC107"
    statements = {V5: {"V5-LENGTH-overrun": ""}, V3_1_1: {"V311-LENGTH-overrun": ""}}
    also = {
        V5: ("MQTT-3.1.2-17", "MQTT-3.1.2-19", "MQTT-3.3.2-1"),
        V3_1_1: ("MQTT-3.1.2-19", "MQTT-3.1.2-21", "MQTT-3.3.2-1", "MQTT-3.10.3-1"),
    }
    malformed = (MalformedReason.FIELD_OVERRUN, MalformedReason.TRUNCATED)

    good = examples("""
        the topic fills the packet
            opened 3.1.1; > raw 30 05 0003 "a/b"
        the capture ends inside a packet
            opened; > publish a; > raw 30 08 00
        a reset inside a packet
            opened; > publish a; > raw 30 08 00; > reset
        the server closes inside a packet that the client, which has sent DISCONNECT, does not wait for
            opened; < raw 30 08 0003612f; > disconnect; < fin; > fin
        MQTT 3.1 lets a CONNECT end before the user name that its flags announce
            version 3.1; > raw 10 10 0006 "MQIsdp" 0382003c 0002 "c1"; < connack
    """)
    bad = examples("""
        a topic of five bytes where two are left
            opened; > raw 30 04 0005612f !topic_name
        in MQTT 3.1.1
            opened 3.1.1; > raw 30 04 0005612f !topic_name
        no room for the packet identifier, in MQTT 3.1
            opened 3.1; > raw 32 06 0003 "a/b" 00 !packet_identifier
        a SUBSCRIBE without options for its last filter
            opened; > raw 82 08 000a00 0003 "a/b" !subscriptions[0].options
        the client closes inside a packet
            opened; > raw 30 08 0003612f !; > fin
        the other side has closed before: only a guess
            opened; > raw 30 08 0003612f !; < fin; > fin
    """)

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """Say who cut the packet where it is not a field's length."""
        if nothing_understood(at):
            return None
        found = at.event.malformed  # type: ignore[union-attr]
        kind = at.event.type  # type: ignore[union-attr]
        kind = "packet" if kind in (None, "reserved") else kind.upper()
        if fault.reason is MalformedReason.TRUNCATED:
            sender, other = ("client", "server") if at.from_client else ("server", "client")
            if at.connection.disconnect_by == other == "client":
                return None
            told = f"the {sender} closed the connection inside a {kind}: {fault.detail}"
            if at.connection.closed_by == other:
                # It may have been about to send the rest.
                return self.report(
                    fault.field, f"{told}; the {other} had closed before", confidence=Confidence.HEURISTIC
                )
            side = at.connection.side(at.event.direction.opposite)  # type: ignore[union-attr]
            if side.gapped or not side.packets:
                # A DISCONNECT of the other side may be among what the capture lacks.
                return self.report(fault.field, told, confidence=Confidence.HEURISTIC)
            return self.report(fault.field, told)
        left = f"{fault.field} {fault.detail}" if fault.field else fault.detail
        return self.report(fault.field, f"{kind}: {left} within its {len(found.raw)} bytes")

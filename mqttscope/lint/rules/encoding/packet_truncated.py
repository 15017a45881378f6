from mqttscope.lint.rules import V3_1_1, V5, Confidence, Findings, RuleContext, Severity, examples, nothing_decoded
from mqttscope.lint.shared_checks import MalformedRule
from mqttscope.mqtt.constants import MalformedReason, PacketType
from mqttscope.mqtt.declare import FaultReport
from mqttscope.mqtt.repair import Misreading


class PacketTruncated(MalformedRule):
    """A field reaches past the end of its packet, or the sender closes the connection inside a packet.

    A field announces more bytes than the Remaining Length leaves: one of the two lengths is wrong, or text was counted
    in characters instead of bytes.  The receiver closes the connection.  Packets that the capture cut off are not
    reported: only a sender that closes in an orderly way can leave a packet unfinished.  If the other side closed
    first, or the capture lacks its packets, the sender may have had a reason to stop, and the finding is heuristic.  A
    server may omit the rest after a client's DISCONNECT, and so may a sender to a side that closed its receive window
    and sent nothing since: the rest had to wait.

    A PUBLISH may be shorter or longer than it announces, or another thread may have written a packet into its middle.
    If complete packets fill all bytes once that is corrected, one finding stands for all that is read at wrong places.

    Instead, compute the Remaining Length from the encoded bytes of all fields, and send complete packets.
    """

    code = "ENC107"
    severities = (Severity.ERROR, Severity.WARNING)
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
        the server closes inside a packet after the client's DISCONNECT
            opened; < raw 30 08 0003612f; > disconnect; < fin; > fin
        the server closes inside a packet that waited for the client's receive window
            opened 3.1.1; > subscribe 1 a:0; < suback 1 0; < publish a; > full; +5 < raw 30 08 000361
            < fin
        in MQTT 3.1 a CONNECT may end before the user name that its flags announce
            version 3.1; > raw 10 10 0006 "MQIsdp" 0382003c 0002 "c1"; < connack
    """)
    bad = examples("""
        a topic of five bytes but only two are left
            opened; > raw 30 04 0005612f !topic_name
        in MQTT 3.1.1
            opened 3.1.1; > raw 30 04 0005612f !topic_name
        no room for the packet identifier, in MQTT 3.1
            opened 3.1; > raw 32 06 0003 "a/b" 00 !packet_identifier
        a SUBSCRIBE without options for its last filter
            opened; > raw 82 08 000a00 0003 "a/b" !subscriptions[0].options
        the client closes inside a packet
            opened; > raw 30 08 0003612f !; > fin
        the receive window of the client was closed earlier
            opened 3.1.1; > subscribe 1 a:0; < suback 1 0; > full; > pingreq; < pingresp; < raw 30 08 000361 !; < fin
        the other side closed first: only heuristic
            opened; > raw 30 08 0003612f !; < fin; > fin
    """)

    def check_misread(self, reading: Misreading, at: RuleContext) -> Findings:
        """A PUBLISH with a fault that moves all later packets."""
        who, inner, repair = "client" if at.from_client else "server", reading.intruder, reading.repair
        if inner is None:
            fault = f"the Remaining Length of a PUBLISH of the {who} is wrong: {'' if repair is None else repair.what}"
        elif inner.is_inserted:
            kind = PacketType(inner.raw[0] >> 4).name
            fault = f"the {who} wrote a {kind} into the middle of a PUBLISH, after {inner.at:,} of its bytes"
        else:
            kind, size = PacketType(inner.raw[0] >> 4).name, f"{inner.at:,} of its {inner.size:,} bytes"
            fault = f"a PUBLISH of the {who} is shorter than it announces: after {size} a {kind} begins"
        return self.report("", f"{fault}; the bytes after it are read at wrong places")

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """Name the side that closed inside the packet, unless the length of a field is wrong."""
        if nothing_decoded(at):
            return None
        malformed = at.event.malformed  # type: ignore[union-attr]
        kind = at.event.type  # type: ignore[union-attr]
        kind = "packet" if kind in (None, "reserved") else kind.upper()
        if fault.reason is MalformedReason.TRUNCATED:
            sender, other = ("client", "server") if at.from_client else ("server", "client")
            if at.connection.disconnect_by == other == "client":
                return None
            if at.other.blocked_ns > (at.receiver.last_timestamp_ns or 0):
                return None
            text = f"the {sender} closed the connection inside a {kind}: {fault.detail}"
            if at.connection.closed_by == other:
                # The sender may have been about to send the rest.
                return self.report(
                    fault.field, f"{text}; the {other} had closed before", confidence=Confidence.HEURISTIC
                )
            side = at.connection.side(at.event.direction.opposite)  # type: ignore[union-attr]
            if side.gapped or not side.packets:
                # The capture may lack a DISCONNECT from the other side.
                return self.report(fault.field, text, confidence=Confidence.HEURISTIC, severity=Severity.WARNING)
            return self.report(fault.field, text)
        left = f"{fault.field} {fault.detail}" if fault.field else fault.detail
        return self.report(fault.field, f"{kind}: {left} within its {len(malformed.raw)} bytes")

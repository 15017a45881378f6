from mqttscope.lint.finding import Severity
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, RuleContext, examples, packet_name, valid_elsewhere
from mqttscope.lint.shared_checks import MalformedRule
from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.declare import ControlPacket, FaultReport

_WITH_QOS = (packets.Pubrel, packets.Subscribe, packets.Unsubscribe)
_DUP, _QOS, _QOS_1 = 0x08, 0x06, 0x02


class FixedHeaderFlags(MalformedRule):
    """The four flag bits of the fixed header are wrong for the packet type.

    They are 0010 for PUBREL, SUBSCRIBE and UNSUBSCRIBE, and 0000 for all other types except PUBLISH.  The receiver
    treats other bits as malformed and closes the connection.  In MQTT 3.1 these three packets may set DUP when they are
    resent, and the bits of all other packets are unused: there the finding is info.

    Instead, set the bits to the values that the specification of your version lists.
    """

    code = "HDR102"
    severities = (Severity.ERROR, Severity.INFO)
    statements = {
        V5: {
            "MQTT-2.1.3-1": "",
            "MQTT-3.6.1-1": "pubrel",
            "MQTT-3.8.1-1": "subscribe",
            "MQTT-3.10.1-1": "unsubscribe",
            "MQTT-3.14.1-1": "disconnect",
            "MQTT-3.15.1-1": "auth",
        },
        V3_1_1: {
            "MQTT-2.2.2-1": "",
            "MQTT-3.6.1-1": "pubrel",
            "MQTT-3.8.1-1": "subscribe",
            "MQTT-3.10.1-1": "unsubscribe",
            "MQTT-3.14.1-1": "disconnect",
        },
        V3_1: {"V31-HEADER-qos-of-requests": "pubrel,subscribe,unsubscribe", "V31-HEADER-unused-flags": ""},
    }
    also = {V3_1: ("V31-HEADER-dup-scope",)}
    malformed = (MalformedReason.FIXED_HEADER_FLAGS,)
    looks_at = (
        packets.Connect,
        packets.Connack,
        packets.Puback,
        packets.Pubrec,
        packets.Pubrel,
        packets.Pubcomp,
        packets.Subscribe,
        packets.Suback,
        packets.Unsubscribe,
        packets.Unsuback,
        packets.Pingreq,
        packets.Pingresp,
        packets.Disconnect,
    )
    signs = ("header_flags",)

    good = examples("""
        0010 for SUBSCRIBE, 0000 for SUBACK
            opened; > subscribe 10 a/b:1; < suback 10 1
        a resent SUBSCRIBE in MQTT 3.1
            opened 3.1; > subscribe 10 a/b:1; +20 > subscribe 10 a/b:1 header_flags=0x0a; < suback 10 1
        capture started in mid-connection, perhaps MQTT 3.1
            midstream; version 3.1; < suback 9 0; > subscribe 10 a/b:1 header_flags=0x0a; < suback 10 1
        a resent PUBREL in MQTT 3.1
            opened 3.1; > publish a qos=2 id=1; < pubrec 1; > pubrel 1; +20 > pubrel 1 header_flags=0x0a; < pubcomp 1
    """)
    bad = examples("""
        a SUBSCRIBE with 0000
            opened; > raw 80 09 000a00 0003 "a/b" 01 !header_flags; < suback 10 1
        a PUBREL with DUP in MQTT 3.1.1
            opened 3.1.1; > publish a qos=2 id=1; < pubrec 1; > pubrel 1 header_flags=0x0a !header_flags; < pubcomp 1
        a PINGREQ with 0010
            opened; > raw c2 00 !header_flags
        a SUBSCRIBE with QoS 0 in MQTT 3.1
            opened 3.1; > subscribe 10 a/b:1 header_flags=0x00 !header_flags
        a PINGREQ with DUP in MQTT 3.1
            opened 3.1; > pingreq header_flags=0x08 !header_flags
        a SUBSCRIBE with RETAIN in MQTT 3.1
            opened 3.1; > subscribe 10 a/b:1 header_flags=0x03 !header_flags
    """)

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """Report the fault as decoded, unless the version may be MQTT 3.1."""
        return None if valid_elsewhere(at) else super().check_malformed(fault, at)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Report flags that only MQTT 3.1 allows."""
        flags = packet.header_flags
        if flags is None or at.version != V3_1:
            return None
        statement = "V31-HEADER-unused-flags"
        if isinstance(packet, _WITH_QOS):
            if flags & _QOS != _QOS_1:
                statement = "V31-HEADER-qos-of-requests"
                problem = f"carries QoS {flags >> 1 & 3} in its flags (0x{flags:x}), but must be sent with QoS 1"
            elif flags & ~_DUP == _QOS_1:
                return None
            else:
                problem = f"carries RETAIN in its flags (0x{flags:x}), which has no meaning there"
        else:
            problem = f"has flags 0x{flags:x}, which have no meaning there"
        return self.report(
            "header_flags", f"{packet_name(packet)} {problem}", severity=Severity.INFO, statements=(statement,)
        )

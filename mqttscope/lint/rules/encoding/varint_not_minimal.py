from mqttscope.lint.rules import V5, Findings, RuleContext, Severity, examples
from mqttscope.lint.shared_checks import MalformedRule
from mqttscope.mqtt.constants import MalformedReason, type_name
from mqttscope.mqtt.declare import ControlPacket


class VarintNotMinimal(MalformedRule):
    """A Variable Byte Integer uses more bytes than its value needs.

    MQTT 5.0 requires the shortest form, and strict receivers treat the packet as malformed.  MQTT 3.1 and 3.1.1 do not
    require it for the Remaining Length, their only such number; yet some decoders fail on it, so there it is reported
    as info.  Such numbers come from encoders that reserve a fixed number of bytes for the length and fill it in later.

    Instead, compute the length first and write it in the minimum number of bytes.
    """

    code = "ENC105"
    severities = (Severity.ERROR, Severity.INFO)
    statements = {V5: {"MQTT-1.5.5-1": ""}}
    signs = ("not_minimal",)
    malformed = (MalformedReason.VARIABLE_BYTE_INTEGER_NOT_MINIMAL,)

    good = examples("""
        127 in one byte, 128 in two
            opened; > publish a/b 0x00*121 & publish a/b 0x00*122
        127 in one byte, 128 in two, in MQTT 3.1.1
            opened 3.1.1; > publish a/b 0x00*122 & publish a/b 0x00*123
    """)
    bad = examples("""
        Remaining Length 10 in three bytes
            opened; > raw 30 8a8000 0003 "a/b" 006869686f !remaining_length
        Property Length 2 in two bytes
            opened; > raw 30 0b 0003 "a/b" 820001016869 !properties.property_length
        Subscription Identifier 1 in two bytes
            opened; > raw 82 0c 000a030b8100 0003 "a/b" 01 !properties.subscription_identifier
        a property identifier in two bytes
            opened; > raw 30 0b 0003 "a/b" 0381 0001 "h" 69 !properties.property_identifier
        info in MQTT 3.1.1
            opened 3.1.1; > raw 30 898000 0003 "a/b" 6869686f !remaining_length
        info in MQTT 3.1
            opened 3.1; > raw c0 8000 !remaining_length; < pingresp
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Check the bytes before 5.0, since the decoder accepts any form of the Remaining Length there."""
        raw = packet.raw
        if raw[1] < 0x80 or at.version >= V5:
            return None
        length = 3 if raw[2] < 0x80 else 4 if raw[3] < 0x80 else 5
        if raw[length - 1]:
            return None
        value = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(raw[1:length]))
        least = next(count for count in (1, 2, 3, 4) if value < 1 << 7 * count)
        kind = type_name(packet.packet_type).upper()
        return self.report(
            "remaining_length",
            f"{kind}: Remaining Length {value} is encoded in {length - 1} bytes, {least} would be enough",
            severity=Severity.INFO,
        )

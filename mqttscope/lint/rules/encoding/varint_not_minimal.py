"""ENC105."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, hexadecimal, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.mqtt.constants import MalformedReason, type_name
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Pingresp, Publish


class VarintNotMinimal(Rule):
    """A Variable Byte Integer takes more bytes than its value needs.

    MQTT 5.0 demands the shortest form, and strict receivers treat the packet as malformed.  MQTT 3.1 and 3.1.1 do not
    demand it of the Remaining Length, the only such number they have; yet decoders stumble over it there too, so it is
    told as information.  Encoders that leave room for a length of fixed size and fill it in later write such numbers.

    Instead, work out the length first and write it in as few bytes as it needs.
    """

    code = "ENC105"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.INFO)
    reason_code = 0x81
    statements = {V5: {"MQTT-1.5.5-1": ""}}
    looks_at = ControlPacket
    signs = ("not_minimal",)
    malformed = (MalformedReason.VARIABLE_BYTE_INTEGER_NOT_MINIMAL,)

    good = examples(
        lambda: [
            conversation(
                "127 in one byte, 128 in two",
                *opened(),
                client(Publish(topic_name="a/b", payload=bytes(121)), Publish(topic_name="a/b", payload=bytes(122))),
            ),
            conversation(
                "127 in one byte, 128 in two, in MQTT 3.1.1",
                *opened(V3_1_1),
                client(Publish(topic_name="a/b", payload=bytes(122)), Publish(topic_name="a/b", payload=bytes(123))),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "Remaining Length 10 in three bytes",
                *opened(),
                client(hexadecimal("30 8a 80 00 00 03 61 2f 62 00 68 69 68 6f")).marked("remaining_length"),
            ),
            conversation(
                "Property Length 2 in two bytes",
                *opened(),
                client(hexadecimal("30 0b 00 03 61 2f 62 82 00 01 01 68 69")).marked("properties.property_length"),
            ),
            conversation(
                "Subscription Identifier 1 in two bytes",
                *opened(),
                client(hexadecimal("82 0c 00 0a 03 0b 81 00 00 03 61 2f 62 01")).marked(
                    "properties.subscription_identifier"
                ),
            ),
            conversation(
                "a property identifier in two bytes",
                *opened(),
                client(hexadecimal("30 0b 00 03 61 2f 62 03 81 00 01 68 69")).marked("properties.property_identifier"),
            ),
            conversation(
                "only information in MQTT 3.1.1",
                *opened(V3_1_1),
                client(hexadecimal("30 89 80 00 00 03 61 2f 62 68 69 68 6f")).marked("remaining_length"),
            ),
            conversation(
                "only information in MQTT 3.1",
                *opened(V3_1),
                client(hexadecimal("c0 80 00")).marked("remaining_length"),
                server(Pingresp()),
            ),
        ]
    )

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Before 5.0 the decoder takes any form of the Remaining Length, so that the bytes have to be looked at."""
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
            f"{kind}: Remaining Length {value} is encoded in {length - 1} bytes, {least} would do",
            severity=Severity.INFO,
        )

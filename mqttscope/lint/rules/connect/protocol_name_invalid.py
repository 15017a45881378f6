"""CON101."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, hexadecimal, make_connect, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.lint.signs import PROTOCOL_NAMES
from mqttscope.mqtt.constants import Direction, MalformedReason
from mqttscope.mqtt.packets import Connack, Connect


class ProtocolNameInvalid(Rule):
    """A CONNECT does not carry the protocol name of its version.

    The first bytes of a CONNECT tell MQTT from everything else that may arrive on the port, so servers compare them
    exactly, case included, and close a connection that begins with anything else.

    Instead, send MQTT with protocol levels 4 and 5, and MQIsdp with level 3.
    """

    code = "CON101"
    severity = Severity.ERROR
    reason_code = 0x84
    statements = {
        V5: {"MQTT-3.1.2-1": ""},
        V3_1_1: {"V311-CONNECT-protocol-name": ""},
        V3_1: {"V31-CONNECT-protocol-name": ""},
    }
    also = {V3_1_1: ("MQTT-3.1.2-1",)}
    malformed = (MalformedReason.PROTOCOL_NAME_INVALID,)
    looks_at = Connect
    signs = ("odd_connect",)
    sender = Direction.CLIENT_TO_SERVER

    good = examples(
        lambda: [
            conversation("MQTT with level 5", *opened()),
            conversation("MQTT with level 4", *opened(V3_1_1)),
            conversation("MQIsdp with level 3", *opened(V3_1)),
            conversation(
                "the bridge mark of 3.1.1",
                client(Connect("MQTT", 0x84, client_identifier="bridge", keep_alive=60)),
                server(Connack()),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "lower case",
                client(hexadecimal("10 0f 00 04 6d 71 74 74 05 02 00 3c 00 00 02 63 31")).marked("protocol_name"),
            ),
            conversation(
                "lower case in 3.1.1",
                client(hexadecimal("10 0e 00 04 6d 71 74 74 04 02 00 3c 00 02 63 31")).marked("protocol_name"),
            ),
            conversation(
                "the name of 3.1 with the level of 3.1.1",
                client(Connect("MQIsdp", 4, client_identifier="c1", keep_alive=60)).marked("protocol_name"),
            ),
            conversation(
                "the name of 3.1.1 with the level of 3.1",
                client(Connect("MQTT", 3, client_identifier="c1", keep_alive=60)).marked("protocol_name"),
            ),
            conversation(
                "an invented name",
                client(make_connect()),
                server(Connack()),
                client(Connect("MQTX", 4, client_identifier="c1", keep_alive=60)).marked("protocol_name"),
            ),
        ]
    )

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Names that exist, with the level of the other; what is no name at all is the decoder's finding."""
        name, wanted = packet.protocol_name, PROTOCOL_NAMES.get(packet.protocol_level)
        if wanted is None or name == wanted or name not in PROTOCOL_NAMES.values():
            return None
        return self.report(
            "protocol_name",
            f"CONNECT: protocol name is {name!r}, must be {wanted!r} with protocol level {packet.protocol_level}",
        )

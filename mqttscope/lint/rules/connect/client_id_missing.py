"""CON107."""

from mqttscope.lint.examples import client, conversation, examples, hexadecimal, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1_1, V5, Rule
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.packets import Connack


class ClientIdMissing(Rule):
    """A CONNECT ends before its Client Identifier.

    The identifier is the one field that every CONNECT has in its payload; without it the packet is malformed and the
    server closes the connection.  An empty identifier is two bytes of zero, which is something else.

    Instead, always write the Client Identifier, with length 0 where the server is to choose.
    """

    code = "CON107"
    severity = Severity.ERROR
    reason_code = 0x81
    statements = {V5: {"MQTT-3.1.3-3": ""}, V3_1_1: {"MQTT-3.1.3-3": ""}}
    malformed = (MalformedReason.CLIENT_IDENTIFIER_MISSING,)

    good = examples(
        lambda: [
            conversation("there", *opened(V3_1_1)),
            conversation("empty, but there", *opened(V3_1_1, client_identifier="")),
            conversation(
                "empty, but there, in 5.0",
                client(hexadecimal("10 0d 00 04 4d 51 54 54 05 02 00 3c 00 00 00")),
                server(hexadecimal("20 08 00 00 05 12 00 02 61 31")),
            ),
            conversation(
                "empty, with its two bytes last",
                client(hexadecimal("10 0c 00 04 4d 51 54 54 04 02 00 3c 00 00")),
                server(Connack()),
                version=V3_1_1,
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "nothing after Keep Alive",
                client(hexadecimal("10 0a 00 04 4d 51 54 54 04 02 00 3c")).marked("client_identifier"),
            ),
            conversation(
                "half a length",
                client(hexadecimal("10 0b 00 04 4d 51 54 54 04 02 00 3c 00")).marked("client_identifier"),
            ),
            conversation(
                "nothing after the properties",
                client(hexadecimal("10 0b 00 04 4d 51 54 54 05 02 00 3c 00")).marked("client_identifier"),
            ),
            conversation(
                "nothing after Keep Alive in 3.1",
                client(hexadecimal("10 0c 00 06 4d 51 49 73 64 70 03 02 00 3c")).marked("client_identifier"),
            ),
        ]
    )

"""CON102."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, hexadecimal, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.declare import FaultReport
from mqttscope.mqtt.packets import Connack, Connect


class ProtocolVersionUnknown(Rule):
    """A CONNECT names a protocol level that no version of MQTT has.

    A server that does not know the level cannot know the layout of what follows either; it refuses the connection with
    0x01 (3.1.1) or 0x84 (5.0), or closes it without a word.  The fields after the level are shown here in the layout
    of 3.1.1, which is a guess.

    Instead, use MQIsdp with level 3, MQTT with level 4, or MQTT with level 5.
    """

    code = "CON102"
    severity = Severity.ERROR
    version_matters = False
    reason_code = 0x84
    also = {V5: ("MQTT-3.1.2-2",)}
    malformed = (MalformedReason.PROTOCOL_VERSION_UNKNOWN,)

    good = examples(
        lambda: [
            conversation("level 5", *opened()),
            conversation("level 4", *opened(V3_1_1)),
            conversation("level 3", *opened(V3_1)),
            conversation(
                "the mark of bridges on level 3",
                client(Connect("MQIsdp", 0x83, client_identifier="bridge", keep_alive=60)),
                server(Connack()),
            ),
            conversation(
                "the mark of bridges on level 4",
                client(Connect("MQTT", 0x84, client_identifier="bridge", keep_alive=60)),
                server(Connack()),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "level 6",
                client(hexadecimal("10 0e 00 04 4d 51 54 54 06 02 00 3c 00 02 63 31")).marked("protocol_level"),
            ),
            conversation(
                "bit 7 means nothing on level 5",
                client(Connect("MQTT", 0x85, client_identifier="c1", keep_alive=60)).marked("protocol_level"),
            ),
            conversation(
                "a level with the name of another version",
                client(Connect("MQIsdp", 5, client_identifier="c1", keep_alive=60)).marked("protocol_level"),
            ),
            conversation(
                "level 3 has the name MQIsdp",
                client(Connect("MQTT", 3, client_identifier="c1", keep_alive=60)).marked("protocol_level"),
            ),
        ]
    )

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """The decoder's words, with the level in hexadecimal too."""
        packet = getattr(getattr(at.event, "malformed", None), "packet", None)
        if not isinstance(packet, Connect):
            return self.report(fault.field, f"CONNECT: {fault.detail}")
        level, name = packet.protocol_level, packet.protocol_name
        return self.report(
            fault.field,
            f"CONNECT: protocol level {level} (0x{level:02x}) with name {name!r} is no known MQTT version",
        )

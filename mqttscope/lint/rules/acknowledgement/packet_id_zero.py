"""ACK101."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule, packet_name
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import (
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from mqttscope.mqtt.parts import Subscription


class PacketIdZero(Rule):
    """A packet has the packet identifier 0, which is no identifier.

    Zero was left out on purpose, so that packets built wrongly show: from a counter that wraps around to 0, or from a
    field that was never filled in.  Some servers close the connection, others lose track of the message.

    Instead, count from 1 to 65,535 and begin again with 1.
    """

    code = "ACK101"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.INFO)
    statements = {
        V3_1_1: {"MQTT-2.3.1-1": "publish,subscribe,unsubscribe"},
        V3_1: {"V31-MSGID-nonzero": "", "V31-PUBLISH-msgid-nonzero": "publish"},
    }
    also = {
        V5: ("MQTT-2.2.1-3", "MQTT-2.2.1-4", "MQTT-4.3.2-1", "MQTT-4.3.3-1"),
        V3_1_1: ("MQTT-4.3.2-1",),
    }
    looks_at = (Publish, Puback, Pubrec, Pubrel, Pubcomp, Subscribe, Suback, Unsubscribe, Unsuback)
    when = "qos"
    always = (Puback, Pubrec, Pubrel, Pubcomp, Subscribe, Suback, Unsubscribe, Unsuback)
    signs = ("zero_identifier",)

    good = examples(
        lambda: [
            conversation(
                "1 and 65,535",
                *opened(),
                client(Publish(qos=1, topic_name="a", packet_identifier=1)),
                server(Puback(packet_identifier=1)),
                client(Publish(qos=1, topic_name="a", packet_identifier=65_535)),
                server(Puback(packet_identifier=65_535)),
            ),
            conversation("QoS 0 has none", *opened(V3_1_1), client(Publish(topic_name="a"))),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "PUBLISH",
                *opened(),
                client(Publish(qos=1, topic_name="a", packet_identifier=0)).marked("packet_identifier"),
            ),
            conversation(
                "PUBLISH from the server, in MQTT 3.1.1",
                *opened(V3_1_1),
                server(Publish(qos=2, topic_name="a", packet_identifier=0)).marked("packet_identifier"),
            ),
            conversation(
                "PUBLISH in MQTT 3.1",
                *opened(V3_1),
                client(Publish(qos=1, topic_name="a", packet_identifier=0)).marked("packet_identifier"),
            ),
            conversation(
                "SUBSCRIBE and its echo",
                *opened(),
                client(Subscribe(packet_identifier=0, subscriptions=[Subscription("a")])).marked("packet_identifier"),
                server(Suback(packet_identifier=0, reason_codes=[0])).marked("packet_identifier"),
            ),
            conversation(
                "UNSUBSCRIBE",
                *opened(),
                client(Unsubscribe(packet_identifier=0, topic_filters=["a"])).marked("packet_identifier"),
            ),
            conversation(
                "acknowledgements",
                *opened(),
                server(Puback(packet_identifier=0)).marked("packet_identifier"),
                client(Pubrec(packet_identifier=0)).marked("packet_identifier"),
                client(Pubrel(packet_identifier=0)).marked("packet_identifier"),
                client(Pubcomp(packet_identifier=0)).marked("packet_identifier"),
                server(Unsuback(packet_identifier=0, reason_codes=[0])).marked("packet_identifier"),
            ),
        ]
    )

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Two zero bytes; an answer that repeats them is not to blame for more than taking them."""
        if packet.packet_identifier != 0:  # type: ignore[attr-defined]
            return None
        asks = isinstance(packet, Publish | Subscribe | Unsubscribe)
        echo = not asks and (0 in at.receiver.exchanges or at.other.has_sent(0) or 0 in at.party.owes_pubcomp)
        if at.version is V5:
            cited: tuple[str, ...] | None = ()
            if asks:
                cited = ("MQTT-2.2.1-3" if at.from_client else "MQTT-2.2.1-4",)
        else:
            cited = None
        return self.report(
            "packet_identifier",
            f"{packet_name(packet)} {'repeats' if echo else 'has'} packet identifier 0",
            severity=Severity.INFO if echo else None,
            statements=cited,
        )

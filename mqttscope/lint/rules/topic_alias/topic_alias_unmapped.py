"""ALS203."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, lost, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V5, Findings, Needs, Rule
from mqttscope.mqtt.packets import Puback, Publish
from mqttscope.mqtt.properties import Properties


class TopicAliasUnmapped(Rule):
    """A PUBLISH relies on a Topic Alias that no earlier PUBLISH of its sender has set on this connection.

    The receiver cannot know the topic and closes the connection with 0x82 (Protocol Error).  Each direction has aliases
    of its own, and all of them end with the connection.

    Instead, send topic and alias together once on every new connection, and the alias alone from then on.
    """

    code = "ALS203"
    severity = Severity.ERROR
    reason_code = 0x82
    versions = (V5,)
    statements = {V5: {"V5-PUBLISH-alias-unknown": ""}}
    also = {V5: ("MQTT-3.3.2-7",)}
    looks_at = Publish
    when = "properties"
    signs = ("unresolved",)
    needs = Needs.OPENING | Needs.WHOLE_SENDER

    good = examples(
        lambda: [
            conversation(
                "set, used, mapped to another topic, used again",
                *opened(connack=Properties(topic_alias_maximum=5)),
                client(Publish(topic_name="a/b", properties=Properties(topic_alias=3))),
                client(Publish(properties=Properties(topic_alias=3))),
                client(Publish(topic_name="c", properties=Properties(topic_alias=3))),
                client(Publish(properties=Properties(topic_alias=3))),
            ),
            conversation(
                "set by a message that was refused",
                *opened(connect=Properties(topic_alias_maximum=5)),
                server(Publish(qos=1, topic_name="a", packet_identifier=1, properties=Properties(topic_alias=1))),
                client(Puback(packet_identifier=1, reason_code=0x83)),
                server(Publish(properties=Properties(topic_alias=1))),
            ),
            conversation(
                "what set it is not in the capture",
                *opened(connack=Properties(topic_alias_maximum=5)),
                lost(client(Publish(topic_name="a/b", properties=Properties(topic_alias=3)))),
                client(Publish(properties=Properties(topic_alias=3))),
            ),
            conversation(
                "joined in the middle",
                client(Publish(properties=Properties(topic_alias=3), payload=b"21.5")),
                server(Publish(topic_name="a", payload=b"1")),
                handshake=False,
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "never set",
                *opened(connack=Properties(topic_alias_maximum=5)),
                client(Publish(properties=Properties(topic_alias=3))).marked("properties.topic_alias"),
            ),
            conversation(
                "set in the other direction only",
                *opened(connect=Properties(topic_alias_maximum=5), connack=Properties(topic_alias_maximum=5)),
                client(Publish(topic_name="a/b", properties=Properties(topic_alias=3))),
                server(Publish(properties=Properties(topic_alias=3))).marked("properties.topic_alias"),
            ),
            conversation(
                "another one is set",
                *opened(connack=Properties(topic_alias_maximum=5)),
                client(Publish(topic_name="a/b", properties=Properties(topic_alias=3))),
                client(Publish(properties=Properties(topic_alias=4))).marked("properties.topic_alias"),
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Without a topic of its own the packet needs one that its alias stands for."""
        if packet.topic_name or at.topic is not None:
            return None
        assert packet.properties is not None
        alias = packet.properties.topic_alias
        if not alias or at.party.malformed:
            return None  # a packet that could not be read may have set it
        who = "client" if at.from_client else "server"
        told = f"PUBLISH has only Topic Alias {alias:,}, which the {who} has not set on this connection"
        return self.report("properties.topic_alias", told)

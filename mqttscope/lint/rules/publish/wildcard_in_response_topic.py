"""PUB105."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V5, Findings, Rule, packet_name
from mqttscope.mqtt.packets import Connect, Publish
from mqttscope.mqtt.parts import Will
from mqttscope.mqtt.properties import Properties


class WildcardInResponseTopic(Rule):
    """A Response Topic has a wildcard character or is empty.

    The receiver of the request publishes its answer to this topic, and one may only publish to plain Topic Names of at
    least one character.  The answer would be refused, or the connection of whoever answers closed.

    Instead, send the full name of the topic that you have subscribed to for answers.
    """

    code = "PUB105"
    severity = Severity.ERROR
    versions = (V5,)
    statements = {V5: {"MQTT-3.3.2-14": ""}}
    also = {V5: ("MQTT-4.7.0-1",)}
    looks_at = (Publish, Connect)
    when = "properties"
    always = (Connect,)
    signs = {Publish: ("response_topic",)}

    good = examples(
        lambda: [
            conversation(
                "a plain name",
                *opened(),
                client(Publish(topic_name="req", properties=Properties(response_topic="rsp/c1"))),
            ),
            conversation(
                "a will with a plain name",
                *opened(will=Will("w", b"x", properties=Properties(response_topic="rsp/c1"))),
                server(Publish(topic_name="a")),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "a wildcard at its end",
                *opened(),
                client(Publish(topic_name="req", properties=Properties(response_topic="rsp/#"))).marked(
                    "properties.response_topic"
                ),
            ),
            conversation(
                "passed on by the server",
                *opened(),
                server(Publish(topic_name="req", properties=Properties(response_topic="+/c1"))).marked(
                    "properties.response_topic"
                ),
            ),
            conversation(
                "no character at all",
                *opened(),
                client(Publish(topic_name="req", properties=Properties(response_topic=""))).marked(
                    "properties.response_topic"
                ),
            ),
            conversation(
                "in a will",
                opened(will=Will("w", b"x", properties=Properties(response_topic="rsp/+")))[0].marked(
                    "will.properties.response_topic"
                ),
            ),
        ]
    )

    def check(self, packet: Publish | Connect, at: RuleContext) -> Findings:
        """Look at the property of the message or of the will."""
        if isinstance(packet, Publish):
            block, field = packet.properties, "properties.response_topic"
        else:
            block, field = packet.will.properties if packet.will else None, "will.properties.response_topic"
        topic = block.response_topic if block else None
        if topic is None:
            return None
        if not topic:
            told = f"{packet_name(packet)} has an empty response topic"
            return self.report(field, told, statements=("MQTT-4.7.3-1",))
        character = next((one for one in topic if one in "+#"), None)
        if character is None:
            return None
        return self.report(
            field, f"{packet_name(packet)} has the response topic {topic!r} with the wildcard {character!r}"
        )

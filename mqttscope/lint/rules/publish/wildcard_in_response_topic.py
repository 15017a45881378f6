from mqttscope.lint.rules import V5, Findings, Rule, RuleContext, Severity, examples, packet_name
from mqttscope.mqtt.packets import Connect, Publish


class WildcardInResponseTopic(Rule):
    """A Response Topic contains a wildcard character or is empty.

    The receiver of the request publishes its response to this topic, and a PUBLISH needs a Topic Name without wildcards
    and with at least one character.  The server would refuse the response or close the responder's connection.

    Instead, send the full name of the topic that you subscribed to for responses.
    """

    code = "PUB105"
    severity = Severity.ERROR
    versions = (V5,)
    statements = {V5: {"MQTT-3.3.2-14": ""}}
    also = {V5: ("MQTT-4.7.0-1",)}
    when = "properties"
    always = (Connect,)
    signs = {Publish: ("response_topic",)}

    good = examples("""
        a plain name
            opened; > publish req response_topic=rsp/c1
        a will with a plain name
            opened will=w will_payload=x will.response_topic=rsp/c1; < publish a
    """)
    bad = examples("""
        a wildcard at its end
            opened; > publish req response_topic=rsp/# !properties.response_topic
        forwarded by the server
            opened; < publish req response_topic=+/c1 !properties.response_topic
        empty
            opened; > publish req response_topic=- !properties.response_topic
        in a will
            > connect will=w will_payload=x will.response_topic=rsp/+ !will.properties.response_topic
    """)

    def check(self, packet: Publish | Connect, at: RuleContext) -> Findings:
        """Check the property of the message or the will."""
        if isinstance(packet, Publish):
            block, field = packet.properties, "properties.response_topic"
        else:
            block, field = packet.will.properties if packet.will else None, "will.properties.response_topic"
        topic = block.response_topic if block else None
        if topic is None:
            return None
        if not topic:
            text = f"{packet_name(packet)} has an empty response topic"
            return self.report(field, text, statements=("MQTT-4.7.3-1",))
        character = next((char for char in topic if char in "+#"), None)
        if character is None:
            return None
        return self.report(
            field, f"{packet_name(packet)} has the response topic {topic!r} with the wildcard {character!r}"
        )

from dataclasses import dataclass, field

from mqttscope.lint.rules import V5, Confidence, Findings, Rule, RuleContext, Severity, examples, shown
from mqttscope.lint.topics import Seen
from mqttscope.mqtt.packets import Publish


@dataclass(slots=True)
class Answers:
    """Response Topics of a connection."""

    client: Seen = field(default_factory=Seen)
    """Those that the client named."""
    server: Seen = field(default_factory=Seen)
    """Those in messages from the server."""
    reported: Seen = field(default_factory=Seen)


class ResponseTopicOnResponse(Rule):
    """A response itself names a Response Topic.

    A response is the end of an exchange, and a Response Topic asks for another answer: two clients that answer
    everything never stop.  Some libraries keep the property for all later messages once it was set.  Each topic is
    reported once per connection.

    Instead, send the response without a Response Topic, and clear the property before the message is reused.
    """

    code = "PAY207"
    severity = Severity.INFO
    confidence = Confidence.LIKELY
    versions = (V5,)
    when = "properties"
    Memory = Answers

    good = examples("""
        a response without one
            opened; > subscribe 1 req:0; < suback 1 0; < publish req response_topic=rsp/c2
            > publish rsp/c2 content_type=text/plain
        a request
            opened; > subscribe 1 rsp/c1:0; < suback 1 0; > publish req response_topic=rsp/c1
    """)
    bad = examples("""
        it wants an answer to its own topic, reported once
            opened; > publish rsp/c1 response_topic=rsp/c1 !properties.response_topic
            > publish rsp/c1 response_topic=rsp/c1
        the answer to a request asks back
            opened; > subscribe 1 req:0 rsp/c1:0; < suback 1 0 0; < publish req response_topic=rsp/c2
            > publish rsp/c2 response_topic=rsp/c1 !properties.response_topic
        the answer that the client gets asks back
            opened; > subscribe 1 rsp/c1:0; < suback 1 0; > publish req response_topic=rsp/c1
            < publish rsp/c1 response_topic=rsp/c2 !properties.response_topic
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Whether the topic was named as a Response Topic by the other side, or is named so now."""
        block = packet.properties
        wanted = None if block is None else block.response_topic
        topic = at.topic
        if not wanted or topic is None:
            return None
        memory: Answers = at.memory(self)
        own, others = (memory.client, memory.server) if at.from_client else (memory.server, memory.client)
        is_response = topic == wanted or topic in others.texts
        own.first(wanted)
        if not is_response or not memory.reported.first(topic):
            return None
        return self.report(
            "properties.response_topic",
            f"response on {shown(topic)} itself names a response topic {shown(wanted)}",
        )

from dataclasses import dataclass, field

from mqttscope.lint.rules import V5, Confidence, Findings, Rule, RuleContext, Severity, examples, shown
from mqttscope.lint.topics import ReportedTexts
from mqttscope.mqtt.packets import Publish


@dataclass(slots=True)
class ResponseTopics:
    """Response Topics on a connection."""

    client: ReportedTexts = field(default_factory=ReportedTexts)
    """Response Topics in messages from the client."""
    server: ReportedTexts = field(default_factory=ReportedTexts)
    """Response Topics in messages from the server."""
    reported: ReportedTexts = field(default_factory=ReportedTexts)


class ResponseTopicOnResponse(Rule):
    """A response has a Response Topic itself.

    A response is the end of an exchange, and a Response Topic requests another response: two clients that answer
    everything never stop.  Some libraries keep the property for all later messages once it is set.  Each topic is
    reported once per connection.

    Instead, send the response without a Response Topic, and clear the property before you reuse a message.
    """

    code = "PAY207"
    severity = Severity.INFO
    confidence = Confidence.LIKELY
    versions = (V5,)
    when = "properties"
    Memory = ResponseTopics

    good = examples("""
        a response without a Response Topic
            opened; > subscribe 1 req:0; < suback 1 0; < publish req response_topic=rsp/c2
            > publish rsp/c2 content_type=text/plain
        a request
            opened; > subscribe 1 rsp/c1:0; < suback 1 0; > publish req response_topic=rsp/c1
    """)
    bad = examples("""
        it requests an answer to its own topic, reported once
            opened; > publish rsp/c1 response_topic=rsp/c1 !properties.response_topic
            > publish rsp/c1 response_topic=rsp/c1
        the client's response has a Response Topic
            opened; > subscribe 1 req:0 rsp/c1:0; < suback 1 0 0; < publish req response_topic=rsp/c2
            > publish rsp/c2 response_topic=rsp/c1 !properties.response_topic
        the response to the client has a Response Topic
            opened; > subscribe 1 rsp/c1:0; < suback 1 0; > publish req response_topic=rsp/c1
            < publish rsp/c1 response_topic=rsp/c2 !properties.response_topic
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Report a message on a Response Topic of the other side, or on its own Response Topic."""
        block = packet.properties
        wanted = None if block is None else block.response_topic
        topic = at.topic
        if not wanted or topic is None:
            return None
        memory: ResponseTopics = at.memory(self)
        own, others = (memory.client, memory.server) if at.from_client else (memory.server, memory.client)
        is_response = topic == wanted or topic in others.texts
        own.first(wanted)
        if not is_response or not memory.reported.first(topic):
            return None
        return self.report(
            "properties.response_topic",
            f"response on {shown(topic)} has a response topic {shown(wanted)} itself",
        )

"""PAY207."""

from dataclasses import dataclass, field

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.rule import V5, Findings, Rule
from mqttscope.lint.strings import shown
from mqttscope.lint.topics import Seen
from mqttscope.mqtt.packets import Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties


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
    looks_at = Publish
    when = "properties"
    Memory = Answers

    good = examples(
        lambda: [
            conversation(
                "a response without one",
                *opened(),
                client(Subscribe(1, None, [Subscription("req")])),
                server(Suback(1, None, [0])),
                server(Publish(topic_name="req", properties=Properties(response_topic="rsp/c2"))),
                client(Publish(topic_name="rsp/c2", properties=Properties(content_type="text/plain"))),
            ),
            conversation(
                "a request",
                *opened(),
                client(Subscribe(1, None, [Subscription("rsp/c1")])),
                server(Suback(1, None, [0])),
                client(Publish(topic_name="req", properties=Properties(response_topic="rsp/c1"))),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "it wants an answer to its own topic, reported once",
                *opened(),
                client(Publish(topic_name="rsp/c1", properties=Properties(response_topic="rsp/c1"))).marked(
                    "properties.response_topic"
                ),
                client(Publish(topic_name="rsp/c1", properties=Properties(response_topic="rsp/c1"))),
            ),
            conversation(
                "the answer to a request asks back",
                *opened(),
                client(Subscribe(1, None, [Subscription("req"), Subscription("rsp/c1")])),
                server(Suback(1, None, [0, 0])),
                server(Publish(topic_name="req", properties=Properties(response_topic="rsp/c2"))),
                client(Publish(topic_name="rsp/c2", properties=Properties(response_topic="rsp/c1"))).marked(
                    "properties.response_topic"
                ),
            ),
            conversation(
                "the answer that the client gets asks back",
                *opened(),
                client(Subscribe(1, None, [Subscription("rsp/c1")])),
                server(Suback(1, None, [0])),
                client(Publish(topic_name="req", properties=Properties(response_topic="rsp/c1"))),
                server(Publish(topic_name="rsp/c1", properties=Properties(response_topic="rsp/c2"))).marked(
                    "properties.response_topic"
                ),
            ),
        ]
    )

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

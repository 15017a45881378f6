from dataclasses import dataclass, field

from mqttscope.lint.rules import V5, Confidence, Findings, Rule, RuleContext, Severity, examples, forget_oldest, shown
from mqttscope.mqtt.packets import Publish

MAX_RESPONSE_TOPICS = 200
"""Maximum number of Response Topics kept per connection; the oldest is dropped first."""
MAX_REQUESTS = 200
"""Maximum number of Correlation Data values kept per topic; beyond that unknown values are not reported."""
MAX_DATA = 64
"""Maximum number of Correlation Data bytes compared."""


@dataclass(slots=True)
class TopicRequests:
    """Requests with the same Response Topic."""

    correlation_data: dict[bytes, bool] = field(default_factory=dict)
    """Correlation Data of the requests."""
    bare: bool = False
    """Whether a request had no Correlation Data."""
    forgotten: bool = False


@dataclass(slots=True)
class ReceivedRequests:
    """TopicRequests that the client received, by Response Topic."""

    topics: dict[str, TopicRequests] = field(default_factory=dict)


class ResponseWithoutCorrelation(Rule):
    """A client answers a request without its Correlation Data.

    The requester uses it to assign a response to its request; without it the response is useless while two requests are
    in flight.

    Instead, copy the Correlation Data of the request into the response unchanged.
    """

    code = "PAY206"
    severity = Severity.WARNING
    confidence = Confidence.LIKELY
    versions = (V5,)
    statements = {V5: {"V5-RESPONSE-correlation": "publish"}}
    Memory = ReceivedRequests

    good = examples("""
        copied
            opened; > subscribe 1 req:0; < suback 1 0
            < publish req response_topic=rsp/c1 correlation_data=0x01 &
                publish req response_topic=rsp/c1 correlation_data=0x02
            > publish rsp/c1 correlation_data=0x02; > publish rsp/c1 correlation_data=0x01
        a request without Correlation Data
            opened; > subscribe 1 req:0; < suback 1 0; < publish req response_topic=rsp/c1; > publish rsp/c1
        another topic
            opened; > subscribe 1 req:0; < suback 1 0; < publish req response_topic=rsp/c1 correlation_data=0x01
            > publish rsp/c2
    """)
    bad = examples("""
        missing
            opened; > subscribe 1 req:0; < suback 1 0; < publish req response_topic=rsp/c1 correlation_data=0x01
            > publish rsp/c1 !
        Correlation Data of no request
            opened; > subscribe 1 req:0; < suback 1 0; < publish req response_topic=rsp/c1 correlation_data=0x01
            > publish rsp/c1 correlation_data=0x02 !properties.correlation_data
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Store requests that the client receives, and check what it sends to their Response Topics."""
        block = packet.properties
        if at.from_client:
            if self.code not in at.history.memories or at.topic is None:
                return None
            requests = at.memory(self).topics.get(at.topic)
            if requests is None or requests.bare:
                return None
            data = None if block is None else block.correlation_data
            return self._judge(data, requests, at)
        wanted = None if block is None else block.response_topic
        if wanted:
            assert block is not None
            _remember(at.memory(self).topics, wanted, block.correlation_data)
        return None

    def _judge(self, data: bytes | None, requests: TopicRequests, at: RuleContext) -> Findings:
        start = f"response on {shown(at.topic or '')}"
        if data is None:
            return self.report("", f"{start} lacks the request's Correlation Data")
        known = requests.forgotten or at.server.gapped or at.history.connect_sent is None
        if known or data[:MAX_DATA] in requests.correlation_data:
            return None
        return self.report(
            "properties.correlation_data",
            f"{start} has Correlation Data {data[:16].hex()} ({len(data)} bytes), which no request had",
        )


def _remember(topics: dict[str, TopicRequests], wanted: str, data: bytes | None) -> None:
    requests = topics.get(wanted)
    if requests is None:
        requests = topics[wanted] = TopicRequests()
        forget_oldest(topics, MAX_RESPONSE_TOPICS)
    if data is None:
        requests.bare = True
    else:
        requests.correlation_data[data[:MAX_DATA]] = True
        if forget_oldest(requests.correlation_data, MAX_REQUESTS):
            requests.forgotten = True

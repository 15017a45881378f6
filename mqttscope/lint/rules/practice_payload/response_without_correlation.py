from dataclasses import dataclass, field

from mqttscope.lint.rules import V5, Confidence, Findings, Rule, RuleContext, Severity, examples, forget_oldest, shown
from mqttscope.mqtt.packets import Publish

MAX_RESPONSE_TOPICS = 200
"""Response Topics that are remembered of a connection; the oldest is forgotten first."""
MAX_REQUESTS = 200
"""Correlation Data that is remembered of each; beyond it an unknown one proves nothing."""
MAX_DATA = 64
"""Bytes of Correlation Data that are compared."""


@dataclass(slots=True)
class Requests:
    """The requests that want their answers on one topic."""

    data: dict[bytes, bool] = field(default_factory=dict)
    """Their Correlation Data."""
    bare: bool = False
    """Whether one of them had none."""
    forgotten: bool = False


@dataclass(slots=True)
class Wanted:
    """Requests that the client received, by Response Topic."""

    topics: dict[str, Requests] = field(default_factory=dict)


class ResponseWithoutCorrelation(Rule):
    """A client answers a request without the Correlation Data of that request.

    The requester uses it to find the request that an answer belongs to; without it the answer cannot be used once two
    requests are under way.

    Instead, copy the Correlation Data of the request into the response, byte by byte.
    """

    code = "PAY206"
    severity = Severity.WARNING
    confidence = Confidence.LIKELY
    versions = (V5,)
    statements = {V5: {"V5-RESPONSE-correlation": "publish"}}
    Memory = Wanted

    good = examples("""
        copied
            opened; > subscribe 1 req:0; < suback 1 0
            < publish req response_topic=rsp/c1 correlation_data=0x01 &
                publish req response_topic=rsp/c1 correlation_data=0x02
            > publish rsp/c1 correlation_data=0x02; > publish rsp/c1 correlation_data=0x01
        the request had none
            opened; > subscribe 1 req:0; < suback 1 0; < publish req response_topic=rsp/c1; > publish rsp/c1
        another topic
            opened; > subscribe 1 req:0; < suback 1 0; < publish req response_topic=rsp/c1 correlation_data=0x01
            > publish rsp/c2
    """)
    bad = examples("""
        left out
            opened; > subscribe 1 req:0; < suback 1 0; < publish req response_topic=rsp/c1 correlation_data=0x01
            > publish rsp/c1 !
        that of no request
            opened; > subscribe 1 req:0; < suback 1 0; < publish req response_topic=rsp/c1 correlation_data=0x01
            > publish rsp/c1 correlation_data=0x02 !properties.correlation_data
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Remember requests that the client gets, and look at what it sends to their Response Topics."""
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

    def _judge(self, data: bytes | None, requests: Requests, at: RuleContext) -> Findings:
        start = f"response on {shown(at.topic or '')}"
        if data is None:
            return self.report("", f"{start} lacks the request's Correlation Data")
        known = requests.forgotten or at.server.gapped or at.history.connect_sent is None
        if known or data[:MAX_DATA] in requests.data:
            return None
        return self.report(
            "properties.correlation_data",
            f"{start} has Correlation Data {data[:16].hex()} ({len(data)} bytes), which no request had",
        )


def _remember(topics: dict[str, Requests], wanted: str, data: bytes | None) -> None:
    requests = topics.get(wanted)
    if requests is None:
        requests = topics[wanted] = Requests()
        forget_oldest(topics, MAX_RESPONSE_TOPICS)
    if data is None:
        requests.bare = True
    else:
        requests.data[data[:MAX_DATA]] = True
        if forget_oldest(requests.data, MAX_REQUESTS):
            requests.forgotten = True

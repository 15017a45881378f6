import zlib

from mqttscope.lint.finding import Scope
from mqttscope.lint.rules import SECOND_NS, V5, Confidence, Findings, RuleContext, examples
from mqttscope.lint.rules.delivery import DeliveryRule, filters_of
from mqttscope.lint.session_model import SessionModel, session_match
from mqttscope.mqtt.packets import Publish

MIN_LENGTH = 8
"""Minimum payload length: shorter payloads may easily come from another client."""


class NoLocalViolated(DeliveryRule):
    """A client receives its own message, although all its matching subscriptions have No Local.

    Bridges and chat clients use No Local to prevent loops: a message that comes back is published again and again.
    mqttscope recognizes messages of the last minute by topic and content.  Another client may have published the same
    bytes, so the finding is likely only if the payload is long and varied enough, otherwise heuristic.

    Instead, do not forward a message to the client that published it if its subscription has No Local.
    """

    code = "DLV205"
    scope = Scope.SESSION
    versions = (V5,)
    statements = {V5: {"MQTT-3.8.3-3": ""}}
    signs = ("no_local", "unmatched")
    settings = {"window": 60}
    models = (SessionModel,)

    good = examples(r"""
        not returned
            opened; > subscribe 10 a:0,no_local; < suback 10 0; > publish a "{\"t\":21.53,\"n\":1887}"
        different content
            opened; > subscribe 10 a:0,no_local; < suback 10 0; > publish a "{\"t\":21.53,\"n\":1887}"
            < publish a "{\"t\":21.54,\"n\":1888}"
        another subscription without No Local
            opened; > subscribe 10 a:0,no_local; < suback 10 0; > subscribe 11 #:0; < suback 11 0
            > publish a "{\"t\":21.53,\"n\":1887}"; < publish a "{\"t\":21.53,\"n\":1887}"
        two clients delete a retained message
            opened; > subscribe 10 a:0,no_local; < suback 10 0; > publish a retain; < publish a
        more than a minute later
            opened; > subscribe 10 a:0,no_local; < suback 10 0; > publish a "{\"t\":21.53,\"n\":1887}"
            +61 < publish a "{\"t\":21.53,\"n\":1887}"
    """)
    bad = examples(r"""
        its own message
            opened; > subscribe 10 a:0,no_local; < suback 10 0; > publish a "{\"t\":21.53,\"n\":1887}"
            < publish a "{\"t\":21.53,\"n\":1887}" !
        a payload that another client may have sent
            opened; > subscribe 10 a:0,no_local; < suback 10 0; > publish a x; < publish a x !
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look for the message among the recent messages of the client."""
        topic = at.topic
        if topic is None or not packet.payload:
            return None  # all clients that delete a retained message send the same empty payload
        match = session_match(topic, at)
        if not match.all_no_local or match.ended or packet.dup or packet.missing or not match.known:
            return None
        if any(row.replaced is not None and not row.replaced.no_local for row in match.subscriptions):
            return None
        checksum, length = zlib.crc32(packet.payload), len(packet.payload)
        oldest = at.timestamp_ns - self.nanoseconds("window")
        first = match.subscriptions[0].packet
        for sent in reversed(at.other.recent):
            if sent.timestamp_ns < oldest or sent.packet < first:
                return None
            if sent.checksum == checksum and sent.length == length and sent.topic == topic:
                ago = (at.timestamp_ns - sent.timestamp_ns) / SECOND_NS
                varied = length >= MIN_LENGTH and len(set(packet.payload)) >= MIN_LENGTH // 2
                return self.report(
                    "",
                    f"{at.client_name!r} receives its own PUBLISH {topic!r} on {filters_of(match.subscriptions)} with "
                    f"No Local, {ago:.3f} s later",
                    confidence=Confidence.LIKELY if varied and not packet.retain else Confidence.HEURISTIC,
                )
        return None

from mqttscope.lint.rules import V5, Confidence, Findings, Needs, Rule, RuleContext, Severity, examples, shown
from mqttscope.lint.topics import Seen
from mqttscope.mqtt import Direction, Publish
from mqttscope.mqtt.topics import is_valid_topic_name


class RequestWithoutSubscription(Rule):
    """A client sends a request without being subscribed to its Response Topic.

    The answer is published while nobody that the client knows of listens: it is lost, unless another client collects
    the answers on purpose.  Each Response Topic is reported once per connection.

    Instead, subscribe to the Response Topic first, and send the request when the SUBACK has come.
    """

    code = "PAY205"
    severity = Severity.WARNING
    confidence = Confidence.LIKELY
    versions = (V5,)
    sender = Direction.CLIENT_TO_SERVER
    when = "properties"
    needs = Needs.OPENING | Needs.SESSION_BIRTH | Needs.WHOLE_SENDER
    Memory = Seen

    good = examples("""
        subscribed before
            opened; > subscribe 1 rsp/c1:0; < suback 1 0; > publish req response_topic=rsp/c1
        subscribed with a wildcard, the answer is on its way
            opened; > subscribe 1 rsp/+:0 & publish req response_topic=rsp/c1; < suback 1 0
        perhaps subscribed on an earlier connection
            opened resume session_expiry_interval=60 < present; > publish req response_topic=rsp/c1
    """)
    bad = examples("""
        not subscribed, reported once
            opened; > publish req response_topic=rsp/c1 !properties.response_topic; > publish req response_topic=rsp/c1
        the subscription was refused
            opened; > subscribe 1 rsp/c1:0; < suback 1 0x87
            > publish req response_topic=rsp/c1 !properties.response_topic
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look for a subscription that matches."""
        block = packet.properties
        wanted = None if block is None else block.response_topic
        if not wanted or not is_valid_topic_name(wanted):
            return None
        table = at.history.subscriptions
        if not table.complete or table.matching(wanted) or not at.memory(self).first(wanted):
            return None
        return self.report(
            "properties.response_topic",
            f"request on {shown(at.topic or '')} names response topic {shown(wanted)}, to which {at.client_name!r} is "
            "not subscribed",
        )

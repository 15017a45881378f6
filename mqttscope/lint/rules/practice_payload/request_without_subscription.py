from mqttscope.lint.rules import V5, Confidence, Findings, Needs, Rule, RuleContext, Severity, examples, shown
from mqttscope.lint.topics import ReportedTexts
from mqttscope.mqtt import Direction, Publish
from mqttscope.mqtt.topics import is_valid_topic_name


class RequestWithoutSubscription(Rule):
    """A client sends a request without a subscription to its Response Topic.

    The response is lost, unless another client collects the responses on purpose.  Each Response Topic is reported once
    per connection.

    Instead, subscribe to the Response Topic first, and send the request after the SUBACK.
    """

    code = "PAY205"
    severity = Severity.WARNING
    confidence = Confidence.LIKELY
    versions = (V5,)
    sender = Direction.CLIENT_TO_SERVER
    when = "properties"
    needs = Needs.OPENING | Needs.SESSION_BIRTH | Needs.WHOLE_SENDER
    Memory = ReportedTexts

    good = examples("""
        subscribed first
            opened; > subscribe 1 rsp/c1:0; < suback 1 0; > publish req response_topic=rsp/c1
        subscribed with a wildcard, with the SUBACK in flight
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
        """Look for a matching subscription."""
        block = packet.properties
        wanted = None if block is None else block.response_topic
        if not wanted or not is_valid_topic_name(wanted):
            return None
        table = at.history.subscriptions
        if not table.complete or table.matching(wanted) or not at.memory(self).first(wanted):
            return None
        return self.report(
            "properties.response_topic",
            f"request on {shown(at.topic or '')} has response topic {shown(wanted)}, but {at.client_name!r} is not "
            "subscribed to it",
        )

from mqttscope.lint.rules import V5, Confidence, Findings, Needs, Related, Rule, RuleContext, Severity, examples
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS
from mqttscope.mqtt import Direction, Publish
from mqttscope.session.matching import Subscribed


class RetainedSentAgainstHandling(Rule):
    """A client gets a retained message although the Retain Handling of its subscriptions forbids it.

    Retain Handling 2 asks for no retained messages, 1 only for those of a new subscription; the client has its reasons,
    such as not to act twice on an old command.  Without Retain As Published a live message never has RETAIN 1, so any
    that has it is a retained one.

    Instead, look at Retain Handling, and at whether the subscription existed, before sending retained messages.
    """

    code = "RET201"
    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    versions = (V5,)
    statements = {V5: {"MQTT-3.3.1-10": "", "MQTT-3.3.1-11": ""}}
    sender = Direction.SERVER_TO_CLIENT
    when = "retain"
    needs = ALL_SUBSCRIPTIONS | Needs.WHOLE_SENDER
    settings = {"window": 30}

    good = examples("""
        a new subscription with Retain Handling 1
            opened; > subscribe 10 a:0,retain_handling=1; < suback 10 0; < publish a 21.5 retain
        RETAIN 1 of a live message, as published
            opened; > subscribe 10 a:0,retain_as_published,retain_handling=2; < suback 10 0; < publish a 21.5 retain
        a live message
            opened; > subscribe 10 a:0,retain_handling=2; < suback 10 0; < publish a 21.5
        another subscription asks for them
            opened; > subscribe 10 a:0,retain_handling=2 & subscribe 11 #:0; < suback 10 0 & suback 11 0
            < publish a 21.5 retain
        that of the first SUBSCRIBE, which came late
            opened; > subscribe 10 a:0; > subscribe 11 a:0,retain_handling=1; < suback 10 0 & suback 11 0
            < publish a 21.5 retain
        unsubscribed before, so the subscription is new
            opened; > subscribe 10 a:0,retain_handling=2; < suback 10 0
            > unsubscribe 11 a & subscribe 12 a:0,retain_handling=1; < unsuback 11 0 & suback 12 0
            < publish a 21.5 retain
    """)
    bad = examples("""
        Retain Handling 2
            opened; > subscribe 10 a:0,retain_handling=2; < suback 10 0; < publish a 21.5 retain !retain
        Retain Handling 1, and the subscription existed
            opened; > subscribe 10 a:0; < suback 10 0; < publish a 21.5 retain; > subscribe 11 a:0,retain_handling=1
            < suback 11 0; < publish a 21.5 retain !retain
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Every matching subscription has to forbid it."""
        topic = at.topic
        if topic is None or packet.dup:
            return None
        table = at.history.subscriptions
        found = table.found.get(topic) or table.match(topic)
        if not found.subscriptions or found.retain_as_published or not found.known:
            return None
        window = self.nanoseconds("window")
        blamed = None
        for one in found.subscriptions:
            if one.asks_for_retained or one.is_shared:
                return None  # for a Shared Subscription: RET204
            blamed = one
            before = one.replaced
            if before is not None and self._may_come(before, at, window, table.retained.get(topic, 0)):
                return None
        if blamed is None or any(one.asks_for_retained and self._is_recent(one, at, window) for one in found.ended):
            return None
        existed = " of a subscription that existed" if blamed.retain_handling == 1 else ""
        return self.report(
            "retain",
            f"retained message {topic!r} sent to {at.client_name!r} after SUBSCRIBE {blamed.topic_filter!r}{existed} "
            f"with Retain Handling {blamed.retain_handling}",
            statements=("MQTT-3.3.1-10",) if blamed.retain_handling == 1 else ("MQTT-3.3.1-11",),
            related=(Related.to("the SUBSCRIBE", blamed),),
        )

    def _may_come(self, before: Subscribed, at: RuleContext, window: float, sent: int) -> bool:
        """Whether the message may belong to the SUBSCRIBE that was replaced."""
        return before.asks_for_retained and sent < before.times and self._is_recent(before, at, window)

    def _is_recent(self, one: Subscribed, at: RuleContext, window: float) -> bool:
        return at.timestamp_ns - one.timestamp_ns <= window or at.history.subscriptions.is_flood(at.timestamp_ns)

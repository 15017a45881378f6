from mqttscope.lint.rules import V5, Confidence, Findings, Needs, Related, Rule, RuleContext, Severity, examples
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS
from mqttscope.mqtt import Direction, Publish
from mqttscope.session.matching import ClientSubscription


class RetainedSentAgainstHandling(Rule):
    """A client receives a retained message although the Retain Handling of its subscriptions forbids it.

    With Retain Handling 2 a subscription gets no retained messages, with 1 only if it is new; clients use this, for
    example, to avoid acting twice on an old command.  Without Retain As Published a live message never has RETAIN 1, so
    a message with this flag is a retained one.

    Instead, check Retain Handling, and whether the subscription existed, before you send retained messages.
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
        RETAIN 1 of a live message with Retain As Published
            opened; > subscribe 10 a:0,retain_as_published,retain_handling=2; < suback 10 0; < publish a 21.5 retain
        a live message
            opened; > subscribe 10 a:0,retain_handling=2; < suback 10 0; < publish a 21.5
        another subscription allows them
            opened; > subscribe 10 a:0,retain_handling=2 & subscribe 11 #:0; < suback 10 0 & suback 11 0
            < publish a 21.5 retain
        the late answer to the first SUBSCRIBE
            opened; > subscribe 10 a:0; > subscribe 11 a:0,retain_handling=1; < suback 10 0 & suback 11 0
            < publish a 21.5 retain
        unsubscribed in between, so the subscription is new
            opened; > subscribe 10 a:0,retain_handling=2; < suback 10 0
            > unsubscribe 11 a & subscribe 12 a:0,retain_handling=1; < unsuback 11 0 & suback 12 0
            < publish a 21.5 retain
    """)
    bad = examples("""
        Retain Handling 2
            opened; > subscribe 10 a:0,retain_handling=2; < suback 10 0; < publish a 21.5 retain !retain
        Retain Handling 1 for an existing subscription
            opened; > subscribe 10 a:0; < suback 10 0; < publish a 21.5 retain; > subscribe 11 a:0,retain_handling=1
            < suback 11 0; < publish a 21.5 retain !retain
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Report if every matching subscription forbids retained messages."""
        topic = at.topic
        if topic is None or packet.dup:
            return None
        table = at.history.subscriptions
        match = table.matches.get(topic) or table.match(topic)
        if not match.subscriptions or match.retain_as_published or not match.known:
            return None
        window = self.nanoseconds("window")
        blamed = None
        for subscription in match.subscriptions:
            if subscription.asks_for_retained or subscription.is_shared:
                return None  # RET204 checks Shared Subscriptions
            blamed = subscription
            before = subscription.replaced
            if before is not None and self._is_late_answer(before, at, window, table.retained.get(topic, 0)):
                return None
        if blamed is None or any(row.asks_for_retained and self._is_recent(row, at, window) for row in match.ended):
            return None
        existed = " for an existing subscription" if blamed.retain_handling == 1 else ""
        return self.report(
            "retain",
            f"retained message {topic!r} sent to {at.client_name!r} after SUBSCRIBE {blamed.topic_filter!r}{existed} "
            f"with Retain Handling {blamed.retain_handling}",
            statements=("MQTT-3.3.1-10",) if blamed.retain_handling == 1 else ("MQTT-3.3.1-11",),
            related=(Related.to("the SUBSCRIBE", blamed),),
        )

    def _is_late_answer(self, before: ClientSubscription, at: RuleContext, window: float, sent: int) -> bool:
        """Whether the message may belong to the replaced SUBSCRIBE."""
        return before.asks_for_retained and sent < before.times and self._is_recent(before, at, window)

    def _is_recent(self, row: ClientSubscription, at: RuleContext, window: float) -> bool:
        return at.timestamp_ns - row.timestamp_ns <= window or at.history.subscriptions.is_flood(at.timestamp_ns)

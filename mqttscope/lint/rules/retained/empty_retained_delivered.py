from mqttscope.lint.rules import V3_1, V3_1_1, V5, Confidence, Findings, Needs, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Direction, Publish


class EmptyRetainedDelivered(Rule):
    """A client receives a retained message without content.

    An empty message with RETAIN 1 deletes the retained message of its topic and is not stored itself.  A server that
    sends one as retained has stored it, and every new subscriber receives it.  (A subscription with Retain As
    Published, and a bridge before 5.0, receives the deleting message itself with its original flag.  In a continued
    session it may also be a queued message with the publisher's flag, which 3.1.1 forbids too.)

    Instead, delete the retained message when an empty one arrives.
    """

    code = "RET203"
    severity = Severity.ERROR
    statements = {V5: {"MQTT-3.3.1-7": ""}, V3_1_1: {"MQTT-3.3.1-11": ""}}
    also = {V3_1_1: ("MQTT-3.3.1-9",)}
    sender = Direction.SERVER_TO_CLIENT
    when = "retain"
    needs = Needs.OPENING | Needs.WHOLE_RECEIVER

    good = examples("""
        one byte
            opened; > subscribe 10 a:0; < suback 10 0; < publish a " " retain
        the deleting message itself, delivered live
            opened; > subscribe 10 a:0; < suback 10 0; < publish a
        Retain As Published
            opened; > subscribe 10 a:0,retain_as_published; < suback 10 0; < publish a retain
        a subscription of the previous session may have the option
            opened resume < present; < publish a retain
        a message queued in the session, in 3.1, where the server should reset the flag, but may keep it
            opened 3.1 resume; < publish a retain
        a bridge
            opened 3.1.1 protocol_level=0x84; > subscribe 10 a:0; < suback 10 0; < publish a retain
    """)
    bad = examples("""
        an empty message
            opened; > subscribe 10 a:0; < suback 10 0; < publish a retain !payload
        in 3.1.1
            opened 3.1.1; > subscribe 10 a:0; < suback 10 0; < publish a retain !payload
        a message queued in the session, in 3.1.1
            opened 3.1.1 resume < present; < publish a retain !payload
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Report RETAIN 1 without a payload, unless the flag may come from the publisher."""
        if packet.payload or packet.missing:
            return None
        topic = at.topic
        connect = at.history.connect
        if topic is None or connect is None or (connect.bridge and at.version is not V5):
            return None
        table = at.history.subscriptions
        match = table.matches.get(topic) or table.match(topic)
        is_new = at.connection.clean_start or (at.version is not V3_1 and at.connection.session_present is False)
        if at.version is V5 and (not is_new or match.retain_as_published or not match.known):
            return None
        waited = not is_new and not match.subscriptions
        if waited and at.version is V3_1:
            return None  # a server should reset the publisher's flag, but need not
        why = "an empty retained message was stored"
        if waited:
            why += ", or one that was queued in the session kept its flag"
        return self.report(
            "payload",
            f"PUBLISH {topic!r} to {at.client_name!r} has RETAIN 1 and an empty payload: {why}",
            confidence=None if is_new and match.subscriptions else Confidence.LIKELY,
            statements=("MQTT-3.3.1-9",) if waited else None,
        )
